// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/sums/direct_sum.hpp"

#include <algorithm>
#include <utility>

namespace onebit {

DirectSum::DirectSum(std::vector<SumLevel> levels, std::unique_ptr<Arithmetic> arithmetic, float* values,
                     std::size_t count)
    : levels_(std::move(levels)),
      arithmetic_(std::move(arithmetic)),
      values_(values),
      chunks_(partition(count, levels_.front().members() * levels_.front().chunks)),
      incoming_(most_incoming(), arithmetic_->memory()),
      to_be_added_(levels_.size()),
      up_(levels_.size()),
      down_(levels_.size()) {
    for (std::size_t l = 0; l < levels_.size(); ++l) {
        const SumLevel& level = levels_[l];
        const std::span<float> own = part_of(level, level.own);
        for (std::size_t m = 0; m < level.members(); ++m) {
            float* const others = incoming_.data() + level.among_others(m) * own.size();
            to_be_added_[l].push_back(m == level.own ? own.data() : others);
        }
    }
}

std::span<float> DirectSum::part_of(const SumLevel& level, std::size_t member) const {
    const Chunk& first = chunks_[level.begin_of(member)];
    const Chunk& last = chunks_[level.begin_of(member) + level.chunks - 1];
    return {values_ + first.begin, last.begin + last.count - first.begin};
}

std::size_t DirectSum::most_incoming() const {
    std::size_t most = 0;
    for (const SumLevel& level : levels_)
        most = std::max(most, (level.members() - 1) * part_of(level, level.own).size());
    return most;
}

Status DirectSum::create(Transport& transport, std::vector<SumLevel> levels, std::unique_ptr<Arithmetic> arithmetic,
                         float* values, std::size_t count, int tag, std::unique_ptr<DirectSum>* algorithm) {
    std::unique_ptr<DirectSum> made(new DirectSum(std::move(levels), std::move(arithmetic), values, count));
    DirectSum* const sum = made.get();
    std::vector<Stage>& stages = sum->stages_;
    const std::size_t number = sum->chunks_.size() == 1 ? 0 : sum->levels_.size(); // one rank's values are the sum
    for (std::size_t l = 0; l < number; ++l) {
        ONEBIT_RETURN_IF_ERROR(sum->plan_level(transport, l, tag + 2 * static_cast<int>(l)));
        stages.push_back(start_stage("send parts", *sum->up_[l]));
        stages.push_back(wait_stage("receive parts", *sum->up_[l]));
        stages.push_back({"add", [sum, l](Step* step) {
                              *step = Step::kDone;
                              return sum->add(l);
                          }});
    }
    for (std::size_t l = number; l-- > 0;) {
        stages.push_back(start_stage("send sum", *sum->down_[l]));
        stages.push_back(wait_stage("receive sums", *sum->down_[l]));
    }
    *algorithm = std::move(made);
    return {};
}

Status DirectSum::plan_level(Transport& transport, std::size_t number, int tag) {
    const bool on_device = &arithmetic_->memory() != &host_memory();
    const SumLevel& level = levels_[number];
    const std::span<float> own = part_of(level, level.own);
    std::vector<Part> send_parts, receive_parts, send_sum, receive_sums;
    for (std::size_t m = 0; m < level.members(); ++m) {
        if (m == level.own) continue;
        const int peer = level.ranks[m];
        const std::span<float> part = part_of(level, m);
        send_parts.push_back({peer, part.data(), part.size_bytes(), on_device});
        receive_parts.push_back({peer, to_be_added_[number][m], own.size_bytes(), on_device});
        send_sum.push_back({peer, own.data(), own.size_bytes(), on_device});
        receive_sums.push_back({peer, part.data(), part.size_bytes(), on_device});
    }
    ONEBIT_RETURN_IF_ERROR(transport.plan_exchange(std::move(send_parts), std::move(receive_parts), tag, &up_[number]));
    return transport.plan_exchange(std::move(send_sum), std::move(receive_sums), tag + 1, &down_[number]);
}

Status DirectSum::add(std::size_t number) {
    const std::span<float> own = part_of(levels_[number], levels_[number].own);
    arithmetic_->sum(to_be_added_[number], 1, own.size(), own.data());
    return arithmetic_->failure();
}

} // namespace onebit
