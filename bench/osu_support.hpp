// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// What the parts of the OSU-style benchmarks share.
#pragma once

#include <mpi.h>
#include <onebit/onebit.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>

namespace onebit::bench {

enum class Completion {
    kBlocking,
    kStarted,    // and waited for at once
    kOverlapped, // started, and something computed before they are waited for
};

// One of the benchmarks: how its output and its options differ.
struct OsuProgram {
    const char* name;       // "osu_onebit_allreduce"
    const char* collective; // in a sentence
    const char* title;      // as in the header of OMB's own benchmark, if there is one
    const char* rival;      // MPI's function
    bool shards = false;    // each rank has a shard of the whole buffer: onebit_shard_config_t
    Completion completion = Completion::kBlocking;
    bool steps = false; // of an optimizer, whose results are no averages
};

struct Ranks {
    const char* program = "";
    MPI_Comm comm = MPI_COMM_WORLD;
    int rank = 0;
    int size = 1;
};

// A benchmark has nothing to save. So on an error it names the rank, the call and the reason, and ends all ranks.
inline void require_success(const Ranks& ranks, onebit_status_t status, const char* call) {
    if (status == ONEBIT_SUCCESS) return;
    std::fprintf(stderr, "%s: rank %d: %s: %s: %s\n", ranks.program, ranks.rank, call, onebit_status_string(status),
                 onebit_last_error());
    std::fflush(stderr);
    MPI_Abort(ranks.comm, EXIT_FAILURE);
}

// Page-aligned floats, as OMB's buffers are. Zeroed, so that no page is touched for the first time in a timed call.
class FloatBuffer {
  public:
    // Collective. Takes memory that the ranks of a node share, if they can.
    FloatBuffer(const Ranks& ranks, onebit_comm_t comm, std::size_t count) {
        void* memory = nullptr;
        require_success(ranks, onebit_mem_alloc(comm, count * sizeof(float), &memory), "onebit_mem_alloc");
        data_ = {static_cast<float*>(memory), [](float* pointer) { onebit_mem_free(pointer); }};
    }

    explicit FloatBuffer(std::size_t count) {
        const std::size_t bytes = (count * sizeof(float) / kPage + 1) * kPage;
        data_ = {static_cast<float*>(std::aligned_alloc(kPage, bytes)), [](float* pointer) { std::free(pointer); }};
        if (!data_) throw std::bad_alloc();
        for (std::size_t i = 0; i < count; ++i) data_[i] = 0.0F;
    }

    float* data() { return data_.get(); }
    const float* data() const { return data_.get(); }
    float& operator[](std::size_t i) { return data_[i]; }
    float operator[](std::size_t i) const { return data_[i]; }

  private:
    static constexpr std::size_t kPage = 4096;
    std::unique_ptr<float[], void (*)(float*)> data_ = {nullptr, nullptr};
};

} // namespace onebit::bench
