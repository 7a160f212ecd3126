// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// States as blobs in memory. Training goes on from a blob exactly as without it. All ranks refuse a blob that doesn't
// fit, and change nothing.
#include "support/blobs.hpp"

#include <limits>

#include "support/checkpoints.hpp"
#include "support/directory.hpp"
#include "support/files.hpp"
#include "support/forge.hpp"

using namespace onebit_test;

namespace {

// Packs after step `at`; a training with another past unpacks it, and both go on. `has_all`: the rank that has all
// blobs; the others have their own.
void pack_and_go_on(onebit_comm_t comm, RankLog& log, const Setup& setup, std::uint64_t at, int has_all) {
    const Gradient gradient = saved_gradient(1);
    Training uninterrupted(comm, setup, log);
    uninterrupted.steps(gradient, 1, at);
    std::vector<Bytes> blobs = all_packed(uninterrupted.get(), log);
    if (log.rank() == has_all) {
        std::reverse(blobs.begin(), blobs.end());
    } else {
        blobs = {blobs[static_cast<std::size_t>(log.rank())]};
    }
    Training resumed(comm, setup, std::vector<float>(total(setup.sizes), 0.25f), log);
    resumed.steps(saved_gradient(2), 1, at % 9); // a past that must leave no trace
    ONEBIT_EXPECT_OK(log, unpack(resumed.get(), blobs));
    ONEBIT_EXPECT(log, same_state(uninterrupted, resumed));
    for (std::uint64_t t = at + 1; t <= at + 10; ++t) {
        uninterrupted.steps(gradient, t, t);
        resumed.steps(gradient, t, t);
        ONEBIT_EXPECT(log, Snapshot(uninterrupted).same_as(Snapshot(resumed)));
    }
}

// A training that was packed after step 8 and is now in step 11, and a twin without any failures.
struct Subject {
    Subject(onebit_comm_t comm, RankLog& log_in, onebit_optimizer_kind_t kind, std::uint64_t at = 8)
        : log(log_in), training(comm, saved_setup(kind), log), twin(comm, saved_setup(kind), log) {
        training.steps(gradient, 1, at);
        all = all_packed(training.get(), log);
        own = all[static_cast<std::size_t>(log.rank())];
        training.steps(gradient, at + 1, 11);
        twin.steps(gradient, 1, 11);
    }
    void expect_unchanged() { ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin))); }
    void expect_refused(onebit_status_t status, const std::string& needles, const std::vector<Bytes>& blobs) {
        ONEBIT_EXPECT_FAILURE(log, status, needles, unpack(training.get(), blobs));
        expect_unchanged();
    }
    // The last rank comes with other blobs than its own.
    void expect_last_refused(onebit_status_t status, const std::string& needles, const std::vector<Bytes>& blobs) {
        expect_refused(status, "rank " + std::to_string(log.size() - 1) + ";" + needles,
                       log.last_rank() ? blobs : std::vector<Bytes>{own});
    }
    // It trains on like its twin, and the packed state can be unpacked.
    void expect_sound() {
        training.steps(gradient, 12, 14);
        twin.steps(gradient, 12, 14);
        expect_unchanged();
        ONEBIT_EXPECT_OK(log, unpack(training.get(), {own}));
        ONEBIT_EXPECT(log, training.info().steps == 8);
        training.steps(gradient, 9, 14);
        expect_unchanged();
    }

    RankLog& log;
    Gradient gradient = saved_gradient(1);
    Training training, twin;
    std::vector<Bytes> all; // by rank
    Bytes own;
};

} // namespace

TEST_CASE("an optimizer goes on from blobs bit for bit, in every stage", "[optimizer][blobs]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            // As for files: in the warm-up, right at the freeze, after it, between two rounds of 0/1 Adam.
            using Steps = std::vector<std::uint64_t>;
            for (std::uint64_t at : freezes(kind) ? Steps{0, 2, 3, 6, 7, 10, 11, 13, 14, 16} : Steps{0, 3}) {
                for (const onebit_compressed_t compressed : ways_to_compress(kind)) {
                    log.context(name_of(kind) + ", way " + std::to_string(compressed) + ", after step " +
                                std::to_string(at));
                    Setup setup = saved_setup(kind);
                    setup.config.compressed = compressed;
                    setup.config.max_grad_norm = at % 2 == 0 ? 40 : 0;
                    pack_and_go_on(comm, log, setup, at, static_cast<int>(at) % (log.size() + 1));
                }
            }
        }
    });
}

TEST_CASE("blobs of several buckets, whose arrays travel in several slices", "[optimizer][blobs][overlap]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Setup setup{quick_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM), {1500001, 1033, 700000, 5}};
        setup.config.bucket_size = 100000;
        setup.config.freeze_step = 1;
        const Gradient gradient = [](int rank, std::uint64_t step) {
            return make_data(Kind::gaussian, 1500001 + 1033 + 700000 + 5, 3, rank, step);
        };
        Training training(comm, setup, log), other(comm, setup, log);
        for (const std::uint64_t at : {1, 2}) {
            training.steps(gradient, training.info().steps + 1, at);
            ONEBIT_EXPECT_OK(log, unpack(other.get(), {packed(training.get(), log)}));
            ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(other)));
        }
        training.steps(gradient, 3, 3);
        other.steps(gradient, 3, 3);
        ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(other)));
    });
}

TEST_CASE("a blob is what a file is", "[optimizer][blobs][save]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        SharedDirectory directory(log);
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            Training training(comm, saved_setup(kind), log);
            training.steps(saved_gradient(1), 1, 11);
            const std::string saved = directory.prefix("saved");
            ONEBIT_EXPECT_OK(log, onebit_optimizer_save(training.get(), saved.c_str()));
            Training from_file(comm, saved_setup(kind), log), from_blob(comm, saved_setup(kind), log);
            ONEBIT_EXPECT_OK(log, unpack(from_file.get(), {read_file(directory.file("saved", log.rank()))}));
            write_file(directory.file("written", log.rank()), packed(training.get(), log));
            log.barrier();
            ONEBIT_EXPECT_OK(log, onebit_optimizer_load(from_blob.get(), directory.prefix("written").c_str()));
            for (std::uint64_t t = 12; t <= 15; ++t) {
                for (Training* const each : {&training, &from_file, &from_blob}) each->steps(saved_gradient(1), t, t);
                ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(from_file)));
                ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(from_blob)));
            }
        }
    });
}

TEST_CASE("one rank alone can pack, and packing changes nothing", "[optimizer][blobs]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            Training training(comm, saved_setup(kind), log), twin(comm, saved_setup(kind), log);
            for (std::uint64_t t = 1; t <= 14; ++t) {
                log.context(name_of(kind) + " after step " + std::to_string(t));
                training.steps(saved_gradient(1), t, t);
                twin.steps(saved_gradient(1), t, t);
                if (log.last_rank()) {
                    const std::uint64_t sent = training.info().warmup_bytes_sent;
                    ONEBIT_EXPECT(log, packed(training.get(), log) == packed(twin.get(), log));
                    ONEBIT_EXPECT(log, training.info().warmup_bytes_sent == sent);
                }
                ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
            }
        }
    });
}

TEST_CASE("no state is packed or unpacked while a step has begun", "[optimizer][blobs][overlap][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Setup setup = saved_setup(ONEBIT_OPTIMIZER_ONEBIT_ADAM);
        setup.config.bucket_size = 100;
        Training training(comm, setup, log);
        training.steps(saved_gradient(1), 1, 2);
        Bytes blob = packed(training.get(), log);
        std::uint64_t size = 0;
        ONEBIT_EXPECT_OK(log, onebit_optimizer_grad_ready(training.get(), 1));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BUSY, "grad_ready", onebit_optimizer_state_size(training.get(), &size));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BUSY, "grad_ready",
                              onebit_optimizer_pack_state(training.get(), blob.data(), blob.size()));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BUSY, "grad_ready", unpack(training.get(), {blob}));
        ONEBIT_EXPECT_OK(log, onebit_optimizer_step(training.get()));
        ONEBIT_EXPECT_OK(log, unpack(training.get(), {blob}));
        ONEBIT_EXPECT(log, training.info().steps == 2);
    });
}

TEST_CASE("blobs that are truncated or damaged are refused by all", "[optimizer][blobs][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            Subject subject(comm, log, kind);
            const Bytes& sound = subject.all.back();
            const std::size_t size = sound.size();
            const auto refused = [&](const std::string& what, const Bytes& blob, onebit_status_t status) {
                log.context(name_of(kind) + ", " + what);
                subject.expect_last_refused(status, "blobs[0]", {blob});
            };
            for (std::size_t cut : {std::size_t{0}, std::size_t{1}, std::size_t{64}, std::size_t{103}, std::size_t{104},
                                    std::size_t{200}, size / 2, size - 4, size - 1}) {
                // A vector without elements has no address.
                const bool none = cut == 0;
                refused("cut to " + std::to_string(cut),
                        {sound.begin(), sound.begin() + static_cast<std::ptrdiff_t>(cut)},
                        none ? ONEBIT_ERROR_INVALID_ARGUMENT : ONEBIT_ERROR_BAD_STATE);
            }
            for (std::size_t place = 0; place < size; place += place < 104 ? 5 : size / 11) {
                if (place >= kSequenceAt && place < kOptimizerHeader && place < 32) continue; // see below
                Bytes damaged = sound;
                damaged[place] ^= static_cast<unsigned char>(1u << (place % 8));
                refused("a bit in byte " + std::to_string(place), damaged, ONEBIT_ERROR_BAD_STATE);
            }
            Bytes longer = sound;
            longer.push_back(0);
            refused("one byte too long", longer, ONEBIT_ERROR_BAD_STATE);
            Bytes impossible = sound;
            const float nan = std::numeric_limits<float>::quiet_NaN();
            put(impossible, values_at(impossible), nan);
            repair_optimizer(impossible);
            log.context(name_of(kind) + ", a NaN");
            subject.expect_refused(ONEBIT_ERROR_BAD_STATE, "impossible", {log.last_rank() ? impossible : subject.own});
            for (const auto& [rank, ranks] : {std::pair(5u, 5u), {0u, 0u}, {~0u, ~0u}, {0u, ~0u}, {0u, 1u << 21}}) {
                Bytes elsewhere = sound;
                put(elsewhere, 12, rank);
                put(elsewhere, 16, ranks);
                repair_optimizer(elsewhere);
                refused("of rank " + std::to_string(rank) + " of " + std::to_string(ranks), elsewhere,
                        ONEBIT_ERROR_BAD_STATE);
            }
            subject.expect_sound();
        }
    });
}

TEST_CASE("missing, doubled and foreign blobs are refused by all", "[optimizer][blobs][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Subject subject(comm, log, ONEBIT_OPTIMIZER_ZERO_ONE_ADAM);
        const onebit_optimizer_t handle = subject.training.get();
        const void* const blob = subject.own.data();
        const std::uint64_t bytes = subject.own.size();
        const void* const null = nullptr;
        const bool last = log.last_rank();
        const std::string who = "rank " + std::to_string(log.size() - 1) + ";";
        const auto invalid = [&](const std::string& needles, onebit_status_t status) {
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, who + needles, status);
            subject.expect_unchanged();
        };
        invalid("blobs is NULL", onebit_optimizer_unpack_state(handle, last ? nullptr : &blob, &bytes, 1));
        invalid("bytes is NULL", onebit_optimizer_unpack_state(handle, &blob, last ? nullptr : &bytes, 1));
        invalid("num_blobs is 0", onebit_optimizer_unpack_state(handle, &blob, &bytes, last ? 0 : 1));
        invalid("blobs[0] is NULL", onebit_optimizer_unpack_state(handle, last ? &null : &blob, &bytes, 1));
        subject.expect_last_refused(ONEBIT_ERROR_INVALID_ARGUMENT, "blobs[0] and blobs[1] are both of rank",
                                    {subject.own, subject.own});
        if (log.size() > 1) {
            log.context("another rank's");
            subject.expect_last_refused(ONEBIT_ERROR_BAD_STATE, "no blob of rank;but of rank 0", {subject.all[0]});
        }
        log.context("a state of one rank more");
        Bytes of_more = subject.own;
        put(of_more, 16, static_cast<std::uint32_t>(log.size() + 1));
        repair_optimizer(of_more);
        subject.expect_last_refused(ONEBIT_ERROR_BAD_STATE, "blobs[0]", {of_more}); // its pieces have other lengths
        log.context("another kind's");
        Subject other(comm, log, ONEBIT_OPTIMIZER_ONEBIT_ADAM);
        subject.expect_last_refused(ONEBIT_ERROR_BAD_STATE, "blobs[0];kind", {other.own});
        log.context("another model's");
        Training larger(comm, Setup{quick_config(ONEBIT_OPTIMIZER_ZERO_ONE_ADAM), {33, 61, 20, 1, 129}}, log);
        subject.expect_last_refused(ONEBIT_ERROR_BAD_STATE, "blobs[0];elements", {packed(larger.get(), log)});
        subject.expect_sound();
    });
}

TEST_CASE("blobs of different states are not unpacked together", "[optimizer][blobs][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            Subject subject(comm, log, kind);
            Subject later(comm, log, kind, 9);
            Training elsewhere(comm, saved_setup(kind), log);
            elsewhere.steps(saved_gradient(7), 1, 8);
            const std::vector<Bytes> foreign = all_packed(elsewhere.get(), log);
            if (log.size() > 1) { // on one rank: beside its own blob another rank's, of another step or training
                subject.expect_last_refused(ONEBIT_ERROR_MISMATCH, "blobs[1];9 steps;blobs[0];8",
                                            {subject.own, later.all[0]});
                subject.expect_last_refused(ONEBIT_ERROR_MISMATCH, "blobs[1] and blobs[0];two states;8 steps",
                                            {subject.own, foreign[0]});
                // Between ranks.
                subject.expect_refused(ONEBIT_ERROR_MISMATCH, "after how many steps;8;9",
                                       {log.last_rank() ? later.own : subject.own});
                subject.expect_refused(ONEBIT_ERROR_MISMATCH, "which state",
                                       {log.last_rank() ? foreign.back() : subject.own});
            }
            subject.expect_sound();
        }
    });
}

TEST_CASE("a buffer for a state that is NULL or too small", "[optimizer][blobs][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Training training(comm, saved_setup(ONEBIT_OPTIMIZER_ONEBIT_LAMB), log);
        training.steps(saved_gradient(1), 1, 8);
        Bytes blob = packed(training.get(), log);
        const Bytes before = blob;
        const onebit_optimizer_t handle = training.get();
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "bytes is NULL",
                              onebit_optimizer_state_size(handle, nullptr));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "buffer is NULL",
                              onebit_optimizer_pack_state(handle, nullptr, blob.size()));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "the state has " + std::to_string(blob.size()),
                              onebit_optimizer_pack_state(handle, blob.data(), blob.size() - 1));
        ONEBIT_EXPECT(log, blob == before);
        std::uint64_t size = 0;
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_HANDLE, onebit_optimizer_state_size(nullptr, &size));
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_HANDLE, onebit_optimizer_pack_state(nullptr, blob.data(), 1));
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_HANDLE, unpack(nullptr, {blob}));
    });
}
