// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Elements that get their first gradient after the freeze.
#include <cmath>

#include "optim/following.hpp"
#include "support/beside_oracle.hpp"
#include "support/directory.hpp"

using namespace onebit_test;

namespace {

constexpr std::size_t kCount = 301;
constexpr std::size_t kFirstLate = 100; // these have a gradient in every step from 54 on,
constexpr std::size_t kFirstRare = 120; // these in each seventh,
constexpr std::size_t kNever = 130;     // and these have none
constexpr std::size_t kEnd = 140;
constexpr std::uint64_t kBegins = 54;

Gradient late_gradient(std::uint64_t seed) {
    const Gradient gaussian = gaussian_gradient(kCount, seed);
    return [gaussian](int rank, std::uint64_t step) {
        std::vector<float> gradient = gaussian(rank, step);
        for (std::size_t i = kFirstLate; i < kEnd; ++i) {
            const bool has_one = i < kFirstRare ? step >= kBegins : i < kNever && step >= kBegins && step % 7 == 0;
            if (!has_one) gradient[i] = 0;
        }
        return gradient;
    };
}

// Variances are measured about every eighth step: newcomers are admitted as often.
onebit_optimizer_config_t late_config(onebit_optimizer_kind_t kind) {
    onebit_optimizer_config_t config = following_config(kind);
    config.follow_interval = 8;
    config.thaw_ratio = 1e6;
    return config;
}

} // namespace

TEST_CASE("elements whose first gradient comes after the freeze take part, as in the oracle", "[optimizer][mask]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            for (const double clip : {0.0, 30.0}) {
                log.context(name_of(kind) + (clip > 0 ? ", clipped" : ""));
                Setup setup{late_config(kind), {kCount}};
                setup.config.weight_decay = 0.1;
                setup.config.max_grad_norm = clip;
                BesideOracle both(comm, setup, log);
                both.steps(late_gradient(3), 1, kBegins - 1);
                ONEBIT_EXPECT(log, both.training.info().masked == kEnd - kFirstLate);
                both.steps(late_gradient(3), kBegins, 120);
                const onebit_optimizer_info_t info = both.training.info();
                ONEBIT_EXPECT(log, both.freezing->admitted == kNever - kFirstLate);
                ONEBIT_EXPECT(log, info.masked == kEnd - kNever && info.frozen == 1 && info.thaws == 0);
            }
        }
    });
}

TEST_CASE("late elements in buckets, with gradients of 16 bits and tensors that are never compressed",
          "[optimizer][mask]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            log.context(name_of(kind));
            Setup setup{late_config(kind), {5000, 77, 3000}};
            setup.config.bucket_size = 4096;
            setup.gradient_type = ONEBIT_BFLOAT16;
            setup.groups = {ONEBIT_PARAM_GROUP_INIT(0.01), ONEBIT_PARAM_GROUP_INIT(0.01)};
            setup.groups[0].beta2 = 0.9;
            setup.groups[1].no_compress = 1;
            setup.group_of = {0, 1, 0};
            Training training(comm, setup, log);
            const std::vector<float> start = training.parameters();
            const Gradient gaussian = gaussian_gradient(8077, 3);
            for (std::uint64_t t = 1; t <= 100; ++t) {
                std::vector<float> gradient = gaussian(log.rank(), t);
                if (t < kBegins) std::fill(gradient.begin() + 4000, gradient.begin() + 6000, 0.0F); // of all three
                training.step(gradient);
                const std::uint64_t masked = t < kFreezeStep || t >= kBegins + 13 ? 0 : 1923;
                if (t < kBegins || t >= kBegins + 13) ONEBIT_EXPECT(log, training.info().masked == masked);
            }
            const std::vector<float> now = training.parameters();
            std::size_t moved = 0;
            for (std::size_t i = 4000; i < 6000; ++i) moved += now[i] != start[i] && std::isfinite(now[i]) ? 1 : 0;
            ONEBIT_EXPECT(log, moved == 2000);
            ONEBIT_EXPECT(log, training.parameters_same_on_all() || kind == ONEBIT_OPTIMIZER_ZERO_ONE_ADAM);
        }
    });
}

TEST_CASE("elements that are masked where nothing is followed, or of momenta, stay where they are",
          "[optimizer][mask]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            for (const bool momenta : {false, true}) {
                onebit_optimizer_config_t config = late_config(kind);
                if (momenta) config.compressed = ONEBIT_COMPRESSED_MOMENTA;
                if (!momenta) config.follow_interval = ONEBIT_FOLLOW_NEVER;
                log.context(name_of(kind) + (momenta ? " of momenta" : ""));
                Training training(comm, config, {kCount}, log);
                const std::vector<float> start = training.parameters();
                training.steps(late_gradient(3), 1, 100);
                const std::vector<float> now = training.parameters();
                ONEBIT_EXPECT(log, training.info().masked == kEnd - kFirstLate);
                ONEBIT_EXPECT(log,
                              std::equal(start.begin() + kFirstLate, start.begin() + kEnd, now.begin() + kFirstLate));
            }
        }
    });
}

// With default betas and intervals. The element is one of an embedding: it has a gradient every few hundred steps.
TEST_CASE("rare elements go about as far as by Adam, if first seen before the freeze or after it",
          "[optimizer][mask][long]") {
    if (!can_have_ranks(2)) return;
    run_ranks(2, [](onebit_comm_t comm, RankLog& log) {
        constexpr std::size_t count = 1000;
        constexpr std::size_t early = 100; // of each
        constexpr std::size_t late = 200;
        const auto distances = [&](onebit_optimizer_kind_t kind) {
            onebit_optimizer_config_t config = optimizer_config(kind, 1e-3);
            if (freezes(kind)) config.freeze_step = 1000;
            config.variance_updates = 1000; // 0/1 Adam: exact until then
            Training training(comm, config, {count}, log);
            const std::vector<float> start = training.parameters();
            const Gradient gaussian = gaussian_gradient(count, 5);
            for (std::uint64_t t = 1; t <= 4000; ++t) {
                std::vector<float> gradient = gaussian(log.rank(), t);
                for (std::size_t i = 0; i < late; ++i) {
                    const bool has_one = (t + i) % 400 == 0 && (i < early || t > 1000);
                    gradient[i] = has_one ? 1.0F : 0.0F;
                }
                training.step(gradient);
            }
            std::vector<double> means(2);
            const std::vector<float> now = training.parameters();
            for (std::size_t i = 0; i < late; ++i) means[i / early] += std::abs(now[i] - start[i]) / double{early};
            return means;
        };
        const std::vector<double> dense = distances(ONEBIT_OPTIMIZER_ADAM);
        for (const onebit_optimizer_kind_t kind : {ONEBIT_OPTIMIZER_ONEBIT_ADAM, ONEBIT_OPTIMIZER_ZERO_ONE_ADAM}) {
            const std::vector<double> compressed = distances(kind);
            log.context(name_of(kind) + ": " + std::to_string(compressed[0]) + " and " + std::to_string(compressed[1]) +
                        ", Adam " + std::to_string(dense[0]) + " and " + std::to_string(dense[1]));
            for (const std::size_t k : {0, 1}) {
                ONEBIT_EXPECT(log, compressed[k] > dense[k] / 2 && compressed[k] < 1.5 * dense[k]);
            }
        }
    });
}

TEST_CASE("what masked elements have gathered is saved", "[optimizer][mask][save]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const SharedDirectory directory(log);
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            log.context(name_of(kind));
            constexpr std::uint64_t saved_at = kBegins + 1;
            const std::string prefix = directory.prefix(std::to_string(kind));
            Training first(comm, late_config(kind), {kCount}, log);
            first.steps(late_gradient(3), 1, saved_at);
            ONEBIT_EXPECT(log, first.info().masked == kEnd - kFirstLate);
            ONEBIT_EXPECT_OK(log, onebit_optimizer_save(first.get(), prefix.c_str()));
            Training second(comm, late_config(kind), {kCount}, log);
            ONEBIT_EXPECT_OK(log, onebit_optimizer_load(second.get(), prefix.c_str()));
            for (Training* each : {&first, &second}) each->steps(late_gradient(3), saved_at + 1, 100);
            ONEBIT_EXPECT(log, first.info().masked == kEnd - kNever && second.info().masked == kEnd - kNever);
            ONEBIT_EXPECT(log, same_bits(first.parameters(), second.parameters()));

            onebit_optimizer_config_t config = late_config(kind);
            config.follow_interval = ONEBIT_FOLLOW_NEVER;
            Training third(comm, config, {kCount}, log); // loads it, and drops what it doesn't use
            ONEBIT_EXPECT_OK(log, onebit_optimizer_load(third.get(), prefix.c_str()));
            third.steps(late_gradient(3), saved_at + 1, 100);
            ONEBIT_EXPECT(log, third.info().masked == kEnd - kFirstLate);
            const OptimizerErrors errors = third.errors();
            ONEBIT_EXPECT(log, std::all_of(errors.worker.begin() + kFirstLate, errors.worker.begin() + kEnd,
                                           [](float error) { return error == 0; }));
        }
    });
}
