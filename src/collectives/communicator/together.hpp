// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/communicator/communicator.hpp"

namespace onebit {

/// Runs `body`, this rank's part in something collective. An exception of the body does not leave the other ranks
/// waiting: this rank takes it to the agreement that they come to next, and that agreement fails on all ranks.
/// What a body must keep to:
/// - It ends with an agreement, on every way through it that succeeds.
/// - Anything else collective in it stands right behind an agreement, with nothing between the two that can throw.
/// - It returns where an agreement has failed. To go on from there takes another body, run by another together().
template <typename Body, typename Agree>
Status take_part(const Body& body, const Agree& agree) {
    bool threw = true;
    const Status status = catch_exceptions([&] {
        Status returned = body();
        threw = false;
        return returned;
    });
    return threw ? agree(status) : status;
}

/// The same with the agreements of a communicator's ranks.
template <typename Body>
Status together(Communicator& communicator, const Body& body) {
    return take_part(body, [&](const Status& own) { return communicator.usable() ? communicator.agree(own) : own; });
}

} // namespace onebit
