// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Runs one test body on n ranks: as threads over the loopback transport or, with ONEBIT_TEST_MPI, as this process's
// rank of MPI_COMM_WORLD. A collective test is written once and compiled into both executables:
//
//     const int n = GENERATE(from_range(rank_counts()));
//     run_ranks(n, [&](onebit_comm_t comm, RankLog& log) { ONEBIT_EXPECT(log, ...); });
//
// Catch2's assertions are not safe among threads, so the body only records failures; run_ranks reports them
// afterwards. A body must not leave early on one rank alone (the others would wait for it), and a hang is the worst bug
// of all: after 60 s the watchdog ends the process with a message.
#pragma once

#include <onebit/onebit.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#ifdef ONEBIT_TEST_MPI
#include <mpi.h>
#include <onebit/onebit_mpi.h>
#else
#include <barrier>
#include <memory>
#endif

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

inline std::string lower(std::string text) {
    for (char& c : text)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return text;
}

inline std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
    return parts;
}

// True if the message holds each of the needles (see ONEBIT_EXPECT_FAILURE).
inline bool holds(const std::string& message, const std::string& needles) {
    for (const std::string& needle : split(lower(needles), ';')) {
        bool found = false;
        for (const std::string& word : split(needle, '|'))
            found = found || lower(message).find(word) != std::string::npos;
        if (!found) return false;
    }
    return true;
}

// One rank's record of expectations, and its line to the other ranks.
class RankLog {
  public:
    RankLog(int rank, int size, Exchange exchange) : rank_(rank), size_(size), exchange_(std::move(exchange)) {}

    int rank() const { return rank_; }
    int size() const { return size_; }
    bool last_rank() const { return rank_ == size_ - 1; }

    bool expect(bool condition, const std::string& text, const char* file, int line) {
        const std::lock_guard<std::mutex> lock(mutex_);
        ++expectations_;
        if (condition) return true;
        ++failed_;
        if (failures_.size() < 20) {
            std::ostringstream stream;
            stream << file << ":" << line << ": rank " << rank_ << " of " << size_;
            if (!context_.empty()) stream << " [" << context_ << "]";
            stream << ": " << text;
            failures_.push_back(stream.str());
        }
        return false;
    }

    bool expect_status(onebit_status_t expected, onebit_status_t actual, const char* call, const char* file, int line) {
        std::string text =
            std::string(call) + " returned " + onebit_status_string(actual) + ", not " + onebit_status_string(expected);
        if (actual != ONEBIT_SUCCESS) text += std::string(": \"") + onebit_last_error() + "\"";
        return expect(actual == expected, text, file, line);
    }

    bool expect_failure(onebit_status_t expected, const std::string& needles, onebit_status_t actual, const char* call,
                        const char* file, int line) {
        const std::string message = onebit_last_error();
        const int code = static_cast<int>(actual);
        bool good = expect_status(expected, actual, call, file, line);
        good = expect(same_on_all(&code, sizeof code), std::string(call) + ": one status on all ranks", file, line) &&
               good;
        return expect(holds(message, needles),
                      std::string(call) + ": message \"" + message + "\" lacks \"" + needles + "\"", file, line) &&
               good;
    }

    // What every failure from now on is labelled with.
    void context(std::string text) {
        const std::lock_guard<std::mutex> lock(mutex_);
        context_ = std::move(text);
    }

    // Collective. Each rank's bytes, by rank; lengths may differ.
    std::vector<Bytes> gather_bytes(const void* data, std::size_t bytes) {
        Bytes mine(bytes);
        if (bytes != 0) std::memcpy(mine.data(), data, bytes);
        return exchange_(std::move(mine));
    }
    std::vector<std::vector<float>> gather_floats(const std::vector<float>& data) {
        std::vector<std::vector<float>> all;
        for (const Bytes& bytes : gather_bytes(data.data(), data.size() * sizeof(float))) {
            all.emplace_back(bytes.size() / sizeof(float));
            if (!bytes.empty()) std::memcpy(all.back().data(), bytes.data(), bytes.size());
        }
        return all;
    }
    bool same_on_all(const void* data, std::size_t bytes) {
        const std::vector<Bytes> all = gather_bytes(data, bytes);
        for (const Bytes& other : all)
            if (other != all.front()) return false;
        return true;
    }
    void barrier() { gather_bytes(nullptr, 0); }

    // The body has destroyed the communicator itself; the runner need not.
    void comm_is_gone() { comm_gone_ = true; }
    bool comm_gone() const { return comm_gone_; }

    // May two threads of this rank talk at once?
    bool threads_allowed() const {
#ifdef ONEBIT_TEST_MPI
        int provided = MPI_THREAD_SINGLE;
        MPI_Query_thread(&provided);
        return provided == MPI_THREAD_MULTIPLE;
#else
        return true;
#endif
    }

    std::vector<std::string> failures() const {
        const std::lock_guard<std::mutex> lock(mutex_);
        return failures_;
    }
    int failed() const {
        return failed_;
    }
    int expectations() const {
        return expectations_;
    }

  private:
    int rank_, size_;
    Exchange exchange_;
    mutable std::mutex mutex_;
    std::string context_;
    std::vector<std::string> failures_;
    int failed_ = 0, expectations_ = 0;
    bool comm_gone_ = false;
};

// Ends the process if it isn't destroyed in time. Joining a thread that hangs would hang too, so there is no gentler
// way.
class Watchdog {
  public:
    explicit Watchdog(std::vector<RankLog*> logs)
        : logs_(std::move(logs)), test_(Catch::getResultCapture().getCurrentTestName()), thread_([this] { watch(); }) {}
    ~Watchdog() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            finished_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

  private:
    // Emulators and sanitizers are slow: ONEBIT_TEST_WATCHDOG gives other seconds.
    static int limit_seconds() {
        const char* text = std::getenv("ONEBIT_TEST_WATCHDOG");
        const int seconds = text == nullptr ? 0 : std::atoi(text);
        return seconds > 0 ? seconds : 60;
    }
    void watch() {
        std::unique_lock<std::mutex> lock(mutex_);
        if (changed_.wait_for(lock, std::chrono::seconds(limit_seconds()), [this] { return finished_; })) return;
        std::fprintf(stderr, "\nHANG: \"%s\" on %d ranks took more than %d s\n", test_.c_str(), logs_.front()->size(),
                     limit_seconds());
        for (const RankLog* log : logs_)
            for (const std::string& failure : log->failures()) std::fprintf(stderr, "  %s\n", failure.c_str());
        std::fflush(stderr);
        std::_Exit(99); // under mpirun this ends the other ranks too
    }

    std::vector<RankLog*> logs_;
    std::string test_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool finished_ = false;
    std::thread thread_;
};

using Body = std::function<void(onebit_comm_t, RankLog&)>;

inline void run_body(const Body& body, onebit_comm_t comm, RankLog& log) {
    try {
        body(comm, log);
    } catch (const std::exception& error) {
        log.expect(false, std::string("the body threw: ") + error.what(), __FILE__, __LINE__);
    }
}

inline void report(const RankLog& log) {
    for (const std::string& failure : log.failures()) FAIL_CHECK(failure);
    CHECK(log.failed() == 0);
    CHECK(log.expectations() > 0); // a body that expects nothing proves nothing
}

#ifdef ONEBIT_TEST_MPI

inline std::vector<int> rank_counts() {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return {size};
}

// There are more ranks than cores: a rank that waits must let the others work. MPICH's own waiting doesn't.
inline void wait_politely(MPI_Request* request) {
    for (int done = 0; done == 0;) {
        MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (done == 0) std::this_thread::yield();
    }
}

inline std::vector<Bytes> mpi_exchange(const Bytes& mine) {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int bytes = static_cast<int>(mine.size());
    std::vector<int> lengths(static_cast<std::size_t>(size)), offsets(lengths.size());
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallgather(&bytes, 1, MPI_INT, lengths.data(), 1, MPI_INT, MPI_COMM_WORLD, &request);
    wait_politely(&request);
    int total = 0;
    for (std::size_t r = 0; r < lengths.size(); ++r) {
        offsets[r] = total;
        total += lengths[r];
    }
    Bytes flat(static_cast<std::size_t>(total));
    MPI_Iallgatherv(mine.data(), bytes, MPI_BYTE, flat.data(), lengths.data(), offsets.data(), MPI_BYTE, MPI_COMM_WORLD,
                    &request);
    wait_politely(&request);
    std::vector<Bytes> all;
    for (std::size_t r = 0; r < lengths.size(); ++r)
        all.emplace_back(flat.begin() + offsets[r], flat.begin() + offsets[r] + lengths[r]);
    return all;
}

inline void run_ranks(int n, const Body& body) {
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    REQUIRE(n == size);
    RankLog log(rank, size, mpi_exchange);
    {
        const Watchdog watchdog({&log});
        onebit_comm_t comm = nullptr;
        if (ONEBIT_EXPECT_OK(log, onebit_comm_create_mpi(MPI_COMM_WORLD, &comm))) run_body(body, comm, log);
        if (!log.comm_gone()) ONEBIT_EXPECT_OK(log, onebit_comm_destroy(comm));
    }
    int failed = log.failed(), failed_anywhere = 0;
    MPI_Allreduce(&failed, &failed_anywhere, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    report(log);
    if (failed == 0 && failed_anywhere != 0) FAIL_CHECK("another rank failed");
}

#else

inline std::vector<int> rank_counts() {
    return {1, 2, 3, 4};
}

inline void run_ranks(int n, const Body& body) {
    const std::size_t ranks = static_cast<std::size_t>(n);
    std::vector<onebit_comm_t> comms(ranks, nullptr);
    const onebit_status_t created = onebit_comm_create_loopback(n, comms.data());
    INFO(n << " ranks" << (created == ONEBIT_SUCCESS ? "" : onebit_last_error()));
    REQUIRE(created == ONEBIT_SUCCESS);

    std::vector<Bytes> slots(ranks);
    std::barrier<> meeting(n);
    std::vector<std::unique_ptr<RankLog>> logs;
    std::vector<RankLog*> pointers;
    for (std::size_t r = 0; r < ranks; ++r) {
        logs.push_back(std::make_unique<RankLog>(static_cast<int>(r), n, [&slots, &meeting, r](Bytes mine) {
            slots[r] = std::move(mine);
            meeting.arrive_and_wait();
            std::vector<Bytes> all = slots;
            meeting.arrive_and_wait(); // nobody writes the next round's slot before all have read this one's
            return all;
        }));
        pointers.push_back(logs.back().get());
    }
    {
        const Watchdog watchdog(pointers);
        std::vector<std::thread> threads;
        for (std::size_t r = 0; r < ranks; ++r)
            threads.emplace_back([&body, &comms, &logs, r] { run_body(body, comms[r], *logs[r]); });
        for (std::thread& thread : threads) thread.join();
        for (std::size_t r = 0; r < ranks; ++r)
            if (!logs[r]->comm_gone()) ONEBIT_EXPECT_OK(*logs[r], onebit_comm_destroy(comms[r]));
    }
    for (const auto& log : logs) report(*log);
}

#endif

} // namespace onebit_test
