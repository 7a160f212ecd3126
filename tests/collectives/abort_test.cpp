// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// onebit_comm_abort: the other ranks stop waiting, whatever they wait for, and say why.
#include <chrono>
#include <thread>

#include "support/aborts.hpp"
#include "support/directory.hpp"
#include "support/environment.hpp"
#include "support/handles.hpp"
#include "support/training.hpp"

using namespace onebit_test;

namespace {

/// Runs `prepare`, which gives the call to be aborted, on each number of ranks.
void run_aborted(const Body& prepare) {
    const Variable timeout("ONEBIT_TIMEOUT", "30");
    for_each_size(2, prepare);
}

} // namespace

TEST_CASE("an abort ends a run, whatever its algorithm, and breaks the handle", "[abort]") {
    const onebit_algorithm_t algorithm =
        GENERATE(ONEBIT_ALGORITHM_DENSE, ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_BRUCK,
                 ONEBIT_ALGORITHM_RING, ONEBIT_ALGORITHM_LEVELS);
    const onebit_check_t check = GENERATE(ONEBIT_CHECK_FULL, ONEBIT_CHECK_NONE);
    const std::uint64_t count = GENERATE(std::uint64_t{1000}, std::uint64_t{70001});
    const Variable node_size("ONEBIT_NODE_SIZE", algorithm == ONEBIT_ALGORITHM_LEVELS ? "1" : ""); // levels between all
    run_aborted([&](onebit_comm_t comm, RankLog& log) {
        onebit_allreduce_config_t config = form_config(algorithm, count);
        config.check = check;
        Allreduce reduce(comm, config, log);
        std::vector<float> values(count, 1.0F);
        expect_ended(comm, log, [&] { return onebit_allreduce_run(reduce.get(), values.data(), values.data()); });
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_TRANSPORT,
                             onebit_allreduce_run(reduce.get(), values.data(), values.data()));
    });
}

TEST_CASE("an abort ends a started operation's wait, and its test", "[abort]") {
    const bool polls = GENERATE(false, true);
    run_aborted([&](onebit_comm_t comm, RankLog& log) {
        Allreduce reduce(comm, flat_config(5000), log);
        std::vector<float> values(5000, 1.0F);
        if (!log.last_rank()) {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(reduce.get(), values.data(), values.data()));
        }
        expect_ended(comm, log, [&] {
            onebit_status_t status = ONEBIT_SUCCESS;
            for (int done = polls ? 0 : 1; done == 0;) status = onebit_allreduce_test(reduce.get(), &done);
            return polls ? status : onebit_allreduce_wait(reduce.get());
        });
    });
}

TEST_CASE("all ranks may abort at once, and hear of each other meanwhile", "[abort]") {
    run_aborted([](onebit_comm_t comm, RankLog& log) {
        Allreduce reduce(comm, flat_config(5000), log);
        std::vector<float> values(5000, 1.0F);
        log.barrier();
        if (log.rank() % 2 == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20)); // words are there already
        ONEBIT_EXPECT_OK(log, onebit_comm_abort(comm, "it has had enough"));
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_TRANSPORT,
                             onebit_allreduce_run(reduce.get(), values.data(), values.data()));
        ONEBIT_EXPECT(log, holds(onebit_last_error(), "it has had enough"));
        log.barrier();
    });
}

TEST_CASE("an abort ends creations, shared memory and tuning", "[abort]") {
    const int which = GENERATE(0, 1, 2, 3);
    run_aborted([&](onebit_comm_t comm, RankLog& log) {
        expect_ended(comm, log, [&]() -> onebit_status_t {
            const onebit_allreduce_config_t config = flat_config(5000);
            onebit_allreduce_t allreduce = nullptr;
            void* memory = nullptr;
            std::vector<float> values(1000, 1.0F);
            onebit_tensor_t tensor = ONEBIT_TENSOR_INIT(values.data(), values.data(), values.size());
            const onebit_optimizer_config_t adam = ONEBIT_OPTIMIZER_CONFIG_INIT(ONEBIT_OPTIMIZER_ADAM, 1e-3);
            onebit_optimizer_t optimizer = nullptr;
            switch (which) {
                case 0:
                    return onebit_allreduce_create(comm, &config, &allreduce);
                case 1:
                    return onebit_mem_alloc(comm, 1 << 20, &memory);
                case 2:
                    return onebit_optimizer_create(comm, &adam, &tensor, 1, &optimizer);
                default:
                    return onebit_comm_tune(comm, 1000, 1, nullptr);
            }
        });
    });
}

TEST_CASE("an abort ends masks, saves and loads", "[abort][state]") {
    const int which = GENERATE(0, 1, 2);
    run_aborted([&](onebit_comm_t comm, RankLog& log) {
        SharedDirectory directory(log);
        const std::string prefix = directory.prefix("state");
        Allreduce reduce(comm, flat_config(5000), log);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_save(reduce.get(), prefix.c_str()));
        const std::vector<std::uint32_t> mask(5000 / 32 + 1, 1);
        expect_ended(comm, log, [&]() -> onebit_status_t {
            switch (which) {
                case 0:
                    return onebit_allreduce_set_mask(reduce.get(), mask.data());
                case 1:
                    return onebit_allreduce_save(reduce.get(), prefix.c_str());
                default:
                    return onebit_allreduce_load(reduce.get(), prefix.c_str());
            }
        });
    });
}

TEST_CASE("an abort ends a step, of every kind and with exchanges that have begun early", "[abort][optimizer]") {
    const onebit_optimizer_kind_t kind =
        GENERATE(ONEBIT_OPTIMIZER_ADAM, ONEBIT_OPTIMIZER_ONEBIT_ADAM, ONEBIT_OPTIMIZER_LAMB,
                 ONEBIT_OPTIMIZER_ONEBIT_LAMB, ONEBIT_OPTIMIZER_ZERO_ONE_ADAM);
    const std::uint64_t bucket_size = GENERATE(std::uint64_t{0}, std::uint64_t{3000});
    run_aborted([&](onebit_comm_t comm, RankLog& log) {
        Setup setup{quick_config(kind), {4000, 3000}};
        setup.config.bucket_size = bucket_size;
        Training training(comm, setup, log);
        training.steps(gaussian_gradient(total(setup.sizes), 1), 1, 8);
        if (bucket_size > 0) (void)onebit_optimizer_grad_ready(training.get(), 1);
        expect_ended(comm, log, [&] { return onebit_optimizer_step(training.get()); });
    });
}

TEST_CASE("an abort may come from another thread than the one that waits", "[abort]") {
    run_aborted([&](onebit_comm_t comm, RankLog& log) {
        Allreduce reduce(comm, flat_config(5000), log);
        std::vector<float> values(5000, 1.0F);
        log.barrier();
        if (!log.last_rank()) {
            const auto begin = Clock::now();
            std::thread watchdog;
            if (log.rank() == 0) {
                watchdog = std::thread([&] {
                    std::this_thread::sleep_for(kUntilAllWait);
                    (void)onebit_comm_abort(comm, nullptr);
                });
            }
            ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_TRANSPORT,
                                 onebit_allreduce_run(reduce.get(), values.data(), values.data()));
            ONEBIT_EXPECT(log, holds(onebit_last_error(), "rank 0 called onebit_comm_abort;no reason given"));
            ONEBIT_EXPECT(log, Clock::now() - begin < kUntilAllWait + kWithin);
            if (watchdog.joinable()) watchdog.join();
        }
        log.barrier();
    });
}

TEST_CASE("an abort of what is no communicator", "[abort][bad input]") {
    CHECK(onebit_comm_abort(nullptr, "why") == ONEBIT_ERROR_INVALID_HANDLE);
}
