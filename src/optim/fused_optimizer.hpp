// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/allreduce.hpp"
#include "core/aligned_buffer.hpp"
#include "optim/freeze.hpp"
#include "optim/gradient_norm.hpp"
#include "optim/optimizer.hpp"
#include "optim/saved_state.hpp"
#include "optim/settings.hpp"
#include "optim/tensors.hpp"

namespace onebit {

/// What a step exchanges of a bucket.
enum class Round {
    kExact,      ///< the gradients, averaged exactly
    kCompressed, ///< one bit per element
    kLocal,      ///< nothing
};

/// Tensors that are exchanged as one buffer, and what every kind of optimizer keeps for them.
struct Bucket {
    Layout layout;
    bool compresses = false; ///< once that stage is reached; else exact for ever
    std::unique_ptr<Allreduce> allreduce;
    AlignedBuffer<float> sum; ///< of the gradients over the ranks, in exact rounds
    AlignedBuffer<float> m;
    AlignedBuffer<float> v;
    AlignedBuffer<float> precondition; ///< v's place once it is frozen: 1 / (sqrt(v) + eps)
    AlignedBuffer<float> v_fresh;      ///< 1-bit LAMB's, after the freeze
    AlignedBuffer<float> anchor;       ///< 0/1 Adam's, after the freeze: the parameters after the last round

    std::size_t bytes() const {
        return layout.bytes() + sum.bytes() + m.bytes() + v.bytes() + precondition.bytes() + v_fresh.bytes() +
               anchor.bytes();
    }
};

/// The frame that all kinds share; a kind fills in what it does with an exchanged bucket. One step:
///
/// 1. Look at the gradients; those that are to be averaged exactly are gathered on the way.
/// 2. Agree: nothing has changed so far, and nothing will on any rank if a rank has found something wrong.
/// 3. If the freeze was decided on, change over.
/// 4. Average exactly what this round averages exactly; find the gradients' factor: clipping, gradient scale.
/// 5. Update every bucket: from exact sums, through a compressed exchange, or locally.
/// 6. See whether the warm-up ends.
class FusedOptimizer : public Optimizer {
  public:
    Status step() final;
    Status set_gradients(std::size_t tensor, const void* gradients) final;
    Status set_lr(double lr) final;
    Status set_group_lr(std::size_t group, double lr) final;
    Status set_gradient_scale(double scale) final;
    Status freeze() final;
    Status reset_error() final;
    Status get_error(float* worker, float* server) const final;
    Status save(const char* prefix) final; // these two: fused_state.cpp
    Status load(const char* prefix) final;
    void fill_info(onebit_optimizer_info_t* info) const final;

  protected:
    FusedOptimizer(Settings settings, std::vector<Tensor> tensors);

    /// Opens the exchanges and allocates. Collective; blocks.
    Status prepare(Communicator& communicator, bool keep_results);

    // ---- what a kind fills in ----

    /// What the coming step does with the buckets that compress.
    virtual Round next_round() const { return frozen() ? Round::kCompressed : Round::kExact; }
    /// What the first step after the freeze does with them.
    virtual Round round_after_freeze() const { return Round::kCompressed; }
    /// bucket.sum holds the gradients' sum over the ranks; times `factor` it is what the formulas call the gradient.
    virtual void update_exactly(Bucket& bucket, float factor) = 0;
    /// The rank's own gradients, times `factor`.
    virtual Status update_compressed(Bucket& bucket, float factor) = 0;
    virtual void update_locally(Bucket&, float) {}
    /// Once, before the first step after the freeze: v is masked where it is zero, and still there.
    virtual Status freeze_bucket(Bucket& bucket) = 0;
    /// Once in a step, before the first bucket is updated; no rank refuses the step any more.
    virtual void begin_updates(Round) {}
    /// After a step, before t() moves on.
    virtual void finish_step(Round) {}
    /// All numbers of the kind's own state, in a fixed order.
    virtual void visit_numbers(NumberVisitor&) {}
    /// After a load.
    virtual void loaded() {}
    /// Bytes of what the kind keeps besides the buckets.
    virtual std::size_t own_bytes() const { return 0; }

    // ---- what it works with ----

    /// The number of the step that is being made; the first is 1.
    std::uint64_t t() const { return steps_ + 1; }
    bool frozen() const { return freeze_step_ > 0; }
    std::uint64_t freeze_step() const { return freeze_step_; }
    const onebit_param_group_t& group_of(const Tensor& tensor) const { return settings_.groups[tensor.group]; }
    std::size_t num_tensors() const { return tensors_.size(); }
    const std::vector<onebit_param_group_t>& groups() const { return settings_.groups; }
    const std::vector<AdamBetas>& betas() const { return betas_; } ///< by group
    const AdamBetas& betas(const Segment& segment) const { return betas_[segment.tensor->group]; }
    /// Works out this step's updates for a v that has been updated `v_updates` times.
    void set_updates(std::uint64_t v_updates);
    const AdamUpdate& update(const Segment& segment) const { return updates_[segment.tensor->group]; }
    /// How often a bucket's v has been updated, this step included, where every exact step does.
    std::uint64_t variance_updates(const Bucket& bucket) const {
        return bucket.compresses && frozen() ? freeze_step_ : t();
    }
    /// Calls body(block) for all blocks of a bucket, from several threads.
    template <typename Body>
    void for_each_block(const Bucket& bucket, const Body& body) const {
        for (const Chunk& chunk : bucket.allreduce->flat().chunks()) {
            parallel_for(0, chunk.blocks(), threads_, [&](std::size_t i) { body(Block{chunk, i}); });
        }
    }
    const OptimKernels& kernels() const { return *kernels_; }
    unsigned threads() const { return threads_; }
    const onebit_optimizer_config_t& config() const { return settings_.config; }
    std::vector<Bucket>& buckets() { return buckets_; }

    /// One step of dense Adam from the bucket's exact sum.
    void update_with_adam(Bucket& bucket, float factor, std::uint64_t v_updates);
    /// Masks the elements whose v is zero, and zeroes what is left of their momentum. Collective; blocks.
    Status mask_zero_variance(Bucket& bucket);
    /// Turns v, updated `v_updates` times, into the preconditioner.
    void freeze_variance(Bucket& bucket, std::uint64_t v_updates);

    // One-bit momentum: m is the last message. bucket.m holds it where there is no message yet.

    /// The block's momentum before this step, as it went through the codec.
    void read_momentum(const Bucket& bucket, const Block& block, float* m) const;
    /// Exchanges the momentum. Afterwards it is in the message; where NONFINITE has voided that, in bucket.m, zero.
    Status exchange_momentum(Bucket& bucket, const ValueSource& source, const ValueSink* sink);

  private:
    Status add_bucket(Communicator& communicator, std::vector<const Tensor*> tensors, bool compresses,
                      bool keep_results);
    bool averages_exactly(const Bucket& bucket, Round round) const {
        return !bucket.compresses || round == Round::kExact;
    }
    Status check_usable() const;
    Status look_at_gradients(Round round);
    Status describe_nonfinite(const Segment& segment) const;
    Status change_over();
    Status find_factor(Round round, double* factor);
    bool warmup_ends();
    void request_freeze();
    double variance_norm() const;
    std::uint64_t bytes_sent() const;

    // Saving and loading.
    struct ArrayPlan;
    std::vector<ArrayPlan> plan_arrays(const Bucket& bucket, bool frozen) const;
    std::vector<float> piece_of(const Bucket& bucket, ArrayName name, const Chunk& piece) const;
    void visit_all_numbers(NumberVisitor& visitor);
    Identity identity() const;
    Status pack(std::vector<std::byte>* bytes);
    Status check_loaded(const LoadedOptimizer& loaded);
    Status restore(LoadedOptimizer& save);

    Settings settings_;
    std::vector<Tensor> tensors_;
    std::vector<Bucket> buckets_;
    const OptimKernels* kernels_ = nullptr;
    unsigned threads_ = 1;
    std::vector<AdamBetas> betas_;       ///< by group
    std::vector<AdamUpdate> updates_;    ///< likewise
    std::unique_ptr<GradientNorm> norm_; ///< where gradients are clipped
    std::optional<AutomaticFreeze> automatic_freeze_;

    std::uint64_t steps_ = 0;
    std::uint64_t skipped_ = 0;
    std::uint64_t exact_rounds_ = 0;
    std::uint64_t compressed_rounds_ = 0;
    std::uint64_t freeze_step_ = 0; ///< T_w; 0 while warming up
    bool freeze_requested_ = false; ///< the next step is the first one after the freeze
    std::uint64_t masked_ = 0;
    std::uint64_t warmup_bytes_sent_ = 0;
    double grad_norm_ = 0;
};

} // namespace onebit
