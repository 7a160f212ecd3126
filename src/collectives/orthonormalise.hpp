// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

namespace onebit {

/// Some vectors of equal length in one array of floats.
struct Vectors {
    float* values;
    std::size_t count;     ///< of vectors
    std::size_t length;    ///< numbers of each
    std::size_t to_next;   ///< from a vector's first number to that of the next one
    std::size_t to_number; ///< from a number to the next one of its vector
};

/// Makes them orthonormal, the first one first (Gram and Schmidt, twice, in double).
/// One that is zero, or depends on those before it as far as floats can tell, has its numbers taken from
/// replacement(vector, number), and is made orthogonal like the others; where it then is zero, or there is no
/// replacement, it becomes zero. `workspace`: length * count numbers. The same bits everywhere.
void orthonormalise(const Vectors& vectors, double* workspace,
                    const std::function<float(std::size_t, std::size_t)>& replacement = {});

} // namespace onebit
