// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// onebit_comm_progress: one call advances all handles. Callbacks: which callback gets which result, once.
#include "support/progress.hpp"

#include <cfenv>
#include <chrono>
#include <limits>
#include <thread>

#include "support/environment.hpp"
#include "support/handles.hpp"
#include "support/training.hpp"

using namespace onebit_test;

namespace {

enum class Finish { wait, test, progress };

onebit_status_t finish(onebit_comm_t comm, onebit_allreduce_t handle, Finish how, RankLog& log) {
    if (how == Finish::progress) progress_to_the_end(comm, log);
    if (how != Finish::test) return onebit_allreduce_wait(handle);
    return poll([&](int* done) { return onebit_allreduce_test(handle, done); });
}

} // namespace

TEST_CASE("one call moves many handles on, in whatever order they were started", "[async][progress]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        constexpr std::size_t kHandles = 24;
        std::vector<std::unique_ptr<Allreduce>> reduces;
        Allreduce alone(comm, flat_config(5003), log);
        for (std::size_t i = 0; i < kHandles; ++i)
            reduces.push_back(std::make_unique<Allreduce>(comm, flat_config(5003), log));
        std::vector<std::vector<float>> inputs, outputs(kHandles, std::vector<float>(5003, NAN));
        for (std::size_t i = 0; i < kHandles; ++i) inputs.push_back(make_data(Kind::gaussian, 5003, 90, log.rank(), i));
        for (std::size_t k = 0; k < kHandles; ++k) {
            const std::size_t i = (k * 7 + static_cast<std::size_t>(log.rank()) * 5) % kHandles;
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(reduces[i]->get(), inputs[i].data(), outputs[i].data()));
        }
        progress_to_the_end(comm, log);
        for (std::size_t i = 0; i < kHandles; ++i) {
            // Finished, but not told yet.
            ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_BUSY,
                                 onebit_allreduce_start(reduces[i]->get(), inputs[i].data(), outputs[i].data()));
            int done = 0;
            ONEBIT_EXPECT_OK(log, i % 2 == 0 ? onebit_allreduce_wait(reduces[i]->get())
                                             : onebit_allreduce_test(reduces[i]->get(), &done));
            ONEBIT_EXPECT(log, i % 2 == 0 || done == 1);
            ONEBIT_EXPECT_OK(log, onebit_allreduce_reset(alone.get()));
            ONEBIT_EXPECT(log, same_bits(outputs[i], alone.run(inputs[i])));
            ONEBIT_EXPECT(log, reduces[i]->info().calls == 1);
        }
    });
}

TEST_CASE("progress keeps how an operation ended for its wait", "[async][progress]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Allreduce bad(comm, flat_config(3001), log), good(comm, flat_config(3001), log);
        std::vector<float> values = make_data(Kind::gaussian, 3001, 91, log.rank(), 0), wrong = values;
        if (log.last_rank()) wrong[3000] = std::numeric_limits<float>::quiet_NaN();
        ONEBIT_EXPECT_OK(log, onebit_allreduce_start(bad.get(), wrong.data(), wrong.data()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_start(good.get(), values.data(), values.data()));
        progress_to_the_end(comm, log);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(good.get()));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "rank " + std::to_string(log.size() - 1),
                              onebit_allreduce_wait(bad.get()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(bad.get())); // told once
        ONEBIT_EXPECT(log, bad.info().calls == 0);
    });
}

TEST_CASE("progress counts what others have not begun, and takes no wrong arguments", "[async][progress][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Allreduce a(comm, flat_config(1001), log), b(comm, flat_config(1001), log);
        std::vector<float> of_a(1001, 1.0F), of_b(1001, 2.0F);
        int active = -1;
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_ARGUMENT, onebit_comm_progress(comm, nullptr));
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_HANDLE, onebit_comm_progress(nullptr, &active));
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_HANDLE,
                             onebit_comm_progress(reinterpret_cast<onebit_comm_t>(a.get()), &active));
        ONEBIT_EXPECT(log, active == -1);
        ONEBIT_EXPECT_OK(log, onebit_comm_progress(comm, &active));
        ONEBIT_EXPECT(log, active == 0);
        if (log.rank() == 0) {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(a.get(), of_a.data(), of_a.data()));
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(b.get(), of_b.data(), of_b.data()));
            for (int polls = 0; polls < 50; ++polls) {
                ONEBIT_EXPECT_OK(log, onebit_comm_progress(comm, &active));
                ONEBIT_EXPECT(log, active == 2 || log.size() == 1);
            }
        }
        log.barrier();
        if (log.rank() != 0) {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(a.get(), of_a.data(), of_a.data()));
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(b.get(), of_b.data(), of_b.data()));
        }
        progress_to_the_end(comm, log);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(b.get()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(a.get()));
    });
}

TEST_CASE("progress moves exchanges on that begin before the step", "[async][progress][overlap]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Setup setup{quick_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM), {1401, 33, 4095, 1, 661, 2200}};
        setup.config.bucket_size = 2500;
        Training training(comm, setup, log), twin(comm, setup, log);
        Told told;
        ONEBIT_EXPECT_OK(log, onebit_optimizer_set_callback(training.get(), &Told::hear, &told));
        const Gradient gradient = gaussian_gradient(total(setup.sizes), 1);
        for (std::uint64_t t = 1; t <= 10; ++t) {
            training.set_gradients(gradient(log.rank(), t));
            for (std::size_t k = 0; k < setup.sizes.size(); ++k)
                ONEBIT_EXPECT_OK(log, onebit_optimizer_grad_ready(training.get(), k));
            progress_to_the_end(comm, log);
            ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_BUSY, onebit_optimizer_destroy(training.get()));
            ONEBIT_EXPECT(log, told.times == static_cast<int>(t - 1) / 2); // an exchange is no operation
            if (t % 2 == 0) {
                ONEBIT_EXPECT_OK(log, onebit_optimizer_step_start(training.get()));
                progress_to_the_end(comm, log);
                ONEBIT_EXPECT(log, told.times == static_cast<int>(t) / 2 && told.status == ONEBIT_SUCCESS);
            } else {
                ONEBIT_EXPECT_OK(log, onebit_optimizer_step(training.get()));
            }
            twin.steps(gradient, t, t);
            ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
        }
    });
}

TEST_CASE("a callback hears once how each started operation ended", "[async][progress][callback]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Finish how = GENERATE(Finish::wait, Finish::test, Finish::progress);
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        Allreduce reduce(comm, flat_config(2999), log), alone(comm, flat_config(2999), log);
        Told told;
        ONEBIT_EXPECT_OK(log, onebit_allreduce_set_callback(reduce.get(), &Told::hear, &told));
        for (int call = 1; call <= 6; ++call) {
            log.context("call " + std::to_string(call));
            std::vector<float> values =
                make_data(Kind::gaussian, 2999, 92, log.rank(), static_cast<std::uint64_t>(call));
            std::vector<float> output(2999, NAN);
            const bool wrong = call % 3 == 0;
            if (wrong && log.rank() == 0) values[5] = std::numeric_limits<float>::infinity();
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(reduce.get(), values.data(), output.data()));
            ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_BUSY, onebit_allreduce_set_callback(reduce.get(), nullptr, nullptr));
            ONEBIT_EXPECT(log, told.times == call - 1);
            const onebit_status_t expected = wrong ? ONEBIT_ERROR_NONFINITE : ONEBIT_SUCCESS;
            // Progress has reported the result: its own status is not the operation's.
            ONEBIT_EXPECT_STATUS(log, how == Finish::progress ? ONEBIT_SUCCESS : expected,
                                 finish(comm, reduce.get(), how, log));
            ONEBIT_EXPECT(log, told.times == call && told.status == expected);
            if (wrong) ONEBIT_EXPECT(log, holds(told.message, "inf;rank 0") && told.message == onebit_last_error());
            if (!wrong) ONEBIT_EXPECT(log, same_bits(output, alone.run(values)));
            ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(reduce.get())); // nothing is left to be told
            ONEBIT_EXPECT(log, told.times == call);
        }
        reduce.run(std::vector<float>(2999, 1.0F));
        ONEBIT_EXPECT(log, told.times == 6);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_set_callback(reduce.get(), nullptr, nullptr));
        std::vector<float> values(2999, 1.0F);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_start(reduce.get(), values.data(), values.data()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(reduce.get()));
        ONEBIT_EXPECT(log, told.times == 6);
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_HANDLE,
                             onebit_allreduce_set_callback(nullptr, &Told::hear, &told));
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_HANDLE,
                             onebit_optimizer_set_callback(nullptr, &Told::hear, &told));
    });
}

namespace {

// A callback that starts the next operation itself, `left` times, and then destroys its handle.
struct Chain {
    RankLog* log;
    onebit_allreduce_t handle;
    std::vector<float> values;
    int left;
    int rounding = -1;

    static void go_on(void* context, onebit_status_t status) {
        Chain& chain = *static_cast<Chain*>(context);
        RankLog& log = *chain.log;
        ONEBIT_EXPECT_OK(log, status);
        chain.rounding = std::fegetround();
        if (chain.left-- > 0) {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(chain.handle, chain.values.data(), chain.values.data()));
        } else {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_destroy(chain.handle));
        }
    }
};

} // namespace

TEST_CASE("a callback may start its handle anew and destroy it", "[async][progress][callback]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Allreduce alone(comm, flat_config(1000), log);
        std::vector<Chain> chains;
        for (int i = 0; i < 3; ++i) {
            const onebit_allreduce_config_t config = flat_config(1000);
            Chain chain{&log, nullptr, make_data(Kind::gaussian, 1000, 93, log.rank(), 0), 3};
            ONEBIT_EXPECT_OK(log, onebit_allreduce_create(comm, &config, &chain.handle));
            chains.push_back(std::move(chain));
        }
        for (Chain& chain : chains) {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_set_callback(chain.handle, &Chain::go_on, &chain));
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(chain.handle, chain.values.data(), chain.values.data()));
        }
        std::fesetround(FE_UPWARD);
        progress_to_the_end(comm, log);
        ONEBIT_EXPECT(log, std::fegetround() == FE_UPWARD);
        std::fesetround(FE_TONEAREST);
        std::vector<float> expected = make_data(Kind::gaussian, 1000, 93, log.rank(), 0);
        for (int call = 0; call < 4; ++call) expected = alone.run(expected);
        for (const Chain& chain : chains) {
            ONEBIT_EXPECT(log, chain.left == -1 && chain.rounding == FE_UPWARD);
            ONEBIT_EXPECT(log, same_bits(chain.values, expected));
            int done = 0;
            ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_HANDLE, onebit_allreduce_test(chain.handle, &done));
        }
    });
}

TEST_CASE("an abort ends what progress moves on", "[async][progress][abort]") {
    const bool calls_back = GENERATE(false, true);
    const int n = GENERATE(from_range(rank_counts()));
    if (n == 1) return;
    const Variable timeout("ONEBIT_TIMEOUT", "30");
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        Allreduce a(comm, flat_config(5000), log), b(comm, flat_config(5000), log);
        std::vector<float> of_a(5000, 1.0F), of_b(5000, 2.0F);
        Told told;
        if (calls_back) ONEBIT_EXPECT_OK(log, onebit_allreduce_set_callback(a.get(), &Told::hear, &told));
        if (!log.last_rank()) {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(a.get(), of_a.data(), of_a.data()));
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(b.get(), of_b.data(), of_b.data()));
        }
        log.barrier();
        if (log.last_rank()) {
            ONEBIT_EXPECT_OK(log, onebit_comm_abort(comm, "it has had enough"));
        } else {
            progress_to_the_end(comm, log);
            ONEBIT_EXPECT(log, told.times == (calls_back ? 1 : 0));
            if (calls_back) ONEBIT_EXPECT(log, told.status == ONEBIT_ERROR_TRANSPORT);
            ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_TRANSPORT, onebit_allreduce_wait(b.get()));
            ONEBIT_EXPECT(log, holds(onebit_last_error(), "it has had enough"));
        }
        log.barrier();
    });
}

TEST_CASE("what waits for a peer that never comes has the timeout, in test, wait and progress",
          "[async][progress][failure]") {
    const onebit_algorithm_t algorithm =
        GENERATE(ONEBIT_ALGORITHM_DENSE, ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED);
    const Finish how = GENERATE(Finish::wait, Finish::test, Finish::progress);
    const int n = GENERATE(from_range(rank_counts()));
    if (n == 1) return;
    const Variable timeout("ONEBIT_TIMEOUT", "0.5");
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        onebit_allreduce_config_t config = flat_config(5000);
        config.algorithm = algorithm;
        Allreduce reduce(comm, config, log);
        std::vector<float> values(5000, 1.0F);
        log.barrier();
        if (!log.last_rank()) {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(reduce.get(), values.data(), values.data()));
            const auto begin = std::chrono::steady_clock::now();
            const onebit_status_t status = finish(comm, reduce.get(), how, log);
            const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
            ONEBIT_EXPECT(log, status == ONEBIT_ERROR_TIMEOUT || status == ONEBIT_ERROR_TRANSPORT);
            ONEBIT_EXPECT(log, holds(onebit_last_error(), "rank " + std::to_string(log.size() - 1)) ||
                                   holds(onebit_last_error(), "ONEBIT_TIMEOUT"));
            ONEBIT_EXPECT(log, time.count() < 5);
            ONEBIT_EXPECT_STATUS(log, status, onebit_allreduce_run(reduce.get(), values.data(), values.data()));
        }
        log.barrier();
    });
}

TEST_CASE("a pause of the program's between two tests is not held against a peer", "[async][failure]") {
    if (!can_have_ranks(2)) return;
    const Variable timeout("ONEBIT_TIMEOUT", "2");
    run_ranks(2, [&](onebit_comm_t comm, RankLog& log) {
        Allreduce reduce(comm, flat_config(5000), log);
        std::vector<float> values(5000, 1.0F);
        const auto pause = [&] { std::this_thread::sleep_for(std::chrono::milliseconds(2500)); };
        if (log.last_rank()) pause();
        ONEBIT_EXPECT_OK(log, onebit_allreduce_start(reduce.get(), values.data(), values.data()));
        int done = 0;
        ONEBIT_EXPECT_OK(log, onebit_allreduce_test(reduce.get(), &done)); // in vain on the first rank
        if (!log.last_rank()) pause();
        ONEBIT_EXPECT_OK(log, finish(comm, reduce.get(), Finish::test, log));
        ONEBIT_EXPECT(log, values.front() == 1.0F);
    });
}
