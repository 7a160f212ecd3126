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

/// Two levels by messages alone, for values in a GPU's memory. Messages inside a node are work of the same stream.
/// Messages between nodes may be work of the stream, or wait for it.
///
/// Shards are cut into pieces, whole blocks of the flat form's chunks. Step t of the average is piece t of every shard
/// at once. Each rank copies its values of these pieces into slots, and sends each piece to the rank that owns the
/// shard. It adds up the received values of its own piece, and encodes this average. So the average of a whole shard is
/// never in memory. Then come the flat form's exchanges between nodes. One more exchange in the node gives its ranks
/// each other's messages. `messages_` has the messages of all shards, one behind the other.
///
/// Steps run one after the other: work that could run meanwhile would be queued behind in the same stream.
class DeviceTwoLevel final : public TwoLevelForm {
  public:
    /// `channel` is the handle's own, of the communicator's ranks. Collective; may block.
    static Status open_channels(Transport& channel, Communicator& communicator, const MemoryBackend& backend,
                                Channels* channels);
    /// Local. The channels must outlive it. `piece_blocks`: of a piece in other forms; a piece here is several of them.
    /// Two tags from `tag` on are its own on the channel across.
    static Status create(Channels& channels, const Codec& codec, onebit_op_t op, std::unique_ptr<Arithmetic> arithmetic,
                         std::size_t count, std::size_t piece_blocks, int tag,
                         std::unique_ptr<TwoLevelForm>* algorithm);

    std::span<const Stage> stages() const override { return stages_; }
    void set_operands(const Operands& operands) override;
    std::size_t workspace_bytes() const override;

  private:
    /// Consecutive elements of a shard, counted from its beginning, and the slices of its chunks that they are.
    struct Piece {
        std::size_t begin = 0;
        std::size_t count = 0;
        std::vector<Slice> slices{};
    };
    /// A shard's chunks, as the flat form cuts it.
    std::vector<Chunk> chunks_of(std::size_t place) const { return partition(shards_[place].count, nodes_); }
    static std::vector<Piece> cut(const std::vector<Chunk>& chunks, std::size_t most_blocks);

    DeviceTwoLevel(Channels& channels, const Codec& codec, onebit_op_t op, std::unique_ptr<Arithmetic> arithmetic,
                   std::size_t count, std::size_t piece_blocks);
    Status plan_average(int tag);
    Status plan_exchange_in_node(int tag);
    Status plan_sharing(int tag);
    Status plan_exchange_between_nodes(int tag);

    bool on_device() const { return &codec_.memory() != &host_memory(); }
    /// Values that go to a place, and values that came from one. For this rank's own place both are the same.
    float* outgoing(std::size_t place) { return slots_.data() + place * slot_elements_; }
    float* incoming(std::size_t place);
    std::uint32_t* messages_of(std::size_t place) { return messages_.data() + first_words_[place]; }

    void hand_out(std::size_t step);
    void average_and_encode(std::size_t step);
    void decode();
    Status finish(Step* step);

    std::unique_ptr<Arithmetic> arithmetic_;
    std::vector<std::vector<Piece>> pieces_; ///< by place: equally many of each, the last ones may be empty
    std::size_t slot_elements_ = 0;
    AlignedBuffer<float> slots_;            ///< one per place to send from, then one per other place to receive in
    std::vector<float*> to_be_averaged_;    ///< by place, the values that came from there
    std::vector<std::size_t> first_words_;  ///< by place; the last: of all
    AlignedBuffer<std::uint32_t> messages_; ///< of all shards
    std::vector<EncodedSlice> results_;     ///< their slices, in the whole buffer
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
