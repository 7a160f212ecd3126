// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/forms/seat.hpp"
#include "core/aligned_buffer.hpp"
#include "optim/bucket.hpp"
#include "optim/freeze.hpp"
#include "optim/gradient_norm.hpp"
#include "optim/optimizer.hpp"
#include "optim/passes.hpp"
#include "optim/saved_state.hpp"
#include "optim/settings.hpp"
#include "optim/shared_scales.hpp"
#include "optim/started_step.hpp"
#include "optim/tensors.hpp"
#include "optim/variance_follower.hpp"

namespace onebit {

class SavedBlobs;

/// No training has made so many steps.
inline constexpr std::uint64_t kImpossibleCount = std::uint64_t{1} << 48;

/// What a step exchanges of a bucket.
enum class Round {
    kExact,      ///< the gradients, averaged exactly
    kCompressed, ///< what the kind encodes, by config.codec
    kLocal,      ///< nothing
};

/// The frame that all kinds share; a kind fills in what it does with an exchanged bucket. One step:
///
/// 1. Look at the gradients; those that are to be averaged exactly are gathered on the way.
/// 2. Agree. Nothing has changed so far. If a rank has found something wrong, nothing changes on any rank.
/// 3. Average exactly what this round averages exactly; find the gradients' factor: clipping, gradient scale.
/// 4. If the freeze was decided on, change over.
/// 5. Exchange the buckets that this round compresses.
/// 6. Update every bucket: from exact sums, from exchanged values, or locally.
/// 7. Check whether the warm-up ends. After the freeze: follow the variances; check if they outgrew the frozen ones.
///
/// A step counts on all buckets or on none: up to 5 any rank may refuse the step, and all ranks know of it before 6.
/// Only 4 changes anything before 6. This change follows from the state alone: if the step is refused, the next step
/// finds the change made.
///
/// With buckets (config.bucket_size) most steps begin before step() is called: a bucket's exchange starts as soon as
/// grad_ready has been called for all of its tensors. Such an early exchange is tentative: the agreement (2) comes when
/// all exchanges are under way, and their results count only after it. On a GPU without buckets the ranks agree twice:
/// first on all but the gradients' values, then on these values, once encoders have looked at them. fused_step.cpp has
/// all three orders.
class FusedOptimizer : public Optimizer {
  public:
    ~FusedOptimizer() override;
    FusedOptimizer(const FusedOptimizer&) = delete;
    FusedOptimizer& operator=(const FusedOptimizer&) = delete;

    Entered enter() const final { return Entered(settings_.backend); }
    const std::shared_ptr<AbortSwitch>& abort_switch() const final { return patience().abort_switch; }
    Status start() final; // these: fused_started.cpp
    Status test(bool* done) final;
    Status wait() final;
    Status move_on(bool* done) final;
    UnderWay under_way() const final;
    Status step() final; // these three: fused_step.cpp
    Status cancel_step(const char* reason) final;
    Status grad_ready(std::size_t tensor) final;
    Status set_gradients(std::size_t tensor, const void* gradients) final; // these: fused_settings.cpp
    Status set_all_gradients(const void* const* gradients, std::size_t num_tensors) final;
    Status set_parameters(std::size_t tensor, float* parameters) final;
    Status set_lr(double lr) final;
    Status set_group_lr(std::size_t group, double lr) final;
    Status set_group(std::size_t group, const onebit_param_group_t* settings) final;
    Status set_gradient_scale(double scale) final;
    Status set_max_grad_norm(double max_grad_norm) final;
    Status freeze() final;
    Status reset_error() final;
    Status get_error(float* worker, float* server) const final;
    Status save(const char* prefix) final;         // fused_save.cpp
    Status load(const char* prefix) final;         // fused_load.cpp
    Status state_size(std::uint64_t* bytes) final; // these three: fused_blobs.cpp
    Status pack_state(void* buffer, std::uint64_t bytes) final;
    Status unpack_state(const void* const* blobs, const std::uint64_t* bytes, std::size_t num_blobs) final;
    Status get_state(std::size_t tensor, onebit_state_t which, float* values) const final; // these: fused_moments.cpp
    Status set_state(std::size_t tensor, onebit_state_t which, const float* values) final;
    Status set_steps(std::uint64_t steps) final;
    Status prepare_to_be_destroyed() final; // fused_started.cpp
    void fill_info(onebit_optimizer_info_t* info) const final;

  protected:
    FusedOptimizer(Settings settings, std::vector<Tensor> tensors);

    /// Opens the exchanges and allocates. Collective; blocks.
    Status prepare(Communicator& communicator, bool keep_results);

    // ---- what a kind fills in ----

    /// What the coming step does with the buckets that compress.
    virtual Round next_round() const { return frozen() || compresses_gradients() ? Round::kCompressed : Round::kExact; }
    /// Whether some rounds before the freeze are compressed.
    virtual bool compresses_in_warm_up() const { return false; }
    /// Whether each rank steps alone after the freeze, from the parameters after the last round (bucket.anchor).
    virtual bool drifts() const { return false; }
    /// Whether the kind keeps a fresh variance after the freeze (bucket.v_fresh).
    virtual bool refreshes_variance() const { return false; }
    /// Whether the kind asks for norms of tensors.
    virtual bool needs_norms() const { return false; }
    /// What the first step after the freeze does with the buckets that compress.
    virtual Round round_after_freeze() const { return Round::kCompressed; }
    /// The values that a bucket's compressed exchanges encode, where these aren't the gradients. The source is made
    /// once, and read in each exchange. Reading changes nothing. The bucket stays at its address.
    virtual std::unique_ptr<ValueSource> make_source(Bucket& bucket) = 0;
    /// Whether before_exchange has something to do in the coming step.
    virtual bool must_prepare_exchange() const { return false; }
    /// Called before a compressed exchange that did not begin early. Collective; blocks.
    virtual Status before_exchange(Bucket&) { return {}; }
    /// bucket.sum holds the gradients' sum over the ranks, or the exchange's last result is their average. Either of
    /// them, times average_factor(), is what the formulas call the gradient.
    virtual void update_exactly(Bucket& bucket) = 0;
    /// The exchange's last result is the average of the values that make_source's sources encoded.
    virtual void update_compressed(Bucket& bucket) = 0;
    /// Updates from the rank's own gradients, times own_factor().
    virtual void update_locally(Bucket&) {}
    /// Allocates what freeze_bucket() needs. Called for all buckets before the first one freezes. Where it fails on
    /// some rank, drop_preparations() is called on all ranks, and the step is refused.
    virtual Status prepare_freeze(Bucket&) { return {}; }
    /// Frees what prepare_freeze() has allocated.
    virtual void drop_preparations(Bucket&) {}
    /// Called once, after prepare_freeze() and before the first step after the freeze. v still exists; elements whose v
    /// is zero are masked.
    virtual Status freeze_bucket(Bucket& bucket) = 0;
    /// What a compressed momentum is multiplied by for its message, after the freeze.
    virtual float message_scale(const Tensor&) const { return 1; }
    /// Called before a bucket thaws, when its sum exists again. Makes parameters and momenta equal on all ranks where
    /// they may differ. Collective; blocks.
    virtual Status meet(Bucket&) { return {}; }
    /// Allocates what meet() needs.
    virtual Status prepare_meeting(Bucket&) { return {}; }
    /// Called after all buckets have thawed.
    virtual void thawed() {}
    /// Called once in a step, before the first bucket is updated; no rank refuses the step any more.
    virtual void begin_updates(Round) {}
    /// Called after a step, before t() moves on. Collective; blocks. before_exchange must make up for a failure here.
    virtual void finish_step(Round) {}
    /// Adds what a freeze waits for besides the variances of the bucket's tensors, after an exact step. The number of
    /// these quantities never changes.
    virtual void add_freeze_quantities(const Bucket&, std::vector<FreezeQuantity>*) const {}
    /// All numbers of the kind's own state, in a fixed order.
    virtual void visit_numbers(NumberVisitor&) {}
    /// Checks that a training can have come to the kind's own numbers: BAD_STATE with a number that is impossible.
    virtual Status check_numbers() const { return {}; }
    /// Called after a load.
    virtual void loaded() {}
    /// moments_set: a moment was set, or another part of a denominator. steps_set: the number of steps was set, all of
    /// which averaged exactly.
    virtual void moments_set() {}
    virtual void steps_set() {}
    /// Bytes of what the kind keeps besides the buckets.
    virtual std::size_t own_bytes() const { return 0; }

    // ---- what it works with ----

    /// Where the tensors lie, and what is kept for them.
    Memory& memory() const { return settings_.backend->memory(); }
    /// The number of the step that is being made; the first is 1.
    std::uint64_t t() const { return steps_ + 1; }
    bool frozen() const { return freeze_step_ > 0; }
    std::uint64_t freeze_step() const { return freeze_step_; }
    const onebit_param_group_t& group_of(const Tensor& tensor) const { return settings_.groups[tensor.group]; }
    std::size_t num_tensors() const { return tensors_.size(); }
    const std::vector<onebit_param_group_t>& groups() const { return settings_.groups; }
    /// Works out this step's updates for a v that has been updated `v_updates` times.
    void set_updates(std::uint64_t v_updates);
    /// How often a bucket's v has been updated, this step included, where every exact step updates v.
    std::uint64_t variance_updates(const Bucket& bucket) const {
        return may_freeze(bucket) ? exact_rounds_ + (frozen() ? 0 : 1) : t();
    }
    /// own_factor: this step's factor of the rank's own gradients; it also follows frozen variances. average_factor:
    /// this step's factor of the gradients' sum over the ranks, or of an average that was exchanged.
    float own_factor(const Tensor& tensor) const;
    float average_factor(const Bucket& bucket) const;
    std::uint64_t steps() const { return steps_; }
    std::uint64_t exact_rounds() const { return exact_rounds_; }
    bool has_compressed() const { return compressed_rounds_ > 0; }
    const onebit_optimizer_config_t& config() const { return settings_.config; }
    std::vector<Bucket>& buckets() { return buckets_; }
    bool exchanges_updates() const { return settings_.exchanges_updates(); }
    bool compresses_gradients() const { return settings_.compresses_gradients(); }
    /// Whether the bucket's v is updated in exact rounds only, and frozen at some step.
    bool may_freeze(const Bucket& bucket) const { return bucket.compresses && settings_.freezes(); }
    /// Whether frozen variances follow the measured ones.
    bool follows() const { return exchanges_updates() && settings_.measures_variances(); }

    /// bucket.sum, in which exact rounds add up: made before the first exact round, dropped after the last.
    Status make_sum(Bucket& bucket) const;
    void drop_sum(Bucket& bucket) const;
    /// Takes the sum's memory, with any values in it, for an array that begins at the freeze. Before drop_sum().
    AlignedBuffer<float> take_sum(Bucket& bucket) const;
    /// One step of dense Adam from the gradients' average, as update_exactly().
    void update_with_adam(Bucket& bucket, std::uint64_t v_updates);
    /// Masks the elements whose v is zero, and zeroes what is left of their momentum. Collective; blocks. `prepared`:
    /// what is already wrong on this rank, if anything.
    Status mask_zero_variance(Bucket& bucket, const Status& prepared = {});
    /// Adds bucket.sum up over the ranks. Collective; blocks.
    Status sum_over_ranks(Bucket& bucket);
    /// Turns a v in `precondition` that has been updated `v_updates` times into the preconditioner. If `stops_masked`,
    /// the preconditioner is 0 where v is 0.
    void invert_variance(Bucket& bucket, std::uint64_t v_updates, bool stops_masked = true);
    /// Turns v into the preconditioner. If `stops_masked`, the preconditioner is 0 where v is 0. Brings m into units of
    /// the update where updates are exchanged.
    void freeze_variance(Bucket& bucket, bool stops_masked = true);

  private:
    Status take_seats(const NodeGroups& nodes);
    Status add_compressing_buckets(Communicator& communicator, const std::vector<const Tensor*>& tensors,
                                   bool keep_results);
    Status add_buckets(Communicator& communicator, const std::vector<const Tensor*>& tensors,
                       onebit_algorithm_t algorithm, const char* why, bool keep_results);
    /// The algorithm of compressed exchanges. DENSE: there are none.
    onebit_algorithm_t exchange_algorithm() const;
    Status make_room();
    std::unique_ptr<ValueSource> gradients_of(Bucket& bucket) const;
    std::unique_ptr<Passes> make_passes(Bucket& bucket) const;
    Status check_number(std::size_t tensor) const;
    Status check_gradients(const Tensor& tensor, const void* gradients) const;
    Status check_usable() const;
    Status check_not_started() const;
    Status check_between_steps() const;

    // Settings that change: fused_settings.cpp.
    struct Coming {
        std::vector<onebit_param_group_t> groups;
        double gradient_scale = 1;
        double max_grad_norm = 0;
        std::unique_ptr<FreezeRule> freeze_rule; ///< where it can't stay as it is
    };
    Coming& coming();
    Status changed();
    void take_coming();
    void take_betas();
    double greatest_beta2(const std::vector<onebit_param_group_t>& groups) const;
    Status check_group_number(std::size_t group) const;
    Status check_stays(const onebit_param_group_t& before, const onebit_param_group_t& after) const;

    // A step.
    bool averages_exactly(const Bucket& bucket, Round round) const {
        return !bucket.compresses || round == Round::kExact;
    }
    Round coming_round() const { return freeze_requested_ ? round_after_freeze() : next_round(); }
    const Patience& patience() const { return buckets_.front().allreduce->patience(); }
    /// Whether a bucket needs a sum, before or after the freeze. The average of compressed gradients is a message.
    bool needs_sum(const Bucket& bucket, bool is_frozen) const {
        return !bucket.compresses || (!is_frozen && !compresses_gradients());
    }
    bool has_buckets() const { return settings_.bucket_size() > 0; }
    bool encoders_may_look() const { return config().memory != ONEBIT_MEMORY_HOST && config().max_grad_norm <= 0; }
    bool may_be_tentative(Round round) const;
    bool exchanges_early(Round round) const;
    bool encoders_look(Round round) const;
    bool exchanges_go_on() const;
    /// Whether a step has begun: settings that come now apply to the step after it.
    bool has_begun() const { return begun_ || started_->under_way(); }
    Status step_unless(const Status& refusal);
    Status make_step_unless(const Status& refusal);
    Status exchange(Round round);
    Status exchange_looking(Round round);
    Status plan_sum(Bucket& bucket, AlignedBuffer<float>& values) const;
    void unplan_sum(Bucket& bucket) const;
    Status begin_sum(Bucket& bucket, AlignedBuffer<float>& values);
    Status exchange_compressed();
    Status void_message(Bucket& bucket);
    Status exchange_early(Round round, const Status& refusal);
    Status conclude_tentative(Round round, const Status& refusal);
    Status check_has_gradients(const Tensor& tensor) const;
    Status check_has_gradients(const Bucket& bucket) const;
    Status find_in_gradients(Status* own);
    void start_early(Bucket& bucket, Round round, const Status& unread);
    void start_compressed(Bucket& bucket);
    Status progress(bool* moved);
    Status finish_exchanges();
    Status commit_exchanges(Round round);
    Status break_all(const Status& why);
    Status agree(Round round, const Status& own, const std::function<Status(bool*)>& meanwhile = {});
    void look_at_gradients(Bucket& bucket, Passes::Look look);
    Status check_passes() const;
    Status complete(Round round);
    Status count(Round round);
    Status after_freeze(const Status& nonfinite) const;
    Status find_factor(Round round);
    void forget_exchanges();

    Status change_over();
    Status freeze_all();
    bool measures_now() const;
    Status measure_variances();
    Status follow_variances();
    Status thaw();
    Status prepare_thaw(std::vector<AlignedBuffer<float>>* momenta);
    Status thaw_all();
    // Of masked elements: fused_masked.cpp.
    struct Admission;
    void make_room_for_masked(Bucket& bucket) const;
    void gather_masked();
    bool admits_now() const;
    Status admit_newcomers();
    Status find_buckets_with_newcomers(std::vector<Admission>* admissions);
    Status prepare_admission(std::vector<Admission>* admissions);
    Status sum_masked(const std::vector<Admission>& admissions);
    void add_masked(const Bucket& bucket, float* values) const;
    AlignedBuffer<float> take_masked(const std::uint32_t* mask, AlignedBuffer<float>* values) const;
    Status find_newcomers(std::vector<Admission>* admissions);
    Status admit(std::vector<Admission>& admissions);

    bool warmup_ends();
    void look_at_norms();
    void add_variances(const Bucket& bucket);
    void log_rule(bool ends) const;
    void look_at_shared_scales();
    void log_freeze() const;
    void log_growth(onebit_log_level_t level, const char* consequence) const;
    void request_freeze();
    std::uint64_t bytes_sent() const;

    // What is kept for one tensor: fused_moments.cpp.
    bool is_frozen_or_will_be() const { return frozen() || freeze_requested_ != 0; }
    AdamUpdate frozen_update(const Tensor& tensor) const;
    void copy_momentum(const Bucket& bucket, const Segment& whole, float* values) const;
    void copy_variance(const Bucket& bucket, const Segment& whole, float* values) const;
    void copy_message(const Bucket& bucket, std::size_t begin, std::size_t count, float* values) const;
    Status copy_error(const Bucket& bucket, const Segment& whole, onebit_state_t which, float* values) const;
    Status check_moment(const Bucket& bucket, const Tensor& tensor, bool first, const float* values) const;
    void note_set(std::size_t place, std::uint64_t what);

    // Saving and loading.
    struct ArrayPlan;
    std::vector<ArrayPlan> plan_arrays(const Bucket& bucket, SavedStage stage, bool on_two_levels) const;
    static Chunk part_of(ArrayName name, Ownership ownership, std::size_t count, std::uint32_t rank,
                         std::uint32_t ranks, const Seat& seat);
    const Seat& seat() const { return seats_[static_cast<std::size_t>(buckets_.front().allreduce->channel().rank())]; }
    std::vector<float> piece_of(const Bucket& bucket, ArrayName name, const Chunk& piece) const;
    std::vector<ArrayRow> rows_of(SavedStage stage, std::uint32_t rank, std::uint32_t ranks, const Seat& seat) const;
    void visit_all_numbers(NumberVisitor& visitor);
    std::vector<std::uint64_t> all_numbers();
    bool set_all_numbers(const std::vector<std::uint64_t>& numbers);
    SavedStage frozen_as() const { return exchanges_updates() ? SavedStage::kUpdates : SavedStage::kMomenta; }
    SavedStage stage() const {
        return frozen() ? frozen_as() : compresses_gradients() ? SavedStage::kGradients : SavedStage::kExact;
    }
    Identity identity() const;
    ExpectedFile expected_file();
    SavedOptimizer saved();
    std::uint64_t common_hash(const SavedOptimizer& saved) const;
    Status unpack(SavedBlobs& saved, const ExpectedFile& expected);
    Status check_loaded(const LoadedOptimizer& loaded); // these: state_check.cpp
    Status check_all_numbers(bool saved_frozen);
    Status check_arrays(const LoadedOptimizer& loaded) const;
    class BucketArrays;
    double greatest_mean(double onebit_param_group_t::*beta, std::uint64_t updates) const;
    Status check_magnitudes(const BucketArrays& arrays, std::uint32_t number) const;
    struct Room { ///< by bucket
        std::vector<Allreduce::Mask> masks;
        std::vector<AlignedBuffer<float>> masked_gradients;
    };
    Status make_room_for(LoadedOptimizer& loaded, Room* room);
    Status take_over(const Status& own, LoadedOptimizer& loaded, Room room);
    Status restore(LoadedOptimizer& save, Room room);

    Settings settings_;
    Coming coming_;           ///< settings of the next step,
    bool has_coming_ = false; ///< if they came while one had begun
    int ranks_ = 1;
    std::vector<Seat> seats_; ///< by rank
    std::vector<Tensor> tensors_;
    PassSettings by_group_;
    std::vector<Bucket> buckets_;
    /// Why compressed exchanges have their form.
    char exchange_reason_[sizeof(onebit_optimizer_info_t::reason)] = "this kind averages exactly";
    const OptimKernels* kernels_ = nullptr;
    unsigned threads_ = 1;
    std::unique_ptr<GradientNorm> norm_;          ///< where gradients are clipped
    std::unique_ptr<FreezeRule> freeze_rule_;     ///< where the warm-up ends by itself
    std::unique_ptr<VarianceFollower> follower_;  ///< where frozen variances are followed
    std::unique_ptr<SharedScales> shared_scales_; ///< where momenta are compressed
    std::vector<FreezeQuantity> quantities_;      ///< that the freeze rule sees
    double greatest_beta2_ = 0;                   ///< of tensors that compress
    std::vector<double> rates_;                   ///< by group, that the freeze rule sees
    Log log_;                                     ///< for what is worth knowing

    // Of the coming step.
    double factor_ = 1;                  ///< of the gradients
    double coming_norm_ = 0;             ///< grad_norm_, once the step counts
    std::vector<bool> ready_;            ///< by tensor
    std::vector<std::size_t> bucket_of_; ///< by tensor
    bool begun_ = false;                 ///< a tensor is ready
    Status exchange_failure_;            ///< status of the first tentative exchange that failed
    std::unique_ptr<StartedStep> started_;

    std::uint64_t steps_ = 0;
    std::uint64_t skipped_ = 0;
    std::uint64_t cancelled_ = 0; ///< not saved: it says nothing of the training
    std::uint64_t exact_rounds_ = 0;
    std::uint64_t compressed_rounds_ = 0;
    std::uint64_t freeze_step_ = 0;      ///< T_w; 0 while warming up
    std::uint64_t freeze_requested_ = 0; ///< 1: the next step is the first one after the freeze
    std::uint64_t masked_ = 0;
    std::uint64_t thaws_ = 0;
    std::uint64_t freezes_again_ = 0;         ///< 1: the freeze that has ended was not a rule's
    std::uint64_t least_freeze_step_ = 0;     ///< after a thaw: no freeze by itself before it
    bool told_of_growth_ = false;             ///< since the freeze
    std::uint64_t compressed_bytes_sent_ = 0; ///< in compression stages that are over
    std::uint64_t bytes_sent_at_freeze_ = 0;
    double grad_norm_ = 0;
    std::vector<std::uint64_t> set_hashes_; ///< of the steps that were set, and of each tensor's m and v
    std::uint64_t set_hash_ = 0;            ///< their sum, which ranks compare: the order of setting doesn't matter
};

} // namespace onebit
