// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "collectives/forms/flat.hpp"
#include "collectives/phases/gather_pieces.hpp"
#include "collectives/phases/scatter_pieces.hpp"

namespace onebit {

/// The flat allreduce in pieces. Some pieces are on the wire while others are encoded, averaged or decoded. A piece is
/// encoded and sent, averaged as soon as all ranks' pieces are there, sent to everybody, and decoded.
///
/// The network must always be busy. So in each step work that other ranks wait for comes first (passing on, averaging),
/// then work that keeps the wire busy (encoding), then work that only this rank needs (decoding).
class PipelinedFlat final : public Algorithm {
  public:
    using Way = GatherPieces::Way; ///< of the results

    /// `piece_blocks`: of a piece, or more where there would be too many pieces. Local. The four tags from `tag` on are
    /// its own on this channel; with rings, ring_tags() of them.
    static Status create(Transport& transport, FlatAllreduce& flat, Way way, std::size_t piece_blocks, int tag,
                         std::unique_ptr<PipelinedFlat>* algorithm);

    /// Number of tags of a way along rings, for `count` elements over `ranks` ranks.
    static int ring_tags(std::size_t count, std::size_t ranks, std::size_t piece_blocks);

    std::span<const Stage> stages() const override { return stages_; }
    void set_operands(const Operands& operands) override;

    /// Of the call in flight: slices encoded so far (piece k of all chunks, then piece k + 1), and pieces of the result
    /// that are there.
    std::size_t encoded_slices() const { return scatter_.encoded_slices(); }
    bool all_encoded() const { return scatter_.all_encoded(); }
    std::size_t arrived_pieces() const { return gather_.decoded(); }

  private:
    PipelinedFlat(FlatAllreduce& flat, Way way, std::size_t piece_blocks);
    Status advance(Step* step);
    Status average_next(bool* did);

    FlatAllreduce& flat_;
    Pieces pieces_;
    ScatterPieces scatter_;
    GatherPieces gather_;
    std::vector<Stage> stages_;
};

} // namespace onebit
