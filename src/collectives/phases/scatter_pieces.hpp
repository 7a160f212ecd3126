// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "collectives/phases/pieces.hpp"
#include "collectives/phases/scatter_phase.hpp"

namespace onebit {

/// A ScatterPhase in pieces, some of which are on the wire while others are encoded, or worked on by their servers.
class ScatterPieces {
  public:
    /// Both must outlive it.
    ScatterPieces(ScatterPhase& phase, const Pieces& pieces)
        : phase_(phase), pieces_(pieces), exchanges_(phase.rounds()), cursor_(phase.layout().chunks(), pieces) {}

    /// Of one round. Pieces of one chunk have one tag: they come in the order in which they were sent.
    Status plan(Transport& transport, std::size_t round, int tag, int trailer_tag);

    // ---- one call: begin, behind the phase's ----

    /// `ready`: as in Operands.
    void begin(const std::function<bool()>* ready);
    /// Encodes the next piece of one chunk, or of all; sends it once all chunks' are encoded.
    Status encode_next(bool* did);
    std::size_t encoded() const { return cursor_.piece(); }
    /// Slices: piece k of all chunks, then piece k + 1.
    std::size_t encoded_slices() const { return encoded() * phase_.layout().chunks().size() + cursor_.chunk(); }
    bool all_encoded() const { return cursor_.at_end(); }

    /// Whether the next piece of the own chunk is there from all ranks. Then comes the server's work on it, then
    /// take().
    Status test_next(bool* there) const;
    Slice next() const { return pieces_.of(phase_.layout().own_chunk(), taken_); }
    void take() { ++taken_; }
    std::size_t taken() const { return taken_; }
    bool all_taken() const { return taken_ == pieces_.count; }

  private:
    PieceExchanges& exchanges() { return exchanges_[phase_.round()]; }
    const PieceExchanges& exchanges() const { return exchanges_[phase_.round()]; }

    ScatterPhase& phase_;
    const Pieces& pieces_;
    std::vector<PieceExchanges> exchanges_; ///< by round

    // The call in flight.
    const std::function<bool()>* ready_ = nullptr;
    PieceCursor cursor_; ///< of what is encoded
    std::size_t taken_ = 0;
};

} // namespace onebit
