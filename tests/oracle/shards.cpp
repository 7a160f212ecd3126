// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#include "oracle/shards.hpp"

#include <array>
#include <cmath>

namespace oracle {

namespace {

// Element i is added to lane i % Lanes. Then the upper half of the lanes is added to the lower half, until one lane is
// left.
template <typename Number, std::size_t Lanes, typename Add>
Number sum_in_lanes(const std::vector<Number>& numbers, const Add& add) {
    std::array<Number, Lanes> lanes = {};
    for (std::size_t i = 0; i < numbers.size(); ++i) lanes[i % Lanes] = add(lanes[i % Lanes], numbers[i]);
    for (std::size_t half = Lanes / 2; half > 0; half /= 2)
        for (std::size_t k = 0; k < half; ++k) lanes[k] = add(lanes[k], lanes[k + half]);
    return lanes[0];
}

double add_doubles(double a, double b) {
    return a + b;
}

// The sum of the block's squares, or magnitudes.
double block_sum(Scale scale, const Floats& c, const Range& block) {
    Floats narrow;
    std::vector<double> wide;
    for (std::uint64_t i = block.begin; i < block.end(); ++i) {
        const auto x = static_cast<double>(c[i]);
        narrow.push_back(scale == Scale::l2 ? times(c[i], c[i]) : std::fabs(c[i]));
        wide.push_back(scale == Scale::l2 ? x * x : std::fabs(x));
    }
    const float sum = sum_in_lanes<float, 32>(narrow, plus);
    if (std::isfinite(sum) && sum >= 0x1p-80F) return static_cast<double>(sum);
    return sum_in_lanes<double, 32>(wide, add_doubles);
}

float sign_scale(Scale scale, double sum, std::uint64_t elements) {
    if (elements == 0) return 0;
    const double mean = sum / static_cast<double>(elements);
    return rounded(scale == Scale::l2 ? std::sqrt(mean) : mean);
}

void send_signs(const Floats& c, const Range& range, float scale, Sent& sent) {
    sent.finite = sent.finite && std::isfinite(scale);
    for (std::uint64_t i = range.begin; i < range.end(); ++i) {
        sent.values[i] = c[i] >= 0 ? scale : -scale;
        sent.error[i] = minus(c[i], sent.values[i]);
    }
}

void send_signs(const Coding& coding, const Floats& c, const std::vector<Range>& ranges, Sent& sent) {
    std::vector<double> sums;
    for (const Range& range : ranges) {
        for (const Range& block : blocks_of(range)) {
            sums.push_back(block_sum(coding.scale, c, block));
            if (coding.group == Group::block)
                send_signs(c, block, sign_scale(coding.scale, sums.back(), block.count), sent);
        }
    }
    if (coding.group == Group::block) return;
    const double sum = sum_in_lanes<double, 256>(sums, add_doubles);
    send_signs(c, {0, c.size()}, sign_scale(coding.scale, sum, c.size()), sent);
}

Floats part_of(const Floats& whole, const Range& range) {
    const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(range.begin);
    return {begin, begin + static_cast<std::ptrdiff_t>(range.count)};
}

void put(const Floats& part, std::uint64_t at, Floats& whole) {
    for (std::size_t k = 0; k < part.size(); ++k) whole[at + k] = part[k];
}

} // namespace

Sent send(const Coding& coding, const Floats& values, const Floats& error, const std::vector<Range>& ranges,
          std::uint64_t call) {
    Floats c(values.size());
    for (std::size_t i = 0; i < c.size(); ++i) c[i] = plus(values[i], error[i]);
    Sent sent{Floats(c.size()), Floats(c.size()), true, std::vector<bool>(c.size(), true)};
    if (coding.codec == 0) {
        send_signs(coding, c, ranges, sent);
        return sent;
    }
    const auto code = static_cast<Code>(coding.codec);
    for (const Range& range : ranges) {
        const Encoded encoded = encode(code, part_of(c, range), {}, call);
        put(decode(code, encoded.words, range.count, 1.0F), range.begin, sent.values);
        put(encoded.error, range.begin, sent.error);
        const std::vector<bool> parts = elements_sent(code, encoded.words, range.count);
        std::copy(parts.begin(), parts.end(), sent.sent.begin() + static_cast<std::ptrdiff_t>(range.begin));
        sent.finite = sent.finite && encoded.finite;
    }
    return sent;
}

std::vector<Range> shards_of(const std::vector<std::uint64_t>& counts) {
    std::vector<Range> shards;
    std::uint64_t begin = 0;
    for (const std::uint64_t count : counts) {
        shards.push_back({begin, count});
        begin += count;
    }
    return shards;
}

ReduceScatter::ReduceScatter(const std::vector<std::uint64_t>& counts, Coding coding, Op op)
    : shards_(shards_of(counts)),
      coding_(coding),
      share_(op == Op::sum ? 1.0F : divided(1.0F, static_cast<float>(counts.size()))) {
    errors.assign(counts.size(), Floats(shards_.back().end(), 0.0F));
    for (const Range& shard : shards_) results.emplace_back(shard.count, 0.0F);
}

void ReduceScatter::step(const FloatsPerRank& inputs) {
    std::vector<Sent> sent;
    const FloatsPerRank before = errors;
    finite = true;
    for (std::size_t r = 0; r < inputs.size(); ++r) {
        sent.push_back(send(coding_, inputs[r], errors[r], shards_, call));
        finite = finite && sent.back().finite;
    }
    for (std::size_t r = 0; r < inputs.size(); ++r) {
        if (finite)
            errors[r] = sent[r].error;
        else if (all_begin_again || !sent[r].finite)
            errors[r].assign(errors[r].size(), 0.0F);
    }
    sums_finite = true;
    if (!finite) return;
    for (std::size_t j = 0; j < shards_.size(); ++j) {
        for (std::uint64_t k = 0; k < shards_[j].count; ++k) {
            const std::uint64_t i = shards_[j].begin + k;
            float sum = 0;
            for (const Sent& message : sent)
                if (message.sent[i]) sum = plus(sum, times(message.values[i], share_));
            results[j][k] = sum;
            sums_finite = sums_finite && std::isfinite(sum);
        }
    }
    finite = sums_finite;
    if (finite) ++call;
    if (finite) return;
    errors = before;
    if (!all_begin_again) return;
    for (Floats& error : errors) error.assign(error.size(), 0.0F);
}

AllGather::AllGather(const std::vector<std::uint64_t>& counts, Coding coding, Op /*op*/) : coding_(coding) {
    for (const std::uint64_t count : counts) errors.emplace_back(count, 0.0F);
}

void AllGather::step(const FloatsPerRank& inputs) {
    result.clear();
    finite = true;
    for (std::size_t r = 0; r < inputs.size(); ++r) {
        const Sent sent = send(coding_, inputs[r], errors[r], {{0, inputs[r].size()}}, call);
        finite = finite && sent.finite;
        errors[r] = sent.error;
        result.insert(result.end(), sent.values.begin(), sent.values.end());
    }
    if (finite) ++call;
    if (finite) return;
    for (Floats& error : errors) error.assign(error.size(), 0.0F);
}

} // namespace oracle
