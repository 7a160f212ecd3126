// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/forms/two_level.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "core/parallel.hpp"

namespace onebit {
namespace {

/// Blocks that a node's ranks together may have in one slice: 2 MiB, after which they wait for each other. Half of it
/// took a tenth longer where ranks share cores; twice as much took no less.
constexpr std::size_t kMostBlocksInNode = 128;
/// Slices that a rank may share before its neighbours have encoded the first of them.
constexpr std::size_t kSlots = 4;

const Chunk& longest(const std::vector<Chunk>& chunks) {
    return *std::max_element(chunks.begin(), chunks.end(),
                             [](const Chunk& a, const Chunk& b) { return a.count < b.count; });
}

std::size_t blocks_of_slice(std::size_t piece_blocks, std::size_t places) {
    return std::min(piece_blocks, std::max<std::size_t>(kMostBlocksInNode / places, 1));
}

/// Blocks of the longest chunk of the longest shard.
std::size_t most_blocks(const std::vector<Chunk>& shards, std::size_t nodes) {
    return longest(partition(longest(shards).count, nodes)).blocks();
}

} // namespace

// -------------------------------------------------------------------------------------------------- creation ----

TwoLevelAllreduce::Layout::Layout(const Codec& codec, const Elements& elements, const std::vector<Chunk>& shards,
                                  std::size_t nodes, std::size_t piece_blocks, std::size_t rounds)
    : slot_elements(std::min(piece_blocks, most_blocks(shards, nodes)) * kBlockElements),
      messages_at(kSlotsBegin + kSlots * (shards.size() - 1) * slot_elements * elements.bytes()),
      bytes(messages_at +
            rounds * FlatAllreduce::all_words(codec, longest(shards).count, nodes) * sizeof(std::uint32_t)) {}

/// Every rank makes both channels, whatever fails, as the others count on it. A rank that shares memory waits for the
/// others of its node. So the ranks agree before on all that may fail on one rank alone.
Status TwoLevelAllreduce::open_channels(Transport& channel, Communicator& communicator, const Codec& codec,
                                        const Elements& elements, const Plan& plan, std::size_t rounds,
                                        Channels* channels) {
    const NodeGroups& groups = communicator.groups();
    const Status node = catch_exceptions([&] { return channel.split(groups.node_of_rank, &channels->node); });
    const Status across = catch_exceptions([&] { return channel.split(groups.place_of_rank, &channels->across); });
    std::size_t bytes = 0;
    const Status planned = catch_exceptions([&] {
        ONEBIT_RETURN_IF_ERROR(node);
        ONEBIT_RETURN_IF_ERROR(across);
        const Layout layout(codec, elements, partition(plan.count, groups.places), groups.nodes,
                            blocks_of_slice(plan.piece_blocks, groups.places), rounds);
        bytes = layout.bytes;
        return channels->node->plan_memory(&channels->memory);
    });
    ONEBIT_RETURN_IF_ERROR(communicator.agree(planned));
    return channels->node->share_memory(bytes, communicator.patience(), &channels->memory);
}

TwoLevelAllreduce::TwoLevelAllreduce(Channels& channels, std::shared_ptr<const SharedBuffers> buffers,
                                     const Codec& codec, const Elements& elements, const Plan& plan,
                                     const FlatAllreduce::Extras& extras)
    : TwoLevelForm(channels, codec, plan.op, plan.count),
      elements_(elements),
      count_(plan.count),
      threads_(plan.threads),
      piece_blocks_(blocks_of_slice(plan.piece_blocks, shards_.size())),
      layout_(codec, elements, shards_, nodes_, piece_blocks_, extras.rounds()),
      counters_(*channels.memory, place_, shards_.size()),
      shared_values_(*channels.memory, SharedCounters::bytes(kCounters), place_, shards_.size(), std::move(buffers),
                     count_ * elements.bytes()),
      node_average_(*this),
      shard_vote_(*this),
      results_(*this, codec, shards_, nodes_, extras.rounds(),
               [&](std::size_t place, std::size_t round) {
                   return messages_of(place) + round * FlatAllreduce::all_words(codec, shards_[place].count, nodes_);
               }),
      decoded_(shards_.size()) {
    pieces_ = ceil_divide(most_blocks(shards_, nodes_), piece_blocks_);
    make_flat(extras, messages_of(place_));
    ready_ = [this] {
        return counters_.all_reached(kShared, calls_ * pieces_ * nodes_ + between_nodes_->encoded_slices() + 1);
    };
    stages_ = {{"exchange on two levels", [this](Step* step) { return advance(step); }}};
}

Status TwoLevelAllreduce::create(Channels& channels, std::shared_ptr<const SharedBuffers> buffers, const Codec& codec,
                                 const Elements& elements, const Plan& plan, const FlatAllreduce::Extras& extras,
                                 int tag, std::unique_ptr<TwoLevelAllreduce>* algorithm) {
    std::unique_ptr<TwoLevelAllreduce> made(
        new TwoLevelAllreduce(channels, std::move(buffers), codec, elements, plan, extras));
    ONEBIT_RETURN_IF_ERROR(PipelinedFlat::create(*made->channels_.across, *made->flat_, PipelinedFlat::Way::kStraight,
                                                 made->piece_blocks_, tag, &made->between_nodes_));
    *algorithm = std::move(made);
    return {};
}

// ----------------------------------------------------------------------------------------- the node's memory ----

std::byte* TwoLevelAllreduce::slot(std::size_t owner, std::size_t reader, std::size_t slice) const {
    std::byte* const segment = channels_.memory->of(static_cast<int>(owner));
    const std::size_t among_others = reader - (reader > owner ? 1 : 0);
    const std::size_t number = slice % kSlots * (shards_.size() - 1) + among_others;
    return segment + kSlotsBegin + number * layout_.slot_elements * elements_.bytes();
}

std::uint32_t* TwoLevelAllreduce::messages_of(std::size_t place) const {
    return reinterpret_cast<std::uint32_t*>(channels_.memory->of(static_cast<int>(place)) + layout_.messages_at);
}

Slice TwoLevelAllreduce::slice_of(std::size_t place, std::size_t slice) const {
    return Slice::piece_of(results_.chunks_of(place)[slice % nodes_], slice / nodes_, piece_blocks_);
}

const void* TwoLevelAllreduce::NodeAverage::part_of(std::size_t place, const Block& block) const {
    const TwoLevelAllreduce& own = owner_;
    const std::size_t in_values = own.shard().begin + block.begin();
    if (place == own.place_) return own.elements_.at(own.operands_.input, in_values);
    if (own.shared_values_.all_see()) return own.elements_.at(own.shared_values_.input(place), in_values);
    const std::size_t slice =
        (own.calls_ * own.pieces_ + block.index / own.piece_blocks_) * own.nodes_ + block.chunk.index;
    const std::size_t in_slot = block.index % own.piece_blocks_ * kBlockElements;
    return own.slot(place, own.place_, slice) + in_slot * own.elements_.bytes();
}

/// The encoder reads floats where they lie, and adds them in the order of places. 16-bit values are added up here. So
/// are shares of a source, which makes something of their mean.
BlockValues TwoLevelAllreduce::NodeAverage::read(const Block& block, float* scratch) const {
    const TwoLevelAllreduce& own = owner_;
    const std::size_t places = own.shards_.size();
    const ValueSource* const source = own.operands_.input == nullptr ? own.operands_.source : nullptr;
    if (own.elements_.type() == ONEBIT_FLOAT32 && source == nullptr) {
        static_assert(NodeGroups::kMostPlaces * sizeof(float*) <= kBlockElements * sizeof(float));
        const float** const parts = new (scratch) const float*[places];
        for (std::size_t p = 0; p < places; ++p) parts[p] = static_cast<const float*>(part_of(p, block));
        return {.mean = Mean{{parts, places}, own.share_in_node()}};
    }
    const Block whole = own.results_.whole_block(own.place_, block);
    std::array<const void*, NodeGroups::kMostPlaces> parts;
    for (std::size_t p = 0; p < places; ++p) {
        const bool from_source = source != nullptr && p == own.place_;
        parts[p] = from_source ? source->read_share(whole, scratch) : part_of(p, block);
    }
    own.elements_.mean(parts.data(), places, 0, own.share_in_node(), block.count(), Stores::kCached, scratch);
    return source == nullptr ? BlockValues{scratch} : source->of_mean(whole, scratch);
}

// --------------------------------------------------------------------------------------------- tentative calls ----

bool TwoLevelAllreduce::doubt(std::size_t place, Slice slice) {
    slice.chunk.begin += shards_[place].begin;
    return operands_.vote->doubt(slice);
}

/// Where this rank reads the others' values, those may be the values that are not finite.
bool TwoLevelAllreduce::doubt_own(const Slice& slice) {
    counters_.tell(kDoubted, calls_ + 1);
    return doubt(place_, slice);
}

/// The values of its own shard are encoded, the others are shared; or, where others read them, encoded, too.
bool TwoLevelAllreduce::seen_all() const {
    if (shared_ < pieces_ * nodes_ || !between_nodes_->all_encoded()) return false;
    return !shared_values_.all_see() || counters_.all_reached(kEncoded, (calls_ + 1) * pieces_ * nodes_);
}

Status TwoLevelAllreduce::cast_vote() {
    if (operands_.vote == nullptr || voted_ || !seen_all()) return {};
    voted_ = true;
    const bool doubted = shared_values_.all_see() && counters_.any_reached(kDoubted, calls_ + 1);
    if (doubted) (void)operands_.vote->doubt(Slice::whole({0, 0, count_}));
    return operands_.vote->cast();
}

// ---------------------------------------------------------------------------------------------- the one stage ----

void TwoLevelAllreduce::set_operands(const Operands& operands) {
    operands_ = operands;
    const bool encodes = operands.input != nullptr || operands.source != nullptr;
    between_nodes_->set_operands({.source = encodes ? &node_average_ : nullptr,
                                  .number = operands.number,
                                  .tentative = operands.tentative,
                                  .vote = operands.vote != nullptr ? &shard_vote_ : nullptr,
                                  .ready = &ready_});
    inner_.start(between_nodes_->stages());
    begun_ = voted_ = false;
    shared_ = 0;
    std::fill(decoded_.begin(), decoded_.end(), 0);
    verdict_ = {};
}

/// Work that others wait for comes first.
Status TwoLevelAllreduce::advance(Step* step) {
    *step = Step::kAgain;
    if (!begun_) shared_values_.begin(operands_.input, nullptr);
    begun_ = true;
    bool did = false;
    if (shared_values_.look()) shared_values_.all_see() ? share_all(&did) : share_next(&did);
    if (!did) ONEBIT_RETURN_IF_ERROR(exchange_between_nodes(&did));
    ONEBIT_RETURN_IF_ERROR(cast_vote());
    if (!did) ONEBIT_RETURN_IF_ERROR(decode_next(&did));
    if (did) return {};
    const bool all_decoded =
        std::all_of(decoded_.begin(), decoded_.end(), [&](std::size_t slices) { return slices == pieces_ * nodes_; });
    if (!inner_.finished() || !all_decoded) {
        *step = counters_.last_went_on(kEncoded, &least_encoded_) ? Step::kAgain : Step::kWait;
        return {};
    }
    ++calls_;
    shared_values_.end();
    if (!verdict_.ok() && !awaits_commit()) flat_->forget(); // in all shards, though one alone has overflowed
    *step = Step::kDone;
    return verdict_;
}

/// Writes the next slice of every other rank's shard into its slot, if that is free.
void TwoLevelAllreduce::share_next(bool* did) {
    const std::size_t slices = pieces_ * nodes_;
    const std::uint64_t number = calls_ * slices + shared_; // of this slice, in all calls
    if (shared_ == slices || (number >= kSlots && !counters_.all_reached(kEncoded, number - kSlots + 1))) return;
    *did = true;
    for (std::size_t reader = 0; reader < shards_.size(); ++reader) {
        if (reader == place_) continue;
        const Slice slice = slice_of(reader, shared_);
        share(reader, slice, slot(place_, reader, number));
    }
    order_stores(stores_);
    ++shared_;
    counters_.tell(kShared, number + 1);
}

/// A call that is going to be called off may have nothing to share: whatever lies in the slot is taken.
void TwoLevelAllreduce::share(std::size_t reader, const Slice& slice, std::byte* slot) {
    if (operands_.input != nullptr) {
        const void* const values = elements_.at(operands_.input, shards_[reader].begin + slice.begin());
        const bool finite = elements_.copy(values, slice.count(), stores_, slot);
        if (!finite && operands_.vote != nullptr) (void)doubt(reader, slice);
        return;
    }
    if (operands_.source == nullptr) return;
    parallel_for(slice.first_block, slice.end_block, threads_, [&](std::size_t index) {
        alignas(64) float scratch[kBlockElements];
        const Block block = {slice.chunk, index};
        const float* const values = operands_.source->read_share(results_.whole_block(reader, block), scratch);
        float* const to = reinterpret_cast<float*>(slot) + (index - slice.first_block) * kBlockElements;
        // The optimizer has looked for NaNs itself. A call that it is going to call off may share some.
        (void)elements_.copy(values, block.count(), stores_, to);
        if (threads_ > 1) order_stores(stores_);
    });
}

/// For values that the others read where they lie.
void TwoLevelAllreduce::share_all(bool* did) {
    const std::size_t slices = pieces_ * nodes_;
    if (shared_ == slices) return;
    *did = true;
    shared_ = slices;
    counters_.tell(kShared, (calls_ + 1) * slices);
}

/// One step of the flat form; says how far it has come.
Status TwoLevelAllreduce::exchange_between_nodes(bool* did) {
    if (inner_.finished()) return {};
    Step step = Step::kDone;
    const Status status = inner_.advance(&step);
    // All ranks must report an overflow in one shard, also ranks of other shards: decode_next sees it.
    const bool overflow = status.code() == ONEBIT_ERROR_NONFINITE;
    if (!status.ok() && !overflow) return status;
    *did = step != Step::kWait;
    const bool finished = inner_.finished() || overflow;
    const std::size_t slices = pieces_ * nodes_;
    // A shorter shard may have one piece less; its counters end where the others' do.
    const std::size_t encoded = between_nodes_->all_encoded() ? slices : between_nodes_->encoded_slices();
    const std::size_t arrived = finished ? pieces_ : between_nodes_->arrived_pieces();
    counters_.tell(kEncoded, calls_ * slices + encoded);
    counters_.tell(kArrived, calls_ * pieces_ + arrived);
    if (overflow) inner_.start({});
    return {};
}

/// Decodes a slice of some shard whose result is there, if all ranks agree.
Status TwoLevelAllreduce::decode_next(bool* did) {
    bool all_voted = false;
    ONEBIT_RETURN_IF_ERROR(flat_->gather().test_vote(&all_voted)); // moves it on, too
    if (!all_voted) return {};
    for (std::size_t place = 0; place < shards_.size() && !*did; ++place) {
        std::size_t& next = decoded_[place];
        const std::uint64_t needed = calls_ * pieces_ + next / nodes_ + 1;
        if (next == pieces_ * nodes_ || !counters_.reached(place, kArrived, needed)) continue;
        *did = true;
        const Slice slice = slice_of(place, next++);
        if (flat_->gather().refused()) continue;
        // All ranks of all nodes see the same messages, and so come to the same verdict.
        const std::size_t round = flat_->gather().round();
        const EncodedSlice encoded = results_.encoded(place, round, slice);
        if (verdict_.ok() && codec_.first_overflowed(only(encoded)) == 0) verdict_ = overflow(!awaits_commit());
        if (!verdict_.ok() || operands_.sink == nullptr) continue;
        results_.decode(place, round, slice, *operands_.sink);
        verdict_ = look_at_results(*operands_.sink);
    }
    return {};
}

std::size_t TwoLevelAllreduce::workspace_bytes() const {
    return layout_.bytes + mask_.bytes() + flat_->workspace_bytes();
}

} // namespace onebit
