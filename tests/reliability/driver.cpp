// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Makes one collective call in an endless loop, so that scripts/reliability.py can kill or stop a rank in it.
// usage: onebit_reliability CALL SEED PREFIX
// Calls on two levels, and on levels, need an even number of ranks, and ONEBIT_NODE_SIZE=2.
//
// Each rank reports its actions in PREFIX.RANK, a line at a time and at once: "pid PID", then for each call "begin N
// TIME" and "end N TIME STATUS MESSAGE", by the monotonic clock. A rank stops after a call that fails.
#include <fcntl.h>
#include <onebit/onebit_mpi.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

using Call = std::function<onebit_status_t()>;

constexpr std::uint64_t kLarge = 1u << 20; // elements: messages too large to be sent before the receiver asks
constexpr std::size_t kTensors = 4;
constexpr std::uint64_t kTensor = 50000;

double now() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class Journal {
  public:
    explicit Journal(const std::string& path)
        : file_(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644)) {}

    void line(const std::string& text) {
        const std::string whole = text + "\n";
        if (write(file_, whole.data(), whole.size()) != static_cast<ssize_t>(whole.size())) _exit(3);
    }

  private:
    int file_;
};

/// A rank's objects before the calls begin; handles that the call doesn't need are never made.
struct Rank {
    std::string prefix;
    int number = 0;
    onebit_comm_t comm = nullptr;
    onebit_allreduce_t reduce = nullptr;
    onebit_reduce_scatter_t scatter = nullptr;
    onebit_all_gather_t gather = nullptr;
    onebit_optimizer_t optimizer = nullptr;
    std::vector<float> input = std::vector<float>(kLarge, 1.0f), output = std::vector<float>(kLarge);
    std::vector<std::uint32_t> mask = std::vector<std::uint32_t>(kLarge / 32, 0x0f0f0f0fu);
    std::vector<onebit_tensor_t> tensors;
};

/// The first status that isn't SUCCESS ends a chain of calls.
onebit_status_t in_turn(const std::vector<Call>& calls) {
    for (const Call& call : calls) {
        if (const onebit_status_t status = call(); status != ONEBIT_SUCCESS) return status;
    }
    return ONEBIT_SUCCESS;
}

int pair_of(const Rank& rank) {
    return rank.number / 2;
}

onebit_status_t create_allreduce(Rank& rank, onebit_algorithm_t algorithm, onebit_codec_t codec = ONEBIT_CODEC_SIGN) {
    onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(kLarge);
    config.algorithm = algorithm;
    config.codec = codec;
    onebit_level_t level = ONEBIT_LEVEL_INIT(pair_of(rank));
    level.compressed = 1;
    level.codec = ONEBIT_CODEC_INT8;
    const std::uint64_t shape[] = {1u << 10, kLarge >> 10};
    if (algorithm == ONEBIT_ALGORITHM_LEVELS) {
        config.levels = &level;
        config.num_levels = 1;
    }
    if (codec == ONEBIT_CODEC_POWERSGD) {
        config.shapes = shape;
        config.num_shapes = 1;
    }
    return onebit_allreduce_create(rank.comm, &config, &rank.reduce);
}

onebit_status_t create_optimizer(Rank& rank, std::uint64_t bucket_size,
                                 onebit_algorithm_t algorithm = ONEBIT_ALGORITHM_AUTO,
                                 onebit_codec_t codec = ONEBIT_CODEC_SIGN) {
    onebit_optimizer_config_t config = ONEBIT_OPTIMIZER_CONFIG_INIT(ONEBIT_OPTIMIZER_ONEBIT_ADAM, 1e-3);
    config.freeze_step = 2;
    config.bucket_size = bucket_size;
    config.algorithm = algorithm;
    config.codec = codec;
    const onebit_level_t level = ONEBIT_LEVEL_INIT(pair_of(rank));
    if (algorithm == ONEBIT_ALGORITHM_LEVELS) {
        config.levels = &level;
        config.num_levels = 1;
    }
    rank.tensors.clear();
    for (std::size_t i = 0; i < kTensors; ++i) {
        const onebit_tensor_t tensor =
            ONEBIT_TENSOR_INIT(rank.output.data() + i * kTensor, rank.input.data() + i * kTensor, kTensor);
        rank.tensors.push_back(tensor);
    }
    return onebit_optimizer_create(rank.comm, &config, rank.tensors.data(), kTensors, &rank.optimizer);
}

onebit_status_t run(Rank& rank) {
    return onebit_allreduce_run(rank.reduce, rank.input.data(), rank.output.data());
}

onebit_status_t split(Rank& rank) {
    onebit_comm_t part = nullptr;
    const onebit_status_t status = onebit_comm_split(rank.comm, pair_of(rank), 0, &part);
    return status == ONEBIT_SUCCESS ? onebit_comm_destroy(part) : status;
}

/// For a program that never waits: calls test(&done) until the started operation has ended.
onebit_status_t poll(const std::function<onebit_status_t(int*)>& test) {
    onebit_status_t status = ONEBIT_SUCCESS;
    for (int done = 0; done == 0 && status == ONEBIT_SUCCESS;) status = test(&done);
    return status;
}

onebit_status_t step_early(Rank& rank) {
    for (std::size_t i = kTensors; i-- > 0;) {
        const onebit_status_t status = onebit_optimizer_grad_ready(rank.optimizer, i);
        if (status != ONEBIT_SUCCESS) return status;
    }
    return onebit_optimizer_step(rank.optimizer);
}

onebit_status_t allocate(Rank& rank) {
    void* memory = nullptr;
    const onebit_status_t status = onebit_mem_alloc(rank.comm, std::size_t{1} << 20, &memory);
    return status == ONEBIT_SUCCESS ? onebit_mem_free(memory) : status;
}

/// Destruction is local: it must never wait, and later calls must fail as they should.
onebit_status_t make_and_destroy(Rank& rank) {
    return in_turn({[&] { return create_allreduce(rank, ONEBIT_ALGORITHM_FLAT); }, [&] { return run(rank); },
                    [&] { return onebit_allreduce_destroy(rank.reduce); },
                    [&] { return onebit_comm_destroy(rank.comm); },
                    [&] { return onebit_comm_create_mpi(MPI_COMM_WORLD, &rank.comm); }});
}

struct Named {
    const char* name;
    Call prepare; // once
    Call call;    // again and again
};

std::vector<Named> all_calls(Rank& rank) {
    const Call nothing = [] { return ONEBIT_SUCCESS; };
    const auto with = [&](onebit_algorithm_t algorithm, onebit_codec_t codec = ONEBIT_CODEC_SIGN) -> Call {
        return [&rank, algorithm, codec] { return create_allreduce(rank, algorithm, codec); };
    };
    const auto created = [&](onebit_algorithm_t algorithm) -> Call {
        return [&rank, make = with(algorithm)] {
            return in_turn({make, [&] { return onebit_allreduce_destroy(rank.reduce); }});
        };
    };
    const auto optimizer = [&](std::uint64_t bucket, onebit_algorithm_t algorithm = ONEBIT_ALGORITHM_AUTO,
                               onebit_codec_t codec = ONEBIT_CODEC_SIGN) -> Call {
        return [&rank, bucket, algorithm, codec] { return create_optimizer(rank, bucket, algorithm, codec); };
    };
    onebit_shard_config_t shards = ONEBIT_SHARD_CONFIG_INIT(kLarge / 12 * 12); // equal ones for 3 ranks and 4
    shards.codec = ONEBIT_CODEC_INT4;
    shards.algorithm = ONEBIT_ALGORITHM_PIPELINED;
    const Call step = [&] { return onebit_optimizer_step(rank.optimizer); };
    const Call save = [&] { return onebit_optimizer_save(rank.optimizer, rank.prefix.c_str()); };
    const Call reduce = [&] { return run(rank); };
    const Call start = [&] { return onebit_allreduce_start(rank.reduce, rank.input.data(), rank.output.data()); };
    return {
        {"comm_create", nothing,
         [&] {
             onebit_comm_t comm = nullptr;
             return in_turn({[&] { return onebit_comm_create_mpi(MPI_COMM_WORLD, &comm); },
                             [&] { return onebit_comm_destroy(comm); }});
         }},
        {"allreduce_create", nothing, created(ONEBIT_ALGORITHM_FLAT)},
        {"auto", nothing, created(ONEBIT_ALGORITHM_AUTO)},
        {"optimizer_create", nothing,
         [&, make = optimizer(0)] {
             return in_turn({make, [&] { return onebit_optimizer_destroy(rank.optimizer); }});
         }},
        {"tune", nothing, [&] { return onebit_comm_tune(rank.comm, 1u << 16, 0.2, (rank.prefix + ".table").c_str()); }},
        {"mem_alloc", nothing, [&] { return allocate(rank); }},
        {"run_dense", with(ONEBIT_ALGORITHM_DENSE), reduce},
        {"run_flat", with(ONEBIT_ALGORITHM_FLAT), reduce},
        {"run_pipelined", with(ONEBIT_ALGORITHM_PIPELINED), reduce},
        {"start_wait", with(ONEBIT_ALGORITHM_PIPELINED),
         [=, &rank] {
             return in_turn({start, [&] { return onebit_allreduce_wait(rank.reduce); }});
         }},
        {"start_test", with(ONEBIT_ALGORITHM_PIPELINED),
         [=, &rank] {
             return in_turn(
                 {start, [&] { return poll([&](int* done) { return onebit_allreduce_test(rank.reduce, done); }); }});
         }},
        {"run_int4", with(ONEBIT_ALGORITHM_PIPELINED, ONEBIT_CODEC_INT4), reduce},
        {"run_topk", with(ONEBIT_ALGORITHM_PIPELINED, ONEBIT_CODEC_TOPK), reduce},
        {"run_powersgd", with(ONEBIT_ALGORITHM_FLAT, ONEBIT_CODEC_POWERSGD), reduce},
        {"run_bruck", with(ONEBIT_ALGORITHM_BRUCK), reduce},
        {"run_ring", with(ONEBIT_ALGORITHM_RING), reduce},
        {"run_two_level", with(ONEBIT_ALGORITHM_TWO_LEVEL), reduce},
        {"run_levels", with(ONEBIT_ALGORITHM_LEVELS), reduce},
        {"levels_create", nothing, created(ONEBIT_ALGORITHM_LEVELS)},
        {"reduce_scatter", [&rank, shards] { return onebit_reduce_scatter_create(rank.comm, &shards, &rank.scatter); },
         [&] { return onebit_reduce_scatter_run(rank.scatter, rank.input.data(), rank.output.data()); }},
        {"all_gather", [&rank, shards] { return onebit_all_gather_create(rank.comm, &shards, &rank.gather); },
         [&] { return onebit_all_gather_run(rank.gather, rank.input.data(), rank.output.data()); }},
        {"split", nothing, [&] { return split(rank); }},
        {"step", optimizer(0), step},
        {"step_started", optimizer(0),
         [&] {
             return in_turn(
                 {[&] { return onebit_optimizer_step_start(rank.optimizer); },
                  [&] { return poll([&](int* done) { return onebit_optimizer_step_test(rank.optimizer, done); }); }});
         }},
        {"step_int8", optimizer(0, ONEBIT_ALGORITHM_AUTO, ONEBIT_CODEC_INT8), step},
        {"step_two_level", optimizer(0, ONEBIT_ALGORITHM_TWO_LEVEL), step},
        {"step_levels", optimizer(0, ONEBIT_ALGORITHM_LEVELS), step},
        {"step_early", optimizer(kTensor), [&] { return step_early(rank); }},
        {"save", optimizer(0), save},
        {"load",
         [=] {
             return in_turn({optimizer(0), save});
         },
         [&] { return onebit_optimizer_load(rank.optimizer, rank.prefix.c_str()); }},
        {"set_mask", with(ONEBIT_ALGORITHM_FLAT),
         [&] { return onebit_allreduce_set_mask(rank.reduce, rank.mask.data()); }},
        {"destroy", nothing, [&] { return make_and_destroy(rank); }},
    };
}

int fail(Journal& journal, const char* where) {
    journal.line(std::string("failed ") + where + ": " + onebit_last_error());
    return 2;
}

/// Runs until a call fails. Then _exit, because MPI_Finalize may wait for dead ranks for ever.
[[noreturn]] void repeat(Journal& journal, const Call& call, unsigned seed, int me) {
    for (unsigned long n = 1;; ++n) {
        // Ranks come at different times, so that faults find them in different places.
        usleep((seed * 7919u + static_cast<unsigned>(n) * 104729u + static_cast<unsigned>(me) * 1299709u) % 3000u);
        journal.line("begin " + std::to_string(n) + " " + std::to_string(now()));
        const onebit_status_t status = call();
        const double end = now();
        const std::string message = status == ONEBIT_SUCCESS ? "" : onebit_last_error();
        journal.line("end " + std::to_string(n) + " " + std::to_string(end) + " " + std::to_string(status) + " " +
                     message);
        if (status == ONEBIT_SUCCESS) continue;
        sleep(8); // mpirun may end the others when the first leaves
        _exit(0);
    }
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::fputs("usage: onebit_reliability CALL SEED PREFIX\n", stderr);
        return 2;
    }
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    Rank rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank.number);
    rank.prefix = argv[3];
    Journal journal(rank.prefix + "." + std::to_string(rank.number));
    journal.line("pid " + std::to_string(getpid()));
    if (onebit_comm_create_mpi(MPI_COMM_WORLD, &rank.comm) != ONEBIT_SUCCESS) return fail(journal, "comm_create_mpi");
    for (const Named& named : all_calls(rank)) {
        if (std::string(named.name) != argv[1]) continue;
        if (named.prepare() != ONEBIT_SUCCESS) return fail(journal, "prepare");
        repeat(journal, named.call, static_cast<unsigned>(std::atoi(argv[2])), rank.number);
    }
    std::fprintf(stderr, "onebit_reliability: no call %s\n", argv[1]);
    return 2;
}
