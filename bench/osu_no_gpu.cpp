// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Instead of osu_gpu.cpp in a build without CUDA: missing() says so, and then nothing calls the rest.

#include <stdexcept>

#include "osu_gpu.hpp"

namespace onebit::bench {

struct Gpu::State {};

std::string Gpu::missing() {
    return "this onebit was built without CUDA (cmake -DONEBIT_CUDA=ON)";
}

Gpu::Gpu(const Ranks&) {
    throw std::logic_error(missing());
}
Gpu::~Gpu() = default;
void* Gpu::stream() const {
    return nullptr;
}
void Gpu::wait() const {}
Gpu::Buffer Gpu::allocate(std::size_t) const {
    return nothing();
}
Gpu::Buffer Gpu::pin(FloatBuffer&, std::size_t) const {
    return nothing();
}
void Gpu::copy(float*, const float*, std::size_t) const {}

} // namespace onebit::bench
