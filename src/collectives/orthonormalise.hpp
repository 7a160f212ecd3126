// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

namespace onebit {

/// Makes `count` vectors of `length` numbers, one behind the other, orthonormal, the first one first (Gram and Schmidt,
/// twice). One that is zero, or depends on those before it as far as floats can tell, has its numbers taken from
/// replacement(vector, number), and is made orthogonal like the others; where it then is zero, or there is no
/// replacement, it becomes zero. The same bits everywhere.
void orthonormalise(double* vectors, std::size_t count, std::size_t length,
                    const std::function<double(std::size_t, std::size_t)>& replacement = {});

} // namespace onebit
