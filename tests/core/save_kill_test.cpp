// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Processes that save are killed, one before each call that changes files. Each process begins with the files that the
// last one has left. All ranks always have one whole save, and load finds it by itself.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "core/file.hpp"
#include "support/directory.hpp"
#include "support/handles.hpp"
#include "support/sanitized.hpp"

using namespace onebit_test;

namespace {

constexpr const char* kPrefix = "ONEBIT_TEST_KILL_PREFIX";
constexpr const char* kRanks = "ONEBIT_TEST_KILL_RANKS";
constexpr const char* kAt = "ONEBIT_TEST_KILL_AT";

std::atomic<int> changes_left{0};

void die_in_time(const char*) {
    if (--changes_left == 0) kill(getpid(), SIGKILL);
}

std::uint64_t calls_of(onebit_allreduce_t handle) {
    onebit_allreduce_info_t info = ONEBIT_ALLREDUCE_INFO_INIT;
    return onebit_allreduce_get_info(handle, &info) == ONEBIT_SUCCESS ? info.calls : 0;
}

// Runs the hidden test below in a process that dies at its at-th change. Returns false if the process didn't die.
bool dies_in_save(const std::string& prefix, int ranks, int at) {
    const pid_t child = fork();
    if (child == 0) {
        setenv(kPrefix, prefix.c_str(), 1);
        setenv(kRanks, std::to_string(ranks).c_str(), 1);
        setenv(kAt, std::to_string(at).c_str(), 1);
        const int nowhere = open("/dev/null", O_WRONLY);
        dup2(nowhere, STDOUT_FILENO);
        execl("/proc/self/exe", "onebit_unit_tests", "a save that is killed", static_cast<char*>(nullptr));
        _exit(127);
    }
    int how = 0;
    waitpid(child, &how, 0);
    const bool killed = WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL;
    CHECK((killed || (WIFEXITED(how) && WEXITSTATUS(how) == 0)));
    return killed;
}

} // namespace

TEST_CASE("a save that is killed", "[.]") {
    const char* const prefix = std::getenv(kPrefix);
    REQUIRE(prefix != nullptr);
    run_ranks(std::atoi(std::getenv(kRanks)), [&](onebit_comm_t comm, RankLog& log) {
        Allreduce reduce(comm, flat_config(999), log);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_load(reduce.get(), prefix));
        reduce.run_steps(7, calls_of(reduce.get()), 1);
        log.barrier();
        if (log.rank() == 0) {
            changes_left = std::atoi(std::getenv(kAt));
            onebit::before_file_change = die_in_time;
        }
        log.barrier();
        ONEBIT_EXPECT_OK(log, onebit_allreduce_save(reduce.get(), prefix));
    });
}

TEST_CASE("wherever a save is killed, all ranks have a whole one", "[file][state][kill]") {
    const int n = GENERATE(1, 2, 3, 4);
    if (is_sanitized() && n != 3) return;
    std::string folder = (fs::temp_directory_path() / "onebit-kills-XXXXXX").string();
    REQUIRE(mkdtemp(folder.data()) != nullptr);
    const std::string prefix = folder + "/state";
    std::atomic<std::uint64_t> calls{0};
    const auto load = [&](bool save) {
        run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
            Allreduce reduce(comm, flat_config(999), log);
            if (save) {
                reduce.run_steps(7, 0, 1);
                ONEBIT_EXPECT_OK(log, onebit_allreduce_save(reduce.get(), prefix.c_str()));
            }
            ONEBIT_EXPECT_OK(log, onebit_allreduce_load(reduce.get(), prefix.c_str()));
            const std::uint64_t own = calls_of(reduce.get());
            ONEBIT_EXPECT(log, log.same_on_all(&own, sizeof(own)));
            if (log.rank() == 0) calls = own;
            log.barrier();
        });
    };
    load(true);
    int kills = 0;
    for (int at = 1; at < 200; ++at) {
        CAPTURE(n, at);
        const std::uint64_t before = calls;
        const bool killed = dies_in_save(prefix, n, at);
        load(false);
        CHECK((calls == before + 1 || (killed && calls == before)));
        if (!killed) break;
        ++kills;
    }
    CHECK(kills >= 5 * n);
    std::size_t files = 0; // nothing has piled up
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder)) ++files;
    CHECK(files == static_cast<std::size_t>(n));
    fs::remove_all(folder);
}
