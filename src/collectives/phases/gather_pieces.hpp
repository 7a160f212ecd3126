// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/phases/gather_phase.hpp"
#include "collectives/phases/pieces.hpp"

namespace onebit {

/// A GatherPhase in pieces, some of which are on the wire while others are encoded or decoded.
class GatherPieces {
  public:
    enum class Way {
        kStraight, ///< to everybody
        kRing      ///< from rank to rank (ring.hpp): each rank must pass on the pieces that came
    };
    /// Most pieces along a ring: each has a tag of its own there, and MPI has at least 32767 tags.
    static constexpr std::size_t kMostRings = 16384;

    /// Both must outlive it.
    GatherPieces(GatherPhase& phase, const Pieces& pieces, Way way)
        : phase_(phase),
          pieces_(pieces),
          way_(way),
          exchanges_(phase.rounds()),
          cursor_(phase.layout().chunks(), pieces) {}

    /// Of one round. Pieces of one chunk that go straight have one tag: they come in the order in which they were sent.
    /// Along a ring a piece may overtake another one on some hop, so piece k has `ring_tag` + k.
    Status plan(Transport& transport, std::size_t round, int tag, int trailer_tag, int ring_tag = 0);

    // ---- one call: begin, behind the phase's ----

    void begin();
    /// Sends the next piece of the own message, which is encoded. Behind the last one, seals and sends the trailers.
    Status send_next();
    std::size_t sent() const { return sent_; }
    bool all_sent() const { return sent_ == pieces_.count; }
    /// Keeps rings going for all pieces that are on their way: decoding waits only for the first of them.
    Status pass_on();
    /// Decodes the next piece of one chunk, or of all, if it is there for all chunks, and all ranks agree.
    Status decode_next(bool* did);
    std::size_t decoded() const { return cursor_.piece(); }
    bool all_decoded() const { return cursor_.at_end(); }
    /// Behind the last piece: whether the call's verdict is known; then *verdict has it.
    bool find_verdict(Status* verdict);

  private:
    PieceExchanges& exchanges() { return exchanges_[phase_.round()]; }

    GatherPhase& phase_;
    const Pieces& pieces_;
    Way way_;
    std::vector<PieceExchanges> exchanges_; ///< by round

    // The call in flight.
    std::size_t sent_ = 0;
    PieceCursor cursor_; ///< of what is decoded
    Status verdict_;     ///< what was wrong with a message: nothing more is decoded, but all are waited for
};

} // namespace onebit
