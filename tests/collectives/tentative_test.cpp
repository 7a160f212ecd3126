// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Calls whose values are checked as they are encoded: of many elements, with ONEBIT_CHECK_FULL. They must equal calls
// that check all values first, in results, in errors and in everything that a refused call leaves unchanged.
#include <algorithm>
#include <limits>
#include <thread>

#include "support/environment.hpp"
#include "support/handles.hpp"
#include "support/sanitized.hpp"
#include "support/shared_values.hpp"

using namespace onebit_test;

namespace {

constexpr std::uint64_t kCount = 70037;
constexpr onebit_algorithm_t kForms[] = {ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_BRUCK};

std::vector<float> values(const RankLog& log, std::uint64_t step, std::uint64_t count = kCount) {
    return make_data(Kind::gaussian, count, 171, log.rank(), step);
}

std::string rank_needle(int rank) {
    return "rank " + std::to_string(rank) + ":";
}

// A tried handle, and its twin, which checks all values first and never gets the calls that must be refused.
class Twins {
  public:
    Twins(onebit_comm_t comm, RankLog& log, Mode mode = default_mode())
        : Twins(comm, log, form_config(ONEBIT_ALGORITHM_BRUCK, kCount, mode)) {} // has the other flat forms, too
    Twins(onebit_comm_t comm, RankLog& log, onebit_allreduce_config_t config)
        : log_(log),
          count_(config.count),
          shared_(comm, config.count, log),
          tried(comm, with_check(config, ONEBIT_CHECK_FULL), log),
          spared(comm, with_check(config, ONEBIT_CHECK_FULL_LOW_MEMORY), log) {}

    void set_algorithm(onebit_algorithm_t form) {
        for (const Allreduce* handle : {&tried, &spared}) {
            ONEBIT_EXPECT_OK(log_, onebit_allreduce_set_algorithm(handle->get(), form));
        }
    }
    // With values in this rank's own memory or, in every other step, in memory that a node's ranks share.
    // `looks_twice`: the tried handle is tentative, which costs a second ticket for each peer.
    void expect_same(std::uint64_t step, bool looks_twice = true) {
        const std::vector<float> input = values(log_, step, count_);
        std::vector<float> result(count_);
        put(input, shared_.data());
        const float* const from = step % 2 == 1 ? shared_.data() : input.data();
        ONEBIT_EXPECT_OK(log_, onebit_allreduce_run(tried.get(), from, result.data()));
        const bool two_levels = tried.info().algorithm == ONEBIT_ALGORITHM_TWO_LEVEL;
        ONEBIT_EXPECT(log_, was_direct(tried) == (two_levels && step % 2 == 1));
        ONEBIT_EXPECT(log_, same_bits(result, spared.run(input)));
        if (log_.size() < 9) { // from where on tickets travel through others
            const auto tickets = static_cast<std::uint64_t>(looks_twice ? 16 * (log_.size() - 1) : 0);
            ONEBIT_EXPECT(log_, tried.info().last_bytes_sent == spared.info().last_bytes_sent + tickets);
        }
        ONEBIT_EXPECT(log_, log_.same_on_all(result.data(), result.size() * sizeof(float)));
        ONEBIT_EXPECT(log_, tried.errors().same_as(spared.errors()));
    }
    // Through run into another buffer and in place, and from memory that ranks share: the same failure on every rank,
    // and everything unchanged.
    void expect_refused(onebit_status_t status, const std::string& needles, const std::vector<float>& input) {
        std::vector<float> output(count_, 0.5F);
        std::vector<float> both = input;
        put(input, shared_.data());
        const Errors before = tried.errors();
        ONEBIT_EXPECT_FAILURE(log_, status, needles, onebit_allreduce_run(tried.get(), input.data(), output.data()));
        ONEBIT_EXPECT_FAILURE(log_, status, needles, onebit_allreduce_run(tried.get(), both.data(), both.data()));
        for (float* const to : {output.data(), shared_.data()})
            ONEBIT_EXPECT_FAILURE(log_, status, needles, onebit_allreduce_run(tried.get(), shared_.data(), to));
        ONEBIT_EXPECT(log_, was_direct(tried) == (tried.info().algorithm == ONEBIT_ALGORITHM_TWO_LEVEL));
        ONEBIT_EXPECT(log_, same_bits(get(shared_.data(), count_), input));
        ONEBIT_EXPECT(log_, std::all_of(output.begin(), output.end(), [](float value) { return value == 0.5F; }));
        ONEBIT_EXPECT(log_, same_bits(both, input));
        ONEBIT_EXPECT(log_, tried.errors().same_as(before));
        ONEBIT_EXPECT(log_, tried.info().calls == spared.info().calls);
    }

  private:
    static onebit_allreduce_config_t with_check(onebit_allreduce_config_t config, onebit_check_t check) {
        config.check = check;
        return config;
    }

    RankLog& log_;
    std::uint64_t count_;
    SharedValues shared_;

  public:
    Allreduce tried;
    Allreduce spared;
};

} // namespace

TEST_CASE("values checked on the way give the bits of values checked first", "[tentative]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable from("ONEBIT_SECOND_ERROR", "1");
    const Variable piece("ONEBIT_PIECE", "4096");
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const Mode& mode : every_mode()) {
            log.context(mode.name());
            Twins twins(comm, log, mode);
            for (std::uint64_t step = 0; step < 4; ++step) {
                twins.set_algorithm(kForms[step % 3]);
                twins.expect_same(step);
            }
            std::vector<float> both = values(log, 4);
            const std::vector<float> expected = twins.spared.run(both);
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(twins.tried.get(), both.data(), both.data()));
            for (int done = 0; done == 0;) ONEBIT_EXPECT_OK(log, onebit_allreduce_test(twins.tried.get(), &done));
            ONEBIT_EXPECT(log, same_bits(both, expected));
            ONEBIT_EXPECT(log, twins.tried.info().calls == 5);
        }
    });
}

TEST_CASE("a NaN that the encoder comes upon is refused by all ranks, and has never been", "[tentative][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable from("ONEBIT_SECOND_ERROR", "1");
    const Variable piece("ONEBIT_PIECE", "4096");
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const float infinity = std::numeric_limits<float>::infinity();
        for (const Mode& mode : every_mode()) {
            Twins twins(comm, log, mode);
            std::uint64_t step = 0;
            twins.expect_same(step++);
            for (std::size_t trial = 0; trial < 9; ++trial) {
                const onebit_algorithm_t form = kForms[trial / 3];
                twins.set_algorithm(form);
                const std::size_t place = std::vector<std::size_t>{0, 40321, kCount - 1}[trial % 3];
                const int faulty = static_cast<int>(step) % log.size();
                log.context(mode.name() + " form " + std::to_string(form) + " at " + std::to_string(place));
                std::vector<float> spoiled = values(log, step);
                if (log.rank() == faulty) spoiled[place] = step % 2 == 0 ? NAN : -infinity;
                twins.expect_refused(ONEBIT_ERROR_NONFINITE,
                                     rank_needle(faulty) + ";sendbuf[" + std::to_string(place) + "];nan|inf", spoiled);
                twins.expect_same(step++);
            }
        }
    });
}

TEST_CASE("a call along a ring may be refused, too", "[tentative][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable from("ONEBIT_SECOND_ERROR", "1");
    const Variable piece("ONEBIT_PIECE", "4096");
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const Mode& mode : every_mode()) {
            Twins twins(comm, log, form_config(ONEBIT_ALGORITHM_RING, kCount, mode));
            for (std::uint64_t step = 0; step < 3; ++step) {
                std::vector<float> spoiled = values(log, step);
                if (log.last_rank()) spoiled[40321] = NAN;
                twins.expect_refused(ONEBIT_ERROR_NONFINITE, rank_needle(log.size() - 1) + ";sendbuf[40321];nan",
                                     spoiled);
                twins.expect_same(step);
            }
        }
    });
}

TEST_CASE("bad arguments and different ways are refused before anything is encoded", "[tentative][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable from("ONEBIT_SECOND_ERROR", "1");
    const Variable piece("ONEBIT_PIECE", "4096");
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Twins twins(comm, log);
        twins.expect_same(0);
        const std::vector<float> input = values(log, 1);
        std::vector<float> output(kCount);
        const float* const send = log.last_rank() ? nullptr : input.data();
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, rank_needle(log.size() - 1) + ";sendbuf;null",
                              onebit_allreduce_run(twins.tried.get(), send, output.data()));
        if (log.size() > 1) {
            const onebit_algorithm_t mine = log.last_rank() ? ONEBIT_ALGORITHM_FLAT : ONEBIT_ALGORITHM_PIPELINED;
            ONEBIT_EXPECT_OK(log, onebit_allreduce_set_algorithm(twins.tried.get(), mine));
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "algorithm",
                                  onebit_allreduce_run(twins.tried.get(), input.data(), output.data()));
        }
        twins.set_algorithm(ONEBIT_ALGORITHM_PIPELINED);
        twins.expect_same(1);
    });
}

TEST_CASE("finite values that overflow with their error reset it, checked on the way too", "[tentative][failure]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable from("ONEBIT_SECOND_ERROR", "1");
    const Variable piece("ONEBIT_PIECE", "4096");
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_algorithm_t form : kForms) {
            Twins twins(comm, log);
            twins.set_algorithm(form);
            std::vector<float> huge(kCount, 0.0F), output(kCount);
            huge[kCount / 2] = 3e38F; // twice this is more than a float holds, and most of it is left over as error
            ONEBIT_EXPECT(log, same_bits(twins.tried.run(huge), twins.spared.run(huge)));
            for (const Allreduce* handle : {&twins.tried, &twins.spared}) {
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "overflow;reset",
                                      onebit_allreduce_run(handle->get(), huge.data(), output.data()));
            }
            twins.expect_same(2);
        }
    });
}

TEST_CASE("a NaN on one rank and an overflow on another: refused, and the error is kept", "[tentative][failure]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable from("ONEBIT_SECOND_ERROR", "1");
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Twins twins(comm, log);
        std::vector<float> bad(kCount, 0.0F);
        bad[kCount / 2] = 3e38F; // twice this is more than a float holds
        ONEBIT_EXPECT(log, same_bits(twins.tried.run(bad), twins.spared.run(bad)));
        if (log.last_rank()) bad[7] = NAN;
        twins.expect_refused(ONEBIT_ERROR_NONFINITE, rank_needle(log.size() - 1) + ";sendbuf[7]", bad);
        bad[8] = INFINITY; // on every rank: the first one is named
        twins.expect_refused(ONEBIT_ERROR_NONFINITE, rank_needle(0) + ";sendbuf", bad);
    });
}

// ----------------------------------------------------------------------------------------------- two levels ----

namespace {

// Runs on n ranks in nodes of a given size; over MPI only with that many ranks.
void run_nodes(const std::function<void(onebit_comm_t, RankLog&)>& body) {
    const auto [n, node_size] = GENERATE(table<int, const char*>({{4, "2"}, {6, "2"}, {6, "3"}}));
    if (!can_have_ranks(n) || (is_sanitized() && n != 4)) return;
    const Variable nodes("ONEBIT_NODE_SIZE", node_size);
    const Variable from("ONEBIT_SECOND_ERROR", "1");
    const Variable piece("ONEBIT_PIECE", "4096");
    run_ranks(n, body);
}

// A count at which only the first shard has a sixth piece, of a word, in its first chunk, on two nodes of two ranks.
// With 20 elements some ranks have none.
constexpr std::uint64_t kUneven = 81952;
constexpr std::uint64_t kOnlyInFirst = 20485; // an element there

onebit_allreduce_config_t two_level_config(Mode mode = default_mode(), std::uint64_t count = kCount) {
    return form_config(ONEBIT_ALGORITHM_TWO_LEVEL, count, mode);
}

} // namespace

TEST_CASE("two levels: values checked on the way give the bits of values checked first", "[tentative]") {
    run_nodes([](onebit_comm_t comm, RankLog& log) {
        for (const Mode& mode : every_mode()) {
            for (const std::uint64_t count : {kCount, kUneven, std::uint64_t{20}, std::uint64_t{40}}) {
                log.context(mode.name() + " count " + std::to_string(count));
                Twins twins(comm, log, two_level_config(mode, count));
                for (std::uint64_t step = 0; step < 3; ++step) twins.expect_same(step);
                std::vector<float> both = values(log, 3, count);
                const std::vector<float> expected = twins.spared.run(both);
                ONEBIT_EXPECT_OK(log, onebit_allreduce_start(twins.tried.get(), both.data(), both.data()));
                for (int done = 0; done == 0; std::this_thread::yield()) {
                    ONEBIT_EXPECT_OK(log, onebit_allreduce_test(twins.tried.get(), &done));
                }
                ONEBIT_EXPECT(log, same_bits(both, expected));
            }
        }
    });
}

TEST_CASE("two levels: a NaN is refused by all ranks, whoever's shard it is in", "[tentative][bad input][long]") {
    run_nodes([](onebit_comm_t comm, RankLog& log) {
        for (const Mode& mode : every_mode()) {
            for (const std::uint64_t count : {std::uint64_t{20}, kUneven}) {
                Twins twins(comm, log, two_level_config(mode, count));
                twins.expect_same(0);
                std::uint64_t step = 1;
                for (const std::uint64_t place : {std::uint64_t{0}, kOnlyInFirst % count, count / 2, count - 1}) {
                    for (const int faulty : {0, log.size() - 1}) {
                        log.context(mode.name() + " at " + std::to_string(place) + " of " + std::to_string(count));
                        std::vector<float> spoiled = values(log, step, count);
                        if (log.rank() == faulty) spoiled[place] = step % 2 == 0 ? NAN : INFINITY;
                        twins.expect_refused(ONEBIT_ERROR_NONFINITE,
                                             rank_needle(faulty) + ";sendbuf[" + std::to_string(place) + "];nan|inf",
                                             spoiled);
                        twins.expect_same(step++);
                    }
                }
            }
        }
    });
}

TEST_CASE("two levels: finite values that overflow together reset the error, a NaN elsewhere keeps it",
          "[tentative][failure]") {
    run_nodes([](onebit_comm_t comm, RankLog& log) {
        Twins twins(comm, log, two_level_config());
        twins.expect_same(0);
        std::vector<float> huge(kCount, 0.0F), output(kCount);
        huge[kCount - 7] = 3e38F; // twice this is more than a float holds, and most of it is left over as error
        for (const Allreduce* handle : {&twins.tried, &twins.spared}) {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_run(handle->get(), huge.data(), output.data()));
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "overflow;reset",
                                  onebit_allreduce_run(handle->get(), huge.data(), output.data()));
        }
        twins.expect_same(1);
        if (log.last_rank()) huge[7] = NAN;
        twins.expect_refused(ONEBIT_ERROR_NONFINITE, rank_needle(log.size() - 1) + ";sendbuf[7]", huge);
        twins.expect_same(2);
    });
}

TEST_CASE("two levels: under a mask values are looked at first", "[tentative]") {
    run_nodes([](onebit_comm_t comm, RankLog& log) {
        for (const std::uint64_t count : {kCount, std::uint64_t{20}}) { // of few some shards have none
            Twins twins(comm, log, two_level_config(default_mode(), count));
            const std::vector<std::uint32_t> mask((count + 31) / 32, 0xFFFFFFFEU);
            for (const std::uint32_t* words : {mask.data(), static_cast<const std::uint32_t*>(nullptr)}) {
                for (const Allreduce* handle : {&twins.tried, &twins.spared}) {
                    ONEBIT_EXPECT_OK(log, onebit_allreduce_set_mask(handle->get(), words));
                }
                twins.expect_same(0, words == nullptr);
            }
        }
    });
}

// ------------------------------------------------------------------------------------------- among other calls ----

TEST_CASE("dense calls between tentative ones", "[tentative]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable from("ONEBIT_SECOND_ERROR", "1");
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Twins twins(comm, log);
        twins.expect_same(0);
        twins.set_algorithm(ONEBIT_ALGORITHM_DENSE);
        std::vector<float> spoiled = values(log, 1);
        if (log.last_rank()) spoiled[7] = NAN;
        twins.expect_refused(ONEBIT_ERROR_NONFINITE, rank_needle(log.size() - 1) + ";sendbuf[7]", spoiled);
        twins.expect_same(1, false);
        twins.set_algorithm(ONEBIT_ALGORITHM_PIPELINED);
        twins.expect_same(2);
    });
}

TEST_CASE("one of two handles in flight is refused, the other is not", "[tentative][async]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable from("ONEBIT_SECOND_ERROR", "1");
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Twins bad(comm, log), good(comm, log);
        std::vector<float> spoiled = values(log, 0), fine = values(log, 1), kept(kCount, 0.5F), result(kCount);
        if (log.last_rank()) spoiled[kCount - 1] = NAN;
        ONEBIT_EXPECT_OK(log, onebit_allreduce_start(bad.tried.get(), spoiled.data(), kept.data()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_start(good.tried.get(), fine.data(), result.data()));
        onebit_status_t refused = ONEBIT_SUCCESS;
        for (int bad_done = 0, good_done = 0; bad_done == 0 || good_done == 0; std::this_thread::yield()) {
            if (bad_done == 0) refused = onebit_allreduce_test(bad.tried.get(), &bad_done);
            if (good_done == 0) ONEBIT_EXPECT_OK(log, onebit_allreduce_test(good.tried.get(), &good_done));
        }
        ONEBIT_EXPECT(log, refused == ONEBIT_ERROR_NONFINITE && kept[0] == 0.5F && kept.back() == 0.5F);
        ONEBIT_EXPECT(log, same_bits(result, good.spared.run(fine)));
        bad.expect_same(2);
        good.expect_same(3);
    });
}

TEST_CASE("tentative calls of many ranks, whose tickets travel through others", "[tentative][bad input]") {
    if (!can_have_ranks(11)) return;
    const Variable from("ONEBIT_SECOND_ERROR", "1");
    run_ranks(11, [](onebit_comm_t comm, RankLog& log) {
        Twins twins(comm, log);
        for (std::uint64_t step = 0; step < 3; ++step) {
            twins.set_algorithm(kForms[step]);
            std::vector<float> spoiled = values(log, step);
            if (log.rank() == 4) spoiled[12345] = NAN;
            twins.expect_refused(ONEBIT_ERROR_NONFINITE, "rank 4:;sendbuf[12345]", spoiled);
            twins.expect_same(step);
        }
    });
}

TEST_CASE("errors that are written past the caches, by several threads", "[tentative]") {
    const auto form = GENERATE(ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_TWO_LEVEL);
    const int n = form == ONEBIT_ALGORITHM_PIPELINED ? 2 : 4;
    if (!can_have_ranks(n)) return;
    const Variable nodes("ONEBIT_NODE_SIZE", "2");
    run_ranks(n, [form](onebit_comm_t comm, RankLog& log) {
        constexpr std::uint64_t kMany = (std::uint64_t{1} << 22) + 4133; // so many that it is so by default
        onebit_allreduce_config_t config = form_config(form, kMany);
        config.threads = 2;
        Allreduce tried(comm, config, log);
        config.check = ONEBIT_CHECK_NONE;
        config.threads = 1;
        Allreduce spared(comm, config, log);
        std::vector<float> input(kMany);
        for (std::size_t i = 0; i < kMany; ++i) {
            input[i] =
                static_cast<float>(static_cast<int>((i * 2654435761U + static_cast<std::size_t>(log.rank())) % 2001U)) -
                1000.5F;
        }
        for (int step = 0; step < 2; ++step) ONEBIT_EXPECT(log, same_bits(tried.run(input), spared.run(input)));
        ONEBIT_EXPECT(log, tried.errors().same_as(spared.errors()));
    });
}

TEST_CASE("under a mask values outside it are looked at, too", "[tentative][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable from("ONEBIT_SECOND_ERROR", "1");
    const Variable piece("ONEBIT_PIECE", "4096");
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Twins twins(comm, log);
        twins.expect_same(0);
        std::vector<std::uint32_t> mask((kCount + 31) / 32, 0xFFFFFFFEU); // all but each 32nd
        for (const Allreduce* handle : {&twins.tried, &twins.spared}) {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_set_mask(handle->get(), mask.data()));
        }
        twins.expect_same(1, false);
        std::vector<float> spoiled = values(log, 2);
        if (log.last_rank()) spoiled[32] = NAN;
        twins.expect_refused(ONEBIT_ERROR_NONFINITE, rank_needle(log.size() - 1) + ";sendbuf[32]", spoiled);
        twins.expect_same(2, false);
        for (const Allreduce* handle : {&twins.tried, &twins.spared}) {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_set_mask(handle->get(), nullptr));
        }
        twins.expect_same(3);
    });
}

TEST_CASE("a save between calls that were kept and calls that were refused", "[tentative][state]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable from("ONEBIT_SECOND_ERROR", "1");
    const Variable piece("ONEBIT_PIECE", "4096");
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Twins twins(comm, log);
        twins.expect_same(0);
        twins.expect_same(1); // errors have changed places twice now
        std::vector<float> spoiled = values(log, 2);
        spoiled.back() = log.last_rank() ? NAN : 1.0F;
        twins.expect_refused(ONEBIT_ERROR_NONFINITE, "sendbuf", spoiled);
        ONEBIT_EXPECT(log, twins.tried.packed() == twins.spared.packed());
        const Bytes state = twins.tried.packed();
        twins.expect_same(2);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_unpack_state(twins.tried.get(), state.data(), state.size()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_unpack_state(twins.spared.get(), state.data(), state.size()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_reset(twins.tried.get()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_reset(twins.spared.get()));
        twins.expect_same(3);
    });
}
