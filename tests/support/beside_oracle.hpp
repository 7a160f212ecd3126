// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// A training beside the oracle, for any number of steps. The oracle runs freely, in double precision. It takes from the
// library only the signs of values near zero, which depend on rounding: the errors after each exchange show them, and a
// check follows that each value was near zero indeed. Without this a single such sign would separate the two. Of other
// codes it takes over everything sent, and checks that the errors are no larger than the code's.
#pragma once

#include <cmath>
#include <memory>
#include <string>

#include "oracle/optimizers.hpp"
#include "support/training.hpp"

namespace onebit_test {

inline oracle::Settings settings_of(const onebit_param_group_t& group) {
    return {group.lr, group.beta1, group.beta2, group.eps, group.weight_decay, group.no_compress != 0};
}

inline oracle::Model model_of(const Setup& setup, int ranks) {
    const onebit_optimizer_config_t& config = setup.config;
    const Mode mode{config.scale, config.group};
    oracle::Model model;
    for (std::size_t k = 0; k < setup.sizes.size(); ++k)
        model.tensors.push_back({setup.sizes[k], setup.group_of.empty() ? 0 : setup.group_of[k]});
    model.groups = {{config.lr, config.beta1, config.beta2, config.eps, config.weight_decay, false}};
    if (!setup.groups.empty()) model.groups.clear();
    for (const onebit_param_group_t& group : setup.groups) model.groups.push_back(settings_of(group));
    model.ranks = ranks;
    if (config.algorithm == ONEBIT_ALGORITHM_TWO_LEVEL) model.places = setup.places;
    model.scale = config.codec == ONEBIT_CODEC_SIGN ? mode.oracle_scale() : oracle::Scale::followed;
    model.group = mode.oracle_group();
    model.bias_correction = config.bias_correction != 0;
    model.max_grad_norm = config.max_grad_norm;
    model.exchange_updates = config.compressed == ONEBIT_COMPRESSED_UPDATES;
    model.min_trust = config.min_trust;
    model.max_trust = config.max_trust;
    model.trust_beta = config.trust_beta;
    model.momentum_scaling = config.momentum_scaling != 0;
    model.follow_interval = config.follow_interval == ONEBIT_FOLLOW_NEVER ? 0 : config.follow_interval;
    if (config.thaw_ratio != 0) model.thaw_ratio = config.thaw_ratio;
    const bool stays_exact = config.freeze_step == ONEBIT_FREEZE_AUTO; // until the freeze
    model.variance_updates = stays_exact ? UINT64_MAX : config.variance_updates;
    model.local_step_scaler = config.local_step_scaler;
    model.local_steps = config.local_steps;
    return model;
}

inline std::unique_ptr<oracle::Optimizer> make_oracle(const Setup& setup, int ranks) {
    const std::vector<float> start = initial_parameters(total(setup.sizes));
    const oracle::Vector x(start.begin(), start.end());
    const oracle::Model model = model_of(setup, ranks);
    const onebit_optimizer_kind_t kind = setup.config.kind;
    const bool coded = setup.config.codec != ONEBIT_CODEC_SIGN;
    if (kind == ONEBIT_OPTIMIZER_ADAM && coded) return std::make_unique<oracle::CodedAdam>(model, x);
    if (kind == ONEBIT_OPTIMIZER_LAMB && coded) return std::make_unique<oracle::CodedLamb>(model, x);
    if (kind == ONEBIT_OPTIMIZER_ADAM) return std::make_unique<oracle::Adam>(model, x);
    if (kind == ONEBIT_OPTIMIZER_LAMB) return std::make_unique<oracle::Lamb>(model, x);
    std::unique_ptr<oracle::FreezingOptimizer> freezing;
    if (kind == ONEBIT_OPTIMIZER_ONEBIT_ADAM) freezing = std::make_unique<oracle::OnebitAdam>(model, x);
    if (kind == ONEBIT_OPTIMIZER_ONEBIT_LAMB) freezing = std::make_unique<oracle::OnebitLamb>(model, x);
    if (kind == ONEBIT_OPTIMIZER_ZERO_ONE_ADAM) freezing = std::make_unique<oracle::ZeroOneAdam>(model, x);
    const std::uint64_t freeze_step = setup.config.freeze_step;
    if (freeze_step == ONEBIT_FREEZE_AUTO) {
        const onebit_optimizer_config_t& config = setup.config;
        freezing->freeze_when_settled(config.lr_warmup_steps, config.freeze_window,
                                      config.freeze_band); // not 0, the default
    } else if (freeze_step == ONEBIT_FREEZE_PAPER) {
        freezing->freeze_by_paper(setup.config.lr_warmup_steps);
    } else if (freeze_step != ONEBIT_FREEZE_NEVER) {
        freezing->freeze_at(freeze_step);
    }
    return freezing;
}

inline oracle::PerRank gradients_of_all(const Gradient& gradient, int ranks, std::uint64_t step) {
    oracle::PerRank all;
    for (int r = 0; r < ranks; ++r) {
        const std::vector<float> mine = gradient(r, step);
        all.emplace_back(mine.begin(), mine.end());
    }
    return all;
}

// `setup`, but frozen variances are followed only at an explicit interval: an estimated one is the library's own.
inline Setup not_followed(Setup setup) {
    if (setup.config.follow_interval == 0) setup.config.follow_interval = ONEBIT_FOLLOW_NEVER;
    return setup;
}

// The largest error of an element under a code, relative to the largest magnitude of its 256 elements.
inline double coarseness(onebit_codec_t codec) {
    switch (codec) {
        case ONEBIT_CODEC_INT8:
            return 0.5 / 127;
        case ONEBIT_CODEC_INT4:
            return 0.5 / 7;
        case ONEBIT_CODEC_FP4:
            return 0.25;
        case ONEBIT_CODEC_BFLOAT16:
            return 0x1p-8;
        case ONEBIT_CODEC_TERNARY:
            return 1 - 2.0 / 16; // one element beside 255 that are tiny
        case ONEBIT_CODEC_FLOAT16:
            return 0x1p-11;
        case ONEBIT_CODEC_INT2:
            return 1 - 1.5 / 16; // likewise
        case ONEBIT_CODEC_MEANS:
            return 1; // one element beside 255 of its sign that are tiny
        case ONEBIT_CODEC_TOPK:
        case ONEBIT_CODEC_RANDOMK:
            return 1; // not kept; with 2 bits a kept element's error may be larger
        default:
            throw std::runtime_error("how coarse is codec " + std::to_string(codec) + "?");
    }
}

class BesideOracle {
  public:
    BesideOracle(onebit_comm_t comm, const Setup& setup, RankLog& log)
        : training(comm, not_followed(setup), log),
          reference(make_oracle(not_followed(setup), log.size())),
          freezing(dynamic_cast<oracle::FreezingOptimizer*>(reference.get())),
          log_(log),
          codec_(setup.config.codec) {
        for (double x : reference->x) reach_.push_back(std::fabs(x));
    }

    // One step of both with gradient(rank, t), compared.
    void step(const Gradient& gradient, std::uint64_t t) {
        training.step(gradient(log_.rank(), t));
        const onebit_optimizer_info_t info = training.info();
        const OptimizerErrors errors = training.errors();
        if (freezing != nullptr) follow(errors);
        reference->told_norm = info.grad_norm;
        if (freezing != nullptr) freezing->told_growth = info.variance_ratio;
        const bool was_frozen = freezing != nullptr && freezing->frozen();
        const bool exact = reference->next_is_exact();
        reference->step(gradients_of_all(gradient, log_.size(), t));
        compare_parameters(t);
        compare_info(info, exact);
        // 0/1 Adam's errors begin anew at the freeze.
        if (freezing != nullptr && freezing->exchanged && freezing->frozen() == was_frozen) compare_errors(errors);
    }
    void steps(const Gradient& gradient, std::uint64_t first, std::uint64_t last) {
        for (std::uint64_t t = first; t <= last; ++t) step(gradient, t);
    }
    void freeze() {
        freezing->freeze_now();
        ONEBIT_EXPECT_OK(log_, onebit_optimizer_freeze(training.get()));
    }

    Training training;
    std::unique_ptr<oracle::Optimizer> reference;
    oracle::FreezingOptimizer* freezing; // the same one, or NULL
    double tolerance = 1e-5;             // of parameters, relative to the largest value that each has had
    double error_tolerance = 1e-4;       // of errors, and of values near zero, relative to their scale

  private:
    void follow(const OptimizerErrors& errors) {
        oracle::PerRank workers;
        oracle::Vector server(errors.server.size(), 0.0);
        for (const std::vector<float>& worker : log_.gather_floats(errors.worker))
            workers.push_back(freezing->packed({worker.begin(), worker.end()}));
        for (const std::vector<float>& part : log_.gather_floats(errors.server))
            for (std::size_t i = 0; i < server.size(); ++i) server[i] += part[i];
        freezing->reduce.follow(workers, freezing->packed(server));
    }

    void compare_parameters(std::uint64_t t) {
        const oracle::Vector& expected = reference->parameters_of(static_cast<std::size_t>(log_.rank()));
        const std::vector<float> actual = training.parameters();
        std::size_t wrong = 0, first = 0;
        for (std::size_t i = 0; i < expected.size(); ++i) {
            reach_[i] = std::max(reach_[i], std::fabs(expected[i]));
            if (std::fabs(actual[i] - expected[i]) <= tolerance * reach_[i]) continue;
            if (wrong++ == 0) first = i;
        }
        std::ostringstream text;
        text.precision(9);
        text << "step " << t << ": " << wrong << " of " << expected.size() << " parameters are wrong";
        if (wrong != 0) text << "; the first is " << first << ": " << actual[first] << ", not " << expected[first];
        log_.expect(wrong == 0, text.str(), __FILE__, __LINE__);
        const bool apart = freezing != nullptr && freezing->frozen() && !freezing->exchanged && !just_frozen();
        if (!apart) ONEBIT_EXPECT(log_, training.parameters_same_on_all());
    }

    bool just_frozen() const { return freezing->freeze_step == reference->steps; }

    void compare_info(const onebit_optimizer_info_t& info, bool exact) {
        ONEBIT_EXPECT(log_, info.steps == reference->steps);
        ONEBIT_EXPECT(log_, info.count == reference->x.size());
        ONEBIT_EXPECT(log_, info.freeze_step == (freezing == nullptr ? 0 : freezing->freeze_step));
        ONEBIT_EXPECT(log_, (info.frozen == 1) == (freezing != nullptr && freezing->frozen()));
        ONEBIT_EXPECT(log_, info.masked == (freezing == nullptr ? 0 : freezing->masked()));
        ONEBIT_EXPECT(log_, info.exact_rounds == (freezing == nullptr ? info.steps : freezing->exact_rounds));
        ONEBIT_EXPECT(log_, info.compressed_rounds == (freezing == nullptr ? 0 : freezing->compressed_rounds));
        const double norm = reference->model.max_grad_norm > 0 ? reference->grad_norm : 0;
        std::ostringstream text;
        text << "step " << info.steps << ": the gradient's norm is " << info.grad_norm << ", not " << norm;
        log_.expect(std::fabs(info.grad_norm - norm) <= (exact ? 1e-5 : 0.1) * norm, text.str(), __FILE__, __LINE__);
        ONEBIT_EXPECT(log_, log_.same_on_all(&info.grad_norm, sizeof info.grad_norm));
    }

    // The possible effect of rounding on each element of a place's shard that the place's rank in a node sent. (On one
    // level the shard is the whole packed buffer, and each rank a node.) 0/1 Adam sends how far x has come, and x is
    // rounded in every step.
    oracle::Vector rounding(std::size_t place, std::size_t node) const {
        oracle::Vector allowed = freezing->reduce.levels[place].worker_scale[node];
        for (double& each : allowed) each *= error_tolerance;
        const auto* const zero_one = dynamic_cast<const oracle::ZeroOneAdam*>(freezing);
        if (zero_one == nullptr || !freezing->frozen()) return allowed;
        const oracle::Range shard = freezing->reduce.shards()[place];
        const oracle::Vector d = oracle::part_of(freezing->packed(zero_one->denominators()), shard);
        const oracle::Vector x = oracle::part_of(freezing->packed(reach_), shard);
        const bool updates = freezing->model.exchange_updates;
        for (std::size_t i = 0; i < allowed.size(); ++i) allowed[i] += 1e-6 * x[i] * (updates ? 1 : d[i]);
        return allowed;
    }

    // Where signs taken over differ from the oracle's: within rounding of zero? And are the errors the oracle's?
    void compare_errors(const OptimizerErrors& errors) {
        const oracle::TwoLevelAllreduce& reduce = freezing->reduce;
        const std::size_t places = reduce.levels.size(), mine = static_cast<std::size_t>(log_.rank());
        std::vector<oracle::Vector> server_rounding; // by place
        for (std::size_t place = 0; place < places; ++place) {
            const oracle::FlatAllreduce& level = reduce.levels[place];
            oracle::Vector all(level.count(), 0.0);
            for (std::size_t node = 0; node < level.worker_c.size(); ++node) {
                const oracle::Vector allowed = rounding(place, node);
                for (std::size_t i = 0; i < allowed.size(); ++i) all[i] += allowed[i];
                if (codec_ == ONEBIT_CODEC_SIGN)
                    expect_plausible("worker", level.worker_signs[node], level.worker_c[node], allowed);
                else
                    expect_fine("worker", level.worker_error[node], level.worker_scale[node], allowed);
            }
            if (codec_ == ONEBIT_CODEC_SIGN)
                expect_plausible("server", level.server_signs, level.server_c, all);
            else
                expect_fine("server", level.server_error, level.server_scale, all);
            server_rounding.push_back(all);
        }

        const oracle::Vector worker = freezing->packed({errors.worker.begin(), errors.worker.end()});
        const oracle::Vector server = freezing->packed({errors.server.begin(), errors.server.end()});
        const oracle::Vector its_worker = reduce.worker_error(log_.rank()),
                             its_server = reduce.server_error(log_.rank());
        const oracle::Vector own_rounding = rounding(mine % places, mine / places);
        const oracle::Range shard = reduce.shard(log_.rank()), chunk = reduce.chunk(log_.rank());
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < worker.size(); ++i) {
            const bool sent_here = i >= shard.begin && i < shard.end();
            const bool served_here = i >= chunk.begin && i < chunk.end();
            const double of_worker = sent_here ? own_rounding[i - shard.begin] : 0;
            const double of_server = served_here ? server_rounding[mine % places][i - shard.begin] : 0;
            if (!(std::fabs(worker[i] - its_worker[i]) <= of_worker)) ++wrong;
            if (!(std::fabs(server[i] - its_server[i]) <= of_server)) ++wrong;
            if (!reduce.takes_part(i) && (worker[i] != 0 || server[i] != 0)) ++wrong;
        }
        log_.expect(wrong == 0, std::to_string(wrong) + " errors of the exchange are wrong", __FILE__, __LINE__);
        // Elements that are never exchanged have none.
        ONEBIT_EXPECT(log_, nonzero(errors.worker) == nonzero(worker) && nonzero(errors.server) == nonzero(server));
    }

    template <class Values>
    static std::ptrdiff_t nonzero(const Values& values) {
        return std::count_if(values.begin(), values.end(), [](auto value) { return value != 0; });
    }

    void expect_plausible(const std::string& whose, const oracle::Signs& signs, const oracle::Vector& c,
                          const oracle::Vector& allowed) {
        const std::int64_t wrong = oracle::first_implausible_sign(signs, c, allowed);
        log_.expect(wrong == -1, "the sign of a " + whose + "'s element " + std::to_string(wrong), __FILE__, __LINE__);
    }

    void expect_fine(const std::string& whose, const oracle::Vector& errors, const oracle::Vector& largest,
                     const oracle::Vector& allowed) {
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < errors.size(); ++i)
            if (!(std::fabs(errors[i]) <= coarseness(codec_) * largest[i] + allowed[i])) ++wrong;
        log_.expect(wrong == 0, std::to_string(wrong) + " errors of a " + whose + " are larger than the code's",
                    __FILE__, __LINE__);
    }

    RankLog& log_;
    onebit_codec_t codec_;
    oracle::Vector reach_; // of each parameter: its largest magnitude so far
};

} // namespace onebit_test
