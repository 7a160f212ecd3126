// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compress/codec.hpp"
#include "core/partition.hpp"

namespace onebit {

/// What compressed calls have delivered, encoded as it came: the results of the last call and, where those are kept, of
/// the one before. Every rank has the same bits. Blocks are those of chunks().
class Delivery {
  public:
    enum class Call { kLast, kBeforeLast };

    virtual ~Delivery() = default;
    /// How the buffer is cut: one behind the other, all of it, each with its number.
    virtual const std::vector<Chunk>& chunks() const = 0;
    /// The elements that take part; empty: all of them.
    virtual std::span<const std::uint32_t> mask() const = 0;

    /// Decodes a block of the last finished call's result; a ValueSource may ask while its block isn't encoded yet.
    void last_result(const Block& block, float* values) const { decode(Call::kLast, block, values); }
    void last_result(const ValueSink& sink) const { decode(Call::kLast, sink); }
    /// Of the call before that one, where results are kept.
    void previous_result(const Block& block, float* values) const { decode(Call::kBeforeLast, block, values); }
    void previous_result(const ValueSink& sink) const { decode(Call::kBeforeLast, sink); }

  private:
    virtual void decode(Call call, const Block& block, float* values) const = 0;
    virtual void decode(Call call, const ValueSink& sink) const = 0;
};

} // namespace onebit
