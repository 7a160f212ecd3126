// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Saved state: a loaded state continues bit for bit; a state that doesn't fit is refused by every rank and changes
// nothing; a failed save harms no earlier one.
#include <algorithm>
#include <filesystem>
#include <thread>

#include "support/directory.hpp"
#include "support/files.hpp"
#include "support/handles.hpp"

using namespace onebit_test;
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t count = 4999;

std::string last_rank_needle(const RankLog& log) {
    return "rank " + std::to_string(log.size() - 1);
}

// Bytes of another shape, made over loopback in this very process, whatever transport the test itself runs on.
Bytes packed_elsewhere(int ranks, const onebit_allreduce_config_t& config) {
    std::vector<onebit_comm_t> comms(static_cast<std::size_t>(ranks), nullptr);
    std::vector<Bytes> packed(comms.size());
    if (onebit_comm_create_loopback(ranks, comms.data()) != ONEBIT_SUCCESS) return {};
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < comms.size(); ++r) {
        threads.emplace_back([&, r] {
            onebit_allreduce_t handle = nullptr;
            if (onebit_allreduce_create(comms[r], &config, &handle) != ONEBIT_SUCCESS) return;
            std::uint64_t bytes = 0;
            onebit_allreduce_state_size(handle, &bytes);
            packed[r].resize(bytes);
            onebit_allreduce_pack_state(handle, packed[r].data(), bytes);
            onebit_allreduce_destroy(handle);
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (onebit_comm_t comm : comms) onebit_comm_destroy(comm);
    return packed.front();
}

// A handle with a history, its state as it was packed then, and a later state that no failed load may change.
struct Subject {
    Subject(onebit_comm_t comm, RankLog& log_in) : log(log_in), reduce(comm, flat_config(count), log) {
        reduce.run_steps(7, 0, 3);
        state = reduce.packed();
        reduce.run_steps(7, 3, 1);
        before = reduce.errors();
    }
    void expect_refused(onebit_status_t status, const std::string& needles, const void* bytes, std::uint64_t size) {
        ONEBIT_EXPECT_FAILURE(log, status, needles, onebit_allreduce_unpack_state(reduce.get(), bytes, size));
        ONEBIT_EXPECT(log, reduce.errors().same_as(before));
    }
    void expect_refused(const Bytes& bytes) {
        // From a block of exactly that size, so that a sanitizer sees any read past it.
        const Bytes exact(bytes);
        expect_refused(ONEBIT_ERROR_BAD_STATE, "rank", exact.data(), exact.size());
    }

    RankLog& log;
    Allreduce reduce;
    Bytes state;
    Errors before;
};

} // namespace

TEST_CASE("a packed state continues bit for bit", "[state]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const Mode& mode : every_mode()) {
            for (std::uint64_t elements : {std::uint64_t{33}, count}) {
                log.context(mode.name() + " " + std::to_string(elements));
                Allreduce uninterrupted(comm, flat_config(elements, mode), log);
                uninterrupted.run_steps(5, 0, 4);
                const Bytes state = uninterrupted.packed();
                const Errors saved = uninterrupted.errors();
                Bytes shifted(state.size() + 1); // any alignment
                std::memcpy(shifted.data() + 1, state.data(), state.size());

                Allreduce resumed(comm, flat_config(elements, mode), log);
                resumed.run_steps(99, 0, 2); // a history that must leave no trace
                ONEBIT_EXPECT_OK(log, onebit_allreduce_unpack_state(resumed.get(), shifted.data() + 1, state.size()));
                ONEBIT_EXPECT(log, resumed.errors().same_as(saved));
                ONEBIT_EXPECT(log, same_bits(resumed.run_steps(5, 4, 3), uninterrupted.run_steps(5, 4, 3)));
                ONEBIT_EXPECT(log, resumed.errors().same_as(uninterrupted.errors()));
                ONEBIT_EXPECT(log, resumed.packed() == uninterrupted.packed());
            }
        }
    });
}

TEST_CASE("a saved file continues bit for bit and has the promised name", "[state]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        SharedDirectory directory(log);
        Allreduce uninterrupted(comm, flat_config(count), log), resumed(comm, flat_config(count), log);
        uninterrupted.run_steps(5, 0, 4);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_save(uninterrupted.get(), directory.prefix("a").c_str()));
        std::vector<std::string> expected;
        for (int r = 0; r < log.size(); ++r) expected.push_back(directory.file("a", r).filename().string());
        ONEBIT_EXPECT(log, directory.listing() == expected); // and no temporary file is left
        ONEBIT_EXPECT_OK(log, onebit_allreduce_load(resumed.get(), directory.prefix("a").c_str()));
        ONEBIT_EXPECT(log, same_bits(resumed.run_steps(5, 4, 3), uninterrupted.run_steps(5, 4, 3)));
        ONEBIT_EXPECT(log, resumed.errors().same_as(uninterrupted.errors()));
        log.barrier();
        // A second save takes the first one's place.
        ONEBIT_EXPECT_OK(log, onebit_allreduce_save(uninterrupted.get(), directory.prefix("a").c_str()));
        ONEBIT_EXPECT(log, directory.listing() == expected);
        resumed.run_steps(5, 0, 1);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_load(resumed.get(), directory.prefix("a").c_str()));
        ONEBIT_EXPECT(log, resumed.errors().same_as(uninterrupted.errors()));
    });
}

TEST_CASE("a truncated state on one rank is refused by all", "[state]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Subject subject(comm, log);
        // The ranks' states may differ in length; each length is tried where it is a truncation.
        std::vector<std::size_t> cuts = {1, 2, 3, 4, 7, 8, 12, 15, 16, 20, 24, 31, 32, 40, 48, 63, 64, 65, 96, 127};
        for (std::size_t length = 128; length < 4 * count; length += 997) cuts.push_back(length);
        for (std::size_t cut : cuts) {
            log.context("cut to " + std::to_string(cut));
            Bytes bytes = subject.state;
            if (log.last_rank()) bytes.resize(std::min(cut, bytes.size() - 1));
            subject.expect_refused(bytes);
        }
        for (std::size_t missing : {1u, 2u, 4u, 8u}) {
            log.context("missing " + std::to_string(missing));
            Bytes bytes = subject.state;
            if (log.rank() == 0) bytes.resize(bytes.size() - missing);
            subject.expect_refused(bytes);
        }
        const void* none = log.last_rank() ? nullptr : subject.state.data();
        subject.expect_refused(ONEBIT_ERROR_INVALID_ARGUMENT, last_rank_needle(log) + ";buffer;null", none,
                               subject.state.size());
        ONEBIT_EXPECT_OK(log, onebit_allreduce_unpack_state(subject.reduce.get(), subject.state.data(),
                                                            subject.state.size())); // the sound one still is
    });
}

TEST_CASE("a flipped bit anywhere on one rank is refused by all", "[state]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Subject subject(comm, log);
        const std::size_t size = subject.state.size();
        std::vector<std::size_t> places; // from the front and from the back: the ranks' lengths may differ
        for (std::size_t i = 0; i < 160; ++i) places.push_back(i);
        for (std::size_t i = 160; i < 4 * count; i += 613) places.push_back(i);
        for (std::size_t i = 0; i < places.size() + 16; ++i) {
            const std::size_t place = i < places.size() ? places[i] % size : size - 1 - (i - places.size());
            log.context("bit in byte " + std::to_string(place));
            Bytes bytes = subject.state;
            const int faulty = static_cast<int>(i % static_cast<std::size_t>(log.size()));
            if (log.rank() == faulty) bytes[place] ^= static_cast<unsigned char>(1u << (i % 8));
            subject.expect_refused(bytes);
        }
        log.context("nothing but one value");
        subject.expect_refused(log.rank() == 0 ? Bytes(size, 0) : subject.state);
        subject.expect_refused(log.rank() == 0 ? Bytes(size, 0xff) : subject.state);
    });
}

TEST_CASE("a state of another shape is refused", "[state]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Subject subject(comm, log);
        struct Other {
            const char* what;
            int ranks;
            std::uint64_t elements;
            Mode mode;
        };
        const std::vector<Other> others = {
            {"world size", log.size() == 1 ? 2 : 1, count, default_mode()},
            {"count + 1", log.size(), count + 1, default_mode()}, // as many words
            {"count / 2", log.size(), count / 2, default_mode()},
            {"scale", log.size(), count, {ONEBIT_SCALE_L1, ONEBIT_GROUP_BLOCK}},
            {"group", log.size(), count, {ONEBIT_SCALE_L1, ONEBIT_GROUP_BUFFER}},
        };
        for (const Other& other : others) {
            log.context(other.what);
            const Bytes bytes = packed_elsewhere(other.ranks, flat_config(other.elements, other.mode));
            ONEBIT_EXPECT(log, !bytes.empty());
            // Rank 0 alone: there the rank's number does fit.
            subject.expect_refused(log.rank() == 0 ? bytes : subject.state);
        }
        if (log.size() > 1) {
            log.context("the neighbour's");
            const std::size_t next = static_cast<std::size_t>((log.rank() + 1) % log.size());
            const std::vector<Bytes> all = log.gather_bytes(subject.state.data(), subject.state.size());
            subject.expect_refused(all[next]);
        }
    });
}

TEST_CASE("files that are missing, damaged or another's are refused by all", "[state]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        SharedDirectory directory(log);
        Subject subject(comm, log);
        const std::string prefix = directory.prefix("state");
        const onebit_allreduce_t handle = subject.reduce.get();
        const std::string who = last_rank_needle(log);
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_IO, "rank", onebit_allreduce_load(handle, prefix.c_str()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_save(handle, prefix.c_str()));
        const fs::path file = directory.file("state", log.rank());
        const Bytes sound = read_file(file);
        ONEBIT_EXPECT(log, sound.size() > 4 * count);
        log.barrier();

        log.context("missing");
        if (log.last_rank()) fs::remove(file);
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_IO, who, onebit_allreduce_load(handle, prefix.c_str()));
        log.context("damaged");
        for (const std::size_t cut : {std::size_t{0}, std::size_t{1}, std::size_t{16}, std::size_t{64}, 4 * count}) {
            Bytes damaged = sound;
            damaged.resize(cut);
            if (log.last_rank()) write_file(file, damaged);
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE, who, onebit_allreduce_load(handle, prefix.c_str()));
        }
        for (const std::size_t place : {std::size_t{0}, std::size_t{9}, sound.size() / 2, sound.size() - 1}) {
            Bytes damaged = sound;
            damaged[place] ^= 0x10;
            if (log.last_rank()) write_file(file, damaged);
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE, who, onebit_allreduce_load(handle, prefix.c_str()));
        }
        log.context("a directory");
        if (log.last_rank()) {
            fs::remove(file);
            fs::create_directory(file);
        }
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_IO, who, onebit_allreduce_load(handle, prefix.c_str()));
        ONEBIT_EXPECT(log, subject.reduce.errors().same_as(subject.before));
        if (log.last_rank()) {
            fs::remove(file);
            write_file(file, sound);
        }
        log.barrier();
        ONEBIT_EXPECT_OK(log, onebit_allreduce_load(handle, prefix.c_str()));
    });
}

TEST_CASE("an old save survives one that fails", "[state]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        SharedDirectory directory(log);
        Subject subject(comm, log);
        const std::string prefix = directory.prefix("state");
        const onebit_allreduce_t handle = subject.reduce.get();
        ONEBIT_EXPECT_OK(log, onebit_allreduce_save(handle, prefix.c_str()));
        const fs::path file = directory.file("state", log.rank());
        const Bytes saved = read_file(file);
        if (log.rank() == 0) write_file(directory.prefix("a-file"), {1});
        const std::vector<std::string> listing = [&] {
            log.barrier();
            return directory.listing();
        }();
        subject.reduce.run_steps(7, 4, 2);
        const Errors later = subject.reduce.errors();

        // One rank can't write: no such directory; and a file where a directory should be.
        const std::vector<std::string> unwritable = {directory.prefix("no-such-directory/state"),
                                                     directory.prefix("a-file/state")};
        for (const std::string& bad : unwritable) {
            for (int faulty = 0; faulty < log.size(); ++faulty) {
                log.context(bad + " on rank " + std::to_string(faulty));
                const std::string& mine = log.rank() == faulty ? bad : prefix;
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_IO, "rank " + std::to_string(faulty),
                                      onebit_allreduce_save(handle, mine.c_str()));
                ONEBIT_EXPECT(log, read_file(file) == saved);
                log.barrier();
                ONEBIT_EXPECT(log, directory.listing() == listing); // no litter
                log.barrier();
            }
        }
        ONEBIT_EXPECT(log, subject.reduce.errors().same_as(later));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_load(handle, prefix.c_str()));
        ONEBIT_EXPECT(log, subject.reduce.errors().same_as(subject.before));
    });
}

TEST_CASE("NULL and empty prefixes on one rank", "[state]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        SharedDirectory directory(log);
        Subject subject(comm, log);
        const std::string prefix = directory.prefix("state");
        const std::string who = last_rank_needle(log) + ";prefix";
        const onebit_allreduce_t handle = subject.reduce.get();
        const onebit_status_t bad = ONEBIT_ERROR_INVALID_ARGUMENT;
        for (const char* wrong : {static_cast<const char*>(nullptr), ""}) {
            ONEBIT_EXPECT_FAILURE(log, bad, who,
                                  onebit_allreduce_save(handle, log.last_rank() ? wrong : prefix.c_str()));
            log.barrier();
            ONEBIT_EXPECT(log, directory.listing().empty());
            log.barrier();
        }
        ONEBIT_EXPECT_OK(log, onebit_allreduce_save(handle, prefix.c_str())); // so that only the prefix is at fault
        for (const char* wrong : {static_cast<const char*>(nullptr), ""})
            ONEBIT_EXPECT_FAILURE(log, bad, who,
                                  onebit_allreduce_load(handle, log.last_rank() ? wrong : prefix.c_str()));
        ONEBIT_EXPECT(log, subject.reduce.errors().same_as(subject.before));
    });
}
