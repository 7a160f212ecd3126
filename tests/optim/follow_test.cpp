// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// A frozen variance is followed. Where the variance outgrows the freeze, the freeze ends.
#include <cmath>

#include "optim/following.hpp"
#include "support/beside_oracle.hpp"
#include "support/directory.hpp"

using namespace onebit_test;

namespace {

constexpr std::uint64_t grows_at = 110;

// Gradients that fade after the freeze, and from step 110 on are a multiple of what they were before it.
Gradient changing_gradient(std::size_t count, std::uint64_t seed) {
    const Gradient gaussian = gaussian_gradient(count, seed);
    return [gaussian](int rank, std::uint64_t step) {
        std::vector<float> gradient = gaussian(rank, step);
        const float scale = step <= 60 ? 1.0F : step < grows_at ? 0.3F : 6.0F;
        for (float& g : gradient) g *= scale;
        return gradient;
    };
}

std::vector<onebit_optimizer_kind_t> kinds() {
    return {ONEBIT_OPTIMIZER_ONEBIT_ADAM, ONEBIT_OPTIMIZER_ONEBIT_LAMB, ONEBIT_OPTIMIZER_ZERO_ONE_ADAM};
}

} // namespace

TEST_CASE("followed variances equal the oracle, through a thaw and a second freeze", "[optimizer][freeze][long]") {
    const int n = GENERATE(from_range(rank_counts()));
    const onebit_optimizer_kind_t kind = GENERATE(from_range(kinds()));
    const auto [eps, corrected] = GENERATE(table<double, int>({{1e-8, 1}, {0.05, 1}, {1e-8, 0}}));
    run_ranks(n, [=, eps = eps, corrected = corrected](onebit_comm_t comm, RankLog& log) {
        log.context(name_of(kind) + ", eps " + std::to_string(eps) + (corrected == 0 ? ", bias not corrected" : ""));
        Setup setup{following_config(kind), {301}};
        setup.config.eps = eps;
        setup.config.bias_correction = corrected;
        setup.config.weight_decay = 0.1;
        BesideOracle both(comm, setup, log);
        const Gradient gradient = changing_gradient(301, 3);
        both.steps(gradient, 1, grows_at - 1);
        const onebit_optimizer_info_t faded = both.training.info();
        ONEBIT_EXPECT(log, faded.frozen == 1 && faded.thaws == 0);
        ONEBIT_EXPECT(log, faded.variance_ratio > 0.05 && faded.variance_ratio < 0.2); // 0.09
        both.steps(gradient, grows_at, 200);
        const onebit_optimizer_info_t info = both.training.info();
        ONEBIT_EXPECT(log, both.freezing->thaws >= 1 && info.thaws == both.freezing->thaws);
        ONEBIT_EXPECT(log, info.frozen == 1 && info.freeze_step >= grows_at + 10);
        ONEBIT_EXPECT(log, info.freeze_step == both.freezing->freeze_step);
        // A measurement's standard deviation is 12.5 %, of which a third counts.
        ONEBIT_EXPECT(log, both.freezing->worst_estimate < 0.3);
    });
}

TEST_CASE("a stationary variance stays what it is, and nothing thaws", "[optimizer][freeze][long]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : kinds()) {
            log.context(name_of(kind));
            onebit_optimizer_config_t config = optimizer_config(kind, 1e-4);
            config.freeze_step = 1000;
            config.variance_updates = 10000;
            config.follow_interval = 8;
            Training training(comm, config, {5000, 40}, log);
            training.steps(gaussian_gradient(5040, 7), 1, 2200);
            const onebit_optimizer_info_t info = training.info();
            ONEBIT_EXPECT(log, info.thaws == 0 && info.freeze_step == 1000);
            ONEBIT_EXPECT(log, info.variance_ratio > 0.9 && info.variance_ratio < 1.3);
            ONEBIT_EXPECT(log, training.parameters_same_on_all() || kind == ONEBIT_OPTIMIZER_ZERO_ONE_ADAM);
        }
    });
}

// The third of four tensors, one of which is never compressed.
TEST_CASE("a tensor's growth is its own", "[optimizer][freeze]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const std::uint64_t bucket_size : {0, 2048}) {
            Setup setup{following_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM), {3000, 50, 2000, 7}};
            setup.config.bucket_size = bucket_size;
            setup.config.thaw_ratio = 1e6;
            setup.groups = {ONEBIT_PARAM_GROUP_INIT(0.01), ONEBIT_PARAM_GROUP_INIT(0.01)};
            setup.groups[0].beta2 = 0.9;
            setup.groups[1].no_compress = 1;
            setup.group_of = {0, 1, 0, 0};
            Training training(comm, setup, log);
            const Gradient gaussian = gaussian_gradient(5057, 3);
            for (std::uint64_t t = 1; t <= 140; ++t) {
                std::vector<float> gradient = gaussian(log.rank(), t);
                for (std::size_t i = 3050; i < 5050; ++i) gradient[i] *= t <= 60 ? 1.0F : 3.0F;
                training.step(gradient);
            }
            const onebit_optimizer_info_t info = training.info();
            log.context("ratio " + std::to_string(info.variance_ratio));
            ONEBIT_EXPECT(log, info.variance_tensor == 2);
            ONEBIT_EXPECT(log, info.variance_ratio > 6.5 && info.variance_ratio < 12.5); // 9
        }
    });
}

TEST_CASE("one outlier ends no freeze", "[optimizer][freeze]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Training training(comm, following_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM), {1, 2000}, log);
        const Gradient gaussian = gaussian_gradient(2001, 3);
        for (std::uint64_t t = 1; t <= 120; ++t) {
            std::vector<float> gradient = gaussian(log.rank(), t);
            for (float& g : gradient) g *= t == 60 ? 1e6F : 1; // a step that is measured
            training.step(gradient);
        }
        const onebit_optimizer_info_t info = training.info();
        ONEBIT_EXPECT(log, info.thaws == 0 && info.freeze_step == kFreezeStep);
    });
}

// How far the parameters go after step `from`, up to step `to`; gradients are gaussian ones times fade(t).
template <typename Fade>
double last_distance(onebit_comm_t comm, RankLog& log, onebit_optimizer_config_t config, std::uint64_t from,
                     std::uint64_t to, const Fade& fade) {
    config.beta2 = 0.99;
    if (freezes(config.kind)) config.freeze_step = 200;
    Training training(comm, config, {2000}, log);
    const Gradient gaussian = gaussian_gradient(2000, 5);
    std::vector<float> before;
    for (std::uint64_t t = 1; t <= to; ++t) {
        std::vector<float> gradient = gaussian(log.rank(), t);
        for (float& g : gradient) g *= static_cast<float>(fade(t));
        if (t == from + 1) before = training.parameters();
        training.step(gradient);
    }
    double squares = 0;
    const std::vector<float> after = training.parameters();
    for (std::size_t i = 0; i < after.size(); ++i) squares += std::pow(double{after[i]} - before[i], 2);
    return std::sqrt(squares);
}

// Adam's own first steps are long then, too, until its variance has grown.
TEST_CASE("gradients that come back after a fade take a way like Adam's", "[optimizer][freeze][long]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const auto distance = [&](onebit_optimizer_kind_t kind) {
            return last_distance(comm, log, optimizer_config(kind, 1e-3), 1200, 1300, [](std::uint64_t t) {
                return t <= 200 || t > 1200 ? 1 : std::exp(-static_cast<double>(t - 200) / 150);
            });
        };
        const double adam = distance(ONEBIT_OPTIMIZER_ADAM);
        const double followed = distance(ONEBIT_OPTIMIZER_ONEBIT_ADAM);
        log.context("adam " + std::to_string(adam) + ", 1-bit Adam " + std::to_string(followed));
        ONEBIT_EXPECT(log, followed < 3 * adam); // of 800 times as long in its first steps, if nothing noticed
    });
}

TEST_CASE("steps keep Adam's length as gradients fade", "[optimizer][freeze][long]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const auto distance = [&](onebit_optimizer_kind_t kind, std::uint32_t interval) {
            onebit_optimizer_config_t config = optimizer_config(kind, 1e-3);
            if (freezes(kind)) config.follow_interval = interval;
            return last_distance(comm, log, config, 1000, 1200,
                                 [](std::uint64_t t) { return std::exp(-static_cast<double>(t) / 200); });
        };
        const double adam = distance(ONEBIT_OPTIMIZER_ADAM, 0);
        const double followed = distance(ONEBIT_OPTIMIZER_ONEBIT_ADAM, 16);
        const double stopped = distance(ONEBIT_OPTIMIZER_ONEBIT_ADAM, ONEBIT_FOLLOW_NEVER);
        log.context("adam " + std::to_string(adam) + ", followed " + std::to_string(followed) + ", not followed " +
                    std::to_string(stopped));
        ONEBIT_EXPECT(log, followed > 0.8 * adam && followed < 1.25 * adam);
        ONEBIT_EXPECT(log, stopped < 0.2 * adam);
    });
}

TEST_CASE("a freeze by a rule that has thawed comes again by the rule", "[optimizer][freeze][long]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : kinds()) {
            for (const std::uint64_t rule : {std::uint64_t{ONEBIT_FREEZE_AUTO}, ONEBIT_FREEZE_PAPER}) {
                log.context(name_of(kind) + (rule == ONEBIT_FREEZE_AUTO ? ", AUTO" : ", PAPER"));
                onebit_optimizer_config_t config = following_config(kind);
                config.lr = 1e-4; // 1-bit LAMB waits for norms of parameters, too
                config.freeze_step = rule;
                config.freeze_window = 16;
                Training training(comm, config, {3000}, log);
                const Gradient gradient = changing_gradient(3000, 3);
                std::uint64_t thawed_at = 0;
                bool was_frozen = false;
                for (std::uint64_t t = 1; t <= 400; ++t) {
                    training.steps(gradient, t, t);
                    const onebit_optimizer_info_t info = training.info();
                    if (t == grows_at - 1) was_frozen = info.frozen != 0;
                    if (thawed_at == 0 && info.thaws > 0) thawed_at = t;
                }
                const onebit_optimizer_info_t info = training.info();
                log.context("thawed at " + std::to_string(thawed_at) + ", frozen at " +
                            std::to_string(info.freeze_step));
                ONEBIT_EXPECT(log, was_frozen && thawed_at >= grows_at);
                ONEBIT_EXPECT(log, info.frozen == 1 && info.freeze_step >= thawed_at + 10);
            }
        }
    });
}

TEST_CASE("momenta are not followed: their growth is told, and nothing else changes", "[optimizer][freeze]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : {ONEBIT_OPTIMIZER_ONEBIT_ADAM, ONEBIT_OPTIMIZER_ZERO_ONE_ADAM}) {
            log.context(name_of(kind));
            onebit_optimizer_config_t config = following_config(kind);
            config.compressed = ONEBIT_COMPRESSED_MOMENTA;
            const Gradient gradient = changing_gradient(300, 3);
            Training measured(comm, config, {300}, log);
            measured.steps(gradient, 1, grows_at - 1);
            const double faded = measured.info().variance_ratio;
            ONEBIT_EXPECT(log, faded > 0.05 && faded < 0.2); // 0.09
            measured.steps(gradient, grows_at, 200);
            config.follow_interval = ONEBIT_FOLLOW_NEVER;
            Training plain(comm, config, {300}, log);
            plain.steps(gradient, 1, 200);
            ONEBIT_EXPECT(log, same_bits(measured.parameters(), plain.parameters()));
            const onebit_optimizer_info_t info = measured.info();
            ONEBIT_EXPECT(log, info.thaws == 0 && info.freeze_step == kFreezeStep && info.variance_ratio > 4);
            ONEBIT_EXPECT(log, plain.info().variance_ratio == 0);
            ONEBIT_EXPECT(log, log.size() == 1 || info.compressed_bytes_sent > plain.info().compressed_bytes_sent);
        }
    });
}

TEST_CASE("a thaw in buckets, with tensors that are never compressed", "[optimizer][freeze]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : kinds()) {
            log.context(name_of(kind));
            Setup setup{following_config(kind), {5000, 77, 3000}};
            setup.config.bucket_size = 4096;
            setup.groups = {ONEBIT_PARAM_GROUP_INIT(0.01), ONEBIT_PARAM_GROUP_INIT(0.01)};
            setup.groups[0].beta2 = 0.9;
            setup.groups[1].no_compress = 1;
            setup.group_of = {0, 1, 0};
            Training training(comm, setup, log);
            training.steps(changing_gradient(8077, 3), 1, 160);
            const onebit_optimizer_info_t info = training.info();
            ONEBIT_EXPECT(log, info.thaws >= 1 && info.frozen == 1 && info.freeze_step > grows_at);
            ONEBIT_EXPECT(log, info.variance_tensor != 1);
            ONEBIT_EXPECT(log, info.exact_rounds > kFreezeStep);
            for (const float x : training.parameters()) ONEBIT_EXPECT(log, std::isfinite(x));
            ONEBIT_EXPECT(log, training.parameters_same_on_all() || kind == ONEBIT_OPTIMIZER_ZERO_ONE_ADAM);
        }
    });
}

TEST_CASE("a save goes on as if nothing had happened, before and after a thaw", "[optimizer][freeze][save]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const SharedDirectory directory(log);
        for (const onebit_optimizer_kind_t kind : kinds()) {
            for (const std::uint64_t saved_at : {std::uint64_t{90}, grows_at + 6}) {
                log.context(name_of(kind) + ", saved after step " + std::to_string(saved_at));
                const std::string prefix = directory.prefix(std::to_string(kind) + "-" + std::to_string(saved_at));
                const Gradient gradient = changing_gradient(500, 3);
                Training first(comm, following_config(kind), {100, 400}, log);
                first.steps(gradient, 1, saved_at);
                ONEBIT_EXPECT_OK(log, onebit_optimizer_save(first.get(), prefix.c_str()));
                Training second(comm, following_config(kind), {100, 400}, log);
                ONEBIT_EXPECT_OK(log, onebit_optimizer_load(second.get(), prefix.c_str()));
                const bool frozen = first.info().frozen != 0;
                ONEBIT_EXPECT(log, second.info().variance_ratio == (frozen ? first.info().variance_ratio : 0));
                first.steps(gradient, saved_at + 1, 200);
                second.steps(gradient, saved_at + 1, 200);
                ONEBIT_EXPECT(log, first.info().thaws >= 1 && second.info().thaws == first.info().thaws);
                ONEBIT_EXPECT(log, same_bits(first.parameters(), second.parameters()));

                // An optimizer that doesn't follow loads it, too, and vice versa.
                onebit_optimizer_config_t config = following_config(kind);
                config.follow_interval = ONEBIT_FOLLOW_NEVER;
                Training third(comm, config, {100, 400}, log);
                ONEBIT_EXPECT_OK(log, onebit_optimizer_load(third.get(), prefix.c_str()));
                third.steps(gradient, saved_at + 1, saved_at + 4);
                ONEBIT_EXPECT_OK(log, onebit_optimizer_save(third.get(), prefix.c_str()));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_load(second.get(), prefix.c_str()));
                second.steps(gradient, saved_at + 5, saved_at + 9);
            }
        }
    });
}
