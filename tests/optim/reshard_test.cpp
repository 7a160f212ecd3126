// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// A state that is saved by one number of ranks and loaded by another. Only ranks in a single process can create
// communicators of several sizes one after another, so these tests are for threads alone.
#include "optim/moved_states.hpp"
#include "support/blobs.hpp"
#include "support/files.hpp"
#include "support/training.hpp"

using namespace onebit_test;

namespace {

// Several tensors, one of them never compressed, and one row without a gradient.
Setup moved_setup(onebit_optimizer_kind_t kind) {
    Setup setup{quick_config(kind), {1330, 610, 200, 1, 3000}};
    setup.groups.assign(2, ONEBIT_PARAM_GROUP_INIT(0.01));
    setup.groups[1].no_compress = 1;
    setup.group_of = {0, 0, 1, 0, 0};
    setup.copies = true;
    setup.copy_type = ONEBIT_BFLOAT16;
    return setup;
}

Gradient moved_gradient(std::uint64_t row_begins = UINT64_MAX) {
    return beginning_late(gaussian_gradient(1330 + 610 + 200 + 1 + 3000, 1), 40, 50, row_begins);
}

bool near(const std::vector<double>& a, const std::vector<double>& b, const std::vector<double>& magnitude) {
    bool all = a.size() == b.size();
    for (std::size_t i = 0; all && i < a.size(); ++i) all = std::fabs(a[i] - b[i]) <= 1e-6 * magnitude[i];
    return all;
}

// Trains on `ranks` ranks and saves after step `at`.
Whole trained_and_saved(const OwnDirectory& directory, const Setup& setup, int ranks, std::uint64_t at) {
    Whole saved;
    run_ranks(ranks, [&](onebit_comm_t comm, RankLog& log) {
        Training training(comm, setup, log);
        training.steps(moved_gradient(), 1, at);
        const Whole whole = whole_of(training, log.size(), log);
        if (log.rank() == 0) saved = whole;
        ONEBIT_EXPECT_OK(log, onebit_optimizer_save(training.get(), directory.prefix().c_str()));
    });
    return saved;
}

void expect_moved(Training& training, RankLog& log, const Whole& saved) {
    const Whole loaded = whole_of(training, log.size(), log);
    ONEBIT_EXPECT(log, training.parameters_same_on_all());
    std::vector<double> size;
    for (double x : saved.parameters) size.push_back(std::fabs(x) + 1);
    ONEBIT_EXPECT(log, near(loaded.parameters, saved.parameters, size)); // the mean, where ranks differed
    ONEBIT_EXPECT(log, near(loaded.undelivered, saved.undelivered, saved.magnitude));
    ONEBIT_EXPECT(log, training.copies() == converted(training.parameters(), ONEBIT_BFLOAT16));
    const onebit_optimizer_info_t &now = loaded.info, &then = saved.info;
    ONEBIT_EXPECT(log, now.steps == then.steps && now.freeze_step == then.freeze_step);
    ONEBIT_EXPECT(log, now.frozen == then.frozen && now.masked == then.masked);
    ONEBIT_EXPECT(log, now.exact_rounds == then.exact_rounds && now.compressed_rounds == then.compressed_rounds);
}

// Ten more steps, with rounds at the same steps as without the move.
void expect_goes_on(Training& training, RankLog& log, std::uint64_t at) {
    const std::vector<float> start = training.parameters();
    for (std::uint64_t t = at + 1; t <= at + 10; ++t) {
        const onebit_optimizer_info_t before = training.info();
        training.steps(moved_gradient(), t, t);
        const onebit_optimizer_info_t after = training.info();
        const bool exchanged =
            after.exact_rounds + after.compressed_rounds > before.exact_rounds + before.compressed_rounds;
        if (exchanged) ONEBIT_EXPECT(log, training.parameters_same_on_all());
    }
    std::size_t moved = 0, finite = 0;
    const std::vector<float> now = training.parameters();
    for (std::size_t i = 0; i < now.size(); ++i) {
        const bool has_moved = now[i] != start[i];
        if (i >= 40 && i < 50) ONEBIT_EXPECT(log, !has_moved); // the row without a gradient
        moved += has_moved ? 1 : 0;
        finite += std::isfinite(now[i]) ? 1 : 0;
    }
    ONEBIT_EXPECT(log, moved >= now.size() - 12); // a few may have come back by chance
    ONEBIT_EXPECT(log, finite == now.size());
}

void move(onebit_optimizer_kind_t kind, int from, int to, std::uint64_t at, std::uint64_t bucket_size) {
    INFO(name_of(kind) << " after step " << at << ", from " << from << " to " << to << " ranks, bucket_size "
                       << bucket_size);
    const OwnDirectory directory;
    Setup setup = moved_setup(kind);
    setup.config.compressed = from < to ? ways_to_compress(kind).back() : ONEBIT_COMPRESSED_UPDATES;
    setup.config.bucket_size = bucket_size;
    const Whole saved = trained_and_saved(directory, setup, from, at);
    run_ranks(to, [&](onebit_comm_t comm, RankLog& log) {
        log.context(name_of(kind) + " after step " + std::to_string(at));
        Training training(comm, setup, std::vector<float>(total(setup.sizes), 0.25f), log);
        ONEBIT_EXPECT_OK(log, onebit_optimizer_load(training.get(), directory.prefix().c_str()));
        expect_moved(training, log, saved);
        // Without local steps the parameters are exactly the same.
        const bool parted = kind == ONEBIT_OPTIMIZER_ZERO_ONE_ADAM && at == 11;
        if (!parted) ONEBIT_EXPECT(log, same_bits(training.parameters(), saved.first));
        expect_goes_on(training, log, at);
    });
}

} // namespace

TEST_CASE("other numbers of ranks take over a state", "[optimizer][save][reshard]") {
    const onebit_optimizer_kind_t kind = GENERATE(from_range(all_kinds()));
    for (const auto& [from, to] : std::vector<std::pair<int, int>>{{4, 2}, {4, 3}, {2, 4}, {3, 1}, {1, 3}})
        for (std::uint64_t at : {3, 6, 10, 11}) // warm-up, freeze, compression, between two of 0/1 Adam's rounds
            move(kind, from, to, at, at % 2 == 1 ? 1500 : 0);
}

// If all ranks have the same gradients, their number makes no difference: every worker sends the same message, with one
// scale for its whole buffer, and the servers have nothing to add.
TEST_CASE("equal ranks go on elsewhere as they would have", "[optimizer][save][reshard]") {
    const onebit_optimizer_kind_t kind = GENERATE(from_range(all_kinds()));
    const auto [from, to] = GENERATE(table<int, int>({{4, 2}, {4, 3}, {2, 4}}));
    const std::uint64_t at = GENERATE(3, 6, 10, 11);
    INFO(name_of(kind) << " after step " << at << ", from " << from << " to " << to << " ranks");
    Setup setup = moved_setup(kind);
    setup.config.group = ONEBIT_GROUP_BUFFER;
    const OwnDirectory directory;
    const Gradient gradient = [](int, std::uint64_t t) { return moved_gradient()(0, t); };
    std::vector<float> expected;
    run_ranks(from, [&](onebit_comm_t comm, RankLog& log) {
        Training training(comm, setup, log);
        training.steps(gradient, 1, at);
        ONEBIT_EXPECT_OK(log, onebit_optimizer_save(training.get(), directory.prefix().c_str()));
        training.steps(gradient, at + 1, at + 10);
        if (log.rank() == 0) expected = training.parameters();
    });
    run_ranks(to, [&](onebit_comm_t comm, RankLog& log) {
        Training training(comm, setup, std::vector<float>(total(setup.sizes), 0.25f), log);
        ONEBIT_EXPECT_OK(log, onebit_optimizer_load(training.get(), directory.prefix().c_str()));
        training.steps(gradient, at + 1, at + 10);
        const std::vector<float> now = training.parameters();
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < now.size(); ++i)
            wrong += std::fabs(now[i] - expected[i]) <= 1e-4f * (1 + std::fabs(expected[i])) ? 0 : 1;
        ONEBIT_EXPECT(log, wrong == 0);
    });
}

TEST_CASE("a state that has moved is saved and loaded as any other", "[optimizer][save][reshard]") {
    const onebit_optimizer_kind_t kind = GENERATE(from_range(all_kinds()));
    const OwnDirectory directory;
    const Setup setup = moved_setup(kind);
    trained_and_saved(directory, setup, 4, 11);
    run_ranks(2, [&](onebit_comm_t comm, RankLog& log) {
        Training training(comm, setup, log), again(comm, setup, log);
        ONEBIT_EXPECT_OK(log, onebit_optimizer_load(training.get(), directory.prefix().c_str()));
        training.steps(moved_gradient(), 12, 13);
        ONEBIT_EXPECT_OK(log, onebit_optimizer_save(training.get(), directory.prefix().c_str()));
        // Beside files of another number of ranks, it loads its own.
        ONEBIT_EXPECT_OK(log, onebit_optimizer_load(again.get(), directory.prefix().c_str()));
        ONEBIT_EXPECT(log, again.info().steps == 13);
        training.steps(moved_gradient(), 14, 20);
        again.steps(moved_gradient(), 14, 20);
        ONEBIT_EXPECT(log, same_bits(training.parameters(), again.parameters()));
        ONEBIT_EXPECT(log, training.errors().same_as(again.errors()));
    });
    for (int r = 0; r < 4; ++r) CHECK(fs::exists(directory.file(r, 4)));
}

// Elements 40 to 49 have gradients from step 8 on. Their admission is due at step 12.
TEST_CASE("masked elements that wait to be admitted are, by another number of ranks", "[optimizer][save][mask]") {
    const onebit_optimizer_kind_t kind = GENERATE(from_range(freezing_kinds()));
    const auto [from, to] = GENERATE(table<int, int>({{4, 2}, {3, 1}, {1, 3}}));
    INFO(name_of(kind) << ", from " << from << " to " << to << " ranks");
    Setup setup = moved_setup(kind);
    setup.groups[0].beta2 = 0.9;
    setup.config.follow_interval = 6;
    setup.config.thaw_ratio = 1e6;
    setup.config.bucket_size = 1500;
    const OwnDirectory directory;
    run_ranks(from, [&](onebit_comm_t comm, RankLog& log) {
        Training training(comm, setup, log);
        training.steps(moved_gradient(8), 1, 9);
        ONEBIT_EXPECT(log, training.info().masked == 10);
        ONEBIT_EXPECT_OK(log, onebit_optimizer_save(training.get(), directory.prefix().c_str()));
    });
    run_ranks(to, [&](onebit_comm_t comm, RankLog& log) {
        Training training(comm, setup, log);
        ONEBIT_EXPECT_OK(log, onebit_optimizer_load(training.get(), directory.prefix().c_str()));
        const std::vector<float> start = training.parameters();
        // There are no more gradients: only the saved ones count.
        const auto idle = [&](int, std::uint64_t) { return std::vector<float>(training.count()); };
        training.steps(idle, 10, 16);
        const std::vector<float> now = training.parameters();
        ONEBIT_EXPECT(log, training.info().masked == 0);
        std::size_t moved = 0;
        for (std::size_t i = 40; i < 50; ++i) moved += now[i] != start[i] && std::isfinite(now[i]) ? 1 : 0;
        ONEBIT_EXPECT(log, moved == 10);
    });
}

TEST_CASE("another number's files that are missing or damaged are refused by all", "[optimizer][save][reshard]") {
    const onebit_optimizer_kind_t kind = GENERATE(from_range(all_kinds()));
    const OwnDirectory directory;
    const Setup setup = moved_setup(kind);
    const Whole saved = trained_and_saved(directory, setup, 4, 10);
    for (int ranks : {1, 2, 3}) {
        run_ranks(ranks, [&](onebit_comm_t comm, RankLog& log) {
            Training training(comm, setup, log), twin(comm, setup, log);
            training.steps(moved_gradient(), 1, 8);
            twin.steps(moved_gradient(), 1, 8);
            const auto expect_refused = [&](onebit_status_t status) {
                log.barrier();
                ONEBIT_EXPECT_FAILURE(log, status, "rank",
                                      onebit_optimizer_load(training.get(), directory.prefix().c_str()));
                ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
                log.barrier();
            };
            for (int r = 0; r < 4; ++r) {
                log.context("file " + std::to_string(r) + " of 4");
                const fs::path file = directory.file(r, 4), aside = directory.prefix() + "-aside";
                const Bytes sound = read_file(file);
                log.barrier();
                if (log.rank() == 0) fs::rename(file, aside);
                expect_refused(ONEBIT_ERROR_IO);
                Bytes damaged = sound;
                damaged[damaged.size() / 2] ^= 4;
                if (log.rank() == 0) write_file(file, damaged);
                expect_refused(ONEBIT_ERROR_BAD_STATE);
                if (log.rank() == 0) write_file(file, {sound.begin(), sound.end() - 5});
                expect_refused(ONEBIT_ERROR_BAD_STATE);
                if (log.rank() == 0) fs::rename(aside, file);
            }
            log.barrier();
            training.steps(moved_gradient(), 9, 12);
            twin.steps(moved_gradient(), 9, 12);
            ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
            ONEBIT_EXPECT_OK(log, onebit_optimizer_load(training.get(), directory.prefix().c_str()));
            expect_moved(training, log, saved);
        });
    }
}

TEST_CASE("another model's state is refused by another number of ranks", "[optimizer][save][reshard]") {
    const OwnDirectory directory;
    trained_and_saved(directory, moved_setup(ONEBIT_OPTIMIZER_ONEBIT_ADAM), 4, 8);
    run_ranks(2, [&](onebit_comm_t comm, RankLog& log) {
        Setup other = moved_setup(ONEBIT_OPTIMIZER_ONEBIT_LAMB);
        Training lamb(comm, other, log);
        other = moved_setup(ONEBIT_OPTIMIZER_ONEBIT_ADAM);
        std::swap(other.sizes[0], other.sizes[1]);
        Training split(comm, other, log);
        for (Training* training : {&lamb, &split}) {
            const Snapshot before(*training);
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE, "rank",
                                  onebit_optimizer_load(training->get(), directory.prefix().c_str()));
            ONEBIT_EXPECT(log, Snapshot(*training).same_as(before));
        }
    });
}

// The same as from files, to the bit.
TEST_CASE("other numbers of ranks take over a state from blobs", "[optimizer][blobs][reshard]") {
    const onebit_optimizer_kind_t kind = GENERATE(from_range(all_kinds()));
    const auto [from, to] = GENERATE(table<int, int>({{4, 2}, {4, 3}, {2, 4}, {3, 1}, {1, 3}}));
    for (const std::uint64_t at : {3, 6, 10, 11}) {
        INFO(name_of(kind) << " after step " << at << ", from " << from << " to " << to << " ranks");
        const OwnDirectory directory;
        Setup setup = moved_setup(kind);
        setup.config.bucket_size = at % 2 == 1 ? 1500 : 0;
        std::vector<Bytes> blobs;
        run_ranks(from, [&](onebit_comm_t comm, RankLog& log) {
            Training training(comm, setup, log);
            training.steps(moved_gradient(), 1, at);
            const std::vector<Bytes> all = all_packed(training.get(), log);
            if (log.rank() == 0) blobs = all;
            ONEBIT_EXPECT_OK(log, onebit_optimizer_save(training.get(), directory.prefix().c_str()));
        });
        run_ranks(to, [&](onebit_comm_t comm, RankLog& log) {
            const std::vector<float> elsewhere(total(setup.sizes), 0.25f);
            Training loaded(comm, setup, elsewhere, log), unpacked(comm, setup, elsewhere, log);
            ONEBIT_EXPECT_OK(log, onebit_optimizer_load(loaded.get(), directory.prefix().c_str()));
            std::vector<Bytes> mine = blobs;
            if (log.last_rank()) std::reverse(mine.begin(), mine.end());
            ONEBIT_EXPECT_OK(log, unpack(unpacked.get(), mine));
            for (std::uint64_t t = at + 1; t <= at + 8; ++t) {
                ONEBIT_EXPECT(log, Snapshot(loaded).same_as(Snapshot(unpacked)));
                loaded.steps(moved_gradient(), t, t);
                unpacked.steps(moved_gradient(), t, t);
            }
        });
    }
}

TEST_CASE("another number's blobs that are missing or mixed are refused by all", "[optimizer][blobs][reshard]") {
    const Setup setup = moved_setup(ONEBIT_OPTIMIZER_ONEBIT_ADAM);
    std::vector<Bytes> blobs, later, of_three;
    for (const int ranks : {4, 3}) {
        run_ranks(ranks, [&](onebit_comm_t comm, RankLog& log) {
            Training training(comm, setup, log);
            training.steps(moved_gradient(), 1, 8);
            const std::vector<Bytes> first = all_packed(training.get(), log);
            training.steps(moved_gradient(), 9, 9);
            const std::vector<Bytes> second = all_packed(training.get(), log);
            if (log.rank() > 0) return;
            (ranks == 4 ? blobs : of_three) = first;
            if (ranks == 4) later = second;
        });
    }
    run_ranks(2, [&](onebit_comm_t comm, RankLog& log) {
        Training training(comm, setup, log), twin(comm, setup, log);
        const auto refused = [&](onebit_status_t status, const std::string& needles, std::vector<Bytes> mine) {
            ONEBIT_EXPECT_FAILURE(log, status, needles, unpack(training.get(), log.last_rank() ? mine : blobs));
            ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
        };
        for (std::size_t missing = 0; missing < 4; ++missing) {
            std::vector<Bytes> mine = blobs;
            mine.erase(mine.begin() + static_cast<std::ptrdiff_t>(missing));
            refused(ONEBIT_ERROR_BAD_STATE, "rank 1;no blob of rank " + std::to_string(missing), mine);
            mine = blobs;
            mine[missing] = later[missing];
            refused(ONEBIT_ERROR_MISMATCH, "rank 1;blobs[;8;9", mine);
            mine = blobs;
            mine[missing] = of_three[0];
            refused(ONEBIT_ERROR_MISMATCH, "rank 1;3;4", mine);
        }
        refused(ONEBIT_ERROR_MISMATCH, "how many ranks;4;3", of_three);
        refused(ONEBIT_ERROR_MISMATCH, "after how many steps;8;9", later);
        ONEBIT_EXPECT_OK(log, unpack(training.get(), blobs));
        training.steps(moved_gradient(), 9, 12);
    });
}
