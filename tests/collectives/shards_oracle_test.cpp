// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Reduce-scatter and all-gather against the oracle, bit for bit: their results, the errors that they keep, and the
// number of bytes that they send.
#include <functional>

#include "support/environment.hpp"
#include "support/magnitudes.hpp"
#include "support/shard_handles.hpp"

using namespace onebit_test;

namespace {

constexpr onebit_op_t both_ops[] = {ONEBIT_OP_AVERAGE, ONEBIT_OP_SUM};

template <class Collective>
std::vector<onebit_op_t> ops_of() {
    if (Collective::gathers) return {ONEBIT_OP_AVERAGE};
    return {both_ops[0], both_ops[1]};
}

oracle::Op oracle_op(onebit_op_t op) {
    return op == ONEBIT_OP_SUM ? oracle::Op::sum : oracle::Op::average;
}

// Values of a rank in a step.
using Maker = std::function<std::vector<float>(std::uint64_t count, int rank, std::uint64_t step)>;

Maker maker_of(Kind kind) {
    return [kind](std::uint64_t count, int rank, std::uint64_t step) { return make_data(kind, count, 23, rank, step); };
}

// The expected state of all ranks after a call.
struct Step {
    oracle::FloatsPerRank inputs, outputs, errors; // [rank]; no errors: unspecified
    bool finite = true;
};

// Calls and their expected results. A script is made once, for all ranks.
template <class Collective>
struct Script {
    std::string name;
    Cut cut;
    Mode mode;
    onebit_op_t op = ONEBIT_OP_AVERAGE;
    std::vector<Step> steps;

    onebit_shard_config_t config() const {
        onebit_shard_config_t config = shard_config(cut, mode);
        config.op = op;
        return config;
    }
};

template <class Collective>
Script<Collective> write_script(const Cut& cut, Mode mode, onebit_op_t op, std::uint64_t steps, const Maker& make,
                                bool all_begin_again = false) {
    Script<Collective> script{mode.name() + (op == ONEBIT_OP_SUM ? " sum, " : ", ") + cut.name, cut, mode, op, {}};
    typename Collective::Reference reference(cut.counts, coding_of(mode), oracle_op(op));
    if constexpr (!Collective::gathers) reference.all_begin_again = all_begin_again;
    for (std::uint64_t t = 0; t < steps; ++t) {
        Step step;
        for (std::size_t r = 0; r < cut.counts.size(); ++r)
            step.inputs.push_back(make(Collective::gathers ? cut.counts[r] : cut.total(), static_cast<int>(r), t));
        reference.step(step.inputs);
        step.finite = reference.finite;
        for (std::size_t r = 0; r < cut.counts.size(); ++r) step.outputs.push_back(reference.output(r));
        bool known = true;
        if constexpr (!Collective::gathers) known = reference.sums_finite;
        if (known) step.errors = reference.errors;
        script.steps.push_back(std::move(step));
        if (!known) break; // later results are unspecified as well
    }
    return script;
}

template <class Collective>
std::vector<Script<Collective>> write_scripts(const std::vector<Cut>& cuts, std::uint64_t steps, const Maker& make) {
    std::vector<Script<Collective>> scripts;
    for (const Cut& cut : cuts)
        for (const Mode& mode : every_mode())
            for (const onebit_op_t op : ops_of<Collective>())
                scripts.push_back(write_script<Collective>(cut, mode, op, steps, make));
    return scripts;
}

template <class Collective>
void follow(onebit_comm_t comm, RankLog& log, const Script<Collective>& script, const onebit_shard_config_t& config) {
    const std::vector<Way> ways = all_ways();
    const auto rank = static_cast<std::size_t>(log.rank());
    Shards<Collective> shards(comm, config, log);
    for (std::size_t t = 0; t < script.steps.size(); ++t) {
        log.context(script.name + ", step " + std::to_string(t));
        const Step& step = script.steps[t];
        // Each rank calls in a different way.
        const Outcome outcome = shards.call(step.inputs[rank], ways[(t + rank) % ways.size()]);
        if (step.finite) {
            ONEBIT_EXPECT_STATUS(log, ONEBIT_SUCCESS, outcome.status);
            expect_bits(log, "the result", outcome.output, step.outputs[rank]);
        } else {
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "rank|overflow", outcome.status);
            // The result of an all-gather is unspecified then.
            ONEBIT_EXPECT(log, Collective::gathers || step.errors.empty() || outcome.untouched);
        }
        if (step.errors.empty())
            ONEBIT_EXPECT(log, all_finite(shards.error()));
        else
            expect_bits(log, "the error", shards.error(), step.errors[rank]);
    }
}

template <class Collective>
void follow_all(int n, const std::vector<Script<Collective>>& scripts,
                const std::function<void(onebit_shard_config_t&)>& change = {}) {
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        for (const Script<Collective>& script : scripts) {
            onebit_shard_config_t config = script.config();
            if (change) change(config);
            follow(comm, log, script, config);
        }
    });
}

// Bytes of one message of `count` elements.
std::uint64_t message_bytes(Mode mode, std::uint64_t count) {
    if (count == 0) return 0;
    if (mode.codec != ONEBIT_CODEC_SIGN) return 4 * oracle::message_words(static_cast<oracle::Code>(mode.codec), count);
    const std::uint64_t scales = mode.group == ONEBIT_GROUP_BUFFER ? 1 : oracle::blocks_of({0, count}).size();
    return 4 * ((count + 31) / 32 + scales);
}

// Bytes that a rank sends in one compressed call, without tickets.
template <class Collective>
std::uint64_t data_bytes(const Cut& cut, Mode mode, int rank) {
    std::uint64_t bytes = 0;
    for (int r = 0; r < static_cast<int>(cut.counts.size()); ++r)
        if (r != rank) bytes += message_bytes(mode, cut.shard(Collective::gathers ? rank : r).count);
    return bytes;
}

// Bytes that a rank sends in a float32 call.
template <class Collective>
std::uint64_t float_bytes(const Cut& cut, int rank) {
    const std::uint64_t own = cut.shard(rank).count;
    return 4 * (Collective::gathers ? own * (cut.counts.size() - 1) : cut.total() - own);
}

} // namespace

TEMPLATE_TEST_CASE("shards of odd sizes have the oracle's bits, in whatever way a call is made", "[shards][oracle]",
                   ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    follow_all(n, write_scripts<TestType>(odd_cuts(n), 4, maker_of(Kind::gaussian)));
}

TEMPLATE_TEST_CASE("shards have the oracle's bits in 40 steps", "[shards][oracle][long]", ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    for (const Kind kind : {Kind::gaussian, Kind::heavy_tailed, Kind::zeros, Kind::tiny, Kind::huge})
        follow_all(n, write_scripts<TestType>({equal_cut(n, 130)}, kind == Kind::gaussian ? 40 : 10, maker_of(kind)));
}

TEMPLATE_TEST_CASE("shards of many blocks have the oracle's bits in pieces, by several threads", "[shards][oracle]",
                   ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable piece("ONEBIT_PIECE", "4096"); // so that there are several
    Cut cut = chunk_cut(n, 40003);
    if (n > 1) { // and ranks have different numbers of them
        cut.counts[0] += cut.counts.back() - 9001;
        cut.counts.back() = 9001;
    }
    const auto scripts = write_scripts<TestType>({cut}, 3, maker_of(Kind::heavy_tailed));
    for (const std::uint32_t threads : {1U, 3U})
        follow_all<TestType>(n, scripts, [&](onebit_shard_config_t& config) { config.threads = threads; });
    // Where values are checked as they are encoded.
    const Variable second_error("ONEBIT_SECOND_ERROR", "1");
    follow_all<TestType>(n, scripts, [&](onebit_shard_config_t& config) { config.threads = 3; });
}

TEMPLATE_TEST_CASE("shards have the oracle's bits however they are checked", "[shards][oracle]", ReduceScatter,
                   AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    const auto scripts = write_scripts<TestType>({mixed_cut(n)}, 3, maker_of(Kind::gaussian));
    for (const onebit_check_t check : {ONEBIT_CHECK_NONE, ONEBIT_CHECK_FULL_LOW_MEMORY})
        follow_all<TestType>(n, scripts, [&](onebit_shard_config_t& config) { config.check = check; });
}

TEMPLATE_TEST_CASE("shards have the oracle's bits at all magnitudes, and fail where it does",
                   "[shards][oracle][magnitudes]", ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    // The largest floats of both signs for a while; then all magnitudes in turn.
    const Maker make = [](std::uint64_t count, int rank, std::uint64_t step) {
        return make_magnitudes(count, 0, rank, step < magnitude_turns ? 2 : step);
    };
    // The same for sums that overflow later.
    const Maker make_eighths = [make](std::uint64_t count, int rank, std::uint64_t step) {
        std::vector<float> values = make(count, rank, step);
        for (float& value : values) value /= 8;
        return values;
    };
    Cut cut = equal_cut(n, 333);
    cut.counts[0] = 700;
    std::vector<Script<TestType>> scripts;
    for (const Mode& mode : every_mode()) {
        for (const onebit_op_t op : ops_of<TestType>()) {
            for (const Maker& maker : {make, make_eighths})
                scripts.push_back(write_script<TestType>(cut, mode, op, 3 * magnitude_turns, maker));
        }
    }
    follow_all(n, scripts);
    const Variable second_error("ONEBIT_SECOND_ERROR", "1");
    follow_all(n, scripts);
}

TEMPLATE_TEST_CASE("tiny magnitudes have the oracle's bits", "[shards][oracle][magnitudes]", ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    // About as large as the smallest normal numbers, among zeros.
    const Maker make = [](std::uint64_t count, int rank, std::uint64_t step) {
        Random random(21, rank, step);
        std::vector<float> values(count);
        for (float& value : values)
            value = random.uniform() < 0.3 ? 0.0F : value_of_magnitude(random, -127, -116, true);
        return values;
    };
    follow_all(n, write_scripts<TestType>({equal_cut(n, 257)}, 10, make));
}

TEST_CASE("values that overflow with the error begin all errors again where memory is low", "[shards][magnitudes]") {
    const int n = GENERATE(from_range(rank_counts()));
    // One rank's values overflow with its error, in turn; the others' don't.
    const Maker make = [n](std::uint64_t count, int rank, std::uint64_t step) {
        std::vector<float> values = make_data(Kind::gaussian, count, 29, rank, step);
        if (static_cast<int>(step / 2) % n == rank) values[count / 2] = 3e38F;
        return values;
    };
    for (const bool low_memory : {false, true}) {
        std::vector<Script<ReduceScatter>> scripts;
        for (const Mode& mode : every_mode()) {
            scripts.push_back(write_script<ReduceScatter>(equal_cut(n, 777), mode, ONEBIT_OP_AVERAGE,
                                                          2 * static_cast<std::uint64_t>(n) + 2, make, low_memory));
            // Other codes than signs leave little of such a value as error.
            const auto failures = std::count_if(scripts.back().steps.begin(), scripts.back().steps.end(),
                                                [](const Step& step) { return !step.finite; });
            CHECK((failures > 0 || mode.codec != ONEBIT_CODEC_SIGN));
        }
        follow_all<ReduceScatter>(n, scripts, [&](onebit_shard_config_t& config) {
            config.check = low_memory ? ONEBIT_CHECK_FULL_LOW_MEMORY : ONEBIT_CHECK_FULL;
        });
    }
}

TEMPLATE_TEST_CASE("a reset, and a saved state, go on with the oracle's bits", "[shards][oracle][state]", ReduceScatter,
                   AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    const auto scripts = write_scripts<TestType>({mixed_cut(n)}, 5, maker_of(Kind::gaussian));
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const auto rank = static_cast<std::size_t>(log.rank());
        for (const Script<TestType>& script : scripts) {
            log.context(script.name);
            Shards<TestType> before(comm, script.config(), log), after(comm, script.config(), log);
            for (std::size_t t = 0; t < 3; ++t) before.run(script.steps[t].inputs[rank]);
            const Bytes state = before.packed();
            ONEBIT_EXPECT_OK(log, TestType::unpack_state(after.get(), state.data(), state.size()));
            expect_bits(log, "the loaded error", after.error(), script.steps[2].errors[rank]);
            for (std::size_t t = 3; t < 5; ++t) {
                expect_bits(log, "the result", after.run(script.steps[t].inputs[rank]), script.steps[t].outputs[rank]);
                expect_bits(log, "the error", after.error(), script.steps[t].errors[rank]);
            }
            ONEBIT_EXPECT_OK(log, TestType::reset(before.get()));
            expect_bits(log, "no error", before.error(), std::vector<float>(before.input_count(), 0.0F));
            typename TestType::Reference again(script.cut.counts, coding_of(script.mode), oracle_op(script.op));
            again.call = 3; // a reset forgets the error alone
            again.step(script.steps[0].inputs);
            expect_bits(log, "the first", before.run(script.steps[0].inputs[rank]), again.output(rank));
        }
    });
}

TEMPLATE_TEST_CASE("shards send the bytes that the page says, and little else", "[shards][statistics]", ReduceScatter,
                   AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        for (const Cut& cut : odd_cuts(n)) {
            for (const Mode& mode : every_mode()) {
                for (const onebit_check_t check : {ONEBIT_CHECK_FULL, ONEBIT_CHECK_NONE}) {
                    log.context(cut.name + ", " + mode.name() + ", check " + std::to_string(check));
                    onebit_shard_config_t config = shard_config(cut, mode);
                    config.check = check;
                    Shards<TestType> shards(comm, config, log);
                    const std::uint64_t created = shards.info().bytes_sent;
                    shards.run_steps(101, 0, 1);
                    const onebit_shard_info_t first = shards.info();
                    const std::uint64_t exact = data_bytes<TestType>(cut, mode, log.rank());
                    const std::uint64_t agreement =
                        check == ONEBIT_CHECK_NONE ? 0 : 64 * static_cast<std::uint64_t>(n - 1);
                    ONEBIT_EXPECT(log, first.last_bytes_sent >= exact && first.last_bytes_sent <= exact + agreement);
                    ONEBIT_EXPECT(log, first.bytes_sent >= created + first.last_bytes_sent);
                    ONEBIT_EXPECT(log, first.dense_bytes == float_bytes<TestType>(cut, log.rank()));
                    shards.run_steps(101, 1, 2);
                    const onebit_shard_info_t third = shards.info();
                    ONEBIT_EXPECT(log, third.calls == 3 && third.last_bytes_sent == first.last_bytes_sent);
                    ONEBIT_EXPECT(log, third.bytes_sent == first.bytes_sent + 2 * first.last_bytes_sent);
                }
            }
            log.context(cut.name + ", dense");
            Shards<TestType> dense(comm, shard_config(cut, default_mode(), ONEBIT_ALGORITHM_DENSE), log);
            dense.run_steps(101, 0, 2);
            const onebit_shard_info_t info = dense.info();
            ONEBIT_EXPECT(log, info.dense_bytes == float_bytes<TestType>(cut, log.rank()));
            ONEBIT_EXPECT(log, info.last_bytes_sent >= info.dense_bytes);
            ONEBIT_EXPECT(log, info.last_bytes_sent <= info.dense_bytes + 64 * static_cast<std::uint64_t>(n - 1));
        }
    });
}

TEMPLATE_TEST_CASE("a handle says which shard is this rank's, and what it is made of", "[shards][statistics]",
                   ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        for (const Cut& cut : odd_cuts(n)) {
            log.context(cut.name);
            Shards<TestType> shards(comm, shard_config(cut), log);
            const onebit_shard_info_t info = shards.info();
            const oracle::Range own = cut.shard(log.rank());
            ONEBIT_EXPECT(log, info.shard_begin == own.begin && info.shard_count == own.count);
            ONEBIT_EXPECT(log, info.calls == 0 && info.last_bytes_sent == 0);
            ONEBIT_EXPECT(log, info.algorithm == ONEBIT_ALGORITHM_PIPELINED);
            ONEBIT_EXPECT(log, std::string(info.transport) == transport_name());
            ONEBIT_EXPECT(log, info.kernels[0] != '\0' && info.reason[0] != '\0' && info.threads >= 1);
            ONEBIT_EXPECT(log, info.state_bytes >= 4 * shards.input_count());
        }
        onebit_shard_config_t config = ONEBIT_SHARD_CONFIG_INIT(100 * static_cast<std::uint64_t>(n));
        config.threads = 3;
        ONEBIT_EXPECT(log, Shards<TestType>(comm, config, log).info().threads == 3);
    });
}

TEMPLATE_TEST_CASE("counts that are NULL are equal shards", "[shards]", ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        for (const std::uint64_t each : {1U, 33U, 5001U}) {
            const Cut cut = equal_cut(n, each);
            onebit_shard_config_t config = shard_config(cut);
            Shards<TestType> given(comm, config, log);
            config.counts = nullptr;
            Shards<TestType> equal(comm, config, log);
            ONEBIT_EXPECT(log, equal.info().shard_begin == each * static_cast<std::uint64_t>(log.rank()));
            ONEBIT_EXPECT(log, equal.info().shard_count == each);
            expect_bits(log, "the result", equal.run_steps(3, 0, 3), given.run_steps(3, 0, 3));
            expect_bits(log, "the error", equal.error(), given.error());
        }
    });
}
