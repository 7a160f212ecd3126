// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#include "oracle/oracle.hpp"

#include <algorithm>
#include <cmath>

namespace oracle {

std::vector<Range> partition(std::uint64_t count, int ranks) {
    const std::uint64_t words = (count + word_elements - 1) / word_elements;
    const std::uint64_t n = static_cast<std::uint64_t>(ranks);
    std::vector<Range> chunks;
    std::uint64_t word = 0;
    for (std::uint64_t j = 0; j < n; ++j) {
        const std::uint64_t next = word + words / n + (j < words % n ? 1 : 0);
        const std::uint64_t begin = std::min(count, word * word_elements);
        const std::uint64_t end = std::min(count, next * word_elements);
        chunks.push_back({begin, end - begin});
        word = next;
    }
    return chunks;
}

std::vector<Range> blocks_of(Range range) {
    std::vector<Range> blocks;
    for (std::uint64_t begin = range.begin; begin < range.end(); begin += block_elements)
        blocks.push_back({begin, std::min(block_elements, range.end() - begin)});
    return blocks;
}

Vector part_of(const Vector& whole, Range range) {
    const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(range.begin);
    return {begin, begin + static_cast<std::ptrdiff_t>(range.count)};
}

int sign_of(double x) {
    return x >= 0 ? 1 : -1;
}

std::int64_t first_implausible_sign(const Signs& given, const Vector& c, const Vector& tolerance) {
    for (std::size_t i = 0; i < c.size(); ++i)
        if (given[i] != sign_of(c[i]) && std::fabs(c[i]) > tolerance[i]) return static_cast<std::int64_t>(i);
    return -1;
}

FlatAllreduce::FlatAllreduce(std::uint64_t count, int ranks, Scale scale, Group group, Op op)
    : worker_error(static_cast<std::size_t>(ranks), Vector(count, 0.0)),
      server_error(count, 0.0),
      worker_c(worker_error),
      worker_scale(worker_error),
      server_c(count, 0.0),
      server_scale(count, 0.0),
      result(count, 0.0),
      count_(count),
      ranks_(ranks),
      scale_(scale),
      group_(group),
      op_(op),
      chunks_(partition(count, ranks)) {}

void FlatAllreduce::reset() {
    for (Vector& error : worker_error) error.assign(count_, 0.0);
    server_error.assign(count_, 0.0);
}

void FlatAllreduce::set_mask(const std::vector<bool>& mask) {
    mask_ = mask;
    for (std::uint64_t i = 0; i < count_; ++i) {
        if (takes_part(i)) continue;
        for (Vector& error : worker_error) error[i] = 0;
        server_error[i] = 0;
    }
}

double FlatAllreduce::scale_of(const Vector& c, const std::vector<Range>& ranges) const {
    double sum = 0;
    std::uint64_t members = 0;
    for (const Range& range : ranges) {
        for (std::uint64_t i = range.begin; i < range.end(); ++i) {
            if (!takes_part(i)) continue;
            sum += scale_ == Scale::l2 ? c[i] * c[i] : std::fabs(c[i]);
            ++members;
        }
    }
    if (members == 0) return 0;
    const double mean = sum / static_cast<double>(members);
    return scale_ == Scale::l2 ? std::sqrt(mean) : mean;
}

// A group is a list of ranges, because with `tensor` the worker's only group spans all chunks.
std::vector<std::vector<Range>> FlatAllreduce::worker_groups() const {
    std::vector<std::vector<Range>> groups;
    if (group_ == Group::tensor) groups.push_back({{0, count_}});
    if (group_ == Group::block) {
        for (const Range& chunk : chunks_)
            for (const Range& block : blocks_of(chunk)) groups.push_back({block});
    }
    return groups;
}

std::vector<std::vector<Range>> FlatAllreduce::server_groups() const {
    if (group_ == Group::block) return worker_groups();
    std::vector<std::vector<Range>> groups;
    for (const Range& chunk : chunks_) groups.push_back({chunk});
    return groups;
}

void FlatAllreduce::compress(const std::vector<std::vector<Range>>& groups, const Vector& c, const Signs& signs,
                             Vector& scale, Vector& value, Vector& error) const {
    for (const std::vector<Range>& ranges : groups) {
        const double s = scale_of(c, ranges);
        for (const Range& range : ranges) {
            for (std::uint64_t i = range.begin; i < range.end(); ++i) {
                scale[i] = s;
                value[i] = takes_part(i) ? s * signs[i] : 0;
                error[i] = takes_part(i) ? c[i] - value[i] : 0;
            }
        }
    }
}

void FlatAllreduce::take_over(const Vector& c, const Vector& left, Vector& scale, Vector& value, Vector& error) const {
    for (const Range& chunk : chunks_) {
        for (std::uint64_t first = chunk.begin; first < chunk.end(); first += 256) {
            const std::uint64_t end = std::min(first + 256, chunk.end());
            double largest = 0;
            for (std::uint64_t i = first; i < end; ++i) largest = std::max(largest, std::fabs(c[i]));
            for (std::uint64_t i = first; i < end; ++i) {
                scale[i] = largest;
                error[i] = takes_part(i) ? left[i] : 0;
                value[i] = takes_part(i) ? c[i] - left[i] : 0;
                const double rounding = std::max(1e-7 * largest, 3e-7 * std::fabs(c[i]));
                if (std::fabs(value[i]) <= rounding) value[i] = 0; // nothing was sent
            }
        }
    }
}

void FlatAllreduce::step(const PerRank& inputs) {
    step(inputs, {}, {});
}

void FlatAllreduce::follow(const PerRank& worker_errors_left, const Vector& server_errors_left) {
    worker_left_ = worker_errors_left;
    server_left_ = server_errors_left;
}

namespace {

Signs signs_of(const Vector& c, const Vector& left) {
    Signs signs;
    for (std::size_t i = 0; i < c.size(); ++i) {
        const double sent = left.empty() ? c[i] : c[i] - left[i];
        signs.push_back(sign_of(sent));
    }
    return signs;
}

} // namespace

void FlatAllreduce::step(const PerRank& inputs, const std::vector<Signs>& given_worker, const Signs& given_server) {
    PerRank sent(static_cast<std::size_t>(ranks_), Vector(count_, 0.0));
    worker_signs = given_worker;
    worker_signs.resize(sent.size());
    for (std::size_t r = 0; r < sent.size(); ++r) {
        for (std::uint64_t i = 0; i < count_; ++i)
            worker_c[r][i] = takes_part(i) ? inputs[r][i] + worker_error[r][i] : 0;
        if (given_worker.empty())
            worker_signs[r] = signs_of(worker_c[r], worker_left_.empty() ? Vector{} : worker_left_[r]);
        if (scale_ == Scale::followed)
            take_over(worker_c[r], worker_left_.at(r), worker_scale[r], sent[r], worker_error[r]);
        else
            compress(worker_groups(), worker_c[r], worker_signs[r], worker_scale[r], sent[r], worker_error[r]);
    }
    for (std::uint64_t i = 0; i < count_; ++i) {
        double sum = 0;
        for (const Vector& values : sent) sum += values[i];
        server_c[i] = takes_part(i) ? sum / divisor() + server_error[i] : 0;
    }
    server_signs = given_server.empty() ? signs_of(server_c, server_left_) : given_server;
    if (scale_ == Scale::followed)
        take_over(server_c, server_left_, server_scale, result, server_error);
    else
        compress(server_groups(), server_c, server_signs, server_scale, result, server_error);
    follow({}, {});
}

TwoLevelAllreduce::TwoLevelAllreduce(std::uint64_t count, int nodes, int places, Scale scale, Group group)
    : result(count, 0.0), nodes_(nodes), places_(places), shards_(partition(count, places)) {
    for (const Range& shard : shards_) levels.emplace_back(shard.count, nodes, scale, group);
}

void TwoLevelAllreduce::set_mask(const std::vector<bool>& mask) {
    for (std::size_t place = 0; place < shards_.size(); ++place) {
        const auto begin = mask.begin() + static_cast<std::ptrdiff_t>(shards_[place].begin);
        levels[place].set_mask({begin, begin + static_cast<std::ptrdiff_t>(shards_[place].count)});
    }
}

void TwoLevelAllreduce::reset() {
    for (FlatAllreduce& level : levels) level.reset();
}

void TwoLevelAllreduce::step(const PerRank& inputs) {
    PerRank averages(static_cast<std::size_t>(nodes_), Vector(count(), 0.0));
    for (int rank = 0; rank < ranks(); ++rank)
        for (std::uint64_t i = 0; i < count(); ++i)
            averages[node_of(rank)][i] += inputs[static_cast<std::size_t>(rank)][i] / places_;
    for (std::size_t place = 0; place < shards_.size(); ++place) {
        PerRank parts;
        for (const Vector& average : averages) parts.push_back(part_of(average, shards_[place]));
        levels[place].step(parts);
        std::copy(levels[place].result.begin(), levels[place].result.end(),
                  result.begin() + static_cast<std::ptrdiff_t>(shards_[place].begin));
    }
}

void TwoLevelAllreduce::follow(const PerRank& worker_errors_left, const Vector& server_errors_left) {
    std::vector<PerRank> left(shards_.size()); // [place][node]
    for (int rank = 0; rank < ranks(); ++rank)
        left[place_of(rank)].push_back(part_of(worker_errors_left[static_cast<std::size_t>(rank)], shard(rank)));
    for (std::size_t place = 0; place < shards_.size(); ++place)
        levels[place].follow(left[place], part_of(server_errors_left, shards_[place]));
}

bool TwoLevelAllreduce::takes_part(std::uint64_t i) const {
    for (std::size_t place = 0; place < shards_.size(); ++place)
        if (i < shards_[place].end()) return levels[place].takes_part(i - shards_[place].begin);
    return false;
}

Range TwoLevelAllreduce::chunk(int rank) const {
    const Range chunk = levels[place_of(rank)].chunks()[node_of(rank)];
    return {shard(rank).begin + chunk.begin, chunk.count};
}

Vector TwoLevelAllreduce::worker_error(int rank) const {
    const Vector& own = levels[place_of(rank)].worker_error[node_of(rank)];
    Vector error(count(), 0.0);
    std::copy(own.begin(), own.end(), error.begin() + static_cast<std::ptrdiff_t>(shard(rank).begin));
    return error;
}

Vector TwoLevelAllreduce::server_error(int rank) const {
    const Vector& all = levels[place_of(rank)].server_error;
    const Range served = chunk(rank);
    Vector error(count(), 0.0);
    for (std::uint64_t i = served.begin; i < served.end(); ++i) error[i] = all[i - shard(rank).begin];
    return error;
}

} // namespace oracle
