// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Runs one test body on n ranks: threads over the loopback transport or, in executables with rank_processes.cpp, this
// process's rank of MPI_COMM_WORLD. A collective test is written and compiled once, and linked into both:
//
//     const int n = GENERATE(from_range(rank_counts()));
//     run_ranks(n, [&](onebit_comm_t comm, RankLog& log) { ONEBIT_EXPECT(log, ...); });
//
// Catch2's assertions are not safe among threads, so the body only records failures; run_ranks reports them
// afterwards. A body must not leave early on one rank alone (the others would wait for it), and a hang is the worst bug
// of all: after 60 s the watchdog ends the process with a message.
#pragma once

#include <onebit/onebit.h>

#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "support/catch2.hpp"

#define ONEBIT_EXPECT(log, condition) (log).expect(static_cast<bool>(condition), #condition, __FILE__, __LINE__)
// This rank's call returns `expected`.
#define ONEBIT_EXPECT_STATUS(log, expected, call) (log).expect_status((expected), (call), #call, __FILE__, __LINE__)
#define ONEBIT_EXPECT_OK(log, call) ONEBIT_EXPECT_STATUS(log, ONEBIT_SUCCESS, call)
// Collective: every rank's call fails with `expected` and with a message that holds every one of the needles
// "a;b|c": a, and one of b and c; upper and lower case are the same.
#define ONEBIT_EXPECT_FAILURE(log, expected, needles, call) \
    (log).expect_failure((expected), (needles), (call), #call, __FILE__, __LINE__)

namespace onebit_test {

using Bytes = std::vector<unsigned char>;
using Exchange = std::function<std::vector<Bytes>(Bytes)>; // collective: mine in, everyone's out, by rank

// True if the message holds each of the needles (see ONEBIT_EXPECT_FAILURE).
bool holds(const std::string& message, const std::string& needles);

// One rank's record of expectations, and its line to the other ranks.
class RankLog {
  public:
    RankLog(int rank, int size, Exchange exchange) : rank_(rank), size_(size), exchange_(std::move(exchange)) {}

    int rank() const { return rank_; }
    int size() const { return size_; }
    bool last_rank() const { return rank_ == size_ - 1; }

    bool expect(bool condition, const std::string& text, const char* file, int line);
    bool expect_status(onebit_status_t expected, onebit_status_t actual, const char* call, const char* file, int line);
    bool expect_failure(onebit_status_t expected, const std::string& needles, onebit_status_t actual, const char* call,
                        const char* file, int line);

    // The label of every failure from now on.
    void context(std::string text);

    // Collective. Each rank's bytes, by rank; lengths may differ.
    std::vector<Bytes> gather_bytes(const void* data, std::size_t bytes);
    std::vector<std::vector<float>> gather_floats(const std::vector<float>& data);
    bool same_on_all(const void* data, std::size_t bytes);
    void barrier() { gather_bytes(nullptr, 0); }

    // The body has destroyed the communicator itself; the runner need not.
    void comm_is_gone() { comm_gone_ = true; }
    bool comm_gone() const { return comm_gone_; }

    std::vector<std::string> failures() const;
    int failed() const { return failed_; }
    int expectations() const { return expectations_; }

  private:
    int rank_, size_;
    Exchange exchange_;
    mutable std::mutex mutex_;
    std::string context_;
    std::vector<std::string> failures_;
    int failed_ = 0, expectations_ = 0;
    bool comm_gone_ = false;
};

using Body = std::function<void(onebit_comm_t, RankLog&)>;

// The following functions are in rank_threads.cpp and in rank_processes.cpp.

// The numbers of ranks that a test is to run with.
std::vector<int> rank_counts();
// Whether calls are quick enough to also try cases that differ only in arithmetic, not in messages.
bool calls_are_quick();
// Whether n ranks are possible. A test that needs a certain number does nothing otherwise.
bool can_have_ranks(int n);
void run_ranks(int n, const Body& body);
// On each number of rank_counts(), from `least` on. Once in a test case: it is a generator of Catch2.
inline void for_each_size(int least, const Body& body) {
    const int n = GENERATE(from_range(rank_counts()));
    if (n >= least) run_ranks(n, body);
}
// The transport of the ranks' communicators.
const char* transport_name();
// May two threads of one rank talk at once?
bool threads_allowed();

} // namespace onebit_test
