// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "core/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

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

Status write_file(const std::string& name, std::span<const std::byte> bytes) {
    const File file(name, O_WRONLY | O_CREAT | O_TRUNC);
    if (!file.is_open()) return io_error("create", name);
    while (!bytes.empty()) {
        const ssize_t written = write(file.get(), bytes.data(), bytes.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return io_error("write", name);
        bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return fsync(file.get()) == 0 ? Status() : io_error("write", name);
}

Status read_file(const std::string& name, std::vector<std::byte>* bytes) {
    const File file(name, O_RDONLY);
    struct stat information {};
    if (!file.is_open() || fstat(file.get(), &information) != 0) return io_error("read", name);
    if (!S_ISREG(information.st_mode)) {
        return Status::error(ONEBIT_ERROR_IO, "can't read %s: not a regular file", name.c_str());
    }
    bytes->resize(static_cast<std::size_t>(information.st_size));
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

Status replace_file(const std::string& temporary, const std::string& name) {
    if (std::rename(temporary.c_str(), name.c_str()) != 0) return io_error("rename a temporary file to", name);
    const std::filesystem::path folder = std::filesystem::path(name).parent_path();
    const File directory(folder.empty() ? "." : folder.string(), O_RDONLY | O_DIRECTORY);
    if (directory.is_open()) fsync(directory.get()); // best effort: not every file system can
    return {};
}

} // namespace onebit
