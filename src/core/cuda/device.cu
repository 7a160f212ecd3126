// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/device.hpp"

#include <new>
#include <stdexcept>

#include "core/cuda/check.hpp"

namespace onebit::cuda {
namespace {

void require(const Status& status) {
    if (!status.ok()) throw std::runtime_error(status.message());
}

} // namespace

void* DeviceMemory::allocate(std::size_t bytes) {
    void* memory = nullptr;
    if (!check("malloc", cudaMalloc(&memory, bytes)).ok()) throw std::bad_alloc();
    fill_zero(memory, bytes);
    return memory;
}

void DeviceMemory::free(void* memory, std::size_t /*bytes*/) {
    (void)check("free", cudaFree(memory)); // waits for what still uses it
}

void DeviceMemory::copy(void* to, const void* from, std::size_t bytes) {
    require(copy_later(to, from, bytes, stream_));
    require(wait_for(stream_));
}

void DeviceMemory::fill_zero(void* memory, std::size_t bytes) {
    require(check("memset", cudaMemsetAsync(memory, 0, bytes, stream_)));
}

Status copy_later(void* to, const void* from, std::size_t bytes, Stream stream) {
    return check("memcpy", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
}

Status wait_for(Stream stream) {
    return check("stream", cudaStreamSynchronize(stream));
}

} // namespace onebit::cuda
