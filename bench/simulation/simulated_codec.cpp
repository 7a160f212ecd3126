// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The simulated library's replacement for src/compress and src/core/host_memory.cpp. Its codec has messages as long as
// the sign codec's, and takes as long in simulated time, but touches no value. Its memory looks as large as requested,
// but is the same few pages over and over. The file also has MPI_Comm_idup, which SMPI lacks.

#include "simulated_codec.hpp"

#include <mpi.h>

#include <cstdlib>
#include <cstring>

#include "compress/codec.hpp"
#include "compress/lowrank/kernels.hpp"
#include "core/aligned_buffer.hpp"
#include "numeric/kernels.hpp"

extern "C" int onebit_simulated_yield() noexcept {
    // Otherwise simulated time would stand still while a rank waits in its node's memory.
    smpi_execute(onebit::simulation::rates().poll * 1e-9);
    return 0;
}

/// SMPI lacks MPI_Comm_idup. This one duplicates at once, then waits for the other ranks by a barrier.
extern "C" int onebit_simulated_comm_idup(MPI_Comm comm, MPI_Comm* copy, MPI_Request* request) {
    const int code = MPI_Comm_dup(comm, copy);
    return code == MPI_SUCCESS ? MPI_Ibarrier(comm, request) : code;
}

namespace onebit {

// ----------------------------------------------------------------------------------------------------- memory ----

namespace {

class SimulatedMemory final : public Memory {
  public:
    void* allocate(std::size_t bytes) override {
        return bytes >= kShared ? SMPI_SHARED_MALLOC(bytes) : std::calloc(bytes, 1);
    }
    void release(void* memory, std::size_t bytes) override {
        if (bytes >= kShared) {
            SMPI_SHARED_FREE(memory);
        } else {
            std::free(memory);
        }
    }
    void copy(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
    void fill_zero(void* memory, std::size_t bytes) override { std::memset(memory, 0, bytes); }

  private:
    static constexpr std::size_t kShared = std::size_t{1} << 20;
};

} // namespace

Memory& host_memory() {
    static SimulatedMemory memory;
    return memory;
}

// ------------------------------------------------------------------------------------------------------ codec ----

/// Not simulated, but the linker needs it.
std::span<const LowRankKernels* const> available_low_rank_kernels() {
    return {};
}

namespace simulation {

Rates& rates() {
    static Rates rates;
    return rates;
}

} // namespace simulation

namespace {

using simulation::rates;

void work(std::size_t elements, double nanoseconds) {
    if (elements > 0) smpi_execute(static_cast<double>(elements) * nanoseconds * 1e-9);
}

class SimulatedFeedback final : public Feedback {
  public:
    void reset() override {}
    void get_error(float*) const override {}
    void set_error(const float*) override {}
    void set_mask(std::span<const std::uint32_t>) override {}
    std::size_t state_bytes() const override { return 0; }
    std::size_t workspace_bytes() const override { return 0; }
};

/// docs/WIRE_FORMAT.md: so many bits for each element and words of scales for each block.
class SimulatedCodec final : public Codec {
  public:
    SimulatedCodec(std::size_t bits, std::size_t scales) : bits_(bits), scales_(scales) {}

    const char* kernels() const override { return "simulated"; }
    std::size_t message_words(const Chunk& chunk) const override { return words_before(chunk, chunk.blocks()); }
    WordRange words_of(const Slice& slice) const override {
        return {words_before(slice.chunk, slice.first_block),
                words_before(slice.chunk, slice.end_block) - words_before(slice.chunk, slice.first_block)};
    }
    WordRange trailer_of(const Chunk& chunk) const override { return {message_words(chunk), 0}; }
    std::unique_ptr<Feedback> make_feedback(std::span<const Chunk>) const override {
        return std::make_unique<SimulatedFeedback>();
    }

    void encode(const ValueSource&, const Feedback&, Feedback&, std::span<const SliceToEncode> slices) const override {
        for (const SliceToEncode& one : slices) work(one.slice.count(), rates().encode + rates().node);
    }
    void average_encode(std::span<const std::uint32_t* const> messages, float, const Feedback&, Feedback&,
                        const Slice& slice, std::uint32_t*) const override {
        work(slice.count(), rates().average + rates().average_message * static_cast<double>(messages.size()));
    }
    void average(std::span<const std::uint32_t* const> messages, float, const Slice& slice,
                 const ValueSink&) const override {
        work(slice.count(), rates().decode + rates().average_message * static_cast<double>(messages.size()));
    }
    void seal(Feedback&, std::span<std::uint32_t* const>) const override {}
    void decode(std::span<const EncodedSlice> slices, std::span<const std::uint32_t>, const ValueSink&) const override {
        for (const EncodedSlice& one : slices) work(one.slice.count(), rates().decode);
    }
    void decode_block(const std::uint32_t*, const Block&, std::span<const std::uint32_t>, float*) const override {}
    std::size_t first_overflowed(std::span<const EncodedSlice> slices) const override { return slices.size(); }

  private:
    std::size_t words_before(const Chunk& chunk, std::size_t block) const {
        return bits_ * std::min(block * (kBlockElements / kWordElements), chunk.words()) + scales_ * block;
    }

    std::size_t bits_;
    std::size_t scales_;
};

} // namespace

Status check_codec(const CodecConfig&) {
    return {};
}

double error_of_call(onebit_codec_t) {
    return 1;
}

const char* name_of(onebit_codec_t) {
    return "the simulated codec";
}

double bits_per_element(onebit_codec_t) {
    return 1 + 32.0 / kBlockElements;
}

Status make_codec(const CodecConfig& config, std::unique_ptr<Codec>* codec) {
    const bool in_bytes = config.codec == ONEBIT_CODEC_INT8; // a scale for each 256 elements; else the sign code
    *codec = std::make_unique<SimulatedCodec>(in_bytes ? 8 : 1, in_bytes ? 16 : 1);
    return {};
}

// ---------------------------------------------------------------------------------------------------- numeric ----

namespace {

bool all_within(const float*, std::size_t count, float) {
    work(count, rates().check);
    return true;
}
bool copy(const float*, std::size_t, Stores, float*) {
    return true; // its time is part of the node's rate
}
void mean(const float* const*, std::size_t, std::size_t, float, std::size_t, Stores, float*, Stores, float*) {}

} // namespace

const NumericKernels& reference_numeric_kernels() {
    static constexpr NumericKernels kKernels = {"simulated", all_within, copy, mean};
    return kKernels;
}

std::span<const NumericKernels* const> available_numeric_kernels() {
    static const NumericKernels* const kList[] = {&reference_numeric_kernels()};
    return kList;
}

} // namespace onebit
