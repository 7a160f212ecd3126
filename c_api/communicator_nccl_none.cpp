// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// For builds without CUDA: programs can still be linked, and get an error at run time.

#include <onebit/onebit_nccl.h>

#include "c_api/guard.hpp"
#include "collectives/communicator/communicator.hpp"

namespace {

using Output = onebit::Output<onebit::Communicator, onebit_comm_t>;

onebit::Status refusal(const char* function) {
    return onebit::Status::error(ONEBIT_ERROR_UNSUPPORTED, "%s: this libonebit was built without CUDA", function);
}

/// The other ranks' libraries may have been built with CUDA: these ranks wait for this rank's status.
onebit_status_t refuse(const char* function, onebit_comm_t base, onebit_comm_t* comm) noexcept {
    return onebit::guard([&] {
        const Output output(comm, "comm");
        return onebit::with_object<onebit::Communicator>(base, [&](onebit::Communicator& communicator) {
            return communicator.agree(output.status().ok() ? refusal(function) : output.status());
        });
    });
}

} // namespace

onebit_status_t onebit_comm_create_nccl(ncclComm_t /*nccl_comm*/, cudaStream_t /*stream*/,
                                        onebit_comm_t* comm) noexcept {
    return onebit::guard([&] {
        ONEBIT_RETURN_IF_ERROR(Output(comm, "comm").status());
        return refusal("onebit_comm_create_nccl");
    });
}

onebit_status_t onebit_comm_bootstrap_nccl(onebit_comm_t base, cudaStream_t /*stream*/, onebit_comm_t* comm) noexcept {
    return refuse("onebit_comm_bootstrap_nccl", base, comm);
}

onebit_status_t onebit_comm_create_gpu(onebit_comm_t base, cudaStream_t /*stream*/, onebit_comm_t* comm) noexcept {
    return refuse("onebit_comm_create_gpu", base, comm);
}
