// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/sums/shared_allreduce.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "core/parallel.hpp"
#include "core/partition.hpp"

namespace onebit {
namespace {

/// In bytes: a slot's parts begin at multiples of this.
constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kMostSliceBytes = std::size_t{1} << 19;
constexpr std::size_t kLeastPartElements = 1024;
/// Slices that a rank may hand out before its neighbours have averaged the first of them.
constexpr std::size_t kSlots = 4;

/// So few that reads and writes alternate quickly: 4096 at a time took a fifth longer.
constexpr std::size_t kMeanElements = 256;

/// A look at the messages takes as long as several looks at the memory.
constexpr unsigned kLooksBetweenMessages = 32;

std::size_t aligned(const Elements& elements, std::size_t count) {
    const std::size_t in_line = kCacheLine / elements.bytes();
    return ceil_divide(count, in_line) * in_line;
}

/// Calls body(begin, length) for every thread's part, or for one part where several would cost more. Returns whether
/// all calls returned true.
template <typename Body>
bool for_each_part(const Elements& elements, std::size_t count, unsigned threads, const Body& body) {
    if (count < 4 * kBlockElements) threads = 1;
    const std::size_t longest = aligned(elements, ceil_divide(count, threads));
    std::atomic<bool> all = true;
    parallel_for(0, threads, threads, [&](std::size_t thread) {
        const std::size_t begin = std::min(thread * longest, count);
        if (!body(begin, std::min(longest, count - begin))) all = false;
    });
    return all;
}

} // namespace

bool SharedAllreduce::suits(std::size_t count, const NodeGroups& groups) {
    constexpr std::size_t kLeast = 2048;
    return groups.nodes == 1 && groups.places > 1 && groups.places <= NodeGroups::kMostPlaces && count >= kLeast;
}

SharedAllreduce::Layout::Layout(const Elements& elements, std::size_t count, std::size_t ranks)
    : part_elements(
          std::min(std::max(aligned(elements, kMostSliceBytes / elements.bytes() / ranks), kLeastPartElements),
                   aligned(elements, ceil_divide(count, ranks)))),
      slices(ceil_divide(count, part_elements * ranks)),
      bytes(kSlotsBegin + kSlots * ranks * part_elements * elements.bytes()) {}

SharedAllreduce::SharedAllreduce(Transport& channel, SharedMemory& memory, std::shared_ptr<const SharedBuffers> buffers,
                                 const Elements& elements, std::size_t count, unsigned threads)
    : channel_(channel),
      memory_(memory),
      elements_(elements),
      count_(count),
      rank_(static_cast<std::size_t>(channel.rank())),
      ranks_(static_cast<std::size_t>(channel.size())),
      threads_(threads),
      layout_(elements, count_, ranks_),
      counters_(memory, rank_, ranks_),
      shared_operands_(memory, SharedCounters::bytes(kCounters), rank_, ranks_, std::move(buffers),
                       count * elements.bytes()),
      output_stores_(stores_for(count * elements.bytes())),
      stage_{"average through shared memory", [this](Step* step) { return advance(step); }},
      values_(ranks_),
      results_(ranks_) {}

/// The last slice is shorter; its parts are as equally long as those of the other slices.
SharedAllreduce::Part SharedAllreduce::part_of(std::size_t rank, std::size_t slice) const {
    const std::size_t begin = slice * layout_.part_elements * ranks_;
    const std::size_t length = std::min(layout_.part_elements * ranks_, count_ - begin);
    const std::size_t longest = aligned(elements_, ceil_divide(length, ranks_));
    const std::size_t first = std::min(rank * longest, length);
    return {begin + first, std::min(longest, length - first)};
}

void* SharedAllreduce::slot(std::size_t owner, std::size_t reader, std::uint64_t number) const {
    std::byte* const slots = memory_.of(static_cast<int>(owner)) + kSlotsBegin;
    return slots + (number % kSlots * ranks_ + reader) * layout_.part_elements * elements_.bytes();
}

void SharedAllreduce::set_operands(const Operands& operands) {
    operands_ = operands;
    handed_out_ = averaged_ = collected_ = 0;
    begun_ = voted_ = false;
}

Status SharedAllreduce::advance(Step* step) {
    if (!begun_) shared_operands_.begin(operands_.input, operands_.output);
    begun_ = true;
    const bool did =
        shared_operands_.look() && (shared_operands_.all_see() ? average_where_they_lie() : advance_slots());
    *step = did ? Step::kAgain : Step::kWait;
    idle_ = did ? 0 : idle_ + 1;
    if (idle_ % kLooksBetweenMessages == kLooksBetweenMessages - 1) ONEBIT_RETURN_IF_ERROR(channel_.progress());
    bool known = false;
    ONEBIT_RETURN_IF_ERROR(vote(&known));
    if (!finished() || !known) return {};
    end_call();
    *step = Step::kDone;
    return {};
}

/// Where others add up a rank's values, the rank has seen them when all ranks are done.
bool SharedAllreduce::seen() const {
    return averaged_ == layout_.slices && (!shared_operands_.all_see() || all_averaged());
}

bool SharedAllreduce::finished() const {
    return shared_operands_.all_see() ? all_averaged() : collected_ == layout_.slices;
}

void SharedAllreduce::end_call() {
    before_ += layout_.slices;
    for (const Counter counter : {kHandedOut, kCollected}) counters_.tell(counter, before_); // as if by slots
    bytes_sent_ += ring_bytes(count_ * elements_.bytes(), static_cast<int>(ranks_));
    shared_operands_.end();
}

Status SharedAllreduce::vote(bool* known) {
    *known = !looks();
    if (*known || !seen()) return {};
    if (!voted_) {
        const bool doubted = counters_.any_reached(kDoubted, before_ + layout_.slices);
        if (doubted) look_at({0, count_}, false);
        ONEBIT_RETURN_IF_ERROR(operands_.vote->cast());
    }
    voted_ = true;
    return operands_.vote->test(known);
}

void SharedAllreduce::look_at(const Part& part, bool finite) {
    if (!finite && looks()) (void)operands_.vote->doubt(Slice::whole({0, part.begin, part.count}));
}

// ------------------------------------------------------------------------------------- where all values are seen ----

bool SharedAllreduce::average_where_they_lie() {
    if (averaged_ == layout_.slices) return counters_.last_went_on(kAveraged, &least_averaged_);
    const Part part = part_of(rank_, averaged_);
    for (std::size_t r = 0; r < ranks_; ++r) {
        values_[r] = elements_.at(shared_operands_.input(r), part.begin);
        results_[r] = elements_.at(shared_operands_.output(r), part.begin);
    }
    const bool finite = for_each_part(elements_, part.count, threads_,
                                      [&](std::size_t begin, std::size_t length) { return average(begin, length); });
    if (!finite) counters_.tell(kDoubted, before_ + layout_.slices);
    ++averaged_;
    counters_.tell(kAveraged, before_ + averaged_);
    return true;
}

/// Elements of the part that is being averaged. A NaN or an infinity shows in the average, which is in the cache.
bool SharedAllreduce::average(std::size_t begin, std::size_t length) const {
    alignas(64) std::array<float, kMeanElements> room; // for as many elements of any type
    void* const mean = room.data();
    bool finite = true;
    for (std::size_t at = begin; at < begin + length; at += kMeanElements) {
        const std::size_t count = std::min(kMeanElements, begin + length - at);
        elements_.mean(values_.data(), ranks_, at, share(), count, Stores::kCached, mean, output_stores_,
                       elements_.at(results_[0], at));
        for (std::size_t r = 1; r < ranks_; ++r) {
            finite = elements_.copy(mean, count, output_stores_, elements_.at(results_[r], at)) && finite;
        }
    }
    order_stores(output_stores_);
    return finite;
}

// ----------------------------------------------------------------------------------------------- through slots ----

/// Work that others wait for comes first, and no slot waits for long.
bool SharedAllreduce::advance_slots() {
    const bool handed_out = hand_out_next();
    const bool averaged = average_next();
    const bool collected = collect_next();
    return handed_out || averaged || collected;
}

/// Only if the owners have averaged the slots' earlier values.
bool SharedAllreduce::hand_out_next() {
    const std::uint64_t number = before_ + handed_out_;
    if (handed_out_ == layout_.slices) return false;
    if (number >= kSlots && !counters_.all_reached(kAveraged, number - kSlots + 1)) return false;
    for (std::size_t reader = 0; reader < ranks_; ++reader) {
        if (reader == rank_) continue;
        const Part part = part_of(reader, handed_out_);
        const void* const values = elements_.at(operands_.input, part.begin);
        look_at(part, copy(values, part.count, slot_stores_, slot(rank_, reader, number)));
    }
    ++handed_out_;
    counters_.tell(kHandedOut, number + 1);
    return true;
}

/// Only if all have handed out their values, and have collected the slot's earlier average.
bool SharedAllreduce::average_next() {
    const std::uint64_t number = before_ + averaged_;
    if (averaged_ == layout_.slices || !counters_.all_reached(kHandedOut, number + 1)) return false;
    if (number >= kSlots && !counters_.all_reached(kCollected, number - kSlots + 1)) return false;
    const Part part = part_of(rank_, averaged_);
    for (std::size_t r = 0; r < ranks_; ++r) {
        values_[r] = r == rank_ ? elements_.at(operands_.input, part.begin) : slot(r, rank_, number);
    }
    void* const result = slot(rank_, rank_, number);
    void* const output = elements_.at(operands_.output, part.begin);
    const void* const own = values_[rank_];
    const bool finite = for_each_part(elements_, part.count, threads_, [&](std::size_t begin, std::size_t length) {
        const bool good = !looks() || elements_.all_finite(elements_.at(own, begin), length); // also loads a near cache
        elements_.mean(values_.data(), ranks_, begin, share(), length, slot_stores_, elements_.at(result, begin),
                       output_stores_, elements_.at(output, begin));
        order_stores(Stores::kPastCaches); // either may have used them
        return good;
    });
    look_at(part, finite);
    ++averaged_;
    counters_.tell(kAveraged, number + 1);
    return true;
}

bool SharedAllreduce::collect_next() {
    const std::uint64_t number = before_ + collected_;
    if (collected_ == averaged_ || !counters_.all_reached(kAveraged, number + 1)) return false;
    for (std::size_t owner = 0; owner < ranks_; ++owner) {
        if (owner == rank_) continue;
        const Part part = part_of(owner, collected_);
        (void)copy(slot(owner, owner, number), part.count, output_stores_, elements_.at(operands_.output, part.begin));
    }
    ++collected_;
    counters_.tell(kCollected, number + 1);
    return true;
}

/// False if there is a NaN or an infinity among the values.
bool SharedAllreduce::copy(const void* values, std::size_t count, Stores stores, void* to) const {
    return for_each_part(elements_, count, threads_, [&](std::size_t begin, std::size_t length) {
        const bool finite = elements_.copy(elements_.at(values, begin), length, stores, elements_.at(to, begin));
        order_stores(stores);
        return finite;
    });
}

} // namespace onebit
