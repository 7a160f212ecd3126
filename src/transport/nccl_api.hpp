// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// What we call of NCCL, declared by ourselves, so that neither building nor starting needs NCCL. A test compares all of
// this with nccl.h where there is one.
#pragma once

#include <climits>
#include <cstddef>

#include "core/cuda/device.hpp"
#include "core/status.hpp"

struct ncclComm; // what NCCL's own ncclComm_t points to

namespace onebit {
namespace nccl {

using Comm = ncclComm*;

enum Result : unsigned {
    kSuccess = 0,
    kUnhandledCudaError = 1,
    kSystemError = 2,
    kInternalError = 3,
    kInvalidArgument = 4,
    kInvalidUsage = 5,
    kRemoteError = 6,
    kInProgress = 7, ///< of communicators that don't block: not done yet, ask comm_get_async_error
};
enum DataType : unsigned { kUint8 = 1, kFloat32 = 7 };
enum RedOp : unsigned { kSum = 0 };

struct UniqueId {
    char internal[128];
};

/// As long as in the oldest version. Newer versions go by `size` and `version`, and handle the missing members.
struct Config {
    static constexpr int kUndefined = INT_MIN;

    std::size_t size = sizeof(Config);
    unsigned magic = 0xcafebeef;
    unsigned version = 21900;
    int blocking = kUndefined;
    int cga_cluster_size = kUndefined;
    int min_ctas = kUndefined;
    int max_ctas = kUndefined;
    const char* net_name = nullptr;
    int split_share = kUndefined;
};

} // namespace nccl

/// NCCL's functions: those of a library, or a test's own.
struct NcclApi {
    using Result = nccl::Result;
    using Comm = nccl::Comm;

    /// The oldest version that has Config as above and all functions that are called without a check.
    static constexpr int kOldest = 21900;

    Result (*get_version)(int* version) = nullptr;
    const char* (*get_error_string)(Result result) = nullptr;
    const char* (*get_last_error)(Comm comm) = nullptr;

    Result (*get_unique_id)(nccl::UniqueId* id) = nullptr;
    Result (*comm_init_rank_config)(Comm* comm, int ranks, nccl::UniqueId id, int rank, nccl::Config* config) = nullptr;
    Result (*comm_split)(Comm comm, int color, int key, Comm* child, nccl::Config* config) = nullptr;
    Result (*comm_get_async_error)(Comm comm, Result* error) = nullptr;
    Result (*comm_count)(Comm comm, int* ranks) = nullptr;
    Result (*comm_cu_device)(Comm comm, int* device) = nullptr;
    Result (*comm_user_rank)(Comm comm, int* rank) = nullptr;
    Result (*comm_finalize)(Comm comm) = nullptr;
    Result (*comm_destroy)(Comm comm) = nullptr;
    Result (*comm_abort)(Comm comm) = nullptr;

    Result (*group_start)() = nullptr;
    Result (*group_end)() = nullptr;
    Result (*send)(const void* data, std::size_t count, nccl::DataType type, int peer, Comm comm,
                   cuda::Stream stream) = nullptr;
    Result (*recv)(void* data, std::size_t count, nccl::DataType type, int peer, Comm comm,
                   cuda::Stream stream) = nullptr;
    Result (*all_reduce)(const void* input, void* output, std::size_t count, nccl::DataType type, nccl::RedOp operation,
                         Comm comm, cuda::Stream stream) = nullptr;
    Result (*all_gather)(const void* sent, void* received, std::size_t count, nccl::DataType type, Comm comm,
                         cuda::Stream stream) = nullptr;
    /// NULL before 2.28. Either all ranks of a communicator have it or none has: NCCL refuses to make a communicator of
    /// ranks with different versions.
    Result (*all_to_all)(const void* sent, void* received, std::size_t count, nccl::DataType type, Comm comm,
                         cuda::Stream stream) = nullptr;
};

/// Fills the table from the library of that name, which stays loaded. UNSUPPORTED, with the reason in words, where it
/// can't be loaded, is too old or lacks a function.
Status load_nccl(const char* library, NcclApi* api);

/// The table of libnccl.so.2, of the one that the process has already loaded, if any. Loaded once. From any thread.
Status find_nccl_api(const NcclApi** api);

} // namespace onebit
