// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include <onebit/onebit_nccl.h>

#include "c_api/guard.hpp"
#include "collectives/communicator/communicator.hpp"
#include "collectives/cuda/bootstrap.hpp"
#include "collectives/cuda/gpu_communicator.hpp"
#include "transport/nccl.hpp"

using onebit::Communicator;
using onebit::Status;

namespace {

using Output = onebit::Output<Communicator, onebit_comm_t>;

Status put_communicator(std::unique_ptr<onebit::Transport> transport, Output& output) {
    std::unique_ptr<Communicator> communicator;
    ONEBIT_RETURN_IF_ERROR(Communicator::create(std::move(transport), output.status(), &communicator));
    output.put(std::move(communicator));
    return {};
}

} // namespace

onebit_status_t onebit_comm_create_nccl(ncclComm_t nccl_comm, cudaStream_t stream, onebit_comm_t* comm) noexcept {
    return onebit::guard([&] {
        Output output(comm, "comm");
        const onebit::NcclApi* api = nullptr;
        ONEBIT_RETURN_IF_ERROR(onebit::find_nccl_api(&api));
        std::unique_ptr<onebit::Transport> transport;
        ONEBIT_RETURN_IF_ERROR(
            onebit::make_nccl_transport(*api, nccl_comm, stream, onebit::timeout_of_environment(), &transport));
        return put_communicator(std::move(transport), output);
    });
}

onebit_status_t onebit_comm_create_gpu(onebit_comm_t base, cudaStream_t stream, onebit_comm_t* comm) noexcept {
    return onebit::guard([&] {
        Output output(comm, "comm");
        return onebit::with_object<Communicator>(base, [&](Communicator& communicator) {
            onebit::GpuRank here;
            const Status own = onebit::catch_exceptions([&] {
                ONEBIT_RETURN_IF_ERROR(output.status());
                onebit::Environment environment;
                Status read = onebit::read_environment(&environment);
                here.forced = environment.gpu_transport;
                return read;
            });
            here.nccl_status = onebit::find_nccl_api(&here.nccl);
            here.machine_status =
                onebit::catch_exceptions([&] { return onebit::read_machine(nullptr, &here.machine); });
            std::unique_ptr<Communicator> made;
            ONEBIT_RETURN_IF_ERROR(onebit::make_gpu_communicator(communicator, here, own, stream, &made));
            output.put(std::move(made));
            return Status();
        });
    });
}

onebit_status_t onebit_comm_bootstrap_nccl(onebit_comm_t base, cudaStream_t stream, onebit_comm_t* comm) noexcept {
    return onebit::guard([&] {
        Output output(comm, "comm");
        return onebit::with_object<Communicator>(base, [&](Communicator& communicator) {
            const onebit::NcclApi* api = nullptr;
            const Status found = onebit::find_nccl_api(&api);
            std::unique_ptr<onebit::Transport> transport;
            ONEBIT_RETURN_IF_ERROR(onebit::bootstrap_nccl(
                api, communicator, output.status().ok() ? found : output.status(), stream, &transport));
            return put_communicator(std::move(transport), output);
        });
    });
}
