// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>

#include "compress/cuda/gpu_codec.hpp"
#include "compress/error_places.hpp"
#include "compress/grouped/cuda/kernels.hpp"
#include "compress/stored_error.hpp"

namespace onebit {

/// StoredError on a GPU. A StoredError does the rare operations (read, replace or mask the error), in a copy on the
/// host.
class CudaStoredError final : public Feedback, public ErrorPlaces {
  public:
    CudaStoredError(std::span<const Chunk> chunks, Memory& device)
        : ErrorPlaces(chunks), error(elements(), device), device_(device) {}

    void reset() override { error.fill_zero(); }
    void get_error(float* values) const override;
    void set_error(const float* values) override;
    void set_mask(std::span<const std::uint32_t> mask) override;
    std::size_t state_bytes() const override { return error.bytes(); }
    std::size_t workspace_bytes() const override { return 0; }

    /// On the device.
    std::span<const std::uint32_t> mask() const { return mask_; }

    AlignedBuffer<float> error;

  private:
    /// With a mask that must outlive the copy.
    StoredError on_host(std::span<const std::uint32_t> mask) const;

    Memory& device_;
    std::span<const std::uint32_t> mask_;
};

/// GroupedCodec on a GPU: the same messages and errors to the bit (kernels.hpp says where not).
class CudaGroupedCodec final : public GpuCodec<Codec> {
  public:
    /// One of codes.def.
    CudaGroupedCodec(onebit_codec_t codec, cuda::Stream stream);

    std::size_t message_words(const Chunk& chunk) const override;
    WordRange words_of(const Slice& slice) const override;
    WordRange trailer_of(const Chunk& chunk) const override { return {message_words(chunk), 0}; }
    std::unique_ptr<Feedback> make_feedback(std::span<const Chunk> chunks) const override;
    void encode(const ValueSource& values, const Feedback& before, Feedback& after,
                std::span<const SliceToEncode> slices) const override;
    void average_encode(std::span<const std::uint32_t* const> messages, float share, const Feedback& before,
                        Feedback& after, const Slice& slice, std::uint32_t* message) const override;
    void seal(Feedback&, std::span<std::uint32_t* const>) const override {} // nothing waits for the last slice
    void decode(std::span<const EncodedSlice> slices, std::span<const std::uint32_t> mask,
                const ValueSink& values) const override;
    std::size_t first_overflowed(std::span<const EncodedSlice> slices) const override;

  private:
    cuda::GroupedEncoding encoding(const Feedback& before, Feedback& after, const Slice& slice,
                                   std::uint32_t* message) const;

    onebit_codec_t codec_;
    unsigned bits_;
};

} // namespace onebit
