// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "numeric/elements.hpp"

#include <algorithm>
#include <cfloat>

#include "numeric/halves.hpp"

namespace onebit {
namespace {

/// Of a mean that goes to one place only.
constexpr std::size_t kAtATime = 256;

const float* floats(const void* values) {
    return static_cast<const float*>(values);
}
const std::uint16_t* halves(const void* values) {
    return static_cast<const std::uint16_t*>(values);
}

} // namespace

const char* name_of(onebit_datatype_t type) {
    if (type == ONEBIT_FLOAT32) return "float32";
    return type == ONEBIT_FLOAT16 ? "float16" : "bfloat16";
}

std::uint16_t Elements::most() const {
    return type_ == ONEBIT_FLOAT16 ? Float16::kMost : BrainFloat16::kMost;
}

float Elements::value(const void* values, std::size_t i) const {
    float value = 0;
    widen(at(values, i), 1, Stores::kCached, &value);
    return value;
}

bool Elements::all_finite(const void* values, std::size_t count) const {
    if (type_ == ONEBIT_FLOAT32) return kernels_->all_within(floats(values), count, FLT_MAX);
    return kernels_->halves_within(halves(values), count, most());
}

bool Elements::copy(const void* values, std::size_t count, Stores stores, void* to) const {
    if (type_ == ONEBIT_FLOAT32) return kernels_->copy(floats(values), count, stores, static_cast<float*>(to));
    return kernels_->copy_halves(halves(values), count, most(), stores, static_cast<std::uint16_t*>(to));
}

void Elements::widen(const void* values, std::size_t count, Stores stores, float* to) const {
    if (type_ == ONEBIT_FLOAT32) {
        (void)kernels_->copy(floats(values), count, stores, to);
    } else {
        (type_ == ONEBIT_FLOAT16 ? kernels_->widen_float16 : kernels_->widen_bfloat16)(halves(values), count, to);
    }
}

bool Elements::narrow(const float* values, std::size_t count, void* to) const {
    if (type_ == ONEBIT_FLOAT32) return kernels_->copy(values, count, Stores::kCached, static_cast<float*>(to));
    auto* const narrowed = static_cast<std::uint16_t*>(to);
    const bool is_float16 = type_ == ONEBIT_FLOAT16;
    const auto narrow = is_float16 ? kernels_->narrow_float16 : kernels_->narrow_bfloat16;
    if (narrow(values, count, narrowed)) return true;
    const auto rounded = is_float16 ? narrowed_or_infinite<Float16> : narrowed_or_infinite<BrainFloat16>;
    std::transform(values, values + count, narrowed, rounded);
    return false;
}

void Elements::mean(const void* const* parts, std::size_t part_count, std::size_t first, float share, std::size_t count,
                    Stores stores, void* to, Stores also_stores, void* also) const {
    if (type_ == ONEBIT_FLOAT32) {
        kernels_->mean(reinterpret_cast<const float* const*>(parts), part_count, first, share, count, stores,
                       static_cast<float*>(to), also_stores, static_cast<float*>(also));
    } else {
        const auto mean = type_ == ONEBIT_FLOAT16 ? kernels_->mean_in_float16 : kernels_->mean_in_bfloat16;
        mean(reinterpret_cast<const std::uint16_t* const*>(parts), part_count, first, share, count, stores,
             static_cast<std::uint16_t*>(to), also_stores, static_cast<std::uint16_t*>(also));
    }
}

void Elements::mean(const void* const* parts, std::size_t part_count, std::size_t first, float share, std::size_t count,
                    Stores stores, float* to) const {
    if (type_ == ONEBIT_FLOAT32) {
        alignas(64) float also[kAtATime];
        const auto* const of_floats = reinterpret_cast<const float* const*>(parts);
        for (std::size_t i = 0; i < count; i += kAtATime) {
            const std::size_t length = std::min(kAtATime, count - i);
            kernels_->mean(of_floats, part_count, first + i, share, length, stores, to + i, Stores::kCached, also);
        }
        return;
    }
    const auto mean = type_ == ONEBIT_FLOAT16 ? kernels_->mean_float16 : kernels_->mean_bfloat16;
    mean(reinterpret_cast<const std::uint16_t* const*>(parts), part_count, first, share, count, to);
}

} // namespace onebit
