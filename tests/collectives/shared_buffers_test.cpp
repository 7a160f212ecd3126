// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Memory that a node's ranks share for their values and results (onebit_mem_alloc), and averages of values there: the
// same bits as of values elsewhere, whichever ranks use it for which buffers.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <utility>

#include "support/environment.hpp"
#include "support/exact_averages.hpp"
#include "support/shared_values.hpp"

using namespace onebit_test;

namespace {

constexpr std::uint64_t slice = std::uint64_t{1} << 17; // of all ranks, where there are few

// The fewest elements, parts of uneven lengths with less than a vector at the end, more than are checked in a pass
// before, so many that results are written past the caches.
const std::vector<std::uint64_t> counts = {2048, 4099, 3 * slice + 77, 17 * slice + 5};

// Of other processes' memory and this one's to share, as a mapping or a file that is open.
std::size_t mappings() {
    const std::string name = "memfd:onebit.values";
    std::size_t found = 0;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) found += line.find(name) != std::string::npos;
    for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone; // the directory's own
        found += std::filesystem::read_symlink(file, gone).string().find(name) != std::string::npos;
    }
    return found;
}

// A started call without a check: all ranks tell their values' places, then all find them. None is done by then.
void find_values(Allreduce& reduce, RankLog& log) {
    for (int i = 0; i < 2; ++i) {
        int done = 0;
        ONEBIT_EXPECT_OK(log, onebit_allreduce_test(reduce.get(), &done));
        ONEBIT_EXPECT(log, done == 0 || log.size() == 1);
        log.barrier();
    }
}

} // namespace

TEST_CASE("values in shared buffers are averaged where they lie, in rank order", "[shared][buffers]") {
    const int n = GENERATE(from_range(rank_counts()));
    const auto check = GENERATE(ONEBIT_CHECK_FULL, ONEBIT_CHECK_NONE);
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t most = counts.back();
        // Two pieces, of sizes that differ between ranks; a guard on each side of what calls are given.
        const std::uint64_t begin = 16 + 3 * static_cast<std::uint64_t>(log.rank()); // misaligned but on rank 0
        const SharedValues first(comm, most + 64, log);
        const SharedValues second(comm, most + 128 + static_cast<std::uint64_t>(log.rank()), log);
        for (const std::uint64_t count : counts) {
            for (const unsigned threads : {1u, 3u}) {
                log.context(std::to_string(count) + " elements, " + std::to_string(threads) + " threads");
                onebit_allreduce_config_t config = dense_config(count);
                config.threads = threads;
                config.check = check;
                Allreduce reduce(comm, config, log);
                for (std::uint64_t step = 0; step < 4; ++step) {
                    float* const input = first.data() + begin;
                    const bool in_place = step % 2 == 1;
                    float* const output = in_place ? input : second.data() + (step == 0 ? 16 : 19);
                    for (float* const values : {input, output}) values[-1] = values[count] = -5.0f;
                    put(input_of(count, log.rank(), step), input);
                    ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), input, output));
                    ONEBIT_EXPECT(log, was_direct(reduce) == (log.size() > 1));
                    ONEBIT_EXPECT(log, same_bits(get(output, count), average(count, log.size(), step)));
                    if (!in_place) ONEBIT_EXPECT(log, same_bits(get(input, count), input_of(count, log.rank(), step)));
                    for (const float* const values : {input, output})
                        ONEBIT_EXPECT(log, values[-1] == -5.0f && values[count] == -5.0f);
                }
            }
        }
    });
}

TEST_CASE("ranks whose values lie elsewhere, now and then, are waited for by nobody", "[shared][buffers]") {
    const int n = GENERATE(from_range(rank_counts()));
    const auto check = GENERATE(ONEBIT_CHECK_FULL, ONEBIT_CHECK_NONE);
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t count = 6 * slice + 77; // more slices than slots
        onebit_allreduce_config_t config = dense_config(count);
        config.check = check;
        Allreduce reduce(comm, config, log);
        const SharedValues shared(comm, 2 * count, log);
        std::vector<float> input(count), output(count);
        const auto ranks = static_cast<std::uint64_t>(log.size());
        for (std::uint64_t step = 0; step < 4 * (ranks + 1); ++step) {
            // One rank's values or results lie elsewhere, or no rank's.
            const std::uint64_t which = step % (ranks + 1);
            const bool mine = which == static_cast<std::uint64_t>(log.rank());
            const bool plain_input = mine && step % 3 != 0, plain_output = mine && step % 3 != 1;
            float* const from = plain_input ? input.data() : shared.data();
            float* const to = plain_output ? output.data() : shared.data() + count;
            put(input_of(count, log.rank(), step), from);
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(reduce.get(), from, to));
            ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(reduce.get()));
            ONEBIT_EXPECT(log, was_direct(reduce) == (log.size() > 1 && which == ranks));
            ONEBIT_EXPECT(log, same_bits(get(to, count), average(count, log.size(), step)));
        }
    });
}

TEST_CASE("a value in a shared buffer that is not finite is refused, by its rank's name", "[shared][buffers]") {
    const int n = GENERATE(from_range(rank_counts()));
    enum class Places { apart, in_place, mixed };
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const std::uint64_t count : {slice, 3 * slice + 77}) { // looked at before, and on the way
            Allreduce reduce(comm, dense_config(count), log);
            const SharedValues values(comm, count, log), result(comm, count, log);
            for (const std::uint64_t at : {std::uint64_t{0}, count - 1}) {
                for (const int bad_rank : {0, log.size() - 1}) {
                    for (const Places places : {Places::apart, Places::in_place, Places::mixed}) {
                        const bool in_place =
                            places == Places::in_place || (places == Places::mixed && log.rank() % 2 == 0);
                        const bool looked_before = count == slice || places != Places::apart || log.size() == 1;
                        float* const output = in_place ? values.data() : result.data();
                        std::vector<float> input = input_of(count, log.rank(), at);
                        put(input, values.data());
                        std::fill_n(result.data(), count, 5.0f);
                        if (log.rank() == bad_rank) values.data()[at] = std::numeric_limits<float>::quiet_NaN();
                        ONEBIT_EXPECT_FAILURE(
                            log, ONEBIT_ERROR_NONFINITE,
                            "rank " + std::to_string(bad_rank) + ": sendbuf[" + std::to_string(at) + "] is nan",
                            onebit_allreduce_run(reduce.get(), values.data(), output));
                        if (log.rank() == bad_rank) values.data()[at] = input[at];
                        ONEBIT_EXPECT(log, same_bits(get(values.data(), count), input));
                        if (looked_before)
                            ONEBIT_EXPECT(log, same_bits(get(result.data(), count), std::vector<float>(count, 5.0f)));
                        ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), values.data(), output));
                        ONEBIT_EXPECT(log, was_direct(reduce) == (log.size() > 1));
                        ONEBIT_EXPECT(log, same_bits(get(output, count), average(count, log.size(), at)));
                    }
                }
            }
            std::fill_n(values.data(), count, std::numeric_limits<float>::max()); // whose sum overflows
            ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), values.data(), result.data()));
            ONEBIT_EXPECT(log, std::all_of(result.data(), result.data() + count,
                                           [](float v) { return v == std::numeric_limits<float>::max(); }));
        }
    });
}

TEST_CASE("shared buffers may be freed in any order", "[shared][buffers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t count = 5 * slice + 3;
        Allreduce reduce(comm, dense_config(count), log);
        SharedValues kept(comm, 2 * count, log), freed(comm, 2 * count, log);
        ONEBIT_EXPECT(log, (mappings() != 0) == (log.size() > 1));
        const auto run = [&](const SharedValues& memory, std::uint64_t step, bool direct) {
            put(input_of(count, log.rank(), step), memory.data());
            ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), memory.data(), memory.data() + count));
            ONEBIT_EXPECT(log, was_direct(reduce) == (direct && log.size() > 1));
            ONEBIT_EXPECT(log, same_bits(get(memory.data() + count, count), average(count, log.size(), step)));
        };
        run(freed, 0, true);
        // The last rank frees its own memory, and so no longer sees the others': all ranks do without.
        if (log.last_rank()) freed.free();
        run(log.last_rank() ? kept : freed, 1, false);
        run(kept, 2, true);
        kept.free();
        freed.free();
        log.barrier();
        ONEBIT_EXPECT(log, mappings() == 0);
        log.barrier();
    });
}

TEST_CASE("shared buffers may be freed during a call that others have values in", "[shared][buffers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t count = 9 * slice + 3;
        onebit_allreduce_config_t config = dense_config(count);
        config.check = ONEBIT_CHECK_NONE;
        Allreduce reduce(comm, config, log);
        SharedValues kept(comm, count, log), freed(comm, count, log);
        float* const values = log.last_rank() ? kept.data() : freed.data();
        put(input_of(count, log.rank(), 0), values);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_start(reduce.get(), values, values));
        find_values(reduce, log);
        if (log.last_rank()) freed.free();    // though it goes on to read the others' values there
        SharedValues other(comm, count, log); // of another number
        ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(reduce.get()));
        ONEBIT_EXPECT(log, was_direct(reduce) == (log.size() > 1));
        ONEBIT_EXPECT(log, same_bits(get(values, count), average(count, log.size(), 0)));
    });
}

TEST_CASE("a neighbour that averages slowly where values lie is waited for", "[shared][buffers][timeout]") {
    const int n = GENERATE(from_range(rank_counts()));
    if (n != 2) return; // it takes seconds
    const Variable timeout("ONEBIT_TIMEOUT", "2");
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t count = 11 * slice + 3;
        Allreduce reduce(comm, dense_config(count), log);
        SharedValues memory(comm, count, log);
        put(input_of(count, log.rank(), 0), memory.data());
        ONEBIT_EXPECT_OK(log, onebit_allreduce_start(reduce.get(), memory.data(), memory.data()));
        if (log.last_rank()) { // slices at a time: together they exceed the timeout
            for (int done = 0; done == 0;) {
                ONEBIT_EXPECT_OK(log, onebit_allreduce_test(reduce.get(), &done));
                std::this_thread::sleep_for(std::chrono::milliseconds(200));
            }
        }
        ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(reduce.get()));
        ONEBIT_EXPECT(log, was_direct(reduce) == (log.size() > 1));
        ONEBIT_EXPECT(log, same_bits(get(memory.data(), count), average(count, log.size(), 0)));
    });
}

TEST_CASE("shared buffers outlive their communicator, and are its handles' alone", "[shared][buffers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t count = slice;
        SharedValues memory(comm, 2 * count, log);
        Allreduce reduce(comm, dense_config(count), log);
        ONEBIT_EXPECT_OK(log, onebit_comm_destroy(comm));
        log.comm_is_gone();
        put(input_of(count, log.rank(), 0), memory.data());
        ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), memory.data(), memory.data() + count));
        ONEBIT_EXPECT(log, was_direct(reduce) == (log.size() > 1));
        ONEBIT_EXPECT(log, same_bits(get(memory.data() + count, count), average(count, log.size(), 0)));
    });
}

TEST_CASE("compressed calls take shared buffers as any other memory", "[shared][buffers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t count = slice + 5;
        Allreduce plain(comm, flat_config(count), log), shared(comm, flat_config(count), log);
        SharedValues memory(comm, count, log);
        for (std::uint64_t step = 0; step < 3; ++step) {
            const std::vector<float> input = input_of(count, log.rank(), step);
            put(input, memory.data());
            ONEBIT_EXPECT_OK(log, onebit_allreduce_run(shared.get(), memory.data(), memory.data()));
            ONEBIT_EXPECT(log, same_bits(get(memory.data(), count), plain.run(input)));
        }
    });
}

TEST_CASE("ranks on nodes of their own get memory of their own", "[shared][buffers]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable node_size("ONEBIT_NODE_SIZE", "1");
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t count = slice;
        Allreduce reduce(comm, dense_config(count), log);
        const SharedValues memory(comm, count, log);
        std::fill_n(memory.data(), count, static_cast<float>(log.rank()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), memory.data(), memory.data()));
        ONEBIT_EXPECT(log, !was_direct(reduce) && mappings() == 0);
        const float mean = static_cast<float>(log.size() - 1) / 2;
        ONEBIT_EXPECT(log, same_bits(get(memory.data(), count), std::vector<float>(count, mean)));
    });
}

TEST_CASE("ranks one of which can't share get memory of their own", "[shared][buffers]") {
    const int n = GENERATE(from_range(rank_counts()));
    const int left = GENERATE(0, 1); // files that the first rank may open: none; one, so that it can't open the others'
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t count = slice;
        Allreduce reduce(comm, dense_config(count), log);
        log.barrier();
        rlimit files{};
        getrlimit(RLIMIT_NOFILE, &files);
        if (log.rank() == 0) {
            const int next = open("/dev/null", O_RDONLY);
            close(next);
            const rlimit few{static_cast<rlim_t>(next + left), files.rlim_max};
            setrlimit(RLIMIT_NOFILE, &few);
        }
        log.barrier();
        const SharedValues memory(comm, 2 * count, log);
        log.barrier();
        if (log.rank() == 0) setrlimit(RLIMIT_NOFILE, &files);
        log.barrier();
        ONEBIT_EXPECT(log, mappings() == 0);
        put(input_of(count, log.rank(), 0), memory.data());
        ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), memory.data(), memory.data() + count));
        ONEBIT_EXPECT(log, !was_direct(reduce));
        ONEBIT_EXPECT(log, same_bits(get(memory.data() + count, count), average(count, log.size(), 0)));
    });
}

TEST_CASE("bad arguments of shared buffers are refused on every rank", "[shared][buffers]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        int rock = 0;
        void* memory = &rock;
        const std::string culprit = "rank " + std::to_string(log.size() - 1);
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, culprit + ": bytes: 0 is not a size",
                              onebit_mem_alloc(comm, log.last_rank() ? 0 : 4096, &memory));
        ONEBIT_EXPECT(log, memory == nullptr);
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, culprit + ": memory is NULL",
                              onebit_mem_alloc(comm, 4096, log.last_rank() ? nullptr : &memory));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_OUT_OF_MEMORY, culprit + ": bytes: 1152921504606846976 are more",
                              onebit_mem_alloc(comm, log.last_rank() ? std::size_t{1} << 60 : 4096, &memory));
        if (log.size() > 1) { // more than a half of the machine's each
            const auto bytes = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES) / 2 + 1) *
                               static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_OUT_OF_MEMORY, "and those of the node's other ranks, are more",
                                  onebit_mem_alloc(comm, bytes, &memory));
        }
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_HANDLE, onebit_mem_alloc(nullptr, 4096, &memory));
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_ARGUMENT, onebit_mem_free(&rock));
        ONEBIT_EXPECT_OK(log, onebit_mem_free(nullptr));
        ONEBIT_EXPECT_OK(log, onebit_mem_alloc(comm, 1, &memory));
        ONEBIT_EXPECT_OK(log, onebit_mem_free(memory));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "is not from onebit_mem_alloc, or freed",
                              onebit_mem_free(memory));
    });
}

// ---------------------------------------------------------------------------------------------- on two levels ----

TEST_CASE("two levels average a node's values where they lie, to the same bits", "[shared][buffers][two_level]") {
    const auto [n, places_of_node] = GENERATE(table<int, int>({{4, 2}, {6, 2}, {6, 3}}));
    if (!can_have_ranks(n)) return;
    const int places = places_of_node;
    const Variable nodes("ONEBIT_NODE_SIZE", std::to_string(places).c_str());
    const auto check = GENERATE(ONEBIT_CHECK_FULL, ONEBIT_CHECK_NONE);
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const int node = log.rank() / places;
        for (const std::uint64_t count : {std::uint64_t{20}, std::uint64_t{4099}, 2 * slice + 77}) {
            onebit_allreduce_config_t config = form_config(ONEBIT_ALGORITHM_TWO_LEVEL, count);
            config.check = check;
            Allreduce plain(comm, config, log), shared(comm, config, log);
            const SharedValues memory(comm, 2 * count + 3, log);
            for (std::uint64_t step = 0; step < 8; ++step) {
                log.context(std::to_string(count) + " elements, step " + std::to_string(step));
                const std::vector<float> input = make_data(Kind::heavy_tailed, count, 67, log.rank(), step);
                // The first node's last rank sometimes uses other memory: the other nodes are not affected.
                const bool elsewhere = step % 4 == 3, mine = elsewhere && log.rank() == places - 1;
                std::vector<float> own = input;
                float* const from = mine ? own.data() : memory.data() + 1;
                float* const to = step % 2 == 0 ? from : memory.data() + count + 2;
                put(input, from);
                ONEBIT_EXPECT_OK(log, onebit_allreduce_start(shared.get(), from, to));
                ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(shared.get()));
                ONEBIT_EXPECT(log, was_direct(shared) == !(elsewhere && node == 0));
                ONEBIT_EXPECT(log, same_bits(get(to, count), plain.run(input)));
                if (to != from) ONEBIT_EXPECT(log, same_bits(get(from, count), input));
                ONEBIT_EXPECT(log, shared.errors().same_as(plain.errors()));
            }
        }
    });
}

TEST_CASE("two levels do without a buffer that a rank has freed, and hold one that they read",
          "[shared][buffers][two_level]") {
    const int n = GENERATE(from_range(rank_counts()));
    if (n != 4) return;
    const Variable nodes("ONEBIT_NODE_SIZE", "2");
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t count = 9 * slice + 3;
        onebit_allreduce_config_t config = form_config(ONEBIT_ALGORITHM_TWO_LEVEL, count);
        config.check = ONEBIT_CHECK_NONE;
        Allreduce plain(comm, config, log), shared(comm, config, log);
        SharedValues kept(comm, count, log), first(comm, count, log), second(comm, count, log);
        std::vector<float> output(count);
        std::uint64_t step = 0;
        const auto start = [&](const SharedValues& memory) {
            put(make_data(Kind::gaussian, count, 68, log.rank(), step), memory.data());
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(shared.get(), memory.data(), output.data()));
        };
        const auto finish = [&](bool direct) {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(shared.get()));
            ONEBIT_EXPECT(log, was_direct(shared) == direct);
            const std::vector<float> input = make_data(Kind::gaussian, count, 68, log.rank(), step++);
            ONEBIT_EXPECT(log, same_bits(output, plain.run(input)));
        };
        // The last rank has freed its memory, and so doesn't see its neighbour's: their node does without, the other
        // doesn't.
        if (log.last_rank()) first.free();
        start(log.last_rank() ? kept : first);
        finish(log.rank() < 2);

        start(log.last_rank() ? kept : second);
        find_values(shared, log);
        if (log.last_rank()) second.free(); // though it goes on to read its neighbour's values there
        const SharedValues other(comm, count, log);
        finish(true);
    });
}
