// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// What memory itself takes: for each pattern of access that a kernel has, the simplest loop with the same pattern and
// next to no arithmetic. A kernel as fast as its floor is as fast as this machine allows.
//
// There is no single fastest such loop: prefetching by hand or storing past the caches helps on one machine and hurts
// on another. So each floor is a few candidates, in the widest vectors that the machine has, and the best of them
// counts.
#pragma once

#include <cstddef>
#include <span>

namespace onebit::bench {

enum class Floor {
    kAxpy,  // y = a * x + y in place: 12 bytes an element
    kScale, // y = a * y in place: 8
    kFill,  // y = a: 4
    kRead   // max |x|: 4
};

struct FloorCandidate {
    const char* name;
    // One pass over `count` elements, a multiple of 1024; both arrays aligned to 64 bytes. Returns something that
    // depends on the work.
    float (*run)(const float* x, float* y, std::size_t count);
};

std::span<const FloorCandidate> floor_candidates(Floor floor);

} // namespace onebit::bench
