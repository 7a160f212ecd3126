// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Optimizers on tensors in a GPU's memory give the same bits as in the host's, through the C interface. Ranks are
// threads or MPI processes. The GPU is a real one, or an emulated one whose memory the host can't touch.

#include <limits>
#include <string>
#include <vector>

#include "optim/training_on.hpp"
#include "support/directory.hpp"
#include "support/files.hpp"

namespace {

using namespace onebit_test;

/// Where a sum over the ranks has only one possible order, exact rounds have the host's bits, too.
bool sums_alike(const RankLog& log) {
    return log.size() <= 2;
}

onebit_optimizer_config_t freezing_config() {
    onebit_optimizer_config_t config = optimizer_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM);
    config.freeze_step = 4;
    config.weight_decay = 0.1;
    config.follow_interval = 2;
    return config;
}

// ---- the host's bits ----

void train_beside(onebit_comm_t comm, RankLog& log, const Model& model, std::uint64_t steps) {
    SharedDirectory directory(log);
    const Gradient gradient = with_zeros(model.count(), 3);
    TrainingOn host(kHost, comm, model, log);
    TrainingOn gpu(kGpu, comm, model, log);
    for (std::uint64_t t = 1; t <= steps; ++t) {
        log.context("step " + std::to_string(t));
        for (TrainingOn* training : {&host, &gpu}) {
            if (t == 2) ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(training->get(), 0.3));
            if (t == 3) ONEBIT_EXPECT_OK(log, onebit_optimizer_set_lr(training->get(), 0.02));
            if (t == 6) ONEBIT_EXPECT_OK(log, onebit_optimizer_set_group_lr(training->get(), 0, 0.003));
            if (t == 7) ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(training->get(), 2));
            if (t == 3 || t == 7) training->move_gradients(0);
            training->step(gradient(log.rank(), t));
        }
        ONEBIT_EXPECT(log, same_training(host, gpu));
    }
    ONEBIT_EXPECT(log, saved(gpu, log, directory, "gpu") == saved(host, log, directory, "host"));
    const onebit_optimizer_info_t info = gpu.info();
    ONEBIT_EXPECT(log, (info.masked == 50) == (info.frozen == 1));
}

TEST_CASE("Adam and LAMB on a GPU give the host's bits", "[cuda][optimizers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        if (!sums_alike(log)) return;
        for (const onebit_optimizer_kind_t kind : {ONEBIT_OPTIMIZER_ADAM, ONEBIT_OPTIMIZER_LAMB}) {
            for (const Model& model : all_models(optimizer_config(kind))) train_beside(comm, log, model, 4);
        }
    });
}

TEST_CASE("1-bit optimizers on a GPU give the host's bits, before and after the freeze", "[cuda][optimizers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        if (!sums_alike(log)) return;
        for (const onebit_optimizer_kind_t kind : {ONEBIT_OPTIMIZER_ONEBIT_ADAM, ONEBIT_OPTIMIZER_ONEBIT_LAMB}) {
            for (Model model : all_models_and_exchanges(freezing_config())) {
                model.config.kind = kind;
                train_beside(comm, log, model, 8);
            }
        }
    });
}

TEST_CASE("the rule freezes at the same step on a GPU; so does a call", "[cuda][optimizers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        if (!sums_alike(log)) return;
        for (const bool by_hand : {false, true}) {
            Model model{freezing_config(), {{300}, {50}}};
            model.config.freeze_step = by_hand ? ONEBIT_FREEZE_NEVER : ONEBIT_FREEZE_AUTO;
            model.config.beta2 = 0.9;
            model.config.freeze_window = 8;
            model.config.freeze_band = 0.4;
            const Gradient gradient = with_zeros(model.count(), 3);
            TrainingOn host(kHost, comm, model, log);
            TrainingOn gpu(kGpu, comm, model, log);
            for (std::uint64_t t = 1; t <= 45; ++t) {
                for (TrainingOn* training : {&host, &gpu}) {
                    if (by_hand && t == 5) ONEBIT_EXPECT_OK(log, onebit_optimizer_freeze(training->get()));
                    if (t == 44) ONEBIT_EXPECT_OK(log, onebit_optimizer_reset_error(training->get()));
                    training->step(gradient(log.rank(), t));
                }
                ONEBIT_EXPECT(log, same_training(host, gpu));
            }
            ONEBIT_EXPECT(log, gpu.info().frozen == 1);
        }
    });
}

TEST_CASE("a frozen variance that has grown thaws at the same step on a GPU, to the same bits", "[cuda][optimizers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        if (!sums_alike(log)) return;
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            log.context(name_of(kind));
            Model model{freezing_config(), {{300}, {50}}};
            model.config.kind = kind;
            model.config.beta2 = 0.9;
            model.config.local_step_scaler = 2;
            const Gradient gradient = with_zeros(model.count(), 3);
            TrainingOn host(kHost, comm, model, log);
            TrainingOn gpu(kGpu, comm, model, log);
            for (std::uint64_t t = 1; t <= 30; ++t) {
                std::vector<float> scaled = gradient(log.rank(), t);
                for (float& g : scaled) g *= t < 11 ? 1 : 9;
                for (TrainingOn* training : {&host, &gpu}) training->step(scaled);
                ONEBIT_EXPECT(log, same_training(host, gpu));
            }
            const onebit_optimizer_info_t info = gpu.info();
            ONEBIT_EXPECT(log, info.thaws == 1 && host.info().thaws == 1 && info.frozen == 1);
            ONEBIT_EXPECT(log, info.variance_ratio == host.info().variance_ratio);
        }
    });
}

TEST_CASE("masked elements that get gradients take part from the same step on a GPU, with the same bits",
          "[cuda][optimizers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        if (!sums_alike(log)) return;
        const SharedDirectory directory(log);
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            log.context(name_of(kind));
            Model model{freezing_config(), {{300}, {50}}};
            model.config.kind = kind;
            model.config.beta2 = 0.97; // which remembers 33 steps
            model.config.local_step_scaler = 2;
            model.config.thaw_ratio = 1e6;
            const Gradient gradient = with_zeros(model.count(), 3); // which ends with step 8
            TrainingOn host(kHost, comm, model, log);
            TrainingOn gpu(kGpu, comm, model, log);
            for (std::uint64_t t = 1; t <= 30; ++t) {
                for (TrainingOn* training : {&host, &gpu}) training->step(gradient(log.rank(), t));
                ONEBIT_EXPECT(log, same_training(host, gpu));
                ONEBIT_EXPECT(log, gpu.info().masked == (t < 4 || t >= 12 ? 0 : 50)); // eight steps after the freeze
                if (t != 10 && t != 20) continue;                                     // gathering, and after it
                ONEBIT_EXPECT(log, saved(gpu, log, directory, "gpu") == saved(host, log, directory, "host"));
            }
        }
    });
}

TEST_CASE("exact rounds of any number of ranks are the host's but for rounding, the same on all ranks",
          "[cuda][optimizers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Model model = all_types(optimizer_config(ONEBIT_OPTIMIZER_ADAM));
        const Gradient gradient = gaussian_gradient(model.count(), 3);
        TrainingOn host(kHost, comm, model, log);
        TrainingOn gpu(kGpu, comm, model, log);
        for (std::uint64_t t = 1; t <= 3; ++t) {
            host.step(gradient(log.rank(), t));
            gpu.step(gradient(log.rank(), t));
        }
        const std::vector<float> parameters = gpu.parameter_values();
        ONEBIT_EXPECT(log, nearly_same(parameters, host.parameter_values()));
        ONEBIT_EXPECT(log, log.same_on_all(parameters.data(), parameters.size() * sizeof(float)));
    });
}

// ---- memory ----

TEST_CASE("after the freeze 1-bit Adam keeps on a GPU its preconditioner and errors, and messages",
          "[cuda][optimizers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const bool clips : {false, true}) {
            log.context(clips ? "clipped" : "not clipped");
            Model model{freezing_config(), {{300000}, {50}, {20000}}};
            if (clips) model.config.max_grad_norm = 40;
            const Gradient gradient = gaussian_gradient(model.count(), 3);
            TrainingOn gpu(kGpu, comm, model, log);
            for (std::uint64_t t = 1; t <= 6; ++t) gpu.step(gradient(log.rank(), t));
            const std::uint64_t d = model.count(), served = d / static_cast<std::uint64_t>(log.size());
            const std::uint64_t kept = clips ? 8 * d + 4 * served : 12 * d + 8 * served;
            const std::uint64_t window = 4 * std::min<std::uint64_t>(d, 1U << 18U); // that the host sees arrays by
            ONEBIT_EXPECT(log, gpu.info().state_bytes >= kept);
            ONEBIT_EXPECT(log, gpu.info().state_bytes <= kept + window + d / 2 + (64U << 10U));
        }
    });
}

// ---- saves ----

/// Every tensor is compressed, so that after the freeze no sum depends on the order.
std::vector<Model> compressed_models(const onebit_optimizer_config_t& config) {
    std::vector<Model> models = all_models(config);
    models[2].groups[2].no_compress = 0;
    return models;
}

TEST_CASE("a save goes from the host to a GPU and back, and training goes on to the bit", "[cuda][optimizers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        std::vector<Model> models = compressed_models(freezing_config());
        for (const onebit_compressed_t compressed : ways_to_compress(ONEBIT_OPTIMIZER_ONEBIT_LAMB)) {
            models.push_back(models[2]);
            models.back().config.kind = ONEBIT_OPTIMIZER_ONEBIT_LAMB;
            models.back().config.compressed = compressed;
        }
        for (const Model& model : models) {
            const Gradient gradient = with_zeros(model.count(), 3);
            for (const std::uint64_t at : {2, 4, 6}) { // 4: frozen, but not yet begun
                log.context("after step " + std::to_string(at));
                SharedDirectory directory(log);
                TrainingOn host(kHost, comm, model, log);
                for (std::uint64_t t = 1; t <= at; ++t) host.step(gradient(log.rank(), t));
                const Bytes first = saved(host, log, directory, "first");

                TrainingOn gpu(kGpu, comm, model, log);
                for (std::uint64_t t = 1; t <= 6 - at; ++t) gpu.step(gradient(log.rank(), t + 9)); // to be forgotten
                load(gpu, log, directory, "first");
                ONEBIT_EXPECT(log, gpu.parameters() == host.parameters());
                ONEBIT_EXPECT(log, saved(gpu, log, directory, "second") == first);
                TrainingOn back(kHost, comm, model, log);
                load(back, log, directory, "second");
                ONEBIT_EXPECT(log, gpu.copies() == back.copies());
                if (at < 4 && !sums_alike(log)) continue;
                for (std::uint64_t t = at + 1; t <= at + 2; ++t) {
                    for (TrainingOn* training : {&host, &gpu, &back}) training->step(gradient(log.rank(), t));
                    ONEBIT_EXPECT(log, same_training(host, gpu));
                    ONEBIT_EXPECT(log, same_training(host, back));
                }
                ONEBIT_EXPECT(log, saved(gpu, log, directory, "third") == saved(host, log, directory, "fourth"));
            }
        }
    });
}

TEST_CASE("an optimizer on a GPU can load its own state of before the freeze", "[cuda][optimizers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        SharedDirectory directory(log);
        const Model model{freezing_config(), {{300}, {50}}};
        const Gradient gradient = with_zeros(model.count(), 3);
        TrainingOn gpu(kGpu, comm, model, log);
        TrainingOn twin(kGpu, comm, model, log);
        for (std::uint64_t t = 1; t <= 7; ++t) {
            if (t == 4) saved(gpu, log, directory, "early");
            gpu.step(gradient(log.rank(), t));
        }
        load(gpu, log, directory, "early");
        for (std::uint64_t t = 1; t <= 7; ++t) {
            if (t >= 4) gpu.step(gradient(log.rank(), t));
            twin.step(gradient(log.rank(), t));
        }
        ONEBIT_EXPECT(log, same_training(gpu, twin));
    });
}

// ---- what is wrong ----

TEST_CASE("a NaN or an infinity in a GPU's gradients changes nothing on any rank", "[cuda][optimizers]") {
    const int n = GENERATE(from_range(rank_counts()));
    const bool clips = GENERATE(false, true); // with a look before anything else, or while encoding
    CAPTURE(clips);
    run_ranks(n, [=](onebit_comm_t comm, RankLog& log) {
        struct Place {
            std::size_t element;
            const char* message;
        };
        constexpr float kInfinity = std::numeric_limits<float>::infinity();
        const Place places[] = {{0, "tensors[0] 'weights': gradients[0] is nan|inf"},
                                {60, "tensors[0] 'weights': gradients[60] is nan|inf"}, // masked after the freeze
                                {4999, "tensors[0] 'weights': gradients[4999] is nan|inf"},
                                {5000, "tensors[1] 'weights': gradients[0] is nan|inf"},
                                {9100, "tensors[3] 'weights': gradients[4066] is nan|inf"},
                                {9130, "tensors[4] 'weights': gradients[1] is nan|inf"}};
        Model model = all_types(freezing_config());
        model.config.freeze_step = 2;
        if (!clips) model.config.max_grad_norm = 0;
        const Gradient gradient = with_zeros(model.count(), 3);
        TrainingOn gpu(kGpu, comm, model, log);
        TrainingOn twin(kGpu, comm, model, log);
        std::uint64_t skipped = 0;
        for (std::uint64_t t = 1; t <= 5; ++t) { // exact, at the freeze, and after it
            for (const auto& [element, message] : places) {
                std::vector<float> bad = gradient(log.rank(), t + 100);
                if (log.last_rank()) {
                    bad[element] = skipped % 2 == 0 ? NAN : -kInfinity;
                    bad.back() = kInfinity;
                }
                gpu.set_gradients(bad);
                const Bytes before = gpu.parameters();
                const OptimizerErrors errors = gpu.errors();
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, message, onebit_optimizer_step(gpu.get()));
                ONEBIT_EXPECT(log, gpu.info().skipped == ++skipped);
                ONEBIT_EXPECT(log, gpu.parameters() == before && gpu.errors().same_as(errors));
            }
            gpu.step(gradient(log.rank(), t));
            twin.step(gradient(log.rank(), t));
            ONEBIT_EXPECT(log, gpu.parameters() == twin.parameters() && gpu.errors().same_as(twin.errors()));
        }
    });
}

/// Gradients of the largest floats, until sums of momentum and error overflow. m is in the last message, or, after a
/// load, in memory.
void overflow_beside(onebit_comm_t comm, RankLog& log, Model model, bool reload) {
    SharedDirectory directory(log);
    model.config.freeze_step = 2;
    const Gradient gradient = gaussian_gradient(model.count(), 3);
    TrainingOn host(kHost, comm, model, log);
    TrainingOn gpu(kGpu, comm, model, log);
    int lost = 0;
    for (std::uint64_t t = 1; t <= 30 && lost < 3; ++t) {
        std::vector<float> values = gradient(log.rank(), t);
        if (t > 3 && lost == 0) {
            for (std::size_t i = 0; i < 30; i += 2) values[i] = std::numeric_limits<float>::max();
        }
        host.set_gradients(values);
        gpu.set_gradients(values);
        const onebit_status_t expected = onebit_optimizer_step(host.get());
        ONEBIT_EXPECT_STATUS(log, expected, onebit_optimizer_step(gpu.get()));
        if (expected == ONEBIT_ERROR_NONFINITE || lost > 0) ++lost;
        ONEBIT_EXPECT(log, same_training(host, gpu));
        ONEBIT_EXPECT(log, saved(gpu, log, directory, "gpu") == saved(host, log, directory, "host"));
        if (!reload) continue;
        load(gpu, log, directory, "host");
        load(host, log, directory, "gpu");
    }
    ONEBIT_EXPECT(log, lost == 3);
}

TEST_CASE("an exchange that overflows is lost as on the host", "[cuda][optimizers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        if (!sums_alike(log)) return;
        overflow_beside(comm, log, one_tensor(freezing_config()), false);
        overflow_beside(comm, log, three_groups(freezing_config()), false);
        overflow_beside(comm, log, three_groups(freezing_config()), true);
        Model lamb = three_groups(freezing_config());
        lamb.config.kind = ONEBIT_OPTIMIZER_ONEBIT_LAMB;
        overflow_beside(comm, log, lamb, false);
    });
}

TEST_CASE("a rank without gradients refuses a compressed step on a GPU, and nothing is lost", "[cuda][optimizers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Model model{freezing_config(), {{300}, {5000}}};
        model.config.freeze_step = 2;
        const Gradient gradient = gaussian_gradient(model.count(), 3);
        TrainingOn gpu(kGpu, comm, model, log);
        TrainingOn twin(kGpu, comm, model, log);
        for (std::uint64_t t = 1; t <= 6; ++t) {
            log.context("step " + std::to_string(t));
            if (log.last_rank()) ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradients(gpu.get(), 1, nullptr));
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "tensors[1];no gradients",
                                  onebit_optimizer_step(gpu.get()));
            gpu.move_gradients(1);
            gpu.step(gradient(log.rank(), t));
            twin.step(gradient(log.rank(), t));
            ONEBIT_EXPECT(log, gpu.parameters() == twin.parameters() && gpu.errors().same_as(twin.errors()));
        }
    });
}

TEST_CASE("a load that one rank can't make leaves a GPU's optimizer as it was, for another load",
          "[cuda][optimizers]") {
    const int n = GENERATE(from_range(rank_counts()));
    const std::uint64_t bucket_size = GENERATE(0, 2000);
    run_ranks(n, [=](onebit_comm_t comm, RankLog& log) {
        SharedDirectory directory(log);
        Model model{freezing_config(), {{3000}, {1000}}};
        model.config.bucket_size = bucket_size;
        const Gradient gradient = gaussian_gradient(model.count(), 3);
        TrainingOn gpu(kGpu, comm, model, log);
        TrainingOn twin(kGpu, comm, model, log);
        for (std::uint64_t t = 1; t <= 7; ++t) { // the save is of before the freeze, after step 4
            if (t == 3) saved(gpu, log, directory, "early");
            gpu.step(gradient(log.rank(), t));
            if (t < 3) twin.step(gradient(log.rank(), t));
        }
        const std::string early = directory.prefix("early"), none = directory.prefix("none");
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_IO,
                             onebit_optimizer_load(gpu.get(), (log.last_rank() ? none : early).c_str()));
        gpu.step(gradient(log.rank(), 8)); // compressed, which has no use for the sum
        load(gpu, log, directory, "early");
        for (std::uint64_t t = 3; t <= 8; ++t) {
            for (TrainingOn* training : {&gpu, &twin}) training->step(gradient(log.rank(), t));
            ONEBIT_EXPECT(log, same_training(gpu, twin));
        }
    });
}

TEST_CASE("pointers to other memory are refused on every rank, by the tensor's name", "[cuda][optimizers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        onebit_optimizer_config_t config = optimizer_config(ONEBIT_OPTIMIZER_ADAM);
        config.memory = kGpu;
        Words parameters(kGpu, 100), gradients(kGpu, 100), copy(kGpu, 100), on_host(kHost, 100);
        const auto create = [&](float* x, float* g, float* c) {
            onebit_tensor_t tensor = ONEBIT_TENSOR_INIT(x, g, 100);
            tensor.name = "bias";
            tensor.copy = c;
            onebit_optimizer_t handle = nullptr;
            return onebit_optimizer_create(comm, &config, &tensor, 1, &handle);
        };
        const bool bad = log.last_rank();
        float* const host = on_host.data();
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "'bias': parameters;not in a GPU's memory",
                              create(bad ? host : parameters.data(), gradients.data(), copy.data()));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "'bias': gradients;not in a GPU's memory",
                              create(parameters.data(), bad ? host : gradients.data(), copy.data()));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "'bias': copy;not in a GPU's memory",
                              create(parameters.data(), gradients.data(), bad ? host : copy.data()));

        const Model model{config, {{100}}};
        TrainingOn gpu(kGpu, comm, model, log);
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "'weights': gradients;not in a GPU's memory",
                              onebit_optimizer_set_gradients(gpu.get(), 0, host));
        gpu.step(gaussian_gradient(100, 1)(log.rank(), 1)); // where they were
        if (bad) ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradients(gpu.get(), 0, nullptr));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "'weights';no gradients",
                              onebit_optimizer_step(gpu.get()));
        gpu.move_gradients(0);
        gpu.step(gaussian_gradient(100, 1)(log.rank(), 2));
    });
}

TEST_CASE("an optimizer with the wrong memory or stream is refused on every rank", "[cuda][optimizers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Words parameters(kGpu, 100), gradients(kGpu, 100);
        const onebit_tensor_t tensor = ONEBIT_TENSOR_INIT(parameters.data(), gradients.data(), 100);
        const auto create = [&](onebit_optimizer_config_t config) {
            onebit_optimizer_t handle = nullptr;
            return onebit_optimizer_create(comm, &config, &tensor, 1, &handle);
        };
        onebit_optimizer_config_t config = optimizer_config(ONEBIT_OPTIMIZER_ADAM);
        config.memory = static_cast<onebit_memory_t>(2);
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "config.memory", create(config));
        int somewhere = 0;
        config.memory = kHost;
        config.stream = &somewhere;
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "config.stream;config.memory", create(config));
        config.stream = nullptr;
        config.memory = kGpu;
        config.codec = ONEBIT_CODEC_INT8;
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_UNSUPPORTED, "config.codec;ONEBIT_CODEC_SIGN", create(config));
        config.codec = ONEBIT_CODEC_SIGN;
        if (log.size() == 1) return;
        config.memory = log.last_rank() ? kHost : kGpu;
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "parameters;in a GPU's memory", create(config));
        std::vector<float> values(200);
        const onebit_tensor_t on_host = ONEBIT_TENSOR_INIT(values.data(), values.data() + 100, 100);
        onebit_optimizer_t handle = nullptr;
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "config.memory",
                              onebit_optimizer_create(comm, &config, log.last_rank() ? &on_host : &tensor, 1, &handle));
    });
}

} // namespace
