// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Allreduces with settings drawn from a seed, in any valid combination: the properties that hold for all of them. A
// failure names its seed (support/draws.hpp).
#include <algorithm>
#include <cmath>

#include "support/draws.hpp"
#include "support/environment.hpp"
#include "support/handles.hpp"
#include "support/magnitudes.hpp"
#include "support/progress.hpp"

using namespace onebit_test;

namespace {

// Settings, and what calls are made with.
struct Draw {
    Draw(std::uint64_t seed, int rank, int ranks) : draws(seed) {
        const auto n = static_cast<std::uint64_t>(ranks);
        config.count = std::max<std::uint64_t>(
            n, draws.one_of<std::uint64_t>({n, n + 1, 33, 255, 256, 257, 1009, 4095, 4096, 4097, 9001, 20011}));
        config.datatype = draws.one_of({ONEBIT_FLOAT32, ONEBIT_FLOAT32, ONEBIT_FLOAT16, ONEBIT_BFLOAT16});
        config.algorithm = draws.enumerator(ONEBIT_ALGORITHM_LEVELS);
        config.check = draws.enumerator(ONEBIT_CHECK_FULL_LOW_MEMORY);
        config.op = draws.enumerator(ONEBIT_OP_SUM);
        config.threads = draws.one_of({0U, 1U, 2U});
        draw_codec(draws, &config);
        const bool integers = config.codec == ONEBIT_CODEC_INT8 || config.codec == ONEBIT_CODEC_INT4;
        if (integers || draws.one_in(40)) config.rounding = draws.enumerator(ONEBIT_ROUNDING_STOCHASTIC);
        if (config.codec == ONEBIT_CODEC_POWERSGD || draws.one_in(40)) {
            shapes = {3, config.count / 3, 1, config.count - config.count / 3 * 3};
            if (shapes[3] == 0) shapes.resize(2);
            config.shapes = shapes.data();
            config.num_shapes = shapes.size() / 2;
            config.matrix_rank = draws.one_of({0U, 1U, 3U});
        }
        if (config.algorithm == ONEBIT_ALGORITHM_LEVELS || draws.one_in(20)) {
            levels.resize(1 + draws.below(2));
            for (onebit_level_t& level : levels) {
                level = ONEBIT_LEVEL_INIT(color_of(static_cast<int>(draws.below(6)), rank, ranks));
                if (draws.one_in(3)) continue;
                level.compressed = 1;
                draw_codec(draws, &level);
            }
            config.levels = levels.data();
            config.num_levels = static_cast<std::uint32_t>(levels.size());
        }
        kind = draws.one_of({Kind::gaussian, Kind::heavy_tailed, Kind::zeros, Kind::tiny, Kind::huge});
        const bool unchecked = config.check == ONEBIT_CHECK_NONE; // the caller sees to it that all is finite
        any_magnitude = !unchecked && draws.one_in(4);
        if (unchecked && kind == Kind::huge && config.datatype == ONEBIT_FLOAT16) kind = Kind::gaussian;
        has_mask = draws.one_in(3);
        piece = draws.one_of({"4096", "8192", "1048576"});
        second_error = draws.one_of({"1", "4194304"});
    }
    Draw(const Draw&) = delete;
    Draw& operator=(const Draw&) = delete;

    std::string name() const {
        std::ostringstream text;
        text << "count " << config.count << ", datatype " << config.datatype << ", algorithm " << config.algorithm
             << ", check " << config.check << ", op " << config.op << ", codec " << config.codec << ", scale "
             << config.scale << ", group " << config.group << ", kept " << config.kept << ", value_bits "
             << config.value_bits << ", error_type " << config.error_type << ", rounding " << config.rounding << ", "
             << (any_magnitude ? "any magnitude" : name_of(kind)) << ", mask " << has_mask << ", ONEBIT_PIECE " << piece
             << ", ONEBIT_SECOND_ERROR " << second_error;
        for (const onebit_level_t& level : levels) {
            text << ", level color " << level.color << " compressed " << level.compressed << " codec " << level.codec
                 << " error_type " << level.error_type;
        }
        return text.str();
    }

    Draws draws;
    onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(0);
    std::vector<onebit_level_t> levels;
    std::vector<std::uint64_t> shapes;
    Kind kind = Kind::gaussian;
    bool any_magnitude = false; // instead of a kind
    bool has_mask = false;
    const char* piece = nullptr;
    const char* second_error = nullptr;
};

onebit_status_t run_by_polls(onebit_allreduce_t handle, const Bytes& input, Bytes* output) {
    const onebit_status_t started = onebit_allreduce_start(handle, input.data(), output->data());
    if (started != ONEBIT_SUCCESS) return started;
    return poll([&](int* done) { return onebit_allreduce_test(handle, done); });
}

// Adds up the share of the results that all ranks' errors hold back, as the header defines it.
void add_errors(Allreduce& handle, const Draw& draw, const onebit_allreduce_info_t& info, RankLog& log,
                std::vector<double>* balance, double* largest) {
    const auto n = static_cast<double>(log.size());
    const bool sum = draw.config.op == ONEBIT_OP_SUM;
    const auto add = [&](const std::vector<float>& error, std::uint64_t begin, double share) {
        const auto begins = log.gather_floats({static_cast<float>(begin)}); // below 2^24
        const auto errors = log.gather_floats(error);
        for (std::size_t r = 0; r < errors.size(); ++r) {
            for (std::size_t i = 0; i < errors[r].size(); ++i) {
                (*balance)[static_cast<std::size_t>(begins[r][0]) + i] -= share * static_cast<double>(errors[r][i]);
                *largest = std::max(*largest, std::fabs(share * static_cast<double>(errors[r][i])));
            }
        }
    };
    const Errors errors = handle.errors();
    add(errors.server, errors.begin, 1);
    if (info.algorithm != ONEBIT_ALGORITHM_LEVELS) {
        const double owners = info.algorithm == ONEBIT_ALGORITHM_TWO_LEVEL ? n / 2 : n; // nodes of two ranks
        add(errors.worker, 0, sum ? 1 : 1 / owners);
        return;
    }
    double below = 1; // ranks of a group of the level before
    for (std::uint32_t l = 0; l <= draw.config.num_levels; ++l) {
        onebit_level_info_t level = ONEBIT_LEVEL_INFO_INIT;
        ONEBIT_EXPECT_OK(log, onebit_allreduce_get_level(handle.get(), l, &level, nullptr));
        std::vector<float> error(level.count);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_get_level(handle.get(), l, &level, error.data()));
        add(error, level.begin, sum ? 1 : below / n);
        below *= level.ranks;
    }
}

// Whether only the rounding of float32's arithmetic takes anything away.
bool loses_nothing(const Draw& draw, const onebit_allreduce_info_t& info) {
    const auto exact = [](const auto& config) { return config.error_type == ONEBIT_FLOAT32; };
    return !draw.any_magnitude && draw.config.datatype == ONEBIT_FLOAT32 && exact(draw.config) &&
           std::ranges::all_of(draw.levels, exact) && draw.config.codec != ONEBIT_CODEC_POWERSGD &&
           info.algorithm != ONEBIT_ALGORITHM_DENSE;
}

struct Tally {
    int made = 0, balanced = 0;
};

void try_one(onebit_comm_t comm, RankLog& log, std::uint64_t seed, Tally* tally) {
    constexpr std::uint64_t kCalls = 5, kOutOfStep = 2;
    Draw draw(seed, log.rank(), log.size());
    log.context("seed " + std::to_string(seed) + ": " + draw.name());
    ONEBIT_EXPECT_OK(log, onebit_comm_set(comm, "ONEBIT_PIECE", draw.piece));
    ONEBIT_EXPECT_OK(log, onebit_comm_set(comm, "ONEBIT_SECOND_ERROR", draw.second_error));
    onebit_status_t made = ONEBIT_SUCCESS;
    Allreduce by_run(comm, draw.config, log, &made);
    const std::string why = made == ONEBIT_SUCCESS ? "" : onebit_last_error();
    if (!log.same_on_all(&made, sizeof made)) { // nothing can follow
        ONEBIT_EXPECT(log, false && "one status on all ranks");
        return;
    }
    if (made != ONEBIT_SUCCESS) {
        ONEBIT_EXPECT(log, made == ONEBIT_ERROR_INVALID_ARGUMENT || made == ONEBIT_ERROR_UNSUPPORTED);
        ONEBIT_EXPECT(log, holds(why, "config"));
        ONEBIT_EXPECT(log, by_run.get() == nullptr);
        return;
    }
    ++tally->made;
    onebit_allreduce_config_t config = draw.config; // with other threads and kernels, which make no difference
    config.threads = 1;
    ONEBIT_EXPECT_OK(log, onebit_comm_set(comm, "ONEBIT_KERNELS", "reference"));
    Allreduce by_polls(comm, config, log);
    ONEBIT_EXPECT_OK(log, onebit_comm_set(comm, "ONEBIT_KERNELS", ""));
    const onebit_allreduce_info_t info = by_run.info();

    const std::uint64_t count = config.count;
    std::vector<std::uint32_t> mask((count + 31) / 32, ~0U);
    const auto in_mask = [&](std::size_t i) { return (mask[i / 32] >> i % 32 & 1) != 0; };
    if (draw.has_mask) {
        for (std::uint32_t& word : mask) word = static_cast<std::uint32_t>(draw.draws.below(std::size_t{1} << 32));
        const onebit_status_t set = onebit_allreduce_set_mask(by_run.get(), mask.data());
        ONEBIT_EXPECT(log, log.same_on_all(&set, sizeof set));
        ONEBIT_EXPECT_STATUS(log, set, onebit_allreduce_set_mask(by_polls.get(), mask.data()));
        if (set != ONEBIT_SUCCESS) mask.assign(mask.size(), ~0U);
    }

    std::vector<double> balance(count, 0.0);
    double largest = 0;
    const auto input_of = [&](int rank, std::uint64_t t) {
        std::vector<float> values =
            draw.any_magnitude ? make_magnitudes(count, seed, rank, t) : make_data(draw.kind, count, seed, rank, t);
        for (float& value : values) value = rounded(value, config.datatype);
        return values;
    };
    Bytes result(count * bytes_of(config.datatype)), of_polls(result);
    bool all_went_well = true;
    for (std::uint64_t t = 0; t < kCalls; ++t) {
        const Bytes input = converted(input_of(log.rank(), t), config.datatype);
        if (t == kOutOfStep) { // a state is all that the other handle lacks
            (void)run_by_polls(by_polls.get(), converted(input_of(log.rank(), 77), config.datatype), &of_polls);
            const Bytes state = by_run.packed();
            ONEBIT_EXPECT_OK(log, onebit_allreduce_unpack_state(by_polls.get(), state.data(), state.size()));
        }
        const onebit_status_t status = onebit_allreduce_run(by_run.get(), input.data(), result.data());
        const onebit_status_t polled = run_by_polls(by_polls.get(), input, &of_polls);
        ONEBIT_EXPECT(log, status == polled);
        ONEBIT_EXPECT(log, log.same_on_all(&status, sizeof status));
        ONEBIT_EXPECT(log, status == ONEBIT_SUCCESS || status == ONEBIT_ERROR_NONFINITE);
        if (status != ONEBIT_SUCCESS) all_went_well = false;
        if (status != ONEBIT_SUCCESS) continue;
        ONEBIT_EXPECT(log, log.same_on_all(result.data(), result.size()));
        ONEBIT_EXPECT(log, result == of_polls);
        const std::vector<float> values = as_floats(result, config.datatype);
        ONEBIT_EXPECT(log, all_finite(values));
        for (int r = 0; r < log.size(); ++r) {
            const std::vector<float> of_rank = input_of(r, t);
            const double share = config.op == ONEBIT_OP_SUM ? 1 : 1.0 / log.size();
            for (std::size_t i = 0; i < count; ++i) balance[i] += share * static_cast<double>(of_rank[i]);
        }
        bool zero_outside = true;
        for (std::size_t i = 0; i < count; ++i) {
            balance[i] -= values[i];
            largest = std::max(largest, std::fabs(static_cast<double>(values[i])));
            if (info.algorithm != ONEBIT_ALGORITHM_DENSE && !in_mask(i) && values[i] != 0) zero_outside = false;
        }
        ONEBIT_EXPECT(log, zero_outside);
    }
    ONEBIT_EXPECT(log, by_run.packed() == by_polls.packed());
    if (!all_went_well || !loses_nothing(draw, info)) return;
    ++tally->balanced;
    add_errors(by_run, draw, info, log, &balance, &largest);
    for (std::size_t i = 0; i < count; ++i) {
        if (!in_mask(i)) balance[i] = 0;
    }
    expect_balanced(log, balance, 10 * static_cast<int>(kCalls), largest);
}

} // namespace

TEST_CASE("whatever the settings: one status and one result on all ranks, by run and by polls, and nothing is lost",
          "[allreduce][property]") {
    const int n = GENERATE(from_range(any_rank_counts()));
    const Variable node_size("ONEBIT_NODE_SIZE", "2");
    const Variable measure("ONEBIT_MEASURE", "0");
    const std::uint64_t seeds = calls_are_quick() ? 100 : 40;
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        Tally tally;
        for_seeds(seeds, log, [&](std::uint64_t seed) { try_one(comm, log, seed, &tally); });
        log.context("in all");
        if (std::getenv("ONEBIT_SEEDS") != nullptr) return;
        ONEBIT_EXPECT(log, tally.made > 10 && (tally.balanced > 2 || log.size() == 1));
    });
}
