// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compress/codec.hpp"
#include "core/partition.hpp"

namespace onebit {

/// What compressed calls have delivered, encoded as it came: the results of the last call and, where results are kept,
/// of the call before. Every rank has the same bits. Blocks are the blocks of chunks().
class Delivery {
  public:
    enum class Call { kLast, kBeforeLast };

    virtual ~Delivery() = default;
    /// The chunks that the whole buffer is cut into, one after the other, each with its number.
    virtual const std::vector<Chunk>& chunks() const = 0;
    /// The elements that take part; empty: all of them.
    virtual std::span<const std::uint32_t> mask() const = 0;

    /// Decodes a block of the last finished call's result. A ValueSource may call this until its block is encoded.
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
