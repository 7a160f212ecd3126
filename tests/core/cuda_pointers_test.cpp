// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The properties of addresses, on a GPU or an emulated one.

#include <vector>

#include "compress/device_memory.hpp"
#include "core/cuda/pointers.hpp"
#include "support/catch2.hpp"

namespace onebit {
namespace {

cuda::Place place_of(cuda::Pointers& pointers, const void* address) {
    cuda::Place place{cuda::Place::kManaged, 77};
    REQUIRE(pointers.find(address, &place).ok());
    return place;
}

TEST_CASE("addresses in a GPU's memory are told from the host's, first and again", "[cuda][pointers]") {
    cuda::Pointers pointers;
    const std::vector<float> on_host(1000);
    const DeviceArray<float> on_device(on_host);
    AlignedBuffer<float> pinned(1000, cuda::pinned_memory());
    for (int time = 0; time < 3; ++time) {
        CHECK(place_of(pointers, on_host.data()).kind == cuda::Place::kHost);
        CHECK(place_of(pointers, pinned.data() + 5).kind == cuda::Place::kHost);
        CHECK(place_of(pointers, &pointers).kind == cuda::Place::kHost);
        CHECK(place_of(pointers, nullptr).kind == cuda::Place::kHost);
        for (const std::size_t i : {0, 1, 999}) {
            const cuda::Place place = place_of(pointers, on_device.data() + i);
            CHECK(place.kind == cuda::Place::kDevice);
            CHECK(place.device == 0);
        }
    }
}

TEST_CASE("an address that was freed is no longer a GPU's, also among many others", "[cuda][pointers]") {
    cuda::Pointers pointers;
    std::vector<const float*> freed;
    for (int i = 0; i < 200; ++i) { // more than are remembered
        const DeviceArray<float> array(std::vector<float>(64));
        CHECK(place_of(pointers, array.data()).kind == cuda::Place::kDevice);
        freed.push_back(array.data());
    }
    for (const float* const address : freed) CHECK(place_of(pointers, address).kind == cuda::Place::kHost);
}

} // namespace
} // namespace onebit
