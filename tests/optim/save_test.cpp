// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Training goes on after a load exactly as without it, for any kind and at any stage.
#include "support/checkpoints.hpp"
#include "support/directory.hpp"

using namespace onebit_test;

namespace {

// With clipping.
Setup clipped_setup(onebit_optimizer_kind_t kind) {
    Setup setup = saved_setup(kind);
    setup.config.max_grad_norm = 40;
    return setup;
}

// Saves after step `at`; a training with another past loads it, and both go on. Returns the last warm-up step.
std::uint64_t save_and_go_on(onebit_comm_t comm, RankLog& log, const Setup& setup, std::uint64_t at,
                             std::uint64_t more = 10) {
    SharedDirectory directory(log);
    const std::string prefix = directory.prefix("training");
    const Gradient gradient = saved_gradient(1);
    Training uninterrupted(comm, setup, log);
    uninterrupted.steps(gradient, 1, at);
    ONEBIT_EXPECT_OK(log, onebit_optimizer_save(uninterrupted.get(), prefix.c_str()));

    const std::vector<float> elsewhere(total(setup.sizes), 0.25f);
    Training resumed(comm, setup, elsewhere, log);
    resumed.steps(saved_gradient(2), 1, at % 9); // a past that must leave no trace
    ONEBIT_EXPECT_OK(log, onebit_optimizer_load(resumed.get(), prefix.c_str()));
    ONEBIT_EXPECT(log, same_state(uninterrupted, resumed));
    for (std::uint64_t t = at + 1; t <= at + more; ++t) {
        uninterrupted.steps(gradient, t, t);
        resumed.steps(gradient, t, t);
        ONEBIT_EXPECT(log, Snapshot(uninterrupted).same_as(Snapshot(resumed)));
    }
    return resumed.info().freeze_step;
}

} // namespace

TEST_CASE("a loaded optimizer continues bit for bit, in every stage", "[optimizer][save]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            // Before the first step; in the warm-up, 0/1 Adam after an exact and a compressed round; right at the
            // freeze; after it, 0/1 Adam in intervals of 1, 2 and 4 steps, at their ends and in between.
            using Steps = std::vector<std::uint64_t>;
            for (std::uint64_t at : freezes(kind) ? Steps{0, 2, 3, 6, 7, 10, 11, 13, 14, 16} : Steps{0, 3}) {
                for (const onebit_compressed_t compressed : ways_to_compress(kind)) {
                    log.context(name_of(kind) + ", way " + std::to_string(compressed) + ", after step " +
                                std::to_string(at));
                    Setup setup = clipped_setup(kind);
                    setup.config.compressed = compressed;
                    save_and_go_on(comm, log, setup, at);
                }
            }
        }
    });
}

TEST_CASE("a loaded optimizer freezes by the rule when it would have", "[optimizer][save][freeze]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : freezing_kinds()) {
            for (std::uint64_t rule : {std::uint64_t{ONEBIT_FREEZE_AUTO}, ONEBIT_FREEZE_PAPER}) {
                for (std::uint64_t at : {4, 12, 40}) { // sooner than the rule is asked, while it is, and frozen
                    log.context(name_of(kind) + " after step " + std::to_string(at));
                    Setup setup = clipped_setup(kind);
                    setup.config.freeze_step = rule;
                    setup.config.freeze_window = 7;
                    setup.config.freeze_band = 0.4; // few elements, hence noise
                    setup.config.variance_updates = 20;
                    setup.groups[0].beta2 = 0.9; // delta = 10
                    const std::uint64_t freeze_step = save_and_go_on(comm, log, setup, at, 44 - at);
                    ONEBIT_EXPECT(log, freeze_step > 12 && freeze_step <= 40);
                }
            }
        }
    });
}

TEST_CASE("settings that have changed are saved too", "[optimizer][save]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        SharedDirectory directory(log);
        const Gradient gradient = saved_gradient(1);
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            const std::string prefix = directory.prefix("settings");
            const Setup setup = clipped_setup(kind);
            Training uninterrupted(comm, setup, log), resumed(comm, setup, log);
            const onebit_optimizer_t handle = uninterrupted.get();
            uninterrupted.steps(gradient, 1, 4);
            ONEBIT_EXPECT_OK(log, onebit_optimizer_set_group_lr(handle, 0, 0.003));
            ONEBIT_EXPECT_OK(log, onebit_optimizer_set_group_lr(handle, 1, 0.03));
            ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(handle, 0.3));
            uninterrupted.steps(gradient, 5, 8);
            ONEBIT_EXPECT_OK(log, onebit_optimizer_save(handle, prefix.c_str()));
            ONEBIT_EXPECT_OK(log, onebit_optimizer_load(resumed.get(), prefix.c_str()));
            for (std::uint64_t t = 9; t <= 14; ++t) {
                uninterrupted.steps(gradient, t, t);
                resumed.steps(gradient, t, t);
                ONEBIT_EXPECT(log, Snapshot(uninterrupted).same_as(Snapshot(resumed)));
            }
        }
    });
}

TEST_CASE("an optimizer frozen by hand, or beyond another's freeze step, can be loaded", "[optimizer][save][freeze]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        SharedDirectory directory(log);
        const std::string prefix = directory.prefix("frozen");
        const Gradient gradient = saved_gradient(1);
        for (onebit_optimizer_kind_t kind : freezing_kinds()) {
            Setup setup = clipped_setup(kind);
            setup.config.freeze_step = ONEBIT_FREEZE_NEVER;
            Training uninterrupted(comm, setup, log);
            uninterrupted.steps(gradient, 1, 5);
            ONEBIT_EXPECT_OK(log, onebit_optimizer_freeze(uninterrupted.get()));
            ONEBIT_EXPECT_OK(log, onebit_optimizer_save(uninterrupted.get(), prefix.c_str())); // frozen, not yet begun
            uninterrupted.steps(gradient, 6, 9);
            const std::string later = directory.prefix("later");
            ONEBIT_EXPECT_OK(log, onebit_optimizer_save(uninterrupted.get(), later.c_str()));
            uninterrupted.steps(gradient, 10, 14);
            for (std::uint64_t freeze_step : {ONEBIT_FREEZE_NEVER, std::uint64_t{3}, std::uint64_t{100}}) {
                log.context(name_of(kind) + ", freeze step " + std::to_string(freeze_step));
                setup.config.freeze_step = freeze_step;
                Training early(comm, setup, log), late(comm, setup, log);
                ONEBIT_EXPECT_OK(log, onebit_optimizer_load(early.get(), prefix.c_str()));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_load(late.get(), later.c_str()));
                ONEBIT_EXPECT(log, early.info().freeze_step == 5 && late.info().freeze_step == 5);
                early.steps(gradient, 6, 14);
                late.steps(gradient, 10, 14);
                ONEBIT_EXPECT(log, Snapshot(early).same_as(Snapshot(uninterrupted)));
                ONEBIT_EXPECT(log, Snapshot(late).same_as(Snapshot(uninterrupted)));
            }
        }
    });
}

TEST_CASE("an optimizer can load its own earlier state", "[optimizer][save]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        SharedDirectory directory(log);
        const Gradient gradient = saved_gradient(1);
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            const std::string prefix = directory.prefix("earlier");
            Training training(comm, clipped_setup(kind), log), twin(comm, clipped_setup(kind), log);
            training.steps(gradient, 1, 3);
            ONEBIT_EXPECT_OK(log, onebit_optimizer_save(training.get(), prefix.c_str()));
            training.steps(saved_gradient(2), 4, 12); // in compression by now: it must thaw again
            ONEBIT_EXPECT_OK(log, onebit_optimizer_load(training.get(), prefix.c_str()));
            ONEBIT_EXPECT(log, training.info().frozen == 0 && training.info().masked == 0);
            training.steps(gradient, 4, 16);
            twin.steps(gradient, 1, 16);
            ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
        }
    });
}

TEST_CASE("saved files have the promised names; a later save takes an earlier one's place", "[optimizer][save]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        SharedDirectory directory(log);
        const std::string prefix = directory.prefix("a");
        const Gradient gradient = saved_gradient(1);
        Training training(comm, clipped_setup(ONEBIT_OPTIMIZER_ONEBIT_LAMB), log);
        Training other(comm, clipped_setup(ONEBIT_OPTIMIZER_ONEBIT_LAMB), log);
        std::vector<std::string> expected;
        for (int r = 0; r < log.size(); ++r) expected.push_back(directory.file("a", r).filename().string());
        for (std::uint64_t t : {2, 9}) {
            training.steps(gradient, training.info().steps + 1, t);
            ONEBIT_EXPECT_OK(log, onebit_optimizer_save(training.get(), prefix.c_str()));
            ONEBIT_EXPECT(log, directory.listing() == expected); // and no temporary file is left
            log.barrier();
        }
        ONEBIT_EXPECT_OK(log, onebit_optimizer_load(other.get(), prefix.c_str()));
        ONEBIT_EXPECT(log, other.info().steps == 9);
        ONEBIT_EXPECT(log, same_bits(other.parameters(), training.parameters()));
    });
}
