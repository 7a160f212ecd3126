// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/file.hpp"
#include "core/status.hpp"

namespace onebit {

/// What is locked for the files that begin with this.
std::string lock_name(const std::string& prefix);

/// Keeps other jobs, and other handles of this one, off some files while it lives, by a lock on a file of that name,
/// which says who holds it and is removed at the end. The system lets go of a dead job's lock by itself; the file that
/// is left then is in nobody's way. Where the file system knows no locks there is none.
class FileLock {
  public:
    FileLock() = default;
    ~FileLock();
    FileLock(const FileLock&) = delete;
    FileLock& operator=(const FileLock&) = delete;

    /// IO with who holds it, where and since when; at once. No symbolic link is followed.
    Status take(const std::string& name);

    /// Lets go of it before the end.
    void release();

    /// Whether take would be refused now; makes no file.
    static Status check_free(const std::string& name);

  private:
    Status try_once(const std::string& note, bool* again);

    std::string name_;
    Descriptor file_;
};

} // namespace onebit
