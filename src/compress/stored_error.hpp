// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/codec.hpp"
#include "compress/error_places.hpp"
#include "core/aligned_buffer.hpp"
#include "numeric/kernels.hpp"
#include "numeric/scaled_bytes.hpp"

namespace onebit {

/// What is still to be delivered of each element of some chunks, on the host. It is float32; or narrow, that is,
/// rounded to bfloat16 or to bytes with a power of two for each 256 elements of a chunk (numeric/scaled_bytes.hpp).
class StoredError final : public Feedback, public ErrorPlaces {
  public:
    /// `type`: as in CodecConfig.
    StoredError(std::span<const Chunk> chunks, onebit_datatype_t type, const NumericKernels& kernels)
        : ErrorPlaces(chunks, type == ONEBIT_INT8 ? kScaledGroup : kWordElements),
          type_(type),
          kernels_(kernels),
          floats_(elements_in(ONEBIT_FLOAT32)),
          halves_(elements_in(ONEBIT_BFLOAT16)),
          bytes_(elements_in(ONEBIT_INT8)),
          exponents_(ceil_divide(elements_in(ONEBIT_INT8), kScaledGroup)) {}

    void reset() override;
    void get_error(float* values) const override;
    void set_error(const float* values) override;
    void set_mask(std::span<const std::uint32_t> mask) override;
    std::size_t state_bytes() const override {
        return floats_.bytes() + halves_.bytes() + bytes_.bytes() + exponents_.bytes();
    }
    std::size_t workspace_bytes() const override { return 0; }

    std::span<const std::uint32_t> mask() const { return mask_; }

    bool is_narrow() const { return type_ != ONEBIT_FLOAT32; }
    /// The errors from element `first` of the buffer on. Only if they aren't narrow.
    const float* floats(std::size_t first) const { return floats_.data() + first; }
    float* floats(std::size_t first) { return floats_.data() + first; }
    /// Copy the errors out and in, whatever their type. `first`: a block's first element.
    void read(std::size_t first, std::size_t count, float* values) const;
    void write(std::size_t first, std::size_t count, const float* values);

  private:
    std::size_t elements_in(onebit_datatype_t type) const { return type == type_ ? ErrorPlaces::elements() : 0; }
    void zero_masked();

    onebit_datatype_t type_;
    const NumericKernels& kernels_;
    std::span<const std::uint32_t> mask_;
    AlignedBuffer<float> floats_;
    AlignedBuffer<std::uint16_t> halves_;
    AlignedBuffer<std::int8_t> bytes_; ///< all but one of these are empty
    AlignedBuffer<std::uint8_t> exponents_;
};

} // namespace onebit
