// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Optimizers whose compressed exchange has two levels, compared with the oracle. Tests without the oracle: each shard
// is exchanged as if nodes were ranks, and nothing is lost.
#include "optim/two_levels.hpp"

#include "optim/conservation.hpp"
#include "optim/following.hpp"
#include "optim/long_setup.hpp"
#include "support/beside_oracle.hpp"
#include "support/blobs.hpp"

using namespace onebit_test;

namespace {

void train(onebit_comm_t comm, RankLog& log, const Setup& setup, const Nodes& nodes, std::uint64_t steps,
           std::uint64_t seed = 1) {
    BesideOracle both(comm, on_two_levels(setup, nodes), log);
    ONEBIT_EXPECT(log, both.training.info().algorithm == ONEBIT_ALGORITHM_TWO_LEVEL);
    both.steps(gaussian_gradient(total(setup.sizes), seed), 1, steps);
    ONEBIT_EXPECT(log, both.training.info().compressed_rounds > 0);
}

} // namespace

TEST_CASE("optimizers on two levels: 200 steps equal the oracle", "[optimizer][two_level][long]") {
    const onebit_optimizer_kind_t kind = GENERATE(from_range(freezing_kinds()));
    run_nodes(two_by_two, [kind](onebit_comm_t comm, RankLog& log) {
        for (const onebit_compressed_t compressed : ways_to_compress(kind)) {
            log.context(name_of(kind) + ", way " + std::to_string(compressed));
            Setup setup = long_setup(kind);
            setup.config.compressed = compressed;
            setup.config.weight_decay = 0.1;
            train(comm, log, setup, two_by_two, 200);
        }
        log.context(name_of(kind) + ", without bias correction, L1 scale of the whole shard");
        Setup setup = long_setup(kind);
        setup.config.bias_correction = 0;
        setup.config.eps = 0.05; // large enough that its place in the formulas matters
        setup.config.scale = ONEBIT_SCALE_L1;
        setup.config.group = ONEBIT_GROUP_BUFFER;
        train(comm, log, setup, two_by_two, 200);
    });
}

TEST_CASE("optimizers on a level of the nodes have the bits of two levels", "[optimizer][levels]") {
    const bool in_buckets = GENERATE(false, true);
    run_nodes(two_by_two, [in_buckets](onebit_comm_t comm, RankLog& log) {
        const onebit_level_t nodes = ONEBIT_LEVEL_INIT(ONEBIT_LEVEL_NODE);
        for (const onebit_optimizer_kind_t kind :
             {ONEBIT_OPTIMIZER_ADAM, ONEBIT_OPTIMIZER_ONEBIT_ADAM, ONEBIT_OPTIMIZER_LAMB, ONEBIT_OPTIMIZER_ONEBIT_LAMB,
              ONEBIT_OPTIMIZER_ZERO_ONE_ADAM}) {
            for (const onebit_codec_t codec : {ONEBIT_CODEC_SIGN, ONEBIT_CODEC_INT4}) {
                const bool freezes = kind != ONEBIT_OPTIMIZER_ADAM && kind != ONEBIT_OPTIMIZER_LAMB;
                if (!freezes && codec == ONEBIT_CODEC_SIGN) continue; // exact
                log.context(name_of(kind) + ", codec " + std::to_string(codec));
                Setup two = on_two_levels(
                    {freezes ? quick_config(kind) : onebit_optimizer_config_t(ONEBIT_OPTIMIZER_CONFIG_INIT(kind, 0.01)),
                     odd_sizes()});
                two.config.codec = codec;
                two.config.bucket_size = in_buckets ? 1024 : 0;
                Setup levels = two;
                levels.config.algorithm = ONEBIT_ALGORITHM_AUTO;
                levels.config.levels = &nodes;
                levels.config.num_levels = 1;
                Training first(comm, two, log), second(comm, levels, log);
                ONEBIT_EXPECT(log, second.info().algorithm == ONEBIT_ALGORITHM_LEVELS);
                const Gradient gradient = gaussian_gradient(total(two.sizes), 3);
                for (std::uint64_t t = 1; t <= 12; ++t) {
                    first.step(gradient(log.rank(), t));
                    second.step(gradient(log.rank(), t));
                    ONEBIT_EXPECT(log, same_bits(first.parameters(), second.parameters()));
                }
                ONEBIT_EXPECT_OK(log, unpack(first.get(), all_packed(second.get(), log)));
                ONEBIT_EXPECT_OK(log, unpack(second.get(), all_packed(first.get(), log)));
                first.step(gradient(log.rank(), 13));
                second.step(gradient(log.rank(), 13));
                ONEBIT_EXPECT(log, same_bits(first.parameters(), second.parameters()));
            }
        }
    });
}

TEST_CASE("an optimizer's level that can't be is refused on every rank", "[optimizer][levels][bad input]") {
    run_nodes(two_by_two, [](onebit_comm_t comm, RankLog& log) {
        onebit_level_t levels[2] = {ONEBIT_LEVEL_INIT(log.rank() / 2), ONEBIT_LEVEL_INIT(0)};
        std::vector<float> parameters(5000), gradients(5000);
        const onebit_tensor_t tensor = ONEBIT_TENSOR_INIT(parameters.data(), gradients.data(), 5000);
        const auto expect = [&](onebit_status_t status, const char* needles, std::size_t num_levels,
                                const std::function<void(onebit_optimizer_config_t&)>& spoil) {
            log.context(needles);
            onebit_optimizer_config_t config = ONEBIT_OPTIMIZER_CONFIG_INIT(ONEBIT_OPTIMIZER_ONEBIT_ADAM, 0.01);
            config.levels = levels;
            config.num_levels = num_levels;
            spoil(config);
            onebit_optimizer_t optimizer = nullptr;
            ONEBIT_EXPECT_FAILURE(log, status, needles, onebit_optimizer_create(comm, &config, &tensor, 1, &optimizer));
            ONEBIT_EXPECT(log, optimizer == nullptr);
        };
        const auto as_it_is = [](onebit_optimizer_config_t&) {};
        const onebit_status_t invalid = ONEBIT_ERROR_INVALID_ARGUMENT, unsupported = ONEBIT_ERROR_UNSUPPORTED;
        expect(unsupported, "config.levels;one level, an exact one", 2, as_it_is);
        expect(invalid, "config.num_levels", std::size_t{1} << 40, as_it_is);
        expect(invalid, "config.levels;nothing is compressed", 1,
               [](onebit_optimizer_config_t& c) { c.kind = ONEBIT_OPTIMIZER_ADAM; });
        expect(invalid, "config.levels is for ONEBIT_ALGORITHM_LEVELS", 1,
               [](onebit_optimizer_config_t& c) { c.algorithm = ONEBIT_ALGORITHM_TWO_LEVEL; });
        expect(invalid, "config.algorithm;config.levels", 0, [](onebit_optimizer_config_t& c) {
            c.levels = nullptr;
            c.algorithm = ONEBIT_ALGORITHM_LEVELS;
        });
        levels[0].compressed = 1;
        expect(unsupported, "config.levels;an exact one", 1, as_it_is);
        levels[0].compressed = 0;
        levels[0].color = 0;
        expect(unsupported, "config.levels[0].color makes 1 groups", 1, as_it_is);
        levels[0].color = log.rank() == 0 ? 1 : 2;
        expect(invalid, "config.levels[0].color;group of rank 1", 1, as_it_is);
        levels[0].color = 0;
        expect(ONEBIT_ERROR_MISMATCH, "config.num_levels", log.rank() == 0 ? 1 : 0,
               [&](onebit_optimizer_config_t& c) { c.levels = log.rank() == 0 ? levels : nullptr; });
    });
}

TEST_CASE("optimizers on two levels: any number of nodes and ranks equals the oracle", "[optimizer][two_level]") {
    const Nodes nodes = GENERATE(from_range(all_nodes()));
    run_nodes(nodes, [nodes](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            for (const onebit_compressed_t compressed : ways_to_compress(kind)) {
                log.context(name_of(kind) + ", way " + std::to_string(compressed) + ", " + nodes.name());
                Setup setup{quick_config(kind), odd_sizes()};
                setup.config.compressed = compressed;
                train(comm, log, setup, nodes, 25);
                log.context(name_of(kind) + ", way " + std::to_string(compressed) + ", empty shards, " + nodes.name());
                setup.sizes = {13, 1}; // all in the first shard, and in node 0's chunk of it
                train(comm, log, setup, nodes, 20);
            }
        }
    });
}

TEST_CASE("optimizers on two levels: every scale and group equals the oracle", "[optimizer][two_level]") {
    run_nodes(two_by_two, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            for (const onebit_compressed_t compressed : ways_to_compress(kind)) {
                for (const Mode& mode : all_modes()) {
                    log.context(name_of(kind) + ", way " + std::to_string(compressed) + ", " + mode.name());
                    Setup setup{quick_config(kind), odd_sizes()};
                    setup.config.compressed = compressed;
                    setup.config.scale = mode.scale;
                    setup.config.group = mode.group;
                    train(comm, log, setup, two_by_two, 20);
                }
            }
        }
    });
}

TEST_CASE("optimizers on two levels: shards of many blocks equal the oracle", "[optimizer][two_level]") {
    const onebit_optimizer_kind_t kind = GENERATE(from_range(freezing_kinds()));
    const Nodes nodes = GENERATE(from_range(all_nodes()));
    if (nodes.ranks() > 6 || (nodes.ranks() > 4 && kind != ONEBIT_OPTIMIZER_ONEBIT_ADAM)) return; // they take long
    run_nodes(nodes, [=](onebit_comm_t comm, RankLog& log) {
        for (const onebit_group_t group : {ONEBIT_GROUP_BLOCK, ONEBIT_GROUP_BUFFER}) {
            log.context(name_of(kind) + (group == ONEBIT_GROUP_BLOCK ? ", block, " : ", tensor, ") + nodes.name());
            const std::size_t places = static_cast<std::size_t>(nodes.places);
            Setup setup{quick_config(kind), {1, 4095, 33, places * 3 * 4096 - 4000, 777}};
            setup.config.freeze_step = 4;
            setup.config.group = group;
            setup.config.eps = 1e-3;
            train(comm, log, setup, nodes, nodes.ranks() > 4 ? 6 : 8, 3);
        }
    });
}

TEST_CASE("optimizers on two levels: groups, clipping, 16-bit gradients equal the oracle", "[optimizer][two_level]") {
    run_nodes(two_by_two, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            for (const onebit_compressed_t compressed : ways_to_compress(kind)) {
                for (const onebit_datatype_t type : {ONEBIT_FLOAT32, ONEBIT_FLOAT16, ONEBIT_BFLOAT16}) {
                    log.context(name_of(kind) + ", way " + std::to_string(compressed) + ", type " +
                                std::to_string(type));
                    Setup setup = on_two_levels({quick_config(kind), {300, 200, 127, 1, 33}});
                    setup.groups = three_groups(); // the third is never compressed
                    setup.group_of = {0, 2, 1, 0, 1};
                    setup.gradient_type = type;
                    setup.copies = type != ONEBIT_FLOAT32;
                    setup.copy_type = type;
                    setup.config.compressed = compressed;
                    setup.config.max_grad_norm = type == ONEBIT_BFLOAT16 ? 0 : 40;
                    BesideOracle both(comm, setup, log);
                    both.reference->gradient_scale = 4;
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(both.training.get(), 4));
                    const Gradient gradient = [=, inner = gaussian_gradient(661, 4)](int rank, std::uint64_t t) {
                        std::vector<float> values = inner(rank, t);
                        for (float& value : values) value = rounded(value * 4, type);
                        return values;
                    };
                    both.steps(gradient, 1, 20);
                    if (type != ONEBIT_FLOAT32)
                        ONEBIT_EXPECT(log, both.training.copies() == copied(both.training.parameters(), type));
                }
            }
        }
    });
}

TEST_CASE("optimizers on two levels: elements without a gradient equal the oracle", "[optimizer][two_level][mask]") {
    const Nodes nodes = GENERATE(from_range(all_nodes()));
    run_nodes(nodes, [nodes](onebit_comm_t comm, RankLog& log) {
        struct None {
            std::size_t begin, end;
        };
        // Across shards; whole chunks; the whole first shard of two; all but the last word.
        for (const None none : {None{40, 77}, None{0, 64}, None{0, 160}, None{32, 300}}) {
            for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
                log.context(name_of(kind) + ", without " + std::to_string(none.begin) + " to " +
                            std::to_string(none.end) + ", " + nodes.name());
                Setup setup = on_two_levels({quick_config(kind), {40, 37, 233}}, nodes);
                setup.config.eps = 1e-3;
                setup.config.weight_decay = none.begin == 32 ? 0.1 : 0;
                BesideOracle both(comm, setup, log);
                both.steps(beginning_late(gaussian_gradient(310, 3), none.begin, none.end, UINT64_MAX), 1, 16);
                ONEBIT_EXPECT(log, both.training.info().masked == none.end - none.begin);
            }
        }
    });
}

TEST_CASE("optimizers on two levels: elements that have gradients late equal the oracle",
          "[optimizer][two_level][mask]") {
    const Nodes nodes = GENERATE(from_range(all_nodes()));
    run_nodes(nodes, [nodes](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            for (const double clip : {0.0, 30.0}) {
                log.context(name_of(kind) + (clip > 0 ? ", clipped, " : ", ") + nodes.name());
                Setup setup = on_two_levels({following_config(kind), {301}}, nodes);
                setup.config.follow_interval = 4;
                setup.config.thaw_ratio = 1e6;
                setup.config.weight_decay = 0.1;
                setup.config.max_grad_norm = clip;
                BesideOracle both(comm, setup, log);
                // 20 of them have one from step 27 on; ten of these on the last rank alone; ten never.
                const Gradient late = beginning_late(gaussian_gradient(301, 3), 145, 165, 27);
                const Gradient gradient = [late, last = log.size() - 1](int rank, std::uint64_t t) {
                    std::vector<float> values = late(rank, t);
                    if (rank != last) std::fill(values.begin() + 155, values.begin() + 165, 0.0F);
                    std::fill(values.begin() + 165, values.begin() + 175, 0.0F);
                    return values;
                };
                both.steps(gradient, 1, 26);
                ONEBIT_EXPECT(log, both.training.info().masked == 30);
                both.steps(gradient, 27, 60);
                const onebit_optimizer_info_t info = both.training.info();
                ONEBIT_EXPECT(log, both.freezing->admitted == 20 && info.masked == 10);
                ONEBIT_EXPECT(log, info.frozen == 1 && info.thaws == 0);
            }
        }
    });
}

TEST_CASE("optimizers on two levels: followed variances, a thaw and a second freeze equal the oracle",
          "[optimizer][two_level][freeze]") {
    const onebit_optimizer_kind_t kind = GENERATE(from_range(freezing_kinds()));
    run_nodes(two_by_two, [kind](onebit_comm_t comm, RankLog& log) {
        log.context(name_of(kind));
        Setup setup = on_two_levels({following_config(kind), {301}});
        setup.config.weight_decay = 0.1;
        BesideOracle both(comm, setup, log);
        const Gradient gradient = [inner = gaussian_gradient(301, 3)](int rank, std::uint64_t t) {
            std::vector<float> values = inner(rank, t);
            const float size = t <= 60 ? 1.0F : t < 110 ? 0.3F : 6.0F;
            for (float& value : values) value *= size;
            return values;
        };
        both.steps(gradient, 1, 109);
        ONEBIT_EXPECT(log, both.training.info().thaws == 0);
        both.steps(gradient, 110, 200);
        const onebit_optimizer_info_t info = both.training.info();
        ONEBIT_EXPECT(log, both.freezing->thaws >= 1 && info.thaws == both.freezing->thaws);
        ONEBIT_EXPECT(log, info.frozen == 1 && info.freeze_step >= 120);
    });
}

TEST_CASE("optimizers on two levels: errors are a shard's and a chunk's, tensor by tensor, until they are reset",
          "[optimizer][two_level]") {
    const Nodes nodes = GENERATE(from_range(all_nodes()));
    run_nodes(nodes, [nodes](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            log.context(name_of(kind) + ", " + nodes.name());
            Setup setup = on_two_levels({quick_config(kind), {700, 300, 501, 99}}, nodes);
            leave_out(setup, {1});
            BesideOracle both(comm, setup, log);
            const Gradient gradient = gaussian_gradient(1600, 1);
            std::size_t carried = 0;
            for (std::uint64_t t = 1; t <= 10; ++t) {
                both.step(gradient, t);
                const OptimizerErrors errors = both.training.errors();
                std::vector<float> worker, server;
                for (std::size_t k = 0; k < setup.sizes.size(); ++k) {
                    std::vector<float> part(setup.sizes[k]);
                    const auto copy = [&](onebit_state_t which, std::vector<float>& all) {
                        ONEBIT_EXPECT_OK(log, onebit_optimizer_get_state(both.training.get(), k, which, part.data()));
                        all.insert(all.end(), part.begin(), part.end());
                    };
                    copy(ONEBIT_STATE_WORKER_ERROR, worker);
                    copy(ONEBIT_STATE_SERVER_ERROR, server);
                }
                ONEBIT_EXPECT(log, errors.same_as({worker, server}));
                carried += all_zero(errors.worker) ? 0 : 1;
                if (t != 8) continue;
                ONEBIT_EXPECT_OK(log, onebit_optimizer_reset_error(both.training.get()));
                both.freezing->reduce.reset();
                const OptimizerErrors none = both.training.errors();
                ONEBIT_EXPECT(log, all_zero(none.worker) && all_zero(none.server));
            }
            ONEBIT_EXPECT(log, carried >= 4);
        }
    });
}

TEST_CASE("optimizers on two levels: error feedback loses nothing in 200 steps", "[optimizer][two_level]") {
    const Nodes nodes = GENERATE(from_range(all_nodes()));
    run_nodes(nodes, [nodes](onebit_comm_t comm, RankLog& log) {
        for (const onebit_group_t group : {ONEBIT_GROUP_BLOCK, ONEBIT_GROUP_BUFFER}) {
            log.context(nodes.name() + ", group " + std::to_string(group));
            Setup setup = on_two_levels({optimizer_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM), {}}, nodes);
            setup.config.group = group;
            expect_nothing_lost(comm, setup, nodes.nodes, log);
        }
    });
}

// If a node's ranks have equal gradients, the node's average equals these, to the bit. Then each place of all nodes
// works like ranks that train its shard alone, on one level.
TEST_CASE("optimizers on two levels: a shard is trained as by the nodes alone, to the bit", "[optimizer][two_level]") {
    run_nodes(two_by_two, [](onebit_comm_t comm, RankLog& log) {
        constexpr std::size_t count = 9003;
        const auto shard = oracle::partition(count, 2)[static_cast<std::size_t>(log.rank() % 2)];
        const auto begin = static_cast<std::ptrdiff_t>(shard.begin), end = static_cast<std::ptrdiff_t>(shard.end());
        const auto part_of = [&](const std::vector<float>& whole) {
            return std::vector<float>(whole.begin() + begin, whole.begin() + end);
        };
        onebit_comm_t same_place = nullptr;
        ONEBIT_EXPECT_OK(log, onebit_comm_split(comm, log.rank() % 2, log.rank(), &same_place));
        // Nodes whose gradients nearly cancel would reach the bound of g / D, which depends on the number of ranks.
        const std::vector<float> sign = initial_parameters(count);
        const Gradient gradient = in_eighths([sign](int node, std::uint64_t t) {
            std::vector<float> values = make_data(Kind::gaussian, count, 1, node, t);
            for (std::size_t i = 0; i < count; ++i)
                values[i] = std::copysign(2 + std::clamp(values[i], -1.0F, 1.0F), sign[i]) * (i / 40 % 3 == 0 ? 1 : 10);
            return values;
        });
        // 1-bit LAMB's steps are of whole tensors.
        for (const onebit_optimizer_kind_t kind : {ONEBIT_OPTIMIZER_ONEBIT_ADAM, ONEBIT_OPTIMIZER_ZERO_ONE_ADAM}) {
            for (const onebit_compressed_t compressed : ways_to_compress(kind)) {
                for (const Mode& mode : all_modes()) {
                    log.context(name_of(kind) + ", way " + std::to_string(compressed) + ", " + mode.name());
                    Setup setup{quick_config(kind), {count}};
                    setup.config.compressed = compressed;
                    setup.config.scale = mode.scale;
                    setup.config.group = mode.group;
                    setup.config.weight_decay = 0.1;
                    setup.config.follow_interval = ONEBIT_FOLLOW_NEVER; // measured over whole tensors
                    Training together(comm, on_two_levels(setup), log);
                    setup.sizes = {shard.count};
                    setup.config.algorithm = ONEBIT_ALGORITHM_PIPELINED;
                    Training alone(same_place, setup, part_of(initial_parameters(count)), log);
                    for (std::uint64_t t = 1; t <= 14; ++t) {
                        const std::vector<float> values = gradient(log.rank() / 2, t);
                        together.step(values);
                        alone.step(part_of(values));
                    }
                    ONEBIT_EXPECT(log, same_bits(part_of(together.parameters()), alone.parameters()));
                    const OptimizerErrors errors = together.errors();
                    ONEBIT_EXPECT(log, alone.errors().same_as({part_of(errors.worker), part_of(errors.server)}));
                    ONEBIT_EXPECT(log, !all_zero(errors.worker));
                }
            }
        }
        ONEBIT_EXPECT_OK(log, onebit_comm_destroy(same_place));
    });
}
