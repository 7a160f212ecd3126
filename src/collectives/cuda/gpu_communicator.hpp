// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "collectives/communicator/communicator.hpp"
#include "core/config.hpp"
#include "core/cuda/device.hpp"
#include "topology/machine.hpp"
#include "transport/nccl_api.hpp"

namespace onebit {

/// What a rank knows that the choice of transports depends on.
struct GpuRank {
    GpuTransport forced = GpuTransport::kAuto; ///< ONEBIT_GPU_TRANSPORT
    const NcclApi* nccl = nullptr;
    Status nccl_status; ///< of finding it
    Machine machine;
    Status machine_status; ///< of reading it
};

/// A communicator of the ranks of `base` for values in their GPUs' memory, whose transport follows from the topology,
/// or is forced. Each rank makes its choice, and all take the least of the choices (the base alone, NCCL inside a node,
/// NCCL throughout). `own`: what is already wrong on this rank, if anything. Fails on all ranks or on none. Collective;
/// blocks.
Status make_gpu_communicator(Communicator& base, const GpuRank& here, const Status& own, cuda::Stream stream,
                             std::unique_ptr<Communicator>* communicator);

} // namespace onebit
