// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/file.hpp"
#include "core/status.hpp"

namespace onebit {

/// The file that is locked for the files that begin with `prefix`.
std::string lock_name(const std::string& prefix);

/// While it lives, keeps other jobs, and other handles of this job, off some files, by a lock on a file of that name.
/// The file says who holds the lock and is removed at the end. The system releases a dead job's lock by itself; the
/// file left then does no harm. Where the file system has no locks, nothing is locked.
class FileLock {
  public:
    FileLock() = default;
    ~FileLock();
    FileLock(const FileLock&) = delete;
    FileLock& operator=(const FileLock&) = delete;

    /// IO with who holds it, where and since when; at once. No symbolic link is followed.
    Status take(const std::string& name);

    /// Releases the lock before the end.
    void release();

    /// Whether take() would be refused now. Makes no file.
    static Status check_free(const std::string& name);

  private:
    Status try_once(const std::string& note, bool* again);

    std::string name_;
    Descriptor file_;
};

} // namespace onebit
