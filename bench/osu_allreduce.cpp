// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#include "osu_allreduce.hpp"

#include <mpi.h>
#include <onebit/onebit.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "osu_bfloat16.hpp"
#include "osu_gpu.hpp"

namespace onebit::bench {

namespace {

// The values on the host; with --accelerator cuda also in a GPU's memory, where calls then find them.
struct Buffers : HostBuffers {
    Buffers(const Ranks& ranks, onebit_comm_t comm, const OsuOptions& options, Gpu* rank_gpu, std::size_t count)
        : HostBuffers(ranks, comm, options.shared, count), gpu(rank_gpu) {
        if (options.datatype == ONEBIT_BFLOAT16) {
            narrow.emplace(ranks, comm, options.shared, count / 2 + 1); // two values in the place of one
            round_to_bfloat16(send.data(), count, as_bfloat16(narrow->send));
        }
        if (gpu == nullptr) return;
        pinned[0] = gpu->pin(send, count);
        pinned[1] = gpu->pin(receive, count);
        gpu_send = gpu->allocate(count);
        gpu_receive = gpu->allocate(count);
        gpu->copy(gpu_send.get(), send.data(), count);
    }

    Gpu* gpu;
    std::array<Gpu::Buffer, 2> pinned = {Gpu::nothing(), Gpu::nothing()};
    Gpu::Buffer gpu_send = Gpu::nothing();
    Gpu::Buffer gpu_receive = Gpu::nothing();
    std::optional<HostBuffers> narrow;     // with --datatype bfloat16: onebit's
    std::optional<Bfloat16Rival> bfloat16; // with --full --bf16

    static std::uint16_t* as_bfloat16(FloatBuffer& buffer) { return reinterpret_cast<std::uint16_t*>(buffer.data()); }
};

// For powersgd the values are an almost square matrix, whose rows are a power of two long, and a vector of the rest.
std::array<std::uint64_t, 4> shapes_of(std::size_t count) {
    std::size_t side = 1;
    while (4 * side * side <= count) side *= 2;
    const std::size_t rest = count % side;
    return {count / side, side, 1, rest};
}

class Allreduce : public Operation {
  public:
    Allreduce(const Ranks& ranks, onebit_comm_t comm, const OsuProgram& program, const OsuOptions& options,
              Buffers& buffers, std::size_t count)
        : ranks_(ranks), program_(program), buffers_(buffers), count_(count) {
        onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(count);
        apply(options, &config);
        const std::array<std::uint64_t, 4> shapes = shapes_of(count);
        if (options.codec == ONEBIT_CODEC_POWERSGD) {
            config.matrix_rank = options.matrix_rank;
            config.shapes = shapes.data();
            config.num_shapes = shapes.back() == 0 ? 1 : 2;
        }
        std::vector<onebit_level_t> levels;
        int ranks_of_group = 1;
        for (const OsuLevel& level : options.levels) {
            ranks_of_group *= level.ranks;
            const onebit_level_t exact = ONEBIT_LEVEL_INIT(ranks.rank / ranks_of_group);
            levels.push_back(exact);
            levels.back().compressed = level.codec ? 1 : 0;
            levels.back().codec = level.codec.value_or(ONEBIT_CODEC_SIGN);
        }
        config.levels = levels.empty() ? nullptr : levels.data();
        config.num_levels = num_levels_ = static_cast<std::uint32_t>(levels.size());
        onebit_comm_info_t of_comm = ONEBIT_COMM_INFO_INIT;
        require_success(ranks, onebit_comm_get_info(comm, &of_comm), "onebit_comm_get_info");
        nodes_ = static_cast<int>(of_comm.nodes);
        has_factors_ = options.codec == ONEBIT_CODEC_POWERSGD;
        if (buffers.gpu != nullptr) {
            config.memory = ONEBIT_MEMORY_CUDA;
            config.stream = buffers.gpu->stream();
        }
        require_success(ranks, onebit_allreduce_create(comm, &config, &allreduce_), "onebit_allreduce_create");
        // The library has found this out for its own messages.
        mpi_reaches_gpu_ = std::string_view(info().transport).ends_with(", direct");
    }

    ~Allreduce() override { require_success(ranks_, onebit_allreduce_destroy(allreduce_), "onebit_allreduce_destroy"); }
    Allreduce(const Allreduce&) = delete;
    Allreduce& operator=(const Allreduce&) = delete;

    void run() override {
        call(send(), receive());
        if (buffers_.gpu != nullptr) buffers_.gpu->wait();
    }

    void start() override { start(send(), receive()); }

    void test() override {
        int done = 0;
        require_success(ranks_, onebit_allreduce_test(allreduce_, &done), "onebit_allreduce_test");
    }

    void wait() override { require_success(ranks_, onebit_allreduce_wait(allreduce_), "onebit_allreduce_wait"); }

    void start_rival() override {
        MPI_Iallreduce(buffers_.send.data(), buffers_.receive.data(), static_cast<int>(count_), MPI_FLOAT, MPI_SUM,
                       ranks_.comm, &request_);
    }

    void test_rival() override {
        int done = 0;
        MPI_Test(&request_, &done, MPI_STATUS_IGNORE);
    }

    void wait_rival() override { MPI_Wait(&request_, MPI_STATUS_IGNORE); }

    void run_rival() override {
        if (program_.completion == Completion::kOverlapped) {
            start_rival();
            wait_rival();
            return;
        }
        if (buffers_.gpu == nullptr) {
            run_rival_of(buffers_.send.data(), buffers_.receive.data());
        } else if (mpi_reaches_gpu_) {
            run_rival_of(buffers_.gpu_send.get(), buffers_.gpu_receive.get());
        } else {
            buffers_.gpu->copy(buffers_.send.data(), buffers_.gpu_send.get(), count_);
            run_rival_of(buffers_.send.data(), buffers_.receive.data());
            buffers_.gpu->copy(buffers_.gpu_receive.get(), buffers_.receive.data(), count_);
        }
    }

    void run_bfloat16() override { buffers_.bfloat16->allreduce(count_); }

    void run_of(const float* input, float* output) override {
        if (buffers_.narrow) {
            std::uint16_t* const values = Buffers::as_bfloat16(buffers_.narrow->receive);
            round_to_bfloat16(input, count_, values);
            call(values, values);
            widen_bfloat16(values, count_, output);
            return;
        }
        if (buffers_.gpu == nullptr) {
            call(input, output);
            return;
        }
        float* const values = buffers_.gpu_receive.get();
        buffers_.gpu->copy(values, input, count_);
        call(values, values);
        buffers_.gpu->copy(output, values, count_);
    }

    void run_rival_of(const float* input, float* output) override {
        MPI_Allreduce(input, output, static_cast<int>(count_), MPI_FLOAT, MPI_SUM, ranks_.comm);
    }

    void reset() override { require_success(ranks_, onebit_allreduce_reset(allreduce_), "onebit_allreduce_reset"); }

    OperationInfo info() const override {
        onebit_allreduce_info_t info = ONEBIT_ALLREDUCE_INFO_INIT;
        require_success(ranks_, onebit_allreduce_get_info(allreduce_, &info), "onebit_allreduce_get_info");
        return OperationInfo(info);
    }

    Errors errors() const override {
        // A handle that is dense from the start keeps no errors to ask for: they are zero.
        if (info().algorithm == ONEBIT_ALGORITHM_DENSE) return {FloatBuffer(count_), FloatBuffer(0), {}};
        std::uint64_t begin = 0;
        std::uint64_t length = 0;
        if (!has_factors_) get_error(nullptr, nullptr, &begin, &length); // powersgd's factors are no errors
        Errors errors{FloatBuffer(count_), FloatBuffer(length), {begin, length}};
        get_error(errors.worker.data(), has_factors_ ? nullptr : errors.server.data(), nullptr, nullptr);
        weigh_levels(errors.worker);
        return errors;
    }

    Shape shape() const override { return {count_, {0, count_}, {0, count_}, ranks_.size, false}; }

    std::string settings() const override {
        if (buffers_.gpu == nullptr) return "";
        return std::string(", MPI_Allreduce: ") +
               (mpi_reaches_gpu_ ? "of the GPUs' memory" : "of the host's memory, with copies from and to the GPUs'");
    }

  private:
    const void* send() const {
        if (buffers_.narrow) return buffers_.narrow->send.data();
        return buffers_.gpu != nullptr ? buffers_.gpu_send.get() : buffers_.send.data();
    }
    void* receive() const {
        if (buffers_.narrow) return buffers_.narrow->receive.data();
        return buffers_.gpu != nullptr ? buffers_.gpu_receive.get() : buffers_.receive.data();
    }

    void start(const void* send, void* receive) {
        require_success(ranks_, onebit_allreduce_start(allreduce_, send, receive), "onebit_allreduce_start");
    }

    void call(const void* send, void* receive) {
        if (program_.completion != Completion::kBlocking) {
            start(send, receive);
            wait();
            return;
        }
        require_success(ranks_, onebit_allreduce_run(allreduce_, send, receive), "onebit_allreduce_run");
    }

    void get_error(float* worker, float* server, std::uint64_t* begin, std::uint64_t* length) const {
        require_success(ranks_, onebit_allreduce_get_error(allreduce_, worker, server, begin, length),
                        "onebit_allreduce_get_error");
    }

    // A rank's error on an upper level is that of a group's average: it counts once for each rank of the group.
    void weigh_levels(FloatBuffer& worker) const {
        const onebit_algorithm_t algorithm = info().algorithm;
        if (algorithm == ONEBIT_ALGORITHM_TWO_LEVEL) {
            for (std::size_t i = 0; i < count_; ++i) worker[i] *= static_cast<float>(ranks_.size / nodes_);
        }
        if (algorithm != ONEBIT_ALGORITHM_LEVELS) return;
        std::fill_n(worker.data(), count_, 0.0F);
        float weight = 1;
        for (std::uint32_t l = 0; l <= num_levels_; ++l) {
            onebit_level_info_t level = ONEBIT_LEVEL_INFO_INIT;
            FloatBuffer error(count_);
            require_success(ranks_, onebit_allreduce_get_level(allreduce_, l, &level, error.data()),
                            "onebit_allreduce_get_level");
            for (std::size_t i = 0; i < level.count; ++i) worker[level.begin + i] += weight * error[i];
            weight *= static_cast<float>(level.ranks);
        }
    }

    const Ranks& ranks_;
    const OsuProgram& program_;
    Buffers& buffers_;
    std::size_t count_;
    onebit_allreduce_t allreduce_ = nullptr;
    MPI_Request request_ = MPI_REQUEST_NULL; // of the rival's call in flight
    bool mpi_reaches_gpu_ = false;
    bool has_factors_ = false; // of powersgd
    std::uint32_t num_levels_ = 0;
    int nodes_ = 1;
};

class Allreduces : public Collective {
  public:
    Allreduces(const Ranks& ranks, onebit_comm_t comm, const OsuProgram& program, const OsuOptions& options,
               std::size_t largest)
        : ranks_(ranks), comm_(comm), program_(program), options_(options) {
        if (options.cuda) gpu_.emplace(ranks);
        buffers_.emplace(ranks, comm, options, gpu_ ? &*gpu_ : nullptr, largest);
        if (options.full && options.bfloat16) buffers_->bfloat16.emplace(ranks, buffers_->send.data(), largest);
    }

    std::unique_ptr<Operation> create(std::size_t count) override {
        return std::make_unique<Allreduce>(ranks_, comm_, program_, options_, *buffers_, count);
    }

    const float* values() const override { return buffers_->send.data(); }

  private:
    const Ranks& ranks_;
    onebit_comm_t comm_;
    const OsuProgram& program_;
    const OsuOptions& options_;
    std::optional<Gpu> gpu_; // lives longer than the GPU's buffers
    std::optional<Buffers> buffers_;
};

} // namespace

std::string AllreduceBenchmark::missing(const OsuOptions& options) const {
    const std::string missing = options.cuda ? Gpu::missing() : "";
    return missing.empty() ? "" : "--accelerator cuda: " + missing;
}

std::unique_ptr<Collective> AllreduceBenchmark::prepare(const Ranks& ranks, onebit_comm_t comm,
                                                        const OsuOptions& options, std::size_t largest) const {
    return std::make_unique<Allreduces>(ranks, comm, program(), options, largest);
}

} // namespace onebit::bench
