// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/halving_doubling.hpp"

#include <bit>
#include <utility>

namespace onebit {

HalvingDoubling::HalvingDoubling(std::unique_ptr<Arithmetic> arithmetic, std::size_t count, int ranks)
    : arithmetic_(std::move(arithmetic)),
      count_(count),
      ranks_(ranks),
      chunks_(partition(count, std::bit_floor(static_cast<std::size_t>(ranks)))),
      sum_(count, arithmetic_->memory()),
      incoming_(ranks == 1 ? 0 : count, arithmetic_->memory()) {}

Status HalvingDoubling::create(Transport& transport, std::unique_ptr<Arithmetic> arithmetic, std::size_t count, int tag,
                               std::unique_ptr<Algorithm>* algorithm) {
    std::unique_ptr<HalvingDoubling> made(new HalvingDoubling(std::move(arithmetic), count, transport.size()));
    HalvingDoubling& self = *made;
    self.stages_.push_back({"copy", [&self](Step* step) {
                                *step = Step::kDone;
                                self.arithmetic_->multiply(self.operands_.input, 1, self.count_, self.sum_.data());
                                return Status();
                            }});
    ONEBIT_RETURN_IF_ERROR(self.plan_pair(transport, tag));
    self.stages_.push_back({"divide", [&self](Step* step) {
                                *step = Step::kDone;
                                const float share =
                                    self.operands_.sum_only ? 1.0F : 1.0F / static_cast<float>(self.ranks_);
                                self.arithmetic_->multiply(self.sum_.data(), share, self.count_, self.operands_.output);
                                return self.arithmetic_->failure();
                            }});
    *algorithm = std::move(made);
    return {};
}

/// What comes before and after the ranks are a power of two.
Status HalvingDoubling::plan_pair(Transport& transport, int tag) {
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
    ONEBIT_RETURN_IF_ERROR(plan_halving_and_doubling(transport, tag + 2));
    if (paired) {
        ONEBIT_RETURN_IF_ERROR(plan_swap(transport, rank + 1, all, {}, nullptr, tag + 1));
        add_swap_stages("send the sum", *exchanges_.back());
    }
    return {};
}

/// Between the ranks that take part, which are numbered anew: the first of each pair, and all that are in none.
Status HalvingDoubling::plan_halving_and_doubling(Transport& transport, int tag) {
    const std::size_t p = chunks_.size();
    const std::size_t pairs = static_cast<std::size_t>(ranks_) - p;
    const auto real_rank = [pairs](std::size_t q) { return static_cast<int>(q < pairs ? 2 * q : q + pairs); };
    const auto rank = static_cast<std::size_t>(transport.rank());
    const std::size_t self = rank < 2 * pairs ? rank / 2 : rank - pairs;

    struct Halving {
        int peer;
        Range kept, given;
    };
    std::vector<Halving> halvings;
    std::size_t first = 0;
    std::size_t end = p;
    for (std::size_t distance = p / 2; distance > 0; distance /= 2) {
        const std::size_t middle = first + distance;
        const bool keeps_lower = (self & distance) == 0;
        const Range lower = range_of(first, middle);
        const Range upper = range_of(middle, end);
        halvings.push_back({real_rank(self ^ distance), keeps_lower ? lower : upper, keeps_lower ? upper : lower});
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

} // namespace onebit
