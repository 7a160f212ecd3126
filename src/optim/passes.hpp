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

/// The settings of a step's passes; betas and updates by group.
struct PassSettings {
    std::vector<AdamBetas> betas;
    std::vector<AdamUpdate> updates;
    /// Once v is frozen, exchanged values and m are in units of the update: they have been preconditioned.
    bool exchange_updates = false;
    /// Where the gradients' averages are messages: averages are clamped to this magnitude.
    float largest_average = 0;
};

/// What LAMB's passes find out about one segment.
struct Findings {
    double x = 0;  ///< squares of the parameters, or of m
    double u = 0;  ///< of the update
    double u0 = 0; ///< of the update without weight decay
    float least_ratio = 0;
};

/// Operations on the values of a bucket, in the memory where they lie, in whole passes over its layout. The algorithms
/// call these operations, and don't know the kind of memory. A bucket's arrays (sum, m, v, ...) lie in the same memory
/// as its tensors. A `fused` array is such an array.
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
        kGather,        ///< also writes all gradients to the sum, as floats
        kWhileEncoding, ///< the source's encoder looks, during the exchange
    };
    /// Looks for the first gradient that is a NaN, or larger in magnitude than `limit`, which is finite.
    virtual void look_at_gradients(Look look, float limit) = 0;
    /// Whether the result of the look is known; `found` is then the result: success or NONFINITE. While the result is
    /// unknown, call this again. `wait`: waits for the result, but not for an exchange.
    virtual bool has_looked(bool wait, Status* found) = 0;
    /// Whether the source's encoder looks at the gradients that it reads in the coming exchange.
    virtual bool encoder_looks() const { return false; }
    /// A whole Adam update. The gradients are the sum, or where there is no sum the last message, times `factor`.
    virtual void adam(float factor) = 0;
    /// Turns a variance in `precondition` into the factor of a momentum.
    virtual void invert_denominator() = 0;
    /// Brings m into units of the update.
    virtual void weigh_momenta() = 0;
    /// Adds the masked elements' gradients, times factor(tensor), to the bucket's.
    virtual void gather_masked(const FactorOf& factor) = 0;
    /// The inverse, where updates were exchanged: turns a preconditioner in `v` back into the variance, multiplied by
    /// ratio(tensor), and brings m into units of momentum.
    virtual void thaw(const FactorOf& ratio) = 0;
    /// The source of 1-bit momenta: beta1 m + (1 - beta1) factor(tensor) g. m is the bucket's m, or the last message
    /// once the bucket's m is empty. g is weighted where updates are exchanged.
    virtual std::unique_ptr<ValueSource> make_momentum_source(FactorOf factor) = 0;
    /// Called before an exchange of a source: does what the source can't do while it is read.
    virtual void prepare_source() {}
    /// Called once momenta are to be formed from an m in memory: allocates what this needs, if anything.
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

    /// An error of a pass, if there was one: passes return no status. A GPU may fail.
    virtual Status failure() const { return {}; }

    // ---- LAMB's; those with findings, one for each segment, wait ----

    /// Updates m and v from the same gradients as adam(). Finds the squares x (parameters) and u (Adam's update).
    virtual void find_direction(float factor, std::span<Findings> findings) = 0;
    /// Makes that update, with a step size for each tensor.
    virtual void descend(const FactorOf& step) = 0;
    /// Finds the squares x of m.
    virtual void find_magnitudes(std::span<Findings> findings) = 0;
    /// v_fresh begins as v. m becomes scale(tensor) m, as messages will have it.
    virtual void begin_messages(const FactorOf& scale) = 0;
    /// Updates v_fresh with the gradient that follows from the last two messages, times unscale(tensor). Finds u, u0
    /// and the least ratio. As long as m is not empty, m takes the place of the message before the last.
    virtual void look_at_messages(const FactorOf& unscale, std::span<Findings> findings) = 0;
    /// The frozen update by the last message, times unscale(tensor) if given, with a step size for each tensor.
    virtual void update_from_message(const FactorOf& unscale, const FactorOf& step) = 0;

    // ---- 0/1 Adam's ----

    /// The source of 0/1 Adam's rounds, and of gradients that are compressed as such. Without an anchor: factor(tensor)
    /// g, weighted where updates are exchanged. With an anchor: the parameters' distance from it if step_alone(factor)
    /// were called now, in units of momentum unless updates are exchanged. Reading the source changes nothing.
    virtual std::unique_ptr<ValueSource> make_round_source(FactorOf factor) = 0;
    /// Updates m with the last message, the average of gradients, or of weighted gradients, which is unweighed. Makes
    /// Adam's update by m; v stays the same.
    virtual void take_average() = 0;
    /// Updates m with this rank's own gradients times factor(tensor). Makes the frozen update by m, no weight decay.
    virtual void step_alone(const FactorOf& factor) = 0;
    /// Only the update of m in step_alone().
    virtual void move_momenta(const FactorOf& factor) = 0;
    /// Moves parameters and anchor to where the ranks meet, by the last message. Where to_momentum(tensor) isn't 0, m
    /// becomes the last message times to_momentum(tensor).
    virtual void rejoin(const FactorOf& to_momentum, const FactorOf& decay) = 0;

    // ---- what is done rarely, and waits ----

    /// Shows the host a fused array, part by part in order. A GPU's is copied for that.
    virtual void read(const AlignedBuffer<float>& fused, const Reader& body) const = 0;
    /// Shows the host a fused array likewise, and lets the host change it.
    virtual void edit(AlignedBuffer<float>& fused, const Editor& body) = 0;
    /// Decodes what the last message says of one of the exchange's chunks, into the host's memory.
    virtual void copy_last_result(const Chunk& chunk, float* values) const = 0;
    /// Sets all parameters, and the copies of them, from a fused array in the host's memory.
    virtual void set_parameters(const float* fused) = 0;
    /// Copies the parameters to a fused array.
    virtual void copy_parameters(AlignedBuffer<float>& fused) const = 0;

    /// Whether the sum is of use after the freeze, too.
    virtual bool keeps_sum() const { return false; }
    /// Bytes of what these passes keep besides the bucket.
    virtual std::size_t bytes() const { return 0; }
};

/// The number of floats in the sketches of `segments` segments.
constexpr std::size_t sketch_floats(std::size_t segments) {
    return ceil_divide(segments, kSketchSegments) * kSketchBuckets;
}
/// The seed that a segment's elements are hashed with.
std::uint64_t sketch_seed(const Segment& segment);

/// A pass's error for a gradient that isn't finite, or is beyond the limit.
Status nonfinite_gradient(const Segment& segment, std::size_t index, float value, float limit);

/// The passes over a bucket in the host's memory. All arguments must outlive the passes and stay in their place.
std::unique_ptr<Passes> make_host_passes(Bucket& bucket, const PassSettings& settings, const OptimKernels& kernels,
                                         unsigned threads);

/// Which optional passes of a GPU will be called.
struct CudaNeeds {
    bool clipping = false;
    bool measuring = false;         ///< of frozen variances
    bool norms = false;             ///< of tensors
    bool refreshing = false;        ///< a fresh variance, after the freeze
    bool missing_gradients = false; ///< which are zeros
};

/// The same in a GPU's memory, with the work in `stream`, a cudaStream_t. Defined in cuda/cuda_passes.cpp, or where
/// there is no CUDA, in cuda/no_cuda.cpp. May throw, as the GPU's memory does.
std::unique_ptr<Passes> make_cuda_passes(Bucket& bucket, const PassSettings& settings, Memory& memory, void* stream,
                                         const CudaNeeds& needs);

} // namespace onebit
