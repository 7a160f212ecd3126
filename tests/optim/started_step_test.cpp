// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Steps that don't block: start, test and wait give the same bits and statuses as step.
#include <chrono>
#include <limits>
#include <thread>

#include "support/directory.hpp"
#include "support/environment.hpp"
#include "support/training.hpp"

using namespace onebit_test;

namespace {

constexpr onebit_status_t busy = ONEBIT_ERROR_BUSY;
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

enum class Finish { wait, test, test_then_wait, progress, step }; // step: nothing is started

onebit_status_t finish(onebit_comm_t comm, onebit_optimizer_t handle, Finish how) {
    for (int polls = 0; how != Finish::wait && (how != Finish::test_then_wait || polls < 3); ++polls) {
        int done = 0, active = 1;
        if (how == Finish::progress) {
            const onebit_status_t status = onebit_comm_progress(comm, &active);
            if (status != ONEBIT_SUCCESS || active == 0) break;
        } else {
            const onebit_status_t status = onebit_optimizer_step_test(handle, &done);
            if (done != 0) return status;
        }
        std::this_thread::yield();
    }
    return onebit_optimizer_step_wait(handle);
}

onebit_status_t make_step(onebit_comm_t comm, onebit_optimizer_t handle, Finish how) {
    if (how == Finish::step) return onebit_optimizer_step(handle);
    const onebit_status_t started = onebit_optimizer_step_start(handle);
    return started == ONEBIT_SUCCESS ? finish(comm, handle, how) : started;
}

Finish way_of(std::uint64_t number) {
    return static_cast<Finish>(number % 5);
}

Setup odd_setup(onebit_optimizer_kind_t kind, std::uint64_t bucket_size, bool clipped) {
    Setup setup{quick_config(kind), {1401, 33, 4095, 1, 661, 2200}};
    setup.config.weight_decay = 0.1;
    setup.config.bucket_size = bucket_size;
    setup.config.max_grad_norm = clipped ? 40 : 0;
    setup.groups.assign(2, ONEBIT_PARAM_GROUP_INIT(0.01));
    setup.groups[1].no_compress = 1;
    setup.group_of = {0, 0, 0, 0, 0, 1};
    setup.gradient_type = clipped ? ONEBIT_BFLOAT16 : ONEBIT_FLOAT32;
    return setup;
}

} // namespace

TEST_CASE("a started step gives the bits of a step, whoever starts and whoever steps", "[optimizer][started]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            for (const std::uint64_t bucket_size : {std::uint64_t{0}, std::uint64_t{2500}}) {
                for (const bool clipped : {false, true}) {
                    const Setup setup = odd_setup(kind, bucket_size, clipped);
                    Training expected(comm, setup, log), alike(comm, setup, log), mixed(comm, setup, log);
                    const Gradient gradient = gaussian_gradient(total(setup.sizes), 1);
                    for (std::uint64_t t = 1; t <= 17; ++t) {
                        log.context(name_of(kind) + (clipped ? ", clipped" : "") + ", buckets of " +
                                    std::to_string(bucket_size) + ", step " + std::to_string(t));
                        std::vector<float> values = gradient(log.rank(), t);
                        std::fill(values.begin() + 100, values.begin() + 131, 0.0F); // to be masked
                        expected.step(values);
                        alike.set_gradients(values);
                        ONEBIT_EXPECT_OK(log, make_step(comm, alike.get(), way_of(t % 4)));
                        mixed.set_gradients(values);
                        ONEBIT_EXPECT_OK(
                            log, make_step(comm, mixed.get(), way_of(t + static_cast<std::uint64_t>(log.rank()))));
                        ONEBIT_EXPECT(log, Snapshot(alike).same_as(Snapshot(expected)));
                        ONEBIT_EXPECT(log, Snapshot(mixed).same_as(Snapshot(expected)));
                    }
                    ONEBIT_EXPECT(log, expected.info().masked == (freezes(kind) ? 31U : 0U));
                    if (kind != ONEBIT_OPTIMIZER_ZERO_ONE_ADAM) ONEBIT_EXPECT(log, alike.parameters_same_on_all());
                }
            }
        }
    });
}

TEST_CASE("a started step follows variances and admits late elements as a step does", "[optimizer][started]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : freezing_kinds()) {
            for (const onebit_compressed_t compressed : ways_to_compress(kind)) {
                Setup setup = odd_setup(kind, 0, false);
                setup.config.compressed = compressed;
                setup.config.follow_interval = 4;
                Training expected(comm, setup, log), started(comm, setup, log);
                const Gradient gradient =
                    beginning_late(gaussian_gradient(total(setup.sizes), 1), 1500, 3000, 9); // and then far larger
                for (std::uint64_t t = 1; t <= 45; ++t) {
                    log.context(name_of(kind) + ", step " + std::to_string(t));
                    std::vector<float> values = gradient(log.rank(), t);
                    if (t > 20) {
                        for (float& value : values) value *= 50;
                    }
                    expected.step(values);
                    started.set_gradients(values);
                    ONEBIT_EXPECT_OK(
                        log, make_step(comm, started.get(), way_of(t + static_cast<std::uint64_t>(log.rank()))));
                    ONEBIT_EXPECT(log, Snapshot(started).same_as(Snapshot(expected)));
                    ONEBIT_EXPECT(log, started.info().thaws == expected.info().thaws);
                }
                const bool follows = compressed == ONEBIT_COMPRESSED_UPDATES;
                ONEBIT_EXPECT(log, (expected.info().thaws > 0) == follows);
            }
        }
    });
}

TEST_CASE("start and test of a step return while the peers are elsewhere", "[optimizer][started]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const std::uint64_t bucket_size : {std::uint64_t{0}, std::uint64_t{2500}}) {
            Training training(comm, odd_setup(ONEBIT_OPTIMIZER_ONEBIT_ADAM, bucket_size, false), log);
            training.set_gradients(initial_parameters(training.count()));
            if (log.rank() == 0) {
                ONEBIT_EXPECT_OK(log, onebit_optimizer_step_start(training.get()));
                for (int polls = 0; polls < 50; ++polls) {
                    int done = -1;
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_step_test(training.get(), &done));
                    ONEBIT_EXPECT(log, done == 0 || log.size() == 1); // the others have not even begun
                }
            }
            log.barrier();
            if (log.rank() != 0) ONEBIT_EXPECT_OK(log, onebit_optimizer_step_start(training.get()));
            ONEBIT_EXPECT_OK(log, onebit_optimizer_step_wait(training.get()));
            ONEBIT_EXPECT(log, training.parameters_same_on_all());
            ONEBIT_EXPECT(log, training.info().steps == 1);
            int done = 0; // with nothing started
            ONEBIT_EXPECT_OK(log, onebit_optimizer_step_test(training.get(), &done));
            ONEBIT_EXPECT(log, done == 1);
            ONEBIT_EXPECT_OK(log, onebit_optimizer_step_wait(training.get()));
            ONEBIT_EXPECT(log, training.info().steps == 1);
        }
    });
}

TEST_CASE("a started step is refused on all ranks and changes nothing", "[optimizer][started][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const bool last = log.last_rank();
        const std::string culprit = ";rank " + std::to_string(log.size() - 1);
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            for (const std::uint64_t bucket_size : {std::uint64_t{0}, std::uint64_t{2500}}) {
                const Setup setup = odd_setup(kind, bucket_size, false);
                const Gradient gradient = gaussian_gradient(total(setup.sizes), 1);
                Training training(comm, setup, log), twin(comm, setup, log);
                for (std::uint64_t t = 1; t <= 12; ++t) {
                    log.context(name_of(kind) + ", step " + std::to_string(t));
                    const Finish how = way_of(t + static_cast<std::uint64_t>(log.rank()));
                    const Snapshot before(training);
                    std::vector<float> wrong = gradient(log.rank(), 1000 + t);
                    if (last) wrong[t * 17] = not_a_number;
                    training.set_gradients(wrong);
                    ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "nan" + culprit,
                                          make_step(comm, training.get(), how));
                    training.set_gradients(gradient(log.rank(), t));
                    const void* const place = training.gradients(1);
                    if (last) ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradients(training.get(), 1, nullptr));
                    ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "gradients" + culprit,
                                          make_step(comm, training.get(), how));
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradients(training.get(), 1, place));
                    ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_CANCELLED, "no memory left" + culprit,
                                          last ? onebit_optimizer_cancel_step(training.get(), "no memory left")
                                               : make_step(comm, training.get(), how));
                    ONEBIT_EXPECT(log, Snapshot(training).same_as(before));
                    ONEBIT_EXPECT_OK(log, make_step(comm, training.get(), how));
                    twin.steps(gradient, t, t);
                    ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
                }
            }
        }
    });
}

TEST_CASE("what a started step forbids, and what it leaves to the next one", "[optimizer][started][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        SharedDirectory directory(log);
        const std::string prefix = directory.prefix("training");
        for (const std::uint64_t bucket_size : {std::uint64_t{0}, std::uint64_t{2500}}) {
            const Setup setup = odd_setup(ONEBIT_OPTIMIZER_ONEBIT_ADAM, bucket_size, false);
            const Gradient gradient = gaussian_gradient(total(setup.sizes), 1);
            Training training(comm, setup, log), twin(comm, setup, log);
            const onebit_optimizer_t handle = training.get();
            std::vector<float> room(training.count());
            std::vector<const void*> places(setup.sizes.size(), room.data());
            std::uint64_t bytes = 0;
            const void* const blob = room.data();
            for (std::uint64_t t = 1; t <= 9; ++t) {
                log.context("step " + std::to_string(t));
                training.set_gradients(gradient(log.rank(), t));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_step_start(handle));
                for (const onebit_status_t status :
                     {onebit_optimizer_step(handle),
                      onebit_optimizer_step_start(handle),
                      onebit_optimizer_cancel_step(handle, nullptr),
                      onebit_optimizer_grad_ready(handle, 0),
                      onebit_optimizer_set_gradients(handle, 0, room.data()),
                      onebit_optimizer_set_all_gradients(handle, places.data(), places.size()),
                      onebit_optimizer_set_parameters(handle, 0, room.data()),
                      onebit_optimizer_freeze(handle),
                      onebit_optimizer_reset_error(handle),
                      onebit_optimizer_get_error(handle, room.data(), nullptr),
                      onebit_optimizer_save(handle, prefix.c_str()),
                      onebit_optimizer_load(handle, prefix.c_str()),
                      onebit_optimizer_state_size(handle, &bytes),
                      onebit_optimizer_pack_state(handle, &bytes, 8),
                      onebit_optimizer_unpack_state(handle, &blob, &bytes, 1),
                      onebit_optimizer_get_state(handle, 0, ONEBIT_STATE_EXP_AVG, room.data()),
                      onebit_optimizer_set_state(handle, 0, ONEBIT_STATE_EXP_AVG, room.data()),
                      onebit_optimizer_set_steps(handle, 3),
                      onebit_optimizer_set_callback(handle, nullptr, nullptr),
                      onebit_optimizer_destroy(handle)}) {
                    ONEBIT_EXPECT_STATUS(log, busy, status);
                }
                ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_ARGUMENT, onebit_optimizer_step_test(handle, nullptr));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_set_lr(handle, 0.01 / static_cast<double>(t + 1)));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(handle, static_cast<double>(t + 1)));
                ONEBIT_EXPECT(log, training.info().steps <= t);
                ONEBIT_EXPECT_OK(log, onebit_optimizer_step_wait(handle));
                twin.steps(gradient, t, t);
                ONEBIT_EXPECT_OK(log, onebit_optimizer_set_lr(twin.get(), 0.01 / static_cast<double>(t + 1)));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(twin.get(), static_cast<double>(t + 1)));
                ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
            }
        }
    });
}

TEST_CASE("a slice of a step is no longer for large tensors", "[optimizer][started]") {
    const int n = GENERATE(from_range(rank_counts()));
    if (n > 1) return;
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::size_t count = (std::size_t{3} << 20) + 5;
        for (const onebit_optimizer_kind_t kind : {ONEBIT_OPTIMIZER_ADAM, ONEBIT_OPTIMIZER_ONEBIT_ADAM}) {
            onebit_optimizer_config_t config = optimizer_config(kind);
            if (freezes(kind)) config.freeze_step = 1;
            Training training(comm, config, {count}, log), twin(comm, config, {count}, log);
            for (std::uint64_t t = 1; t <= 3; ++t) {
                const std::vector<float> values = make_data(Kind::gaussian, count, 5, 0, t);
                twin.step(values);
                training.set_gradients(values);
                ONEBIT_EXPECT_OK(log, onebit_optimizer_step_start(training.get()));
                int tests = 0;
                for (int done = 0; done == 0; ++tests)
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_step_test(training.get(), &done));
                ONEBIT_EXPECT(log, tests > 4); // a look and an update, a million elements in each slice
                ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
            }
        }
    });
}

TEST_CASE("steps of several optimizers are under way together", "[optimizer][started]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Setup plain = odd_setup(ONEBIT_OPTIMIZER_ONEBIT_LAMB, 0, false);
        const Setup cut = odd_setup(ONEBIT_OPTIMIZER_ZERO_ONE_ADAM, 2500, false);
        Training a(comm, plain, log), b(comm, cut, log), a_alone(comm, plain, log), b_alone(comm, cut, log);
        const Gradient gradient = gaussian_gradient(a.count(), 1);
        for (std::uint64_t t = 1; t <= 14; ++t) {
            log.context("step " + std::to_string(t));
            a.set_gradients(gradient(log.rank(), t));
            b.set_gradients(gradient(log.rank(), t));
            const bool a_first = (t + static_cast<std::uint64_t>(log.rank())) % 2 == 0;
            for (Training* training : {a_first ? &a : &b, a_first ? &b : &a})
                ONEBIT_EXPECT_OK(log, onebit_optimizer_step_start(training->get()));
            for (int active = 1; active > 0; std::this_thread::yield())
                ONEBIT_EXPECT_OK(log, onebit_comm_progress(comm, &active));
            for (Training* training : {&b, &a}) ONEBIT_EXPECT_OK(log, onebit_optimizer_step_wait(training->get()));
            a_alone.steps(gradient, t, t);
            b_alone.steps(gradient, t, t);
            ONEBIT_EXPECT(log, Snapshot(a).same_as(Snapshot(a_alone)) && Snapshot(b).same_as(Snapshot(b_alone)));
        }
    });
}

// ------------------------------------------------------------------------------------------- what never ends ----

namespace {

/// All ranks except the last start a step, which the last rank never makes; `end` then ends the step on each of them.
template <typename End>
void never_ending_step(std::uint64_t bucket_size, const End& end) {
    const int n = GENERATE(from_range(rank_counts()));
    if (n == 1) return;
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        Training training(comm, odd_setup(ONEBIT_OPTIMIZER_ONEBIT_ADAM, bucket_size, false), log);
        training.set_gradients(initial_parameters(training.count()));
        if (!log.last_rank()) ONEBIT_EXPECT_OK(log, onebit_optimizer_step_start(training.get()));
        log.barrier();
        end(comm, training.get(), log);
        log.barrier();
    });
}

} // namespace

TEST_CASE("an abort ends a started step, in test, wait, progress or destroy", "[optimizer][started][abort]") {
    const std::uint64_t bucket_size = GENERATE(std::uint64_t{0}, std::uint64_t{2500});
    const int how = GENERATE(0, 1, 2, 3);
    const Variable timeout("ONEBIT_TIMEOUT", "30");
    never_ending_step(bucket_size, [&](onebit_comm_t comm, onebit_optimizer_t handle, RankLog& log) {
        // The other ranks learn of the last rank's abort in their next call. If ~Training ends the step, all abort.
        if (log.last_rank() || how == 3) {
            ONEBIT_EXPECT_OK(log, onebit_comm_abort(comm, "it has had enough"));
            return;
        }
        const auto begin = std::chrono::steady_clock::now();
        onebit_status_t status = ONEBIT_SUCCESS;
        int done = 0, active = 1;
        if (how == 1) {
            while (done == 0) status = onebit_optimizer_step_test(handle, &done);
        }
        while (how == 2 && active != 0) ONEBIT_EXPECT_OK(log, onebit_comm_progress(comm, &active));
        if (how != 1) status = onebit_optimizer_step_wait(handle);
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_TRANSPORT, status);
        ONEBIT_EXPECT(log, holds(onebit_last_error(), "it has had enough"));
        ONEBIT_EXPECT(log, std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_TRANSPORT, onebit_optimizer_step_start(handle));
    });
}

TEST_CASE("a started step has the timeout, in test, wait and progress", "[optimizer][started][failure]") {
    const std::uint64_t bucket_size = GENERATE(std::uint64_t{0}, std::uint64_t{2500});
    const Finish how = GENERATE(Finish::wait, Finish::test, Finish::progress);
    const Variable timeout("ONEBIT_TIMEOUT", "0.5");
    never_ending_step(bucket_size, [&](onebit_comm_t comm, onebit_optimizer_t handle, RankLog& log) {
        if (log.rank() != 0) { // it learns of the first rank's end
            log.barrier();
            if (!log.last_rank()) ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_TIMEOUT, onebit_optimizer_step_wait(handle));
            return;
        }
        int done = 0;
        ONEBIT_EXPECT_OK(log, onebit_optimizer_step_test(handle, &done));
        ONEBIT_EXPECT(log, done == 0);
        ONEBIT_EXPECT_STATUS(log, busy, onebit_optimizer_destroy(handle));
        const auto begin = std::chrono::steady_clock::now();
        const onebit_status_t status = finish(comm, handle, how);
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_TIMEOUT, status);
        ONEBIT_EXPECT(log, std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
        log.barrier();
    });
}
