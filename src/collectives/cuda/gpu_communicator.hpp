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

/// What a rank brings along that the choice of transports hangs on.
struct GpuRank {
    GpuTransport forced = GpuTransport::kAuto; ///< ONEBIT_GPU_TRANSPORT
    const NcclApi* nccl = nullptr;
    Status nccl_status; ///< of finding it
    Machine machine;
    Status machine_status; ///< of reading it
};

/// A communicator of the ranks of `base` for values in their GPUs' memory, whose transport is what the topology says,
/// or what is forced: each rank makes its choice, and the least of them is everybody's (the base alone, NCCL
/// inside a node, NCCL throughout). `own`: what is already wrong on this rank, if anything. Fails on all ranks or on
/// none. Collective; blocks.
Status make_gpu_communicator(Communicator& base, const GpuRank& here, const Status& own, cuda::Stream stream,
                             std::unique_ptr<Communicator>* communicator);

} // namespace onebit
