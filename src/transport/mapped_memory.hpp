// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/status.hpp"

namespace onebit {

/// Makes sure that there is memory behind `bytes` of a mapping: the first touch without memory would end the process.
/// Returns 0, or an errno: EINVAL where the system can't do this (before Linux 5.14).
int populate(void* begin, std::size_t bytes);

/// Memory that other processes of this user on this machine can map, too. It has no name, so nothing is left behind
/// however its processes end. It takes no room of /dev/shm. Every process lets go of it by itself.
class MappedMemory {
  public:
    /// What another process needs to find the memory. `device` and `inode` tell whether it found the right one.
    struct Address {
        std::uint64_t process = 0;
        std::uint64_t descriptor = 0;
        std::uint64_t device = 0;
        std::uint64_t inode = 0;
        std::uint64_t bytes = 0; ///< as asked for; 0: there is nothing to be found
    };

    /// Zeroed, and really there. `what`: the memory's name in /proc/PID/maps. OUT_OF_MEMORY, UNSUPPORTED.
    static Status create(const char* what, std::size_t bytes, std::unique_ptr<MappedMemory>* memory);
    /// Maps what another process has created and has not closed yet. UNSUPPORTED where the memory isn't found.
    /// TRANSPORT where it has fewer bytes: touching the missing bytes would end this process.
    static Status open(const Address& address, std::size_t bytes, std::unique_ptr<MappedMemory>* memory);

    ~MappedMemory();
    MappedMemory(const MappedMemory&) = delete;
    MappedMemory& operator=(const MappedMemory&) = delete;

    std::byte* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    Address address() const;
    /// Nobody is going to open it any more.
    void close();

  private:
    explicit MappedMemory(std::size_t bytes) : bytes_(bytes) {}
    Status map();
    Status reserve();

    int descriptor_ = -1;
    std::size_t bytes_;
    std::byte* data_ = nullptr;
};

} // namespace onebit
