// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The reference for the two halves of an allreduce: all ranks of a reduce-scatter, or of an all-gather, simulated in
// one object with the float operations of docs/WIRE_FORMAT.md, in their order, the sign code's among them. So results
// and errors may be compared bit for bit. It includes nothing of the library.
#pragma once

#include "oracle/codes.hpp"

namespace oracle {

// What stands for an element.
struct Coding {
    int codec = 0;              // the numbers of onebit_codec_t: 0 is the sign, others are Code's
    Scale scale = Scale::l2;    // of the sign
    Group group = Group::block; // likewise; tensor: all that one rank sends in a call
};

// What receivers see of one rank's values, and what it keeps.
struct Sent {
    Floats values, error;
    bool finite = true;     // all scales are
    std::vector<bool> sent; // what a sum leaves out is false: only elements that topk or randomk doesn't keep
};

// In call number `call`, of a buffer whose ranges follow each other. Each is encoded by itself, its blocks counted from
// its own beginning.
Sent send(const Coding& coding, const Floats& values, const Floats& error, const std::vector<Range>& ranges,
          std::uint64_t call = 0);

// Shards of so many elements, in order.
std::vector<Range> shards_of(const std::vector<std::uint64_t>& counts);

class ReduceScatter {
  public:
    ReduceScatter(const std::vector<std::uint64_t>& counts, Coding coding, Op op = Op::average);

    // One call with inputs[rank][element of the whole]. Where a scale is not finite the call fails: there is no result.
    // The errors of ranks whose scale it is begin again, or all; others are kept. It fails, too, where a sum of what
    // was sent is not finite. Nothing says what becomes of errors then.
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

    // One call with inputs[rank][element of its shard]. Where a scale is not finite the call fails: there is no result,
    // and all errors begin again.
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
