// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "core/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace onebit {
namespace {

Status io_error(const char* verb, const std::string& name) {
    return Status::error(ONEBIT_ERROR_IO, "can't %s %s: %s", verb, name.c_str(), std::strerror(errno));
}

/// A file descriptor that closes itself.
class File {
  public:
    File(const std::string& name, int flags) : descriptor_(open(name.c_str(), flags | O_CLOEXEC, 0666)) {}
    ~File() {
        if (descriptor_ >= 0) close(descriptor_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    bool is_open() const { return descriptor_ >= 0; }
    int get() const { return descriptor_; }

  private:
    int descriptor_;
};

} // namespace

Status read_file(const std::string& name, std::size_t most, std::vector<std::byte>* bytes) {
    const File file(name, O_RDONLY);
    struct stat information {};
    if (!file.is_open() || fstat(file.get(), &information) != 0) return io_error("read", name);
    if (!S_ISREG(information.st_mode)) {
        return Status::error(ONEBIT_ERROR_IO, "can't read %s: not a regular file", name.c_str());
    }
    bytes->resize(std::min(most, static_cast<std::size_t>(information.st_size)));
    std::size_t filled = 0;
    while (filled < bytes->size()) {
        const ssize_t got = read(file.get(), bytes->data() + filled, bytes->size() - filled);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return io_error("read", name);
        if (got == 0) break; // it shrank meanwhile: the caller sees that it is truncated
        filled += static_cast<std::size_t>(got);
    }
    bytes->resize(filled);
    return {};
}

ReplacedFile::ReplacedFile(const std::string& name)
    : name_(name),
      new_name_(name + ".new"),
      previous_name_(name + ".previous"),
      folder_(name.find('/') == std::string::npos ? "." : name.substr(0, name.rfind('/') + 1)) {}

Status ReplacedFile::write(std::span<const std::byte> bytes) {
    const File file(new_name_, O_WRONLY | O_CREAT | O_TRUNC);
    if (!file.is_open()) return io_error("create", new_name_);
    step_ = Step::kWritten;
    while (!bytes.empty()) {
        const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return io_error("write", new_name_);
        bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return fsync(file.get()) == 0 ? Status() : io_error("write", new_name_);
}

Status ReplacedFile::replace() {
    struct stat information {};
    had_earlier_ = lstat(name_.c_str(), &information) == 0;
    if (had_earlier_ && !S_ISREG(information.st_mode)) {
        return Status::error(ONEBIT_ERROR_IO, "can't replace %s: not a regular file", name_.c_str());
    }
    if (had_earlier_ && std::rename(name_.c_str(), previous_name_.c_str()) != 0) return io_error("replace", name_);
    step_ = Step::kMovedAway;
    if (std::rename(new_name_.c_str(), name_.c_str()) != 0) return io_error("replace", name_);
    step_ = Step::kReplaced;
    const File directory(folder_, O_RDONLY | O_DIRECTORY);
    if (directory.is_open()) fsync(directory.get()); // best effort: not every file system can
    return {};
}

void ReplacedFile::keep() {
    step_ = Step::kKept;
    if (had_earlier_) std::remove(previous_name_.c_str());
}

ReplacedFile::~ReplacedFile() {
    if (step_ == Step::kNothing || step_ == Step::kKept) return;
    std::remove(step_ == Step::kReplaced ? name_.c_str() : new_name_.c_str());
    if (step_ != Step::kWritten && had_earlier_) std::rename(previous_name_.c_str(), name_.c_str());
}

} // namespace onebit
