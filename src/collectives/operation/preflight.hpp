// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstddef>
#include <cstdint>

#include "collectives/call/algorithm.hpp"
#include "collectives/communicator/agreement.hpp"
#include "collectives/operation/memory_backend.hpp"
#include "core/partition.hpp"
#include "numeric/elements.hpp"
#include "numeric/search.hpp"

namespace onebit {

/// What the ranks make sure of together around a call: that every argument and every value is good, and that all are
/// about to do the same. Nothing is lost if it isn't so.
///
/// Values are looked at before anything else, and the ranks agree once. In a tentative call the encoder looks at them
/// on its way, which spares a pass over memory: the ranks agree on the arguments first, and once all is encoded (and on
/// two levels handed on), while messages travel, on the values (Vote). Exact sums of values that lie apart from
/// where the result goes on all ranks are tentative likewise; the first agreement says who has them in place. Few
/// values that are averaged exactly nobody looks at, and nobody agrees on, unless their sum is not finite.
class Preflight final : public Vote {
  public:
    struct Call {
        const void* input = nullptr;
        std::size_t count = 0;
        std::size_t first = 0; ///< the number of the element of the whole buffer that the input begins with
        const void* output = nullptr;
        std::size_t output_count = 0;
        std::size_t output_first = 0; ///< likewise, of the output
        bool tentative = false;
        bool if_all_apart = false; ///< tentative only where every rank's result lies apart from its values
        bool apart = false;        ///< as this rank's does
        // What must be the same everywhere.
        onebit_algorithm_t algorithm = ONEBIT_ALGORITHM_FLAT;
        std::uint64_t calls = 0;
    };

    /// All of these outlive it. `elements`: what buffers are arrays of.
    Preflight(Agreement& agreement, Search& search, const MemoryBackend& backend, const Elements& elements)
        : agreement_(agreement), search_(search), backend_(backend), elements_(elements) {}

    /// A caller's buffer of so many elements.
    struct Buffer {
        const void* data;
        std::size_t count;
    };
    /// INVALID_ARGUMENT, naming it, for a buffer that can't be one; and where they overlap, unless the smaller one (or
    /// the second) lies `in_place` elements behind the other's beginning. One of no elements may be NULL.
    Status check_buffers(const Buffer& input, const Buffer& output, std::size_t in_place = 0) const;
    /// Before the stages of each call. `own`: what is already wrong on this rank, if anything.
    void begin(const Status& own, const Call& call);

    // ---- stages: two before the algorithm's, twice where a call is tentative if all are apart, none where the sum
    // tells, and one after; then what looks at a sum that may have overflowed ----

    Status check_values(Step* step);
    Status agree(Step* step);
    Status conclude(Step* step);
    /// NONFINITE on every rank, for all have the same result.
    Status check_sum(Step* step) const;
    /// The same in two stages where each has another part of it.
    Status check_part_of_sum(Step* step);
    Status agree_on_sum(Step* step);

    /// The ranks agreed not to go on, or not to keep what was done: an error that breaks nothing.
    bool refused() const { return refused_; }

    // ---- as the vote on a tentative call ----

    bool needed() const override { return call_.tentative; }
    bool doubt(const Slice& slice) override;
    void refuse(const Status& why) override;
    Status cast() override;
    Status test(bool* known) override;
    const Status& verdict() const override { return verdict_; }

  private:
    Status check_slice(Step* step);
    void note_nonfinite(std::size_t index);
    void begin_agreement();
    void see_who_is_apart();

    Agreement& agreement_;
    Search& search_;
    const MemoryBackend& backend_;
    Elements elements_;

    // Of the call in flight.
    Call call_;
    Status own_;
    std::size_t unchecked_ = 0; ///< values that check_values has yet to look at
    bool agreed_ = false;       ///< on all that is to be agreed on before the algorithm's stages
    bool voted_ = false;
    Status verdict_;
    bool refused_ = false;
};

} // namespace onebit
