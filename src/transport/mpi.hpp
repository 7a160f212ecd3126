// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "transport/mpi_calls.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// A transport over a duplicate of `comm`, on host memory. Collective; blocks, no longer than `timeout` seconds (0: for
/// ever). INVALID_ARGUMENT where `comm` is not an intracommunicator. A rank that returns OUT_OF_MEMORY has told the
/// others: they hear of it in the first exchange that they wait for.
Status make_mpi_transport(const MpiCalls& calls, MpiCalls::Handle comm, double timeout,
                          std::unique_ptr<Transport>* transport);

} // namespace onebit
