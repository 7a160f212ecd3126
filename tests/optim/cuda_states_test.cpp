// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// States of optimizers whose tensors are in a GPU's memory: blobs and moments have the bits of the host's optimizer. So
// have steps after a change of settings and addresses, and steps without gradients of some tensors.

#include <string>
#include <vector>

#include "optim/training_on.hpp"
#include "support/blobs.hpp"

namespace {

using namespace onebit_test;

std::vector<Model> models_of(onebit_optimizer_kind_t kind) {
    onebit_optimizer_config_t config = quick_config(kind);
    config.compressed = ways_to_compress(kind).back();
    std::vector<Model> models = {three_groups(config)};
    config.compressed = ONEBIT_COMPRESSED_UPDATES;
    models.push_back(three_groups(config));
    return models;
}

std::vector<float> states_of(TrainingOn& training, onebit_state_t which, RankLog& log) {
    std::vector<float> all;
    for (std::size_t k = 0; k < training.model().tensors.size(); ++k) {
        std::vector<float> values(training.model().tensors[k].count);
        ONEBIT_EXPECT_OK(log, onebit_optimizer_get_state(training.get(), k, which, values.data()));
        all.insert(all.end(), values.begin(), values.end());
    }
    return all;
}

TEST_CASE("blobs and moments of a GPU's optimizer are the host's", "[cuda][optimizers][blobs]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : all_kinds()) {
            for (const Model& model : models_of(kind)) {
                const Gradient gradient = in_eighths(with_zeros(model.count(), 3));
                TrainingOn host(kHost, comm, model, log), gpu(kGpu, comm, model, log), other(kGpu, comm, model, log);
                for (std::uint64_t t = 1; t <= 12; ++t) {
                    log.context(name_of(kind) + ", step " + std::to_string(t));
                    for (TrainingOn* training : {&host, &gpu}) training->step(gradient(log.rank(), t));
                    ONEBIT_EXPECT(log, packed(host.get(), log) == packed(gpu.get(), log));
                    for (const onebit_state_t which : {ONEBIT_STATE_EXP_AVG, ONEBIT_STATE_EXP_AVG_SQ,
                                                       ONEBIT_STATE_WORKER_ERROR, ONEBIT_STATE_SERVER_ERROR}) {
                        ONEBIT_EXPECT(log, same_bits(states_of(host, which, log), states_of(gpu, which, log)));
                    }
                }
                ONEBIT_EXPECT_OK(log, unpack(other.get(), {packed(host.get(), log)}));
                ONEBIT_EXPECT_OK(log, unpack(host.get(), {packed(gpu.get(), log)}));
                for (std::uint64_t t = 13; t <= 15; ++t) {
                    for (TrainingOn* training : {&host, &gpu, &other}) training->step(gradient(log.rank(), t));
                    ONEBIT_EXPECT(log, packed(host.get(), log) == packed(gpu.get(), log));
                    ONEBIT_EXPECT(log, packed(host.get(), log) == packed(other.get(), log));
                }
            }
        }
    });
}

TEST_CASE("a GPU's optimizer goes on from another's moments, with other settings, as the host's does",
          "[cuda][optimizers][moments]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : all_kinds()) {
            const Model model = models_of(kind).front();
            const Gradient gradient = in_eighths(gaussian_gradient(model.count(), 3));
            TrainingOn before(kHost, comm, models_of(ONEBIT_OPTIMIZER_ADAM).front(), log);
            for (std::uint64_t t = 1; t <= 3; ++t) before.step(gradient(log.rank(), t));
            TrainingOn host(kHost, comm, model, log), gpu(kGpu, comm, model, log);
            for (TrainingOn* training : {&host, &gpu}) {
                ONEBIT_EXPECT_OK(log, onebit_optimizer_set_steps(training->get(), 3));
                for (const onebit_state_t which : {ONEBIT_STATE_EXP_AVG, ONEBIT_STATE_EXP_AVG_SQ}) {
                    for (std::size_t k = 0; k < model.tensors.size(); ++k) {
                        std::vector<float> values(model.tensors[k].count);
                        ONEBIT_EXPECT_OK(log, onebit_optimizer_get_state(before.get(), k, which, values.data()));
                        ONEBIT_EXPECT_OK(log, onebit_optimizer_set_state(training->get(), k, which, values.data()));
                    }
                }
            }
            for (std::uint64_t t = 4; t <= 12; ++t) {
                log.context(name_of(kind) + ", step " + std::to_string(t));
                onebit_param_group_t group = model.groups[t % 3];
                group.lr *= 0.5;
                group.beta1 = 0.8;
                group.weight_decay = 0.01;
                for (TrainingOn* training : {&host, &gpu}) {
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_group(training->get(), t % 3, &group));
                    training->step(gradient(log.rank(), t));
                }
                ONEBIT_EXPECT(log, packed(host.get(), log) == packed(gpu.get(), log));
                ONEBIT_EXPECT(log, same_training(host, gpu));
            }
        }
    });
}

TEST_CASE("missing gradients are zeros on a GPU, too", "[cuda][optimizers][missing]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : all_kinds()) {
            for (Model model : models_of(kind)) {
                const Gradient gradient = in_eighths(gaussian_gradient(model.count(), 3));
                TrainingOn with_zeros_there(kGpu, comm, model, log);
                model.config.missing_gradients = 1;
                TrainingOn gpu(kGpu, comm, model, log);
                for (std::uint64_t t = 1; t <= 12; ++t) {
                    log.context(name_of(kind) + ", step " + std::to_string(t));
                    std::vector<float> mine = gradient(log.rank(), t);
                    const std::size_t missing = (t + static_cast<std::size_t>(log.rank())) % model.tensors.size();
                    std::size_t first = 0;
                    for (std::size_t k = 0; k < missing; ++k) first += model.tensors[k].count;
                    gpu.move_gradients(missing); // with gradients again, wherever they were
                    gpu.set_gradients(mine);
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradients(gpu.get(), missing, nullptr));
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_step(gpu.get()));
                    gpu.move_gradients(missing);
                    std::fill_n(mine.begin() + static_cast<std::ptrdiff_t>(first), model.tensors[missing].count, 0.0F);
                    with_zeros_there.step(mine);
                    ONEBIT_EXPECT(log, same_training(gpu, with_zeros_there));
                }
            }
        }
    });
}

} // namespace
