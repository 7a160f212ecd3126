// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "collectives/forms/flat.hpp"

namespace onebit {

/// The flat allreduce one step after the other, each for the whole buffer. It is the form to read first, and the one
/// that other forms are compared with.
class PlainFlat final : public Algorithm {
  public:
    /// `radix` = kDirect: each message goes straight to its destination. Otherwise: Bruck's algorithm.
    static constexpr std::size_t kDirect = 0;

    /// Local. `tag` and `tag` + 1 are its own on this channel.
    static Status create(Transport& transport, FlatAllreduce& flat, std::size_t radix, int tag,
                         std::unique_ptr<PlainFlat>* algorithm);

    std::span<const Stage> stages() const override { return stages_; }
    /// The stages from sending the encoded and sealed chunks to having received the results.
    std::span<const Stage> exchange_stages() const { return stages().subspan(1, 5); }
    void set_operands(const Operands& operands) override { flat_.set_operands(operands); }

  private:
    /// Of one round of buffers.
    struct Exchanges {
        std::unique_ptr<Exchange> chunks;
        std::unique_ptr<Exchange> results;
    };

    explicit PlainFlat(FlatAllreduce& flat);
    Status plan_exchanges(Transport& transport, std::size_t radix, int tag, std::size_t round);
    Exchanges& exchanges() { return exchanges_[flat_.current_round()]; }

    Status encode_chunks(Step* step);
    Status send_chunks(Step* step);
    Status receive(Exchange& exchange, Step* step);
    Status average_and_encode(Step* step);
    Status send_result(Step* step);
    Status await_votes(Step* step);
    Status check_results(Step* step);
    Status decode_results(Step* step);
    Status finish(Step* step);

    FlatAllreduce& flat_;
    std::vector<Chunk> own_; ///< the chunk that this rank serves, alone
    std::vector<Exchanges> exchanges_;
    SliceCursor cursor_;
    std::vector<Slice> slices_; ///< of a step; has its room
    std::vector<Stage> stages_;
};

} // namespace onebit
