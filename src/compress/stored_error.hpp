// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "compress/codec.hpp"
#include "compress/error_places.hpp"
#include "core/aligned_buffer.hpp"

namespace onebit {

/// What is still to be delivered of each element of some chunks, on the host.
class StoredError final : public Feedback, public ErrorPlaces {
  public:
    explicit StoredError(std::span<const Chunk> chunks) : ErrorPlaces(chunks), error(elements()) {}

    void reset() override { error.fill_zero(); }
    void get_error(float* values) const override;
    void set_error(const float* values) override;
    void set_mask(std::span<const std::uint32_t> mask) override;
    std::size_t state_bytes() const override { return error.bytes(); }
    std::size_t workspace_bytes() const override { return 0; }

    std::span<const std::uint32_t> mask() const { return mask_; }

    AlignedBuffer<float> error;

  private:
    void zero_masked();

    std::span<const std::uint32_t> mask_;
};

} // namespace onebit
