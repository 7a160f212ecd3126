// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/gpu_runtime.hpp"

#include <dlfcn.h>

namespace onebit {
namespace {

/// It stays loaded: the driver that cuInit has started can't be taken out again, and NCCL has threads.
void* open(const char* name, std::string* why_not) {
    void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) *why_not = dlerror();
    return library;
}

/// NULL where the library has no such function: then `why_not` says so.
template <typename Function>
Function* function(void* library, const char* name, std::string* why_not) {
    auto* const found = reinterpret_cast<Function*>(dlsym(library, name));
    if (found == nullptr) *why_not = std::string("it has no ") + name;
    return found;
}

} // namespace

Runtime find_cuda_driver(int* devices) {
    *devices = 0;
    Runtime driver;
    void* const library = open("libcuda.so.1", &driver.why_not);
    if (library == nullptr) return driver;
    auto* const init = function<int(unsigned)>(library, "cuInit", &driver.why_not);
    auto* const version = function<int(int*)>(library, "cuDriverGetVersion", &driver.why_not);
    auto* const count = function<int(int*)>(library, "cuDeviceGetCount", &driver.why_not);
    if (init == nullptr || version == nullptr || count == nullptr) return driver;
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
    void* const library = open("libnccl.so.2", &nccl.why_not);
    if (library == nullptr) return nccl;
    auto* const version = function<int(int*)>(library, "ncclGetVersion", &nccl.why_not);
    if (version == nullptr) return nccl;
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
