// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstddef>
#include <cstdint>

#include "core/stores.hpp"
#include "numeric/kernels.hpp"

namespace onebit {

inline std::size_t bytes_of(onebit_datatype_t type) {
    return type == ONEBIT_FLOAT32 ? sizeof(float) : sizeof(std::uint16_t);
}

/// "float32", "float16" or "bfloat16".
const char* name_of(onebit_datatype_t type);

/// Operations on a caller's arrays of any type in the host's memory. Values of 16 bits are computed in float32, and
/// rounded once. Any number of threads at once.
class Elements {
  public:
    Elements(onebit_datatype_t type, const NumericKernels& kernels) : type_(type), kernels_(&kernels) {}

    onebit_datatype_t type() const { return type_; }
    std::size_t bytes() const { return bytes_of(type_); }
    /// Where element i of an array is.
    const void* at(const void* values, std::size_t i) const {
        return static_cast<const std::byte*>(values) + i * bytes();
    }
    void* at(void* values, std::size_t i) const { return static_cast<std::byte*>(values) + i * bytes(); }

    float value(const void* values, std::size_t i) const;
    bool all_finite(const void* values, std::size_t count) const;
    /// Copies them. Returns whether all are finite.
    bool copy(const void* values, std::size_t count, Stores stores, void* to) const;
    /// As float32, exactly.
    void widen(const void* values, std::size_t count, Stores stores, float* to) const;
    /// From float32. A value too large for the type becomes an infinity. Returns whether all results are finite.
    bool narrow(const float* values, std::size_t count, void* to) const;
    /// to[i] = also[i] = (parts[0][first + i] + parts[1][first + i] + ...) * share, added in this order in float32. A
    /// mean of finite values is finite; a value too large for the type becomes an infinity. `to` and `also` may be one.
    void mean(const void* const* parts, std::size_t part_count, std::size_t first, float share, std::size_t count,
              Stores stores, void* to, Stores also_stores, void* also) const;
    /// The same in float32.
    void mean(const void* const* parts, std::size_t part_count, std::size_t first, float share, std::size_t count,
              Stores stores, float* to) const;

  private:
    std::uint16_t most() const;

    onebit_datatype_t type_;
    const NumericKernels* kernels_;
};

} // namespace onebit
