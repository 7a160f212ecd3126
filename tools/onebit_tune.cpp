// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures, on the ranks that mpirun starts, how long an allreduce takes in each form, and writes the tuning table that
// ONEBIT_TUNING names in later runs on as many ranks and nodes:
//
//     mpirun -n 4 onebit_tune -o cluster.json
//     ONEBIT_TUNING=cluster.json mpirun -n 4 train
//
// A program can also call onebit_comm_tune, which measures its own communicator in each run.

#include <mpi.h>
#include <onebit/onebit_mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <onebit/onebit.hpp>
#include <string>
#include <thread>
#include <vector>

#include "../bench/codec_names.hpp"

namespace {

struct Options {
    std::string output;
    std::vector<std::string> codecs = {"sign"};
    std::uint64_t max_bytes = std::uint64_t{64} << 20;
    double seconds = 20;
    double limit = 1800;
};

using onebit::bench::kCodecNames;
const std::vector<std::string> kTunedCodecs(kCodecNames.begin(),
                                            kCodecNames.end() - 1); // powersgd uses sign's times

// Returns the exit status the program must end with at once, or -1. Every rank parses; rank 0 talks.
int parse(int argc, char** argv, bool talks, Options* options) {
    CLI::App app("Measures onebit's allreduce in all its forms and writes a tuning table. Run it under mpirun.");
    app.add_option("-o,--output", options->output, "File for the table, written by rank 0")->required();
    app.add_option("-c,--codec", options->codecs,
                   "Codecs to measure, each beside the exact average; sign if none is named")
        ->check(CLI::IsMember(kTunedCodecs));
    app.add_option("-m,--max-size", options->max_bytes, "Bytes of the largest allreduce; K, M and G are 1024 of each")
        ->transform(CLI::AsSizeValue(false))
        ->capture_default_str();
    app.add_option("-s,--seconds", options->seconds, "About how long it may take; a slow network takes its time")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("-l,--limit", options->limit, "Seconds after which it gives up: a host may have vanished")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return talks ? app.exit(error) : static_cast<int>(error.get_exit_code());
    }
    return -1;
}

// Ends the process if it lives for longer than `limit` seconds: an MPI_Allreduce that waits for a host that has
// vanished can't be interrupted. mpirun then ends the other ranks.
class Watchdog {
  public:
    Watchdog(double limit, int rank) : thread_([this, limit, rank] { watch(limit, rank); }) {}
    ~Watchdog() {
        {
            const std::lock_guard lock(mutex_);
            done_ = true;
        }
        changed_.notify_one();
        thread_.join();
    }
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

  private:
    void watch(double limit, int rank) {
        std::unique_lock lock(mutex_);
        if (changed_.wait_for(lock, std::chrono::duration<double>(limit), [this] { return done_; })) return;
        std::fprintf(
            stderr,
            "onebit_tune: rank %d gives up after %g seconds (--limit): a host may have vanished, or the network "
            "takes longer for calls of --max-size\n",
            rank, limit);
        std::_Exit(EXIT_FAILURE);
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    bool done_ = false;
    std::thread thread_; // the last member: it uses the other ones
};

void print_rows(const std::string& codec, const nlohmann::ordered_json& rows) {
    std::printf("# %s\n# %10s", codec.c_str(), "bytes");
    for (const auto& [name, time] : rows[0].items()) {
        if (name != "count") std::printf(" %12s", name.c_str());
    }
    std::printf("   quickest\n");
    for (const auto& row : rows) {
        std::printf("%12llu", 4ULL * row["count"].get<unsigned long long>());
        std::string quickest = "dense";
        for (const auto& [name, time] : row.items()) {
            if (name == "count") continue;
            std::printf(" %12.2f", time.get<double>());
            if (time < row[quickest]) quickest = name;
        }
        std::printf("   %s\n", quickest.c_str());
    }
}

void print_table(const std::string& file) {
    const auto table = nlohmann::ordered_json::parse(std::ifstream(file));
    std::printf("# %d ranks, nodes: %d; microseconds of a call, medians\n", table["ranks"].get<int>(),
                table["nodes"].get<int>());
    if (table.contains("rows")) print_rows("ONEBIT_CODEC_SIGN", table["rows"]);
    if (table.contains("codecs")) {
        for (const auto& [codec, rows] : table["codecs"].items()) print_rows(codec, rows);
    }
    std::printf("# To use it: ONEBIT_TUNING=%s\n", file.c_str());
}

} // namespace

int main(int argc, char** argv) {
    unsetenv("ONEBIT_TUNING"); // not used here; an invalid one must not cause an error
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    Options options;
    int exit_status = parse(argc, argv, rank == 0, &options);
    if (exit_status < 0) {
        try {
            onebit_comm_t handle = nullptr;
            onebit::check(onebit_comm_create_mpi(MPI_COMM_WORLD, &handle));
            onebit::Communicator communicator(handle);
            const Watchdog watchdog(options.limit, rank);
            std::vector<onebit_codec_t> codecs;
            for (const std::string& name : options.codecs) {
                codecs.push_back(
                    static_cast<onebit_codec_t>(std::ranges::find(kTunedCodecs, name) - kTunedCodecs.begin()));
            }
            communicator.tune(codecs, options.max_bytes / sizeof(float), options.seconds, options.output.c_str());
            if (rank == 0) print_table(options.output);
            exit_status = EXIT_SUCCESS;
        } catch (const std::exception& error) { // the same on every rank, unless other ranks are lost
            if (rank == 0) std::fprintf(stderr, "onebit_tune: %s\n", error.what());
            exit_status = EXIT_FAILURE;
        }
    }
    MPI_Finalize();
    return exit_status;
}
