// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "compress/codec.hpp"
#include "core/aligned_buffer.hpp"
#include "core/cuda/device.hpp"
#include "numeric/cuda/finding.hpp"
#include "numeric/cuda/rows.hpp"

/// What codecs on a GPU have in common.
namespace onebit {

/// A device copy of a host array, copied again only when the array changes.
template <typename T>
class DeviceTable {
  public:
    /// Makes room for `most` values. Must come before any call.
    void reserve(std::size_t most, Memory& device) {
        if (most <= on_device_.size()) return;
        values_.reserve(most);
        on_device_ = AlignedBuffer<T>(most, device);
    }
    /// Copies to the device, in order with the stream's work.
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

/// A host copy of a mask in a device's memory.
inline std::vector<std::uint32_t> mask_on_host(std::span<const std::uint32_t> mask, Memory& device) {
    std::vector<std::uint32_t> words(mask.size());
    if (!mask.empty()) device.copy(words.data(), mask.data(), mask.size_bytes());
    return words;
}

/// A codec whose values, messages, masks and errors lie in a GPU's memory. Sinks are arrays there; sources are arrays
/// there, or have an encoder. The verbs put their work into the stream, with as few launches as possible, and return.
/// One thread at a time. `Base`: Codec, or the parts of it that don't depend on the memory.
template <typename Base>
class GpuCodec : public Base {
  public:
    const char* kernels() const final { return "cuda"; }
    Memory& memory() const final { return device_; }
    Status failure() const final { return failure_; }
    /// A multiple of 16 bytes; otherwise NCCL copies a byte at a time.
    std::size_t row_words(const Chunk& chunk) const final { return ceil_divide(this->message_words(chunk), 4) * 4; }
    std::size_t blocks_at_once() const final { return Codec::kUnlimited; }

    void average(std::span<const std::uint32_t* const>, float, const Slice&, const ValueSink&) const final {
        note(Status::error(ONEBIT_ERROR_UNSUPPORTED, "an average that isn't encoded: not in a GPU's memory"));
    }
    void decode_block(const std::uint32_t* message, const Block& block, std::span<const std::uint32_t> mask,
                      float* values) const final {
        const Slice slice = {block.chunk, block.index, block.index + 1};
        this->decode(only(EncodedSlice{slice, message}), mask, ArraySink(values - block.begin()));
    }
    bool find_overflow(std::size_t* element) const final {
        *element = Codec::kNoElement;
        if (!inspected_) return true;
        if (!overflow_.asked()) note(overflow_.ask(stream_));
        bool known = false;
        unsigned long long found = cuda::kAllFinite;
        note(overflow_.test(&known, &found));
        if (!known && failure_.ok()) return false;
        inspected_ = false;
        if (found != cuda::kAllFinite) *element = static_cast<std::size_t>(found);
        return true;
    }

  protected:
    template <typename... Arguments>
    explicit GpuCodec(cuda::Stream stream, Arguments&&... arguments)
        : Base(std::forward<Arguments>(arguments)...), stream_(stream), device_(stream), overflow_(device_) {}

    /// Keeps the first failure.
    void note(const Status& status) const {
        if (failure_.ok()) failure_ = status;
    }
    cuda::Stream stream() const { return stream_; }
    Memory& device() const { return device_; }
    /// To be called before messages of so many ranks are averaged.
    void reserve_received(std::size_t ranks) const { received_.reserve(ranks, device_); }
    /// Where the messages' addresses lie on the device.
    const std::uint32_t* const* received(std::span<const std::uint32_t* const> messages) const {
        note(received_.update(messages, stream_));
        return received_.data();
    }
    /// Where a search for an overflow leaves its result.
    unsigned long long* overflow() const { return overflow_.place(); }
    /// Whether such a search continues from the result of earlier ones.
    bool goes_on() const { return std::exchange(inspected_, true); }

  private:
    cuda::Stream stream_;
    mutable cuda::DeviceMemory device_;
    mutable Finding overflow_;
    mutable bool inspected_ = false; ///< a search has begun; overflow_ will have its result
    mutable DeviceTable<const std::uint32_t*> received_;
    mutable Status failure_;
};

/// Calls launch for the rows that row_of makes of the slices, some rows at a time.
template <typename Slices, typename RowOf, typename Launch>
Status launch_rows(const Slices& slices, const RowOf& row_of, const Launch& launch) {
    cuda::Rows<decltype(row_of(slices.front()))> rows;
    for (const auto& slice : slices) {
        rows.add(row_of(slice));
        if (!rows.full()) continue;
        ONEBIT_RETURN_IF_ERROR(launch(rows));
        rows.clear();
    }
    return rows.count() > 0 ? launch(rows) : Status();
}

/// Turns the address of a slice's data into that of its chunk's data, which kernels take.
template <typename T>
T* of_chunk(T* of_slice, const Slice& slice) {
    return of_slice - slice.first_block * kBlockElements;
}

} // namespace onebit
