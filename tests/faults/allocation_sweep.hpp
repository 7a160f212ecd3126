// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// SQLite's test of memory that runs out: the first allocation of a call fails, then the second, and so on until the
// call needs no more. It fails on one rank alone; every rank must get one status for it.
#pragma once

#include <functional>
#include <memory>

#include "support/ranks.hpp"

namespace onebit_test {

// Appends to a state.
template <typename T>
void append(Bytes& bytes, const std::vector<T>& values) {
    const auto* const begin = reinterpret_cast<const unsigned char*>(values.data());
    bytes.insert(bytes.end(), begin, begin + values.size() * sizeof(T));
}

// A rank's call under test; made on all ranks.
class Subject {
  public:
    virtual ~Subject() = default;
    // Collective, with memory, before each call.
    virtual void prepare() {}
    // Collective.
    virtual onebit_status_t call() = 0;
    // Everything that a failing call must leave unchanged.
    virtual Bytes state() { return {}; }
    // Collective, after a call that had the status expected with memory.
    virtual void succeeded() {}
};

// The call makes a handle; destroy gives it back.
template <typename Handle>
class Creation final : public Subject {
  public:
    Creation(RankLog& log, std::function<onebit_status_t(Handle*)> create,
             std::function<onebit_status_t(Handle)> destroy)
        : log_(log), create_(std::move(create)), destroy_(std::move(destroy)) {}
    ~Creation() override { give_back(); }

    onebit_status_t call() override {
        handle_ = reinterpret_cast<Handle>(this); // anything
        const onebit_status_t status = create_(&handle_);
        left_ = status != ONEBIT_SUCCESS && handle_ != nullptr;
        return status;
    }
    Bytes state() override { // after the call: within it no memory is left to report
        ONEBIT_EXPECT(log_, !left_);
        return {};
    }
    void succeeded() override { give_back(); }

  private:
    void give_back() {
        if (handle_ != nullptr) ONEBIT_EXPECT_OK(log_, destroy_(handle_));
        handle_ = nullptr;
    }

    RankLog& log_;
    std::function<onebit_status_t(Handle*)> create_;
    std::function<onebit_status_t(Handle)> destroy_;
    Handle handle_ = nullptr;
    bool left_ = false;
};

struct Sweep {
    std::string name;
    std::function<std::unique_ptr<Subject>(onebit_comm_t, RankLog&)> make; // collective
    int rounds = 1;                                                        // calls, one after the other, to go through
    onebit_status_t expected = ONEBIT_SUCCESS;                             // with memory
    std::vector<int> ranks = {2, 3};                                       // for local calls 1
    bool on_communicator = true;                                           // else `make` gets none
};

// Goes through all allocations of the calls. Each fails alone on the last rank, and with all behind it on the first; if
// ONEBIT_TEST_EVERY_FAULT is set, in both ways on both ranks. A call must end with sweep.expected or OUT_OF_MEMORY, the
// same on every rank. OUT_OF_MEMORY must change nothing.
void run_sweep(const Sweep& sweep);

} // namespace onebit_test
