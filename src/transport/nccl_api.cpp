// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/nccl_api.hpp"

#include <dlfcn.h>

#include <memory>
#include <string>

namespace onebit {
namespace {

constexpr const char* kLibrary = "libnccl.so.2";

struct CloseLibrary {
    void operator()(void* library) const { dlclose(library); }
};

std::string version_text(int version) {
    return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
}

/// Looks functions up and remembers the first that is missing.
class Finder {
  public:
    explicit Finder(void* library) : library_(library) {}

    template <typename Function>
    bool optional(const char* name, Function** function) {
        *function = reinterpret_cast<Function*>(dlsym(library_, name));
        return *function != nullptr;
    }
    template <typename Function>
    void required(const char* name, Function** function) {
        if (!optional(name, function) && missing_ == nullptr) missing_ = name;
    }

    const char* missing() const { return missing_; }

  private:
    void* library_;
    const char* missing_ = nullptr;
};

Status check_version(const char* library, const NcclApi& api) {
    int version = 0;
    if (api.get_version(&version) != nccl::kSuccess) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED, "NCCL: %s doesn't tell its version", library);
    }
    if (version >= NcclApi::kOldest) return {};
    return Status::error(ONEBIT_ERROR_UNSUPPORTED, "NCCL: %s is version %s, older than %s, the oldest that will do",
                         library, version_text(version).c_str(), version_text(NcclApi::kOldest).c_str());
}

Status missing_function(const char* library, const char* name) {
    return Status::error(ONEBIT_ERROR_UNSUPPORTED, "NCCL: %s has no %s", library, name);
}

} // namespace

Status load_nccl(const char* library, NcclApi* api) {
    std::unique_ptr<void, CloseLibrary> opened(dlopen(library, RTLD_NOW | RTLD_LOCAL));
    if (opened == nullptr) return Status::error(ONEBIT_ERROR_UNSUPPORTED, "NCCL can't be loaded: %s", dlerror());
    NcclApi found;
    Finder find(opened.get());
    // First the version: of an old library it says more than the function that it lacks.
    if (!find.optional("ncclGetVersion", &found.get_version)) return missing_function(library, "ncclGetVersion");
    ONEBIT_RETURN_IF_ERROR(check_version(library, found));
    find.required("ncclGetErrorString", &found.get_error_string);
    find.required("ncclGetLastError", &found.get_last_error);
    find.required("ncclGetUniqueId", &found.get_unique_id);
    find.required("ncclCommInitRankConfig", &found.comm_init_rank_config);
    find.required("ncclCommSplit", &found.comm_split);
    find.required("ncclCommGetAsyncError", &found.comm_get_async_error);
    find.required("ncclCommCount", &found.comm_count);
    find.required("ncclCommCuDevice", &found.comm_cu_device);
    find.required("ncclCommUserRank", &found.comm_user_rank);
    find.required("ncclCommFinalize", &found.comm_finalize);
    find.required("ncclCommDestroy", &found.comm_destroy);
    find.required("ncclCommAbort", &found.comm_abort);
    find.required("ncclGroupStart", &found.group_start);
    find.required("ncclGroupEnd", &found.group_end);
    find.required("ncclSend", &found.send);
    find.required("ncclRecv", &found.recv);
    find.required("ncclAllReduce", &found.all_reduce);
    find.required("ncclAllGather", &found.all_gather);
    (void)find.optional("ncclAlltoAll", &found.all_to_all);
    if (find.missing() != nullptr) return missing_function(library, find.missing());
    (void)opened.release(); // never closed: it has threads
    *api = found;
    return {};
}

Status find_nccl_api(const NcclApi** api) {
    struct Loaded {
        NcclApi api;
        Status status = load_nccl(kLibrary, &api);
    };
    static const Loaded loaded;
    *api = &loaded.api;
    return loaded.status;
}

} // namespace onebit
