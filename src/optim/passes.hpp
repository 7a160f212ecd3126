// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "compress/codec.hpp"
#include "core/aligned_buffer.hpp"
#include "core/memory.hpp"
#include "core/status.hpp"
#include "optim/kernels/kernels.hpp"
#include "optim/tensors.hpp"

namespace onebit {

struct Bucket;

/// What the passes of a step go by, both by group.
struct PassSettings {
    std::vector<AdamBetas> betas;
    std::vector<AdamUpdate> updates;
    /// Once v is frozen, what is exchanged, and m, is in units of the update: it has been preconditioned.
    bool exchange_updates = false;
    /// Where the gradients' averages are messages: what is beyond it counts as it.
    float largest_average = 0;
};

/// What LAMB's passes find out about one segment.
struct Findings {
    double x = 0;  ///< squares of the parameters, or of m
    double u = 0;  ///< of the update
    double u0 = 0; ///< of the update without weight decay
    float least_ratio = 0;
};

/// What is done to the values of a bucket, where they lie, in whole passes over its layout. The algorithms, which know
/// of no kind of memory, say what is to be done and in which order. A bucket's arrays (sum, m, v, ...) lie where its
/// tensors do; what is called fused is such an array.
class Passes {
  public:
    using FactorOf = std::function<float(const Tensor&)>;
    /// Some elements of an array in a row, and the number of the first one.
    using Reader = std::function<void(std::size_t first, std::span<const float> values)>;
    using Editor = std::function<void(std::size_t first, std::span<float> values)>;

    virtual ~Passes() = default;

    // ---- a step; what works on a GPU may still be under way when these return ----

    enum class Look {
        kSearch,
        kGather,        ///< leaves all in the sum, as floats, on the way
        kWhileEncoding, ///< the exchange of the source does it, whose encoder looks
    };
    /// Looks for the first gradient that is a NaN, or larger than `limit` in magnitude, a finite one.
    virtual void look_at_gradients(Look look, float limit) = 0;
    /// Whether it is known what that has found, and then that: NONFINITE. Until then to be called again; `wait`: as
    /// long as it takes, but not for an exchange.
    virtual bool has_looked(bool wait, Status* found) = 0;
    /// Whether the source's encoder looks at the gradients that it reads in the coming exchange.
    virtual bool encoder_looks() const { return false; }
    /// Adam whole, the gradients being the sum times `factor`, or where there is no sum the last message times that.
    virtual void adam(float factor) = 0;
    /// Turns a variance in `precondition` into what multiplies a momentum.
    virtual void invert_denominator() = 0;
    /// Brings m into units of the update.
    virtual void weigh_momenta() = 0;
    /// Adds the masked elements' gradients, times factor(tensor), to the bucket's.
    virtual void gather_masked(const FactorOf& factor) = 0;
    /// The way back, where updates were exchanged: turns a preconditioner in `v` into the variance that it was made of
    /// times ratio(tensor), and brings m into units of momentum.
    virtual void thaw(const FactorOf& ratio) = 0;
    /// What 1-bit momenta are encoded from: beta1 m + (1 - beta1) factor(tensor) g, m being the last message, or the
    /// bucket's as long as that is not empty; g weighted where updates are exchanged.
    virtual std::unique_ptr<ValueSource> make_momentum_source(FactorOf factor) = 0;
    /// Before an exchange of a source: what it can't do while it is read.
    virtual void prepare_source() {}
    /// Once there is an m that momenta are to be formed of: room for that, if it takes any.
    virtual void make_room_for_momenta() {}
    /// The frozen update by the last message.
    virtual void update_from_message() = 0;

    // What clipping needs to know; these wait.

    /// The sum of squares of the sum's values, segment by segment.
    virtual void sum_squares(std::span<double> by_segment) = 0;
    /// Sketches of this rank's own gradients, kSketchBuckets for each kSketchSegments segments or part of that.
    virtual void sketch(std::span<float> sketches) = 0;

    // What measuring a frozen variance needs to know; it waits.

    /// Sketches of these gradients times factor(tensor), weighted, kSketchBuckets for each of the layout's runs.
    virtual void sketch_weighted(const FactorOf& factor, std::span<float> sketches) = 0;

    /// What went wrong in a pass, none of which can tell, if anything did. A GPU may fail.
    virtual Status failure() const { return {}; }

    // ---- LAMB's; those with findings, one for each segment, wait ----

    /// m and v, the gradients being what adam() takes for them, and the squares x and u of Adam's update by them.
    virtual void find_direction(float factor, std::span<Findings> findings) = 0;
    /// That update, tensors having steps of their own.
    virtual void descend(const FactorOf& step) = 0;
    /// The squares x of m.
    virtual void find_magnitudes(std::span<Findings> findings) = 0;
    /// v_fresh begins as v; m becomes what messages will have, scale(tensor) m.
    virtual void begin_messages(const FactorOf& scale) = 0;
    /// Brings v_fresh up to date with the gradient that the last two messages, times unscale(tensor), tell of; u, u0
    /// and the least ratio. Before the last message was m, as long as that is not empty.
    virtual void look_at_messages(const FactorOf& unscale, std::span<Findings> findings) = 0;
    /// The frozen update by the last message times unscale(tensor), or without that, tensors having steps of their own.
    virtual void update_from_message(const FactorOf& unscale, const FactorOf& step) = 0;

    // ---- 0/1 Adam's ----

    /// What its rounds are encoded from, and gradients that are compressed as such: factor(tensor) g, weighted where
    /// updates are exchanged; once there is an anchor, how far from it step_alone(factor) would lead after those
    /// before; in units of momentum unless updates are exchanged. Reading it changes nothing.
    virtual std::unique_ptr<ValueSource> make_round_source(FactorOf factor) = 0;
    /// m by the last message, the gradients' average or what weighted ones come to, and Adam's update by it with v as
    /// it is.
    virtual void take_average() = 0;
    /// m by this rank's own gradients times factor(tensor), and the frozen update by it, without weight decay.
    virtual void step_alone(const FactorOf& factor) = 0;
    /// Its m alone.
    virtual void move_momenta(const FactorOf& factor) = 0;
    /// Parameters and anchor to where the ranks meet, as the last message has it; where to_momentum(tensor) isn't 0, m
    /// is that message times it.
    virtual void rejoin(const FactorOf& to_momentum, const FactorOf& decay) = 0;

    // ---- what is done rarely, and waits ----

    /// Shows the host a fused array, part by part in order. A GPU's is copied for that.
    virtual void read(const AlignedBuffer<float>& fused, const Reader& body) const = 0;
    /// And lets it change the array.
    virtual void edit(AlignedBuffer<float>& fused, const Editor& body) = 0;
    /// Decodes what the last message says of one of the exchange's chunks, into the host's memory.
    virtual void copy_last_result(const Chunk& chunk, float* values) const = 0;
    /// Sets the parameters, and the copies of them, from the host's memory; all, fused.
    virtual void set_parameters(const float* fused) = 0;
    /// Copies the parameters to a fused array.
    virtual void copy_parameters(AlignedBuffer<float>& fused) const = 0;

    /// Whether the sum is of use after the freeze, too.
    virtual bool keeps_sum() const { return false; }
    /// Bytes of what these passes keep besides the bucket.
    virtual std::size_t bytes() const { return 0; }
};

/// Floats of the sketches of so many segments.
constexpr std::size_t sketch_floats(std::size_t segments) {
    return ceil_divide(segments, kSketchSegments) * kSketchBuckets;
}
/// What a segment's elements are hashed with.
std::uint64_t sketch_seed(const Segment& segment);

/// What a pass says of a gradient that isn't finite, or beyond the limit.
Status nonfinite_gradient(const Segment& segment, std::size_t index, float value, float limit);

/// The passes over a bucket in the host's memory. All that is given here outlives them, and stays in its place.
std::unique_ptr<Passes> make_host_passes(Bucket& bucket, const PassSettings& settings, const OptimKernels& kernels,
                                         unsigned threads);

/// What of a GPU's passes is going to be asked for.
struct CudaNeeds {
    bool clipping = false;
    bool measuring = false;         ///< of frozen variances
    bool norms = false;             ///< of tensors
    bool refreshing = false;        ///< a fresh variance, after the freeze
    bool missing_gradients = false; ///< which are zeros
};

/// The same in a GPU's, with its work in `stream`, a cudaStream_t: cuda/cuda_passes.cpp, or where there is no CUDA,
/// cuda/no_cuda.cpp. May throw, as its memory does.
std::unique_ptr<Passes> make_cuda_passes(Bucket& bucket, const PassSettings& settings, Memory& memory, void* stream,
                                         const CudaNeeds& needs);

} // namespace onebit
