// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/gpu_runtime.hpp"

#include "core/shared_library.hpp"

namespace onebit {
namespace {

/// Where the library isn't open or lacks a required function: `runtime` says so. The library stays loaded: the driver
/// that cuInit has started can't be taken out again, and NCCL has threads.
bool is_whole(SharedLibrary& library, Runtime* runtime) {
    library.keep_open();
    if (!library.is_open()) {
        runtime->why_not = library.why_not();
    } else if (library.missing() != nullptr) {
        runtime->why_not = std::string("it has no ") + library.missing();
    }
    return runtime->why_not.empty();
}

} // namespace

Runtime find_cuda_driver(int* devices) {
    *devices = 0;
    Runtime driver;
    SharedLibrary library("libcuda.so.1");
    int (*init)(unsigned) = nullptr;
    int (*version)(int*) = nullptr;
    int (*count)(int*) = nullptr;
    library.required("cuInit", &init);
    library.required("cuDriverGetVersion", &version);
    library.required("cuDeviceGetCount", &count);
    if (!is_whole(library, &driver)) return driver;
    (void)version(&driver.version);
    if (const int error = init(0); error != 0) {
        driver.why_not = "cuInit fails with error " + std::to_string(error);
    } else if (count(devices) != 0 || *devices == 0) {
        driver.why_not = "the driver has no device";
    } else {
        driver.usable = true;
    }
    return driver;
}

Runtime find_nccl() {
    Runtime nccl;
    SharedLibrary library("libnccl.so.2");
    int (*version)(int*) = nullptr;
    library.required("ncclGetVersion", &version);
    if (!is_whole(library, &nccl)) return nccl;
    (void)version(&nccl.version);
    nccl.usable = nccl.version >= kOldestNccl;
    if (!nccl.usable) {
        nccl.why_not =
            "version " + nccl_version_text(nccl.version) + " is older than " + nccl_version_text(kOldestNccl);
    }
    return nccl;
}

std::string nccl_version_text(int version) {
    return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
}

std::string cuda_version_text(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

} // namespace onebit
