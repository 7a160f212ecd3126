// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Trains one small language model twice from the same start, with dense Adam and with 1-bit Adam, and shows what the
// compression saves and what it costs. Data parallel: each rank computes gradients on its own part of the text, and
// onebit averages them inside its optimizers.
//
//     mpirun -n 4 train_lm TEXT_FILE
//
// All code that concerns onebit is in this file; lm/ holds the model, the text, the options and the progress bar.

#include <mpi.h>
#include <onebit/onebit_mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <onebit/onebit.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lm/model.hpp"
#include "lm/options.hpp"
#include "lm/progress.hpp"
#include "lm/text.hpp"

namespace {

struct Ranks {
    int rank;
    int size;
};

// The results of one training.
struct Outcome {
    lm::Algorithm algorithm;
    double held_out_loss; // nats per byte
    double seconds;       // of training, without the final evaluation
    double step_seconds;  // of the median step; if the warm-up ended, of the steps after it
    onebit_optimizer_info_t info;
};

const char* name_of(onebit_optimizer_kind_t kind) {
    switch (kind) {
        case ONEBIT_OPTIMIZER_ADAM:
            return "dense Adam";
        case ONEBIT_OPTIMIZER_ONEBIT_ADAM:
            return "1-bit Adam";
        case ONEBIT_OPTIMIZER_LAMB:
            return "dense LAMB";
        case ONEBIT_OPTIMIZER_ONEBIT_LAMB:
            return "1-bit LAMB";
        case ONEBIT_OPTIMIZER_ZERO_ONE_ADAM:
            return "0/1 Adam";
    }
    return "unknown";
}

// "1-bit Adam", "1-bit Adam int4", "Adam int8": Adam and LAMB compress with any codec but the sign.
std::string name_of(const lm::Algorithm& algorithm) {
    const std::string name = name_of(algorithm.kind);
    if (algorithm.codec == ONEBIT_CODEC_SIGN) return name;
    return (name.rfind("dense ", 0) == 0 ? name.substr(6) : name) + " " + lm::name_of(algorithm.codec);
}

onebit::Communicator make_communicator() {
    onebit_comm_t comm;
    onebit::check(onebit_comm_create_mpi(MPI_COMM_WORLD, &comm));
    return onebit::Communicator(comm);
}

std::uint64_t lr_warmup_steps(const lm::Options& options) {
    return options.steps / 20;
}

// Linear warm-up, then linear decay to zero.
double learning_rate(const lm::Options& options, std::uint64_t step) {
    const double warmup = double(lr_warmup_steps(options)), steps = double(options.steps);
    if (double(step) <= warmup) return options.lr * double(step) / warmup;
    return options.lr * (steps - double(step) + 1) / (steps - warmup);
}

onebit::Optimizer make_optimizer(const onebit::Communicator& comm, const lm::Algorithm& algorithm,
                                 const lm::Options& options, lm::Model& model) {
    std::vector<onebit_tensor_t> tensors;
    for (lm::Parameters& p : model.parameters()) {
        onebit_tensor_t tensor = ONEBIT_TENSOR_INIT(p.values.data(), p.gradients.data(), p.values.size());
        tensor.name = p.name.c_str();
        tensors.push_back(tensor);
    }
    const onebit_optimizer_kind_t kind = algorithm.kind;
    onebit_optimizer_config_t config = ONEBIT_OPTIMIZER_CONFIG_INIT(kind, options.lr);
    config.codec = algorithm.codec;
    const bool freezes = kind != ONEBIT_OPTIMIZER_ADAM && kind != ONEBIT_OPTIMIZER_LAMB;
    if (freezes) config.freeze_step = options.freeze_step;
    config.lr_warmup_steps = lr_warmup_steps(options);
    config.variance_updates = options.variance_updates;
    config.scale = options.scale.value_or(config.scale);
    config.group = options.group.value_or(config.group);
    config.error_type = options.error_type;
    return {comm, config, tensors};
}

std::uint64_t bytes_sent(const onebit_optimizer_info_t& info) {
    return info.warmup_bytes_sent + info.compressed_bytes_sent;
}

double sum_over_ranks(double value) {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return value;
}

// Mean loss over every byte of the held-out text that has a whole context before it. The ranks share the work.
double held_out_loss(lm::Model& model, lm::Bytes text, const lm::Options& options, Ranks ranks) {
    const std::size_t count = text.size() - options.shape.context;
    const std::size_t begin = count * ranks.rank / ranks.size, end = count * (ranks.rank + 1) / ranks.size;
    std::vector<const std::uint8_t*> examples;
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) {
        examples.push_back(&text[i]);
        if (examples.size() == options.batch || i + 1 == end) {
            sum += double(model.loss(examples)) * double(examples.size());
            examples.clear();
        }
    }
    return sum_over_ranks(sum) / double(count);
}

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

Outcome train(const lm::Algorithm& algorithm, const onebit::Communicator& comm, lm::Bytes text,
              const lm::Options& options, Ranks ranks) {
    const lm::Bytes training = text.first(lm::held_out_begin(text.size()));
    const std::size_t shard_bytes = training.size() / ranks.size;
    lm::Sampler sampler(training.subspan(shard_bytes * ranks.rank, shard_bytes), options.shape.context + 1,
                        options.seed + ranks.rank);
    lm::Model model(options.shape, options.batch, options.seed);
    onebit::Optimizer optimizer = make_optimizer(comm, algorithm, options, model);
    lm::Progress progress(options.progress, ranks.rank, name_of(algorithm), options.steps, options.log_every);

    std::vector<const std::uint8_t*> examples(options.batch);
    double loss = 0; // summed since it was last shown
    std::uint64_t shown = 0;
    std::vector<double> steps; // the seconds of each
    bool frozen = false;
    const double begin = MPI_Wtime();
    for (std::uint64_t step = 1; step <= options.steps; ++step) {
        const double step_begin = MPI_Wtime();
        sampler.next(examples);
        loss += double(model.loss_and_gradients(examples));
        optimizer.set_lr(learning_rate(options, step));
        optimizer.step();
        steps.push_back(MPI_Wtime() - step_begin);
        const bool frozen_now = optimizer.info().frozen;
        if (frozen != frozen_now) steps.clear();
        frozen = frozen_now;
        if (progress.wanted(step)) {
            const double mean = sum_over_ranks(loss) / double(ranks.size) / double(step - shown);
            progress.show(step, mean, bytes_sent(optimizer.info()));
            loss = 0;
            shown = step;
        }
    }
    const double seconds = MPI_Wtime() - begin;
    const double judged = held_out_loss(model, text.subspan(training.size()), options, ranks);
    return {algorithm, judged, seconds, median(steps), optimizer.info()};
}

void print_introduction(const lm::Options& options, Ranks ranks, std::size_t text_bytes) {
    const std::size_t parameters = lm::Model(options.shape, 1, options.seed).count();
    std::printf(
        "A language model of %zu parameters learns to guess each byte of %s\n"
        "from the %zu before it: %llu steps on %d ranks, each with %zu examples of its own per step.\n"
        "Dense Adam averages the gradients exactly in every step. 1-bit Adam does so in a warm-up, and from then on\n"
        "sends one bit for each parameter. Every training begins with the same parameters, sees the same examples, "
        "and\n"
        "is judged on the last %zu bytes of the text, which no training sees.\n\n",
        parameters, options.text.c_str(), options.shape.context, static_cast<unsigned long long>(options.steps),
        ranks.size, options.batch, text_bytes - lm::held_out_begin(text_bytes));
    std::fflush(stdout);
}

// Steps of the compression stage. Adam and LAMB that compress are in this stage from the start.
std::uint64_t compressed_steps(const onebit_optimizer_info_t& info) {
    return info.frozen || info.exact_rounds == 0 ? info.steps - info.freeze_step : 0;
}

// How many times fewer bytes the compression stage sends per step than a ring allreduce of elements of the given size;
// nothing if there was no such stage, or no rank to send to.
std::optional<double> reduction(const onebit_optimizer_info_t& info, Ranks ranks, std::size_t element_bytes) {
    if (compressed_steps(info) == 0 || info.compressed_bytes_sent == 0) return std::nullopt;
    const double ring = 2.0 * (ranks.size - 1) / ranks.size * double(info.count) * double(element_bytes);
    return ring * double(compressed_steps(info)) / double(info.compressed_bytes_sent);
}

void print_reduction(std::optional<double> times) {
    if (times) {
        std::printf("  %12.1f x", *times);
    } else {
        std::printf("  %14s", "-");
    }
}

void print_table(const std::vector<Outcome>& outcomes, Ranks ranks) {
    int width = 10;
    for (const Outcome& o : outcomes) width = std::max(width, int(name_of(o.algorithm).size()));
    std::printf("\n%-*s  %13s  %13s  %10s  %14s  %14s  %11s  %9s\n", width, "", "held-out loss", "sent per rank",
                "compressed", "fewer bytes vs", "fewer bytes vs", "median step", "wall time");
    std::printf("%-*s  %13s  %13s  %10s  %14s  %14s  %11s  %9s\n", width, "algorithm", "[nats/byte]", "[MB]", "[steps]",
                "dense float32", "dense float16", "[ms]", "[s]");
    for (const Outcome& o : outcomes) {
        std::printf("%-*s  %13.4f  %13.1f  %10llu", width, name_of(o.algorithm).c_str(), o.held_out_loss,
                    double(bytes_sent(o.info)) / 1e6, static_cast<unsigned long long>(compressed_steps(o.info)));
        print_reduction(reduction(o.info, ranks, sizeof(float)));
        print_reduction(reduction(o.info, ranks, sizeof(float) / 2));
        std::printf("  %11.2f  %9.1f\n", o.step_seconds * 1e3, o.seconds);
    }
    std::printf(
        "\nA lower loss is better. \"Fewer bytes\" concerns the compressed steps alone: what a ring allreduce on n "
        "ranks,\n"
        "2(n-1)/n elements per parameter and step, would send in them, over what onebit did send. With all ranks on "
        "one\n"
        "machine the wall time is mostly the model's own arithmetic.\n");
}

// The losses of the first dense and the first 1-bit run, if both were asked for.
void print_comparison(const std::vector<Outcome>& outcomes) {
    auto find = [&](onebit_optimizer_kind_t kind) {
        return std::find_if(outcomes.begin(), outcomes.end(), [&](const Outcome& o) {
            return o.algorithm.kind == kind && o.algorithm.codec == ONEBIT_CODEC_SIGN;
        });
    };
    const auto dense = find(ONEBIT_OPTIMIZER_ADAM), onebit = find(ONEBIT_OPTIMIZER_ONEBIT_ADAM);
    if (dense == outcomes.end() || onebit == outcomes.end()) return;
    std::printf("1-bit Adam's held-out loss differs from dense Adam's by %+.2f %%",
                100 * (onebit->held_out_loss / dense->held_out_loss - 1));
    if (const std::uint64_t sent = bytes_sent(onebit->info)) { // a rank alone sends nothing
        std::printf("; it sent %.1f times fewer bytes in all, warm-up included",
                    double(bytes_sent(dense->info)) / double(sent));
    }
    std::printf(".\n");
}

int run(int argc, char** argv) {
    Ranks ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &ranks.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks.size);
    lm::Options options;
    if (const auto exit_code = lm::parse(argc, argv, ranks.rank, options)) return *exit_code;

    // The shards, and the 2 % that are held out, must hold at least one example for each rank.
    const std::size_t min_bytes = 100 * (options.shape.context + 1) * ranks.size;
    const std::vector<std::uint8_t> text = lm::read_text(options.text, min_bytes, MPI_COMM_WORLD);
    if (text.empty()) return EXIT_FAILURE;

    if (ranks.rank == 0) print_introduction(options, ranks, text.size());
    const onebit::Communicator comm = make_communicator();
    std::vector<Outcome> outcomes;
    for (const lm::Algorithm& algorithm : options.algorithms) {
        outcomes.push_back(train(algorithm, comm, text, options, ranks));
    }
    if (ranks.rank == 0) {
        print_table(outcomes, ranks);
        print_comparison(outcomes);
    }
    return EXIT_SUCCESS;
}

} // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    try {
        const int exit_code = run(argc, argv);
        MPI_Finalize();
        return exit_code;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "train_lm: %s\n", e.what());
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE); // all ranks: other ranks may be waiting for this one
    }
    return EXIT_FAILURE;
}
