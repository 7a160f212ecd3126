// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// A step that a rank gives up. Every rank learns which rank and why, nothing has changed anywhere, and training goes on
// like that of a twin without the step. In the host's memory and in an emulated GPU's.

#include <string>
#include <vector>

#include "optim/training_on.hpp"

namespace {

using namespace onebit_test;

Model cancelled_model(onebit_optimizer_kind_t kind, std::uint64_t bucket_size, bool clipped) {
    onebit_optimizer_config_t config = quick_config(kind);
    config.weight_decay = 0.1;
    config.bucket_size = bucket_size;
    config.max_grad_norm = clipped ? 40 : 0;
    Model model{
        config,
        {{1500}, {1200, 0, ONEBIT_BFLOAT16}, {600}, {2000, 0, ONEBIT_FLOAT32, true, ONEBIT_FLOAT16}, {1300, 1}}};
    model.groups.assign(2, ONEBIT_PARAM_GROUP_INIT(0.01));
    model.groups[1].no_compress = 1;
    return model;
}

/// What this rank has marked when some rank gives up: nothing, a part of a bucket, some buckets, or all.
void begin(TrainingOn& training, std::size_t variant, RankLog& log) {
    const std::vector<std::vector<std::size_t>> marked = {{}, {2}, {4, 3, 0}, {4, 3, 2, 1, 0}};
    if (training.model().config.bucket_size == 0) return;
    for (const std::size_t k : marked[variant % marked.size()]) {
        ONEBIT_EXPECT_OK(log, onebit_optimizer_grad_ready(training.get(), k));
    }
}

void end(TrainingOn& training, bool cancels, onebit_status_t status, const std::string& needles, RankLog& log) {
    ONEBIT_EXPECT_FAILURE(log, status, needles,
                          cancels ? onebit_optimizer_cancel_step(training.get(), "no memory left")
                                  : onebit_optimizer_step(training.get()));
    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(training.get(), 1)); // not BUSY
}

std::string rank_name(int rank) {
    return "rank " + std::to_string(rank) + ": the step was cancelled: no memory left";
}

/// Steps of `training` that one rank or all ranks give up. Each rank has begun something else. Returns how many.
std::uint64_t give_up(TrainingOn& training, const Gradient& gradient, std::uint64_t t, RankLog& log) {
    const auto rank = static_cast<std::size_t>(log.rank());
    for (std::size_t variant = 0; variant < 4; ++variant) {
        const int who = static_cast<int>(t + variant) % log.size();
        training.set_gradients(gradient(log.rank(), 100 * t + variant));
        if (log.rank() == who && variant % 2 == 0) { // a backward pass that has not come to this tensor
            ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradients(training.get(), 1, nullptr));
            begin(training, 2 * ((t + variant) / 2 % 2), log); // without it
        } else {
            begin(training, t + variant + rank, log);
        }
        end(training, log.rank() == who, ONEBIT_ERROR_CANCELLED, rank_name(who), log);
        training.move_gradients(1);
    }
    training.set_gradients(gradient(log.rank(), 100 * t + 4));
    begin(training, t + rank, log);
    end(training, true, ONEBIT_ERROR_CANCELLED, rank_name(0), log);
    return 5;
}

} // namespace

TEST_CASE("a rank gives a step up, and it has never been", "[cuda][optimizers][cancel]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        SharedDirectory directory(log);
        for (const onebit_memory_t memory : {kHost, kGpu}) {
            for (const onebit_optimizer_kind_t kind : all_kinds()) {
                for (const std::uint64_t bucket_size : {1400, 0}) {
                    const bool clipped = bucket_size == 0 && kind == ONEBIT_OPTIMIZER_ONEBIT_LAMB;
                    const Model model = cancelled_model(kind, bucket_size, clipped);
                    const Gradient gradient = gaussian_gradient(model.count(), 3);
                    TrainingOn training(memory, comm, model, log), twin(memory, comm, model, log);
                    std::uint64_t cancelled = 0;
                    for (std::uint64_t t = 1; t <= (freezes(kind) ? 12U : 3U); ++t) {
                        log.context(name_of(kind) + (memory == kGpu ? " on a GPU" : "") + ", buckets of " +
                                    std::to_string(bucket_size) + ", step " + std::to_string(t));
                        cancelled += give_up(training, gradient, t, log);
                        ONEBIT_EXPECT(log, training.info().cancelled == cancelled);
                        ONEBIT_EXPECT(log, same_training(training, twin));
                        ONEBIT_EXPECT(
                            log, saved(training, log, directory, "training") == saved(twin, log, directory, "twin"));
                        training.step(gradient(log.rank(), t));
                        twin.step(gradient(log.rank(), t));
                        ONEBIT_EXPECT(log, same_training(training, twin));
                    }
                    ONEBIT_EXPECT(log, twin.info().cancelled == 0);
                }
            }
        }
    });
}

// All ranks get the same error, the first one's. So does the rank that cancels.
TEST_CASE("a rank gives up a step that another has found wrong", "[cuda][optimizers][cancel]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        if (log.size() == 1) return;
        for (const onebit_memory_t memory : {kHost, kGpu}) {
            for (const std::uint64_t bucket_size : {1400, 0}) {
                const Model model = cancelled_model(ONEBIT_OPTIMIZER_ONEBIT_ADAM, bucket_size, false);
                const Gradient gradient = gaussian_gradient(model.count(), 3);
                TrainingOn training(memory, comm, model, log), twin(memory, comm, model, log);
                for (std::uint64_t t = 1; t <= 9; ++t) {
                    log.context((memory == kGpu ? "on a GPU, buckets of " : "buckets of ") +
                                std::to_string(bucket_size) + ", step " + std::to_string(t));
                    // A GPU finds bad values in its encoding only later: there the rank that gives up is first.
                    const bool late = memory == kGpu && bucket_size == 0 && t > 7;
                    for (const int bad : {0, 1}) {
                        std::vector<float> values = gradient(log.rank(), 100 + t);
                        if (log.rank() == bad) values[1600] = NAN;
                        training.set_gradients(values);
                        begin(training, t + static_cast<std::size_t>(bad), log);
                        const bool heard = bad == 0 && !late;
                        end(training, log.rank() == 1 - bad, heard ? ONEBIT_ERROR_NONFINITE : ONEBIT_ERROR_CANCELLED,
                            heard ? "rank 0;nan" : rank_name(1 - bad), log);
                    }
                    ONEBIT_EXPECT(log, training.parameters() == twin.parameters());
                    training.step(gradient(log.rank(), t));
                    twin.step(gradient(log.rank(), t));
                    ONEBIT_EXPECT(log, training.parameters() == twin.parameters());
                    ONEBIT_EXPECT(log, training.errors().same_as(twin.errors()));
                }
            }
        }
    });
}

TEST_CASE("a reason may be missing, or long", "[cuda][optimizers][cancel]") {
    if (!can_have_ranks(2)) return;
    run_ranks(2, [](onebit_comm_t comm, RankLog& log) {
        TrainingOn training(kHost, comm, cancelled_model(ONEBIT_OPTIMIZER_ADAM, 0, false), log);
        const auto cancel = [&](const char* reason, const std::string& needles) {
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_CANCELLED, needles,
                                  onebit_optimizer_cancel_step(training.get(), reason));
        };
        cancel(nullptr, "rank 0: the step was cancelled");
        cancel("", "rank 0: the step was cancelled");
        cancel("100 %s", "cancelled: 100 %s");
        cancel(std::string(5000, 'x').c_str(), "cancelled: " + std::string(200, 'x'));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_HANDLE, "NULL", onebit_optimizer_cancel_step(nullptr, "why"));
    });
}
