// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Memory that runs out while states are packed and unpacked.
#include "faults/allocation_sweep.hpp"
#include "support/blobs.hpp"
#include "support/training.hpp"

namespace onebit_test {
namespace {

const Sizes kSizes = {1200, 40, 1300};

// Trains for `first` steps, and has the state of another number of steps, `other`.
class Unpacking : public Subject {
  public:
    Unpacking(onebit_comm_t comm, const onebit_optimizer_config_t& config, std::uint64_t first, std::uint64_t other,
              RankLog& log)
        : log_(log), training_(comm, config, kSizes, log) {
        Training elsewhere(comm, config, kSizes, log);
        elsewhere.steps(gradient_, 1, other);
        blobs_ = {packed(elsewhere.get(), log)};
        elsewhere.steps(gradient_, other + 1, other + 1);
        expected_ = elsewhere.parameters();
        pointer_ = blobs_.front().data();
        size_ = blobs_.front().size();
        training_.steps(gradient_, 1, first);
        first_ = {packed(training_.get(), log)};
        step_ = other + 1;
    }
    onebit_status_t call() override { return onebit_optimizer_unpack_state(training_.get(), &pointer_, &size_, 1); }
    Bytes state() override {
        std::uint64_t size = 0;
        return onebit_optimizer_state_size(training_.get(), &size) == ONEBIT_SUCCESS ? packed(training_.get(), log_)
                                                                                     : Bytes(); // broken
    }
    void succeeded() override {
        training_.steps(gradient_, step_, step_);
        ONEBIT_EXPECT(log_, same_bits(training_.parameters(), expected_));
        ONEBIT_EXPECT_OK(log_, unpack(training_.get(), first_));
    }

  protected:
    Training& training() { return training_; }

  private:
    RankLog& log_;
    Training training_;
    Gradient gradient_ = gaussian_gradient(total(kSizes), 3);
    std::vector<Bytes> blobs_, first_;
    const void* pointer_ = nullptr;
    std::uint64_t size_ = 0;
    std::vector<float> expected_;
    std::uint64_t step_ = 0;
};

class Packing final : public Unpacking {
  public:
    Packing(onebit_comm_t comm, const onebit_optimizer_config_t& config, std::uint64_t first, RankLog& log)
        : Unpacking(comm, config, first, first + 1, log), blob_(Unpacking::state()) {}
    onebit_status_t call() override {
        return onebit_optimizer_pack_state(training().get(), blob_.data(), blob_.size());
    }
    void succeeded() override {}

  private:
    Bytes blob_;
};

} // namespace

TEST_CASE("states are packed and unpacked with memory, or on no rank", "[memory][optimizer][blobs]") {
    for (const onebit_optimizer_kind_t kind : all_kinds()) {
        for (const std::uint64_t first : {2, 9}) {
            onebit_optimizer_config_t config = quick_config(kind);
            config.bucket_size = first == 2 ? 0 : 1100;
            const std::string name = name_of(kind) + " after step " + std::to_string(first);
            run_sweep({"unpack " + name, [=](onebit_comm_t comm, RankLog& log) {
                           return std::make_unique<Unpacking>(comm, config, first, 11 - first, log);
                       }});
            Sweep packing = {"pack " + name, [=](onebit_comm_t comm, RankLog& log) {
                                 return std::make_unique<Packing>(comm, config, first, log);
                             }};
            packing.ranks = {1}; // local
            run_sweep(packing);
        }
    }
}

} // namespace onebit_test
