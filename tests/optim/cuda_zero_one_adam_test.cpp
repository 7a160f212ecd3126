// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// 0/1 Adam on tensors in the memory of a GPU, a real or an emulated one, through the C interface. Exact, compressed and
// local steps give the same bits as in the host's memory. All gradients are eighths, so that exact rounds have the
// host's bits with any number of ranks.

#include <limits>
#include <string>
#include <vector>

#include "optim/training_on.hpp"

namespace {

using namespace onebit_test;

onebit_optimizer_config_t zero_one_config() {
    onebit_optimizer_config_t config = quick_config(ONEBIT_OPTIMIZER_ZERO_ONE_ADAM);
    config.weight_decay = 0.1;
    return config;
}

void train_beside(onebit_comm_t comm, RankLog& log, const Model& model) {
    SharedDirectory directory(log);
    const Gradient gradient = in_eighths(with_zeros(model.count(), 3));
    TrainingOn host(kHost, comm, model, log);
    TrainingOn gpu(kGpu, comm, model, log);
    for (std::uint64_t t = 1; t <= 17; ++t) {
        log.context("step " + std::to_string(t));
        for (TrainingOn* training : {&host, &gpu}) {
            if (t == 5) ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(training->get(), 0.3));
            if (t == 9) ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(training->get(), 1));
            if (t == 8) ONEBIT_EXPECT_OK(log, onebit_optimizer_set_group_lr(training->get(), 0, 0)); // L = 0 in a round
            if (t == 9) ONEBIT_EXPECT_OK(log, onebit_optimizer_set_group_lr(training->get(), 0, 0.003));
            if (t == 3 || t == 11) training->move_gradients(0);
            training->step(gradient(log.rank(), t));
        }
        ONEBIT_EXPECT(log, same_training(host, gpu));
        if (t == 5 || t == 11) {
            ONEBIT_EXPECT(log, saved(gpu, log, directory, "gpu") == saved(host, log, directory, "host"));
        }
    }
    ONEBIT_EXPECT(log, saved(gpu, log, directory, "gpu") == saved(host, log, directory, "host"));
    const onebit_optimizer_info_t info = gpu.info();
    ONEBIT_EXPECT(log, info.frozen == 1 && info.masked >= 50 && info.exact_rounds == 4);
    ONEBIT_EXPECT(log, info.compressed_rounds == 8); // two before the freeze, six of the eleven steps after it
}

TEST_CASE("0/1 Adam on a GPU gives the host's bits, before and after the freeze", "[cuda][optimizers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const Model& model : all_models_and_exchanges(zero_one_config())) train_beside(comm, log, model);
    });
}

TEST_CASE("a save of 0/1 Adam goes from the host to a GPU and back, and training goes on to the bit",
          "[cuda][optimizers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const Model& model : all_models(zero_one_config())) {
            const Gradient gradient = in_eighths(with_zeros(model.count(), 3));
            // After a compressed round; frozen, but not yet begun; after the first round then, and drifted apart.
            for (const std::uint64_t at : {3, 6, 7, 11}) {
                log.context("after step " + std::to_string(at));
                SharedDirectory directory(log);
                TrainingOn host(kHost, comm, model, log);
                for (std::uint64_t t = 1; t <= at; ++t) host.step(gradient(log.rank(), t));
                const Bytes first = saved(host, log, directory, "first");

                TrainingOn gpu(kGpu, comm, model, log);
                const std::uint64_t forgotten = at < 7 ? 8 : 3; // in the other stage
                for (std::uint64_t t = 1; t <= forgotten; ++t) gpu.step(gradient(log.rank(), t + 9));
                load(gpu, log, directory, "first");
                ONEBIT_EXPECT(log, gpu.parameters() == host.parameters());
                ONEBIT_EXPECT(log, saved(gpu, log, directory, "second") == first);
                TrainingOn back(kHost, comm, model, log);
                load(back, log, directory, "second");
                ONEBIT_EXPECT(log, gpu.copies() == back.copies());
                for (std::uint64_t t = at + 1; t <= at + 3; ++t) {
                    for (TrainingOn* training : {&host, &gpu, &back}) training->step(gradient(log.rank(), t));
                    ONEBIT_EXPECT(log, same_training(host, gpu));
                    ONEBIT_EXPECT(log, same_training(host, back));
                }
                ONEBIT_EXPECT(log, saved(gpu, log, directory, "third") == saved(host, log, directory, "fourth"));
            }
        }
    });
}

TEST_CASE("a NaN in a GPU's gradients changes nothing in any round of 0/1 Adam", "[cuda][optimizers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        SharedDirectory directory(log);
        const Model model = all_types(zero_one_config());
        const Gradient gradient = in_eighths(with_zeros(model.count(), 3));
        TrainingOn gpu(kGpu, comm, model, log);
        TrainingOn twin(kGpu, comm, model, log);
        for (std::uint64_t t = 1; t <= 12; ++t) {
            log.context("step " + std::to_string(t));
            std::vector<float> bad = gradient(log.rank(), t + 100);
            if (log.last_rank()) bad[5000] = t % 2 == 0 ? NAN : std::numeric_limits<float>::infinity();
            gpu.set_gradients(bad);
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "tensors[1] 'weights': gradients[0] is nan|inf",
                                  onebit_optimizer_step(gpu.get()));
            ONEBIT_EXPECT(log, gpu.info().skipped == t);
            ONEBIT_EXPECT(log, gpu.parameters() == twin.parameters() && gpu.copies() == twin.copies());
            ONEBIT_EXPECT(log, gpu.errors().same_as(twin.errors()));
            gpu.step(gradient(log.rank(), t));
            twin.step(gradient(log.rank(), t));
            ONEBIT_EXPECT(log, gpu.parameters() == twin.parameters() && gpu.errors().same_as(twin.errors()));
        }
    });
}

/// Values that are finite and become too large on their way into a message: before the freeze as they are scaled, after
/// it as they are divided by a preconditioner.
TEST_CASE("a round of 0/1 Adam that overflows is lost as on the host", "[cuda][optimizers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const std::uint64_t lost : {3, 7, 10}) { // of gradients; the first one after the freeze; a later one
            const Model model = three_groups(zero_one_config());
            const Gradient gradient = in_eighths(gaussian_gradient(model.count(), 3));
            SharedDirectory directory(log);
            TrainingOn host(kHost, comm, model, log);
            TrainingOn gpu(kGpu, comm, model, log);
            const auto expect_same = [&] {
                ONEBIT_EXPECT(log, same_training(host, gpu));
                ONEBIT_EXPECT(log, saved(gpu, log, directory, "gpu") == saved(host, log, directory, "host"));
            };
            for (TrainingOn* training : {&host, &gpu}) {
                for (std::uint64_t t = 1; t < lost; ++t) training->step(gradient(log.rank(), t));
                std::vector<float> values = gradient(log.rank(), lost);
                for (std::size_t i = 100; i < 4000; i += 120) values[i] = 3e38F; // among the larger ones
                training->set_gradients(values);
                if (lost == 3) {
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(training->get(), 0.1));
                } else {
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_group_lr(training->get(), 0, 8));
                }
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "overflow", onebit_optimizer_step(training->get()));
            }
            expect_same();
            for (const float parameter : gpu.parameter_values()) ONEBIT_EXPECT(log, std::isfinite(parameter));
            if (lost > 3) continue; // the ranks' local steps stay, and are too large for any message
            for (TrainingOn* training : {&host, &gpu}) {
                ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(training->get(), 1));
                for (std::uint64_t t = 3; t <= 8; ++t) training->step(gradient(log.rank(), t));
            }
            expect_same();
        }
    });
}

/// Ranks that have drifted apart meet at their mean, wherever their tensors lie.
TEST_CASE("what 2 ranks have saved is loaded by 3, on a GPU as on the host", "[cuda][optimizers]") {
    if (!can_have_ranks(2) || !can_have_ranks(3)) return;
    std::string name = (fs::temp_directory_path() / "onebit-test-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    const Model model = all_types(zero_one_config());
    const Gradient gradient = in_eighths(with_zeros(model.count(), 3));
    for (const std::uint64_t at : {3, 11}) {
        const std::string prefix = name + "/" + std::to_string(at);
        run_ranks(2, [&](onebit_comm_t comm, RankLog& log) {
            TrainingOn gpu(kGpu, comm, model, log);
            for (std::uint64_t t = 1; t <= at; ++t) gpu.step(gradient(log.rank(), t));
            ONEBIT_EXPECT_OK(log, onebit_optimizer_save(gpu.get(), prefix.c_str()));
        });
        run_ranks(3, [&](onebit_comm_t comm, RankLog& log) {
            TrainingOn host(kHost, comm, model, log);
            TrainingOn gpu(kGpu, comm, model, log);
            for (TrainingOn* training : {&host, &gpu}) {
                ONEBIT_EXPECT_OK(log, onebit_optimizer_load(training->get(), prefix.c_str()));
                for (std::uint64_t t = at + 1; t <= at + 3; ++t) training->step(gradient(log.rank(), t));
            }
            ONEBIT_EXPECT(log, same_training(host, gpu));
        });
    }
    fs::remove_all(name);
}

} // namespace
