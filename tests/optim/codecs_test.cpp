// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Optimizers whose exchanges have a grouped code: all kinds, also Adam and LAMB, whose gradients are then
// compressed. The tests include every codec of the library automatically.
#include <limits>

#include "optim/buckets.hpp"
#include "optim/conservation.hpp"
#include "optim/long_setup.hpp"
#include "optim/moved_states.hpp"
#include "optim/two_levels.hpp"
#include "support/beside_oracle.hpp"
#include "support/blobs.hpp"

using namespace onebit_test;

namespace {

const std::vector<onebit_codec_t>& other_codecs() {
    static const std::vector<onebit_codec_t> codecs = [] {
        std::vector<onebit_codec_t> found;
        for (const Mode& mode : every_mode())
            if (mode.codec != ONEBIT_CODEC_SIGN) found.push_back(mode.codec);
        return found;
    }();
    return codecs;
}

Setup with_codec(Setup setup, onebit_codec_t codec) {
    setup.config.codec = codec;
    return setup;
}

std::string title_of(const Setup& setup) {
    return name_of(setup.config.kind) + ", codec " + std::to_string(setup.config.codec) +
           (setup.config.compressed == ONEBIT_COMPRESSED_MOMENTA ? ", momenta" : "");
}

// Each kind with each way to compress and each codec.
std::vector<Setup> all_setups(const Sizes& sizes) {
    std::vector<Setup> setups;
    for (const onebit_optimizer_kind_t kind : all_kinds()) {
        for (const onebit_compressed_t compressed : ways_to_compress(kind)) {
            for (const onebit_codec_t codec : other_codecs()) {
                setups.push_back(with_codec({quick_config(kind), sizes}, codec));
                setups.back().config.compressed = compressed;
            }
        }
    }
    return setups;
}

// A little more than three blocks. Tensors begin anywhere in a block.
const Sizes block_sizes = {4097, 1, 3000, 5333, 64};

} // namespace

TEST_CASE("optimizers with other codecs equal the oracle", "[optimizer][codec]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (Setup setup : all_setups(odd_sizes())) {
            log.context(title_of(setup));
            setup.config.weight_decay = 0.1;
            leave_out(setup, {2});
            BesideOracle both(comm, setup, log);
            both.steps(gaussian_gradient(total(setup.sizes), 1), 1, 25);
            const onebit_optimizer_info_t info = both.training.info();
            ONEBIT_EXPECT(log, info.compressed_rounds > 0);
            ONEBIT_EXPECT(log, log.size() == 1 || info.compressed_bytes_sent > 0);
            if (!freezes(setup.config.kind)) ONEBIT_EXPECT(log, info.warmup_bytes_sent == 0 && info.exact_rounds == 0);
        }
    });
}

TEST_CASE("optimizers with other codecs equal the oracle: clipped 16-bit gradients, several blocks",
          "[optimizer][codec]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (Setup setup : all_setups(block_sizes)) {
            if (setup.config.codec > ONEBIT_CODEC_INT4) continue; // what is met here has no codec's shape
            log.context(title_of(setup));
            setup.config.max_grad_norm = 100;
            setup.gradient_type = ONEBIT_BFLOAT16;
            BesideOracle both(comm, setup, log);
            const Gradient gradient = [inner = gaussian_gradient(total(setup.sizes), 2)](int rank, std::uint64_t t) {
                std::vector<float> values = inner(rank, t);
                for (float& value : values) value = rounded(value, ONEBIT_BFLOAT16);
                return values;
            };
            both.steps(gradient, 1, 10);
        }
    });
}

TEST_CASE("optimizers with other codecs on two levels equal the oracle", "[optimizer][codec][two_level][long]") {
    const Nodes nodes = GENERATE(from_range(all_nodes()));
    run_nodes(nodes, [nodes](onebit_comm_t comm, RankLog& log) {
        for (Setup setup : all_setups(odd_sizes())) {
            log.context(title_of(setup) + ", " + nodes.name());
            setup.config.weight_decay = 0.1;
            setup = on_two_levels(setup, nodes);
            BesideOracle both(comm, setup, log);
            ONEBIT_EXPECT(log, both.training.info().algorithm == ONEBIT_ALGORITHM_TWO_LEVEL);
            both.steps(gaussian_gradient(total(setup.sizes), 1), 1, 16);
        }
    });
}

TEST_CASE("optimizers with other codecs: masked elements and late gradients equal the oracle", "[optimizer][codec]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (Setup setup : all_setups({301})) {
            if (!freezes(setup.config.kind)) continue;
            log.context(title_of(setup));
            setup.config.beta2 = 0.9;
            setup.config.follow_interval = 4;
            setup.config.thaw_ratio = 1e6;
            BesideOracle both(comm, setup, log);
            both.steps(beginning_late(gaussian_gradient(301, 3), 145, 165, 12), 1, 30);
            const bool admits = setup.config.compressed == ONEBIT_COMPRESSED_UPDATES;
            ONEBIT_EXPECT(log, both.training.info().masked == (admits ? 0U : 20U));
        }
    });
}

TEST_CASE("optimizers with other codecs: forms, threads and when gradients are ready change no bit",
          "[optimizer][codec][overlap]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (Setup setup : all_setups({1400, 2800, 660, 3, 1221, 4097})) {
            setup.config.bucket_size = 4000;
            setup.config.algorithm = ONEBIT_ALGORITHM_FLAT;
            const Gradient gradient = gaussian_gradient(total(setup.sizes), 1);
            Training expected(comm, setup, log);
            setup.config.algorithm = ONEBIT_ALGORITHM_RING;
            setup.config.threads = setup.config.kind == ONEBIT_OPTIMIZER_ADAM ? 3 : 1;
            Training mixed(comm, setup, log);
            for (std::uint64_t t = 1; t <= 10; ++t) {
                log.context(title_of(setup) + ", step " + std::to_string(t));
                const std::vector<float> values = gradient(log.rank(), t);
                expected.step(values);
                step(mixed, values, shuffled(setup, log.rank(), t), log);
                ONEBIT_EXPECT(log, Snapshot(mixed).same_as(Snapshot(expected)));
            }
        }
    });
}

TEST_CASE("optimizers with other codecs: error feedback loses nothing in 200 steps", "[optimizer][codec][long]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : {ONEBIT_OPTIMIZER_ADAM, ONEBIT_OPTIMIZER_ONEBIT_ADAM}) {
            for (const onebit_codec_t codec : other_codecs()) {
                const Setup setup = with_codec({optimizer_config(kind), {}}, codec);
                log.context(title_of(setup));
                expect_nothing_lost(comm, setup, log.size(), log);
            }
        }
    });
}

TEST_CASE("optimizers with other codecs: values that aren't finite are refused on all ranks, and training goes on",
          "[optimizer][codec]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (Setup setup : all_setups({2000, 333})) {
            for (const std::uint64_t bucket_size : {0, 1}) {
                setup.config.bucket_size = bucket_size;
                log.context(title_of(setup) + ", bucket size " + std::to_string(bucket_size));
                const Gradient gradient = gaussian_gradient(2333, 1);
                Training training(comm, setup, log);
                training.steps(gradient, 1, 9);
                std::vector<float> bad = gradient(log.rank(), 10);
                if (log.rank() == log.size() - 1) bad[2100] = std::numeric_limits<float>::infinity();
                const Snapshot before(training);
                training.set_gradients(bad);
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "gradients[100]",
                                      onebit_optimizer_step(training.get()));
                ONEBIT_EXPECT(log, same_bits(training.parameters(), before.parameters));
                ONEBIT_EXPECT(log, training.errors().same_as(before.errors));
                training.steps(gradient, 10, 14);
                ONEBIT_EXPECT(log, training.info().steps == 14 && training.info().skipped == 1);
            }
        }
    });
}

TEST_CASE("optimizers with other codecs: states go on bit for bit, and move between codecs",
          "[optimizer][codec][save]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Sizes sizes = {1330, 610, 200, 1, 3000};
        const Gradient gradient = gaussian_gradient(total(sizes), 1);
        for (const Setup& setup : all_setups(sizes)) {
            Training saved(comm, setup, log);
            saved.steps(gradient, 1, 9);
            const std::vector<Bytes> blobs = all_packed(saved.get(), log);
            const OptimizerErrors errors = saved.errors();
            const std::vector<float> parameters = saved.parameters();

            log.context(title_of(setup) + ", to the same");
            Training same(comm, setup, std::vector<float>(total(sizes), 0.25F), log);
            ONEBIT_EXPECT_OK(log, unpack(same.get(), blobs));
            saved.steps(gradient, 10, 16);
            same.steps(gradient, 10, 16);
            ONEBIT_EXPECT(log, Snapshot(same).same_as(Snapshot(saved)));

            for (const onebit_codec_t codec : {ONEBIT_CODEC_SIGN, ONEBIT_CODEC_INT8, ONEBIT_CODEC_FP4}) {
                Setup other = setup;
                other.config.codec = codec;
                log.context(title_of(setup) + ", to codec " + std::to_string(codec));
                Training moved(comm, other, std::vector<float>(total(sizes), 0.25F), log);
                ONEBIT_EXPECT_OK(log, unpack(moved.get(), blobs));
                ONEBIT_EXPECT(log, same_bits(moved.parameters(), parameters));
                const bool exact = codec == ONEBIT_CODEC_SIGN && !freezes(setup.config.kind);
                if (!exact) ONEBIT_EXPECT(log, moved.errors().same_as(errors));
                moved.steps(gradient, 10, 14);
                ONEBIT_EXPECT(log, moved.info().steps == 14);
            }
        }
        for (const onebit_optimizer_kind_t kind : {ONEBIT_OPTIMIZER_ADAM, ONEBIT_OPTIMIZER_LAMB}) {
            const Setup exact{quick_config(kind), sizes};
            log.context(name_of(kind) + ", from exact averages to codes");
            Training saved(comm, exact, log);
            saved.steps(gradient, 1, 5);
            const std::vector<Bytes> blobs = all_packed(saved.get(), log);
            Training moved(comm, with_codec(exact, ONEBIT_CODEC_INT8), std::vector<float>(total(sizes), 0.25F), log);
            ONEBIT_EXPECT_OK(log, unpack(moved.get(), blobs));
            ONEBIT_EXPECT(log, same_bits(moved.parameters(), saved.parameters()));
            const OptimizerErrors none = moved.errors();
            ONEBIT_EXPECT(log, all_zero(none.worker) && all_zero(none.server));
            moved.steps(gradient, 6, 9);
            ONEBIT_EXPECT(log, moved.info().exact_rounds == 5 && moved.info().compressed_rounds == 4);
        }
    });
}

// Error feedback may make an average larger than any gradient that a step accepts.
TEST_CASE("Adam and LAMB with other codecs: the largest gradients leave moments that can be saved",
          "[optimizer][codec][magnitudes]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        constexpr std::size_t count = 700;
        for (const onebit_optimizer_kind_t kind : {ONEBIT_OPTIMIZER_ADAM, ONEBIT_OPTIMIZER_LAMB}) {
            for (const onebit_codec_t codec : other_codecs()) {
                const Setup setup = with_codec({optimizer_config(kind), {count}}, codec);
                log.context(title_of(setup));
                Training training(comm, setup, log), other(comm, setup, log);
                for (std::uint64_t t = 1; t <= 8; ++t) {
                    std::vector<float> gradient = make_data(Kind::gaussian, count, 9, log.rank(), t);
                    for (float& g : gradient) // half of the largest that a step takes, to all but that
                        g = std::copysign(1.83e19F * (0.5F + std::min(std::fabs(g), 1.0F) / 2), g);
                    training.step(gradient);
                }
                std::vector<float> v(count);
                ONEBIT_EXPECT_OK(log, onebit_optimizer_get_state(training.get(), 0, ONEBIT_STATE_EXP_AVG_SQ, v.data()));
                ONEBIT_EXPECT(log, std::all_of(v.begin(), v.end(), [](float x) { return std::isfinite(x); }));
                ONEBIT_EXPECT(log, *std::max_element(v.begin(), v.end()) > 1e35F);
                ONEBIT_EXPECT_OK(log, unpack(other.get(), all_packed(training.get(), log)));
                ONEBIT_EXPECT(log, Snapshot(other).same_as(Snapshot(training)));
            }
        }
    });
}

// With the same number in each step, the same elements would always be left out.
TEST_CASE("each step of an optimizer draws other elements of RANDOMK, before a load and after it",
          "[optimizer][codec][save]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const std::uint64_t bucket_size : {0, 500}) {
            Setup setup = with_codec({optimizer_config(ONEBIT_OPTIMIZER_ADAM), {600, 400}}, ONEBIT_CODEC_RANDOMK);
            setup.config.bucket_size = bucket_size;
            const auto count_moved = [](const Training& training) {
                const std::vector<float> parameters = training.parameters();
                return std::ranges::count_if(parameters, [](float x) { return x != 0; });
            };
            const std::vector<float> gradient(1000, 1.0F);
            Training saved(comm, setup, std::vector<float>(1000, 0.0F), log),
                loaded(comm, setup, std::vector<float>(1000, 0.0F), log);
            for (int t = 0; t < 40; ++t) saved.step(gradient); // 16 of 1000 each
            const auto before = count_moved(saved);
            ONEBIT_EXPECT(log, before > 300);
            ONEBIT_EXPECT_OK(log, unpack(loaded.get(), all_packed(saved.get(), log)));
            for (int t = 0; t < 40; ++t) {
                saved.step(gradient);
                loaded.step(gradient);
            }
            ONEBIT_EXPECT(log, count_moved(loaded) > before + (log.size() == 1 ? -1 : 100));
            ONEBIT_EXPECT(log, Snapshot(loaded).same_as(Snapshot(saved)));
        }
    });
}

// Two ways to cut the same tensors into as many buckets of the same sizes.
TEST_CASE("Adam's states don't move where the other one cuts tensors into other buckets", "[optimizer][codec][save]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const std::vector<std::size_t>& exact_tensors : {std::vector<std::size_t>{0, 3}, {0, 2}}) {
            Setup exact{optimizer_config(ONEBIT_OPTIMIZER_ADAM), {2000, 2000, 2000, 2000}};
            exact.config.bucket_size = 4000;
            leave_out(exact, exact_tensors);
            const Setup coded = with_codec(exact, ONEBIT_CODEC_INT8);
            Training first(comm, exact, log), second(comm, coded, log);
            first.steps(gaussian_gradient(8000, 1), 1, 2);
            second.steps(gaussian_gradient(8000, 1), 1, 2);
            const Snapshot before_first(first), before_second(second);
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE, "other buckets",
                                  unpack(second.get(), all_packed(first.get(), log)));
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE, "other buckets",
                                  unpack(first.get(), all_packed(second.get(), log)));
            ONEBIT_EXPECT(log, Snapshot(first).same_as(before_first) && Snapshot(second).same_as(before_second));
        }
    });
}

// Where gradients that share a scale are of one magnitude, compressed gradients are nearly the exact ones. So are the
// resulting parameters.
TEST_CASE("Adam and LAMB with a fine codec stay beside exact ones", "[optimizer][codec]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::size_t count = total(odd_sizes());
        const std::vector<float> start = initial_parameters(count),
                                 shared = make_data(Kind::gaussian, count, 5, 999, 0);
        const auto distance = [](const std::vector<float>& a, const std::vector<float>& b) {
            double sum = 0;
            for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - double{b[i]}, 2);
            return std::sqrt(sum);
        };
        const Gradient gradient = [&](int rank, std::uint64_t t) {
            std::vector<float> values = make_data(Kind::gaussian, count, 5, rank, t);
            for (std::size_t i = 0; i < count; ++i) values[i] += shared[i];
            return values;
        };
        for (const onebit_optimizer_kind_t kind : {ONEBIT_OPTIMIZER_ADAM, ONEBIT_OPTIMIZER_LAMB}) {
            const Setup exact{optimizer_config(kind), odd_sizes()};
            Training dense(comm, exact, log);
            dense.steps(gradient, 1, 60);
            const double walked = distance(dense.parameters(), start);
            for (const onebit_codec_t codec : {ONEBIT_CODEC_INT8, ONEBIT_CODEC_BFLOAT16}) {
                log.context(name_of(kind) + ", codec " + std::to_string(codec));
                Training fine(comm, with_codec(exact, codec), log);
                fine.steps(gradient, 1, 60);
                ONEBIT_EXPECT(log, walked > 0.1 && distance(fine.parameters(), dense.parameters()) <= 0.02 * walked);
            }
        }
    });
}

// Each kind with each codec that has errors of some size, and the sign.
std::vector<Setup> setups_of_errors(const Sizes& sizes) {
    std::vector<Setup> setups = all_setups(sizes);
    for (const onebit_optimizer_kind_t kind : all_kinds()) {
        if (freezes(kind)) setups.push_back({quick_config(kind), sizes});
    }
    return setups;
}

TEST_CASE("optimizers keep narrow errors", "[optimizer][codec][error_type][long]") {
    const int n = GENERATE(from_range(rank_counts()));
    const onebit_datatype_t type = GENERATE(ONEBIT_BFLOAT16, ONEBIT_INT8);
    run_ranks(n, [=](onebit_comm_t comm, RankLog& log) {
        for (Setup setup : setups_of_errors(block_sizes)) {
            log.context(title_of(setup));
            setup.config.bucket_size = 5000;
            Training wide(comm, setup, log);
            setup.config.error_type = type;
            Training narrow(comm, setup, log), resumed(comm, setup, log);
            const Gradient gradient = gaussian_gradient(total(setup.sizes), 4);
            narrow.steps(gradient, 1, 10);
            ONEBIT_EXPECT(log, narrow.parameters_same_on_all());
            ONEBIT_EXPECT(log, narrow.info().state_bytes < wide.info().state_bytes);
            const OptimizerErrors errors = narrow.errors();
            const auto is_narrow = [](float e) { return (bits_of(e) & 0xffffU) == 0; };
            ONEBIT_EXPECT(log, std::all_of(errors.worker.begin(), errors.worker.end(), is_narrow));
            ONEBIT_EXPECT(log, std::any_of(errors.worker.begin(), errors.worker.end(), [](float e) { return e != 0; }));
            // Training goes on from a save as without it.
            ONEBIT_EXPECT_OK(log, unpack(resumed.get(), all_packed(narrow.get(), log)));
            narrow.steps(gradient, 11, 14);
            resumed.steps(gradient, 11, 14);
            ONEBIT_EXPECT(log, Snapshot(resumed).same_as(Snapshot(narrow)));
        }
    });
}
