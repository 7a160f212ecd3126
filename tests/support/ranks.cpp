// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "support/ranks.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <sstream>
#include <thread>

#include "support/rank_runner.hpp"

namespace onebit_test {

namespace {

std::string lower(std::string text) {
    for (char& c : text)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return text;
}

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
    return parts;
}

} // namespace

bool holds(const std::string& message, const std::string& needles) {
    for (const std::string& needle : split(lower(needles), ';')) {
        bool found = false;
        for (const std::string& word : split(needle, '|'))
            found = found || lower(message).find(word) != std::string::npos;
        if (!found) return false;
    }
    return true;
}

bool RankLog::expect(bool condition, const std::string& text, const char* file, int line) {
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

bool RankLog::expect_status(onebit_status_t expected, onebit_status_t actual, const char* call, const char* file,
                            int line) {
    std::string text =
        std::string(call) + " returned " + onebit_status_string(actual) + ", not " + onebit_status_string(expected);
    if (actual != ONEBIT_SUCCESS) text += std::string(": \"") + onebit_last_error() + "\"";
    return expect(actual == expected, text, file, line);
}

bool RankLog::expect_failure(onebit_status_t expected, const std::string& needles, onebit_status_t actual,
                             const char* call, const char* file, int line) {
    const std::string message = onebit_last_error();
    const int code = static_cast<int>(actual);
    bool good = expect_status(expected, actual, call, file, line);
    good = expect(same_on_all(&code, sizeof code), std::string(call) + ": one status on all ranks", file, line) && good;
    return expect(holds(message, needles),
                  std::string(call) + ": message \"" + message + "\" lacks \"" + needles + "\"", file, line) &&
           good;
}

void RankLog::context(std::string text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    context_ = std::move(text);
}

std::vector<Bytes> RankLog::gather_bytes(const void* data, std::size_t bytes) {
    Bytes mine(bytes);
    if (bytes != 0) std::memcpy(mine.data(), data, bytes);
    return exchange_(std::move(mine));
}

std::vector<std::vector<float>> RankLog::gather_floats(const std::vector<float>& data) {
    std::vector<std::vector<float>> all;
    for (const Bytes& bytes : gather_bytes(data.data(), data.size() * sizeof(float))) {
        all.emplace_back(bytes.size() / sizeof(float));
        if (!bytes.empty()) std::memcpy(all.back().data(), bytes.data(), bytes.size());
    }
    return all;
}

bool RankLog::same_on_all(const void* data, std::size_t bytes) {
    const std::vector<Bytes> all = gather_bytes(data, bytes);
    for (const Bytes& other : all)
        if (other != all.front()) return false;
    return true;
}

std::vector<std::string> RankLog::failures() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return failures_;
}

namespace {

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

} // namespace

void run_watched(const std::vector<RankLog*>& logs, const std::function<void()>& run) {
    const Watchdog watchdog(logs);
    run();
}

void run_body(const Body& body, onebit_comm_t comm, RankLog& log) {
    try {
        body(comm, log);
    } catch (const std::exception& error) {
        log.expect(false, std::string("the body threw: ") + error.what(), __FILE__, __LINE__);
    }
}

void report(const RankLog& log) {
    for (const std::string& failure : log.failures()) FAIL_CHECK(failure);
    CHECK(log.failed() == 0);
    CHECK(log.expectations() > 0); // a body that expects nothing proves nothing
}

} // namespace onebit_test
