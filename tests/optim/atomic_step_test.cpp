// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// A step counts on all buckets or on none. If one bucket refuses the step, the saved state and all parameters equal
// those of a twin that refused the step before anything was exchanged. Tested in the host's memory and in an emulated
// GPU's.

#include <algorithm>
#include <cfloat>
#include <string>
#include <vector>

#include "c_api/guard.hpp"
#include "optim/fused_optimizer.hpp"
#include "optim/training_on.hpp"

namespace {

using namespace onebit_test;

/// Access to members that a test can't reach otherwise.
class Inside : public onebit::FusedOptimizer {
  public:
    static std::vector<onebit::Bucket>& buckets_of(onebit::FusedOptimizer& optimizer) {
        return (optimizer.*(&Inside::buckets))();
    }
};

/// In buckets of one tensor or two, the last of which is never compressed; a group for each.
Model grouped_model(onebit_optimizer_kind_t kind, std::uint64_t bucket_size) {
    onebit_optimizer_config_t config = quick_config(kind);
    config.weight_decay = 0.1;
    config.bucket_size = bucket_size;
    Model model{
        config,
        {{1500, 0}, {1200, 1, ONEBIT_BFLOAT16}, {600, 1}, {2000, 2, ONEBIT_FLOAT32, true, ONEBIT_FLOAT16}, {1300, 3}}};
    model.groups.assign(4, ONEBIT_PARAM_GROUP_INIT(0.01));
    model.groups[3].no_compress = 1;
    return model;
}

class Pair {
  public:
    Pair(onebit_memory_t memory, onebit_comm_t comm, const Model& model, RankLog& log)
        : log_(log),
          directory_(log),
          model_(model),
          refused_(memory, comm, model, log),
          twin_(memory, comm, model, log),
          gradient_(gaussian_gradient(model.count(), 3)) {}

    /// Calls body(training) for both.
    template <typename Body>
    void on_both(const Body& body) {
        body(refused_);
        body(twin_);
    }
    TrainingOn& refused() { return refused_; }
    std::vector<float> other_gradient() { return gradient_(log_.rank(), 1000 + ++others_); }

    /// A step that the ranks find impossible only after they have exchanged.
    void refuse(const std::vector<float>& gradient, const std::string& needle) {
        refused_.set_gradients(gradient);
        for (std::size_t k = model_.tensors.size(); k-- > 0 && model_.config.bucket_size > 0;) {
            if ((others_ + k) % 3 > 0) ONEBIT_EXPECT_OK(log_, onebit_optimizer_grad_ready(refused_.get(), k));
        }
        ONEBIT_EXPECT_FAILURE(log_, ONEBIT_ERROR_NONFINITE, needle, onebit_optimizer_step(refused_.get()));
    }
    /// A step that they find impossible before.
    void refuse_at_once() {
        twin_.set_gradients(std::vector<float>(model_.count(), NAN));
        ONEBIT_EXPECT_FAILURE(log_, ONEBIT_ERROR_NONFINITE, "nan", onebit_optimizer_step(twin_.get()));
    }
    void step(std::uint64_t t) {
        on_both([&](TrainingOn& training) { training.step(gradient_(log_.rank(), t)); });
    }
    bool same_saves() { return saved(refused_, log_, directory_, "refused") == saved(twin_, log_, directory_, "twin"); }
    bool same_parameters() {
        return refused_.parameters() == twin_.parameters() && refused_.copies() == twin_.copies();
    }
    bool same() { return same_training(refused_, twin_) && same_saves(); }

  private:
    RankLog& log_;
    SharedDirectory directory_;
    Model model_;
    TrainingOn refused_, twin_;
    Gradient gradient_;
    std::uint64_t others_ = 0;
};

/// Errors so large in the number-th of the buckets that compress that messages overflow.
void fill_errors(TrainingOn& training, std::size_t number, RankLog& log) {
    const auto entry = onebit::HandleTable<onebit::Optimizer>::instance().find(training.get());
    auto& optimizer = dynamic_cast<onebit::FusedOptimizer&>(*entry->object);
    const onebit::Entered entered = optimizer.enter();
    for (onebit::Bucket& bucket : Inside::buckets_of(optimizer)) {
        if (!bucket.compresses || number-- > 0) continue;
        const std::vector<float> most(bucket.layout.count(), FLT_MAX);
        ONEBIT_EXPECT(log, bucket.allreduce->set_state(most.data(), most.data(), bucket.allreduce->calls()).ok());
        return;
    }
    ONEBIT_EXPECT(log, false);
}

enum class Round { kExact, kCompressed, kFirstFrozen, kLocal };

/// Of quick_config's steps.
Round round_of(onebit_optimizer_kind_t kind, std::uint64_t t) {
    if (!freezes(kind)) return Round::kExact;
    const bool zero_one = kind == ONEBIT_OPTIMIZER_ZERO_ONE_ADAM;
    if (t == 7) return Round::kFirstFrozen;
    if (t < 7) return zero_one && (t == 3 || t == 5) ? Round::kCompressed : Round::kExact;
    return zero_one && t > 10 && t % 2 != 0 ? Round::kLocal : Round::kCompressed;
}

} // namespace

TEST_CASE("a message that overflows in one bucket refuses the step on all", "[cuda][optimizers][atomic]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_memory_t memory : {kHost, kGpu}) {
            for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
                Pair pair(memory, comm, grouped_model(kind, 1400), log);
                for (std::uint64_t t = 1; t <= 12; ++t) {
                    log.context(name_of(kind) + (memory == kGpu ? " on a GPU, step " : ", step ") + std::to_string(t));
                    const Round round = round_of(kind, t);
                    const bool zero_one = kind == ONEBIT_OPTIMIZER_ZERO_ONE_ADAM;
                    // 0/1 Adam forgets its errors at the freeze.
                    const bool can = round == Round::kCompressed || (round == Round::kFirstFrozen && !zero_one);
                    for (std::size_t bucket = 0; can && bucket < 3; ++bucket) {
                        pair.on_both([&](TrainingOn& training) { fill_errors(training, bucket, log); });
                        pair.refuse(pair.other_gradient(), "overflow");
                        pair.refuse_at_once();
                        ONEBIT_EXPECT(log, pair.same_parameters());
                        // Frozen variances stay frozen.
                        ONEBIT_EXPECT(log, round == Round::kFirstFrozen || pair.same_saves());
                        pair.on_both([&](TrainingOn& training) {
                            ONEBIT_EXPECT_OK(log, onebit_optimizer_reset_error(training.get()));
                        });
                    }
                    pair.step(t);
                    ONEBIT_EXPECT(log, pair.same());
                }
            }
        }
    });
}

// Its steps alone go as far as floats do, those of one group; with the errors of that group's bucket it is too far.
TEST_CASE("a drift that overflows in one bucket isn't sent twice by others", "[cuda][optimizers][atomic]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const onebit_optimizer_kind_t kind = ONEBIT_OPTIMIZER_ZERO_ONE_ADAM;
        for (const onebit_memory_t memory : {kHost, kGpu}) {
            for (const std::uint64_t bucket_size : {1400, 0}) {
                Pair pair(memory, comm, grouped_model(kind, bucket_size), log);
                for (std::uint64_t t = 1; t <= 18; ++t) {
                    log.context((memory == kGpu ? "on a GPU, buckets of " : "buckets of ") +
                                std::to_string(bucket_size) + ", step " + std::to_string(t));
                    // Step 7's, the first after the freeze, has no errors.
                    const bool is_round = t >= 8 && (t < 10 || (t < 13 ? t % 2 == 0 : t % 4 == 0));
                    for (std::size_t group = 0; is_round && group < 3; ++group) {
                        const std::size_t bucket = bucket_size == 0 ? 0 : 2 - group; // the last tensors' is the first
                        const auto set_lr = [&](double lr) {
                            pair.on_both([&](TrainingOn& training) {
                                ONEBIT_EXPECT_OK(log, onebit_optimizer_set_group_lr(training.get(), group, lr));
                            });
                        };
                        set_lr(3e38);
                        pair.on_both([&](TrainingOn& training) { fill_errors(training, bucket, log); });
                        pair.refuse(pair.other_gradient(), "overflow");
                        pair.refuse_at_once();
                        ONEBIT_EXPECT(log, pair.same_parameters());
                        pair.on_both([&](TrainingOn& training) {
                            ONEBIT_EXPECT_OK(log, onebit_optimizer_reset_error(training.get()));
                        });
                        ONEBIT_EXPECT(log, pair.same_saves());
                        set_lr(0.01);
                    }
                    pair.step(t);
                    ONEBIT_EXPECT(log, pair.same());
                }
            }
        }
    });
}

TEST_CASE("a sketch that overflows, and so no norm to clip to, refuses the step on all", "[cuda][optimizers][atomic]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_memory_t memory : {kHost, kGpu}) {
            for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
                for (const std::uint64_t bucket_size : {1400, 0}) {
                    Model model = grouped_model(kind, bucket_size);
                    model.config.max_grad_norm = 40;
                    Pair pair(memory, comm, model, log);
                    for (std::uint64_t t = 1; t <= 11; ++t) {
                        log.context(name_of(kind) + (memory == kGpu ? " on a GPU" : "") + ", buckets of " +
                                    std::to_string(bucket_size) + ", step " + std::to_string(t));
                        const auto set_scale = [&](double scale) {
                            pair.on_both([&](TrainingOn& training) {
                                ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(training.get(), scale));
                            });
                        };
                        if (round_of(kind, t) != Round::kExact) {
                            set_scale(1e30);
                            pair.refuse(std::vector<float>(model.count(), 3.3e38f / static_cast<float>(log.size())),
                                        "no norm to clip to");
                            pair.refuse_at_once();
                            set_scale(1);
                            ONEBIT_EXPECT(log, pair.same());
                        }
                        pair.step(t);
                        ONEBIT_EXPECT(log, pair.same());
                    }
                }
            }
        }
    });
}

// m is then what the step alone has made it.
TEST_CASE("0/1 Adam's momenta move with the gradients where the learning rate is 0", "[cuda][optimizers][atomic]") {
    if (!can_have_ranks(2)) return;
    run_ranks(2, [](onebit_comm_t comm, RankLog& log) {
        const Model model = grouped_model(ONEBIT_OPTIMIZER_ZERO_ONE_ADAM, 0);
        TrainingOn host(kHost, comm, model, log), gpu(kGpu, comm, model, log);
        const Gradient gradient = gaussian_gradient(model.count(), 3);
        for (std::uint64_t t = 1; t <= 12; ++t) {
            log.context("step " + std::to_string(t));
            for (TrainingOn* training : {&host, &gpu}) {
                const double lr = t >= 7 && t <= 9 ? 0 : 0.01;
                ONEBIT_EXPECT_OK(log, onebit_optimizer_set_group_lr(training->get(), 1, lr));
                training->step(gradient(log.rank(), t));
            }
            ONEBIT_EXPECT(log, same_training(host, gpu));
        }
    });
}
