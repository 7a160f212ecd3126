// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Forged optimizer files with correct checksums. All ranks refuse a state that no training can reach, and nothing
// changes. Training can go on from a state that is loaded.
#include <sys/resource.h>

#include <cmath>

#include "support/directory.hpp"
#include "support/files.hpp"
#include "support/forge.hpp"
#include "support/training.hpp"

using namespace onebit_test;

namespace {

const Sizes& sizes() {
    static const Sizes both = {40, 30, 33};
    return both;
}

Setup forged_setup(onebit_optimizer_kind_t kind) {
    Setup setup{quick_config(kind), sizes()};
    if (freezes(kind)) setup.config.follow_interval = 1;
    setup.groups.assign(2, ONEBIT_PARAM_GROUP_INIT(0.01));
    setup.groups[1].no_compress = 1;
    setup.group_of = {0, 1, 0};
    return setup;
}

bool all_finite(const std::vector<float>& values) {
    return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

// A training that was saved after step `saved_at`, and one that loads the forged file.
class Victim {
  public:
    Victim(onebit_comm_t comm, RankLog& log, onebit_optimizer_kind_t kind, std::uint64_t saved_at)
        : log_(log),
          directory_(log),
          prefix_(directory_.prefix("state")),
          file_(directory_.file("state", log.rank())),
          training_(comm, forged_setup(kind), log),
          gradient_(gaussian_gradient(total(sizes()), 3)) {
        training_.steps(gradient_, 1, saved_at);
        save_again();
    }
    void save_again() {
        ONEBIT_EXPECT_OK(log_, onebit_optimizer_save(training_.get(), prefix_.c_str()));
        sound_ = read_file(file_);
        log_.barrier();
    }

    const Bytes& sound() const { return sound_; }

    // `forge` changes every rank's file. Returns whether all ranks refused the load, in the same way.
    template <typename Forge>
    bool refused(const Forge& forge) {
        Bytes forged = sound_;
        forge(forged);
        repair_optimizer(forged);
        fs::remove(file_); // a file that is cut and written again waits for the disk
        write_file(file_, forged);
        log_.barrier();
        const std::vector<float> before = training_.parameters();
        const onebit_status_t status = onebit_optimizer_load(training_.get(), prefix_.c_str());
        ONEBIT_EXPECT(log_, log_.same_on_all(&status, sizeof(status)));
        if (status != ONEBIT_SUCCESS) {
            ONEBIT_EXPECT(log_, status == ONEBIT_ERROR_BAD_STATE);
            ONEBIT_EXPECT(log_, same_bits(training_.parameters(), before));
            return true;
        }
        ONEBIT_EXPECT(log_, all_finite(training_.parameters()));
        for (std::uint64_t t = 20; t < 24; ++t) {
            training_.set_gradients(gradient_(log_.rank(), t));
            const onebit_status_t stepped = onebit_optimizer_step(training_.get());
            ONEBIT_EXPECT(log_, stepped == ONEBIT_SUCCESS || stepped == ONEBIT_ERROR_NONFINITE);
            ONEBIT_EXPECT(log_, stepped != ONEBIT_SUCCESS || all_finite(training_.parameters()));
        }
        restore();
        return false;
    }
    // The sound file loads, whatever was loaded before.
    void restore() {
        log_.barrier();
        write_file(file_, sound_);
        log_.barrier();
        ONEBIT_EXPECT_OK(log_, onebit_optimizer_load(training_.get(), prefix_.c_str()));
    }

    RankLog& log_;
    SharedDirectory directory_;
    std::string prefix_;
    fs::path file_;
    Training training_;
    Gradient gradient_;
    Bytes sound_;
};

// In the warm-up, with the freeze decided on, in the compression stage, and among 0/1 Adam's local steps.
const std::vector<std::uint64_t>& moments() {
    static const std::vector<std::uint64_t> steps = {4, 6, 8, 11};
    return steps;
}

// A single rank tries everything. Several ranks share cores, and barriers make their loads slow.
std::size_t stride(const RankLog& log) {
    return log.size() == 1 ? 1 : 17;
}

} // namespace

TEST_CASE("whatever a saved optimizer's numbers are, it is refused or can be trained on", "[optimizer][save][forged]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            for (std::uint64_t at : {6, 11}) {
                Victim victim(comm, log, kind, at);
                const std::size_t numbers = get<std::uint64_t>(victim.sound(), kNumbersAt);
                for (std::size_t i = 0; i < numbers; ++i) {
                    bool some_refused = false;
                    for (std::size_t v = i % stride(log); v < nasty_numbers().size(); v += stride(log)) {
                        const std::uint64_t number = nasty_numbers()[v];
                        log.context(name_of(kind) + " at " + std::to_string(at) + ", number " + std::to_string(i) +
                                    ": " + std::to_string(number));
                        some_refused |=
                            victim.refused([&](Bytes& bytes) { put(bytes, kOptimizerHeader + 8 * i, number); });
                    }
                    ONEBIT_EXPECT(log, some_refused || stride(log) > 1); // there is none that may be anything
                }
            }
        }
    });
}

TEST_CASE("whatever a saved optimizer's head is, it is refused or can be trained on", "[optimizer][save][forged]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            Victim victim(comm, log, kind, 9);
            const std::size_t rows = rows_at(victim.sound()), values = values_at(victim.sound());
            for (std::size_t word = 0; word < values / 4; word += stride(log)) {
                if (4 * word >= kOptimizerHeader && 4 * word < rows) continue; // the numbers
                const std::uint32_t own = get<std::uint32_t>(victim.sound(), 4 * word);
                for (const std::uint32_t other : {0U, 1U, 2U, 7U, own + 1, own - 1, 0x7fffffffU, 0x80000000U, ~0U}) {
                    log.context(name_of(kind) + ", word " + std::to_string(word) + ": " + std::to_string(other));
                    const bool refused = victim.refused([&](Bytes& bytes) { put(bytes, 4 * word, other); });
                    const bool checksum = 4 * word >= kHeadChecksumAt && 4 * word < kOptimizerHeader;
                    const bool mark = 4 * word >= kSequenceAt && 4 * word < kSaveAt + 8;
                    const bool forged = log.gather_bytes(&other, other == own ? 0 : 1).front().size() > 0;
                    ONEBIT_EXPECT(log, refused || checksum || mark || !forged);
                }
            }
        }
    });
}

TEST_CASE("a kind that freezes is never at the stage of those that compress gradients", "[optimizer][save][forged]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            log.context(name_of(kind));
            Victim victim(comm, log, kind, 4);
            ONEBIT_EXPECT(log, victim.refused([](Bytes& bytes) { put(bytes, kStageAt, std::uint32_t{3}); }));
        }
    });
}

TEST_CASE("whatever a saved optimizer's values are, it is refused or can be trained on", "[optimizer][save][forged]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            for (std::uint64_t at : moments()) {
                Victim victim(comm, log, kind, at);
                const std::size_t begin = values_at(victim.sound()), end = victim.sound().size();
                // As many places on every rank, whose files differ in length.
                for (std::size_t k = 0; k < 60; k += stride(log)) {
                    const std::size_t place = begin + (end - begin) / 4 * k / 60 * 4;
                    for (const float value : nasty_floats()) {
                        log.context(name_of(kind) + " at " + std::to_string(at) + ", byte " + std::to_string(place) +
                                    ": " + std::to_string(value));
                        (void)victim.refused([&](Bytes& bytes) { put(bytes, place, value); });
                    }
                }
                for (const float value : nasty_floats()) {
                    log.context(name_of(kind) + " at " + std::to_string(at) + ", everywhere " + std::to_string(value));
                    (void)victim.refused([&](Bytes& bytes) {
                        for (std::size_t place = begin; place < end; place += 4) put(bytes, place, value);
                    });
                }
            }
        }
    });
}

TEST_CASE("a saved optimizer's moments and errors must be finite, squares not negative", "[optimizer][save][forged]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            for (std::uint64_t at : moments()) {
                Victim victim(comm, log, kind, at);
                const std::uint32_t arrays = get<std::uint32_t>(victim.sound(), kArraysAt);
                std::size_t place = values_at(victim.sound());
                for (std::uint32_t a = 0; a < arrays; ++a) {
                    const std::size_t row = rows_at(victim.sound()) + kRowBytes * a;
                    const std::uint32_t name = get<std::uint32_t>(victim.sound(), row);
                    const std::uint64_t count = get<std::uint64_t>(victim.sound(), row + 32);
                    log.context(name_of(kind) + " at " + std::to_string(at) + ", array " + std::to_string(a) +
                                " of name " + std::to_string(name));
                    const auto refuses = [&](float value) {
                        return victim.refused([&](Bytes& bytes) {
                            if (count > 0) put(bytes, place + 4 * (count - 1), value);
                        });
                    };
                    const bool has_any = log.gather_bytes(&count, count > 0 ? 1 : 0).front().size() > 0;
                    if (name != 7 && has_any) { // the mask's words are no floats
                        ONEBIT_EXPECT(log, refuses(NAN));
                        ONEBIT_EXPECT(log, refuses(INFINITY));
                        if (name == 3 || name == 4 || name == 5) ONEBIT_EXPECT(log, refuses(-1e-3F));
                    }
                    place += 4 * count;
                }
                victim.restore();
            }
        }
    });
}

TEST_CASE("a file of another size than the optimizer's takes no memory and no time", "[optimizer][save][forged]") {
    run_ranks(rank_counts().front(), [](onebit_comm_t comm, RankLog& log) {
        Victim victim(comm, log, ONEBIT_OPTIMIZER_ONEBIT_ADAM, 8);
        rusage before{}, after{};
        getrusage(RUSAGE_SELF, &before);
        for (const bool consistent : {false, true}) {
            constexpr std::uint64_t kHuge = std::uint64_t{1} << 32;
            Bytes forged = victim.sound();
            if (consistent) {
                put(forged, kAllBytesAt, kHuge);
                put(forged, kHeadBytesAt, kHuge);
                repair_optimizer(forged);
            }
            write_file(victim.file_, forged);
            fs::resize_file(victim.file_, kHuge);
            log.barrier();
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE, "too long",
                                  onebit_optimizer_load(victim.training_.get(), victim.prefix_.c_str()));
        }
        getrusage(RUSAGE_SELF, &after);
        ONEBIT_EXPECT(log, after.ru_maxrss - before.ru_maxrss < 100 * 1024); // in KiB
        victim.restore();
    });
}

// Files that a fuzzer found: each made a load, or the step after it, crash.
TEST_CASE("files that once crashed a load are refused", "[optimizer][save][forged]") {
    if (!can_have_ranks(1)) return;
    struct Case {
        const char* name;
        onebit_optimizer_kind_t kind;
        int ranks;
    };
    const onebit_optimizer_kind_t lamb = ONEBIT_OPTIMIZER_ONEBIT_LAMB, zero_one = ONEBIT_OPTIMIZER_ZERO_ONE_ADAM;
    const std::vector<Case> cases = {{"0-4", zero_one, 1}, {"1-3", lamb, 1}, {"2-4", zero_one, 1}, {"3-4", zero_one, 1},
                                     {"4-4", zero_one, 1}, {"5-3", lamb, 1}, {"6-4", zero_one, 1}, {"7-3", lamb, 1},
                                     {"8-4", zero_one, 2}, {"9-3", lamb, 1}};
    run_ranks(1, [&](onebit_comm_t comm, RankLog& log) {
        for (const Case& found : cases) {
            log.context(found.name);
            SharedDirectory directory(log);
            Setup setup{optimizer_config(found.kind, 1e-3), {40, 30}};
            setup.config.freeze_step = 3;
            setup.config.compressed = ONEBIT_COMPRESSED_MOMENTA; // as those files do
            Training training(comm, setup, log);
            const std::string prefix = directory.prefix("state");
            ONEBIT_EXPECT_OK(log, onebit_optimizer_save(training.get(), prefix.c_str()));
            const Bytes sound = read_file(directory.file("state", 0));
            fs::remove(directory.file("state", 0));
            for (int rank = 0; rank < found.ranks; ++rank) {
                const std::string end = "." + std::to_string(rank) + "-of-" + std::to_string(found.ranks);
                Bytes forged = read_file(std::string(ONEBIT_TEST_FORGED_STATES) + found.name + end);
                ONEBIT_EXPECT(log, forged.size() > kOptimizerHeader);
                put(forged, kShapeAt, get<std::uint64_t>(sound, kShapeAt)); // as far as the look at the contents
                repair_optimizer(forged);
                write_file(prefix + end + ".onebit", forged);
            }
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE, "state.",
                                  onebit_optimizer_load(training.get(), prefix.c_str()));
        }
    });
}
