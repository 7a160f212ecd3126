// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Our declarations of NCCL agree with NCCL's own. The compiler checks everything.

#include <nccl.h>
#include <onebit/onebit_nccl.h>

#include <array>
#include <cstddef>
#include <type_traits>

#include "topology/gpu_runtime.hpp"
#include "transport/nccl_api.hpp"

namespace onebit {
namespace {

// ---- values ----

static_assert(nccl::kSuccess == static_cast<unsigned>(ncclSuccess));
static_assert(nccl::kUnhandledCudaError == static_cast<unsigned>(ncclUnhandledCudaError));
static_assert(nccl::kSystemError == static_cast<unsigned>(ncclSystemError));
static_assert(nccl::kInternalError == static_cast<unsigned>(ncclInternalError));
static_assert(nccl::kInvalidArgument == static_cast<unsigned>(ncclInvalidArgument));
static_assert(nccl::kInvalidUsage == static_cast<unsigned>(ncclInvalidUsage));
static_assert(nccl::kRemoteError == static_cast<unsigned>(ncclRemoteError));
static_assert(nccl::kInProgress == static_cast<unsigned>(ncclInProgress));
static_assert(nccl::kUint8 == static_cast<unsigned>(ncclUint8));
static_assert(nccl::kFloat32 == static_cast<unsigned>(ncclFloat32));
static_assert(nccl::kSum == static_cast<unsigned>(ncclSum));
static_assert(sizeof(nccl::Result) == sizeof(ncclResult_t) && sizeof(nccl::DataType) == sizeof(ncclDataType_t) &&
              sizeof(nccl::RedOp) == sizeof(ncclRedOp_t));
static_assert(NcclApi::kOldest == NCCL_VERSION(2, 19, 0) && NcclApi::kOldest == kOldestNccl);

// ---- structs ----

static_assert(sizeof(nccl::UniqueId) == sizeof(ncclUniqueId) && alignof(nccl::UniqueId) == alignof(ncclUniqueId));
static_assert(std::is_same_v<nccl::Comm, ncclComm_t> && std::is_same_v<cuda::Stream, cudaStream_t>);

// Our struct is the beginning of NCCL's, and ends where newer fields, or none, follow.
static_assert(sizeof(nccl::Config) <= sizeof(ncclConfig_t));
static_assert(offsetof(nccl::Config, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(nccl::Config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(nccl::Config, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(nccl::Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(nccl::Config, cga_cluster_size) == offsetof(ncclConfig_t, cgaClusterSize));
static_assert(offsetof(nccl::Config, min_ctas) == offsetof(ncclConfig_t, minCTAs));
static_assert(offsetof(nccl::Config, max_ctas) == offsetof(ncclConfig_t, maxCTAs));
static_assert(offsetof(nccl::Config, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(nccl::Config, split_share) == offsetof(ncclConfig_t, splitShare));

constexpr nccl::Config kOurs;
constexpr ncclConfig_t kTheirs = NCCL_CONFIG_INITIALIZER;
static_assert(kOurs.size == sizeof(nccl::Config) && kOurs.magic == kTheirs.magic);
static_assert(kOurs.version == NcclApi::kOldest && kOurs.version <= kTheirs.version);
static_assert(kOurs.blocking == kTheirs.blocking && kOurs.cga_cluster_size == kTheirs.cgaClusterSize &&
              kOurs.min_ctas == kTheirs.minCTAs && kOurs.max_ctas == kTheirs.maxCTAs &&
              kOurs.net_name == kTheirs.netName && kOurs.split_share == kTheirs.splitShare);

// ---- functions: equally many arguments, each of that size and either a pointer on both sides or on neither ----

template <typename Type>
constexpr std::size_t shape() {
    return sizeof(Type) * 2 + (std::is_pointer_v<Type> ? 1 : 0);
}

template <typename Ours, typename Theirs>
struct SameShape : std::false_type {};

template <typename R1, typename... A1, typename R2, typename... A2>
struct SameShape<R1 (*)(A1...), R2 (*)(A2...)> {
    static constexpr bool value = [] {
        if constexpr (sizeof...(A1) == sizeof...(A2)) {
            return std::array{shape<R1>(), shape<A1>()...} == std::array{shape<R2>(), shape<A2>()...};
        } else {
            return false;
        }
    }();
};

#define ONEBIT_CHECK_FUNCTION(ours_, theirs_) \
    static_assert(SameShape<decltype(NcclApi::ours_), decltype(&(theirs_))>::value, #theirs_)

ONEBIT_CHECK_FUNCTION(get_version, ncclGetVersion);
ONEBIT_CHECK_FUNCTION(get_error_string, ncclGetErrorString);
ONEBIT_CHECK_FUNCTION(get_last_error, ncclGetLastError);
ONEBIT_CHECK_FUNCTION(get_unique_id, ncclGetUniqueId);
ONEBIT_CHECK_FUNCTION(comm_init_rank_config, ncclCommInitRankConfig);
ONEBIT_CHECK_FUNCTION(comm_split, ncclCommSplit);
ONEBIT_CHECK_FUNCTION(comm_get_async_error, ncclCommGetAsyncError);
ONEBIT_CHECK_FUNCTION(comm_count, ncclCommCount);
ONEBIT_CHECK_FUNCTION(comm_cu_device, ncclCommCuDevice);
ONEBIT_CHECK_FUNCTION(comm_user_rank, ncclCommUserRank);
ONEBIT_CHECK_FUNCTION(comm_finalize, ncclCommFinalize);
ONEBIT_CHECK_FUNCTION(comm_destroy, ncclCommDestroy);
ONEBIT_CHECK_FUNCTION(comm_abort, ncclCommAbort);
ONEBIT_CHECK_FUNCTION(group_start, ncclGroupStart);
ONEBIT_CHECK_FUNCTION(group_end, ncclGroupEnd);
ONEBIT_CHECK_FUNCTION(send, ncclSend);
ONEBIT_CHECK_FUNCTION(recv, ncclRecv);
ONEBIT_CHECK_FUNCTION(all_reduce, ncclAllReduce);
ONEBIT_CHECK_FUNCTION(all_gather, ncclAllGather);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
ONEBIT_CHECK_FUNCTION(all_to_all, ncclAlltoAll);
#endif
static_assert(!SameShape<decltype(NcclApi::send), decltype(&ncclAllReduce)>::value, "or nothing is checked");

} // namespace
} // namespace onebit
