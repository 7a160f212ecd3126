// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/lamb.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <utility>

#include "numeric/mean.hpp"

namespace onebit {
namespace {

// Bounds of the correction r [1-bit LAMB, section 5.1].
constexpr double kLeastCorrection = 0.5;
constexpr double kMostCorrection = 4;
constexpr double kCorrectionChange = 0.1; ///< from one step to the next

// Bounds of the momentum scale k: the largest gradient that steps take, times k, leaves a message room for its errors.
constexpr double kLeastScale = 0x1p-40;
constexpr double kMostScale = 0x1p40;

} // namespace

Lamb::Lamb(Settings settings, std::vector<Tensor> tensors)
    : FusedOptimizer(std::move(settings), std::move(tensors)),
      layers_(num_tensors()),
      step_sizes_(num_tensors()),
      squared_norms_(num_tensors()),
      magnitudes_(num_tensors()) {}

Status Lamb::create(Communicator& communicator, Settings settings, std::vector<Tensor> tensors,
                    std::unique_ptr<Optimizer>* optimizer) {
    std::unique_ptr<Lamb> made(new Lamb(std::move(settings), std::move(tensors)));
    ONEBIT_RETURN_IF_ERROR(made->prepare(communicator, made->corrects()));
    ONEBIT_RETURN_IF_ERROR(communicator.agree(catch_exceptions([&] {
        std::size_t most_segments = 0;
        for (const Bucket& bucket : made->buckets()) {
            most_segments = std::max(most_segments, bucket.layout.segments().size());
        }
        made->findings_.resize(most_segments);
        return Status();
    })));
    *optimizer = std::move(made);
    return {};
}

void Lamb::visit_numbers(NumberVisitor& visitor) {
    for (Layer& layer : layers_) {
        visitor.visit(layer.trust_sum);
        visitor.visit(layer.trust_updates);
        visitor.visit(layer.trust);
        visitor.visit(layer.momentum_scale);
        visitor.visit(layer.correction);
    }
}

Status Lamb::check_numbers() const {
    for (std::size_t k = 0; k < layers_.size(); ++k) {
        const Layer& layer = layers_[k];
        const auto check = [](bool possible, const char* what, double value) {
            return check_state(possible, what, value);
        };
        ONEBIT_RETURN_IF_ERROR(check(check_lr("", layer.trust_sum).ok(), "sum of trust ratios", layer.trust_sum));
        ONEBIT_RETURN_IF_ERROR(
            check_state(layer.trust_updates <= steps() && (layer.trust_updates > 0 || layer.trust_sum == 0),
                        "number of trust ratios", layer.trust_updates));
        ONEBIT_RETURN_IF_ERROR(
            check(frozen() ? check_lr("", layer.trust).ok() : layer.trust == 1, "trust ratio", layer.trust));
        const bool has_factors = frozen() && corrects();
        const bool scales = has_factors ? layer.momentum_scale >= kLeastScale && layer.momentum_scale <= kMostScale
                                        : layer.momentum_scale == 1;
        ONEBIT_RETURN_IF_ERROR(check(scales, "scale of a momentum", layer.momentum_scale));
        const bool corrects = has_factors ? layer.correction >= kLeastCorrection && layer.correction <= kMostCorrection
                                          : layer.correction == 1;
        ONEBIT_RETURN_IF_ERROR(check(corrects, "correction of a trust ratio", layer.correction));
    }
    return {};
}

std::size_t Lamb::own_bytes() const {
    return layers_.size() * (sizeof(Layer) + sizeof(float) + 2 * sizeof(double)) + findings_.size() * sizeof(Findings);
}

// ---------------------------------------------------------------------------------------------------- warm-up ----

/// Two passes: the first for m, v and the norms, which give the trust ratios; the second for the parameters.
void Lamb::update_exactly(Bucket& bucket) {
    set_updates(variance_updates(bucket));
    bucket.passes->find_direction(average_factor(bucket), findings_);
    for (std::size_t i = 0; i < bucket.layout.tensors().size(); ++i) {
        const Tensor& tensor = *bucket.layout.tensors()[i];
        const double trust =
            trust_ratio(layers_[tensor.number], bucket.layout.segments_of_tensor(i), may_freeze(bucket));
        step_sizes_[tensor.number] = nearest_finite(group_of(tensor).lr * trust);
    }
    bucket.passes->descend(step_of());
}

/// c of one tensor; `remember`: c counts towards its running mean.
double Lamb::trust_ratio(Layer& layer, std::span<const Segment> segments, bool remember) {
    double x = 0;
    double u = 0;
    for (const Segment& segment : segments) {
        x += findings_[segment.index].x;
        u += findings_[segment.index].u;
    }
    squared_norms_[segments.front().tensor->number] = x;
    if (x <= 0 || u <= 0) return 1;
    const double trust = std::clamp(std::sqrt(x / u), config().min_trust, config().max_trust);
    if (remember && trust != 1) {
        layer.trust_sum = config().trust_beta * layer.trust_sum + (1 - config().trust_beta) * trust;
        ++layer.trust_updates;
    }
    return trust;
}

// ----------------------------------------------------------------------------------------------------- freeze ----

/// A trust ratio has settled when both of its norms have.
void Lamb::add_freeze_quantities(const Bucket& bucket, std::vector<FreezeQuantity>* quantities) const {
    for (const Tensor* tensor : bucket.layout.tensors()) {
        quantities->push_back(
            {.what = ONEBIT_FREEZE_WAIT_PARAMETERS, .tensor = tensor->number, .norm = squared_norms_[tensor->number]});
    }
}

Status Lamb::prepare_freeze(Bucket& bucket) {
    if (exchanges_updates()) return {};
    if (bucket.passes->keeps_sum()) bucket.v_fresh = AlignedBuffer<float>(bucket.layout.count(), memory());
    return {};
}

Status Lamb::freeze_bucket(Bucket& bucket) {
    for (const Tensor* tensor : bucket.layout.tensors()) {
        Layer& layer = layers_[tensor->number];
        if (layer.trust_updates == 0) continue;
        const double weight = 1 - std::pow(config().trust_beta, static_cast<double>(layer.trust_updates));
        layer.trust = layer.trust_sum / weight;
    }
    if (!exchanges_updates()) begin_momenta(bucket);
    freeze_variance(bucket, exchanges_updates()); // else a masked ratio D / D_fresh counts as 1
    drop_sum(bucket);
    return {};
}

/// The running means of trust ratios go on.
void Lamb::thawed() {
    for (Layer& layer : layers_) layer.trust = 1;
}

/// Scales the momenta, so that one message can have them all. The fresh variance begins as v.
void Lamb::begin_momenta(Bucket& bucket) {
    const Layout& layout = bucket.layout;
    bucket.passes->find_magnitudes(findings_);
    double mean = 0;
    for (std::size_t i = 0; i < layout.tensors().size(); ++i) {
        double squares = 0;
        for (const Segment& segment : layout.segments_of_tensor(i)) squares += findings_[segment.index].x;
        magnitudes_[i] = std::sqrt(squares / static_cast<double>(layout.tensors()[i]->count));
        mean += magnitudes_[i] / static_cast<double>(layout.tensors().size());
    }
    for (std::size_t i = 0; i < layout.tensors().size(); ++i) {
        Layer& layer = layers_[layout.tensors()[i]->number];
        if (config().momentum_scaling != 0 && magnitudes_[i] > 0) {
            layer.momentum_scale = std::clamp(mean / magnitudes_[i], kLeastScale, kMostScale);
        }
    }
    if (!bucket.passes->keeps_sum()) bucket.v_fresh = take_sum(bucket);
    bucket.passes->begin_messages([this](const Tensor& tensor) { return message_scale(tensor); });
}

// ------------------------------------------------------------------------------------------------ compression ----

std::unique_ptr<ValueSource> Lamb::make_source(Bucket& bucket) {
    return bucket.passes->make_momentum_source([this](const Tensor& tensor) {
        return nearest_finite(double{own_factor(tensor)} * layers_[tensor.number].momentum_scale);
    });
}

void Lamb::update_compressed(Bucket& bucket) {
    set_updates(t()); // v_fresh has been updated in every step
    if (corrects()) bucket.passes->look_at_messages(unscale_of(), findings_);
    bucket.m = {}; // from here on m is only in the messages
    for (std::size_t i = 0; i < bucket.layout.tensors().size(); ++i) {
        const Tensor& tensor = *bucket.layout.tensors()[i];
        Layer& layer = layers_[tensor.number];
        if (corrects()) correct(layer, group_of(tensor).weight_decay > 0, bucket.layout.segments_of_tensor(i));
        step_sizes_[tensor.number] = nearest_finite(group_of(tensor).lr * layer.trust * layer.correction);
    }
    bucket.passes->update_from_message(corrects() ? unscale_of() : Passes::FactorOf(), step_of());
}

/// r of one tensor.
void Lamb::correct(Layer& layer, bool decays, std::span<const Segment> segments) const {
    double u = 0;
    double u0 = 0;
    float least_ratio = std::numeric_limits<float>::infinity();
    for (const Segment& segment : segments) {
        const Findings& found = findings_[segment.index];
        u += found.u;
        u0 += found.u0;
        least_ratio = std::min(least_ratio, found.least_ratio);
    }
    double correction = 1 / std::max(double{least_ratio}, double{FLT_MIN}); // the greatest of D / D_fresh
    if (decays && u > 0) {
        const double share = std::min(1.0, std::sqrt(u0 / u)); // rho
        correction = share * correction + 1 - share;
    }
    correction = std::clamp(correction, kLeastCorrection, kMostCorrection);
    layer.correction =
        std::clamp(correction, layer.correction * (1 - kCorrectionChange), layer.correction * (1 + kCorrectionChange));
}

} // namespace onebit
