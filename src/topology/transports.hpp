// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "topology/gpu_runtime.hpp"
#include "topology/machine.hpp"

namespace onebit {

/// Which transport sends inside a node and between nodes.
enum class Transports { kMpi, kNccl, kNcclInsideMpiAcross };
const char* transports_name(Transports transports);

/// What the choice depends on besides the machine. It must be the same on all ranks.
struct Surroundings {
    std::size_t nodes = 1;
    std::size_t ranks_per_node = 1;
    bool device_memory = false; ///< the buffers lie in GPUs' memory
    Runtime cuda;
    Runtime nccl;
};

struct TransportChoice {
    Transports transports = Transports::kMpi;
    std::string reason; ///< in words, without a full stop
};

/// Where buffers lie in GPUs' memory: NCCL throughout where each GPU has a NIC, at most a host bridge away, that can
/// send from the GPU's memory; NCCL inside a node and MPI between nodes where messages that leave the node pass through
/// the host's memory anyway; else MPI.
TransportChoice choose_transports(const Machine& machine, const Surroundings& surroundings);

} // namespace onebit
