// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>

#include "compress/codec.hpp"
#include "numeric/elements.hpp"

namespace onebit {

/// A buffer of 16-bit values in the host's memory, widened as they are read.
class NarrowSource final : public ValueSource {
  public:
    /// `first`: the index of the first value in the whole buffer.
    NarrowSource(const Elements& elements, const void* values, std::size_t first)
        : elements_(elements), values_(values), first_(first) {}

    BlockValues read(const Block& block, float* scratch) const override {
        elements_.widen(elements_.at(values_, block.begin() - first_), block.count(), Stores::kCached, scratch);
        return {scratch};
    }

  private:
    Elements elements_;
    const void* values_;
    std::size_t first_;
};

/// Likewise, rounded as they are written. A value that is too large becomes an infinity.
class NarrowSink final : public ValueSink {
  public:
    NarrowSink(const Elements& elements, void* values, std::size_t first)
        : elements_(elements), values_(values), first_(first) {}

    float* place(std::size_t, float* scratch) const override { return scratch; }
    void written(const Block&, std::size_t begin, std::size_t count, const float* values) const override {
        if (!elements_.narrow(values, count, elements_.at(values_, begin - first_))) overflowed_ = true;
    }
    bool overflowed() const override { return overflowed_; }

  private:
    Elements elements_;
    void* values_;
    std::size_t first_;
    mutable std::atomic<bool> overflowed_ = false;
};

/// A call's buffers as the codecs see them, whatever the type of their elements.
class CallerValues {
  public:
    /// Reads from `input`, writes to `output`. `input_first`, `output_first`: where they begin in the whole buffer.
    /// `count`: of the output.
    void set(const Elements& elements, const void* input, std::size_t input_first, void* output,
             std::size_t output_first, std::size_t count) {
        if (elements.type() == ONEBIT_FLOAT32) {
            source_ = &array_source_.emplace(static_cast<const float*>(input), input_first);
            const Stores stores = stores_for(count * sizeof(float));
            sink_ = &array_sink_.emplace(static_cast<float*>(output), stores, output_first);
        } else {
            source_ = &narrow_source_.emplace(elements, input, input_first);
            sink_ = &narrow_sink_.emplace(elements, output, output_first);
        }
    }
    const ValueSource* source() const { return source_; }
    const ValueSink* sink() const { return sink_; }

  private:
    std::optional<ArraySource> array_source_;
    std::optional<ArraySink> array_sink_;
    std::optional<NarrowSource> narrow_source_;
    std::optional<NarrowSink> narrow_sink_;
    const ValueSource* source_ = nullptr;
    const ValueSink* sink_ = nullptr;
};

} // namespace onebit
