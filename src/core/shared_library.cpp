// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "core/shared_library.hpp"

#include <dlfcn.h>

namespace onebit {

SharedLibrary::SharedLibrary(const char* name) : name_(name), handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) why_not_ = dlerror();
}

SharedLibrary::~SharedLibrary() {
    if (handle_ != nullptr && !kept_) dlclose(handle_);
}

void* SharedLibrary::find(const char* name) const {
    return handle_ == nullptr ? nullptr : dlsym(handle_, name); // of NULL dlsym would look everywhere
}

Status SharedLibrary::check(const char* what) const {
    if (handle_ == nullptr) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED, "%s can't be loaded: %s", what, why_not_.c_str());
    }
    if (missing_ == nullptr) return {};
    return Status::error(ONEBIT_ERROR_UNSUPPORTED, "%s: %s has no %s", what, name_.c_str(), missing_);
}

} // namespace onebit
