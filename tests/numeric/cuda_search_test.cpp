// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// A search in a GPU's memory, real or emulated.

#include "numeric/cuda/cuda_search.hpp"

#include <limits>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "support/catch2.hpp"

namespace onebit {
namespace {

TEST_CASE("a GPU's search gives the first value that is not finite", "[cuda]") {
    constexpr std::size_t kCount = 300 * kBlockElements + 17;
    cuda::DeviceMemory device(nullptr);
    CudaSearch search(nullptr);
    std::vector<float> values(kCount, 1.0F);
    AlignedBuffer<float> on_device(kCount, device);
    on_device.copy_from(values.data());
    CHECK(search.first_nonfinite(on_device.data(), kCount) == kCount);
    values[4097] = values[kCount - 1] = -std::numeric_limits<float>::infinity();
    values[5] = std::numeric_limits<float>::max();
    on_device.copy_from(values.data());
    CHECK(search.first_nonfinite(on_device.data(), kCount) == 4097);

    std::size_t first = kCount;
    while (!search.find_nonfinite(on_device.data(), kCount, &first)) {
    }
    CHECK(first == 4097);
    CHECK(search.first_nonfinite(on_device.data(), 0) == 0);
    CHECK(search.failure().ok());
}

} // namespace
} // namespace onebit
