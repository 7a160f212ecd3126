// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "compress/cuda/gpu_codec.hpp"
#include "compress/sign/cuda/kernels.hpp"
#include "compress/sign/sign_codec.hpp"
#include "core/aligned_buffer.hpp"

namespace onebit {

/// SignFeedback on a GPU. A SignFeedback does the rare operations (read, replace or mask the error), in copies on the
/// host.
class CudaSignFeedback final : public Feedback, public SignPlaces {
  public:
    CudaSignFeedback(std::span<const Chunk> chunks, onebit_group_t group, Memory& device);

    void reset() override;
    void get_error(float* error) const override;
    void set_error(const float* error) override;
    void set_mask(std::span<const std::uint32_t> mask) override;
    std::size_t state_bytes() const override { return corrected.bytes() + scales.bytes(); }
    std::size_t workspace_bytes() const override { return sums.bytes() + counts_.bytes(); }

    /// A kernel's arguments for a chunk's error. It writes the error to `after`, which may be this one.
    cuda::ErrorBuffers buffers(const Chunk& chunk, CudaSignFeedback& after) const;
    /// Elements that take part, in all chunks.
    std::size_t valid_count() const { return valid_count_; }

    AlignedBuffer<float> corrected;
    AlignedBuffer<float> scales;
    AlignedBuffer<double> sums;
    DeviceTable<std::uint32_t*> trailers; ///< of its chunks' messages

  private:
    /// A copy on the host, with a mask that must outlive the copy.
    SignFeedback on_host(std::span<const std::uint32_t> mask) const;
    void take(const SignFeedback& host);

    Memory& device_;
    std::span<const std::uint32_t> mask_; ///< on the device
    AlignedBuffer<std::uint32_t> counts_; ///< elements that take part, by block
    std::size_t valid_count_ = 0;
};

/// SignCodec on a GPU: the same messages and errors to the bit (kernels.hpp says where not).
class CudaSignCodec final : public GpuCodec<SignMessages> {
  public:
    CudaSignCodec(onebit_scale_t scale, onebit_group_t group, cuda::Stream stream) : GpuCodec(stream, scale, group) {}

    std::unique_ptr<Feedback> make_feedback(std::span<const Chunk> chunks) const override;
    void encode(const ValueSource& values, const Feedback& before, Feedback& after,
                std::span<const SliceToEncode> slices) const override;
    void average_encode(std::span<const std::uint32_t* const> messages, float share, const Feedback& before,
                        Feedback& after, const Slice& slice, std::uint32_t* message) const override;
    void seal(Feedback& after, std::span<std::uint32_t* const> messages) const override;
    void decode(std::span<const EncodedSlice> slices, std::span<const std::uint32_t> mask,
                const ValueSink& values) const override;
    std::size_t first_overflowed(std::span<const EncodedSlice> slices) const override;

  private:
    cuda::Encoding encoding(const Feedback& before, Feedback& after, const Slice& slice, std::uint32_t* message) const;

    mutable std::vector<std::uint32_t*> sealed_; ///< trailers of the messages being sealed; room is reserved
};

} // namespace onebit
