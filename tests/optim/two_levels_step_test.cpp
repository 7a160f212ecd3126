// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Steps of optimizers whose compressed exchange has two levels: in buckets, begun early, started without waiting,
// refused, given up, and never finished.
#include <limits>
#include <thread>

#include "optim/two_levels.hpp"
#include "support/blobs.hpp"
#include "support/forge.hpp"
#include "support/magnitudes.hpp"

using namespace onebit_test;

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

// With buckets {6, 5}, {4, 3, 2} and {1, 0} of compressed tensors, and {7}, which isn't compressed.
Setup bucket_setup(onebit_optimizer_kind_t kind, const Nodes& nodes = two_by_two) {
    Setup setup = on_two_levels({quick_config(kind), {1400, 800, 660, 3, 1221, 400, 1800, 600}}, nodes);
    setup.config.weight_decay = 0.1;
    setup.config.bucket_size = 2200;
    leave_out(setup, {7});
    return setup;
}

// 100 to 119 are to be masked until step 12.
Gradient masking_gradient(const Setup& setup, std::uint64_t seed = 1) {
    return beginning_late(gaussian_gradient(total(setup.sizes), seed), 100, 120, 12);
}

// Four ways to make a step. Ranks may choose different ways.
onebit_status_t make_step(onebit_comm_t comm, onebit_optimizer_t handle, std::uint64_t way) {
    if (way % 4 == 0) return onebit_optimizer_step(handle);
    const onebit_status_t started = onebit_optimizer_step_start(handle);
    if (started != ONEBIT_SUCCESS || way % 4 == 1) return onebit_optimizer_step_wait(handle);
    for (int done = 0; way % 4 == 2; std::this_thread::yield()) {
        const onebit_status_t status = onebit_optimizer_step_test(handle, &done);
        if (done != 0) return status;
    }
    int active = 1;
    while (active != 0 && onebit_comm_progress(comm, &active) == ONEBIT_SUCCESS) std::this_thread::yield();
    return onebit_optimizer_step_wait(handle);
}

} // namespace

TEST_CASE("optimizers on two levels: when gradients are ready changes nothing", "[optimizer][two_level][overlap]") {
    const Nodes nodes = GENERATE(from_range(all_nodes()));
    run_nodes(nodes, [nodes](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            for (const bool clipped : {false, true}) {
                Setup setup = bucket_setup(kind, nodes);
                setup.config.max_grad_norm = clipped ? 40 : 0;
                setup.config.group = clipped ? ONEBIT_GROUP_BUFFER : ONEBIT_GROUP_BLOCK;
                setup.gradient_type = clipped ? ONEBIT_FLOAT16 : ONEBIT_FLOAT32;
                setup.config.compressed = clipped ? ONEBIT_COMPRESSED_MOMENTA : ONEBIT_COMPRESSED_UPDATES;
                setup.config.follow_interval = 2;
                Training expected(comm, setup, log);
                if (kind == ONEBIT_OPTIMIZER_ONEBIT_ADAM) setup.config.threads = 2;
                Training mixed(comm, setup, log);
                ONEBIT_EXPECT(log, expected.info().algorithm == ONEBIT_ALGORITHM_TWO_LEVEL);
                const Gradient gradient = masking_gradient(setup);
                for (std::uint64_t t = 1; t <= 14; ++t) {
                    log.context(name_of(kind) + ", " + nodes.name() + (clipped ? ", clipped, step " : ", step ") +
                                std::to_string(t));
                    const onebit_optimizer_info_t before = expected.info();
                    const std::vector<float> values = gradient(log.rank(), t);
                    expected.step(values);
                    step(mixed, values, shuffled(setup, log.rank(), t), log);
                    ONEBIT_EXPECT(log, Snapshot(mixed).same_as(Snapshot(expected)));
                    if (has_exchanged(before, mixed.info())) ONEBIT_EXPECT(log, mixed.parameters_same_on_all());
                    if (t == 10) ONEBIT_EXPECT(log, mixed.info().masked == 20);
                }
            }
        }
    });
}

TEST_CASE("optimizers on two levels: one bucket gives what no buckets give", "[optimizer][two_level][overlap]") {
    run_nodes(two_by_two, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            for (const onebit_compressed_t compressed : ways_to_compress(kind)) {
                log.context(name_of(kind) + ", way " + std::to_string(compressed));
                Setup setup = bucket_setup(kind);
                setup.sizes = {4097, 300, 33, 1, 61, 20, 9000, 30};
                setup.config.compressed = compressed;
                setup.config.bucket_size = 1000000;
                Training early(comm, setup, log);
                setup.config.bucket_size = 0;
                Training plain(comm, setup, log);
                const Gradient gradient = in_eighths(gaussian_gradient(total(setup.sizes), 1));
                for (std::uint64_t t = 1; t <= 14; ++t) {
                    const std::vector<float> values = gradient(log.rank(), t);
                    step(early, values, shuffled(setup, log.rank(), t), log);
                    plain.step(values);
                    ONEBIT_EXPECT(log, Snapshot(early).same_as(Snapshot(plain)));
                }
            }
        }
    });
}

TEST_CASE("optimizers on two levels: buckets are trained as optimizers of their own would be",
          "[optimizer][two_level][overlap]") {
    run_nodes(two_by_two, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            for (const onebit_group_t group : {ONEBIT_GROUP_BLOCK, ONEBIT_GROUP_BUFFER, ONEBIT_GROUP_TENSOR}) {
                log.context(name_of(kind) + ", group " + std::to_string(group));
                const bool of_tensors = group == ONEBIT_GROUP_TENSOR; // few elements go with others
                const std::vector<Sizes> parts = {{1100}, {500, 600}, {5000}};
                Setup setup = on_two_levels({quick_config(kind), {1100, 500, 600, 5000}});
                setup.config.group = group;
                setup.config.bucket_size = of_tensors ? 0 : 1200; // 5000 are a bucket all the same
                setup.config.follow_interval = ONEBIT_FOLLOW_NEVER;
                Training whole(comm, setup, log);
                setup.config.bucket_size = 0;
                if (of_tensors) setup.config.group = ONEBIT_GROUP_BUFFER;
                const auto part_of = [](const std::vector<float>& all, std::size_t begin, std::size_t count) {
                    const auto first = all.begin() + static_cast<std::ptrdiff_t>(begin);
                    return std::vector<float>(first, first + static_cast<std::ptrdiff_t>(count));
                };
                const std::vector<float> start = initial_parameters(total(setup.sizes));
                std::vector<std::unique_ptr<Training>> alone;
                std::size_t begin = 0;
                for (const Sizes& part : parts) {
                    setup.sizes = part;
                    alone.push_back(std::make_unique<Training>(comm, setup, part_of(start, begin, total(part)), log));
                    begin += total(part);
                }
                const Gradient gradient = in_eighths(gaussian_gradient(start.size(), 1));
                for (std::uint64_t t = 1; t <= 14; ++t) {
                    const std::vector<float> values = gradient(log.rank(), t);
                    whole.step(values);
                    std::vector<float> together;
                    OptimizerErrors errors;
                    begin = 0;
                    for (const auto& training : alone) {
                        training->step(part_of(values, begin, training->count()));
                        begin += training->count();
                        const std::vector<float> own = training->parameters();
                        const OptimizerErrors its = training->errors();
                        together.insert(together.end(), own.begin(), own.end());
                        errors.worker.insert(errors.worker.end(), its.worker.begin(), its.worker.end());
                        errors.server.insert(errors.server.end(), its.server.begin(), its.server.end());
                    }
                    ONEBIT_EXPECT(log, same_bits(whole.parameters(), together));
                    ONEBIT_EXPECT(log, whole.errors().same_as(errors));
                }
            }
        }
    });
}

TEST_CASE("optimizers on two levels: a started step gives the bits of a step", "[optimizer][two_level][started]") {
    const Nodes nodes = GENERATE(from_range(all_nodes()));
    run_nodes(nodes, [nodes](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            for (const std::uint64_t bucket_size : {std::uint64_t{0}, std::uint64_t{2200}}) {
                Setup setup = bucket_setup(kind, nodes);
                setup.config.bucket_size = bucket_size;
                setup.config.max_grad_norm = bucket_size == 0 ? 40 : 0;
                setup.gradient_type = bucket_size == 0 ? ONEBIT_BFLOAT16 : ONEBIT_FLOAT32;
                setup.config.follow_interval = 4;
                Training expected(comm, setup, log), mixed(comm, setup, log);
                const Gradient gradient = masking_gradient(setup);
                for (std::uint64_t t = 1; t <= 14; ++t) {
                    log.context(name_of(kind) + ", " + nodes.name() + ", buckets of " + std::to_string(bucket_size) +
                                ", step " + std::to_string(t));
                    expected.steps(gradient, t, t);
                    mixed.set_gradients(gradient(log.rank(), t));
                    ONEBIT_EXPECT_OK(log, make_step(comm, mixed.get(), t + static_cast<std::uint64_t>(log.rank())));
                    ONEBIT_EXPECT(log, Snapshot(mixed).same_as(Snapshot(expected)));
                }
                ONEBIT_EXPECT(log, mixed.info().compressed_rounds > 0);
            }
        }
    });
}

TEST_CASE("optimizers on two levels: steps of several are under way together", "[optimizer][two_level][started]") {
    run_nodes(two_by_two, [](onebit_comm_t comm, RankLog& log) {
        const Setup cut = bucket_setup(ONEBIT_OPTIMIZER_ZERO_ONE_ADAM);
        Setup plain = bucket_setup(ONEBIT_OPTIMIZER_ONEBIT_LAMB), flat = plain;
        plain.config.bucket_size = flat.config.bucket_size = 0;
        flat.config.algorithm = ONEBIT_ALGORITHM_PIPELINED;
        std::vector<std::unique_ptr<Training>> together, alone;
        for (const Setup& setup : {cut, plain, flat}) {
            together.push_back(std::make_unique<Training>(comm, setup, log));
            alone.push_back(std::make_unique<Training>(comm, setup, log));
        }
        const Gradient gradient = masking_gradient(cut);
        for (std::uint64_t t = 1; t <= 14; ++t) {
            log.context("step " + std::to_string(t));
            for (std::size_t k = 0; k < together.size(); ++k) { // each rank begins them in its own order
                Training& each = *together[(k + t + static_cast<std::size_t>(log.rank())) % together.size()];
                each.set_gradients(gradient(log.rank(), t));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_step_start(each.get()));
            }
            for (int active = 1; active > 0 && t % 2 == 0; std::this_thread::yield())
                ONEBIT_EXPECT_OK(log, onebit_comm_progress(comm, &active));
            for (const auto& each : together) ONEBIT_EXPECT_OK(log, onebit_optimizer_step_wait(each->get()));
            for (std::size_t k = 0; k < together.size(); ++k) {
                alone[k]->steps(gradient, t, t);
                ONEBIT_EXPECT(log, Snapshot(*together[k]).same_as(Snapshot(*alone[k])));
            }
        }
    });
}

TEST_CASE("optimizers on two levels: threads change no bit", "[optimizer][two_level]") {
    run_nodes(two_by_two, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            log.context(name_of(kind));
            Setup setup = on_two_levels({quick_config(kind), {20001, 3, 9000, 3 * 4096 + 1}});
            leave_out(setup, {2});
            setup.config.threads = 1;
            Training one(comm, setup, log);
            setup.config.threads = 3;
            Training three(comm, setup, log);
            const Gradient gradient = gaussian_gradient(one.count(), 1);
            for (std::uint64_t t = 1; t <= 12; ++t) {
                const std::vector<float> values = gradient(log.rank(), t);
                const onebit_optimizer_info_t before = one.info();
                one.step(values);
                three.step(values);
                ONEBIT_EXPECT(log, Snapshot(one).same_as(Snapshot(three)));
                if (has_exchanged(before, one.info())) ONEBIT_EXPECT(log, one.parameters_same_on_all());
            }
        }
    });
}

TEST_CASE("optimizers on two levels: a rank that can't or won't makes no step on any",
          "[optimizer][two_level][overflow]") {
    const Nodes nodes = GENERATE(from_range(all_nodes()));
    run_nodes(nodes, [nodes](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            for (const std::uint64_t bucket_size : {std::uint64_t{0}, std::uint64_t{2200}}) {
                Setup setup = bucket_setup(kind, nodes);
                setup.config.bucket_size = bucket_size;
                Training training(comm, setup, log), twin(comm, setup, log);
                const Gradient gradient = masking_gradient(setup);
                for (std::uint64_t t = 1; t <= 13; ++t) {
                    log.context(name_of(kind) + ", " + nodes.name() + ", buckets of " + std::to_string(bucket_size) +
                                ", step " + std::to_string(t));
                    const int faulty = static_cast<int>(t) % log.size();
                    const bool here = log.rank() == faulty;
                    const std::string who = ";rank " + std::to_string(faulty);
                    const Snapshot before(training);
                    std::vector<float> wrong = gradient(log.rank(), 1000 + t);
                    if (here) wrong[t * 487 % wrong.size()] = t % 2 == 0 ? not_a_number : 1e20F;
                    training.set_gradients(wrong);
                    if (bucket_size > 0) announce(training, shuffled(setup, log.rank(), t), log);
                    ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "nan|overflow" + who,
                                          make_step(comm, training.get(), bucket_size > 0 ? 0 : t));
                    training.set_gradients(gradient(log.rank(), t));
                    ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_CANCELLED, "no memory left" + who,
                                          here ? onebit_optimizer_cancel_step(training.get(), "no memory left")
                                               : onebit_optimizer_step(training.get()));
                    ONEBIT_EXPECT(log, Snapshot(training).same_as(before));
                    ONEBIT_EXPECT(log, training.info().skipped == t);
                    training.steps(gradient, t, t);
                    twin.steps(gradient, t, t);
                    ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
                }
            }
        }
    });
}

namespace {

// Errors so large in one place, and at one rank of it, that the message of this rank's chunk overflows; elsewhere they
// are as they were. `faulty`: that rank.
Bytes with_huge_errors(Bytes blob, const RankLog& log, int places, int faulty) {
    constexpr std::uint32_t server_error = 9, shard_error = 10; // names of arrays
    if (log.rank() % places != faulty % places) return blob;
    std::size_t place = values_at(blob);
    for (std::uint32_t a = 0; a < get<std::uint32_t>(blob, kArraysAt); ++a) {
        const std::size_t row = rows_at(blob) + kRowBytes * a;
        const std::uint32_t name = get<std::uint32_t>(blob, row);
        const std::uint64_t count = get<std::uint64_t>(blob, row + 32);
        if (name == shard_error || (name == server_error && log.rank() == faulty))
            for (std::uint64_t i = 0; i < count; ++i) put(blob, place + 4 * i, std::numeric_limits<float>::max());
        place += 4 * count;
    }
    repair_optimizer(blob);
    return blob;
}

} // namespace

TEST_CASE("optimizers on two levels: a message that overflows in one shard refuses the step on all",
          "[optimizer][two_level][overflow]") {
    const Nodes nodes = GENERATE(from_range(all_nodes()));
    run_nodes(nodes, [nodes](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            for (const std::uint64_t bucket_size : {std::uint64_t{0}, std::uint64_t{2200}}) {
                for (int faulty = 0; faulty<log.size(); faulty += log.size()> 4 ? 5 : 1) {
                    log.context(name_of(kind) + ", " + nodes.name() + ", buckets of " + std::to_string(bucket_size) +
                                ", chunk of rank " + std::to_string(faulty));
                    Setup setup = bucket_setup(kind, nodes);
                    setup.config.bucket_size = bucket_size;
                    const Gradient gradient = gaussian_gradient(total(setup.sizes), 1);
                    Training training(comm, setup, log);
                    training.steps(gradient, 1, 9);
                    const Bytes huge = with_huge_errors(packed(training.get(), log), log, nodes.places, faulty);
                    ONEBIT_EXPECT_OK(log, unpack(training.get(), {huge}));
                    const Snapshot before(training);
                    training.set_gradients(gradient(log.rank(), 10));
                    ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "overflow",
                                          onebit_optimizer_step(training.get()));
                    Snapshot after(training);
                    ONEBIT_EXPECT(log, after.info.skipped == before.info.skipped + 1);
                    ONEBIT_EXPECT(log, same_bits(after.parameters, before.parameters));
                    if (bucket_size > 0) {
                        ONEBIT_EXPECT(log, after.same_as(before));
                        ONEBIT_EXPECT_OK(log, onebit_optimizer_reset_error(training.get()));
                    } else {
                        ONEBIT_EXPECT(log, all_zero(after.errors.worker) && all_zero(after.errors.server));
                    }
                    std::vector<float> momentum(setup.sizes[1]);
                    ONEBIT_EXPECT_OK(
                        log, onebit_optimizer_get_state(training.get(), 1, ONEBIT_STATE_EXP_AVG, momentum.data()));
                    // 0/1 Adam's momentum may differ between ranks.
                    ONEBIT_EXPECT(log, log.same_on_all(momentum.data(), momentum.size() * sizeof(float)) ||
                                           kind == ONEBIT_OPTIMIZER_ZERO_ONE_ADAM);
                    for (std::uint64_t t = 10; t <= 13; ++t) {
                        const onebit_optimizer_info_t then = training.info();
                        training.steps(gradient, t, t);
                        if (has_exchanged(then, training.info())) ONEBIT_EXPECT(log, training.parameters_same_on_all());
                    }
                    ONEBIT_EXPECT(log, all_finite(training.parameters()));
                    const OptimizerErrors errors = training.errors();
                    ONEBIT_EXPECT(log, all_finite(errors.worker) && all_finite(errors.server));
                }
            }
        }
    });
}

// The sum of a node's drifts is too large for a float, but their average is a float. With the
// previous step's error the next drift is too large for a message.
TEST_CASE("optimizers on two levels: the average of a node's largest floats is one",
          "[optimizer][two_level][overflow]") {
    run_nodes(two_by_two, [](onebit_comm_t comm, RankLog& log) {
        for (const std::uint64_t bucket_size : {std::uint64_t{0}, std::uint64_t{2000}}) {
            log.context("buckets of " + std::to_string(bucket_size));
            Setup setup = on_two_levels({quick_config(ONEBIT_OPTIMIZER_ZERO_ONE_ADAM), {3100, 10, 2900}});
            setup.config.local_steps = 1; // a round in each step after the freeze
            setup.config.bucket_size = bucket_size;
            setup.groups.assign(2, ONEBIT_PARAM_GROUP_INIT(0.01));
            setup.group_of = {0, 1, 0};
            Training training(comm, setup, log);
            const Gradient gradient = [inner = gaussian_gradient(6010, 1)](int rank, std::uint64_t t) {
                std::vector<float> values = inner(rank, t);
                std::fill(values.begin() + 3100, values.begin() + 3110, t < 7 ? 1.0F : 100.0F);
                return values;
            };
            training.steps(gradient, 1, 6);
            ONEBIT_EXPECT_OK(log, onebit_optimizer_set_group_lr(training.get(), 1, 3e38));
            training.steps(gradient, 7, 7);
            const Snapshot before(training);
            ONEBIT_EXPECT(log, all_finite(before.parameters) && training.parameters_same_on_all());
            ONEBIT_EXPECT(log, before.parameters[3100] < -1e36F);
            training.set_gradients(gradient(log.rank(), 8));
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "overflow", onebit_optimizer_step(training.get()));
            Snapshot after(training);
            ONEBIT_EXPECT(log, same_bits(after.parameters, before.parameters));
            if (bucket_size > 0) ONEBIT_EXPECT(log, after.same_as(before));
            if (bucket_size == 0) ONEBIT_EXPECT(log, all_zero(after.errors.worker) && all_zero(after.errors.server));
            ONEBIT_EXPECT_OK(log, onebit_optimizer_reset_error(training.get()));
            ONEBIT_EXPECT_OK(log, onebit_optimizer_set_group_lr(training.get(), 1, 0.01));
            training.steps(gradient, 8, 12);
            ONEBIT_EXPECT(log, all_finite(training.parameters()) && training.parameters_same_on_all());
        }
    });
}

TEST_CASE("optimizers on two levels: ranks that wait for one that stays away get a timeout", "[optimizer][two_level]") {
    const Variable timeout("ONEBIT_TIMEOUT", "0.5");
    const std::uint64_t last = GENERATE(std::uint64_t{3}, std::uint64_t{8}); // in the warm-up, and after it
    const std::uint64_t bucket_size = GENERATE(std::uint64_t{0}, std::uint64_t{2200});
    run_nodes(two_by_two, [=](onebit_comm_t comm, RankLog& log) {
        Setup setup = bucket_setup(ONEBIT_OPTIMIZER_ONEBIT_ADAM);
        setup.config.bucket_size = bucket_size;
        const Gradient gradient = gaussian_gradient(total(setup.sizes), 1);
        Training training(comm, setup, log);
        training.steps(gradient, 1, last);
        if (!log.last_rank()) {
            training.set_gradients(gradient(log.rank(), last + 1));
            ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_TIMEOUT, onebit_optimizer_step(training.get()));
            ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_TIMEOUT, onebit_optimizer_step(training.get()));
        }
        log.barrier();
    });
}
