// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// A NaN or an infinity in one rank's gradients: every rank skips the step, and only the count of such steps changes.
#include <limits>

#include "support/magnitudes.hpp"
#include "support/training.hpp"

using namespace onebit_test;

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

Setup skipping_setup(onebit_optimizer_kind_t kind, onebit_datatype_t type) {
    Setup setup{quick_config(kind), {40, 33, 61, 1}};
    setup.config.weight_decay = 0.1;
    setup.config.max_grad_norm = type == ONEBIT_FLOAT32 ? 0 : 20;
    setup.groups.assign(2, ONEBIT_PARAM_GROUP_INIT(0.01));
    setup.groups[1].no_compress = 1;
    setup.group_of = {0, 1, 0, 0};
    setup.gradient_type = type;
    setup.copies = true;
    setup.copy_type = type;
    return setup;
}

void expect_skipped(Training& training, RankLog& log, int faulty) {
    const Snapshot before(training);
    ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "nan|inf;rank " + std::to_string(faulty),
                          onebit_optimizer_step(training.get()));
    const Snapshot after(training);
    ONEBIT_EXPECT(log, after.same_as(before));
    ONEBIT_EXPECT(log, after.info.skipped == before.info.skipped + 1);
}

} // namespace

TEST_CASE("a rank's NaN or infinity changes nothing, in any stage", "[optimizer][overflow]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            for (onebit_datatype_t type : {ONEBIT_FLOAT32, ONEBIT_FLOAT16, ONEBIT_BFLOAT16}) {
                const Setup setup = skipping_setup(kind, type);
                const Gradient gradient = gaussian_gradient(total(setup.sizes), 1);
                Training training(comm, setup, log), twin(comm, setup, log);
                for (std::uint64_t t = 1; t <= 17; ++t) {
                    const float values[] = {not_a_number, infinity, -infinity};
                    const std::size_t places[] = {0, 57, 100, total(setup.sizes) - 1}; // 57: not compressed
                    const int faulty = static_cast<int>(t) % log.size();
                    for (std::uint64_t k = t; k < t + 2; ++k) {
                        log.context(name_of(kind) + ", type " + std::to_string(static_cast<int>(type)) + ", step " +
                                    std::to_string(t) + ", place " + std::to_string(places[k % 4]));
                        std::vector<float> bad = gradient(log.rank(), 1000 + t);
                        if (log.rank() == faulty) bad[places[k % 4]] = values[k % 3];
                        training.set_gradients(bad);
                        expect_skipped(training, log, faulty);
                    }
                    training.steps(gradient, t, t);
                    twin.steps(gradient, t, t);
                    ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
                }
                ONEBIT_EXPECT(log, training.info().skipped == 34 && twin.info().skipped == 0);
            }
        }
    });
}

TEST_CASE("a gradient whose square overflows changes nothing, in any stage", "[optimizer][overflow]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            for (onebit_datatype_t type : {ONEBIT_FLOAT32, ONEBIT_BFLOAT16}) {
                const Setup setup = skipping_setup(kind, type);
                const Gradient gradient = gaussian_gradient(total(setup.sizes), 1);
                Training training(comm, setup, log), twin(comm, setup, log);
                for (std::uint64_t t = 1; t <= 14; ++t) {
                    const float scale = t % 2 == 0 ? 1.0f : 0x1p10f;
                    for (Training* each : {&training, &twin}) {
                        ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(each->get(), scale));
                    }
                    log.context(name_of(kind) + ", type " + std::to_string(static_cast<int>(type)) + ", step " +
                                std::to_string(t));
                    const std::size_t places[] = {0, 57, 100, total(setup.sizes) - 1};
                    for (const float value : {-1.9e19f * scale, 1e20f * scale, 3.3e38f}) {
                        std::vector<float> bad = gradient(log.rank(), 1000 + t);
                        if (log.last_rank()) bad[places[t % 4]] = value;
                        training.set_gradients(bad);
                        const Snapshot before(training);
                        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "gradients[;overflow",
                                              onebit_optimizer_step(training.get()));
                        ONEBIT_EXPECT(log, Snapshot(training).same_as(before));
                    }
                    training.steps(gradient, t, t);
                    twin.steps(gradient, t, t);
                    ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
                }
                ONEBIT_EXPECT(log, training.info().skipped == 42);
            }
        }
    });
}

TEST_CASE("gradients as large as steps take leave all finite, and later steps go on", "[optimizer][overflow]") {
    const int n = GENERATE(from_range(rank_counts()));
    const std::uint64_t outlier = GENERATE(as<std::uint64_t>(), 1, 5, 8); // one before the freeze, one after it
    const bool everywhere = GENERATE(false, true);
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            for (const double beta2 : {0.999, 0.9999999}) {
                onebit_optimizer_config_t config = quick_config(kind);
                config.beta2 = beta2;
                Training training(comm, config, {40, 61}, log);
                for (std::uint64_t t = 1; t <= 40; ++t) {
                    log.context(name_of(kind) + ", step " + std::to_string(t));
                    std::vector<float> gradient = gaussian_gradient(101, 1)(log.rank(), t);
                    const float large = beta2 < 0.9999 ? 1.8e19f : 0.4e19f;
                    if (t == outlier || (everywhere && t > outlier)) gradient[50] = large;
                    if (t == outlier && everywhere) gradient.assign(101, -large);
                    training.step(gradient);
                    const Snapshot now(training);
                    ONEBIT_EXPECT(log, all_finite(now.parameters) && all_finite(now.errors.worker) &&
                                           all_finite(now.errors.server));
                }
                ONEBIT_EXPECT(log, training.parameters_same_on_all());
            }
        }
    });
}

TEST_CASE("a dynamic loss scale can go on from a skipped step", "[optimizer][overflow]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Sizes sizes = {40, 61};
        const Gradient gradient = gaussian_gradient(total(sizes), 1);
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            Setup setup{quick_config(kind), sizes};
            Training plain(comm, setup, log);
            setup.gradient_type = ONEBIT_FLOAT16;
            Training scaled(comm, setup, log);
            float scale = 0x1p20f; // too much for binary16: halved until it fits
            for (std::uint64_t t = 1; t <= 12; ++t) {
                const std::vector<float> mine = gradient(log.rank(), t);
                onebit_status_t status = ONEBIT_ERROR_NONFINITE;
                for (int attempt = 0; attempt < 30 && status == ONEBIT_ERROR_NONFINITE; ++attempt) {
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(scaled.get(), scale));
                    std::vector<float> values = mine;
                    for (float& value : values) value *= scale;
                    scaled.set_gradients(values);
                    status = onebit_optimizer_step(scaled.get());
                    ONEBIT_EXPECT(log, log.same_on_all(&status, sizeof status));
                    if (status == ONEBIT_ERROR_NONFINITE) scale /= 2;
                }
                ONEBIT_EXPECT(log, status == ONEBIT_SUCCESS);
                std::vector<float> rounded_here = mine; // the received values without the scale
                for (float& value : rounded_here) value = rounded(value * scale, ONEBIT_FLOAT16) / scale;
                plain.step(rounded_here);
                ONEBIT_EXPECT(log, same_bits(plain.parameters(), scaled.parameters()));
            }
            ONEBIT_EXPECT(log, scaled.info().skipped >= 5 && scaled.info().steps == 12);
        }
    });
}

TEST_CASE("several ranks overflow at once", "[optimizer][overflow]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            const Sizes sizes = {40, 61};
            Training training(comm, quick_config(kind), sizes, log);
            const Gradient gradient = gaussian_gradient(total(sizes), 1);
            for (std::uint64_t t = 1; t <= 12; ++t) {
                const Snapshot before(training);
                training.set_gradients(std::vector<float>(total(sizes), log.rank() % 2 == 0 ? not_a_number : infinity));
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "nan|inf;rank",
                                      onebit_optimizer_step(training.get()));
                ONEBIT_EXPECT(log, Snapshot(training).same_as(before));
                training.steps(gradient, t, t);
            }
            ONEBIT_EXPECT(log, training.info().skipped == 12);
        }
    });
}
