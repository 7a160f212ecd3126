// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks some of whose libraries were built without CUDA.

// The functions of such a library, under other names beside the functions of one with CUDA.
#define onebit_comm_create_nccl create_nccl_without_cuda
#define onebit_comm_bootstrap_nccl bootstrap_nccl_without_cuda
#define onebit_comm_create_gpu create_gpu_without_cuda
#include "c_api/communicator_nccl_none.cpp" // NOLINT(bugprone-suspicious-include)
#undef onebit_comm_create_nccl
#undef onebit_comm_bootstrap_nccl
#undef onebit_comm_create_gpu

#include <string>

#include "support/catch2.hpp"
#include "support/environment.hpp"
#include "support/ranks.hpp"

extern "C" {
onebit_status_t onebit_comm_bootstrap_nccl(onebit_comm_t base, cudaStream_t stream, onebit_comm_t* comm) noexcept;
onebit_status_t onebit_comm_create_gpu(onebit_comm_t base, cudaStream_t stream, onebit_comm_t* comm) noexcept;
}

namespace {

using namespace onebit_test;
using Create = onebit_status_t(onebit_comm_t base, cudaStream_t stream, onebit_comm_t* comm) noexcept;

void check_mixed(Create* with_cuda, Create* without, const std::string& name) {
    const Variable patience("ONEBIT_TIMEOUT", "5");
    for (const int n : {1, 2, 3}) {
        run_ranks(n, [&](onebit_comm_t base, RankLog& log) {
            Create* const create = log.last_rank() ? without : with_cuda;
            auto* comm = reinterpret_cast<onebit_comm_t>(&log); // must be overwritten
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_UNSUPPORTED,
                                  "rank " + std::to_string(n - 1) + ";" + name + ": ;built without CUDA",
                                  create(base, nullptr, &comm));
            ONEBIT_EXPECT(log, comm == nullptr);
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "rank 0: comm is NULL",
                                  create(base, nullptr, log.rank() == 0 ? nullptr : &comm));
        });
    }
}

TEST_CASE("a rank whose library has no CUDA says so to those that have", "[nccl]") {
    check_mixed(onebit_comm_create_gpu, create_gpu_without_cuda, "onebit_comm_create_gpu");
    check_mixed(onebit_comm_bootstrap_nccl, bootstrap_nccl_without_cuda, "onebit_comm_bootstrap_nccl");
    onebit_comm_t comm = nullptr;
    CHECK(create_gpu_without_cuda(nullptr, nullptr, &comm) == ONEBIT_ERROR_INVALID_HANDLE);
    CHECK(create_nccl_without_cuda(nullptr, nullptr, &comm) == ONEBIT_ERROR_UNSUPPORTED);
}

} // namespace
