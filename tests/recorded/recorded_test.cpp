// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Results and saved states of an earlier commit. The results of every form and optimizer still have the same bits. A
// state that was saved then is loaded, and training goes on to the same bits. The recordings are beside this file:
// bits.txt has a line for each case, states/ a file for each rank's state. With ONEBIT_TEST_RECORD set the tests write
// new recordings, on 2, 3 and 4 ranks. Only a change of WIRE_FORMAT.md's or OPTIMIZERS.md's rules needs these.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>

#include "support/blobs.hpp"
#include "support/environment.hpp"
#include "support/files.hpp"
#include "support/training.hpp"

using namespace onebit_test;

namespace {

const std::string folder = ONEBIT_TEST_RECORDED;

bool records() {
    return std::getenv("ONEBIT_TEST_RECORD") != nullptr;
}

// FNV-1a, 64 bits: computed without the library.
class Digest {
  public:
    void add(const void* data, std::size_t bytes) {
        const auto* const byte = static_cast<const unsigned char*>(data);
        for (std::size_t i = 0; i < bytes; ++i) value_ = (value_ ^ byte[i]) * 0x100000001b3U;
    }
    void add(const std::vector<float>& values) { add(values.data(), values.size() * sizeof(float)); }
    std::uint64_t value() const { return value_; }

  private:
    std::uint64_t value_ = 0xcbf29ce484222325U;
};

// The lines of bits.txt: a case's name, and the digest of all its ranks' results.
class Recording {
  public:
    Recording() {
        const Bytes bytes = read_file(folder + "bits.txt");
        std::istringstream text(std::string(bytes.begin(), bytes.end()));
        for (std::string name, digest; text >> name >> digest;) digests_[name] = digest;
    }

    // Collective. Whether the ranks' results are the recorded ones.
    bool holds(const std::string& name, const Digest& own, RankLog& log) {
        Digest all;
        const std::uint64_t value = own.value();
        for (const Bytes& rank : log.gather_bytes(&value, sizeof(value))) all.add(rank.data(), rank.size());
        char text[17] = "";
        std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(all.value()));
        if (!records()) return digests_[name] == text;
        digests_[name] = text;
        return true;
    }
    void write() const {
        std::string text;
        for (const auto& [name, digest] : digests_) text.append(name).append(" ").append(digest).append("\n");
        write_file(folder + "bits.txt", {text.begin(), text.end()});
    }

  private:
    std::map<std::string, std::string> digests_;
};

// Values from -1 to 1, some of which are a thousand times smaller. They are computed from whole numbers, so they don't
// depend on a mathematical library.
std::vector<float> values_of(std::size_t count, int rank, std::uint64_t step) {
    std::vector<float> values(count);
    std::uint64_t state = (step * 64 + static_cast<std::uint64_t>(rank)) * 0x9e3779b97f4a7c15U + 1;
    for (std::size_t i = 0; i < count; ++i) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        const float value = static_cast<float>(static_cast<std::int32_t>(state >> 32)) * 0x1p-31F;
        values[i] = i / 50 % 2 == 0 ? value : value * 0x1p-10F;
    }
    return values;
}

// Runs body(comm, log, recording) on `ranks` ranks, one or two per node.
void with_recording(int ranks, const char* node_size,
                    const std::function<void(onebit_comm_t, RankLog&, Recording&)>& body) {
    if (!can_have_ranks(ranks)) return;
    const Variable nodes("ONEBIT_NODE_SIZE", node_size);
    const Variable measure("ONEBIT_MEASURE", "0");
    run_ranks(ranks, [&](onebit_comm_t comm, RankLog& log) {
        Recording recording;
        body(comm, log, recording);
        if (records() && log.rank() == 0) recording.write();
    });
}

const char* name_of(onebit_algorithm_t form) {
    const char* const names[] = {"auto", "dense", "flat", "pipelined", "two_level", "bruck", "ring"};
    return names[static_cast<int>(form)];
}

std::string name_of(const onebit_allreduce_config_t& config, const RankLog& log, const char* node_size) {
    std::string mode = Mode{config.scale, config.group}.name();
    mode.replace(mode.find(' '), 1, "_");
    return std::string("allreduce/") + name_of(config.algorithm) + "/" + mode + "/" +
           (config.op == ONEBIT_OP_SUM ? "sum" : "average") + "/count=" + std::to_string(config.count) +
           "/ranks=" + std::to_string(log.size()) + "/node=" + node_size;
}

void check_allreduce(onebit_comm_t comm, const onebit_allreduce_config_t& config, const char* node_size, RankLog& log,
                     Recording& recording) {
    const std::string name = name_of(config, log, node_size);
    log.context(name);
    Allreduce reduce(comm, config, log);
    Digest digest;
    for (std::uint64_t step = 0; step < 3; ++step) digest.add(reduce.run(values_of(config.count, log.rank(), step)));
    if (config.algorithm != ONEBIT_ALGORITHM_DENSE) {
        const Errors errors = reduce.errors();
        digest.add(errors.worker);
        digest.add(errors.server);
    }
    ONEBIT_EXPECT(log, recording.holds(name, digest, log));
}

void check_forms(onebit_comm_t comm, const std::vector<onebit_algorithm_t>& forms, const char* node_size, RankLog& log,
                 Recording& recording) {
    for (const onebit_algorithm_t form : forms) {
        for (const Mode& mode : all_modes()) {
            for (const onebit_op_t op : {ONEBIT_OP_AVERAGE, ONEBIT_OP_SUM}) {
                for (const std::uint64_t count : {31U, 4097U, 20001U}) {
                    onebit_allreduce_config_t config = form_config(form, count, mode);
                    config.op = op;
                    check_allreduce(comm, config, node_size, log, recording);
                }
            }
        }
    }
}

// ---- optimizers ----

struct Case {
    onebit_optimizer_kind_t kind;
    onebit_compressed_t compressed;
    std::string name() const {
        const char* const names[] = {"adam", "onebit_adam", "lamb", "onebit_lamb", "zero_one_adam"};
        return std::string(names[static_cast<int>(kind)]) +
               (compressed == ONEBIT_COMPRESSED_MOMENTA ? "_momenta" : "_updates");
    }
    Setup setup(const Sizes& sizes) const {
        Setup setup{quick_config(kind), sizes};
        setup.config.compressed = compressed;
        return setup;
    }
};

const Sizes with_a_long_one = {301, 77, 4200, 5};
const Sizes small = {301, 77, 5}; // for states, which are files

std::vector<float> start_of(const Sizes& sizes) {
    return values_of(total(sizes), 63, 2000);
}

std::vector<Case> kinds_and_ways() {
    std::vector<Case> all;
    for (const onebit_optimizer_kind_t kind : all_kinds()) {
        for (const onebit_compressed_t way : ways_to_compress(kind)) all.push_back({kind, way});
    }
    return all;
}

std::vector<float> gradient(int rank, std::uint64_t step, std::size_t count) {
    std::vector<float> gradient = values_of(count, rank, step);
    const std::vector<float> shared = values_of(count, 63, 1000);
    for (std::size_t i = 0; i < count; ++i) gradient[i] += shared[i];
    return gradient;
}

// Trains from step `first` to `last`; returns the digest of the final values.
Digest train(Training& training, std::uint64_t first, std::uint64_t last, RankLog& log) {
    for (std::uint64_t t = first; t <= last; ++t) training.step(gradient(log.rank(), t, training.count()));
    Digest digest;
    digest.add(training.parameters());
    const OptimizerErrors errors = training.errors();
    digest.add(errors.worker);
    digest.add(errors.server);
    return digest;
}

constexpr std::uint64_t saved_after = 10; // steps: all kinds have frozen
constexpr std::uint64_t steps = 15;

std::string state_file(const std::string& name, int rank) {
    return folder + "states/" + name + "." + std::to_string(rank) + ".bin";
}

} // namespace

TEST_CASE("every form of an allreduce gives the bits that were recorded", "[recorded]") {
    const int n = GENERATE(2, 3, 4);
    with_recording(n, "1", [](onebit_comm_t comm, RankLog& log, Recording& recording) {
        check_forms(comm,
                    {ONEBIT_ALGORITHM_DENSE, ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_BRUCK,
                     ONEBIT_ALGORITHM_RING},
                    "1", log, recording);
    });
    with_recording(n, "2", [](onebit_comm_t comm, RankLog& log, Recording& recording) {
        if (log.size() == 4) check_forms(comm, {ONEBIT_ALGORITHM_TWO_LEVEL}, "2", log, recording);
    });
    with_recording(n, "4", [](onebit_comm_t comm, RankLog& log, Recording& recording) {
        check_forms(comm, {ONEBIT_ALGORITHM_DENSE}, "4", log, recording); // through shared memory
    });
}

TEST_CASE("an allreduce's state that was recorded is gone on with to the bits that were", "[recorded]") {
    with_recording(2, "1", [](onebit_comm_t comm, RankLog& log, Recording& recording) {
        for (const Mode& mode : all_modes()) {
            const onebit_allreduce_config_t config = flat_config(700, mode);
            const std::string name = "allreduce_" + std::to_string(mode.scale) + std::to_string(mode.group);
            const std::string file = state_file(name, log.rank());
            Allreduce reduce(comm, config, log);
            if (records()) {
                for (std::uint64_t t = 0; t < 3; ++t) (void)reduce.run(values_of(config.count, log.rank(), t));
                write_file(file, reduce.packed());
            }
            const Bytes state = read_file(file);
            ONEBIT_EXPECT_OK(log, onebit_allreduce_unpack_state(reduce.get(), state.data(), state.size()));
            Digest digest;
            digest.add(reduce.run(values_of(config.count, log.rank(), 3)));
            ONEBIT_EXPECT(log, recording.holds("continued/" + name, digest, log));
        }
    });
}

TEST_CASE("every optimizer gives the bits that were recorded", "[recorded]") {
    const int n = GENERATE(2, 3);
    with_recording(n, "1", [](onebit_comm_t comm, RankLog& log, Recording& recording) {
        for (const Case& kind : kinds_and_ways()) {
            Training training(comm, kind.setup(with_a_long_one), start_of(with_a_long_one), log);
            const std::string name = "optimizer/" + kind.name() + "/ranks=" + std::to_string(log.size());
            log.context(name);
            ONEBIT_EXPECT(log, recording.holds(name, train(training, 1, steps, log), log));
        }
    });
}

TEST_CASE("an optimizer's state that was recorded is gone on with to the bits that were", "[recorded]") {
    with_recording(2, "1", [](onebit_comm_t comm, RankLog& log, Recording& recording) {
        for (const Case& kind : kinds_and_ways()) {
            log.context(kind.name());
            if (records()) {
                Training before(comm, kind.setup(small), start_of(small), log);
                (void)train(before, 1, saved_after, log);
                write_file(state_file(kind.name(), log.rank()), packed(before.get(), log));
                log.barrier();
            }
            Training training(comm, kind.setup(small), start_of(small), log);
            const std::vector<Bytes> states = {read_file(state_file(kind.name(), 0)),
                                               read_file(state_file(kind.name(), 1))};
            ONEBIT_EXPECT_OK(log, unpack(training.get(), states));
            ONEBIT_EXPECT(
                log, recording.holds("continued/" + kind.name(), train(training, saved_after + 1, steps, log), log));
        }
    });
}
