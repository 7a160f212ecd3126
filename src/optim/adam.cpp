// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/adam.hpp"

#include <bit>
#include <cmath>

namespace onebit {
namespace {

AdamBetas betas_of(const onebit_optimizer_config_t& config) {
    return {static_cast<float>(config.beta1), static_cast<float>(1 - config.beta1), static_cast<float>(config.beta2),
            static_cast<float>(1 - config.beta2)};
}

/// 1/(1 - beta^t): what Adam multiplies a moment by that began at zero.
float bias_correction(double beta, std::uint64_t t) {
    return static_cast<float>(1 / (1 - std::pow(beta, static_cast<double>(t))));
}

/// The exchange of either stage. The optimizer has agreed on all checks by the time it calls it.
onebit_allreduce_config_t allreduce_config(const onebit_optimizer_config_t& config, std::size_t count) {
    onebit_allreduce_config_t exchange = ONEBIT_ALLREDUCE_CONFIG_INIT(count);
    exchange.algorithm = config.kind == ONEBIT_OPTIMIZER_ADAM ? ONEBIT_ALGORITHM_DENSE : ONEBIT_ALGORITHM_FLAT;
    exchange.scale = config.scale;
    exchange.group = config.group;
    exchange.check = ONEBIT_CHECK_NONE;
    exchange.threads = config.threads;
    return exchange;
}

} // namespace

// -------------------------------------------------------------------------------------------------- creation ----

Adam::Adam(const onebit_optimizer_config_t& config, TensorSet tensors, unsigned threads)
    : config_(config),
      tensors_(std::move(tensors)),
      threads_(threads),
      betas_(betas_of(config)),
      m_(tensors_.count()),
      v_(tensors_.count()),
      average_(tensors_.count()) {
    if (config.kind == ONEBIT_OPTIMIZER_ONEBIT_ADAM && config.freeze_step == ONEBIT_FREEZE_AUTO) {
        automatic_freeze_.emplace(config.beta2, config.lr_warmup_steps);
    }
    if (config.kind == ONEBIT_OPTIMIZER_ONEBIT_ADAM) {
        mask_ = AlignedBuffer<std::uint32_t>(ceil_divide(tensors_.count(), kWordElements));
    }
}

Status Adam::create(Communicator& communicator, const onebit_optimizer_config_t& config, TensorSet tensors,
                    std::unique_ptr<Optimizer>* optimizer) {
    const onebit_allreduce_config_t exchange = allreduce_config(config, tensors.count());
    std::unique_ptr<Allreduce> allreduce;
    ONEBIT_RETURN_IF_ERROR(Allreduce::create(communicator, &exchange, Status(), &allreduce));
    if (allreduce->compresses()) ONEBIT_RETURN_IF_ERROR(allreduce->set_algorithm(ONEBIT_ALGORITHM_DENSE));
    std::unique_ptr<Adam> made;
    const Status allocated = catch_exceptions([&] {
        made.reset(new Adam(config, std::move(tensors), allreduce->plan().threads));
        return Status();
    });
    ONEBIT_RETURN_IF_ERROR(allreduce->agree_now(allocated));
    made->allreduce_ = std::move(allreduce);
    *optimizer = std::move(made);
    return {};
}

// ------------------------------------------------------------------------------------------------------ step ----

Status Adam::step() {
    const bool compress = frozen() || freeze_requested_;
    ONEBIT_RETURN_IF_ERROR(allreduce_->agree_now(tensors_.check_gradients(), compress ? 1 : 0,
                                                 std::bit_cast<std::uint64_t>(config_.lr),
                                                 {"the stage (1: compression)", "the learning rate (its bits)"}));
    if (freeze_requested_) ONEBIT_RETURN_IF_ERROR(begin_compression());
    return frozen() ? compressed_step() : warmup_step();
}

Status Adam::warmup_step() {
    tensors_.gather_gradients(average_.data(), threads_);
    ONEBIT_RETURN_IF_ERROR(allreduce_->run(average_.data(), average_.data()));
    tensors_.for_each_block(threads_, [this](const Tensor& tensor, std::size_t begin, std::size_t length) {
        const std::size_t at = tensor.offset + begin;
        update_moments(average_.data() + at, m_.data() + at, v_.data() + at, length, betas_);
    });
    ++steps_;
    update_tensors();
    if (warmup_ends()) request_freeze();
    return {};
}

Status Adam::compressed_step() {
    tensors_.for_each_block(threads_, [this](const Tensor& tensor, std::size_t begin, std::size_t length) {
        update_momentum(tensor.gradients + begin, m_.data() + tensor.offset + begin, length, betas_);
    });
    ONEBIT_RETURN_IF_ERROR(allreduce_->run(m_.data(), m_.data()));
    ++steps_;
    update_tensors();
    return {};
}

/// x from m and v, in either stage.
void Adam::update_tensors() {
    AdamUpdate update = {static_cast<float>(config_.lr), static_cast<float>(config_.eps),
                         static_cast<float>(config_.weight_decay), 1, 1};
    if (config_.bias_correction != 0) {
        update.correct_m = bias_correction(config_.beta1, steps_);
        update.correct_v = bias_correction(config_.beta2, frozen() ? freeze_step_ : steps_);
    }
    tensors_.for_each_block(threads_, [&](const Tensor& tensor, std::size_t begin, std::size_t length) {
        const std::size_t at = tensor.offset + begin;
        update_parameters(tensor.parameters + begin, m_.data() + at, v_.data() + at, length, update);
    });
}

// ---------------------------------------------------------------------------------------------------- freeze ----

bool Adam::warmup_ends() {
    if (config_.kind != ONEBIT_OPTIMIZER_ONEBIT_ADAM) return false;
    if (automatic_freeze_) return automatic_freeze_->observe(steps_, variance_norm());
    return steps_ == config_.freeze_step;
}

/// Ends the warm-up with the step just taken: finds the elements that were never touched. Local.
void Adam::request_freeze() {
    freeze_requested_ = true;
    mask_.fill_zero();
    masked_ = 0;
    for (std::size_t i = 0; i < v_.size(); ++i) {
        if (v_[i] > 0) {
            mask_[i / kWordElements] |= 1U << (i % kWordElements);
        } else {
            ++masked_;
        }
    }
}

/// Before the first compressed step. Collective.
Status Adam::begin_compression() {
    ONEBIT_RETURN_IF_ERROR(allreduce_->set_mask(masked_ > 0 ? mask_.data() : nullptr));
    ONEBIT_RETURN_IF_ERROR(allreduce_->set_algorithm(ONEBIT_ALGORITHM_FLAT));
    for (std::size_t i = 0; masked_ > 0 && i < v_.size(); ++i) {
        if (v_[i] <= 0) m_[i] = 0; // where v has underflowed, m may be left over
    }
    freeze_step_ = steps_;
    freeze_requested_ = false;
    warmup_bytes_sent_ = allreduce_->channel().bytes_sent();
    average_ = {};
    mask_ = {};
    automatic_freeze_.reset();
    return {};
}

Status Adam::freeze() {
    if (config_.kind != ONEBIT_OPTIMIZER_ONEBIT_ADAM) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "dense Adam has no compression stage");
    }
    if (frozen() || freeze_requested_) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "already frozen, after step %llu",
                             static_cast<unsigned long long>(frozen() ? freeze_step_ : steps_));
    }
    if (steps_ == 0) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "no step yet: there is no variance to freeze");
    }
    request_freeze();
    return {};
}

/// Added up in order: the same on every rank and with any number of threads.
double Adam::variance_norm() const {
    double norm = 0;
    for (const float v : v_.view()) norm += v;
    return norm;
}

// ------------------------------------------------------------------------------------------------------ other ----

Status Adam::set_lr(double lr) {
    if (!(lr >= 0 && std::isfinite(static_cast<float>(lr)))) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "lr: %g is not a float >= 0", lr);
    }
    config_.lr = lr;
    return {};
}

void Adam::fill_info(onebit_optimizer_info_t* info) const {
    onebit_allreduce_info_t exchange = ONEBIT_ALLREDUCE_INFO_INIT;
    allreduce_->fill_info(&exchange);
    info->frozen = frozen() || freeze_requested_ ? 1 : 0;
    info->steps = steps_;
    info->freeze_step = freeze_requested_ ? steps_ : freeze_step_;
    info->count = tensors_.count();
    info->masked = masked_;
    info->warmup_bytes_sent = frozen() ? warmup_bytes_sent_ : exchange.bytes_sent;
    info->compressed_bytes_sent = exchange.bytes_sent - info->warmup_bytes_sent;
    info->state_bytes =
        m_.bytes() + v_.bytes() + average_.bytes() + mask_.bytes() + exchange.state_bytes + exchange.workspace_bytes;
}

} // namespace onebit
