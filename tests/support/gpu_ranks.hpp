// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Ranks that are threads, each with a communicator for values in its emulated GPU's memory, over loopback and the
// emulated NCCL, as ONEBIT_GPU_TRANSPORT says.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/communicator/communicator.hpp"
#include "collectives/cuda/gpu_communicator.hpp"
#include "support/emulated_nccl.hpp"
#include "support/loopback_ranks.hpp"

namespace onebit_test {

/// A rank's resources on such a machine.
inline onebit::GpuRank gpu_rank(const onebit::Machine& machine = {}) {
    onebit::GpuRank here;
    here.nccl = &EmulatedNccl::api();
    here.machine = machine;
    return here;
}

/// Made of a transport between all ranks, as the environment forces it if the rank isn't already forced.
inline onebit::Status make_gpu_rank(std::unique_ptr<onebit::Transport> transport, onebit::GpuRank here,
                                    std::unique_ptr<onebit::Communicator>* communicator) {
    std::unique_ptr<onebit::Communicator> base;
    ONEBIT_RETURN_IF_ERROR(onebit::Communicator::create(std::move(transport), {}, &base));
    if (here.forced == onebit::GpuTransport::kAuto) here.forced = base->environment().gpu_transport;
    return onebit::make_gpu_communicator(*base, here, {}, nullptr, communicator);
}

/// Calls run_rank(*communicator, &outcome) for every rank, each on its own thread; its status goes to outcome.status.
template <typename Outcome, typename RunRank>
std::vector<Outcome> run_gpu_ranks(int ranks, const RunRank& run_rank) {
    return run_loopback_ranks<Outcome>(
        static_cast<std::size_t>(ranks), [&](std::unique_ptr<onebit::Transport> transport, Outcome* outcome) {
            std::unique_ptr<onebit::Communicator> communicator;
            ONEBIT_RETURN_IF_ERROR(make_gpu_rank(std::move(transport), gpu_rank(), &communicator));
            return run_rank(*communicator, outcome);
        });
}

} // namespace onebit_test
