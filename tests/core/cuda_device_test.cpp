// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// What happens around a call on a GPU.

#include <cuda_runtime.h>

#include <vector>

#include "core/aligned_buffer.hpp"
#include "core/cuda/device.hpp"
#include "support/catch2.hpp"

namespace onebit {
namespace {

cudaStream_t new_stream() {
    cudaStream_t stream = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    return stream;
}

TEST_CASE("the capture of another stream neither forbids work on a GPU nor is ended by it", "[cuda]") {
    for (const cudaStreamCaptureMode mode : {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeGlobal}) {
        const cudaStream_t captured = new_stream();
        const cudaStream_t own = new_stream();
        std::shared_ptr<const cuda::Device> device;
        REQUIRE(cuda::open_device(own, &device).ok());
        REQUIRE(cudaStreamBeginCapture(captured, mode) == cudaSuccess);
        std::vector<float> values(1000, 1.0F);
        bool worked = true;
        try { // allocates, zeroes, copies, waits and frees
            const cuda::OnDevice entered(*device);
            cuda::DeviceMemory memory(own);
            AlignedBuffer<float>(values.size(), memory).copy_to(values.data());
        } catch (const std::exception&) {
            worked = false;
        }
        cudaGraph_t graph = nullptr;
        CHECK(cudaStreamEndCapture(captured, &graph) == cudaSuccess);
        CHECK(worked);
        CHECK(values == std::vector<float>(values.size(), 0.0F));
        CHECK(cudaGraphDestroy(graph) == cudaSuccess);
        CHECK(cudaStreamDestroy(captured) == cudaSuccess);
        CHECK(cudaStreamDestroy(own) == cudaSuccess);
    }
}

TEST_CASE("a stream that is another one in each thread is told from others", "[cuda]") {
    CHECK(cuda::check_same_in_all_threads(cudaStreamPerThread).code() == ONEBIT_ERROR_INVALID_ARGUMENT);
    for (const cudaStream_t stream : {cudaStream_t{}, cudaStreamLegacy}) {
        CHECK(cuda::check_same_in_all_threads(stream).ok());
    }
}

} // namespace
} // namespace onebit
