// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// What osu_onebit_reduce_scatter and osu_onebit_all_gather have in common: equal shards of a whole buffer.
#pragma once

#include <mpi.h>
#include <onebit/onebit.h>

#include <cstddef>
#include <memory>
#include <string>

#include "osu_benchmark.hpp"

namespace onebit::bench {

// Calls is one of the two collectives:
//   kProgram  what the benchmark says and accepts
//   kName     what onebit's functions begin with
//   kCreate, kRun, kReset, kGetError, kGetInfo, kDestroy
//             those functions, of a Handle
//   rival     MPI's call, of a shard's count
//   shape     of a rank's call
template <class Calls>
class ShardOperation : public Operation {
  public:
    ShardOperation(const Ranks& ranks, onebit_comm_t comm, const OsuOptions& options, HostBuffers& buffers,
                   std::size_t count)
        : ranks_(ranks), buffers_(buffers), count_(count) {
        onebit_shard_config_t config = ONEBIT_SHARD_CONFIG_INIT(count);
        apply(options, &config);
        require(Calls::kCreate(comm, &config, &handle_), "create");
    }

    ~ShardOperation() override { require(Calls::kDestroy(handle_), "destroy"); }
    ShardOperation(const ShardOperation&) = delete;
    ShardOperation& operator=(const ShardOperation&) = delete;

    void run() override { run_of(buffers_.send.data(), buffers_.receive.data()); }
    void run_rival() override { run_rival_of(buffers_.send.data(), buffers_.receive.data()); }
    void run_of(const float* input, float* output) override { require(Calls::kRun(handle_, input, output), "run"); }
    void run_rival_of(const float* input, float* output) override {
        Calls::rival(input, output, static_cast<int>(shard().count), ranks_.comm);
    }
    void reset() override { require(Calls::kReset(handle_), "reset"); }

    OperationInfo info() const override {
        onebit_shard_info_t info = ONEBIT_SHARD_INFO_INIT;
        require(Calls::kGetInfo(handle_, &info), "get_info");
        return OperationInfo(info);
    }

    Errors errors() const override {
        Errors errors{FloatBuffer(shape().input.count), FloatBuffer(0), {}};
        require(Calls::kGetError(handle_, errors.worker.data()), "get_error");
        return errors;
    }

    Shape shape() const override { return Calls::shape(ranks_, count_, shard()); }

  private:
    Part shard() const {
        const std::size_t count = count_ / static_cast<std::size_t>(ranks_.size);
        return {static_cast<std::size_t>(ranks_.rank) * count, count};
    }

    void require(onebit_status_t status, const char* verb) const {
        if (status == ONEBIT_SUCCESS) return;
        require_success(ranks_, status, (std::string(Calls::kName) + "_" + verb).c_str());
    }

    const Ranks& ranks_;
    HostBuffers& buffers_;
    std::size_t count_;
    typename Calls::Handle handle_ = nullptr;
};

template <class Calls>
class ShardCollective : public Collective {
  public:
    ShardCollective(const Ranks& ranks, onebit_comm_t comm, const OsuOptions& options, std::size_t largest)
        : ranks_(ranks), comm_(comm), options_(options), buffers_(ranks, comm, options.shared, largest) {}

    std::unique_ptr<Operation> create(std::size_t count) override {
        return std::make_unique<ShardOperation<Calls>>(ranks_, comm_, options_, buffers_, count);
    }

    const float* values() const override { return buffers_.send.data(); }

  private:
    const Ranks& ranks_;
    onebit_comm_t comm_;
    const OsuOptions& options_;
    HostBuffers buffers_; // each as large as the whole; where a shard is enough, a shard of it is used
};

template <class Calls>
class ShardBenchmark : public OsuBenchmark {
  public:
    ShardBenchmark() : OsuBenchmark(Calls::kProgram) {}

    std::unique_ptr<Collective> prepare(const Ranks& ranks, onebit_comm_t comm, const OsuOptions& options,
                                        std::size_t largest) const override {
        return std::make_unique<ShardCollective<Calls>>(ranks, comm, options, largest);
    }
};

} // namespace onebit::bench
