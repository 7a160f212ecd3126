// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "collectives/algorithm.hpp"
#include "core/aligned_buffer.hpp"
#include "core/partition.hpp"
#include "numeric/elements.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// The exact average of many values, or their sum, by messages on the host: each rank adds up one chunk, in the order
/// of ranks and in float32, so that the result is the same with every MPI; and sends it to all. Messages are of the
/// values' own type.
///
/// Chunks travel in pieces through a few slots, so that nobody but this rank touches the caller's values, whatever
/// becomes of the call. Piece k of all chunks goes the same way at once: handed out, added up as soon as all ranks' are
/// there, collected. Three counters say how many pieces have come how far, collected_ <= added_ <= handed_out_ <=
/// collected_ + kSlots.
class PipelinedSum final : public Algorithm {
  public:
    /// Local. `tag` and `tag` + 1 are its own on this channel.
    static Status create(Transport& transport, const Elements& elements, std::size_t count, unsigned threads, int tag,
                         std::unique_ptr<Algorithm>* algorithm);

    std::span<const Stage> stages() const override { return stages_; }
    void set_operands(const Operands& operands) override;
    std::size_t workspace_bytes() const override;

  private:
    static constexpr std::size_t kSlots = 4;

    /// What a piece travels through: values first, then sums.
    struct Slot {
        AlignedBuffer<std::byte>
            outgoing; ///< by peer: this rank's values of its chunk; then, at the front, this rank's sum
        AlignedBuffer<std::byte> incoming; ///< by peer: its values of this rank's chunk; then its sum
        std::unique_ptr<Exchange> values;
        std::unique_ptr<Exchange> sums;
    };

    PipelinedSum(const Elements& elements, std::size_t count, unsigned threads, std::size_t rank, std::size_t ranks);
    Status plan(Transport& transport, int tag, Slot* slot);

    Status copy(Step* step);
    Status advance(Step* step);
    Status hand_out_next(bool* did);
    Status add_next(bool* did);
    Status collect_next(bool* did);

    /// No chunk has more elements than the first.
    std::size_t longest() const { return chunks_.front().count; }
    Slot& slot_of(std::size_t piece) { return slots_[piece % kSlots]; }
    /// A chunk's piece; empty past its end.
    Chunk piece_of(std::size_t rank, std::size_t piece) const;
    /// Of one of the other ranks.
    std::byte* place(AlignedBuffer<std::byte>& buffer, std::size_t rank) const;
    void copy_elements(const void* from, std::size_t count, void* to) const;
    void add_up(const Chunk& own, void* sum, void* output);

    Elements elements_;
    unsigned threads_;
    std::size_t rank_;
    std::vector<Chunk> chunks_; ///< by rank
    std::size_t pieces_;
    std::size_t piece_elements_;
    std::vector<Slot> slots_;
    std::vector<const void*> parts_; ///< by rank, of the piece that is added up

    Operands operands_;
    std::size_t handed_out_ = 0;
    std::size_t added_ = 0;
    std::size_t collected_ = 0;
    std::vector<Stage> stages_;
};

} // namespace onebit
