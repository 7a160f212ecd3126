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

int sign_of(double x) {
    return x >= 0 ? 1 : -1;
}

std::int64_t first_implausible_sign(const Signs& given, const Vector& c, const Vector& tolerance) {
    for (std::size_t i = 0; i < c.size(); ++i)
        if (given[i] != sign_of(c[i]) && std::fabs(c[i]) > tolerance[i]) return static_cast<std::int64_t>(i);
    return -1;
}

FlatAllreduce::FlatAllreduce(std::uint64_t count, int ranks, Scale scale, Group group)
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
      chunks_(partition(count, ranks)) {}

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

// A group is a list of ranges, because the worker's one group in `tensor` spans all the chunks.
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

void FlatAllreduce::compress(const std::vector<std::vector<Range>>& groups, const Vector& c, const Signs& given,
                             Vector& scale, Vector& value, Vector& error) const {
    for (const std::vector<Range>& ranges : groups) {
        const double s = scale_of(c, ranges);
        for (const Range& range : ranges) {
            for (std::uint64_t i = range.begin; i < range.end(); ++i) {
                const int sign = given.empty() ? sign_of(c[i]) : given[i];
                scale[i] = s;
                value[i] = takes_part(i) ? s * sign : 0;
                error[i] = takes_part(i) ? c[i] - value[i] : 0;
            }
        }
    }
}

void FlatAllreduce::step(const PerRank& inputs) {
    step(inputs, {}, {});
}

void FlatAllreduce::step(const PerRank& inputs, const std::vector<Signs>& worker_signs, const Signs& server_signs) {
    PerRank sent(static_cast<std::size_t>(ranks_), Vector(count_, 0.0));
    for (std::size_t r = 0; r < sent.size(); ++r) {
        for (std::uint64_t i = 0; i < count_; ++i)
            worker_c[r][i] = takes_part(i) ? inputs[r][i] + worker_error[r][i] : 0;
        compress(worker_groups(), worker_c[r], worker_signs.empty() ? Signs{} : worker_signs[r], worker_scale[r],
                 sent[r], worker_error[r]);
    }
    for (std::uint64_t i = 0; i < count_; ++i) {
        double sum = 0;
        for (const Vector& values : sent) sum += values[i];
        server_c[i] = takes_part(i) ? sum / ranks_ + server_error[i] : 0;
    }
    compress(server_groups(), server_c, server_signs, server_scale, result, server_error);
}

Adam::Adam(const AdamConfig& config_in, const Vector& parameters)
    : config(config_in), x(parameters), m(parameters.size(), 0.0), v(parameters.size(), 0.0) {}

namespace {

// The two corrections' divisors: 1 where there is no correction.
double divisor(bool corrected, double beta, std::uint64_t t) {
    return corrected ? 1 - std::pow(beta, static_cast<double>(t)) : 1;
}

// x -= lr * (m / (sqrt(v) + eps) + weight_decay * x) with m at step t_m, v at step t_v.
void update_parameters(Adam& adam, std::uint64_t t_m, std::uint64_t t_v) {
    const AdamConfig& config = adam.config;
    for (std::size_t i = 0; i < adam.x.size(); ++i) {
        const double m = adam.m[i] / divisor(config.bias_correction, config.beta1, t_m);
        const double v = adam.v[i] / divisor(config.bias_correction, config.beta2, t_v);
        adam.x[i] -= config.lr * (m / (std::sqrt(v) + config.eps) + config.weight_decay * adam.x[i]);
    }
}

} // namespace

void Adam::step(const PerRank& gradients) {
    ++steps;
    for (std::size_t i = 0; i < x.size(); ++i) {
        double g = 0;
        for (const Vector& gradient : gradients) g += gradient[i];
        g /= static_cast<double>(gradients.size());
        m[i] = config.beta1 * m[i] + (1 - config.beta1) * g;
        v[i] = config.beta2 * v[i] + (1 - config.beta2) * g * g;
    }
    update_parameters(*this, steps, steps);
}

FreezeRule::FreezeRule(double beta2, std::uint64_t lr_warmup_steps)
    : delta_(static_cast<std::uint64_t>(std::llround(1 / (1 - beta2)))), lr_warmup_steps_(lr_warmup_steps) {}

bool FreezeRule::observe(double v_norm) {
    norms_.push_back(v_norm);
    const std::uint64_t t = norms_.size();
    if (t <= delta_) return false;
    const double before = norms_[t - delta_ - 1]; // norms_[k] is of step k + 1
    if (before == 0) return false;
    last_ratio_ = v_norm / before;
    if (t < lr_warmup_steps_) return false; // "no automatic freeze before this step"
    margin_ = std::min({margin_, std::fabs(last_ratio_ - 0.96), std::fabs(last_ratio_ - 1 / 0.96)});
    return last_ratio_ >= 0.96 && last_ratio_ <= 1 / 0.96;
}

OnebitAdam::OnebitAdam(const AdamConfig& config, const Vector& parameters, int ranks, Scale scale, Group group)
    : adam(config, parameters), reduce(parameters.size(), ranks, scale, group), sign_margin(parameters.size(), 1e300) {}

void OnebitAdam::freeze_now() {
    freeze_step = adam.steps;
    mask_.assign(adam.v.size(), true);
    for (std::size_t i = 0; i < mask_.size(); ++i) {
        if (adam.v[i] != 0) continue;
        mask_[i] = false;
        adam.m[i] = 0;
    }
    reduce.set_mask(mask_);
}

std::uint64_t OnebitAdam::masked() const {
    return static_cast<std::uint64_t>(std::count(mask_.begin(), mask_.end(), false));
}

void OnebitAdam::step(const PerRank& gradients) {
    if (frozen()) return compressed_step(gradients);
    adam.step(gradients);
    double norm = 0;
    for (double v : adam.v) norm += std::fabs(v);
    const bool by_rule = !rule_.empty() && rule_.front().observe(norm);
    if (by_rule || adam.steps == planned_freeze_) freeze_now();
}

void OnebitAdam::compressed_step(const PerRank& gradients) {
    ++adam.steps;
    PerRank momentum(gradients.size(), Vector(adam.x.size(), 0.0));
    for (std::size_t r = 0; r < gradients.size(); ++r)
        for (std::size_t i = 0; i < adam.x.size(); ++i)
            momentum[r][i] = adam.config.beta1 * adam.m[i] + (1 - adam.config.beta1) * gradients[r][i];
    reduce.step(momentum);
    adam.m = reduce.result;
    note_margins();
    update_parameters(adam, adam.steps, freeze_step);
}

void OnebitAdam::note_margins() {
    for (std::size_t i = 0; i < sign_margin.size(); ++i) {
        if (!mask_[i]) continue;
        double mean_scale = 0;
        for (std::size_t r = 0; r < reduce.worker_c.size(); ++r) {
            const double s = reduce.worker_scale[r][i];
            sign_margin[i] = std::min(sign_margin[i], std::fabs(reduce.worker_c[r][i]) / s);
            mean_scale += s / static_cast<double>(reduce.ranks());
        }
        sign_margin[i] = std::min(sign_margin[i], std::fabs(reduce.server_c[i]) / mean_scale);
    }
}

} // namespace oracle
