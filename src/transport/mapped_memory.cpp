// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/mapped_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace onebit {
namespace {

Status fail(onebit_status_t code, const char* call, int error) {
    return Status::error(code, "%s: %s", call, std::strerror(error));
}

std::uint64_t inode_of(int descriptor) {
    struct stat file {};
    return fstat(descriptor, &file) == 0 ? file.st_ino : 0;
}

} // namespace

Status MappedMemory::create(std::size_t bytes, std::unique_ptr<MappedMemory>* memory) {
    const int descriptor = memfd_create("onebit", MFD_CLOEXEC);
    if (descriptor < 0) return fail(ONEBIT_ERROR_UNSUPPORTED, "memfd_create", errno);
    std::unique_ptr<MappedMemory> made(new MappedMemory(descriptor, bytes));
    // Else the first touch of a page that can't be had would end the process.
    const int missing = posix_fallocate(descriptor, 0, static_cast<off_t>(bytes));
    if (missing != 0) return fail(ONEBIT_ERROR_OUT_OF_MEMORY, "posix_fallocate", missing);
    ONEBIT_RETURN_IF_ERROR(made->map());
    *memory = std::move(made);
    return {};
}

Status MappedMemory::open(const Address& address, std::unique_ptr<MappedMemory>* memory) {
    const std::string path = "/proc/" + std::to_string(address.process) + "/fd/" + std::to_string(address.descriptor);
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return fail(ONEBIT_ERROR_UNSUPPORTED, path.c_str(), errno);
    std::unique_ptr<MappedMemory> made(new MappedMemory(descriptor, address.bytes));
    if (inode_of(descriptor) != address.inode) { // of a process that is numbered likewise elsewhere
        return Status::error(ONEBIT_ERROR_UNSUPPORTED, "%s is of another process", path.c_str());
    }
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
    return {static_cast<std::uint64_t>(getpid()), static_cast<std::uint64_t>(descriptor_), inode_of(descriptor_),
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
    madvise(data, bytes_, MADV_HUGEPAGE); // where the system lets shared memory have them
    return {};
}

} // namespace onebit
