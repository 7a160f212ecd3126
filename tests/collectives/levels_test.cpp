// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Allreduces on levels that the caller names: groups of ranks by color, each exact or with a codec of its own.
#include "oracle/levels.hpp"

#include <functional>
#include <memory>
#include <thread>

#include "support/environment.hpp"
#include "support/handles.hpp"
#include "support/magnitudes.hpp"

using namespace onebit_test;

namespace {

using Color = std::function<int(int rank)>;

// A level in the caller's and in the oracle's terms.
struct LevelSpec {
    const char* name;
    Color color;
    int codec; // -1: exact
    onebit_scale_t scale = ONEBIT_SCALE_L2;
    onebit_group_t group = ONEBIT_GROUP_BLOCK;
    onebit_datatype_t error_type = ONEBIT_FLOAT32;
};

// A config with its levels, for this rank.
struct Setup {
    Setup(const std::vector<LevelSpec>& specs, std::uint64_t count, int rank, Mode mode = default_mode()) {
        config = form_config(ONEBIT_ALGORITHM_LEVELS, count, mode);
        for (const LevelSpec& spec : specs) {
            onebit_level_t level = ONEBIT_LEVEL_INIT(spec.color(rank));
            if (spec.codec >= 0) {
                level.compressed = 1;
                level.codec = static_cast<onebit_codec_t>(spec.codec);
                level.scale = spec.scale;
                level.group = spec.group;
                level.error_type = spec.error_type;
            }
            levels.push_back(level);
        }
        config.levels = levels.data();
        config.num_levels = static_cast<std::uint32_t>(levels.size());
    }
    Setup(const Setup&) = delete;
    Setup& operator=(const Setup&) = delete;

    std::vector<onebit_level_t> levels;
    onebit_allreduce_config_t config;
};

// On two ranks and on four, where that many are possible.
void for_pairs(const Body& body) {
    const int n = GENERATE(2, 4);
    if (can_have_ranks(n)) run_ranks(n, body);
}

int pairs(int rank) {
    return rank / 2;
}
int halves_interleaved(int rank) {
    return rank % 2;
}
int all(int) {
    return 7;
}
int alone(int rank) {
    return 100 - rank;
}
int fours(int rank) {
    return rank / 4;
}
int mirrored(int rank) { // 0 and 3, 1 and 2: the groups' members come in another order
    return std::min(rank, 3 - rank);
}

oracle::Coding coding_of(Mode mode) {
    return {mode.codec, mode.oracle_scale(), mode.oracle_group()};
}

oracle::Levels oracle_of(const std::vector<LevelSpec>& specs, std::uint64_t count, int ranks, Mode mode,
                         oracle::Op op = oracle::Op::average) {
    std::vector<oracle::Level> levels;
    for (const LevelSpec& spec : specs) {
        oracle::Level level;
        for (int rank = 0; rank < ranks; ++rank) level.colors.push_back(spec.color(rank));
        const Mode of_level{spec.scale, spec.group};
        if (spec.codec >= 0)
            level.coding = oracle::Coding{spec.codec, of_level.oracle_scale(), of_level.oracle_group()};
        levels.push_back(level);
    }
    return {count, ranks, levels, coding_of(mode), op};
}

onebit_level_info_t level_info(RankLog& log, const Allreduce& reduce, std::uint32_t level,
                               std::vector<float>* error = nullptr) {
    onebit_level_info_t info = ONEBIT_LEVEL_INFO_INIT;
    ONEBIT_EXPECT_OK(log, onebit_allreduce_get_level(reduce.get(), level, &info, nullptr));
    if (error != nullptr) {
        error->assign(info.count, NAN);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_get_level(reduce.get(), level, &info, error->data()));
    }
    return info;
}

void compare_errors(RankLog& log, Allreduce& reduce, const oracle::Levels& expected, std::size_t levels) {
    for (std::uint32_t l = 0; l <= levels; ++l) {
        std::vector<float> error;
        const onebit_level_info_t info = level_info(log, reduce, l, &error);
        const oracle::Range part = expected.part(l, log.rank());
        ONEBIT_EXPECT(log, info.begin == part.begin && info.count == part.count);
        expect_bits(log, "error of a level", error, expected.error(l, log.rank()));
    }
    const Errors errors = reduce.errors();
    ONEBIT_EXPECT(log, errors.server.empty() || errors.begin == expected.served(log.rank()).begin);
    expect_bits(log, "server error", errors.server, expected.server_error(log.rank()));
}

void compare_with_oracle(onebit_comm_t comm, RankLog& log, const std::vector<LevelSpec>& specs, std::uint64_t count,
                         Mode mode, onebit_op_t op = ONEBIT_OP_AVERAGE) {
    std::string name = std::to_string(count) + " " + mode.name();
    for (const LevelSpec& spec : specs) name += std::string(" ") + spec.name + " " + std::to_string(spec.codec);
    log.context(name);
    Setup setup(specs, count, log.rank(), mode);
    setup.config.op = op;
    Allreduce reduce(comm, setup.config, log);
    ONEBIT_EXPECT(log, reduce.info().algorithm == ONEBIT_ALGORITHM_LEVELS);
    oracle::Levels expected =
        oracle_of(specs, count, log.size(), mode, op == ONEBIT_OP_SUM ? oracle::Op::sum : oracle::Op::average);
    for (std::uint64_t step = 0; step < 3; ++step) {
        oracle::FloatsPerRank inputs;
        for (int rank = 0; rank < log.size(); ++rank)
            inputs.push_back(make_data(Kind::heavy_tailed, count, 71, rank, step));
        expected.step(inputs);
        const std::vector<float> output = reduce.run(inputs[static_cast<std::size_t>(log.rank())]);
        expect_bits(log, "result", output, expected.result);
    }
    compare_errors(log, reduce, expected, specs.size());
}

std::vector<std::vector<LevelSpec>> shapes(int ranks) {
    std::vector<std::vector<LevelSpec>> all_shapes = {{{"all", all, -1}}, {{"alone", alone, -1}}};
    if (ranks % 2 == 0) {
        all_shapes.push_back({{"pairs", pairs, -1}});
        all_shapes.push_back({{"pairs", pairs, -1}, {"all", all, -1}});
        all_shapes.push_back({{"alone", alone, -1}, {"pairs", pairs, -1}});
    }
    if (ranks == 4) {
        all_shapes.push_back({{"interleaved", halves_interleaved, -1}});
        all_shapes.push_back({{"mirrored", mirrored, -1}, {"all", all, -1}});
    }
    if (ranks == 8) all_shapes.push_back({{"pairs", pairs, -1}, {"fours", fours, -1}});
    return all_shapes;
}

// As `specs`, with these codecs on its levels.
std::vector<LevelSpec> with_codecs(std::vector<LevelSpec> specs, std::initializer_list<int> codecs) {
    auto codec = codecs.begin();
    for (LevelSpec& spec : specs) spec.codec = *codec++;
    return specs;
}

} // namespace

TEST_CASE("levels: results and errors are the oracle's, however ranks are grouped", "[levels]") {
    for_each_size(1, [](onebit_comm_t comm, RankLog& log) {
        for (const std::vector<LevelSpec>& specs : shapes(log.size())) {
            for (const std::uint64_t count : {std::uint64_t(log.size()), std::uint64_t{33}, std::uint64_t{20001}}) {
                compare_with_oracle(comm, log, specs, count, default_mode());
                compare_with_oracle(comm, log, with_codecs(specs, {ONEBIT_CODEC_INT8, -1}), count, default_mode());
                compare_with_oracle(comm, log, with_codecs(specs, {-1, ONEBIT_CODEC_INT8}), count, default_mode());
            }
            compare_with_oracle(comm, log, with_codecs(specs, {-1, ONEBIT_CODEC_INT4}), 5001, default_mode(),
                                ONEBIT_OP_SUM);
        }
    });
}

TEST_CASE("levels: every codec on every level has the oracle's bits", "[levels]") {
    for_pairs([](onebit_comm_t comm, RankLog& log) {
        for (const Mode& mode : every_mode()) {
            compare_with_oracle(comm, log, {{"pairs", pairs, -1}}, 9001, mode);
            compare_with_oracle(comm, log, {{"pairs", pairs, mode.codec, mode.scale, mode.group}}, 9001, mode);
        }
    });
}

TEST_CASE("levels: eight ranks on three levels have the oracle's bits", "[levels][long]") {
    if (!can_have_ranks(8) || !calls_are_quick()) return;
    run_ranks(8, [](onebit_comm_t comm, RankLog& log) {
        for (const std::vector<LevelSpec>& specs : shapes(8)) {
            compare_with_oracle(comm, log, specs, 20001, default_mode());
            compare_with_oracle(comm, log, with_codecs(specs, {ONEBIT_CODEC_BFLOAT16, ONEBIT_CODEC_INT8}), 20001,
                                {ONEBIT_SCALE_L2, ONEBIT_GROUP_BLOCK, ONEBIT_CODEC_INT4});
        }
    });
}

TEST_CASE("levels: one exact level of the nodes has the bits of two levels, with a mask, too", "[levels]") {
    if (!can_have_ranks(4)) return;
    const Variable node_size("ONEBIT_NODE_SIZE", "2");
    run_ranks(4, [](onebit_comm_t comm, RankLog& log) {
        for (const Mode& mode : every_mode()) {
            for (const bool masked : {false, true}) {
                constexpr std::uint64_t count = 20001;
                log.context(mode.name());
                const Setup setup({{"node", [](int) { return ONEBIT_LEVEL_NODE; }, -1}}, count, log.rank(), mode);
                Allreduce levels(comm, setup.config, log);
                Allreduce two(comm, form_config(ONEBIT_ALGORITHM_TWO_LEVEL, count, mode), log);
                if (masked) {
                    Random random(5, 0, 0);
                    std::vector<std::uint32_t> mask((count + 31) / 32);
                    for (std::uint32_t& word : mask) word = static_cast<std::uint32_t>(random.next());
                    ONEBIT_EXPECT_OK(log, onebit_allreduce_set_mask(levels.get(), mask.data()));
                    ONEBIT_EXPECT_OK(log, onebit_allreduce_set_mask(two.get(), mask.data()));
                }
                ONEBIT_EXPECT(log, same_bits(levels.run_steps(3, 0, 3), two.run_steps(3, 0, 3)));
                ONEBIT_EXPECT(log, levels.errors().same_as(two.errors()));
            }
        }
    });
}

TEST_CASE("levels: a mask that is set, changed and taken away leaves what it must", "[levels][mask]") {
    for_pairs([](onebit_comm_t comm, RankLog& log) {
        constexpr std::uint64_t count = 20001;
        for (const Mode& mode : every_mode()) {
            log.context(mode.name());
            const Setup setup({{"pairs", pairs, mode.codec, mode.scale, mode.group}}, count, log.rank(), mode);
            Allreduce reduce(comm, setup.config, log);
            std::vector<float> before;
            reduce.run_steps(9, 0, 2);
            for (std::uint64_t turn = 0; turn < 3; ++turn) {
                Random random(5 + turn, 0, 0);
                std::vector<std::uint32_t> mask((count + 31) / 32);
                for (std::uint32_t& word : mask) word = static_cast<std::uint32_t>(random.next());
                const bool none = turn == 2;
                level_info(log, reduce, 0, &before);
                ONEBIT_EXPECT_OK(log, onebit_allreduce_set_mask(reduce.get(), none ? nullptr : mask.data()));
                std::vector<float> after;
                level_info(log, reduce, 0, &after);
                bool right = true;
                for (std::uint64_t i = 0; i < count; ++i) {
                    const bool takes_part = none || (mask[i / 32] >> (i % 32) & 1) != 0;
                    right = right && bits_of(after[i]) == (takes_part ? bits_of(before[i]) : 0);
                }
                ONEBIT_EXPECT(log, right);
                const std::vector<float> output = reduce.run_steps(9, 2 + 2 * turn, 2);
                for (std::uint64_t i = 0; i < count && right; ++i) {
                    right = none || (mask[i / 32] >> (i % 32) & 1) != 0 || output[i] == 0;
                }
                ONEBIT_EXPECT(log, right);
                ONEBIT_EXPECT(log, log.same_on_all(output.data(), output.size() * sizeof(float)));
            }
        }
    });
}

TEST_CASE("levels: what is not delivered is in the errors, as the header weighs them", "[levels]") {
    for_pairs([](onebit_comm_t comm, RankLog& log) {
        constexpr std::uint64_t count = 9001;
        const Setup setup({{"pairs", pairs, ONEBIT_CODEC_INT4}, {"all", all, ONEBIT_CODEC_SIGN}}, count, log.rank());
        Allreduce reduce(comm, setup.config, log);
        std::vector<double> balance(count, 0.0);
        constexpr int steps = 200;
        for (std::uint64_t step = 0; step < steps; ++step) {
            for (int rank = 0; rank < log.size(); ++rank) {
                const std::vector<float> input = make_data(Kind::gaussian, count, 8, rank, step);
                for (std::uint64_t i = 0; i < count; ++i) balance[i] += double{input[i]} / log.size();
            }
            const std::vector<float> output = reduce.run(make_data(Kind::gaussian, count, 8, log.rank(), step));
            for (std::uint64_t i = 0; i < count; ++i) balance[i] -= double{output[i]};
        }
        double largest = 1;
        double weight = 1.0 / log.size();
        for (std::uint32_t l = 0; l <= 2; ++l) {
            std::vector<float> error;
            const onebit_level_info_t info = level_info(log, reduce, l, &error);
            std::vector<float> whole(count, 0.0F);
            std::copy(error.begin(), error.end(), whole.begin() + static_cast<std::ptrdiff_t>(info.begin));
            for (const std::vector<float>& of_rank : log.gather_floats(whole)) {
                for (std::uint64_t i = 0; i < count; ++i) {
                    balance[i] -= weight * double{of_rank[i]};
                    largest = std::max(largest, std::fabs(double{of_rank[i]}));
                }
            }
            weight *= info.ranks;
        }
        const Errors errors = reduce.errors();
        std::vector<float> server(count, 0.0F);
        std::copy(errors.server.begin(), errors.server.end(),
                  server.begin() + static_cast<std::ptrdiff_t>(errors.server.empty() ? 0 : errors.begin));
        for (const std::vector<float>& of_rank : log.gather_floats(server))
            for (std::uint64_t i = 0; i < count; ++i) balance[i] -= double{of_rank[i]};
        expect_balanced(log, balance, steps, 30 * largest);
    });
}

TEST_CASE("levels: start with test, 16-bit buffers, several threads and dense calls in between", "[levels][async]") {
    for_pairs([](onebit_comm_t comm, RankLog& log) {
        constexpr std::uint64_t count = 600001;
        Setup setup({{"pairs", pairs, ONEBIT_CODEC_INT8}}, count, log.rank());
        Allreduce reduce(comm, setup.config, log);
        setup.config.threads = 3;
        Allreduce twin(comm, setup.config, log);
        setup.config.algorithm = ONEBIT_ALGORITHM_AUTO;
        setup.config.datatype = ONEBIT_BFLOAT16;
        Allreduce narrow(comm, setup.config, log);
        ONEBIT_EXPECT(log, narrow.info().algorithm == ONEBIT_ALGORITHM_LEVELS);
        for (std::uint64_t step = 0; step < 3; ++step) {
            std::vector<std::uint16_t> halves(count), half_result(count);
            std::vector<float> input = make_data(Kind::gaussian, count, 64, log.rank(), step);
            for (std::uint64_t i = 0; i < count; ++i) {
                halves[i] = static_cast<std::uint16_t>(bits_of(input[i]) >> 16);
                const std::uint32_t bits = std::uint32_t{halves[i]} << 16;
                std::memcpy(&input[i], &bits, sizeof bits);
            }
            std::vector<float> output(input.size(), NAN);
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(reduce.get(), input.data(), output.data()));
            for (int done = 0; done == 0; std::this_thread::yield())
                ONEBIT_EXPECT_OK(log, onebit_allreduce_test(reduce.get(), &done));
            ONEBIT_EXPECT(log, same_bits(output, twin.run(input)));
            ONEBIT_EXPECT_OK(log, onebit_allreduce_run(narrow.get(), halves.data(), half_result.data()));
            float furthest = 0;
            for (std::uint64_t i = 0; i < count; ++i) {
                const std::uint32_t bits = std::uint32_t{half_result[i]} << 16;
                float value = 0;
                std::memcpy(&value, &bits, sizeof bits);
                furthest = std::max(furthest, std::fabs(value - output[i]) / std::max(std::fabs(output[i]), 1e-30F));
            }
            ONEBIT_EXPECT(log, furthest <= 0x1p-8F); // rounded once
            ONEBIT_EXPECT_OK(log, onebit_allreduce_set_algorithm(twin.get(), ONEBIT_ALGORITHM_DENSE));
            twin.run(input);
            ONEBIT_EXPECT_OK(log, onebit_allreduce_set_algorithm(twin.get(), ONEBIT_ALGORITHM_LEVELS));
        }
    });
}

TEST_CASE("levels: a saved state goes on bit for bit, and only on the same levels", "[levels][state]") {
    for_pairs([](onebit_comm_t comm, RankLog& log) {
        constexpr std::uint64_t count = 9001;
        const Setup setup({{"pairs", pairs, ONEBIT_CODEC_INT4}}, count, log.rank());
        Allreduce first(comm, setup.config, log), second(comm, setup.config, log);
        first.run_steps(4, 0, 3);
        const Bytes state = first.packed();
        ONEBIT_EXPECT_OK(log, onebit_allreduce_unpack_state(second.get(), state.data(), state.size()));
        ONEBIT_EXPECT(log, same_bits(first.run_steps(4, 3, 2), second.run_steps(4, 3, 2)));

        const Setup narrow({{"pairs", pairs, ONEBIT_CODEC_INT4, ONEBIT_SCALE_L2, ONEBIT_GROUP_BLOCK, ONEBIT_BFLOAT16}},
                           count, log.rank());
        Allreduce narrower(comm, narrow.config, log);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_unpack_state(narrower.get(), state.data(), state.size()));
        for (const int codec : {-1, static_cast<int>(ONEBIT_CODEC_INT8)}) {
            const Setup other({{"pairs", pairs, codec}}, count, log.rank());
            Allreduce handle(comm, other.config, log);
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE, "levels",
                                  onebit_allreduce_unpack_state(handle.get(), state.data(), state.size()));
        }
        Allreduce flat(comm, flat_config(count), log);
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE, "",
                              onebit_allreduce_unpack_state(flat.get(), state.data(), state.size()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_reset(first.get()));
        std::vector<float> error;
        level_info(log, first, 0, &error);
        ONEBIT_EXPECT(log, std::all_of(error.begin(), error.end(), [](float e) { return e == 0; }));
    });
}

TEST_CASE("levels: what isn't finite is refused, and what overflows is said, by all", "[levels][failure]") {
    for_pairs([](onebit_comm_t comm, RankLog& log) {
        constexpr std::uint64_t count = 9001;
        for (const int codec : {-1, static_cast<int>(ONEBIT_CODEC_INT8), static_cast<int>(ONEBIT_CODEC_SIGN)}) {
            for (int culprit = 0; culprit < log.size(); ++culprit) {
                log.context("codec " + std::to_string(codec) + ", rank " + std::to_string(culprit));
                const Setup setup({{"pairs", pairs, codec}}, count, log.rank());
                Allreduce reduce(comm, setup.config, log), twin(comm, setup.config, log);
                reduce.run_steps(4, 0, 2);
                twin.run_steps(4, 0, 2);
                std::vector<float> input = make_data(Kind::gaussian, count, 4, log.rank(), 2), output(count);
                if (log.rank() == culprit) input[count - 1 - static_cast<std::uint64_t>(culprit)] = NAN;
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "rank " + std::to_string(culprit),
                                      onebit_allreduce_run(reduce.get(), input.data(), output.data()));
                ONEBIT_EXPECT(log, same_bits(reduce.run_steps(4, 2, 1), twin.run_steps(4, 2, 1)));

                // Unchecked, as an error that overflows would be.
                Setup unchecked({{"pairs", pairs, codec}}, count, log.rank());
                unchecked.config.check = ONEBIT_CHECK_NONE;
                Allreduce overflowing(comm, unchecked.config, log), fresh(comm, unchecked.config, log);
                overflowing.run_steps(4, 0, 2);
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "overflowed",
                                      onebit_allreduce_run(overflowing.get(), input.data(), output.data()));
                ONEBIT_EXPECT(log, same_bits(overflowing.run_steps(4, 2, 1), fresh.run_steps(4, 2, 1)));
            }
        }
    });
}

TEST_CASE("levels: whatever is finite leaves finite results and errors", "[levels][magnitudes]") {
    for_pairs([](onebit_comm_t comm, RankLog& log) {
        for (const Mode& mode : every_mode()) {
            for (const int codec : {-1, static_cast<int>(mode.codec)}) {
                const Setup setup({{"pairs", pairs, codec}}, 9001, log.rank(), mode);
                for (std::uint64_t step = 0; step < magnitude_turns; ++step) {
                    log.context(mode.name() + ", step " + std::to_string(step));
                    Allreduce reduce(comm, setup.config, log); // an error of such values may overflow in the next call
                    const std::vector<float> output = reduce.run(make_magnitudes(9001, 1, log.rank(), step));
                    std::vector<float> lower, upper;
                    level_info(log, reduce, 0, &lower);
                    level_info(log, reduce, 1, &upper);
                    ONEBIT_EXPECT(log, all_finite(output) && all_finite(lower) && all_finite(upper));
                    ONEBIT_EXPECT(log, all_finite(reduce.errors().server));
                    ONEBIT_EXPECT(log, log.same_on_all(output.data(), output.size() * sizeof(float)));
                }
            }
        }
    });
}

TEST_CASE("levels: each level sends the bytes that it says", "[levels]") {
    for_pairs([](onebit_comm_t comm, RankLog& log) {
        Setup setup({{"pairs", pairs, ONEBIT_CODEC_INT8}}, 60001, log.rank());
        setup.config.check = ONEBIT_CHECK_NONE;
        Allreduce reduce(comm, setup.config, log);
        reduce.run_steps(4, 0, 2);
        std::uint64_t bytes = 0;
        for (std::uint32_t l = 0; l <= 1; ++l) bytes += level_info(log, reduce, l).bytes;
        ONEBIT_EXPECT(log, bytes == reduce.info().last_bytes_sent);
        ONEBIT_EXPECT(log, level_info(log, reduce, 0).ranks == 2 && level_info(log, reduce, 0).compressed == 1 &&
                               level_info(log, reduce, 0).codec == ONEBIT_CODEC_INT8);
        ONEBIT_EXPECT(log, 2 * level_info(log, reduce, 1).ranks == static_cast<unsigned>(log.size()));
        ONEBIT_EXPECT(log, std::string(reduce.info().reason).find("2 by ONEBIT_CODEC_INT8") != std::string::npos);
    });
}

TEST_CASE("levels: bad input is refused on every rank, with the member's name", "[levels][bad input]") {
    for_each_size(2, [](onebit_comm_t comm, RankLog& log) {
        const onebit_status_t invalid = ONEBIT_ERROR_INVALID_ARGUMENT, unsupported = ONEBIT_ERROR_UNSUPPORTED;
        struct Case {
            onebit_status_t status;
            const char* needles;
            std::function<void(Setup&)> spoil;
            bool everywhere = false; // a config that differs on one rank alone is a mismatch
        };
        const bool first = log.rank() == 0;
        const Case cases[] = {
            {invalid, "config.num_levels;3", [](Setup& s) { s.config.num_levels = 3; }},
            {invalid, "config.levels is NULL", [](Setup& s) { s.config.levels = nullptr; }},
            {invalid, "config.levels is not NULL", [](Setup& s) { s.config.num_levels = 0; }},
            {invalid, "config.algorithm;config.levels",
             [](Setup& s) {
                 s.config.levels = nullptr;
                 s.config.num_levels = 0;
             }},
            {invalid, "config.levels is for", [](Setup& s) { s.config.algorithm = ONEBIT_ALGORITHM_FLAT; }},
            {invalid, "config.levels[0];size", [](Setup& s) { s.levels[0].size = 3; }},
            {invalid, "config.levels[0];version", [](Setup& s) { s.levels[0].version = 9; }},
            {invalid, "levels[0].color;-2", [](Setup& s) { s.levels[0].color = -2; }},
            {invalid, "levels[0].compressed;2", [](Setup& s) { s.levels[0].compressed = 2; }},
            {unsupported, "levels[0].reserved;later version", [](Setup& s) { s.levels[0].reserved = 1; }},
            {invalid, "levels[0].codec;compressed", [](Setup& s) { s.levels[0].codec = ONEBIT_CODEC_INT8; }},
            {invalid, "levels[0].codec;99",
             [](Setup& s) {
                 s.levels[0].compressed = 1;
                 s.levels[0].codec = static_cast<onebit_codec_t>(99);
             }},
            {unsupported, "levels[0].codec;POWERSGD",
             [](Setup& s) {
                 s.levels[0].compressed = 1;
                 s.levels[0].codec = ONEBIT_CODEC_POWERSGD;
             },
             true},
            {invalid, "levels[0].kept",
             [](Setup& s) {
                 s.levels[0].compressed = 1;
                 s.levels[0].kept = 5;
             },
             true},
            {invalid, "levels[0].color;group of rank", [first](Setup& s) { s.levels[0].color = first ? 1 : 2; }, true},
        };
        for (const Case& c : cases) {
            for (int culprit = 0; culprit <= log.size(); ++culprit) {
                if (c.everywhere && culprit < log.size()) continue;
                const bool same_groups = std::string(c.needles).find("group of rank") != std::string::npos;
                if (same_groups && log.size() == 2) continue; // one rank in each is as good as two in one
                log.context(std::string(c.needles) + ", rank " + std::to_string(culprit));
                Setup setup({{"all", all, -1}}, 1000, log.rank());
                if (culprit == log.rank() || culprit == log.size()) c.spoil(setup);
                onebit_allreduce_t handle = nullptr;
                ONEBIT_EXPECT_FAILURE(log, c.status, c.needles, onebit_allreduce_create(comm, &setup.config, &handle));
                ONEBIT_EXPECT(log, handle == nullptr);
            }
        }
        log.context("levels that differ between ranks");
        Setup setup({{"all", all, -1}}, 1000, log.rank());
        if (first) setup.levels[0].compressed = 1;
        onebit_allreduce_t handle = nullptr;
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "config.levels",
                              onebit_allreduce_create(comm, &setup.config, &handle));

        log.context("a group of one level in two of the next");
        const Setup torn({{"all", all, -1}, {"alone", alone, -1}}, 1000, log.rank());
        ONEBIT_EXPECT_FAILURE(log, invalid, "config.levels[1].color;ranks 0 and 1",
                              onebit_allreduce_create(comm, &torn.config, &handle));

        log.context("asking for what isn't there");
        const Setup good({{"all", all, -1}}, 1000, log.rank());
        Allreduce levels(comm, good.config, log), flat(comm, flat_config(1000), log);
        onebit_level_info_t info = ONEBIT_LEVEL_INFO_INIT;
        ONEBIT_EXPECT_FAILURE(log, invalid, "level: 2;1", onebit_allreduce_get_level(levels.get(), 2, &info, nullptr));
        ONEBIT_EXPECT_FAILURE(log, invalid, "not ONEBIT_ALGORITHM_LEVELS",
                              onebit_allreduce_get_level(flat.get(), 0, &info, nullptr));
        ONEBIT_EXPECT_FAILURE(log, invalid, "info is NULL",
                              onebit_allreduce_get_level(levels.get(), 0, nullptr, nullptr));
        ONEBIT_EXPECT_FAILURE(log, invalid, "DENSE or _LEVELS",
                              onebit_allreduce_set_algorithm(levels.get(), ONEBIT_ALGORITHM_FLAT));
        ONEBIT_EXPECT_FAILURE(log, invalid, "algorithm: 7",
                              onebit_allreduce_set_algorithm(flat.get(), ONEBIT_ALGORITHM_LEVELS));
    });
}
