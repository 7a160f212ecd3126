// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Calls on an existing communicator, with memory that runs out at every place.
#include "faults/allocation_sweep.hpp"
#include "support/handles.hpp"

namespace onebit_test {
namespace {

// Two parts, except with one rank alone.
class Splitting final : public Subject {
  public:
    Splitting(onebit_comm_t comm, RankLog& log) : comm_(comm), log_(log) {}
    ~Splitting() override { give_back(); }

    onebit_status_t call() override {
        const onebit_status_t status = onebit_comm_split(comm_, log_.rank() % 2, 0, &part_);
        left_ = status != ONEBIT_SUCCESS && part_ != nullptr;
        return status;
    }
    Bytes state() override { // after the call: within it no memory is left to report
        ONEBIT_EXPECT(log_, !left_);
        return {};
    }
    void succeeded() override {
        {
            Allreduce reduce(part_, flat_config(100), log_);
            const std::vector<float> ones(100, 1.0F);
            ONEBIT_EXPECT(log_, reduce.run(ones) == ones);
        }
        give_back();
    }

  private:
    void give_back() {
        ONEBIT_EXPECT_OK(log_, onebit_comm_destroy(part_));
        part_ = nullptr;
    }

    onebit_comm_t comm_;
    RankLog& log_;
    onebit_comm_t part_ = nullptr;
    bool left_ = false;
};

class Setting final : public Subject {
  public:
    Setting(onebit_comm_t comm, const char* name, const char* value, RankLog& log)
        : comm_(comm), name_(name), value_(value), log_(log) {}

    onebit_status_t call() override { return onebit_comm_set(comm_, name_, value_); }
    void succeeded() override {
        Allreduce reduce(comm_, ONEBIT_ALLREDUCE_CONFIG_INIT(100), log_);
        ONEBIT_EXPECT(log_, !reduce.run(std::vector<float>(100, 1.0F)).empty());
    }

  private:
    onebit_comm_t comm_;
    const char* name_;
    const char* value_;
    RankLog& log_;
};

} // namespace

TEST_CASE("communicators are split with memory, or on no rank", "[memory][split]") {
    run_sweep({"split", [](onebit_comm_t comm, RankLog& log) { return std::make_unique<Splitting>(comm, log); }, 2});
}

TEST_CASE("communicators are set with memory, or on no rank", "[memory][set]") {
    const char* const name = GENERATE("ONEBIT_ALGORITHM", "ONEBIT_MEASURE");
    const char* const value = std::string(name) == "ONEBIT_MEASURE" ? "0" : "pipelined";
    run_sweep({std::string("set ") + name,
               [=](onebit_comm_t comm, RankLog& log) { return std::make_unique<Setting>(comm, name, value, log); }});
}

} // namespace onebit_test
