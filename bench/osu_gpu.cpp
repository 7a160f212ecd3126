// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#include "osu_gpu.hpp"

#include <cuda_runtime.h>

#include <stdexcept>

namespace onebit::bench {
namespace {

void check(cudaError_t error, const char* call) {
    if (error != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(error));
}

int rank_in_node(const Ranks& ranks) {
    MPI_Comm node = MPI_COMM_NULL;
    MPI_Comm_split_type(ranks.comm, MPI_COMM_TYPE_SHARED, ranks.rank, MPI_INFO_NULL, &node);
    int rank = 0;
    MPI_Comm_rank(node, &rank);
    MPI_Comm_free(&node);
    return rank;
}

} // namespace

struct Gpu::State {
    cudaStream_t stream = nullptr;
};

std::string Gpu::missing() {
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    if (error == cudaSuccess && devices > 0) return "";
    return std::string("no CUDA device: ") + cudaGetErrorString(error != cudaSuccess ? error : cudaErrorNoDevice);
}

Gpu::Gpu(const Ranks& ranks) : state_(std::make_unique<State>()) {
    int devices = 0;
    check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    check(cudaSetDevice(rank_in_node(ranks) % devices), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&state_->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}

Gpu::~Gpu() {
    cudaStreamDestroy(state_->stream);
}

void* Gpu::stream() const {
    return state_->stream;
}

void Gpu::wait() const {
    check(cudaStreamSynchronize(state_->stream), "cudaStreamSynchronize");
}

Gpu::Buffer Gpu::allocate(std::size_t count) const {
    void* memory = nullptr;
    check(cudaMalloc(&memory, count * sizeof(float)), "cudaMalloc");
    return {static_cast<float*>(memory), [](float* released) { cudaFree(released); }};
}

Gpu::Buffer Gpu::pin(FloatBuffer& buffer, std::size_t count) const {
    check(cudaHostRegister(buffer.data(), count * sizeof(float), cudaHostRegisterDefault), "cudaHostRegister");
    return {buffer.data(), [](float* memory) { cudaHostUnregister(memory); }};
}

void Gpu::copy(float* to, const float* from, std::size_t count) const {
    check(cudaMemcpyAsync(to, from, count * sizeof(float), cudaMemcpyDefault, state_->stream), "cudaMemcpyAsync");
    wait();
}

} // namespace onebit::bench
