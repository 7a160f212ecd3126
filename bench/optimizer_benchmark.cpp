// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The fused optimizer passes and the memory floor, in turn in one process: dense Adam's one pass, and the two passes of
// 1-bit Adam's compression stage, before and after the exchange.

#include <onebit/onebit.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "compress/codec.hpp"
#include "core/aligned_buffer.hpp"
#include "core/parallel.hpp"
#include "memory_floor.hpp"
#include "optim/sources_and_sinks.hpp"
#include "optim/tensors.hpp"
#include "samples.hpp"

namespace onebit::bench {
namespace {

// A model's buffers as one optimizer on one of two ranks has them; tensors of odd sizes.
class Model {
  public:
    Model(std::size_t count, unsigned threads, const std::string& kernels)
        : count_(count),
          threads_(threads),
          kernels_(optim_kernels(kernels)),
          gradients_(count),
          parameters_(count),
          m_(count),
          v_(count),
          precondition_(count),
          chunks_(partition(count, 2)) {
        std::mt19937 generator(1);
        std::normal_distribution<float> normal;
        for (std::size_t i = 0; i < count; ++i) {
            gradients_[i] = normal(generator);
            v_[i] = gradients_[i] * gradients_[i];
            precondition_[i] = 1;
        }
        cut_tensors();
        CodecConfig config;
        config.threads = threads;
        config.kernels = kernels;
        if (!make_codec(config, &codec_).ok()) std::abort();
        feedback_ = codec_->make_feedback(chunks_);
        for (const Chunk& chunk : chunks_) messages_.emplace_back(codec_->message_words(chunk));
    }

    void adam() {
        layout_.for_each_segment(threads_, [&](const Segment& s) {
            kernels_.adam(gradients_.data() + s.offset, 0.5F, m_.data() + s.offset, v_.data() + s.offset,
                          s.parameters(), s.count, betas_, update_);
        });
    }

    // Before the exchange. The messages of the last call are taken for the momentum, as the library does.
    void encode_momentum() {
        const PassSettings settings = {{betas_}, {update_}, true};
        const AlignedBuffer<float> no_m;
        const MomentumSource source(
            layout_, numeric_kernels(kernels_.name), kernels_, settings, {no_m, precondition_}, codec_->takes_blends(),
            [](const Tensor&) { return 1.0F; },
            [&](const Block& block, float* out) {
                codec_->decode_block(messages_[block.chunk.index].data(), block, {}, out);
            });
        for_each_slice([&](const Slice& slice) {
            std::uint32_t* const message = messages_[slice.chunk.index].data();
            codec_->encode(source, *feedback_, *feedback_, only(SliceToEncode{slice, message, message}));
        });
    }

    // After the exchange.
    void decode_and_update() {
        const SegmentSink sink(layout_, [&](const Segment& s, const float* momentum) {
            kernels_.exchanged_update(momentum, s.parameters(), s.count, update_);
        });
        for_each_slice([&](const Slice& slice) {
            codec_->decode(only(EncodedSlice{slice, messages_[slice.chunk.index].data()}), {}, sink);
        });
    }

    void floor(const FloorCandidate& candidate) {
        const std::size_t share = count_ / threads_ / 1024 * 1024;
        parallel_for(0, threads_, threads_, [&](std::size_t t) {
            candidate.run(gradients_.data() + t * share, m_.data() + t * share, share);
        });
    }

  private:
    void cut_tensors() {
        const std::vector<std::size_t> sizes = cut_into_tensors(count_);
        tensors_.reserve(sizes.size());
        std::vector<const Tensor*> pointers;
        std::size_t at = 0;
        for (const std::size_t size : sizes) {
            Tensor tensor;
            tensor.count = size;
            tensor.parameters = parameters_.data() + at;
            tensor.gradients = gradients_.data() + at;
            at += size;
            tensors_.push_back(tensor);
            pointers.push_back(&tensors_.back());
        }
        layout_ = Layout(std::move(pointers));
        layout_.cut(partition(count_, 2));
    }

    void for_each_slice(const std::function<void(const Slice&)>& visit) {
        SliceCursor cursor;
        for (Slice slice; cursor.next(chunks_, &slice);) visit(slice);
    }

    std::size_t count_;
    unsigned threads_;
    const OptimKernels& kernels_;
    AlignedBuffer<float> gradients_, parameters_, m_, v_, precondition_;
    std::vector<Chunk> chunks_;
    std::vector<Tensor> tensors_;
    Layout layout_;
    std::unique_ptr<Codec> codec_;
    std::unique_ptr<Feedback> feedback_;
    std::vector<AlignedBuffer<std::uint32_t>> messages_;
    AdamBetas betas_ = {0.9F, 0.1F, 0.999F, 0.001F, 63.0F};
    AdamUpdate update_ = {1e-6F, 1e-8F, 0.01F, 1, 1};
};

struct Row {
    std::string name;
    double bytes_per_element; // read and written
    std::function<void()> pass;
    std::vector<double> times = {};

    double median() {
        std::sort(times.begin(), times.end());
        return times[times.size() / 2];
    }
};

void run(std::size_t count, unsigned threads, std::size_t rounds, const std::string& kernels) {
    Model model(count, threads, kernels);
    std::vector<Row> rows;
    for (const FloorCandidate& candidate : floor_candidates(Floor::kAxpy)) {
        rows.push_back({std::string("axpy, ") + candidate.name, 12, [&] { model.floor(candidate); }});
    }
    const std::size_t floors = rows.size();
    rows.push_back({"Adam", 28, [&] { model.adam(); }});
    rows.push_back({"1-bit Adam, before the exchange", 16.25, [&] { model.encode_momentum(); }});
    rows.push_back({"1-bit Adam, after it", 8.125, [&] { model.decode_and_update(); }});
    for (std::size_t round = 0; round <= rounds; ++round) {
        for (Row& row : rows) {
            const auto begin = std::chrono::steady_clock::now();
            row.pass();
            const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
            if (round > 0) row.times.push_back(time.count()); // the first round warms up
        }
    }
    std::printf("# %zu float32 elements, %u threads, kernels %s, %zu rounds in turn, medians\n", count, threads,
                kernels.c_str(), rounds);
    std::printf("%-34s%10s%10s\n", "# Pass", "ms", "GB/s");
    for (Row& row : rows) {
        const double rate = row.bytes_per_element * static_cast<double>(count) / row.median() / 1e9;
        std::printf("%-34s%10.2f%10.2f\n", row.name.c_str(), row.median() * 1e3, rate);
    }
    double axpy = rows[0].median();
    for (std::size_t f = 1; f < floors; ++f) axpy = std::min(axpy, rows[f].median());
    const double adam = rows[floors].median();
    const double onebit = rows[floors + 1].median() + rows[floors + 2].median();
    std::printf("Adam's bandwidth / axpy's: %.3f    1-bit Adam's two passes / Adam's one: %.3f\n",
                28 / adam / (12 / axpy), onebit / adam);
}

} // namespace
} // namespace onebit::bench

int main(int argc, char** argv) {
    std::size_t elements = std::size_t{1} << 26;
    std::size_t rounds = 11;
    unsigned threads = 1;
    std::string kernels = onebit::available_optim_kernels().front()->name;
    CLI::App app("The optimizers' fused passes against the memory floor", "optimizer_benchmark");
    app.add_option("--elements", elements, "Float32 elements (default 2^26)")
        ->check(CLI::Range(std::size_t{4096}, std::size_t{1} << 36));
    app.add_option("--threads", threads, "threads (default 1)")->check(CLI::Range(1U, 1024U));
    app.add_option("--rounds", rounds, "Measurements of each (default 11)")->check(CLI::Range(1U, 1000000U));
    app.add_option("--kernels", kernels, "Instruction set (default: the best)");
    CLI11_PARSE(app, argc, argv);
    onebit::bench::run(elements, threads, rounds, kernels);
    return 0;
}
