// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The reference for the two halves of an allreduce. One object simulates all ranks of a reduce-scatter or of an
// all-gather. It uses the float operations of docs/WIRE_FORMAT.md in their order, also for the sign code. So results
// and errors may be compared bit for bit. It includes no code of the library.
#pragma once

#include "oracle/codes.hpp"

namespace oracle {

// How elements are coded.
struct Coding {
    int codec = 0;              // the numbers of onebit_codec_t: 0 is the sign, others are Code's
    Scale scale = Scale::l2;    // of the sign
    Group group = Group::block; // of the sign; tensor: all that one rank sends in a call
};

// The values that receivers get from one rank, and the error that the rank keeps.
struct Sent {
    Floats values, error;
    bool finite = true;     // all scales are
    std::vector<bool> sent; // false: left out of sums; only elements that topk or randomk doesn't keep
};

// Call number `call`, with a buffer of consecutive ranges. Each range is encoded by itself; its blocks are counted from
// the range's beginning.
Sent send(const Coding& coding, const Floats& values, const Floats& error, const std::vector<Range>& ranges,
          std::uint64_t call = 0);

// Shards of so many elements, in order.
std::vector<Range> shards_of(const std::vector<std::uint64_t>& counts);

class ReduceScatter {
  public:
    ReduceScatter(const std::vector<std::uint64_t>& counts, Coding coding, Op op = Op::average);

    // One call with inputs[rank][element of the whole]. If a scale is not finite, the call fails without a result. Then
    // the errors of the ranks with such a scale, or all errors, begin again; other errors are kept. The call also fails
    // if a sum of sent values is not finite. The errors are unspecified then.
    void step(const FloatsPerRank& inputs);

    const Floats& output(std::size_t rank) const { return results[rank]; }

    FloatsPerRank errors;   // [rank][element of the whole]; tests may overwrite them
    std::uint64_t call = 0; // the number of the next one
    bool all_begin_again = false;

    // Of the last step.
    FloatsPerRank results; // [rank][element of its shard]
    bool finite = true;
    bool sums_finite = true;

  private:
    std::vector<Range> shards_;
    Coding coding_;
    float share_;
};

class AllGather {
  public:
    AllGather(const std::vector<std::uint64_t>& counts, Coding coding, Op op = Op::average);

    // One call with inputs[rank][element of its shard]. If a scale is not finite, the call fails without a result, and
    // all errors begin again.
    void step(const FloatsPerRank& inputs);

    const Floats& output(std::size_t /*rank*/) const { return result; }

    FloatsPerRank errors;   // [rank][element of its shard]; tests may overwrite them
    std::uint64_t call = 0; // the number of the next one

    // Of the last step.
    Floats result; // the whole
    bool finite = true;

  private:
    Coding coding_;
};

} // namespace oracle
