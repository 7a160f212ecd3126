// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "collectives/communicator/communicator.hpp"
#include "collectives/forms/flat_plain.hpp"
#include "collectives/forms/two_level_form.hpp"
#include "collectives/operation/memory_backend.hpp"
#include "numeric/arithmetic.hpp"

namespace onebit {

/// Two levels by messages alone: for values in a GPU's memory. Inside a node they are work of the same stream; between
/// nodes they may be, or wait for it.
///
/// Shards are cut into pieces, whole blocks of the flat form's chunks. Step t of the average is piece t of every shard
/// at once: each rank copies what it has of them into slots, sends each to the rank whose shard it is of, and adds up
/// what has come for its own, from where it is encoded. So no average of a whole shard ever lies in memory. Then come
/// the flat form's exchanges between nodes, and one more in the node, by which its ranks get each other's messages;
/// `messages_` has those of all shards, one behind the other.
///
/// One step after the other, as it is with a stream: what could go on meanwhile would be in the same stream, behind.
class DeviceTwoLevel final : public TwoLevelForm {
  public:
    /// `channel` is the handle's own, of the communicator's ranks. Collective; may block.
    static Status open_channels(Transport& channel, Communicator& communicator, const MemoryBackend& backend,
                                Channels* channels);
    /// Local. The channels must outlive it. `piece_blocks`: of what travels together elsewhere; here some of them do.
    /// Two tags from `tag` on are its own on the channel across.
    static Status create(Channels& channels, const Codec& codec, onebit_op_t op, std::unique_ptr<Arithmetic> arithmetic,
                         std::size_t count, std::size_t piece_blocks, int tag,
                         std::unique_ptr<TwoLevelForm>* algorithm);

    std::span<const Stage> stages() const override { return stages_; }
    void set_operands(const Operands& operands) override;
    std::size_t workspace_bytes() const override;

  private:
    /// Elements of a shard that lie one behind the other, counted from its beginning, and what they are of its chunks.
    struct Piece {
        std::size_t begin = 0;
        std::size_t count = 0;
        std::vector<Slice> slices{};
    };
    /// A shard's, as the flat form cuts it.
    std::vector<Chunk> chunks_of(std::size_t place) const { return partition(shards_[place].count, nodes_); }
    static std::vector<Piece> cut(const std::vector<Chunk>& chunks, std::size_t most_blocks);

    DeviceTwoLevel(Channels& channels, const Codec& codec, onebit_op_t op, std::unique_ptr<Arithmetic> arithmetic,
                   std::size_t count, std::size_t piece_blocks);
    Status plan_average(int tag);
    Status plan_exchange_in_node(int tag);
    Status plan_sharing(int tag);
    Status plan_exchange_between_nodes(int tag);

    bool on_device() const { return &codec_.memory() != &host_memory(); }
    /// What goes to a place, and what has come from one. What goes to itself is what has come from itself.
    float* outgoing(std::size_t place) { return slots_.data() + place * slot_elements_; }
    float* incoming(std::size_t place);
    std::uint32_t* messages_of(std::size_t place) { return messages_.data() + first_words_[place]; }

    void hand_out(std::size_t step);
    void average_and_encode(std::size_t step);
    void decode();
    Status finish(Step* step);

    std::unique_ptr<Arithmetic> arithmetic_;
    std::vector<std::vector<Piece>> pieces_; ///< by place: as many of each, the last ones maybe empty
    std::size_t slot_elements_ = 0;
    AlignedBuffer<float> slots_;            ///< one for each place to send from, and to receive in for each other one
    std::vector<float*> to_be_averaged_;    ///< by place, what has come from there
    std::vector<std::size_t> first_words_;  ///< by place; and of all
    AlignedBuffer<std::uint32_t> messages_; ///< of all shards
    std::vector<EncodedSlice> results_;     ///< what they are, in the whole buffer
    std::unique_ptr<PlainFlat> between_nodes_;
    std::vector<std::unique_ptr<Exchange>> averaging_; ///< by step
    std::unique_ptr<Exchange> sharing_;
    std::vector<Stage> stages_;

    // The call in flight.
    Operands operands_;
    ArraySource piece_source_;
    bool overflowed_ = false;
};

} // namespace onebit
