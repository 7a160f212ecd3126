// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#include "oracle/levels.hpp"

#include <algorithm>

namespace oracle {

namespace {

std::vector<std::uint64_t> counts_of(std::uint64_t count, std::size_t ranks) {
    std::vector<std::uint64_t> counts;
    for (const Range& range : partition(count, static_cast<int>(ranks))) counts.push_back(range.count);
    return counts;
}

} // namespace

Levels::Levels(std::uint64_t count, int ranks, std::vector<Level> levels, Coding across, Op op)
    : count_(count), op_(op), ranks_(static_cast<std::size_t>(ranks)) {
    for (Rank& rank : ranks_) rank.parts = {{0, count}};
    for (std::size_t l = 0; l < levels.size(); ++l) make_level(l, &levels[l].colors, levels[l].coding, op);
    make_level(levels.size(), nullptr, across, op);
    for (auto& [name, exchange] : exchanges_.back()) {
        const Range part = ranks_[static_cast<std::size_t>(exchange.members[0])].parts.back();
        // The second encoding is of the resulting average or sum.
        exchange.gather.emplace(counts_of(part.count, exchange.members.size()), across);
    }
}

// Ranks with the same path through the lower levels and the same color exchange here; without colors: the same path.
void Levels::make_level(std::size_t level, const std::vector<int>* colors, const std::optional<Coding>& coding, Op op) {
    auto& exchanges = exchanges_.emplace_back();
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
        std::string name = colors == nullptr ? "" : "group " + std::to_string((*colors)[r]);
        for (const std::size_t place : ranks_[r].places) name += " place " + std::to_string(place);
        Exchange& exchange = exchanges[name];
        ranks_[r].places.push_back(exchange.members.size());
        ranks_[r].exchanges.push_back(name);
        exchange.members.push_back(static_cast<int>(r));
    }
    for (auto& [name, exchange] : exchanges) {
        const Range part = ranks_[static_cast<std::size_t>(exchange.members[0])].parts[level];
        const std::vector<std::uint64_t> counts = counts_of(part.count, exchange.members.size());
        if (coding) exchange.reduce.emplace(counts, *coding, op);
        if (colors == nullptr) continue;
        const std::vector<Range> shards = shards_of(counts);
        for (std::size_t place = 0; place < shards.size(); ++place) {
            Rank& rank = ranks_[static_cast<std::size_t>(exchange.members[place])];
            rank.parts.push_back({part.begin + shards[place].begin, shards[place].count});
        }
    }
}

const Floats& Levels::step(const FloatsPerRank& inputs) {
    FloatsPerRank values = inputs;
    result.assign(count_, 0.0F);
    for (std::size_t l = 0; l < exchanges_.size(); ++l) {
        for (auto& [name, exchange] : exchanges_[l]) {
            FloatsPerRank brought;
            for (const int member : exchange.members) brought.push_back(values[static_cast<std::size_t>(member)]);
            const Range part = ranks_[static_cast<std::size_t>(exchange.members[0])].parts[l];
            const std::vector<Range> shards = shards_of(counts_of(part.count, exchange.members.size()));
            FloatsPerRank shares;
            if (exchange.reduce) {
                exchange.reduce->step(brought);
                for (std::size_t m = 0; m < brought.size(); ++m) shares.push_back(exchange.reduce->output(m));
            } else {
                const Floats average = exact(brought, op_);
                for (const Range& shard : shards) {
                    const auto first = average.begin() + static_cast<std::ptrdiff_t>(shard.begin);
                    shares.emplace_back(first, first + static_cast<std::ptrdiff_t>(shard.count));
                }
            }
            if (exchange.gather) {
                exchange.gather->step(shares);
                const Floats& whole = exchange.gather->output(0);
                std::copy(whole.begin(), whole.end(), result.begin() + static_cast<std::ptrdiff_t>(part.begin));
            } else {
                for (std::size_t m = 0; m < shares.size(); ++m)
                    values[static_cast<std::size_t>(exchange.members[m])] = shares[m];
            }
        }
    }
    return result;
}

Floats Levels::error(std::size_t level, int rank) const {
    const Rank& of = ranks_[static_cast<std::size_t>(rank)];
    const Exchange& exchange = exchanges_[level].at(of.exchanges[level]);
    return exchange.reduce ? exchange.reduce->errors[of.places[level]] : Floats(of.parts[level].count, 0.0F);
}

Range Levels::served(int rank) const {
    const Rank& of = ranks_[static_cast<std::size_t>(rank)];
    const Exchange& exchange = exchanges_.back().at(of.exchanges.back());
    const Range part = of.parts.back();
    const Range chunk = partition(part.count, static_cast<int>(exchange.members.size()))[of.places.back()];
    return {part.begin + chunk.begin, chunk.count};
}

Floats Levels::server_error(int rank) const {
    const Rank& of = ranks_[static_cast<std::size_t>(rank)];
    return exchanges_.back().at(of.exchanges.back()).gather->errors[of.places.back()];
}

} // namespace oracle
