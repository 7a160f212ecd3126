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

namespace onebit {

/// What is still to be delivered of each element of some chunks, on the host: in float32, or rounded to bfloat16.
class StoredError final : public Feedback, public ErrorPlaces {
  public:
    StoredError(std::span<const Chunk> chunks, bool narrow, const NumericKernels& kernels)
        : ErrorPlaces(chunks),
          kernels_(kernels),
          floats_(narrow ? 0 : ErrorPlaces::elements()),
          halves_(narrow ? ErrorPlaces::elements() : 0) {}

    void reset() override;
    void get_error(float* values) const override;
    void set_error(const float* values) override;
    void set_mask(std::span<const std::uint32_t> mask) override;
    std::size_t state_bytes() const override { return floats_.bytes() + halves_.bytes(); }
    std::size_t workspace_bytes() const override { return 0; }

    std::span<const std::uint32_t> mask() const { return mask_; }

    bool is_narrow() const { return halves_.size() > 0; }
    /// Where the errors from this element of the buffer on lie, if they aren't narrow.
    const float* floats(std::size_t first) const { return floats_.data() + first; }
    float* floats(std::size_t first) { return floats_.data() + first; }
    /// Copies of them, of either kind.
    void read(std::size_t first, std::size_t count, float* values) const;
    void write(std::size_t first, std::size_t count, const float* values);

  private:
    void zero_masked();

    const NumericKernels& kernels_;
    std::span<const std::uint32_t> mask_;
    AlignedBuffer<float> floats_;
    AlignedBuffer<std::uint16_t> halves_; ///< one of the two is empty
};

} // namespace onebit
