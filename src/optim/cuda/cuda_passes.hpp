// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "compress/sign/cuda/cuda_sign_codec.hpp"
#include "core/aligned_buffer.hpp"
#include "core/cuda/device.hpp"
#include "optim/bucket.hpp"
#include "optim/kernels/cuda/kernels.hpp"
#include "optim/passes.hpp"

namespace onebit {

/// The passes over a bucket in a GPU's memory: each puts one launch, or a few, into the stream and returns. What the
/// kernels are told lies in that memory too, and is copied there again only when it changes: pieces with a tensor's
/// gradients, settings with a step. look_at_gradients alone waits, once.
///
/// The sum stays for good, for compressed rounds gather in it what they encode: the gradients, unless the bucket is one
/// tensor of floats, which is encoded from where it lies; or whole momenta, where a message's encoder can't form them.
class CudaPasses final : public Passes {
  public:
    CudaPasses(Bucket& bucket, const PassSettings& settings, Memory& memory, cuda::Stream stream);

    Status look_at_gradients(bool gather) override;
    void adam(float factor) override;
    void invert_denominator() override;
    std::unique_ptr<ValueSource> make_momentum_source(FactorOf factor) override;
    void prepare_source() override;
    void update_from_message() override;
    Status failure() const override;

    void read(const AlignedBuffer<float>& fused, const Reader& body) const override;
    void edit(AlignedBuffer<float>& fused, const Editor& body) override;
    void copy_last_result(const Chunk& chunk, float* values) const override;
    void set_parameters(const float* fused) override;

    bool keeps_sum() const override { return true; }
    std::size_t bytes() const override;

  private:
    /// What an exchange encodes: an array, or a blend of it with the last message.
    struct Encoded {
        const float* values = nullptr;
        std::optional<Blend> blend;
    };
    class EncodedSource;

    void make_pieces();
    void place_in_messages();
    void follow_gradients();
    cuda::Pieces pieces();
    const float* gradients_in_place() const;
    std::optional<Blend> common_blend() const;
    /// Keeps the first failure.
    void note(const Status& status);
    const FlatAllreduce& messages() const { return bucket_.allreduce->flat(); }

    Bucket& bucket_;
    const PassSettings& settings_;
    Memory& memory_;
    cuda::Stream stream_;

    std::vector<cuda::Piece> pieces_;
    AlignedBuffer<cuda::Piece> pieces_there_; ///< on the device
    std::vector<const void*> gradients_;      ///< by tensor: as the device knows them
    std::vector<cuda::GroupSettings> groups_;
    DeviceTable<cuda::GroupSettings> groups_there_;
    DeviceTable<float> factor_there_; ///< one, of the sum
    std::vector<float> factors_;      ///< of the rank's own gradients, by tensor
    DeviceTable<float> factors_there_;

    FactorOf factor_of_;
    Encoded encoded_;                     ///< by the coming exchange
    mutable AlignedBuffer<float> window_; ///< the host's, where it sees fused arrays
    Status failure_;
};

} // namespace onebit
