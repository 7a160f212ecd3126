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

/// What the ranks check together around a call: every argument and every value is good, and all ranks are about to do
/// the same. If a check fails, nothing is lost.
///
/// Values are looked at before anything else, and the ranks agree once. In a tentative call the encoder looks at the
/// values on its way, which spares a pass over memory. There the ranks agree on the arguments first. They agree on the
/// values (Vote) once all is encoded (and on two levels handed on), while messages travel. Exact sums are tentative
/// likewise if the result lies apart from the values on all ranks; the first agreement says which ranks have both in
/// place. Few values that are averaged exactly are not looked at or agreed on, unless their sum is not finite.
class Preflight final : public Vote {
  public:
    struct Call {
        const void* input = nullptr;
        std::size_t count = 0;
        std::size_t first = 0; ///< the index of the input's first element in the whole buffer
        const void* output = nullptr;
        std::size_t output_count = 0;
        std::size_t output_first = 0; ///< likewise, of the output
        bool tentative = false;
        bool if_all_apart = false; ///< tentative only where every rank's result lies apart from its values
        bool apart = false;        ///< this rank's result lies apart from its values
        // What must be the same everywhere.
        onebit_algorithm_t algorithm = ONEBIT_ALGORITHM_FLAT;
        std::uint64_t calls = 0;
    };

    /// All of these outlive the preflight. `elements`: what buffers are arrays of.
    Preflight(Agreement& agreement, Search& search, const MemoryBackend& backend, const Elements& elements)
        : agreement_(agreement), search_(search), backend_(backend), elements_(elements) {}

    /// A caller's buffer of so many elements.
    struct Buffer {
        const void* data;
        std::size_t count;
    };
    /// INVALID_ARGUMENT, naming the buffer, for one that can't be a buffer. INVALID_ARGUMENT where the buffers overlap,
    /// unless the smaller one (of equal ones, the second) lies `in_place` elements behind the other's beginning. A
    /// buffer of no elements may be NULL.
    Status check_buffers(const Buffer& input, const Buffer& output, std::size_t in_place = 0) const;
    /// Before the stages of each call. `own`: what is already wrong on this rank, if anything.
    void begin(const Status& own, const Call& call);

    // ---- stages: two before the algorithm's (four where a call is tentative if all are apart, none where the sum
    // tells), and one after; then the stages that look at a sum that may have overflowed ----

    Status check_values(Step* step);
    Status agree(Step* step);
    Status conclude(Step* step);
    /// NONFINITE on every rank, because all have the same result.
    Status check_sum(Step* step) const;
    /// The same in two stages, where each rank has another part of the sum.
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
