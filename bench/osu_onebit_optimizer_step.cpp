// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Latency of onebit_optimizer_step in the compression stage, for a range of model sizes, printed as the OSU
// micro-benchmarks print theirs. A size is that of all parameters.
//
//     mpirun -n 4 osu_onebit_optimizer_step -m 4M:64M -f -c
//
// The rival, with --full, is MPI_Allreduce of all gradients, and then a dense step with onebit's fused kernels: Adam,
// or LAMB for LAMB's kinds.
//
// --validation: all ranks have the same parameters, and they are finite.

#include <mpi.h>
#include <onebit/onebit.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "osu_benchmark.hpp"
#include "samples.hpp"
#include "steady_steps.hpp"

namespace onebit::bench {

namespace {

// An optimizer over tensors that lie one after the other.
class Optimizer {
  public:
    Optimizer(const Ranks& ranks, onebit_comm_t comm, const onebit_optimizer_config_t& config, FloatBuffer& parameters,
              const FloatBuffer& gradients, std::size_t count)
        : ranks_(ranks) {
        std::vector<onebit_tensor_t> tensors;
        std::size_t at = 0;
        for (const std::size_t size : cut_into_tensors(count)) {
            tensors.push_back(ONEBIT_TENSOR_INIT(parameters.data() + at, gradients.data() + at, size));
            at += size;
        }
        require_success(ranks, onebit_optimizer_create(comm, &config, tensors.data(), tensors.size(), &optimizer_),
                        "onebit_optimizer_create");
    }
    ~Optimizer() { require_success(ranks_, onebit_optimizer_destroy(optimizer_), "onebit_optimizer_destroy"); }
    Optimizer(const Optimizer&) = delete;
    Optimizer& operator=(const Optimizer&) = delete;

    void step() { require_success(ranks_, onebit_optimizer_step(optimizer_), "onebit_optimizer_step"); }

    onebit_optimizer_info_t info() const {
        onebit_optimizer_info_t info = ONEBIT_OPTIMIZER_INFO_INIT;
        require_success(ranks_, onebit_optimizer_get_info(optimizer_, &info), "onebit_optimizer_get_info");
        return info;
    }

  private:
    const Ranks& ranks_;
    onebit_optimizer_t optimizer_ = nullptr;
};

// What all sizes share.
struct Models {
    Models(const Ranks& ranks, onebit_comm_t comm, const OsuOptions& options, std::size_t largest)
        : own(ranks, comm, options.shared, largest), averages(largest), parameters(largest) {
        require_success(ranks, onebit_comm_create_loopback(1, &alone), "onebit_comm_create_loopback");
        onebit_comm_info_t info = ONEBIT_COMM_INFO_INIT;
        require_success(ranks, onebit_comm_get_info(comm, &info), "onebit_comm_get_info");
        transport = info.transport;
    }
    ~Models() { onebit_comm_destroy(alone); }
    Models(const Models&) = delete;
    Models& operator=(const Models&) = delete;

    HostBuffers own;      // gradients are sent, parameters received
    FloatBuffer averages; // the rival's
    FloatBuffer parameters;
    onebit_comm_t alone = nullptr; // this rank
    std::string transport;
};

onebit_optimizer_kind_t dense_kind(onebit_optimizer_kind_t kind) {
    const bool is_lamb = kind == ONEBIT_OPTIMIZER_LAMB || kind == ONEBIT_OPTIMIZER_ONEBIT_LAMB;
    return is_lamb ? ONEBIT_OPTIMIZER_LAMB : ONEBIT_OPTIMIZER_ADAM;
}

class Step : public Operation {
  public:
    Step(const Ranks& ranks, onebit_comm_t comm, const OsuOptions& options, Models& models, std::size_t count)
        : ranks_(ranks), options_(options), models_(models), count_(count) {
        onebit_optimizer_config_t config = steady_config(options.optimizer);
        config.threads = options.threads;
        config.algorithm = options.algorithm;
        config.codec = options.codec;
        config.kept = options.kept;
        config.value_bits = options.value_bits;
        config.error_type = options.error_type;
        config.scale = options.scale;
        config.group = options.group;
        own_ = std::make_unique<Optimizer>(ranks, comm, config, models.own.receive, models.own.send, count);
        own_->step(); // the warm-up
        if (!options.full) return;
        config = steady_config(dense_kind(options.optimizer));
        config.threads = options.threads;
        rival_ = std::make_unique<Optimizer>(ranks, models.alone, config, models.parameters, models.averages, count);
    }

    void run() override { own_->step(); }
    void run_rival() override {
        MPI_Allreduce(models_.own.send.data(), models_.averages.data(), static_cast<int>(count_), MPI_FLOAT, MPI_SUM,
                      ranks_.comm);
        rival_->step();
    }

    // A step has no values except its gradients, and no results except the parameters.
    void run_of(const float*, float*) override { run(); }
    void run_rival_of(const float*, float*) override { run_rival(); }
    void reset() override {}
    Errors errors() const override { return {FloatBuffer(0), FloatBuffer(0), {}}; }
    Shape shape() const override { return {count_, {0, count_}, {0, count_}, ranks_.size, false}; }

    OperationInfo info() const override {
        const onebit_optimizer_info_t of_optimizer = own_->info();
        OperationInfo info;
        info.algorithm = of_optimizer.algorithm;
        info.last_bytes_sent =
            of_optimizer.compressed_bytes_sent > 0
                ? of_optimizer.compressed_bytes_sent / (of_optimizer.steps - of_optimizer.freeze_step)
                : of_optimizer.warmup_bytes_sent / of_optimizer.steps;
        info.transport = models_.transport;
        info.reason = of_optimizer.reason;
        return info;
    }

    std::string settings() const override {
        return std::string(", optimizer: ") + kOptimizerNames[options_.optimizer] +
               ", codec: " + (info().algorithm == ONEBIT_ALGORITHM_DENSE ? "none" : kCodecNames[options_.codec]);
    }

    bool is_valid() override {
        const float* const mine = models_.own.receive.data();
        std::vector<float> first(mine, mine + count_);
        MPI_Bcast(first.data(), static_cast<int>(count_), MPI_FLOAT, 0, ranks_.comm);
        int valid = std::equal(first.begin(), first.end(), mine) &&
                    std::all_of(first.begin(), first.end(), [](float value) { return std::isfinite(value); });
        MPI_Allreduce(MPI_IN_PLACE, &valid, 1, MPI_INT, MPI_MIN, ranks_.comm);
        return valid != 0;
    }

  private:
    const Ranks& ranks_;
    const OsuOptions& options_;
    Models& models_;
    std::size_t count_;
    std::unique_ptr<Optimizer> own_;
    std::unique_ptr<Optimizer> rival_; // with --full
};

class Steps : public Collective {
  public:
    Steps(const Ranks& ranks, onebit_comm_t comm, const OsuOptions& options, std::size_t largest)
        : ranks_(ranks), comm_(comm), options_(options), models_(ranks, comm, options, largest) {}

    std::unique_ptr<Operation> create(std::size_t count) override {
        return std::make_unique<Step>(ranks_, comm_, options_, models_, count);
    }

    const float* values() const override { return models_.own.send.data(); }

  private:
    const Ranks& ranks_;
    onebit_comm_t comm_;
    const OsuOptions& options_;
    Models models_;
};

class StepBenchmark : public OsuBenchmark {
  public:
    using OsuBenchmark::OsuBenchmark;
    std::unique_ptr<Collective> prepare(const Ranks& ranks, onebit_comm_t comm, const OsuOptions& options,
                                        std::size_t largest) const override {
        return std::make_unique<Steps>(ranks, comm, options, largest);
    }
};

} // namespace

} // namespace onebit::bench

int main(int argc, char** argv) {
    using namespace onebit::bench;
    return run_benchmark(argc, argv,
                         StepBenchmark({"osu_onebit_optimizer_step", "optimizer step", "Optimizer Step",
                                        "MPI_Allreduce", false, Completion::kBlocking, true}));
}
