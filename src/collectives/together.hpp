// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/allreduce.hpp"
#include "collectives/communicator.hpp"

namespace onebit {

/// Runs `body`, this rank's part in something collective that agrees from time to time, and lets no exception leave the
/// other ranks waiting: it goes into the agreement that they come to next, which fails on all. So a body ends with an
/// agreement, has nothing collective but agreements and what stands right behind one, and where it has a way on from an
/// agreement that failed, that part is run together by itself.
template <typename Body, typename Agree>
Status together(const Body& body, const Agree& agree) {
    bool threw = true;
    const Status status = catch_exceptions([&] {
        Status returned = body();
        threw = false;
        return returned;
    });
    return threw ? agree(status) : status;
}

/// The same of what a communicator's ranks agree on, and of what a handle's do.
template <typename Body>
Status together(Communicator& communicator, const Body& body) {
    return together(body, [&](const Status& own) { return communicator.usable() ? communicator.agree(own) : own; });
}
template <typename Body>
Status together(Allreduce& allreduce, const Body& body) {
    return together(body, [&](const Status& own) { return allreduce.broken().ok() ? allreduce.agree_now(own) : own; });
}

} // namespace onebit
