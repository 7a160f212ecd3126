// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "collectives/call/algorithm.hpp"
#include "collectives/communicator/node_groups.hpp"
#include "collectives/sums/sum_levels.hpp"
#include "core/aligned_buffer.hpp"
#include "core/partition.hpp"
#include "numeric/elements.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// The exact average of many values, or their sum, by messages on the host, with the same bits on every MPI.
///
/// Each rank adds up one chunk, in float32, and sends it to all, on one level or two (SumLevel). Messages are of the
/// values' own type, so values of 16 bits have one level: a sum between levels would be rounded.
///
/// Chunks travel in pieces through a few slots, so that only this rank touches the caller's values, however the call
/// ends. Pieces k of all chunks travel together, through one exchange after the other. Counters say how many pieces are
/// past each exchange.
class PipelinedSum final : public Algorithm {
  public:
    /// Local. Two tags for each level, from `tag` on, are its own on this channel. `nodes`: of the channel's ranks.
    static Status create(Transport& transport, const NodeGroups& nodes, const Elements& elements, std::size_t count,
                         unsigned threads, int tag, std::unique_ptr<Algorithm>* algorithm);

    std::span<const Stage> stages() const override { return stages_; }
    void set_operands(const Operands& operands) override;
    std::size_t workspace_bytes() const override;

  private:
    static constexpr std::size_t kSlots = 4;

    /// Buffers that a piece travels through: values first, then sums.
    struct Slot {
        AlignedBuffer<std::byte> pieces;                  ///< by chunk
        AlignedBuffer<std::byte> incoming;                ///< of a level on the way up: by other member
        std::vector<std::unique_ptr<Exchange>> exchanges; ///< of all levels up, then of all levels down
    };

    PipelinedSum(std::vector<SumLevel> levels, const Elements& elements, std::size_t count, unsigned threads);
    Status plan(Transport& transport, int tag, Slot* slot);

    Status copy(Step* step);
    Status advance(Step* step);
    Status hand_out_next(bool* did);
    Status take_next(std::size_t exchange, bool* did);
    void hand_out(std::size_t piece);
    void add_up(std::size_t level, std::size_t piece);
    void collect(std::size_t piece);

    /// No chunk has more elements than the first.
    std::size_t longest() const { return chunks_.front().count; }
    std::size_t exchanges() const { return 2 * levels_.size(); }
    std::size_t own_chunk() const { return levels_.back().own_begin(); }
    Slot& slot_of(std::size_t piece) { return slots_[piece % kSlots]; }
    /// A chunk's piece; empty past its end.
    Chunk piece_of(std::size_t chunk, std::size_t piece) const;
    std::size_t bytes_of_chunks(std::size_t chunks) const { return chunks * piece_elements_ * elements_.bytes(); }
    /// Of a slot.
    std::byte* place_of(Slot& slot, std::size_t chunk) const { return slot.pieces.data() + bytes_of_chunks(chunk); }
    std::byte* incoming_of(Slot& slot, const SumLevel& level, std::size_t member) const;
    void copy_elements(const void* from, std::size_t count, void* to) const;

    std::vector<SumLevel> levels_;
    Elements elements_;
    unsigned threads_;
    std::vector<Chunk> chunks_; ///< of the values; a rank's are consecutive on every level
    std::size_t pieces_;
    std::size_t piece_elements_;
    std::vector<Slot> slots_;
    std::vector<const void*> parts_; ///< by member of a level, of the chunk's piece that is added up

    Operands operands_;
    std::size_t handed_out_ = 0;
    std::vector<std::size_t> taken_; ///< pieces, by exchange
    std::vector<Stage> stages_;
};

} // namespace onebit
