// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "collectives/call/stages.hpp"
#include "compress/codec.hpp"

namespace onebit {

/// The factor of each value when `values` of them are added up.
inline float share_of(onebit_op_t op, std::size_t values) {
    return op == ONEBIT_OP_SUM ? 1.0F : 1.0F / static_cast<float>(values);
}

/// A tentative call is a two-phase commit. Ranks prepare it: they encode, or add up, and exchange. On the way each rank
/// votes on whether it could do so with all of its values. Only decoding, which can't be undone, waits for the votes of
/// all. Then the call is committed on all ranks, or called off on all.
class Vote {
  public:
    virtual ~Vote() = default;
    /// False, once the stages have begun, if all values have already been looked at.
    virtual bool needed() const { return true; }
    /// What was read of this slice, or made from it, is not finite. Returns whether a value is the cause.
    virtual bool doubt(const Slice& slice) = 0;
    /// This rank votes no, for this reason.
    virtual void refuse(const Status& why) = 0;
    /// This rank knows all about its values: it tells the other ranks its vote.
    virtual Status cast() = 0;
    /// Whether all ranks have voted, as with an Exchange; false until this rank has voted.
    virtual Status test(bool* known) = 0;
    /// The same on every rank, once known.
    virtual const Status& verdict() const = 0;
};

/// What one call works on. A flat compressed call reads `source` and writes `sink`, which must live until the call is
/// finished. If `source` is NULL, it sends whatever lies there, because the call is going to be called off. If `sink`
/// is NULL, the result is only kept. A dense call reads `input` and writes `output`, count elements each, the same or
/// not overlapping. A call on two levels reads `input` and writes `sink`, or on a GPU `output`.
struct Operands {
    /// For an algorithm that takes only floats.
    const float* float_input() const { return static_cast<const float*>(input); }
    float* float_output() const { return static_cast<float*>(output); }

    const void* input = nullptr; ///< of a tentative dense call, NULL: this rank refuses
    void* output = nullptr;
    const ValueSource* source = nullptr;
    const ValueSink* sink = nullptr;
    std::uint64_t number = 0; ///< of the call, the same on every rank (Feedback::call)
    bool sum_only = false;    ///< dense: the sum, not the average
    bool tentative = false;   ///< may be called off; compressed: leaves error and last result alone until committed
    Vote* vote = nullptr;     ///< before anything is decoded, or an exact call ends; NULL: nobody votes
    const std::function<bool()>* ready = nullptr; ///< pipelined: whether the source has the next slice's values yet
};

/// One way to do a collective, written once over Transport and Codec. Everything is planned and allocated when the
/// algorithm is made; a call only goes through the stages.
class Algorithm {
  public:
    virtual ~Algorithm() = default;
    virtual std::span<const Stage> stages() const = 0;
    /// The next call's operands; to be set before its stages run.
    virtual void set_operands(const Operands& operands) = 0;
    /// What it has allocated for itself.
    virtual std::size_t workspace_bytes() const { return 0; }
    /// What info.transport says behind the channel's name.
    virtual const char* way() const { return ""; }
    /// Bytes that this rank has sent to other ranks by other ways than the handle's channel.
    virtual std::uint64_t bytes_sent() const { return 0; }
};

} // namespace onebit
