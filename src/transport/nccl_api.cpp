// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/nccl_api.hpp"

#include <string>

#include "core/shared_library.hpp"

namespace onebit {
namespace {

constexpr const char* kLibrary = "libnccl.so.2";

std::string version_text(int version) {
    return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
}

Status check_version(const char* library, const NcclApi& api) {
    int version = 0;
    if (api.get_version(&version) != nccl::kSuccess) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED, "NCCL: %s doesn't tell its version", library);
    }
    if (version >= NcclApi::kOldest) return {};
    return Status::error(ONEBIT_ERROR_UNSUPPORTED, "NCCL: %s is version %s, older than %s, the oldest that will do",
                         library, version_text(version).c_str(), version_text(NcclApi::kOldest).c_str());
}

} // namespace

Status load_nccl(const char* library, NcclApi* api) {
    SharedLibrary nccl(library);
    NcclApi found;
    // First the version: for an old library, it says more than the name of a missing function.
    nccl.required("ncclGetVersion", &found.get_version);
    ONEBIT_RETURN_IF_ERROR(nccl.check("NCCL"));
    ONEBIT_RETURN_IF_ERROR(check_version(library, found));
    nccl.required("ncclGetErrorString", &found.get_error_string);
    nccl.required("ncclGetLastError", &found.get_last_error);
    nccl.required("ncclGetUniqueId", &found.get_unique_id);
    nccl.required("ncclCommInitRankConfig", &found.comm_init_rank_config);
    nccl.required("ncclCommSplit", &found.comm_split);
    nccl.required("ncclCommGetAsyncError", &found.comm_get_async_error);
    nccl.required("ncclCommCount", &found.comm_count);
    nccl.required("ncclCommCuDevice", &found.comm_cu_device);
    nccl.required("ncclCommUserRank", &found.comm_user_rank);
    nccl.required("ncclCommFinalize", &found.comm_finalize);
    nccl.required("ncclCommDestroy", &found.comm_destroy);
    nccl.required("ncclCommAbort", &found.comm_abort);
    nccl.required("ncclGroupStart", &found.group_start);
    nccl.required("ncclGroupEnd", &found.group_end);
    nccl.required("ncclSend", &found.send);
    nccl.required("ncclRecv", &found.recv);
    nccl.required("ncclAllReduce", &found.all_reduce);
    nccl.required("ncclAllGather", &found.all_gather);
    (void)nccl.optional("ncclAlltoAll", &found.all_to_all);
    ONEBIT_RETURN_IF_ERROR(nccl.check("NCCL"));
    nccl.keep_open(); // it has threads
    *api = found;
    return {};
}

Status find_nccl_api(const NcclApi** api) {
    struct Loaded {
        NcclApi api;
        Status status = load_nccl(kLibrary, &api);
    };
    static const Loaded kLoaded;
    *api = &kLoaded.api;
    return kLoaded.status;
}

} // namespace onebit
