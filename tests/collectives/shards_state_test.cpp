// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Saved states of reduce-scatters and all-gathers: a loaded state continues bit for bit; a state that doesn't fit is
// refused by every rank and changes nothing.
#include <filesystem>
#include <limits>
#include <thread>

#include "support/directory.hpp"
#include "support/files.hpp"
#include "support/forge.hpp"
#include "support/shard_handles.hpp"

using namespace onebit_test;

namespace {

// Shards of different sizes, each of a thousand elements or more.
Cut state_cut(int ranks) {
    Cut cut{"state", {}};
    for (std::uint64_t r = 0; r < static_cast<std::uint64_t>(ranks); ++r) cut.counts.push_back(1001 + 313 * r);
    return cut;
}

// Rank 0's bytes of another shape, made over loopback in this very process, whatever transport the test runs on. With a
// history of `calls` calls.
template <class Collective>
Bytes packed_elsewhere(const Cut& cut, Mode mode, int calls) {
    const auto ranks = cut.counts.size();
    std::vector<onebit_comm_t> comms(ranks, nullptr);
    std::vector<Bytes> packed(ranks);
    if (onebit_comm_create_loopback(static_cast<int>(ranks), comms.data()) != ONEBIT_SUCCESS) return {};
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < ranks; ++r) {
        threads.emplace_back([&, r] {
            const onebit_shard_config_t config = shard_config(cut, mode);
            typename Collective::Handle handle = nullptr;
            if (Collective::create(comms[r], &config, &handle) != ONEBIT_SUCCESS) return;
            const std::vector<float> in(cut.total(), 1.25F);
            std::vector<float> out(cut.total());
            for (int call = 0; call < calls; ++call) Collective::run(handle, in.data(), out.data());
            std::uint64_t bytes = 0;
            Collective::state_size(handle, &bytes);
            packed[r].resize(bytes);
            Collective::pack_state(handle, packed[r].data(), bytes);
            Collective::destroy(handle);
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (onebit_comm_t comm : comms) onebit_comm_destroy(comm);
    return packed.front();
}

// A handle with a history, its state as it was packed then, and a later state that no failed load may change.
template <class Collective>
struct Subject {
    Subject(onebit_comm_t comm, RankLog& log_in)
        : log(log_in), cut(state_cut(log.size())), shards(comm, shard_config(cut), log) {
        shards.run_steps(7, 0, 3);
        state = shards.packed();
        shards.run_steps(7, 3, 1);
        before = shards.error();
    }
    void expect_refused(onebit_status_t status, const std::string& needles, const void* bytes, std::uint64_t size) {
        ONEBIT_EXPECT_FAILURE(log, status, needles, Collective::unpack_state(shards.get(), bytes, size));
        expect_bits(log, "the error", shards.error(), before);
    }
    void expect_refused(const Bytes& bytes, const std::string& needles = "rank") {
        // From a block of exactly that size, so that a sanitizer sees any read past it.
        const Bytes exact(bytes);
        expect_refused(ONEBIT_ERROR_BAD_STATE, needles, exact.data(), exact.size());
    }

    RankLog& log;
    Cut cut;
    Shards<Collective> shards;
    Bytes state;
    std::vector<float> before;
};

std::string last_rank_needle(const RankLog& log) {
    return "rank " + std::to_string(log.size() - 1);
}

} // namespace

TEMPLATE_TEST_CASE("shards: a packed state continues bit for bit", "[shards][state]", ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const Cut& cut : {mixed_cut(log.size()), cut_with_zeros(log.size()), equal_cut(log.size(), 33)}) {
            for (const Mode& mode : every_mode()) {
                log.context(mode.name() + ", " + cut.name);
                const onebit_shard_config_t config = shard_config(cut, mode);
                Shards<TestType> uninterrupted(comm, config, log), resumed(comm, config, log);
                uninterrupted.run_steps(5, 0, 4);
                const Bytes state = uninterrupted.packed();
                const std::vector<float> saved = uninterrupted.error();
                Bytes shifted(state.size() + 1); // any alignment
                std::memcpy(shifted.data() + 1, state.data(), state.size());

                resumed.run_steps(99, 0, 2); // a history that must leave no trace
                ONEBIT_EXPECT_OK(log, TestType::unpack_state(resumed.get(), shifted.data() + 1, state.size()));
                expect_bits(log, "the error", resumed.error(), saved);
                expect_bits(log, "the result", resumed.run_steps(5, 4, 3), uninterrupted.run_steps(5, 4, 3));
                expect_bits(log, "the next error", resumed.error(), uninterrupted.error());
                ONEBIT_EXPECT(log, resumed.packed() == uninterrupted.packed());
            }
        }
    });
}

TEMPLATE_TEST_CASE("shards: a state of one that is exact now, or for good", "[shards][state][dense]", ReduceScatter,
                   AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Cut cut = state_cut(log.size());
        Shards<TestType> one(comm, shard_config(cut), log), other(comm, shard_config(cut), log);
        one.run_steps(5, 0, 2);
        one.set_algorithm(ONEBIT_ALGORITHM_DENSE);
        one.run_steps(5, 2, 1);
        const Bytes state = one.packed();
        ONEBIT_EXPECT_OK(log, TestType::unpack_state(other.get(), state.data(), state.size()));
        expect_bits(log, "the error", other.error(), one.error());
        one.set_algorithm(ONEBIT_ALGORITHM_PIPELINED);
        expect_bits(log, "the result", other.run_steps(5, 3, 2), one.run_steps(5, 3, 2));

        Shards<TestType> dense(comm, shard_config(cut, default_mode(), ONEBIT_ALGORITHM_DENSE), log);
        dense.run_steps(5, 0, 2);
        const Bytes exact = dense.packed();
        ONEBIT_EXPECT_OK(log, TestType::unpack_state(dense.get(), exact.data(), exact.size()));
        dense.run_steps(5, 2, 1);
    });
}

TEMPLATE_TEST_CASE("shards: a saved file continues bit for bit and has the promised name", "[shards][state]",
                   ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        SharedDirectory directory(log);
        const Cut cut = mixed_cut(log.size());
        Shards<TestType> uninterrupted(comm, shard_config(cut), log), resumed(comm, shard_config(cut), log);
        uninterrupted.run_steps(5, 0, 4);
        ONEBIT_EXPECT_OK(log, TestType::save(uninterrupted.get(), directory.prefix("a").c_str()));
        std::vector<std::string> expected;
        for (int r = 0; r < log.size(); ++r) expected.push_back(directory.file("a", r).filename().string());
        ONEBIT_EXPECT(log, directory.listing() == expected); // and no temporary file is left
        ONEBIT_EXPECT_OK(log, TestType::load(resumed.get(), directory.prefix("a").c_str()));
        expect_bits(log, "the result", resumed.run_steps(5, 4, 3), uninterrupted.run_steps(5, 4, 3));
        expect_bits(log, "the error", resumed.error(), uninterrupted.error());
        log.barrier();
        // A second save takes the first one's place.
        ONEBIT_EXPECT_OK(log, TestType::save(uninterrupted.get(), directory.prefix("a").c_str()));
        ONEBIT_EXPECT(log, directory.listing() == expected);
        resumed.run_steps(5, 0, 1);
        ONEBIT_EXPECT_OK(log, TestType::load(resumed.get(), directory.prefix("a").c_str()));
        expect_bits(log, "the error", resumed.error(), uninterrupted.error());
        // The bytes of a file are a packed state, too.
        const Bytes file = read_file(directory.file("a", log.rank()));
        resumed.run_steps(5, 0, 1);
        ONEBIT_EXPECT_OK(log, TestType::unpack_state(resumed.get(), file.data(), file.size()));
        expect_bits(log, "the error", resumed.error(), uninterrupted.error());
        log.barrier();
    });
}

TEMPLATE_TEST_CASE("shards: a truncated state on one rank is refused by all", "[shards][state]", ReduceScatter,
                   AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Subject<TestType> subject(comm, log);
        std::vector<std::size_t> cuts = {1, 2, 3, 4, 7, 8, 12, 15, 16, 20, 24, 31, 32, 40, 48, 63, 64, 65, 96, 127};
        for (std::size_t length = 128; length < 4 * 1001; length += 397) cuts.push_back(length);
        for (const std::size_t cut : cuts) {
            log.context("cut to " + std::to_string(cut));
            Bytes bytes = subject.state;
            if (log.last_rank()) bytes.resize(std::min(cut, bytes.size() - 1));
            subject.expect_refused(bytes, last_rank_needle(log));
        }
        for (const std::size_t missing : {1U, 2U, 4U, 8U}) {
            log.context("missing " + std::to_string(missing));
            Bytes bytes = subject.state;
            if (log.rank() == 0) bytes.resize(bytes.size() - missing);
            subject.expect_refused(bytes, "rank 0");
            bytes = subject.state;
            if (log.rank() == 0) bytes.resize(bytes.size() + missing);
            subject.expect_refused(bytes, "rank 0");
        }
        const void* none = log.last_rank() ? nullptr : subject.state.data();
        subject.expect_refused(ONEBIT_ERROR_INVALID_ARGUMENT, last_rank_needle(log) + ";buffer;null", none,
                               subject.state.size());
        ONEBIT_EXPECT_OK(log, TestType::unpack_state(subject.shards.get(), subject.state.data(),
                                                     subject.state.size())); // the sound one still is
    });
}

TEMPLATE_TEST_CASE("shards: a flipped bit anywhere on one rank is refused by all", "[shards][state]", ReduceScatter,
                   AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Subject<TestType> subject(comm, log);
        const std::size_t size = subject.state.size();
        std::vector<std::size_t> places; // from the front and from the back: the ranks' lengths may differ
        for (std::size_t i = 0; i < 192; ++i) places.push_back(i);
        for (std::size_t i = 192; i < 4 * 1001; i += 313) places.push_back(i);
        for (std::size_t i = 0; i < places.size() + 16; ++i) {
            const std::size_t place = i < places.size() ? places[i] % size : size - 1 - (i - places.size());
            log.context("bit in byte " + std::to_string(place));
            Bytes bytes = subject.state;
            const int faulty = static_cast<int>(i % static_cast<std::size_t>(log.size()));
            if (log.rank() == faulty) bytes[place] ^= static_cast<unsigned char>(1U << (i % 8));
            subject.expect_refused(bytes);
        }
        log.context("nothing but one value");
        subject.expect_refused(log.rank() == 0 ? Bytes(size, 0) : subject.state);
        subject.expect_refused(log.rank() == 0 ? Bytes(size, 0xff) : subject.state);
    });
}

TEMPLATE_TEST_CASE("shards: an error that is not finite is refused, whatever its checksum", "[shards][state]",
                   ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Subject<TestType> subject(comm, log);
        for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
            for (int faulty = 0; faulty < log.size(); ++faulty) {
                Bytes bytes = subject.state;
                if (log.rank() == faulty) {
                    put(bytes, bytes.size() - sizeof value, value); // of the last element
                    repair_state(bytes);
                }
                subject.expect_refused(bytes, "rank " + std::to_string(faulty));
            }
        }
    });
}

TEMPLATE_TEST_CASE("shards: a state of another shape or collective is refused", "[shards][state]", ReduceScatter,
                   AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Subject<TestType> subject(comm, log);
        const int ranks = log.size();
        struct Other {
            const char* what;
            Cut cut;
            Mode mode;
        };
        std::vector<Other> others;
        Cut longer = subject.cut, shorter = subject.cut, more = subject.cut;
        ++longer.counts.back();
        shorter.counts.back() /= 2;
        more.counts.push_back(33);
        others.push_back({"one element more", longer, default_mode()});
        others.push_back({"fewer elements", shorter, default_mode()});
        others.push_back({"one rank more", more, default_mode()});
        others.push_back({"codec", subject.cut, {ONEBIT_SCALE_L2, ONEBIT_GROUP_BLOCK, ONEBIT_CODEC_INT8}});
        others.push_back({"codec", subject.cut, {ONEBIT_SCALE_L2, ONEBIT_GROUP_BLOCK, ONEBIT_CODEC_FP4}});
        if (ranks > 1) {
            Cut moved = subject.cut, last_two = subject.cut;
            ++moved.counts[0], --moved.counts[1];
            others.push_back({"another cut of as many", moved, default_mode()});
            if (ranks > 2) { // rank 0's shard is where it was, and as long
                ++last_two.counts[1], --last_two.counts[2];
                others.push_back({"another cut behind it", last_two, default_mode()});
            }
            Cut alone{"one rank", {subject.cut.total()}};
            others.push_back({"one rank", alone, default_mode()});
        }
        for (const Other& other : others) {
            log.context(other.what);
            const Bytes bytes = packed_elsewhere<TestType>(other.cut, other.mode, 3);
            ONEBIT_EXPECT(log, !bytes.empty());
            // Rank 0 alone: there the rank's number does fit.
            subject.expect_refused(log.rank() == 0 ? bytes : subject.state);
        }
        log.context("the other half");
        const Bytes half = packed_elsewhere<OtherHalf<TestType>>(subject.cut, default_mode(), 3);
        subject.expect_refused(log.rank() == 0 ? half : subject.state, "rank 0");
        log.context("an allreduce");
        {
            Allreduce reduce(comm, form_config(ONEBIT_ALGORITHM_PIPELINED, subject.cut.total()), log);
            reduce.run_steps(7, 0, 3);
            const Bytes whole = reduce.packed();
            subject.expect_refused(whole);
            subject.expect_refused(log.last_rank() ? whole : subject.state, last_rank_needle(log));
            const Errors kept = reduce.errors();
            ONEBIT_EXPECT_FAILURE(
                log, ONEBIT_ERROR_BAD_STATE, "rank",
                onebit_allreduce_unpack_state(reduce.get(), subject.state.data(), subject.state.size()));
            ONEBIT_EXPECT(log, reduce.errors().same_as(kept));
        }
        if (ranks > 1) {
            log.context("the neighbour's");
            const std::size_t next = static_cast<std::size_t>((log.rank() + 1) % ranks);
            subject.expect_refused(log.gather_bytes(subject.state.data(), subject.state.size())[next]);
        }
        log.context("sound");
        const Bytes same = packed_elsewhere<TestType>(subject.cut, default_mode(), 3);
        const Bytes& mine = log.rank() == 0 ? same : subject.state; // so the states above were refused for their shape
        ONEBIT_EXPECT_OK(log, TestType::unpack_state(subject.shards.get(), mine.data(), mine.size()));
    });
}

TEMPLATE_TEST_CASE("shards: a state whose error is as long is none of the other half", "[shards][state]", ReduceScatter,
                   AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        // All errors have equal lengths here: the single rank's shard is the whole.
        const Cut cut = single_cut(log.size(), 1000, 0);
        Shards<TestType> one(comm, shard_config(cut), log);
        Shards<OtherHalf<TestType>> half(comm, shard_config(cut), log);
        one.run_steps(5, 0, 2);
        half.run_steps(5, 0, 2);
        const Bytes state = half.packed();
        const std::vector<float> kept = one.error();
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE, "rank",
                              TestType::unpack_state(one.get(), state.data(), state.size()));
        expect_bits(log, "the error", one.error(), kept);
    });
}

TEMPLATE_TEST_CASE("shards: states of different numbers of calls are MISMATCH", "[shards][state]", ReduceScatter,
                   AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    if (n < 2) return;
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Subject<TestType> subject(comm, log);
        const Bytes later = subject.shards.packed();
        for (int odd_one = 0; odd_one < log.size(); ++odd_one) {
            const Bytes& mine = log.rank() == odd_one ? later : subject.state;
            subject.expect_refused(ONEBIT_ERROR_MISMATCH, "rank", mine.data(), mine.size());
        }
    });
}

TEMPLATE_TEST_CASE("shards: files that are missing, damaged or another's are refused by all", "[shards][state]",
                   ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        SharedDirectory directory(log);
        Subject<TestType> subject(comm, log);
        const std::string prefix = directory.prefix("state");
        const auto handle = subject.shards.get();
        const std::string who = last_rank_needle(log);
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_IO, "rank", TestType::load(handle, prefix.c_str()));
        ONEBIT_EXPECT_OK(log, TestType::save(handle, prefix.c_str()));
        const fs::path file = directory.file("state", log.rank());
        const Bytes sound = read_file(file);
        ONEBIT_EXPECT(log, sound.size() > 4 * subject.shards.input_count());
        log.barrier();

        log.context("missing");
        if (log.last_rank()) fs::remove(file);
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_IO, who, TestType::load(handle, prefix.c_str()));
        log.context("damaged");
        for (const std::size_t cut :
             {std::size_t{0}, std::size_t{1}, std::size_t{16}, std::size_t{64}, 4 * std::size_t{1001}}) {
            Bytes damaged = sound;
            damaged.resize(cut);
            if (log.last_rank()) write_file(file, damaged);
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE, who, TestType::load(handle, prefix.c_str()));
        }
        for (const std::size_t place : {std::size_t{0}, std::size_t{9}, sound.size() / 2, sound.size() - 1}) {
            Bytes damaged = sound;
            damaged[place] ^= 0x10;
            if (log.last_rank()) write_file(file, damaged);
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE, who, TestType::load(handle, prefix.c_str()));
        }
        expect_bits(log, "the error", subject.shards.error(), subject.before);
        if (log.last_rank()) write_file(file, sound);
        log.barrier();
        log.context("another collective's");
        Shards<OtherHalf<TestType>> half(comm, shard_config(subject.cut), log);
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE, "rank",
                              OtherHalf<TestType>::load(half.get(), prefix.c_str()));
        log.context("sound");
        ONEBIT_EXPECT_OK(log, TestType::load(handle, prefix.c_str()));
        expect_bits(log, "the error", subject.shards.error(), subject.before);
        log.barrier();
    });
}

TEMPLATE_TEST_CASE("shards: a save that fails leaves the old one, and bad prefixes are refused", "[shards][state]",
                   ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        SharedDirectory directory(log);
        Subject<TestType> subject(comm, log);
        const std::string prefix = directory.prefix("state"), nowhere = directory.prefix("no-such-directory/state");
        const auto handle = subject.shards.get();
        ONEBIT_EXPECT_OK(log, TestType::save(handle, prefix.c_str()));
        const fs::path file = directory.file("state", log.rank());
        const Bytes saved = read_file(file);
        log.barrier();
        const std::vector<std::string> listing = directory.listing();
        subject.shards.run_steps(7, 4, 2);
        const std::vector<float> later = subject.shards.error();
        for (int faulty = 0; faulty < log.size(); ++faulty) {
            log.context("rank " + std::to_string(faulty));
            const std::string who = "rank " + std::to_string(faulty);
            const bool mine = log.rank() == faulty;
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_IO, who,
                                  TestType::save(handle, mine ? nowhere.c_str() : prefix.c_str()));
            for (const char* wrong : {static_cast<const char*>(nullptr), ""}) {
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, who + ";prefix",
                                      TestType::save(handle, mine ? wrong : prefix.c_str()));
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, who + ";prefix",
                                      TestType::load(handle, mine ? wrong : prefix.c_str()));
            }
            ONEBIT_EXPECT(log, read_file(file) == saved);
            log.barrier();
            ONEBIT_EXPECT(log, directory.listing() == listing); // no litter
            log.barrier();
        }
        expect_bits(log, "the error", subject.shards.error(), later);
        ONEBIT_EXPECT_OK(log, TestType::load(handle, prefix.c_str()));
        expect_bits(log, "the error", subject.shards.error(), subject.before);
        log.barrier();
    });
}
