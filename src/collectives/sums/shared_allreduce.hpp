// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/call/algorithm.hpp"
#include "collectives/communicator/node_groups.hpp"
#include "collectives/sums/shared_counters.hpp"
#include "collectives/sums/shared_operands.hpp"
#include "numeric/elements.hpp"

namespace onebit {

/// The exact average of ranks that are all on one node, through memory that they share.
///
/// The buffer is cut into slices, and each slice into one part per rank. Where all ranks see each other's values and
/// results (SharedOperands), the part's owner adds up the values where they lie, in rank order, and leaves the average
/// where all the results go: each rank reads and writes 8 bytes per float.
///
/// Otherwise a rank hands its values of every other rank's part of a slice to that rank through a slot. The part's
/// owner adds up these values and its own, in the same order, and leaves the average in a slot that all others copy
/// from. Several slices are under way at a time. Each rank reads and writes 16 bytes per float (with two ranks), where
/// MPI's sums over shared memory took two to five times as long. Either way the bits are the same everywhere.
///
/// A rank that waits also looks at the channel now and then: a neighbour may have to finish something else first, and
/// need this rank's help for it.
///
/// In a tentative call a rank looks at its values as it hands them out or adds them up, and votes once it has seen them
/// all; the call ends when all have voted. A tentative call is only for values that the result doesn't overwrite. A
/// rank doesn't look at values that others add up, unless one of the others made a NaN or an infinity of some.
///
/// A rank begins a call only when it is done with the last one, but others may still be in the last one. All that they
/// still have to copy is in slots, whose numbers go on through all calls. A neighbour that has left is noticed only by
/// its silence.
class SharedAllreduce final : public Algorithm {
  public:
    /// Whether this form is available, and the quicker one.
    static bool suits(std::size_t count, const NodeGroups& groups);
    /// Size of each rank's part of the shared memory.
    static std::size_t shared_bytes(const Elements& elements, std::size_t count, std::size_t ranks) {
        return Layout(elements, count, ranks).bytes;
    }

    /// `memory` is shared by the channel's ranks; both must outlive it. `buffers`: memory for values and results that
    /// all of these ranks see.
    SharedAllreduce(Transport& channel, SharedMemory& memory, std::shared_ptr<const SharedBuffers> buffers,
                    const Elements& elements, std::size_t count, unsigned threads);

    std::span<const Stage> stages() const override { return {&stage_, 1}; }
    void set_operands(const Operands& operands) override;
    std::size_t workspace_bytes() const override { return layout_.bytes; }
    std::uint64_t bytes_sent() const override { return bytes_sent_; }
    const char* way() const override { return shared_operands_.all_see() ? ", shared buffers" : ", shared memory"; }

  private:
    /// How far a rank has come, in slices.
    enum Counter : std::size_t { kHandedOut, kAveraged, kCollected, kDoubted, kCounters };

    static constexpr std::size_t kSlotsBegin = SharedCounters::bytes(kCounters) + SharedOperands::shared_bytes();
    /// Where things lie in a rank's part of the memory.
    struct Layout {
        Layout(const Elements& elements, std::size_t count, std::size_t ranks);
        std::size_t part_elements; ///< of a slice, the most
        std::size_t slices;
        std::size_t bytes;
    };
    /// Elements of the buffer.
    struct Part {
        std::size_t begin;
        std::size_t count;
    };
    Part part_of(std::size_t rank, std::size_t slice) const;

    /// The slot with the values that `owner` hands to `reader`; to itself: with the average of its own part.
    void* slot(std::size_t owner, std::size_t reader, std::uint64_t number) const;

    Status advance(Step* step);
    bool advance_slots();
    bool average_where_they_lie();
    bool average(std::size_t begin, std::size_t length) const;
    bool seen() const;
    bool finished() const;
    void end_call();
    float share() const { return operands_.sum_only ? 1.0F : 1.0F / static_cast<float>(ranks_); }
    bool looks() const { return operands_.vote != nullptr && operands_.vote->needed(); }
    void look_at(const Part& part, bool finite);
    Status vote(bool* known);
    bool hand_out_next();
    bool average_next();
    bool collect_next();
    bool all_averaged() const { return counters_.all_reached(kAveraged, before_ + layout_.slices); }
    bool copy(const void* values, std::size_t count, Stores stores, void* to) const;

    Transport& channel_;
    SharedMemory& memory_;
    Elements elements_;
    std::size_t count_;
    std::size_t rank_;
    std::size_t ranks_;
    unsigned threads_;
    Layout layout_;
    SharedCounters counters_;
    SharedOperands shared_operands_;
    Stores slot_stores_ = stores_for_other_cores();
    Stores output_stores_;
    Stage stage_;
    std::uint64_t before_ = 0;         ///< slices of the calls before
    std::uint64_t least_averaged_ = 0; ///< by the slowest of the ranks, when last read
    std::uint64_t bytes_sent_ = 0;

    // The call in flight: its operands, and slices that are done.
    Operands operands_;
    bool begun_ = false;
    std::size_t handed_out_ = 0;
    std::size_t averaged_ = 0;
    std::size_t collected_ = 0;
    bool voted_ = false;
    unsigned idle_ = 0;               ///< looks that found nothing to do, in a row
    std::vector<const void*> values_; ///< by rank, of the part that is being averaged
    std::vector<void*> results_;      ///< likewise
};

} // namespace onebit
