// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// onebit_set_log_callback: which callback gets which lines.
#include <atomic>
#include <mutex>
#include <thread>

#include "support/handles.hpp"

using namespace onebit_test;

namespace {

struct Lines {
    std::mutex mutex;
    std::vector<std::string> texts;
    std::vector<onebit_log_level_t> levels;

    static void note(void* context, onebit_log_level_t level, const char* text) {
        Lines& lines = *static_cast<Lines*>(context);
        const std::lock_guard lock(lines.mutex);
        lines.texts.emplace_back(text);
        lines.levels.push_back(level);
    }
};

/// During its lifetime `lines` gets the log.
class Listening {
  public:
    explicit Listening(Lines& lines) { REQUIRE(onebit_set_log_callback(Lines::note, &lines) == ONEBIT_SUCCESS); }
    ~Listening() { CHECK(onebit_set_log_callback(nullptr, nullptr) == ONEBIT_SUCCESS); }
    Listening(const Listening&) = delete;
    Listening& operator=(const Listening&) = delete;
};

void create_one(onebit_comm_t comm, RankLog& log) {
    const Allreduce reduce(comm, form_config(ONEBIT_ALGORITHM_FLAT, 777), log);
    ONEBIT_EXPECT(log, reduce.get() != nullptr);
}

} // namespace

TEST_CASE("a callback gets rank 0's lines, and nobody else's, until it is taken away", "[log]") {
    static Lines lines; // late calls may come to it
    lines.texts.clear();
    lines.levels.clear();
    const int n = GENERATE(from_range(rank_counts()));
    {
        const Listening listening(lines);
        run_ranks(n, create_one);
    }
    run_ranks(n, create_one);
    const std::lock_guard lock(lines.mutex);
    REQUIRE(lines.texts.size() == 1);
    CHECK(holds(lines.texts[0], "allreduce of 777 elements over " + std::to_string(n) + " ranks;flat, because asked"));
    CHECK(lines.texts[0].find('\n') == std::string::npos);
    CHECK(lines.levels[0] == ONEBIT_LOG_INFO);
}

TEST_CASE("callbacks are set while others are called, and a handle in a call is busy for its own", "[log][threads]") {
    struct Inside {
        std::atomic<onebit_comm_t> comm = nullptr;
        std::atomic<int> calls = 0;
        std::atomic<onebit_status_t> status = ONEBIT_SUCCESS;
        static void ask(void* context, onebit_log_level_t, const char*) {
            Inside& inside = *static_cast<Inside*>(context);
            int rank = 0;
            inside.status = onebit_comm_rank(inside.comm, &rank);
            ++inside.calls;
        }
    };
    static Inside inside;
    static Lines lines;
    REQUIRE(onebit_set_log_callback(Inside::ask, &inside) == ONEBIT_SUCCESS); // the thread may be late
    std::atomic<bool> stop = false;
    std::thread setting([&] {
        while (!stop) {
            (void)onebit_set_log_callback(Inside::ask, &inside);
            (void)onebit_set_log_callback(Lines::note, &lines);
        }
    });
    onebit_comm_t comm = nullptr;
    REQUIRE(onebit_comm_create_loopback(1, &comm) == ONEBIT_SUCCESS);
    inside.comm = comm;
    for (int i = 0; i < 200; ++i) {
        const onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(100);
        onebit_allreduce_t handle = nullptr;
        REQUIRE(onebit_allreduce_create(comm, &config, &handle) == ONEBIT_SUCCESS);
        CHECK(onebit_allreduce_destroy(handle) == ONEBIT_SUCCESS);
    }
    stop = true;
    setting.join();
    CHECK(onebit_set_log_callback(nullptr, nullptr) == ONEBIT_SUCCESS);
    const std::lock_guard lock(lines.mutex);
    CHECK(static_cast<std::size_t>(inside.calls) + lines.texts.size() == 200);
    if (inside.calls > 0) CHECK(inside.status == ONEBIT_ERROR_BUSY);
    CHECK(onebit_comm_destroy(comm) == ONEBIT_SUCCESS);
}
