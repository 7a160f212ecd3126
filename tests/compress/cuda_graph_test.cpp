// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// A property that needs a real GPU: the kernels' order in a stream.

#include "support/cuda_graph.hpp"

#include <vector>

#include "compress/device_memory.hpp"
#include "compress/sign/arithmetic.hpp"
#include "compress/sign/cuda/kernels.hpp"
#include "support/catch2.hpp"
#include "support/data.hpp"

namespace onebit {
namespace {

TEST_CASE("a step that was captured into a graph gives the same bits when it is replayed", "[cuda]") {
    constexpr std::size_t kCount = 100'000;
    const Chunk chunk = {0, 0, kCount};
    const Slice slice = Slice::whole(chunk);
    const std::size_t words = sign_word(ONEBIT_GROUP_BUFFER, chunk, chunk.blocks()) + 1;
    const DeviceArray<float> values(onebit_test::make_data(onebit_test::Kind::gaussian, kCount, 1, 0, 0));

    const auto results_after_two_steps = [&](bool captured) {
        const DeviceArray<float> corrected((std::vector<float>(kCount)));
        const DeviceArray<float> scale({0.0F});
        const DeviceArray<double> sums(std::vector<double>(chunk.blocks()));
        const DeviceArray<std::uint32_t> message((std::vector<std::uint32_t>(words)));
        const DeviceArray<std::uint32_t*> trailers({message.data() + words - 1});
        const DeviceArray<unsigned long long> first({0});
        const DeviceArray<float> result((std::vector<float>(kCount)));
        const cuda::ErrorBuffers error = {corrected.data(), scale.data(), corrected.data(), scale.data(),
                                          sums.data(),      nullptr,      nullptr};
        const cuda::Encoding to = {slice, ONEBIT_SCALE_L2, ONEBIT_GROUP_BUFFER, error, message.data()};
        const auto step = [&](cudaStream_t stream) {
            REQUIRE(cuda::first_nonfinite({values.data(), kCount, first.data()}, stream).ok());
            REQUIRE(cuda::encode({{to, values.data()}}, stream).ok());
            REQUIRE(cuda::seal({sums.data(), chunk.blocks(), kCount, ONEBIT_SCALE_L2, scale.data(), trailers.data(), 1},
                               stream)
                        .ok());
            REQUIRE(cuda::decode({{slice, ONEBIT_GROUP_BUFFER, message.data(), nullptr, result.data()}}, stream).ok());
        };

        onebit_test::run_steps(captured, 2, step, [](int) {});
        CHECK(first.get()[0] == cuda::kAllFinite);
        return std::make_pair(message.get(), std::make_pair(corrected.get(), result.get()));
    };
    CHECK(results_after_two_steps(true) == results_after_two_steps(false));
}

} // namespace
} // namespace onebit
