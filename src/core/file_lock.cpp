// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "core/file_lock.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace onebit {
namespace {

constexpr std::size_t kLongestNote = 160;

Status io_error(const std::string& name) {
    return Status::error(ONEBIT_ERROR_IO, "can't lock %s: %s", shown(name).c_str(), std::strerror(errno));
}

/// "host node17, process 4711, since 2026-11-25 08:40:12 UTC"
std::string own_note() {
    std::array<char, 65> host{};
    (void)gethostname(host.data(), host.size() - 1);
    std::array<char, 32> when{};
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    if (gmtime_r(&now, &utc) != nullptr) (void)std::strftime(when.data(), when.size(), "%Y-%m-%d %H:%M:%S UTC", &utc);
    std::array<char, kLongestNote> note{};
    std::snprintf(note.data(), note.size(), "host %.60s, process %ld, since %s", host.data(),
                  static_cast<long>(getpid()), when.data());
    return note.data();
}

/// What the holder has written there, for people's terminals.
std::string note_in(int file) {
    std::array<char, kLongestNote> note{};
    const ssize_t got = pread(file, note.data(), note.size(), 0);
    std::string text(note.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    std::ranges::replace_if(
        text, [](unsigned char c) { return c < ' ' || c >= 0x7f; }, '?');
    return text.empty() ? "somebody who has not said who" : text;
}

Status held(const std::string& name, int file) {
    return Status::error(ONEBIT_ERROR_IO, "%s: another save is under way there, by %s", shown(name, 80).c_str(),
                         note_in(file).c_str());
}

/// A lock of the open file: threads of one process exclude each other, too, and the lock ends with its holder.
struct flock whole_file(short type) {
    struct flock lock {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    return lock;
}

bool is_regular(int file, struct stat* information) {
    return fstat(file, information) == 0 && S_ISREG(information->st_mode);
}

} // namespace

std::string lock_name(const std::string& prefix) {
    return name_beside(prefix, ".lock");
}

FileLock::~FileLock() {
    release();
}

void FileLock::release() {
    if (file_.is_open()) unlink(name_.c_str()); // while it is still locked, so it is nobody else's
    file_ = Descriptor();
}

Status FileLock::take(const std::string& name) {
    name_ = name;
    const std::string note = own_note(); // before there is a file: no exception may leave it behind
    // A holder that has just removed the file leaves us with a lock on a file that has no name any more.
    constexpr int kTries = 100;
    for (int i = 0; i < kTries; ++i) {
        bool again = false;
        const Status status = try_once(note, &again);
        if (!again) return status;
    }
    return Status::error(ONEBIT_ERROR_IO, "can't lock %s: others come and go", shown(name).c_str());
}

Status FileLock::try_once(const std::string& note, bool* again) {
    Descriptor file(open(name_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
    struct stat opened {};
    if (!file.is_open()) return io_error(name_);
    if (!is_regular(file.get(), &opened)) {
        return Status::error(ONEBIT_ERROR_IO, "can't lock %s: not a regular file", shown(name_).c_str());
    }
    struct flock lock = whole_file(F_WRLCK);
    if (fcntl(file.get(), F_OFD_SETLK, &lock) != 0) {
        if (errno == EAGAIN || errno == EACCES) return held(name_, file.get());
        if (errno == EINTR) *again = true;
        return {}; // no locks in this file system
    }
    struct stat named {};
    const bool same =
        lstat(name_.c_str(), &named) == 0 && named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
    if (!same) {
        *again = true;
        return {};
    }
    // Only for people: a lock whose holder has not said who it is holds all the same.
    if (ftruncate(file.get(), 0) == 0) (void)!pwrite(file.get(), note.data(), note.size(), 0);
    file_ = std::move(file);
    return {};
}

Status FileLock::check_free(const std::string& name) {
    const Descriptor file(open(name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat opened {};
    if (!file.is_open() || !is_regular(file.get(), &opened)) return {};
    struct flock lock = whole_file(F_RDLCK);
    const bool known = fcntl(file.get(), F_OFD_GETLK, &lock) == 0;
    return known && lock.l_type == F_WRLCK ? held(name, file.get()) : Status();
}

} // namespace onebit
