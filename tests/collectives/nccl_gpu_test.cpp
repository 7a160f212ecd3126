// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// NCCL itself, on a GPU, through the C interface: ranks are threads, each with a stream. One rank always; two where
// there are two GPUs, or where NCCL lets ranks share one (from 2.30 on, with NCCL_MULTI_RANK_GPU_ENABLE=1).

#include <cuda_runtime.h>
#include <onebit/onebit_nccl.h>

#include <cstdio>
#include <string>
#include <vector>

#include "compress/device_memory.hpp"
#include "support/handles.hpp"

namespace {

using namespace onebit_test;

constexpr std::size_t kCount = 20011;

/// NULL without NCCL or with an NCCL that refuses these ranks; rank 0 prints the reason.
onebit_comm_t bootstrap(onebit_comm_t base, cudaStream_t stream, int devices, RankLog& log) {
    onebit_comm_t comm = nullptr;
    const onebit_status_t status = onebit_comm_bootstrap_nccl(base, stream, &comm);
    if (status == ONEBIT_SUCCESS) return comm;
    const bool share = status == ONEBIT_ERROR_TRANSPORT && log.size() > devices; // which NCCL may refuse
    const bool expected = status == ONEBIT_ERROR_UNSUPPORTED || share;
    ONEBIT_EXPECT_STATUS(log, expected ? status : ONEBIT_SUCCESS, status);
    if (log.rank() == 0) std::printf("skipped: NCCL with %d ranks: %s\n", log.size(), onebit_last_error());
    return nullptr;
}

/// Calls body(base, stream, devices, log) on every rank, which has a GPU and a stream of its own there, and returns the
/// communicator to be destroyed, if any.
template <typename Body>
void run_ranks_with_streams(int n, const Body& body) {
    int devices = 0;
    REQUIRE(cudaGetDeviceCount(&devices) == cudaSuccess);
    REQUIRE(devices > 0);
    run_ranks(n, [&](onebit_comm_t base, RankLog& log) {
        ONEBIT_EXPECT(log, cudaSetDevice(log.rank() % devices) == cudaSuccess);
        cudaStream_t stream = nullptr;
        ONEBIT_EXPECT(log, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
        ONEBIT_EXPECT_OK(log, onebit_comm_destroy(body(base, stream, devices, log)));
        ONEBIT_EXPECT(log, cudaStreamDestroy(stream) == cudaSuccess);
    });
}

TEST_CASE("over NCCL a handle gives the host's averages, to the bit", "[cuda][nccl]") {
    const int n = GENERATE(1, 2);
    run_ranks_with_streams(n, [](onebit_comm_t base, cudaStream_t stream, int devices, RankLog& log) {
        onebit_comm_t comm = bootstrap(base, stream, devices, log);
        for (const onebit_algorithm_t form :
             {ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_DENSE}) {
            if (comm == nullptr) break;
            onebit_allreduce_config_t config = form_config(form, kCount);
            Allreduce host(base, config, log);
            config.memory = ONEBIT_MEMORY_CUDA;
            Allreduce gpu(comm, config, log);
            for (std::uint64_t step = 0; step < 3; ++step) {
                const std::vector<float> values = make_data(Kind::gaussian, kCount, 1, log.rank(), step);
                onebit::DeviceArray<float> buffer(values);
                ONEBIT_EXPECT_OK(log, onebit_allreduce_run(gpu.get(), buffer.data(), buffer.data()));
                ONEBIT_EXPECT(log, cudaStreamSynchronize(stream) == cudaSuccess);
                const std::vector<float> expected = host.run(values);
                ONEBIT_EXPECT(log, form == ONEBIT_ALGORITHM_DENSE ? nearly_same(buffer.get(), expected)
                                                                  : same_bits(buffer.get(), expected));
            }
            ONEBIT_EXPECT(log, std::string(gpu.info().transport) == "nccl");
        }
        return comm;
    });
}

TEST_CASE("a GPU communicator gives the host's averages, whatever it chooses", "[cuda][nccl]") {
    const int n = GENERATE(1, 2);
    run_ranks_with_streams(n, [n](onebit_comm_t base, cudaStream_t stream, int devices, RankLog& log) {
        onebit_comm_t comm = nullptr;
        ONEBIT_EXPECT_OK(log, onebit_comm_create_gpu(base, stream, &comm));
        onebit_comm_info_t info = ONEBIT_COMM_INFO_INIT;
        ONEBIT_EXPECT_OK(log, onebit_comm_get_info(comm, &info));
        if (log.rank() == 0) std::printf("%d ranks, %d GPUs: %s: %s\n", n, devices, info.transport, info.reason);
        if (n > devices) ONEBIT_EXPECT(log, std::string(info.transport) == "loopback");
        onebit_allreduce_config_t config = form_config(ONEBIT_ALGORITHM_FLAT, kCount);
        Allreduce host(base, config, log);
        config.memory = ONEBIT_MEMORY_CUDA;
        Allreduce gpu(comm, config, log); // in the communicator's stream
        const std::vector<float> values = make_data(Kind::gaussian, kCount, 1, log.rank(), 0);
        onebit::DeviceArray<float> buffer(values);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_run(gpu.get(), buffer.data(), buffer.data()));
        ONEBIT_EXPECT(log, cudaStreamSynchronize(stream) == cudaSuccess);
        ONEBIT_EXPECT(log, same_bits(buffer.get(), host.run(values)));
        return comm;
    });
}

} // namespace
