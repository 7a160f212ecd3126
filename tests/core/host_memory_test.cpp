// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The host's memory: zeros, aligned, all of it, given back.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <new>
#include <string>

#include "core/memory.hpp"
#include "support/catch2.hpp"
#include "support/sanitized.hpp"

namespace onebit {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::size_t count_mappings() {
    std::ifstream maps("/proc/self/maps");
    std::size_t lines = 0;
    for (std::string line; std::getline(maps, line);) ++lines;
    return lines;
}

} // namespace

TEST_CASE("memory of any size is zero, aligned and whole, however often it is given back", "[memory]") {
    const std::size_t bytes = GENERATE(std::size_t{1}, 4097, 2 * kMiB - 1, 2 * kMiB, 2 * kMiB + 1, 3 * kMiB - 1,
                                       3 * kMiB, 3 * kMiB + 1, 4 * kMiB - 1, 4 * kMiB, 6 * kMiB + 4096, 37 * kMiB + 5);
    std::size_t before = 0;
    for (int time = 0; time < 50; ++time) {
        auto* const memory = static_cast<unsigned char*>(host_memory().allocate(bytes));
        REQUIRE(reinterpret_cast<std::uintptr_t>(memory) % 64 == 0);
        if (time % 25 == 0) {
            REQUIRE(std::all_of(memory, memory + bytes, [](unsigned char byte) { return byte == 0; }));
            std::fill_n(memory, bytes, static_cast<unsigned char>(0xa5));
        }
        host_memory().release(memory, bytes);
        if (time == 0) before = count_mappings();
    }
    const std::size_t allocators_own = onebit_test::is_sanitized() ? 10 : 2; // a leak would leave 49
    CHECK(count_mappings() <= before + allocators_own);
}

TEST_CASE("more memory than there is, or than a number holds, is a bad_alloc", "[memory]") {
    const std::size_t bytes = GENERATE(std::size_t{1} << 58, SIZE_MAX - 4096, SIZE_MAX);
    CHECK_THROWS_AS(host_memory().allocate(bytes), std::bad_alloc);
}

} // namespace onebit
