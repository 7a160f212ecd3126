// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Started reduce-scatters and all-gathers: test, wait, onebit_comm_progress and callbacks; the calls that a started
// operation forbids; and the operations that onebit_comm_abort ends.
#include <algorithm>
#include <cfenv>
#include <limits>
#include <memory>
#include <thread>

#include "support/aborts.hpp"
#include "support/environment.hpp"
#include "support/progress.hpp"
#include "support/shard_handles.hpp"

using namespace onebit_test;

namespace {

enum class Finish { wait, test, test_then_wait, progress };
constexpr Finish all_finishes[] = {Finish::wait, Finish::test, Finish::test_then_wait, Finish::progress};

template <class Collective>
onebit_status_t finish(onebit_comm_t comm, typename Collective::Handle handle, Finish how, RankLog& log) {
    if (how == Finish::wait) return Collective::wait(handle);
    if (how == Finish::progress) progress_to_the_end(comm, log);
    int done = 0;
    for (int polls = 0; how != Finish::test_then_wait || polls < 3; ++polls) {
        const onebit_status_t status = Collective::test(handle, &done);
        if (done != 0 || status != ONEBIT_SUCCESS) return status;
        std::this_thread::yield();
    }
    return Collective::wait(handle);
}

// One handle with a call in flight, with its memory and a twin that uses run.
template <class Collective>
struct Flight {
    Flight(onebit_comm_t comm, RankLog& log_in, const onebit_shard_config_t& config)
        : log(log_in), shards(comm, config, log), twin(comm, config, log) {}

    void start(std::uint64_t step) {
        input = shards.input(Kind::gaussian, 81, step);
        output.assign(shards.output_count(), NAN);
        ONEBIT_EXPECT_OK(log, Collective::start(shards.get(), input.data(), output.data()));
    }
    bool poll() {
        int done = 0;
        ONEBIT_EXPECT_OK(log, Collective::test(shards.get(), &done));
        return done != 0;
    }
    void wait() { ONEBIT_EXPECT_OK(log, Collective::wait(shards.get())); }
    void expect_bits_of_run() {
        expect_bits(log, "the result", output, twin.run(input));
        expect_bits(log, "the error", shards.error(), twin.error());
    }

    RankLog& log;
    Shards<Collective> shards, twin;
    std::vector<float> input, output;
};

} // namespace

TEMPLATE_TEST_CASE("shards: start with test, wait or progress gives the bits of run", "[shards][async]", ReduceScatter,
                   AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable piece("ONEBIT_PIECE", "4096");
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const Cut& cut : {mixed_cut(log.size()), chunk_cut(log.size(), 20011), cut_with_zeros(log.size())}) {
            for (const onebit_algorithm_t algorithm : {ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_DENSE}) {
                Flight<TestType> flight(comm, log, shard_config(cut, default_mode(), algorithm));
                std::uint64_t step = 0;
                for (const Finish how : all_finishes) {
                    log.context(cut.name + ", finish " + std::to_string(static_cast<int>(how)));
                    flight.start(step++);
                    ONEBIT_EXPECT_OK(log, finish<TestType>(comm, flight.shards.get(), how, log));
                    flight.expect_bits_of_run();
                }
                ONEBIT_EXPECT(log, flight.shards.info().calls == step);
            }
        }
    });
}

TEMPLATE_TEST_CASE("shards: some ranks start, others run", "[shards][async]", ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Cut cut = mixed_cut(log.size());
        for (const onebit_algorithm_t algorithm : {ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_DENSE}) {
            const onebit_shard_config_t config = shard_config(cut, default_mode(), algorithm);
            Shards<TestType> shards(comm, config, log), twin(comm, config, log);
            for (std::uint64_t step = 0; step < 4; ++step) {
                const std::vector<float> input = shards.input(Kind::gaussian, 71, step);
                const bool starts = (step + static_cast<std::uint64_t>(log.rank())) % 2 == 0;
                expect_bits(log, "the result", shards.run(input, {false, false, starts}), twin.run(input));
            }
        }
    });
}

TEMPLATE_TEST_CASE("shards: start and test return while the peers are elsewhere", "[shards][async]", ReduceScatter,
                   AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Cut cut = equal_cut(log.size(), 5001);
        for (const onebit_algorithm_t algorithm : {ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_DENSE}) {
            Flight<TestType> flight(comm, log, shard_config(cut, default_mode(), algorithm));
            if (log.rank() == 0) {
                flight.start(0);
                for (int polls = 0; polls < 50; ++polls) {
                    const bool done = flight.poll();
                    ONEBIT_EXPECT(log, !done || log.size() == 1); // the others have not even begun
                }
            }
            log.barrier();
            if (log.rank() != 0) flight.start(0);
            flight.wait();
            flight.expect_bits_of_run();
        }
    });
}

TEMPLATE_TEST_CASE("shards: wait and test with nothing started succeed at once", "[shards][async]", ReduceScatter,
                   AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Cut cut = equal_cut(log.size(), 100);
        Shards<TestType> shards(comm, shard_config(cut), log);
        if (log.rank() == 0) { // local: the others do nothing
            int done = -1;
            ONEBIT_EXPECT_OK(log, TestType::wait(shards.get()));
            ONEBIT_EXPECT_OK(log, TestType::test(shards.get(), &done));
            ONEBIT_EXPECT(log, done == 1);
        }
        shards.run_steps(1, 0, 1);
        ONEBIT_EXPECT_OK(log, TestType::wait(shards.get()));
        ONEBIT_EXPECT(log, shards.info().calls == 1);
    });
}

TEMPLATE_TEST_CASE("shards: a started operation keeps its handle busy", "[shards][async]", ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Cut cut = mixed_cut(log.size());
        Flight<TestType> flight(comm, log, shard_config(cut));
        Bytes state = flight.shards.packed();
        const auto handle = flight.shards.get();
        std::vector<float> other(std::max(flight.shards.input_count(), flight.shards.output_count()), 7.0F);
        const std::vector<float> kept = other;
        const onebit_status_t busy = ONEBIT_ERROR_BUSY;
        flight.start(0);
        const float* const input = flight.input.data();
        ONEBIT_EXPECT_FAILURE(log, busy, "", TestType::run(handle, input, other.data()));
        ONEBIT_EXPECT_FAILURE(log, busy, "", TestType::start(handle, input, other.data()));
        ONEBIT_EXPECT_STATUS(log, busy, TestType::destroy(handle));
        ONEBIT_EXPECT_STATUS(log, busy, TestType::reset(handle));
        ONEBIT_EXPECT_STATUS(log, busy, TestType::set_algorithm(handle, ONEBIT_ALGORITHM_DENSE));
        ONEBIT_EXPECT_STATUS(log, busy, TestType::set_callback(handle, nullptr, nullptr));
        ONEBIT_EXPECT_STATUS(log, busy, TestType::get_error(handle, other.data()));
        ONEBIT_EXPECT_STATUS(log, busy, TestType::pack_state(handle, state.data(), state.size()));
        ONEBIT_EXPECT_STATUS(log, busy, TestType::unpack_state(handle, state.data(), state.size()));
        ONEBIT_EXPECT_STATUS(log, busy, TestType::save(handle, "/nonexistent/onebit"));
        ONEBIT_EXPECT_STATUS(log, busy, TestType::load(handle, "/nonexistent/onebit"));
        onebit_shard_info_t info = ONEBIT_SHARD_INFO_INIT;
        ONEBIT_EXPECT_OK(log, TestType::get_info(handle, &info)); // BUSY only while another thread is in a call
        ONEBIT_EXPECT(log, info.calls == 0);
        flight.wait();
        ONEBIT_EXPECT(log, same_bits(other, kept));
        flight.expect_bits_of_run();
    });
}

TEST_CASE("many reduce-scatters, all-gathers and allreduces in flight don't disturb each other",
          "[shards][async][progress]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Finish how = GENERATE(Finish::wait, Finish::test, Finish::progress);
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const Cut cuts[] = {mixed_cut(log.size()), chunk_cut(log.size(), 9001), cut_with_zeros(log.size())};
        std::vector<std::unique_ptr<Flight<ReduceScatter>>> scatters;
        std::vector<std::unique_ptr<Flight<AllGather>>> gathers;
        for (std::size_t i = 0; i < every_mode().size(); ++i) {
            const onebit_shard_config_t config = shard_config(cuts[i % 3], every_mode()[i]);
            scatters.push_back(std::make_unique<Flight<ReduceScatter>>(comm, log, config));
            gathers.push_back(std::make_unique<Flight<AllGather>>(comm, log, config));
        }
        Allreduce reduce(comm, flat_config(5003), log), reduce_twin(comm, flat_config(5003), log);
        const std::size_t handles = scatters.size();
        for (std::uint64_t step = 0; step < 3; ++step) {
            const std::vector<float> whole = make_data(Kind::gaussian, 5003, 82, log.rank(), step);
            std::vector<float> average(5003, NAN);
            for (std::size_t k = 0; k < handles; ++k) { // in each rank's own order
                const std::size_t i = (k + static_cast<std::size_t>(log.rank()) * 3) % handles;
                if (log.rank() % 2 == 0) scatters[i]->start(step);
                gathers[handles - 1 - i]->start(step);
                if (log.rank() % 2 == 1) scatters[i]->start(step);
                if (k == 2) ONEBIT_EXPECT_OK(log, onebit_allreduce_start(reduce.get(), whole.data(), average.data()));
            }
            if (how == Finish::progress) progress_to_the_end(comm, log);
            if (how == Finish::test) {
                for (bool all = false; !all; std::this_thread::yield()) {
                    int done = 0;
                    ONEBIT_EXPECT_OK(log, onebit_allreduce_test(reduce.get(), &done));
                    all = done != 0;
                    for (const auto& flight : scatters) all = flight->poll() && all;
                    for (const auto& flight : gathers) all = flight->poll() && all;
                }
            }
            for (std::size_t i = 0; i < handles; ++i) { // waited for in one order on all ranks
                gathers[i]->wait();
                scatters[i]->wait();
            }
            ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(reduce.get()));
            for (const auto& flight : scatters) flight->expect_bits_of_run();
            for (const auto& flight : gathers) flight->expect_bits_of_run();
            expect_bits(log, "the average", average, reduce_twin.run(whole));
        }
    });
}

TEST_CASE("progress counts shards' handles, and keeps how an operation ended for its wait",
          "[shards][async][progress]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Cut cut = equal_cut(log.size(), 1001);
        Shards<ReduceScatter> scatter(comm, shard_config(cut), log);
        Shards<AllGather> gather(comm, shard_config(cut), log);
        std::vector<float> whole(cut.total(), 1.0F), part(1001, 2.0F), gathered(cut.total()), got(1001);
        if (log.last_rank()) part[77] = std::numeric_limits<float>::quiet_NaN();
        int active = -1;
        ONEBIT_EXPECT_OK(log, onebit_comm_progress(comm, &active));
        ONEBIT_EXPECT(log, active == 0);
        const auto start = [&] {
            ONEBIT_EXPECT_OK(log, onebit_reduce_scatter_start(scatter.get(), whole.data(), got.data()));
            ONEBIT_EXPECT_OK(log, onebit_all_gather_start(gather.get(), part.data(), gathered.data()));
        };
        if (log.rank() == 0) {
            start();
            for (int polls = 0; polls < 50; ++polls) {
                ONEBIT_EXPECT_OK(log, onebit_comm_progress(comm, &active));
                ONEBIT_EXPECT(log, active == 2 || log.size() == 1);
            }
        }
        log.barrier();
        if (log.rank() != 0) start();
        progress_to_the_end(comm, log);
        // Finished, but not told yet.
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_BUSY,
                             onebit_reduce_scatter_start(scatter.get(), whole.data(), got.data()));
        ONEBIT_EXPECT_OK(log, onebit_reduce_scatter_wait(scatter.get()));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "rank " + std::to_string(log.size() - 1),
                              onebit_all_gather_wait(gather.get()));
        ONEBIT_EXPECT_OK(log, onebit_all_gather_wait(gather.get())); // told once
        ONEBIT_EXPECT(log, scatter.info().calls == 1 && gather.info().calls == 0);
    });
}

TEMPLATE_TEST_CASE("shards: a callback hears once how each started operation ended",
                   "[shards][async][progress][callback]", ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    const Finish how = GENERATE(Finish::wait, Finish::test, Finish::progress);
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const Cut cut = equal_cut(log.size(), 999);
        Shards<TestType> shards(comm, shard_config(cut), log), alone(comm, shard_config(cut), log);
        Told told;
        ONEBIT_EXPECT_OK(log, TestType::set_callback(shards.get(), &Told::hear, &told));
        std::vector<float> output(shards.output_count(), NAN);
        for (int call = 1; call <= 6; ++call) {
            log.context("call " + std::to_string(call));
            std::vector<float> values = shards.input(Kind::gaussian, 92, static_cast<std::uint64_t>(call));
            const bool wrong = call % 3 == 0;
            if (wrong && log.rank() == 0) values[5] = std::numeric_limits<float>::infinity();
            ONEBIT_EXPECT_OK(log, TestType::start(shards.get(), values.data(), output.data()));
            ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_BUSY, TestType::set_callback(shards.get(), nullptr, nullptr));
            ONEBIT_EXPECT(log, told.times == call - 1);
            const onebit_status_t expected = wrong ? ONEBIT_ERROR_NONFINITE : ONEBIT_SUCCESS;
            // Progress has reported the result: nothing is left for the test that follows it.
            ONEBIT_EXPECT_STATUS(log, how == Finish::progress ? ONEBIT_SUCCESS : expected,
                                 finish<TestType>(comm, shards.get(), how, log));
            ONEBIT_EXPECT(log, told.times == call && told.status == expected);
            if (wrong) ONEBIT_EXPECT(log, holds(told.message, "inf;rank 0"));
            if (!wrong) expect_bits(log, "the result", output, alone.run(values));
            ONEBIT_EXPECT_OK(log, TestType::wait(shards.get()));
            ONEBIT_EXPECT(log, told.times == call);
        }
        shards.run_steps(1, 0, 1);
        ONEBIT_EXPECT(log, told.times == 6);
        ONEBIT_EXPECT_OK(log, TestType::set_callback(shards.get(), nullptr, nullptr));
        const std::vector<float> values = shards.input(Kind::gaussian, 92, 9);
        ONEBIT_EXPECT_OK(log, TestType::start(shards.get(), values.data(), output.data()));
        ONEBIT_EXPECT_OK(log, TestType::wait(shards.get()));
        ONEBIT_EXPECT(log, told.times == 6);
    });
}

namespace {

// A sharded step: the reduce-scatter's result is gathered by a call that its callback starts. The all-gather's callback
// starts the next step, `left` times, and then destroys both handles.
struct Chain {
    RankLog* log;
    onebit_reduce_scatter_t scatter = nullptr;
    onebit_all_gather_t gather = nullptr;
    std::vector<float> whole, part;
    int left = 3;
    int rounding = -1;

    static void scattered(void* context, onebit_status_t status) {
        Chain& chain = *static_cast<Chain*>(context);
        ONEBIT_EXPECT_OK(*chain.log, status);
        chain.rounding = std::fegetround();
        ONEBIT_EXPECT_OK(*chain.log, onebit_all_gather_start(chain.gather, chain.part.data(), chain.whole.data()));
    }
    static void gathered(void* context, onebit_status_t status) {
        Chain& chain = *static_cast<Chain*>(context);
        ONEBIT_EXPECT_OK(*chain.log, status);
        if (chain.left-- > 0) {
            ONEBIT_EXPECT_OK(*chain.log,
                             onebit_reduce_scatter_start(chain.scatter, chain.whole.data(), chain.part.data()));
        } else {
            ONEBIT_EXPECT_OK(*chain.log, onebit_reduce_scatter_destroy(chain.scatter));
            ONEBIT_EXPECT_OK(*chain.log, onebit_all_gather_destroy(chain.gather));
        }
    }
};

} // namespace

TEST_CASE("a reduce-scatter's callback may start an all-gather, whose callback starts it anew and destroys both",
          "[shards][async][progress][callback]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Cut cut = chunk_cut(log.size(), 2003);
        const onebit_shard_config_t config = shard_config(cut);
        const std::vector<float> first = make_data(Kind::gaussian, cut.total(), 93, log.rank(), 0);
        std::vector<Chain> chains(3);
        for (Chain& chain : chains) {
            chain.log = &log;
            chain.whole = first;
            chain.part.assign(cut.shard(log.rank()).count, NAN);
            ONEBIT_EXPECT_OK(log, onebit_reduce_scatter_create(comm, &config, &chain.scatter));
            ONEBIT_EXPECT_OK(log, onebit_all_gather_create(comm, &config, &chain.gather));
            ONEBIT_EXPECT_OK(log, onebit_reduce_scatter_set_callback(chain.scatter, &Chain::scattered, &chain));
            ONEBIT_EXPECT_OK(log, onebit_all_gather_set_callback(chain.gather, &Chain::gathered, &chain));
        }
        Allreduce alone(comm, form_config(ONEBIT_ALGORITHM_PIPELINED, cut.total()), log);
        for (Chain& chain : chains)
            ONEBIT_EXPECT_OK(log, onebit_reduce_scatter_start(chain.scatter, chain.whole.data(), chain.part.data()));
        std::fesetround(FE_UPWARD);
        const auto unfinished = [&] {
            return std::any_of(chains.begin(), chains.end(), [](const Chain& chain) { return chain.left >= 0; });
        };
        bool forgotten = false; // a callback began work on a handle, and none is counted
        while (unfinished()) {
            int active = 0;
            ONEBIT_EXPECT_OK(log, onebit_comm_progress(comm, &active));
            forgotten = forgotten || (active == 0 && unfinished());
            std::this_thread::yield();
        }
        ONEBIT_EXPECT(log, !forgotten);
        ONEBIT_EXPECT(log, std::fegetround() == FE_UPWARD);
        std::fesetround(FE_TONEAREST);
        std::vector<float> expected = first;
        for (int call = 0; call < 4; ++call) expected = alone.run(expected);
        for (const Chain& chain : chains) {
            ONEBIT_EXPECT(log, chain.left == -1 && chain.rounding == FE_UPWARD);
            expect_bits(log, "the result", chain.whole, expected);
            ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_HANDLE, onebit_all_gather_wait(chain.gather));
        }
    });
}

// -------------------------------------------------------------------------------------------------------- aborts ----

TEMPLATE_TEST_CASE("shards: an abort ends a run or a started operation, and breaks the handle", "[shards][abort]",
                   ReduceScatter, AllGather) {
    const Variable timeout("ONEBIT_TIMEOUT", "30");
    const auto algorithm = GENERATE(ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_DENSE);
    const auto check = GENERATE(ONEBIT_CHECK_FULL, ONEBIT_CHECK_NONE);
    const bool starts = GENERATE(false, true);
    for_each_size(2, [&](onebit_comm_t comm, RankLog& log) {
        const Cut cut = equal_cut(log.size(), 20011);
        onebit_shard_config_t config = shard_config(cut, default_mode(), algorithm);
        config.check = check;
        Shards<TestType> shards(comm, config, log);
        const std::vector<float> input(shards.input_count(), 1.0F);
        std::vector<float> output(shards.output_count());
        if (starts && !log.last_rank())
            ONEBIT_EXPECT_OK(log, TestType::start(shards.get(), input.data(), output.data()));
        expect_ended(comm, log, [&] {
            return starts ? TestType::wait(shards.get()) : TestType::run(shards.get(), input.data(), output.data());
        });
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_TRANSPORT, TestType::run(shards.get(), input.data(), output.data()));
    });
}

TEMPLATE_TEST_CASE("shards: an abort ends what progress moves on", "[shards][abort][progress]", ReduceScatter,
                   AllGather) {
    const Variable timeout("ONEBIT_TIMEOUT", "30");
    for_each_size(2, [&](onebit_comm_t comm, RankLog& log) {
        const Cut cut = equal_cut(log.size(), 5001);
        const onebit_shard_config_t config = shard_config(cut);
        Shards<TestType> shards(comm, config, log);
        const std::vector<float> input(shards.input_count(), 1.0F);
        std::vector<float> output(shards.output_count());
        Told told;
        ONEBIT_EXPECT_OK(log, TestType::set_callback(shards.get(), &Told::hear, &told));
        if (!log.last_rank()) ONEBIT_EXPECT_OK(log, TestType::start(shards.get(), input.data(), output.data()));
        log.barrier();
        if (log.last_rank()) {
            ONEBIT_EXPECT_OK(log, onebit_comm_abort(comm, "it has had enough"));
        } else {
            progress_to_the_end(comm, log);
            ONEBIT_EXPECT(log, told.times == 1 && told.status == ONEBIT_ERROR_TRANSPORT);
            ONEBIT_EXPECT(log, holds(told.message, "it has had enough"));
        }
        log.barrier();
    });
}

TEMPLATE_TEST_CASE("shards: a peer that doesn't come is TIMEOUT", "[shards][failure]", ReduceScatter, AllGather) {
    for_each_size(2, [](onebit_comm_t comm, RankLog& log) {
        ONEBIT_EXPECT_OK(log, onebit_comm_set(comm, "ONEBIT_TIMEOUT", "0.5"));
        const Cut cut = equal_cut(log.size(), 1000);
        Shards<TestType> shards(comm, shard_config(cut), log);
        const std::vector<float> input(shards.input_count(), 1.0F);
        std::vector<float> output(shards.output_count());
        log.barrier();
        if (!log.last_rank()) {
            ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_TIMEOUT, TestType::run(shards.get(), input.data(), output.data()));
            ONEBIT_EXPECT(log, holds(onebit_last_error(), "rank " + std::to_string(log.size() - 1)));
            ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_TIMEOUT, TestType::run(shards.get(), input.data(), output.data()));
        }
        log.barrier();
    });
}
