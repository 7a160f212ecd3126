// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Exchanges that begin during the backward pass. Tensors in the memory of a GPU, a real or an emulated one, give the
// same bits as tensors in the host's memory. This holds for any number of ranks, because in buckets sums are added up
// in rank order.

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "optim/training_on.hpp"

namespace {

using namespace onebit_test;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Buckets of one tensor or several, the last tensors' first.
std::vector<Model> bucket_models(onebit_optimizer_kind_t kind) {
    onebit_optimizer_config_t config = quick_config(kind);
    config.weight_decay = 0.1;
    config.bucket_size = 2000;
    std::vector<Model> models = {
        {config, {{1500}, {2100}, {700, 0, ONEBIT_BFLOAT16}, {33}, {1100, 0, ONEBIT_FLOAT32, true, ONEBIT_FLOAT16}}},
        three_groups(config)};
    models.push_back(models[0]);
    models.back().config.max_grad_norm = 40;
    models.back().config.group = ONEBIT_GROUP_BUFFER;
    models.push_back(models[0]);
    models.back().config.compressed = ways_to_compress(kind).back();
    models[1].tensors.push_back({1200, 2}); // a bucket that is always averaged exactly
    return models;
}

/// An order that differs between steps and ranks, and sometimes lacks some tensors.
std::vector<std::size_t> some_order(std::size_t tensors, int rank, std::uint64_t t) {
    std::vector<std::size_t> order(tensors);
    std::iota(order.rbegin(), order.rend(), 0);
    std::mt19937 random(static_cast<unsigned>(100 * t) + static_cast<unsigned>(rank));
    if (t % 2 == 0) std::shuffle(order.begin(), order.end(), random);
    if (t % 3 != 0) order.resize(random() % (order.size() + 1));
    return order;
}

void announce(TrainingOn& training, RankLog& log, std::uint64_t t) {
    for (const std::size_t k : some_order(training.model().tensors.size(), log.rank(), t)) {
        ONEBIT_EXPECT_OK(log, onebit_optimizer_grad_ready(training.get(), k));
    }
}

void step_early(TrainingOn& training, RankLog& log, const std::vector<float>& gradient, std::uint64_t t) {
    training.set_gradients(gradient);
    announce(training, log, t);
    ONEBIT_EXPECT_OK(log, onebit_optimizer_step(training.get()));
}

TEST_CASE("buckets on a GPU give the host's bits, whenever gradients are ready", "[cuda][optimizers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : all_kinds()) {
            for (const Model& model : bucket_models(kind)) {
                SharedDirectory directory(log);
                const Gradient gradient = with_zeros(model.count(), 3);
                TrainingOn host(kHost, comm, model, log);
                TrainingOn gpu(kGpu, comm, model, log);
                for (std::uint64_t t = 1; t <= (freezes(kind) ? 11U : 4U); ++t) {
                    log.context(name_of(kind) + ", step " + std::to_string(t));
                    for (TrainingOn* training : {&host, &gpu}) {
                        if (t == 4) ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(training->get(), 0.3));
                        if (t == 5) training->move_gradients(1);
                    }
                    host.step(gradient(log.rank(), t));
                    step_early(gpu, log, gradient(log.rank(), t), t);
                    ONEBIT_EXPECT(log, same_training(host, gpu));
                }
                ONEBIT_EXPECT(log, saved(gpu, log, directory, "gpu") == saved(host, log, directory, "host"));
                ONEBIT_EXPECT(log, gpu.info().masked == (freezes(kind) ? 50U : 0U));
            }
        }
    });
}

TEST_CASE("a step on a GPU that is refused after its exchanges have begun changes nothing", "[cuda][optimizers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : {ONEBIT_OPTIMIZER_ONEBIT_ADAM, ONEBIT_OPTIMIZER_ZERO_ONE_ADAM}) {
            const Model model = bucket_models(kind)[0];
            const Gradient gradient = gaussian_gradient(model.count(), 3);
            TrainingOn gpu(kGpu, comm, model, log);
            TrainingOn twin(kGpu, comm, model, log);
            std::uint64_t skipped = 0;
            for (std::uint64_t t = 1; t <= 10; ++t) {
                log.context(name_of(kind) + ", step " + std::to_string(t));
                const bool faulty = static_cast<int>(t) % log.size() == log.rank();
                std::vector<float> bad = gradient(log.rank(), 1000 + t);
                // On all ranks, so that exact sums, which have begun, are NaNs; in a later bucket, too.
                bad[3602] = bad[100] = faulty ? -kInfinity : kInfinity;
                if (faulty && t % 2 == 0) bad[3602] = NAN;
                gpu.set_gradients(bad);
                announce(gpu, log, t);
                ONEBIT_EXPECT_FAILURE(
                    log, ONEBIT_ERROR_NONFINITE,
                    t % 2 == 0 ? "tensors[2] 'weights': gradients[2] is" : "gradients[2] is -inf|gradients[2] is inf",
                    onebit_optimizer_step(gpu.get()));
                ONEBIT_EXPECT(log, gpu.info().skipped == ++skipped);

                gpu.set_gradients(gradient(log.rank(), 2000 + t));
                if (faulty) ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradients(gpu.get(), 1, nullptr));
                if (!faulty) announce(gpu, log, 3 * t);
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "tensors[1] 'weights';no gradients",
                                      onebit_optimizer_step(gpu.get()));
                gpu.move_gradients(1);
                ONEBIT_EXPECT(log, gpu.parameters() == twin.parameters() && gpu.copies() == twin.copies());
                ONEBIT_EXPECT(log, gpu.errors().same_as(twin.errors()));

                step_early(gpu, log, gradient(log.rank(), t), t);
                twin.step(gradient(log.rank(), t));
                ONEBIT_EXPECT(log, gpu.parameters() == twin.parameters() && gpu.errors().same_as(twin.errors()));
            }
        }
    });
}

TEST_CASE("a message that overflows refuses a step on a GPU as a whole", "[cuda][optimizers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            const Model model = bucket_models(kind)[0];
            const bool zero_one = kind == ONEBIT_OPTIMIZER_ZERO_ONE_ADAM; // compresses before the freeze
            const Gradient gradient = gaussian_gradient(model.count(), 3);
            TrainingOn gpu(kGpu, comm, model, log);
            TrainingOn twin(kGpu, comm, model, log);
            for (std::uint64_t t = 1; t <= (zero_one ? 6U : 10U); ++t) {
                log.context(name_of(kind) + ", step " + std::to_string(t));
                if (zero_one ? t == 3 || t == 5 : t == 7 || t == 9) {
                    std::vector<float> huge = gradient(log.rank(), 1000 + t);
                    huge[2000] = std::numeric_limits<float>::max();
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(gpu.get(), 1e-6));
                    gpu.set_gradients(huge);
                    announce(gpu, log, t);
                    ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "overflow", onebit_optimizer_step(gpu.get()));
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(gpu.get(), 1));
                }
                ONEBIT_EXPECT(log, gpu.parameters() == twin.parameters() && gpu.errors().same_as(twin.errors()));
                step_early(gpu, log, gradient(log.rank(), t), t);
                twin.step(gradient(log.rank(), t));
            }
            ONEBIT_EXPECT(log, gpu.parameters() == twin.parameters() && gpu.errors().same_as(twin.errors()));
        }
    });
}

TEST_CASE("buckets are saved on the host and loaded on a GPU, in the other stage too", "[cuda][optimizers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            const Model model = bucket_models(kind)[1];
            const Gradient gradient = with_zeros(model.count(), 3);
            for (const std::uint64_t at : {3, 6, 8}) {
                log.context(name_of(kind) + " after step " + std::to_string(at));
                SharedDirectory directory(log);
                TrainingOn host(kHost, comm, model, log);
                for (std::uint64_t t = 1; t <= at; ++t) host.step(gradient(log.rank(), t));
                const Bytes first = saved(host, log, directory, "first");
                TrainingOn gpu(kGpu, comm, model, log);
                const std::uint64_t forgotten = at < 8 ? 8 : 3;
                for (std::uint64_t t = 1; t <= forgotten; ++t) gpu.step(gradient(log.rank(), t + 9));
                load(gpu, log, directory, "first");
                ONEBIT_EXPECT(log, saved(gpu, log, directory, "second") == first);
                for (std::uint64_t t = at + 1; t <= at + 3; ++t) {
                    host.step(gradient(log.rank(), t));
                    step_early(gpu, log, gradient(log.rank(), t), t);
                    ONEBIT_EXPECT(log, same_training(host, gpu));
                }
            }
        }
    });
}

} // namespace
