// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/status.hpp"

namespace onebit {

/// A library that is looked for at run time, so that programs start on machines that lack it. Its functions are looked
/// up one by one, and the first required one that is missing is remembered.
class SharedLibrary {
  public:
    /// By the name under which the dynamic linker finds it. Its symbols stay private.
    explicit SharedLibrary(const char* name);
    ~SharedLibrary(); ///< closes it, except after keep_open()
    SharedLibrary(const SharedLibrary&) = delete;
    SharedLibrary& operator=(const SharedLibrary&) = delete;

    bool is_open() const { return handle_ != nullptr; }
    const std::string& why_not() const { return why_not_; } ///< the linker's message where it is not open

    template <typename Function>
    bool optional(const char* name, Function** function) {
        *function = reinterpret_cast<Function*>(find(name));
        return *function != nullptr;
    }
    template <typename Function>
    void required(const char* name, Function** function) {
        if (!optional(name, function) && missing_ == nullptr) missing_ = name;
    }
    const char* missing() const { return missing_; } ///< NULL where none is
    /// UNSUPPORTED, with the reason, where it is not open or lacks a required function. `what`: whose it is.
    Status check(const char* what) const;

    /// For a library that can't be unloaded: it has threads, or its results are in use.
    void keep_open() { kept_ = true; }

  private:
    void* find(const char* name) const;

    std::string name_;
    void* handle_;
    bool kept_ = false;
    std::string why_not_;
    const char* missing_ = nullptr;
};

} // namespace onebit
