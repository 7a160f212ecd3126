// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Two ranks that are threads, for programs of C calls.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <semaphore>
#include <thread>

#include "fuzz/fuzzing.hpp"

namespace onebit_fuzz {

constexpr std::size_t kRanks = 2;

// Runs work(rank) on both ranks, each time on the same threads.
class RankThreads {
  public:
    RankThreads() : other_([this] { serve(); }) { other_.detach(); }
    void run(const std::function<void(std::size_t)>& work) {
        work_ = &work;
        begin_.release();
        work(0);
        done_.acquire();
    }

  private:
    [[noreturn]] void serve() {
        for (;;) {
            begin_.acquire();
            (*work_)(1);
            done_.release();
        }
    }
    const std::function<void(std::size_t)>* work_ = nullptr;
    std::binary_semaphore begin_{0}, done_{0};
    std::thread other_;
};

using Statuses = std::array<onebit_status_t, kRanks>;

inline Statuses on_both(const std::function<onebit_status_t(std::size_t)>& call) {
    static RankThreads threads;
    Statuses statuses{};
    threads.run([&](std::size_t rank) { statuses[rank] = call(rank); });
    return statuses;
}

// Checks a collective call's statuses; returns the status.
inline onebit_status_t agreed(const Statuses& statuses) {
    FUZZ_REQUIRE(statuses[0] == statuses[1]);
    FUZZ_REQUIRE(statuses[0] != ONEBIT_ERROR_TIMEOUT && statuses[0] != ONEBIT_ERROR_TRANSPORT &&
                 statuses[0] != ONEBIT_ERROR_INTERNAL);
    return statuses[0];
}
inline onebit_status_t collectively(const std::function<onebit_status_t(std::size_t)>& call) {
    return agreed(on_both(call));
}

// The results that a callback got since an operation was started.
struct Told {
    int calls = 0;
    onebit_status_t status = ONEBIT_SUCCESS;
};
inline void tell(void* told, onebit_status_t status) {
    ++static_cast<Told*>(told)->calls;
    static_cast<Told*>(told)->status = status;
}

// The ranks' handles of one kind, and the callback that was set for operations started on them.
template <typename Handle>
struct Slot {
    std::array<Handle, kRanks> handles{};
    bool with_callback = false;
    std::array<Told, kRanks> told{};

    bool used() const { return handles[0] != nullptr; }
    // How an operation ended, given the status of the call that found its end. A callback was called once and knows the
    // result, because onebit_comm_progress may have ended the operation.
    onebit_status_t ended(std::size_t rank, onebit_status_t returned) const {
        if (!with_callback) return returned;
        FUZZ_REQUIRE(told[rank].calls == 1);
        FUZZ_REQUIRE(returned == told[rank].status || returned == ONEBIT_SUCCESS);
        return told[rank].status;
    }
};

// The base of handles: both ranks' communicator, or a part of it with both ranks.
struct Communicators {
    std::array<onebit_comm_t, kRanks> whole{}, part{};

    const std::array<onebit_comm_t, kRanks>& any(Bytes& bytes) const {
        return part[0] != nullptr && bytes.below(2) == 0 ? part : whole;
    }
};

} // namespace onebit_fuzz
