// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cfloat>
#include <memory>
#include <span>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "core/cuda/device.hpp"
#include "numeric/cuda/finding.hpp"
#include "optim/bucket.hpp"
#include "optim/kernels/cuda/kernels.hpp"
#include "optim/passes.hpp"

namespace onebit {

/// Guards pinned memory from which a stream copies in order: the memory is read only when the stream reaches the copy.
class CopyGuard {
  public:
    /// Called before the memory is written again. Waits only where the last copy may still be under way: not for a copy
    /// of an earlier step.
    Status await(cuda::Stream stream) {
        if (!copying_) return {};
        bool copied = false;
        ONEBIT_RETURN_IF_ERROR(copied_.test(&copied));
        if (!copied) ONEBIT_RETURN_IF_ERROR(cuda::wait_for(stream));
        copying_ = false;
        return {};
    }
    /// Called after the copies.
    Status record(cuda::Stream stream) {
        copying_ = true;
        return copied_.record(stream);
    }

  private:
    cuda::Event copied_;
    bool copying_ = false; ///< as far as is known
};

/// A host array's copy on the device, made again only when the array changes. The source is pinned memory: with other
/// memory CUDA waits for the stream's work before it copies.
template <typename T>
class PinnedTable {
  public:
    PinnedTable(std::size_t count, Memory& device)
        : on_host_(count, cuda::pinned_memory()), on_device_(count, device) {}

    /// Updates the device, in order with the stream's work; waits as the guard does.
    Status update(std::span<const T> values, cuda::Stream stream) {
        if (known_ && std::ranges::equal(values, on_host_.view())) return {};
        ONEBIT_RETURN_IF_ERROR(guard_.await(stream));
        known_ = true;
        std::ranges::copy(values, on_host_.data());
        ONEBIT_RETURN_IF_ERROR(cuda::copy_later(on_device_.data(), on_host_.data(), on_host_.bytes(), stream));
        return guard_.record(stream);
    }
    const T* data() const { return on_device_.data(); }

  private:
    AlignedBuffer<T> on_host_;
    AlignedBuffer<T> on_device_;
    CopyGuard guard_;
    bool known_ = false; ///< by the device
};

/// A segment's piece for a GPU, without the places of its signs and scale in messages.
cuda::Piece make_piece(const Segment& segment, std::size_t tensor_in_layout);

/// The passes over a bucket in a GPU's memory: each puts one launch, or a few, into the stream and returns. The data of
/// the kernels lies in this memory too, and is copied there again only when it changes: pieces with a tensor's
/// gradients, settings with a step. An event tells when the result of look_at_gradients is there.
///
/// Gradients are encoded from where they lie, and looked at during encoding; so are momenta whose past is the last
/// message. Other momenta, and the changes by 0/1 Adam's steps alone, are formed in the sum first.
class CudaPasses final : public Passes {
  public:
    CudaPasses(Bucket& bucket, const PassSettings& settings, Memory& memory, cuda::Stream stream,
               const CudaNeeds& needs);

    void look_at_gradients(Look look, float limit) override;
    bool has_looked(bool wait, Status* found) override;
    bool encoder_looks() const override;
    void adam(float factor) override;
    void invert_denominator() override;
    void weigh_momenta() override;
    void gather_masked(const FactorOf& factor) override;
    void thaw(const FactorOf& ratio) override;
    void sum_squares(std::span<double> by_segment) override;
    void sketch(std::span<float> sketches) override;
    void sketch_weighted(const FactorOf& factor, std::span<float> sketches) override;
    std::unique_ptr<ValueSource> make_momentum_source(FactorOf factor) override;
    void prepare_source() override;
    void make_room_for_momenta() override;
    void update_from_message() override;
    Status failure() const override;

    void find_direction(float factor, std::span<Findings> findings) override;
    void descend(const FactorOf& step) override;
    void find_magnitudes(std::span<Findings> findings) override;
    void begin_messages(const FactorOf& scale) override;
    void look_at_messages(const FactorOf& unscale, std::span<Findings> findings) override;
    void update_from_message(const FactorOf& unscale, const FactorOf& step) override;

    std::unique_ptr<ValueSource> make_round_source(FactorOf factor) override;
    void take_average() override;
    void step_alone(const FactorOf& factor) override;
    void move_momenta(const FactorOf& factor) override;
    void rejoin(const FactorOf& to_momentum, const FactorOf& decay) override;

    void read(const AlignedBuffer<float>& fused, const Reader& body) const override;
    void edit(AlignedBuffer<float>& fused, const Editor& body) override;
    void copy_last_result(const Chunk& chunk, float* values) const override;
    void set_parameters(const float* fused) override;
    void copy_parameters(AlignedBuffer<float>& fused) const override;

    bool keeps_sum() const override { return true; } // for as long as there is an m, or for good
    std::size_t bytes() const override;

  private:
    class EncodedSource;

    Status describe_nonfinite(std::size_t at) const;
    void make_pieces();
    const void* gradients_of(const Segment& segment) const;
    void place_in_messages();
    Status follow_addresses();
    cuda::Pieces pieces();
    const float* weights() const;
    const float* precondition_of_messages() const;
    void prepare_momenta();
    void prepare_round();
    Status encode_gradients(const cuda::Rows<cuda::BlendEncoding>& slices);
    const float* factors(const FactorOf& factor_of);
    const float* steps(const FactorOf& step_of);
    cuda::Messages last_messages() const;
    template <typename Put>
    void take_numbers(const Put& put);
    /// Keeps the first failure.
    void note(const Status& status);
    const FlatAllreduce& messages() const { return bucket_.allreduce->flat(); }

    Bucket& bucket_;
    const PassSettings& settings_;
    Memory& memory_;
    cuda::Stream stream_;

    AlignedBuffer<cuda::Piece> pieces_;       ///< pinned
    AlignedBuffer<cuda::Piece> pieces_there_; ///< on the device
    CopyGuard pieces_guard_;
    AlignedBuffer<float> zeros_; ///< a block's, which stand for missing gradients
    struct Addresses {
        const void* gradients;
        float* parameters;
        bool operator==(const Addresses&) const = default;
    };
    std::vector<Addresses> addresses_; ///< by tensor: as the device knows them
    std::vector<cuda::GroupSettings> groups_;
    PinnedTable<cuda::GroupSettings> groups_there_;
    PinnedTable<float> factor_there_; ///< one, of the sum
    std::vector<float> factors_;      ///< by tensor
    PinnedTable<float> factors_there_;
    std::vector<float> steps_; ///< by tensor
    PinnedTable<float> steps_there_;

    AlignedBuffer<std::size_t> first_piece_there_; ///< by block, and one past the last

    AlignedBuffer<double> numbers_there_; ///< by piece
    std::vector<double> numbers_;
    AlignedBuffer<float> sketches_;
    AlignedBuffer<std::size_t> runs_there_;
    AlignedBuffer<float> sketches_of_runs_;
    AlignedBuffer<float> m_before_; ///< LAMB's, of the message before the last
    AlignedBuffer<float> work_;     ///< LAMB's

    Finding nonfinite_;              ///< of the last look at gradients
    std::size_t blocks_to_look_ = 0; ///< at, which the exchange must still encode
    float limit_ = FLT_MAX;          ///< of that look

    enum class Source { kNone, kMomenta, kRounds } source_ = Source::kNone;
    FactorOf factor_of_;
    const float* encoded_ = nullptr;      ///< by the coming exchange; NULL: gradients from where they lie
    mutable AlignedBuffer<float> window_; ///< on the host, to show fused arrays
    Status failure_;
};

} // namespace onebit
