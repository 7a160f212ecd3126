// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The time that memory itself takes. For each kernel's access pattern it runs the simplest loop with the same pattern
// and almost no arithmetic. A kernel as fast as its floor is as fast as this machine allows.
//
// No such loop is fastest everywhere: prefetching by hand or storing past the caches helps on one machine and hurts on
// another. So each floor has a few candidates, in the widest vectors that the machine has, and the best candidate
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
