// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/forms/orthonormalise.hpp"

#include <cmath>

#include "numeric/lanes.hpp"

namespace onebit {
namespace {

/// The rest of a vector from which others are taken out is rounding if it is at most this share of the vector's norm.
constexpr double kRounding = 0x1p-18;

double dot(const double* a, const double* b, std::size_t length) {
    return sum_in_lanes<8>(length, [=](std::size_t i) { return a[i] * b[i]; });
}

double norm_of(const double* vector, std::size_t length) {
    return std::sqrt(dot(vector, vector, length));
}

} // namespace

bool make_orthonormal(double* vectors, std::size_t k, std::size_t length) {
    double* const vector = vectors + k * length;
    const double before = norm_of(vector, length);
    for (int pass = 0; pass < 2; ++pass) { // the second takes out the first one's rounding
        for (std::size_t j = 0; j < k; ++j) {
            const double* const other = vectors + j * length;
            const double along = dot(vector, other, length);
            for (std::size_t i = 0; i < length; ++i) vector[i] -= along * other[i];
        }
    }
    const double after = norm_of(vector, length);
    if (!(after > kRounding * before)) return false;
    for (std::size_t i = 0; i < length; ++i) vector[i] /= after;
    return true;
}

} // namespace onebit
