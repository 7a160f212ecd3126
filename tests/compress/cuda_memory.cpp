// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#include <cuda_runtime.h>

#include <catch2/catch.hpp>

#include "compress/device_memory.hpp"

namespace onebit {

void* allocate_on_device(std::size_t bytes) {
    void* memory = nullptr;
    REQUIRE(cudaMalloc(&memory, bytes) == cudaSuccess);
    return memory;
}

void free_on_device(void* memory) {
    cudaFree(memory);
}

void copy_memory(void* to, const void* from, std::size_t bytes) {
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    REQUIRE(cudaMemcpy(to, from, bytes, cudaMemcpyDefault) == cudaSuccess);
}

} // namespace onebit
