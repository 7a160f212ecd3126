// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/communicator/shared_buffers.hpp"
#include "collectives/sums/shared_counters.hpp"

namespace onebit {

/// Whether in a call the values (and results, if asked for) of all ranks of a node lie where all these ranks see them
/// (SharedBuffers), and where they lie.
///
/// Each rank leaves its own places in the memory that the handle's ranks share. A rank whose values lie elsewhere needs
/// to know no more. The other ranks wait for each other's places, and say whether they have the memory of these places:
/// a rank may have freed it. So all come to the same answer.
class SharedOperands {
  public:
    /// What it takes of each rank's part of the memory.
    static constexpr std::size_t shared_bytes() { return SharedCounters::bytes(kCounters) + kWhereaboutsBytes; }

    /// `bytes`: of one rank's values, or results. `offset`: where its part of `memory`, which outlives it, begins.
    /// `rank` and `ranks`: of the node.
    SharedOperands(SharedMemory& memory, std::size_t offset, std::size_t rank, std::size_t ranks,
                   std::shared_ptr<const SharedBuffers> buffers, std::size_t bytes);

    /// Begins a call that every rank is going to come to: says where this rank's values lie. `output`: NULL, on all
    /// ranks alike, where only values are asked for.
    void begin(const void* input, void* output);
    /// Whether the answer is known by now.
    bool look();
    /// The answer, once known.
    bool all_see() const { return answer_ == Answer::kYes; }
    const void* input(std::size_t rank) const { return inputs_[rank]; }
    void* output(std::size_t rank) const { return outputs_[rank]; }
    /// This rank reads nothing more of the call.
    void end() { held_.clear(); }

  private:
    enum Counter : std::size_t { kPlaced, kFound, kMissed, kCounters };
    enum class Answer { kUnknown, kFoundHere, kNo, kYes };
    using Place = SharedBuffers::Place;
    struct Whereabouts {
        Place input;
        Place output;
    };
    static constexpr std::size_t kWhereaboutsBytes = 64;
    static_assert(sizeof(Whereabouts) <= kWhereaboutsBytes);

    Whereabouts& whereabouts_of(std::size_t rank) const;
    bool all_have_places() const;
    bool find_all();
    void* find(Place place, std::size_t rank);

    SharedMemory& memory_;
    std::size_t offset_;
    std::size_t rank_;
    std::size_t ranks_;
    std::shared_ptr<const SharedBuffers> buffers_;
    std::size_t bytes_;
    SharedCounters counters_;
    std::uint64_t calls_ = 0;

    // Of the call in flight.
    Answer answer_ = Answer::kUnknown;
    bool asks_results_ = false;
    std::vector<const void*> inputs_; ///< by rank
    std::vector<void*> outputs_;
    std::vector<std::shared_ptr<SharedBuffer>> held_; ///< may be freed meanwhile
};

} // namespace onebit
