// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Optimizers with settings that a seed has drawn, whatever goes with what, in trainings in which things go wrong: what
// must hold of all of them. A failure names its seed (support/draws.hpp).
#include <limits>
#include <sstream>

#include "support/blobs.hpp"
#include "support/draws.hpp"
#include "support/environment.hpp"
#include "support/progress.hpp"
#include "support/training.hpp"

using namespace onebit_test;

namespace {

struct Draw {
    Draw(std::uint64_t seed, int rank, int ranks) : draws(seed) {
        onebit_optimizer_config_t& config = setup.config;
        config = quick_config(draws.enumerator(ONEBIT_OPTIMIZER_ZERO_ONE_ADAM));
        if (freezes(config.kind)) {
            config.freeze_step = draws.one_of<std::uint64_t>({1, 2, 4, ONEBIT_FREEZE_AUTO, ONEBIT_FREEZE_NEVER});
            config.compressed = draws.enumerator(ONEBIT_COMPRESSED_MOMENTA);
            config.follow_interval = draws.one_of({0U, 1U, 2U, ONEBIT_FOLLOW_NEVER});
            config.freeze_window = draws.one_of<std::uint64_t>({0, 2});
        }
        config.bias_correction = draws.one_in(3) ? 0 : 1;
        config.max_grad_norm = draws.one_of({0.0, 0.0, 1.0, 100.0});
        config.threads = draws.one_of({0U, 1U, 2U});
        config.bucket_size = draws.one_of<std::uint64_t>({0, 0, 1024, 4096});
        config.algorithm = draws.enumerator(ONEBIT_ALGORITHM_LEVELS);
        config.missing_gradients = draws.one_in(2) ? 1 : 0;
        config.momentum_scaling = draws.one_in(2) ? 1 : 0;
        draw_codec(draws, &config);
        if (config.group == ONEBIT_GROUP_BUFFER && draws.one_in(2)) config.group = ONEBIT_GROUP_TENSOR;
        if (config.algorithm == ONEBIT_ALGORITHM_LEVELS || draws.one_in(20)) {
            level = ONEBIT_LEVEL_INIT(color_of(static_cast<int>(draws.below(6)), rank, ranks));
            if (draws.one_in(6)) level.compressed = 1;
            config.levels = &level;
            config.num_levels = 1;
        }
        setup.sizes = draws.one_of<Sizes>({{1033, 5, 4096, 300}, {9001}, {64, 64}, {4095, 4097}, {1, 2, 3, 4000}});
        setup.gradient_type = draws.one_of({ONEBIT_FLOAT32, ONEBIT_FLOAT32, ONEBIT_FLOAT16, ONEBIT_BFLOAT16});
        setup.copies = draws.one_in(3);
        setup.copy_type = draws.one_of({ONEBIT_FLOAT32, ONEBIT_FLOAT16, ONEBIT_BFLOAT16});
        if (draws.one_in(3)) {
            setup.groups = three_groups();
            for (std::size_t k = 0; k < setup.sizes.size(); ++k)
                setup.group_of.push_back(static_cast<std::uint32_t>(draws.below(3)));
        }
        begins_late = draws.one_in(3);
        piece = draws.one_of({"4096", "1048576"});
    }
    Draw(const Draw&) = delete;
    Draw& operator=(const Draw&) = delete;

    std::string name() const {
        const onebit_optimizer_config_t& c = setup.config;
        std::ostringstream text;
        text << name_of(c.kind) << ", freeze_step " << c.freeze_step << ", compressed " << c.compressed
             << ", follow_interval " << c.follow_interval << ", bias_correction " << c.bias_correction
             << ", max_grad_norm " << c.max_grad_norm << ", bucket_size " << c.bucket_size << ", algorithm "
             << c.algorithm << ", codec " << c.codec << ", scale " << c.scale << ", group " << c.group << ", kept "
             << c.kept << ", value_bits " << c.value_bits << ", error_type " << c.error_type << ", levels "
             << c.num_levels << ", tensors " << setup.sizes.size() << ", groups " << setup.groups.size()
             << ", gradient_type " << setup.gradient_type << ", copies " << setup.copies << " of " << setup.copy_type
             << ", late " << begins_late << ", ONEBIT_PIECE " << piece;
        return text.str();
    }

    Draws draws;
    Setup setup{};
    onebit_level_t level = ONEBIT_LEVEL_INIT(0);
    bool begins_late = false;
    const char* piece = nullptr;
};

enum class Event { none, not_a_number, too_large, given_up };

onebit_status_t step_by_polls(onebit_optimizer_t handle) {
    const onebit_status_t started = onebit_optimizer_step_start(handle);
    if (started != ONEBIT_SUCCESS) return started;
    return poll([&](int* done) { return onebit_optimizer_step_test(handle, done); });
}

onebit_status_t step(Training& training, Event event, bool mine, bool polls) {
    if (event == Event::given_up && mine) return onebit_optimizer_cancel_step(training.get(), "enough");
    return polls ? step_by_polls(training.get()) : onebit_optimizer_step(training.get());
}

void try_one(onebit_comm_t comm, RankLog& log, std::uint64_t seed, int* made) {
    constexpr std::uint64_t kSteps = 9, kOutOfStep = 5;
    Draw draw(seed, log.rank(), log.size());
    Draws& draws = draw.draws;
    const std::string name = "seed " + std::to_string(seed) + ": " + draw.name();
    log.context(name);
    ONEBIT_EXPECT_OK(log, onebit_comm_set(comm, "ONEBIT_PIECE", draw.piece));
    onebit_status_t created = ONEBIT_SUCCESS;
    Training by_step(comm, draw.setup, log, &created);
    const std::string why = created == ONEBIT_SUCCESS ? "" : onebit_last_error();
    ONEBIT_EXPECT(log, log.same_on_all(&created, sizeof created));
    if (created != ONEBIT_SUCCESS) {
        ONEBIT_EXPECT(log, created == ONEBIT_ERROR_INVALID_ARGUMENT || created == ONEBIT_ERROR_UNSUPPORTED);
        ONEBIT_EXPECT(log, holds(why, "config|tensors|elements"));
        return;
    }
    ++*made;
    Setup other = draw.setup; // with other threads and kernels, which make no difference
    other.config.threads = 1;
    ONEBIT_EXPECT_OK(log, onebit_comm_set(comm, "ONEBIT_KERNELS", "reference"));
    Training by_polls(comm, other, log);
    ONEBIT_EXPECT_OK(log, onebit_comm_set(comm, "ONEBIT_KERNELS", ""));

    const std::size_t count = by_step.count();
    Gradient gradient = gaussian_gradient(count, seed);
    if (draw.begins_late) gradient = beginning_late(gradient, count / 3, count / 2, 6);
    for (std::uint64_t t = 1; t <= kSteps; ++t) {
        const Event event = draws.one_in(3) ? draws.enumerator(Event::given_up) : Event::none;
        const bool mine = draws.below(static_cast<std::size_t>(log.size())) == static_cast<std::size_t>(log.rank());
        const std::size_t where = draws.below(count);
        const bool early = draws.one_in(2) && draw.setup.config.bucket_size > 0;
        log.context(name + ", step " + std::to_string(t) + ", event " + std::to_string(static_cast<int>(event)));
        if (t == kOutOfStep) { // a state is all that the other one lacks
            by_polls.set_gradients(gradient(log.rank(), 77));
            ONEBIT_EXPECT_OK(log, onebit_optimizer_step(by_polls.get()));
            ONEBIT_EXPECT_OK(log, unpack(by_polls.get(), {packed(by_step.get(), log)}));
        }
        std::vector<float> values = gradient(log.rank(), t);
        if (event == Event::not_a_number && mine) values[where] = std::numeric_limits<float>::quiet_NaN();
        if (event == Event::too_large && mine) values[where] = 3e38F; // in 16 bits maybe an infinity
        by_step.set_gradients(values);
        by_polls.set_gradients(values);
        const Snapshot before(by_step);
        for (std::size_t k = draw.setup.sizes.size(); early && k-- > 0;) {
            if (draws.one_in(4)) continue;
            ONEBIT_EXPECT_OK(log, onebit_optimizer_grad_ready(by_step.get(), k));
        }
        const onebit_status_t status = step(by_step, event, mine, false);
        const onebit_status_t polled = step(by_polls, event, mine, true);
        ONEBIT_EXPECT(log, status == polled);
        ONEBIT_EXPECT(log, log.same_on_all(&status, sizeof status));
        const onebit_status_t expected = event == Event::none       ? ONEBIT_SUCCESS
                                         : event == Event::given_up ? ONEBIT_ERROR_CANCELLED
                                                                    : ONEBIT_ERROR_NONFINITE;
        ONEBIT_EXPECT_STATUS(log, expected, status);
        const Snapshot after(by_step);
        if (status != ONEBIT_SUCCESS) ONEBIT_EXPECT(log, after.same_as(before));
        ONEBIT_EXPECT(log, after.same_as(Snapshot(by_polls)));
        const auto rounds = [](const onebit_optimizer_info_t& info) {
            return info.exact_rounds + info.compressed_rounds;
        };
        const bool exchanged = rounds(after.info) > rounds(before.info); // between 0/1 Adam's rounds ranks differ
        ONEBIT_EXPECT(log, by_step.parameters_same_on_all() || !exchanged);
        ONEBIT_EXPECT(log, std::ranges::all_of(after.parameters, [](float value) { return std::isfinite(value); }));
    }
}

} // namespace

TEST_CASE("whatever an optimizer's settings: steps and polls, states and mishaps leave the same bits on all ranks",
          "[optimizer][property]") {
    const int n = GENERATE(from_range(any_rank_counts()));
    const Variable node_size("ONEBIT_NODE_SIZE", "2");
    const Variable measure("ONEBIT_MEASURE", "0");
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        int made = 0;
        for_seeds(calls_are_quick() ? 60 : 20, log, [&](std::uint64_t seed) { try_one(comm, log, seed, &made); });
        log.context("in all");
        if (std::getenv("ONEBIT_SEEDS") == nullptr) ONEBIT_EXPECT(log, made > 5);
    });
}
