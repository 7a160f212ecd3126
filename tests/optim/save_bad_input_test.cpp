// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Saves and loads that fail: every rank reports the failure and its reason, no earlier save is damaged, and training
// goes on as without the call.
#include "support/directory.hpp"
#include "support/files.hpp"
#include "support/training.hpp"

using namespace onebit_test;

namespace {

const Sizes& sizes() {
    static const Sizes both = {140, 61, 100};
    return both;
}

const Gradient& gradient() {
    static const Gradient all = gaussian_gradient(total(sizes()), 1);
    return all;
}

Setup subject_setup(onebit_optimizer_kind_t kind) {
    Setup setup{quick_config(kind), sizes()};
    setup.groups.assign(2, ONEBIT_PARAM_GROUP_INIT(0.01));
    setup.group_of = {0, 1, 0};
    setup.copies = true;
    setup.copy_type = ONEBIT_BFLOAT16;
    return setup;
}

// A training that was saved after step 8 and is now in step 11, and a twin without failures.
struct Subject {
    Subject(onebit_comm_t comm, RankLog& log_in, onebit_optimizer_kind_t kind)
        : log(log_in),
          directory(log),
          prefix(directory.prefix("state")),
          file(directory.file("state", log.rank())),
          training(comm, subject_setup(kind), log),
          twin(comm, subject_setup(kind), log) {
        training.steps(gradient(), 1, 8);
        ONEBIT_EXPECT_OK(log, onebit_optimizer_save(training.get(), prefix.c_str()));
        sound = read_file(file);
        ONEBIT_EXPECT(log, sound.size() > 4 * total(sizes()) / static_cast<std::size_t>(log.size()));
        last_sound = log.gather_bytes(sound.data(), sound.size()).back();
        training.steps(gradient(), 9, 11);
        twin.steps(gradient(), 1, 11);
        log.barrier();
    }
    void expect_unchanged() { ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin))); }
    void expect_load_fails(onebit_status_t status, const std::string& needles) {
        log.barrier(); // every rank reads every file: only after all changes to them
        ONEBIT_EXPECT_FAILURE(log, status, needles, onebit_optimizer_load(training.get(), prefix.c_str()));
        expect_unchanged();
    }
    void expect_save_fails(onebit_status_t status, const std::string& needles, const char* where) {
        ONEBIT_EXPECT_FAILURE(log, status, needles, onebit_optimizer_save(training.get(), where));
        expect_unchanged();
    }
    // It trains on like its twin, and the earlier save can be loaded.
    void expect_sound() {
        for (std::uint64_t t = 12; t <= 16; ++t) {
            training.steps(gradient(), t, t);
            twin.steps(gradient(), t, t);
            expect_unchanged();
        }
        ONEBIT_EXPECT_OK(log, onebit_optimizer_load(training.get(), prefix.c_str()));
        ONEBIT_EXPECT(log, training.info().steps == 8);
        training.steps(gradient(), 9, 16);
        expect_unchanged();
    }
    // Every rank reads every file. Any rank may report the error first, but the message must name the file.
    std::string last_file() const {
        return "state." + std::to_string(log.size() - 1) + "-of-" + std::to_string(log.size()) + ".onebit";
    }
    std::string last() const { return "rank " + std::to_string(log.size() - 1); }

    RankLog& log;
    SharedDirectory directory;
    std::string prefix;
    fs::path file;
    Training training, twin;
    Bytes sound;      // this rank's file
    Bytes last_sound; // the last rank's, which the tests damage; its length tells all ranks where
};

} // namespace

TEST_CASE("optimizer files that are missing or damaged are refused by all", "[optimizer][save][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            Subject subject(comm, log, kind);
            const auto with_file = [&](const std::string& what, const Bytes& bytes) {
                log.context(name_of(kind) + ", " + what);
                if (log.last_rank()) write_file(subject.file, bytes);
                subject.expect_load_fails(ONEBIT_ERROR_BAD_STATE, subject.last_file());
            };
            const std::size_t size = subject.last_sound.size();
            for (std::size_t cut : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{16}, std::size_t{64},
                                    std::size_t{200}, size / 2, size - 4, size - 1})
                with_file("cut to " + std::to_string(cut),
                          {subject.last_sound.begin(), subject.last_sound.begin() + static_cast<std::ptrdiff_t>(cut)});
            for (std::size_t place = 0; place < size; place += place < 96 ? 5 : size / 11) {
                Bytes damaged = subject.last_sound;
                damaged[place] ^= static_cast<unsigned char>(1u << (place % 8));
                with_file("a bit in byte " + std::to_string(place), damaged);
            }
            with_file("zeros", Bytes(size, 0));
            Bytes longer = subject.last_sound;
            longer.push_back(0);
            with_file("longer", longer);

            log.context(name_of(kind) + ", no file");
            if (log.last_rank()) fs::remove(subject.file);
            subject.expect_load_fails(ONEBIT_ERROR_IO, subject.last_file());
            log.context(name_of(kind) + ", a directory");
            if (log.last_rank()) fs::create_directory(subject.file);
            subject.expect_load_fails(ONEBIT_ERROR_IO, subject.last_file());
            if (log.last_rank()) {
                fs::remove(subject.file);
                write_file(subject.file, subject.last_sound);
            }
            log.barrier();
            subject.expect_sound();
        }
    });
}

TEST_CASE("no files at all", "[optimizer][save][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Subject subject(comm, log, ONEBIT_OPTIMIZER_ONEBIT_ADAM);
        for (const std::string& nowhere : {subject.directory.prefix("nothing"), subject.directory.prefix("no/where")}) {
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_IO, "rank",
                                  onebit_optimizer_load(subject.training.get(), nowhere.c_str()));
            subject.expect_unchanged();
        }
        subject.expect_sound();
    });
}

TEST_CASE("another model's state is refused", "[optimizer][save][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    struct Other {
        const char* what;
        std::function<void(Setup&)> change;
    };
    const std::vector<Other> others = {
        {"one tensor fewer",
         [](Setup& setup) {
             setup.sizes.pop_back();
             setup.group_of.pop_back();
         }},
        {"one tensor more",
         [](Setup& setup) {
             setup.sizes.push_back(5);
             setup.group_of.push_back(0);
         }},
        {"another count", [](Setup& setup) { setup.sizes[2] = 101; }},
        {"the same in all, split differently",
         [](Setup& setup) {
             setup.sizes = {61, 140, 100};
         }},
        {"other groups",
         [](Setup& setup) {
             setup.group_of = {1, 1, 0};
         }},
    };
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        Subject subject(comm, log, ONEBIT_OPTIMIZER_ONEBIT_ADAM);
        const auto expect_refused = [&](const Setup& setup) {
            Training training(comm, setup, log), twin(comm, setup, log);
            const Gradient own = gaussian_gradient(total(setup.sizes), 5);
            training.steps(own, 1, 3);
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE, "rank",
                                  onebit_optimizer_load(training.get(), subject.prefix.c_str()));
            training.steps(own, 4, 9);
            twin.steps(own, 1, 9);
            ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
        };
        for (const Other& other : others) {
            log.context(other.what);
            Setup setup = subject_setup(ONEBIT_OPTIMIZER_ONEBIT_ADAM);
            other.change(setup);
            expect_refused(setup);
        }
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context("a " + name_of(kind));
            if (kind != ONEBIT_OPTIMIZER_ONEBIT_ADAM) expect_refused(subject_setup(kind));
        }
        log.context("");
        subject.expect_sound();
    });
}

TEST_CASE("files of two saves of an optimizer are not loaded together", "[optimizer][save][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Subject subject(comm, log, ONEBIT_OPTIMIZER_ONEBIT_ADAM);
        if (log.size() == 1) return;
        const std::string second = subject.directory.prefix("second");
        ONEBIT_EXPECT_OK(log, onebit_optimizer_save(subject.training.get(), second.c_str()));
        const std::string& mixed = log.last_rank() ? second : subject.prefix;
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "saved;rank",
                              onebit_optimizer_load(subject.training.get(), mixed.c_str()));
        subject.expect_unchanged();
        subject.expect_sound();
    });
}

TEST_CASE("an optimizer's old save survives one that fails", "[optimizer][save][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : {ONEBIT_OPTIMIZER_ONEBIT_LAMB, ONEBIT_OPTIMIZER_ZERO_ONE_ADAM}) {
            log.context(name_of(kind));
            Subject subject(comm, log, kind);
            if (log.rank() == 0) write_file(subject.directory.prefix("a-file"), {1});
            log.barrier();
            const std::vector<std::string> listing = subject.directory.listing();
            log.barrier();
            const std::vector<std::string> unwritable = {subject.directory.prefix("no-such-directory/state"),
                                                         subject.directory.prefix("a-file/state")};
            for (const std::string& where : unwritable) {
                for (int faulty = 0; faulty < log.size(); ++faulty) {
                    log.context(where + " on rank " + std::to_string(faulty));
                    const std::string& mine = log.rank() == faulty ? where : subject.prefix;
                    subject.expect_save_fails(ONEBIT_ERROR_IO, "rank " + std::to_string(faulty), mine.c_str());
                    ONEBIT_EXPECT(log, read_file(subject.file) == subject.sound);
                    log.barrier();
                    ONEBIT_EXPECT(log, subject.directory.listing() == listing); // no litter
                    log.barrier();
                }
            }
            // A directory in place of the last rank's file: noticed only after the other ranks have replaced theirs.
            log.context(name_of(kind) + ", a directory in the way");
            const std::string aside = subject.directory.prefix("aside");
            if (log.last_rank()) {
                fs::rename(subject.file, aside);
                fs::create_directory(subject.file);
            }
            log.barrier();
            subject.expect_save_fails(ONEBIT_ERROR_IO, subject.last(), subject.prefix.c_str());
            if (log.last_rank()) {
                fs::remove(subject.file);
                fs::rename(aside, subject.file);
            }
            log.barrier();
            ONEBIT_EXPECT(log, subject.directory.listing() == listing);
            log.barrier();
            subject.expect_sound();
        }
    });
}

TEST_CASE("an optimizer's prefix can't be NULL or empty", "[optimizer][save][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Subject subject(comm, log, ONEBIT_OPTIMIZER_ZERO_ONE_ADAM);
        const std::string who = subject.last() + ";prefix";
        for (const char* wrong : {static_cast<const char*>(nullptr), ""}) {
            const char* mine = log.last_rank() ? wrong : subject.prefix.c_str();
            subject.expect_save_fails(ONEBIT_ERROR_INVALID_ARGUMENT, who, mine);
            ONEBIT_EXPECT(log, read_file(subject.file) == subject.sound);
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, who,
                                  onebit_optimizer_load(subject.training.get(), mine));
            subject.expect_unchanged();
        }
        subject.expect_sound();
    });
}

TEST_CASE("a training that has compressed something else is refused, a warm-up taken over", "[optimizer][save]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : freezing_kinds()) {
            for (const bool frozen : {false, true}) {
                log.context(name_of(kind) + (frozen ? ", frozen" : ", warming up"));
                SharedDirectory directory(log);
                Setup setup{quick_config(kind), {300, 41}};
                const Gradient gradient = gaussian_gradient(341, 1);
                Training updates(comm, setup, log);
                updates.steps(gradient, 1, frozen ? 9 : 3);
                const std::string prefix = directory.prefix("state");
                ONEBIT_EXPECT_OK(log, onebit_optimizer_save(updates.get(), prefix.c_str()));
                setup.config.compressed = ONEBIT_COMPRESSED_MOMENTA;
                Training momenta(comm, setup, log);
                const bool has_compressed = frozen || kind == ONEBIT_OPTIMIZER_ZERO_ONE_ADAM; // before its freeze, too
                if (has_compressed) {
                    ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE, "compresses updates;config.compressed",
                                          onebit_optimizer_load(momenta.get(), prefix.c_str()));
                } else {
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_load(momenta.get(), prefix.c_str()));
                    momenta.steps(gradient, 4, 12);
                }
            }
        }
    });
}
