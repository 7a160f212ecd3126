// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/sums/halving_doubling.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "numeric/mean.hpp"

namespace onebit {

HalvingDoubling::HalvingDoubling(std::unique_ptr<Arithmetic> arithmetic, std::size_t count, int ranks)
    : arithmetic_(std::move(arithmetic)),
      count_(count),
      ranks_(ranks),
      chunks_(partition(count, std::bit_floor(static_cast<std::size_t>(ranks)))),
      sum_(count, arithmetic_->memory()),
      incoming_(ranks == 1 ? 0 : count, arithmetic_->memory()) {}

HalvingDoubling::Way HalvingDoubling::quicker_way(std::size_t count, std::size_t ranks) {
    constexpr std::size_t kMostBytes = 131072; // that a rank sends in all
    const auto messages = static_cast<std::size_t>(std::bit_width(ranks - 1));
    const bool alone = messages <= 1 || count * sizeof(float) * messages <= kMostBytes; // two ranks send no more bytes
    return alone ? Way::kDoublingAlone : Way::kHalving;
}

bool HalvingDoubling::suits(std::size_t count, std::size_t ranks) {
    constexpr std::size_t kLeastChunk = 4096;
    return count <= std::max(kFew, kLeastChunk * ranks);
}

Status HalvingDoubling::create(Transport& transport, std::unique_ptr<Arithmetic> arithmetic, std::size_t count, Way way,
                               int tag, std::unique_ptr<Algorithm>* algorithm) {
    std::unique_ptr<HalvingDoubling> made(new HalvingDoubling(std::move(arithmetic), count, transport.size()));
    HalvingDoubling& self = *made;
    self.stages_.push_back({"copy", [&self](Step* step) { return self.copy(step); }});
    ONEBIT_RETURN_IF_ERROR(self.plan_pair(transport, way, tag));
    self.stages_.push_back({"look at the sum", [&self](Step* step) { return self.look_at_sum(step); }});
    self.stages_.push_back({"await votes", [&self](Step* step) { return self.await_votes(step); }});
    self.stages_.push_back({"divide", [&self](Step* step) { return self.divide(step); }});
    *algorithm = std::move(made);
    return {};
}

Status HalvingDoubling::copy(Step* step) {
    *step = Step::kDone;
    if (operands_.input == nullptr) {
        std::fill_n(sum_.data(), count_, std::numeric_limits<float>::quiet_NaN());
    } else {
        const float before = operands_.sum_only ? 1.0F : Averaging(ranks_).before;
        arithmetic_->multiply(operands_.float_input(), before, count_, sum_.data());
    }
    return {};
}

/// Plans the steps before and after those of a power of two ranks.
Status HalvingDoubling::plan_pair(Transport& transport, Way way, int tag) {
    const int rank = transport.rank();
    const bool paired = rank < 2 * (ranks_ - static_cast<int>(chunks_.size()));
    const bool hands_over = paired && rank % 2 == 1;
    const Range all = {0, count_};
    if (hands_over) {
        ONEBIT_RETURN_IF_ERROR(plan_swap(transport, rank - 1, all, {}, nullptr, tag));
        add_swap_stages("hand over", *exchanges_.back());
        ONEBIT_RETURN_IF_ERROR(plan_swap(transport, rank - 1, {}, all, sum_.data(), tag + 1));
        add_swap_stages("receive the sum", *exchanges_.back());
        return {};
    }
    if (paired) {
        ONEBIT_RETURN_IF_ERROR(plan_swap(transport, rank + 1, {}, all, incoming_.data(), tag));
        add_swap_stages("take over", *exchanges_.back());
        add_sum_stage(all);
    }
    ONEBIT_RETURN_IF_ERROR(way == Way::kHalving ? plan_halving_and_doubling(transport, tag + 2)
                                                : plan_doubling_alone(transport, tag + 2));
    if (paired) {
        ONEBIT_RETURN_IF_ERROR(plan_swap(transport, rank + 1, all, {}, nullptr, tag + 1));
        add_swap_stages("send the sum", *exchanges_.back());
    }
    return {};
}

HalvingDoubling::Participants HalvingDoubling::participants(const Transport& transport) const {
    const std::size_t pairs = static_cast<std::size_t>(ranks_) - chunks_.size();
    const auto rank = static_cast<std::size_t>(transport.rank());
    return {pairs, rank < 2 * pairs ? rank / 2 : rank - pairs};
}

Status HalvingDoubling::plan_doubling_alone(Transport& transport, int tag) {
    const Participants all = participants(transport);
    const Range whole = {0, count_};
    for (std::size_t distance = 1; distance < chunks_.size(); distance *= 2) {
        ONEBIT_RETURN_IF_ERROR(
            plan_swap(transport, all.real_rank(all.self ^ distance), whole, whole, incoming_.data(), tag++));
        add_swap_stages("double", *exchanges_.back());
        add_sum_stage(whole);
    }
    return {};
}

Status HalvingDoubling::plan_halving_and_doubling(Transport& transport, int tag) {
    const Participants all = participants(transport);
    struct Halving {
        int peer;
        Range kept, given;
    };
    std::vector<Halving> halvings;
    std::size_t first = 0;
    std::size_t end = chunks_.size();
    for (std::size_t distance = end / 2; distance > 0; distance /= 2) {
        const std::size_t middle = first + distance;
        const bool keeps_lower = (all.self & distance) == 0;
        const Range lower = range_of(first, middle);
        const Range upper = range_of(middle, end);
        halvings.push_back(
            {all.real_rank(all.self ^ distance), keeps_lower ? lower : upper, keeps_lower ? upper : lower});
        (keeps_lower ? end : first) = middle;
    }
    int next_tag = tag;
    for (const Halving& h : halvings) {
        ONEBIT_RETURN_IF_ERROR(plan_swap(transport, h.peer, h.given, h.kept, incoming_.data(), next_tag++));
        add_swap_stages("halve", *exchanges_.back());
        add_sum_stage(h.kept);
    }
    for (auto h = halvings.rbegin(); h != halvings.rend(); ++h) {
        ONEBIT_RETURN_IF_ERROR(
            plan_swap(transport, h->peer, h->kept, h->given, sum_.data() + h->given.begin, next_tag++));
        add_swap_stages("double", *exchanges_.back());
    }
    return {};
}

HalvingDoubling::Range HalvingDoubling::range_of(std::size_t first, std::size_t end) const {
    const std::size_t begin = chunks_[first].begin;
    return {begin, chunks_[end - 1].begin + chunks_[end - 1].count - begin};
}

Status HalvingDoubling::plan_swap(Transport& transport, int peer, Range sent, Range received, float* to, int tag) {
    const bool on_device = &arithmetic_->memory() != &host_memory();
    const Part send = {peer, sum_.data() + sent.begin, sent.count * sizeof(float), on_device};
    const Part receive = {peer, to, received.count * sizeof(float), on_device};
    return transport.plan_exchange({send}, {receive}, tag, &exchanges_.emplace_back());
}

void HalvingDoubling::add_swap_stages(const char* name, Exchange& exchange) {
    stages_.push_back(start_stage(name, exchange));
    stages_.push_back(wait_stage(name, exchange));
}

void HalvingDoubling::add_sum_stage(Range range) {
    stages_.push_back({"add", [this, range](Step* step) {
                           *step = Step::kDone;
                           arithmetic_->add(incoming_.data(), range.count, sum_.data() + range.begin);
                           return arithmetic_->failure();
                       }});
}

Status HalvingDoubling::look_at_sum(Step* step) {
    *step = Step::kDone;
    Vote* const vote = operands_.vote;
    doubted_ = vote != nullptr && !all_finite(sum_.data(), count_);
    if (!doubted_) return {};
    (void)vote->doubt(Slice::whole({0, 0, count_}));
    return vote->cast();
}

Status HalvingDoubling::await_votes(Step* step) {
    bool known = true;
    if (doubted_) ONEBIT_RETURN_IF_ERROR(operands_.vote->test(&known));
    *step = known ? Step::kDone : Step::kWait;
    return {};
}

Status HalvingDoubling::divide(Step* step) {
    *step = Step::kDone;
    if (doubted_ && !operands_.vote->verdict().ok()) return {};
    const float after = operands_.sum_only ? 1.0F : Averaging(ranks_).after;
    arithmetic_->multiply(sum_.data(), after, count_, operands_.float_output());
    return arithmetic_->failure();
}

} // namespace onebit
