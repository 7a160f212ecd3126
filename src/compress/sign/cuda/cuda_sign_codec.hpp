// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "compress/sign/cuda/kernels.hpp"
#include "compress/sign/sign_codec.hpp"
#include "core/aligned_buffer.hpp"
#include "core/cuda/device.hpp"
#include "numeric/cuda/finding.hpp"

namespace onebit {

/// An array of the host's on the device, copied again only when it changes.
template <typename T>
class DeviceTable {
  public:
    /// Room for so many, which is to be made before any call.
    void reserve(std::size_t most, Memory& device) {
        if (most <= on_device_.size()) return;
        values_.reserve(most);
        on_device_ = AlignedBuffer<T>(most, device);
    }
    /// On the device, in order with the stream's work.
    Status update(std::span<const T> values, cuda::Stream stream) {
        if (std::ranges::equal(values, values_)) return {};
        values_.assign(values.begin(), values.end());
        return cuda::copy_later(on_device_.data(), values_.data(), values.size_bytes(), stream);
    }
    const T* data() const { return on_device_.data(); }

  private:
    std::vector<T> values_;
    AlignedBuffer<T> on_device_;
};

/// SignFeedback on a GPU. What is rarely asked for, to read, replace or mask the error, is done by a SignFeedback, in
/// copies on the host.
class CudaSignFeedback final : public Feedback, public SignPlaces {
  public:
    CudaSignFeedback(std::span<const Chunk> chunks, onebit_group_t group, Memory& device);

    void reset() override;
    void get_error(float* error) const override;
    void set_error(const float* error) override;
    void set_mask(std::span<const std::uint32_t> mask) override;
    std::size_t state_bytes() const override { return corrected.bytes() + scales.bytes(); }
    std::size_t workspace_bytes() const override { return sums.bytes() + counts_.bytes(); }

    /// What a kernel is told of a chunk's error; it is written to `after`, which may be this one.
    cuda::ErrorBuffers buffers(const Chunk& chunk, CudaSignFeedback& after) const;
    /// Elements that take part, in all chunks.
    std::size_t valid_count() const { return valid_count_; }

    AlignedBuffer<float> corrected;
    AlignedBuffer<float> scales;
    AlignedBuffer<double> sums;
    DeviceTable<std::uint32_t*> trailers; ///< of its chunks' messages

  private:
    /// On the host, with a mask that must outlive it.
    SignFeedback on_host(std::span<const std::uint32_t> mask) const;
    std::vector<std::uint32_t> mask_on_host(std::span<const std::uint32_t> mask) const;
    void take(const SignFeedback& host);

    Memory& device_;
    std::span<const std::uint32_t> mask_; ///< on the device
    AlignedBuffer<std::uint32_t> counts_; ///< elements that take part, by block
    std::size_t valid_count_ = 0;
};

/// SignCodec on a GPU: the same messages and errors to the bit (kernels.hpp says where not). Everything lies in the
/// device's memory; sources are arrays there or have an encoder, sinks are arrays. The verbs put their work into the
/// stream, as few launches as possible, and return. One thread at a time.
class CudaSignCodec final : public SignMessages {
  public:
    CudaSignCodec(onebit_scale_t scale, onebit_group_t group, cuda::Stream stream)
        : SignMessages(scale, group), stream_(stream), device_(stream), overflow_(device_) {}

    const char* kernels() const override { return "cuda"; }
    Memory& memory() const override { return device_; }
    Status failure() const override { return failure_; }
    std::unique_ptr<Feedback> make_feedback(std::span<const Chunk> chunks) const override;
    /// 16 bytes at a time, or NCCL copies a byte at a time.
    std::size_t row_words(const Chunk& chunk) const override { return ceil_divide(message_words(chunk), 4) * 4; }
    std::size_t blocks_at_once() const override { return kUnlimited; }
    void encode(const ValueSource& values, const Feedback& before, Feedback& after,
                std::span<const SliceToEncode> slices) const override;
    void average_encode(std::span<const std::uint32_t* const> messages, float share, const Feedback& before,
                        Feedback& after, const Slice& slice, std::uint32_t* message) const override;
    void average(std::span<const std::uint32_t* const> messages, float share, const Slice& slice,
                 const ValueSink& values) const override;
    void seal(Feedback& after, std::span<std::uint32_t* const> messages) const override;
    void decode(std::span<const EncodedSlice> slices, std::span<const std::uint32_t> mask,
                const ValueSink& values) const override;
    void decode_block(const std::uint32_t* message, const Block& block, std::span<const std::uint32_t> mask,
                      float* values) const override;
    std::size_t first_overflowed(std::span<const EncodedSlice> slices) const override;
    bool find_overflow(std::size_t* element) const override;

  private:
    cuda::Encoding encoding(const Feedback& before, Feedback& after, const Slice& slice, std::uint32_t* message) const;
    /// Keeps the first failure.
    void note(const Status& status) const;

    cuda::Stream stream_;
    mutable cuda::DeviceMemory device_;
    mutable Finding overflow_;
    mutable bool inspected_ = false;                     ///< there are messages of which overflow_ is to tell
    mutable DeviceTable<const std::uint32_t*> received_; ///< messages to be averaged
    mutable std::vector<std::uint32_t*> sealed_;         ///< trailers of the messages being sealed; has its room
    mutable Status failure_;
};

} // namespace onebit
