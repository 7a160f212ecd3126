// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "transport/transport.hpp"

namespace onebit {

/// How ranks that know nothing of each other meet.
struct Bootstrap {
    int rank = 0;
    int ranks = 1;
    /// all[r] = rank r's `bytes`. A failure where it isn't possible.
    std::function<Status(const void* mine, void* all, std::size_t bytes)> allgather;
    bool shares_memory = true; ///< sends through it inside a node
    std::string interface;     ///< its name, or an address of this host; "": a rule chooses
    double timeout = 0;        ///< seconds to wait for peers to connect; 0: for ever
};

/// A transport over TCP, and through shared memory inside a node, on host memory. `own`: what is already wrong on this
/// rank. Collective; blocks. INVALID_ARGUMENT, TRANSPORT and TIMEOUT, naming ranks and addresses. OUT_OF_MEMORY on
/// every rank if one rank has no memory (but see meeting.hpp).
Status make_tcp_transport(const Bootstrap& bootstrap, const Status& own, std::unique_ptr<Transport>* transport);

} // namespace onebit
