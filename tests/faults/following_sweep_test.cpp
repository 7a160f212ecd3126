// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Memory that runs out where a frozen variance is followed: in the step that admits late elements, and in the step that
// ends the freeze. Both actions may be put off, on all ranks alike.
#include <cmath>

#include "faults/allocation_sweep.hpp"
#include "support/training.hpp"

namespace onebit_test {
namespace {

const Sizes kSizes = {1200, 40, 1300};
constexpr std::size_t kLate = 30; // elements without a gradient until the freeze
constexpr int kSteps = 16;

// Frozen after step 3, measured in each step, frozen again two steps after a thaw at the earliest.
onebit_optimizer_config_t hasty_config(onebit_optimizer_kind_t kind) {
    onebit_optimizer_config_t config = quick_config(kind);
    config.beta2 = 0.5;
    config.freeze_step = 3;
    config.follow_interval = 1;
    return config;
}

class FollowingStep final : public Subject {
  public:
    FollowingStep(onebit_comm_t comm, const onebit_optimizer_config_t& config, RankLog& log)
        : log_(log), training_(comm, config, kSizes, log) {}
    ~FollowingStep() override {
        if (steps_ < kSteps) return;
        const onebit_optimizer_info_t info = training_.info();
        ONEBIT_EXPECT(log_, had_late_ && info.masked == 0 && info.thaws > 0);
    }

    // Late elements have gradients once they are masked; when they take part all grow.
    void prepare() override {
        const onebit_optimizer_info_t info = training_.info();
        had_late_ = had_late_ || (info.frozen != 0 && info.masked > 0);
        const bool grow = had_late_ && info.masked == 0;
        std::vector<float> gradient = gradient_(log_.rank(), ++steps_);
        for (float& g : gradient) g *= grow ? 30.0F : 1.0F;
        if (!had_late_) std::fill(gradient.begin(), gradient.begin() + kLate, 0.0F);
        training_.set_gradients(gradient);
    }
    onebit_status_t call() override { return onebit_optimizer_step(training_.get()); }
    Bytes state() override {
        if (onebit_optimizer_get_error(training_.get(), nullptr, nullptr) != ONEBIT_SUCCESS) return {}; // broken
        Bytes bytes = training_.copies();
        append(bytes, training_.parameters());
        return bytes;
    }
    void succeeded() override {
        const onebit_optimizer_info_t info = training_.info();
        const std::uint64_t known[] = {static_cast<std::uint64_t>(info.frozen),
                                       info.steps,
                                       info.freeze_step,
                                       info.masked,
                                       info.thaws,
                                       info.exact_rounds,
                                       info.compressed_rounds};
        ONEBIT_EXPECT(log_, log_.same_on_all(known, sizeof known));
        for (const float x : training_.parameters()) ONEBIT_EXPECT(log_, std::isfinite(x));
    }

  private:
    RankLog& log_;
    Training training_;
    Gradient gradient_ = gaussian_gradient(total(kSizes), 3);
    bool had_late_ = false;
    int steps_ = 0;
};

} // namespace

TEST_CASE("late elements and thaws wait for memory, on all ranks alike", "[memory][optimizer][freeze]") {
    for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
        for (const std::uint64_t bucket_size : {0, 200}) {
            onebit_optimizer_config_t config = hasty_config(kind);
            config.bucket_size = bucket_size;
            run_sweep(
                {name_of(kind) + (bucket_size > 0 ? ", buckets" : "") + ", followed",
                 [=](onebit_comm_t comm, RankLog& log) { return std::make_unique<FollowingStep>(comm, config, log); },
                 kSteps});
        }
    }
}

} // namespace onebit_test
