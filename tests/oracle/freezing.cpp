// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The freeze: its time, the elements that it masks, and the compressed exchange after it.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "oracle/optimizers.hpp"

namespace oracle {

bool FreezeRule::within(double ratio, double band) {
    margin_ = std::min({margin_, std::fabs(ratio - band), std::fabs(ratio - 1 / band)});
    return ratio >= band && ratio <= 1 / band;
}

PaperRule::PaperRule(double beta2, std::uint64_t lr_warmup_steps)
    : delta_(static_cast<std::uint64_t>(std::llround(1 / (1 - beta2)))), lr_warmup_steps_(lr_warmup_steps) {}

bool PaperRule::observe(const Sight& sight) {
    norms_.push_back(std::accumulate(sight.variances.begin(), sight.variances.end(), 0.0));
    const std::uint64_t t = norms_.size();
    if (t <= delta_) return false;
    const double before = norms_[t - delta_ - 1]; // norms_[k] is of step k + 1
    if (before == 0) return false;
    last_ratio_ = norms_.back() / before;
    if (t < lr_warmup_steps_) return false; // "no freeze by a rule before this step"
    return within(last_ratio_, 0.96);
}

SettledRule::SettledRule(double filling, std::uint64_t lr_warmup_steps, std::uint64_t window, double band)
    : lr_warmup_steps_(lr_warmup_steps),
      stride_(window < 16 ? 1 : window / 16),
      window_(0),
      filling_(filling),
      band_(band) {
    while (window_ < window) window_ += stride_;
}

bool SettledRule::observe(const Sight& sight) {
    ++steps_;
    if (steps_ % stride_ != 0) return false;
    rates_.push_back(sight.rates);
    quantities_.push_back(sight.squared_norms);
    for (std::size_t k = 0; k < sight.variances.size(); ++k)
        quantities_.back().push_back(sight.variances[k] * sight.corrections[k]);
    bool settled = steps_ >= 2 * window_ && !rates_have_risen();
    for (std::size_t q = 0; settled && q < quantities_.back().size(); ++q) settled = has_settled(q);
    return settled && static_cast<double>(steps_) >= filling_ && steps_ >= lr_warmup_steps_;
}

// A rate that was reached for the first time less than a window ago.
bool SettledRule::rates_have_risen() const {
    const std::size_t looks = window_ / stride_;
    for (std::size_t g = 0; g < rates_.back().size(); ++g) {
        double before = 0, lately = 0;
        for (std::size_t k = 0; k < rates_.size(); ++k) {
            double& highest = k + looks < rates_.size() ? before : lately;
            highest = std::max(highest, rates_[k][g]);
        }
        if (lately > before) return true;
    }
    return false;
}

bool SettledRule::has_settled(std::size_t quantity) {
    const std::size_t looks = window_ / stride_;
    bool settled = true;
    for (std::size_t back = 0; back < looks; ++back) {
        const std::size_t now = quantities_.size() - 1 - back;
        if (now < looks) return false;
        const double later = quantities_[now][quantity], earlier = quantities_[now - looks][quantity];
        if (later == 0 && earlier == 0) continue;
        settled = earlier > 0 && within(later / earlier, band_) && settled;
    }
    return settled;
}

namespace {

std::uint64_t compressed_count(const Model& model) {
    std::uint64_t count = 0;
    for (const Tensor& tensor : model.tensors)
        if (!model.groups[tensor.group].no_compress) count += tensor.count;
    return count;
}

} // namespace

FreezingOptimizer::FreezingOptimizer(const Model& model_in, const Vector& parameters)
    : Optimizer(model_in, parameters),
      reduce(compressed_count(model_in), model_in.ranks / model_in.places, model_in.places, model_in.scale,
             model_in.group),
      sign_margin(compressed_count(model_in), 1e300),
      variance_ratio(model_in.tensors.size(), 1.0),
      follow_factor_(model_in.tensors.size(), 1.0) {
    for (const Slice& slice : slices(true))
        for (std::uint64_t i = slice.range.begin; i < slice.range.end(); ++i) elements_.push_back(i);
}

double FreezingOptimizer::largest_beta2() const {
    double largest = 0;
    for (const Slice& slice : slices(true)) largest = std::max(largest, settings(slice).beta2);
    return largest;
}

void FreezingOptimizer::freeze_by_paper(std::uint64_t lr_warmup_steps) {
    rule_ = std::make_shared<PaperRule>(largest_beta2(), lr_warmup_steps);
}

void FreezingOptimizer::freeze_when_settled(std::uint64_t lr_warmup_steps, std::uint64_t window, double band) {
    const double beta2 = largest_beta2();
    // Without bias correction v is used as it is, so it has to be nearly full.
    const double filling = std::round(1 / (1 - beta2)) * (model.bias_correction ? 1 : 3);
    rule_ = std::make_shared<SettledRule>(filling, lr_warmup_steps, window, band);
}

Sight FreezingOptimizer::look(const Vector& x_before) const {
    Sight sight;
    for (const Settings& group : model.groups) sight.rates.push_back(group.lr);
    for (const Slice& slice : slices(true)) {
        double variance = 0, square = 0;
        for (std::uint64_t i = slice.range.begin; i < slice.range.end(); ++i) {
            variance += v[i];
            square += x_before[i] * x_before[i];
        }
        sight.variances.push_back(variance);
        const double updates = static_cast<double>(exact_rounds);
        sight.corrections.push_back(1 / (1 - std::pow(settings(slice).beta2, updates)));
        if (watches_norms()) sight.squared_norms.push_back(square);
    }
    return sight;
}

Vector FreezingOptimizer::packed(const Vector& whole) const {
    Vector part;
    for (std::uint64_t i : elements_) part.push_back(whole[i]);
    return part;
}

Vector FreezingOptimizer::unpacked(const Vector& part) const {
    Vector whole(x.size(), 0.0);
    for (std::size_t k = 0; k < elements_.size(); ++k) whole[elements_[k]] = part[k];
    return whole;
}

void FreezingOptimizer::mask_where_v_is_zero() {
    std::vector<bool> mask;
    for (double variance : packed(v)) mask.push_back(variance != 0);
    reduce.set_mask(mask);
}

void FreezingOptimizer::freeze_now() {
    freeze_step = steps;
    mask_where_v_is_zero();
    mask_.assign(x.size(), true);
    for (std::uint64_t i : elements_) mask_[i] = v[i] != 0;
    for (std::size_t i = 0; i < m.size(); ++i)
        if (!mask_[i]) m[i] = 0;
    variance_ratio.assign(variance_ratio.size(), 1.0);
    follow_factor_.assign(follow_factor_.size(), 1.0);
    last_measured_ = steps;
    gathered_.assign(x.size(), 0.0);
    after_freeze();
}

// sqrt(v) / D
double FreezingOptimizer::variance_share(const Slice& slice, std::uint64_t element) const {
    const double eps = settings(slice).eps;
    const double share = 1 - eps / denominator(slice, v[element], frozen_updates());
    return takes_part(element) && share >= std::ldexp(1, -10) ? share : 0;
}

// The mean share of the variance in D, of elements as they have one.
double FreezingOptimizer::mean_share(const Slice& slice) const {
    double shares = 0, squares = 0;
    for (std::uint64_t i = slice.range.begin; i < slice.range.end(); ++i) {
        const double share = variance_share(slice, i);
        shares += share;
        squares += share * share;
    }
    return shares > 0 ? squares / shares : 0;
}

bool FreezingOptimizer::measures_now() const {
    if (model.follow_interval == 0) return false;
    double largest = 1; // factor
    if (model.exchange_updates)
        for (const Slice& slice : slices(true)) largest = std::max(largest, follow_factor_[slice.tensor]);
    const double interval = std::max(1.0, std::floor(static_cast<double>(model.follow_interval) / largest));
    return static_cast<double>(steps - last_measured_) >= interval;
}

// Compares (g/D)^2 with its value at the time when g^2 was v.
void FreezingOptimizer::measure(const PerRank& gradients) {
    bool outgrown = false;
    for (const Slice& slice : slices(true)) {
        double now = 0, then = 0;
        for (std::uint64_t i = slice.range.begin; i < slice.range.end(); ++i) {
            if (!takes_part(i)) continue;
            double mean = 0;
            for (const Vector& each : gradients) mean += weighted(slice, i, each[i]) / static_cast<double>(model.ranks);
            now += mean * mean;
            then += std::pow(variance_share(slice, i), 2);
        }
        if (then == 0) continue;
        double& ratio = variance_ratio[slice.tensor];
        const double share = mean_share(slice);
        const double counts = 1 - std::pow(settings(slice).beta2, static_cast<double>(steps - last_measured_));
        const double measured = now / then / std::pow(follow_factor_[slice.tensor], 2);
        const double most = std::max(ratio * (1 + 1 / counts), 1.0); // twice the ratio, or back to the start
        const double mean = (1 - counts) * ratio + counts * std::min(measured, most);
        ratio = told_growth == 0 ? mean : std::pow(1 + (std::sqrt(told_growth) - 1) / share, 2);
        worst_estimate = std::max(worst_estimate, std::fabs(ratio / mean - 1));
        const double stretch = 1 + (std::sqrt(ratio) - 1) * share;
        if (model.exchange_updates) follow_factor_[slice.tensor] = 1 / stretch;
        outgrown = outgrown || stretch * stretch > model.thaw_ratio;
    }
    last_measured_ = steps;
    if (outgrown && model.exchange_updates) thaw();
}

void FreezingOptimizer::gather_masked(const PerRank& gradients) {
    for (const Slice& slice : slices(true)) {
        for (std::uint64_t i = slice.range.begin; i < slice.range.end(); ++i) {
            if (takes_part(i)) continue;
            for (const Vector& each : gradients)
                gathered_[i] += follow_factor_[slice.tensor] * each[i] / static_cast<double>(model.ranks);
        }
    }
}

std::uint64_t FreezingOptimizer::periods_before(std::uint64_t step) const {
    const std::uint64_t memory = static_cast<std::uint64_t>(std::llround(1 / (1 - largest_beta2())));
    return (step - freeze_step) / std::max<std::uint64_t>(memory / 4, 1);
}

// Treats the sum of the gathered gradients as an element's first gradient.
void FreezingOptimizer::admit_newcomers() {
    for (const Slice& slice : slices(true)) {
        const Settings& s = settings(slice);
        const double most = model.ranks / std::sqrt(1 - s.beta2);
        for (std::uint64_t i = slice.range.begin; i < slice.range.end(); ++i) {
            const double g = gathered_[i];
            if (takes_part(i) || g == 0) continue;
            v[i] = (1 - s.beta2) * g * g;
            m[i] = (1 - s.beta1) * std::clamp(g / denominator(slice, v[i], frozen_updates()), -most, most);
            mask_[i] = true;
            ++admitted;
            after_admission(i);
        }
    }
    gathered_.assign(x.size(), 0.0);
    std::vector<bool> mask;
    for (std::uint64_t i : elements_) mask.push_back(mask_[i]);
    reduce.set_mask(mask);
}

void FreezingOptimizer::thaw() {
    meet();
    for (const Slice& slice : slices(true)) {
        for (std::uint64_t i = slice.range.begin; i < slice.range.end(); ++i) {
            v[i] *= variance_ratio[slice.tensor];
            m[i] *= takes_part(i) ? denominator(slice, v[i], frozen_updates()) : 0;
        }
    }
    reduce.reset();
    mask_.clear();
    freeze_step = 0;
    least_freeze_ = steps + static_cast<std::uint64_t>(std::llround(1 / (1 - largest_beta2())));
    ++thaws;
}

double FreezingOptimizer::weighted(const Slice& slice, std::uint64_t element, double gradient) const {
    if (!model.exchange_updates) return gradient;
    const double most = model.ranks / std::sqrt(1 - settings(slice).beta2);
    return std::clamp(follow_factor_[slice.tensor] * gradient / denominator(slice, v[element], frozen_updates()), -most,
                      most);
}

void FreezingOptimizer::weigh_momentum() {
    for (const Slice& slice : slices(true))
        for (std::uint64_t i = slice.range.begin; i < slice.range.end(); ++i) m[i] = weighted(slice, i, m[i]);
}

std::uint64_t FreezingOptimizer::masked() const {
    return static_cast<std::uint64_t>(std::count(mask_.begin(), mask_.end(), false));
}

bool FreezingOptimizer::takes_part(std::uint64_t element) const {
    return mask_.empty() || mask_[element];
}

void FreezingOptimizer::warm_up(const PerRank&, const Vector& average) {
    ++exact_rounds;
    for (const Slice& slice : slices(true)) dense_update(slice, average);
}

void FreezingOptimizer::update(const PerRank& gradients, const Vector& average) {
    exchanged = false;
    if (frozen()) {
        gather_masked(gradients);
        compressed(gradients);
        if (!measures_now()) return;
        const bool looks = periods_before(steps) > periods_before(last_measured_);
        measure(gradients);
        if (looks && frozen() && model.exchange_updates) admit_newcomers();
        return;
    }
    const Vector x_before = x;
    warm_up(gradients, average);
    const bool by_rule = rule_ != nullptr && rule_->observe(look(x_before));
    if (by_rule || (thaws == 0 ? steps == planned_freeze_ : rule_ == nullptr && steps >= least_freeze_)) freeze_now();
}

Vector FreezingOptimizer::exchange(const PerRank& values) {
    PerRank inputs;
    for (const Vector& each : values) inputs.push_back(packed(each));
    reduce.step(inputs);
    exchanged = true;
    ++compressed_rounds;
    note_margins();
    return unpacked(reduce.result);
}

PerRank FreezingOptimizer::means_of_nodes(const PerRank& gradients) const {
    PerRank means;
    for (auto node = gradients.begin(); node != gradients.end(); node += model.places)
        means.insert(means.end(), static_cast<std::size_t>(model.places), mean_of({node, node + model.places}));
    return means;
}

void FreezingOptimizer::note_margins() {
    for (std::size_t place = 0; place < reduce.levels.size(); ++place) {
        const FlatAllreduce& level = reduce.levels[place];
        for (std::uint64_t i = 0; i < level.count(); ++i) {
            if (!level.takes_part(i)) continue;
            double& margin = sign_margin[reduce.shards()[place].begin + i];
            double mean_scale = 0;
            for (std::size_t r = 0; r < level.worker_c.size(); ++r) {
                const double s = level.worker_scale[r][i];
                margin = std::min(margin, std::fabs(level.worker_c[r][i]) / s);
                mean_scale += s / static_cast<double>(level.ranks());
            }
            margin = std::min(margin, std::fabs(level.server_c[i]) / mean_scale);
        }
    }
}

} // namespace oracle
