// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/mapped_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace onebit {
namespace {

Status fail(onebit_status_t code, const char* call, int error) {
    return Status::error(code, "%s: %s", call, std::strerror(error));
}

Status other_size(std::uint64_t bytes, std::size_t expected) {
    return Status::error(ONEBIT_ERROR_TRANSPORT, "a peer shares %llu bytes where %zu were expected",
                         static_cast<unsigned long long>(bytes), expected);
}

/// posix_fallocate of some pages at a time, because a signal makes a call begin again.
int allocate(int descriptor, std::size_t bytes) {
    constexpr std::size_t kAtATime = std::size_t{4} << 20;
    int error = 0;
    for (std::size_t at = 0; at < bytes && error == 0;) {
        const std::size_t length = std::min(kAtATime, bytes - at);
        error = posix_fallocate(descriptor, static_cast<off_t>(at), static_cast<off_t>(length));
        if (error == 0) at += length;
        if (error == EINTR) error = 0;
    }
    return error;
}

} // namespace

int populate(void* begin, std::size_t bytes) {
    constexpr int kPopulateWrite = 23; // MADV_POPULATE_WRITE, which older headers lack
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(begin) / page * page;
    const std::size_t length = reinterpret_cast<std::uintptr_t>(begin) + bytes - first;
    if (madvise(reinterpret_cast<void*>(first), length, kPopulateWrite) == 0) return 0;
    return errno == EFAULT ? ENOMEM : errno; // a page that can't be allocated
}

Status MappedMemory::create(const char* what, std::size_t bytes, std::unique_ptr<MappedMemory>* memory) {
    std::unique_ptr<MappedMemory> made(new MappedMemory(bytes));
    made->descriptor_ = memfd_create(what, MFD_CLOEXEC);
    if (made->descriptor_ < 0) return fail(ONEBIT_ERROR_UNSUPPORTED, "memfd_create", errno);
    if (ftruncate(made->descriptor_, static_cast<off_t>(bytes)) != 0) {
        return fail(ONEBIT_ERROR_OUT_OF_MEMORY, "ftruncate", errno);
    }
    ONEBIT_RETURN_IF_ERROR(made->map());
    ONEBIT_RETURN_IF_ERROR(made->reserve());
    *memory = std::move(made);
    return {};
}

Status MappedMemory::open(const Address& address, std::size_t bytes, std::unique_ptr<MappedMemory>* memory) {
    if (address.bytes != bytes) return other_size(address.bytes, bytes);
    const std::string path = "/proc/" + std::to_string(address.process) + "/fd/" + std::to_string(address.descriptor);
    std::unique_ptr<MappedMemory> made(new MappedMemory(bytes));
    made->descriptor_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); // whatever kind of file it is
    if (made->descriptor_ < 0) return fail(ONEBIT_ERROR_UNSUPPORTED, path.c_str(), errno);
    struct stat file {};
    fstat(made->descriptor_, &file);
    if (file.st_dev != address.device ||
        file.st_ino != address.inode) { // another process that has the same number elsewhere
        return Status::error(ONEBIT_ERROR_UNSUPPORTED, "%s is of another process", path.c_str());
    }
    if (static_cast<std::uint64_t>(file.st_size) < bytes)
        return other_size(static_cast<std::uint64_t>(file.st_size), bytes);
    ONEBIT_RETURN_IF_ERROR(made->map());
    made->close();
    *memory = std::move(made);
    return {};
}

MappedMemory::~MappedMemory() {
    if (data_ != nullptr) munmap(data_, bytes_);
    close();
}

MappedMemory::Address MappedMemory::address() const {
    struct stat file {};
    fstat(descriptor_, &file);
    return {static_cast<std::uint64_t>(getpid()), static_cast<std::uint64_t>(descriptor_), file.st_dev, file.st_ino,
            bytes_};
}

void MappedMemory::close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
}

Status MappedMemory::map() {
    void* const data = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
    if (data == MAP_FAILED) return fail(ONEBIT_ERROR_OUT_OF_MEMORY, "mmap", errno);
    data_ = static_cast<std::byte*>(data);
    madvise(data, bytes_, MADV_HUGEPAGE); // if shared memory may have huge pages; before it has pages
    return {};
}

Status MappedMemory::reserve() {
    int error = populate(data_, bytes_);
    if (error == EINVAL) error = allocate(descriptor_, bytes_);
    return error == 0 ? Status() : fail(ONEBIT_ERROR_OUT_OF_MEMORY, "shared memory", error);
}

} // namespace onebit
