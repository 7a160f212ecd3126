// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Invalid calls on an optimizer: the same status and a message on every rank, and training goes on as without these
// calls.
#include <limits>

#include "support/training.hpp"

using namespace onebit_test;

namespace {

constexpr onebit_status_t bad = ONEBIT_ERROR_INVALID_ARGUMENT;

const Sizes& sizes() {
    static const Sizes both = {40, 61};
    return both;
}

const Gradient& gradient() {
    static const Gradient both = gaussian_gradient(total(sizes()), 17);
    return both;
}

// A training with failures, and one without.
struct Pair {
    Pair(onebit_comm_t comm, const onebit_optimizer_config_t& config, RankLog& log_in)
        : log(log_in), training(comm, config, sizes(), log), twin(comm, config, sizes(), log) {}
    void steps(std::uint64_t first, std::uint64_t last) {
        for (std::uint64_t t = first; t <= last; ++t) {
            training.steps(gradient(), t, t);
            twin.steps(gradient(), t, t);
            expect_equal();
        }
    }
    void expect_equal() { ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin))); }

    RankLog& log;
    Training training, twin;
};

} // namespace

TEST_CASE("steps without gradients", "[optimizer][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::string who = ";rank " + std::to_string(log.size() - 1);
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            const onebit_optimizer_config_t config = quick_config(kind);
            std::vector<float> x = initial_parameters(101), g(101), other_g(101);
            std::vector<onebit_tensor_t> tensors = {ONEBIT_TENSOR_INIT(x.data(), g.data(), 40),
                                                    ONEBIT_TENSOR_INIT(x.data() + 40, NULL, 61)};
            tensors[1].name = "the late one";
            onebit_optimizer_t handle = nullptr;
            ONEBIT_EXPECT_OK(log, onebit_optimizer_create(comm, &config, tensors.data(), 2, &handle));
            Training twin(comm, config, sizes(), log);
            for (std::uint64_t t = 1; t <= 12; ++t) {
                const std::vector<float> before = x;
                const std::vector<float> values = gradient()(log.rank(), t);
                std::vector<float>& where = t % 2 == 0 ? g : other_g; // another place in each step
                std::copy(values.begin(), values.begin() + 40, g.begin());
                std::copy(values.begin() + 40, values.end(), where.begin() + 40);
                if (t % 3 == 1) { // none on any rank at first, later on the last alone
                    if (t == 1 || log.last_rank())
                        ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradients(handle, 1, nullptr));
                    ONEBIT_EXPECT_FAILURE(log, bad, "gradients;the late one" + (t == 1 ? std::string(";rank") : who),
                                          onebit_optimizer_step(handle));
                    ONEBIT_EXPECT(log, same_bits(x, before));
                }
                ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradients(handle, 1, where.data() + 40));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_step(handle));
                twin.step(values);
                ONEBIT_EXPECT(log, same_bits(x, twin.parameters()));
            }
            ONEBIT_EXPECT_OK(log, onebit_optimizer_destroy(handle));
        }
    });
}

TEST_CASE("gradients that can't be", "[optimizer][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Pair pair(comm, quick_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM), log);
        const onebit_optimizer_t handle = pair.training.get();
        std::vector<float> other(100, 1e9f);
        const char* const bytes = reinterpret_cast<const char*>(other.data());
        for (std::uint64_t t = 1; t <= 9; t += 4) {
            for (std::size_t index : {std::size_t{2}, std::size_t{3}, std::size_t{0} - 1})
                ONEBIT_EXPECT_FAILURE(log, bad, "tensor", onebit_optimizer_set_gradients(handle, index, other.data()));
            for (int offset : {1, 2, 3})
                ONEBIT_EXPECT_FAILURE(log, bad, "align", onebit_optimizer_set_gradients(handle, 1, bytes + offset));
            pair.steps(t, t + 3);
        }
        std::vector<float> x(40);
        onebit_tensor_t half = ONEBIT_TENSOR_INIT(x.data(), NULL, 40);
        half.gradient_type = ONEBIT_FLOAT16;
        const onebit_optimizer_config_t config = optimizer_config(ONEBIT_OPTIMIZER_ADAM);
        onebit_optimizer_t optimizer = nullptr;
        ONEBIT_EXPECT_OK(log, onebit_optimizer_create(comm, &config, &half, 1, &optimizer));
        ONEBIT_EXPECT_FAILURE(log, bad, "align", onebit_optimizer_set_gradients(optimizer, 0, bytes + 1));
        ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradients(optimizer, 0, bytes + 2));
        ONEBIT_EXPECT_OK(log, onebit_optimizer_destroy(optimizer));
    });
}

TEST_CASE("learning rates and scales that can't be", "[optimizer][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            Pair pair(comm, quick_config(kind), log);
            const onebit_optimizer_t handle = pair.training.get();
            for (std::uint64_t t = 1; t <= 9; t += 4) {
                for (double lr : {-1.0, nan, infinity, 1e50}) {
                    ONEBIT_EXPECT_FAILURE(log, bad, "lr", onebit_optimizer_set_lr(handle, lr));
                    ONEBIT_EXPECT_FAILURE(log, bad, "lr", onebit_optimizer_set_group_lr(handle, 0, lr));
                }
                ONEBIT_EXPECT_FAILURE(log, bad, "group", onebit_optimizer_set_group_lr(handle, 1, 0.5));
                for (double scale : {0.0, -1.0, nan, infinity, 1e-50, 1e50})
                    ONEBIT_EXPECT_FAILURE(log, bad, "scale", onebit_optimizer_set_gradient_scale(handle, scale));
                onebit_optimizer_info_t info = ONEBIT_OPTIMIZER_INFO_INIT;
                info.version = 5;
                ONEBIT_EXPECT_FAILURE(log, bad, "version", onebit_optimizer_get_info(handle, &info));
                info = ONEBIT_OPTIMIZER_INFO_INIT;
                info.size = 16;
                ONEBIT_EXPECT_FAILURE(log, bad, "size", onebit_optimizer_get_info(handle, &info));
                ONEBIT_EXPECT_FAILURE(log, bad, "info", onebit_optimizer_get_info(handle, nullptr));
                pair.steps(t, t + 3);
            }
        }
    });
}

TEST_CASE("ranks whose learning rate, gradient scale or stage differ", "[optimizer][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    if (n < 2) { // needs two ranks
        SUCCEED();
        return;
    }
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            onebit_optimizer_config_t config = quick_config(kind);
            config.freeze_step = ONEBIT_FREEZE_NEVER;
            Pair pair(comm, config, log);
            const onebit_optimizer_t handle = pair.training.get();
            const auto expect_mismatch = [&](const std::string& needles) {
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "rank;" + needles, onebit_optimizer_step(handle));
                pair.expect_equal();
            };
            const auto expect_mismatches = [&] {
                pair.training.set_gradients(gradient()(log.rank(), 99));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_set_lr(handle, log.last_rank() ? 0.02 : 0.01));
                expect_mismatch("lr|learning rate");
                ONEBIT_EXPECT_OK(log, onebit_optimizer_set_lr(handle, 0.01));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(handle, log.rank() == 0 ? 2 : 1));
                expect_mismatch("scale");
                ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(handle, 1));
            };
            pair.steps(1, 4);
            expect_mismatches();
            if (freezes(kind)) {
                if (log.rank() == 0) ONEBIT_EXPECT_OK(log, onebit_optimizer_freeze(handle));
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "rank;stage|froze|freeze",
                                      onebit_optimizer_step(handle));
                // The other ranks catch up, and training goes on as without the failure.
                if (log.rank() != 0) ONEBIT_EXPECT_OK(log, onebit_optimizer_freeze(handle));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_freeze(pair.twin.get()));
            }
            pair.steps(5, 12); // 0/1 Adam: local steps at 9 and 11
            expect_mismatches();
            pair.steps(13, 16);
        }
    });
}

TEST_CASE("freezing too early, twice, or what doesn't freeze", "[optimizer][bad input][freeze]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            onebit_optimizer_config_t config = quick_config(kind);
            config.freeze_step = ONEBIT_FREEZE_NEVER;
            Pair pair(comm, config, log);
            const onebit_optimizer_t handle = pair.training.get();
            const std::string needles = freezes(kind) ? "step" : "freeze|adam|lamb";
            ONEBIT_EXPECT_FAILURE(log, bad, needles, onebit_optimizer_freeze(handle));
            ONEBIT_EXPECT(log, pair.training.info().frozen == 0);
            pair.steps(1, 2);
            if (!freezes(kind)) {
                ONEBIT_EXPECT_FAILURE(log, bad, needles, onebit_optimizer_freeze(handle));
            } else {
                ONEBIT_EXPECT_OK(log, onebit_optimizer_freeze(handle));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_freeze(pair.twin.get()));
                for (std::uint64_t t = 3; t <= 9; ++t) {
                    ONEBIT_EXPECT_FAILURE(log, bad, "already", onebit_optimizer_freeze(handle));
                    pair.steps(t, t);
                    ONEBIT_EXPECT(log, pair.training.info().freeze_step == 2);
                }
            }
            pair.steps(10, 12);
            if (!freezes(kind)) ONEBIT_EXPECT(log, pair.training.info().compressed_bytes_sent == 0);
        }
        log.context("after a freeze that was planned");
        Pair pair(comm, quick_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM), log);
        pair.steps(1, 6);
        ONEBIT_EXPECT_FAILURE(log, bad, "already", onebit_optimizer_freeze(pair.training.get()));
        pair.steps(7, 9);
    });
}

TEST_CASE("optimizer handles that are none", "[optimizer][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const onebit_optimizer_config_t config = quick_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM);
        std::vector<float> x(100, 0.5f), g(100, 0.5f);
        const onebit_tensor_t tensor = ONEBIT_TENSOR_INIT(x.data(), g.data(), 100);
        onebit_optimizer_t destroyed = nullptr;
        ONEBIT_EXPECT_OK(log, onebit_optimizer_create(comm, &config, &tensor, 1, &destroyed));
        ONEBIT_EXPECT_OK(log, onebit_optimizer_destroy(destroyed));
        Allreduce allreduce(comm, flat_config(100), log);
        Pair pair(comm, config, log);
        pair.steps(1, 1);
        const std::vector<onebit_optimizer_t> none = {nullptr, destroyed, reinterpret_cast<onebit_optimizer_t>(comm),
                                                      reinterpret_cast<onebit_optimizer_t>(allreduce.get()),
                                                      reinterpret_cast<onebit_optimizer_t>(x.data())};
        const onebit_status_t expected = ONEBIT_ERROR_INVALID_HANDLE;
        onebit_optimizer_info_t info = ONEBIT_OPTIMIZER_INFO_INIT;
        for (onebit_optimizer_t handle : none) {
            ONEBIT_EXPECT_STATUS(log, expected, onebit_optimizer_step(handle));
            ONEBIT_EXPECT_STATUS(log, expected, onebit_optimizer_set_gradients(handle, 0, g.data()));
            ONEBIT_EXPECT_STATUS(log, expected, onebit_optimizer_set_lr(handle, 0.1));
            ONEBIT_EXPECT_STATUS(log, expected, onebit_optimizer_set_group_lr(handle, 0, 0.1));
            ONEBIT_EXPECT_STATUS(log, expected, onebit_optimizer_set_gradient_scale(handle, 2));
            ONEBIT_EXPECT_STATUS(log, expected, onebit_optimizer_freeze(handle));
            ONEBIT_EXPECT_STATUS(log, expected, onebit_optimizer_reset_error(handle));
            ONEBIT_EXPECT_STATUS(log, expected, onebit_optimizer_save(handle, "/nowhere/at-all"));
            ONEBIT_EXPECT_STATUS(log, expected, onebit_optimizer_load(handle, "/nowhere/at-all"));
            ONEBIT_EXPECT_STATUS(log, expected, onebit_optimizer_get_error(handle, x.data(), nullptr));
            ONEBIT_EXPECT_STATUS(log, expected, onebit_optimizer_get_info(handle, &info));
            if (handle != nullptr) ONEBIT_EXPECT_STATUS(log, expected, onebit_optimizer_destroy(handle));
        }
        ONEBIT_EXPECT_OK(log, onebit_optimizer_destroy(nullptr));
        pair.steps(2, 9);
    });
}
