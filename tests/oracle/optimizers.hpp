// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The five optimizers of docs/OPTIMIZERS.md in double precision. One object has all ranks. The tensors are consecutive
// in one vector. The data is public, as in oracle.hpp: tests read and set it.
#pragma once

#include <memory>

#include "oracle/oracle.hpp"

namespace oracle {

// The settings of a group of tensors.
struct Settings {
    double lr = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0;
    bool no_compress = false;
};

struct Tensor {
    std::uint64_t count;
    std::size_t group = 0;
};

struct Model {
    std::vector<Tensor> tensors;
    std::vector<Settings> groups = {Settings{}};
    int ranks = 1;
    int places = 1;          // in each node: more than 1 where the compressed exchange has two levels
    Scale scale = Scale::l2; // of the compressed exchange
    Group group = Group::block;
    bool bias_correction = true;
    double max_grad_norm = 0;
    bool exchange_updates = true;            // rather than momenta
    double min_trust = 0.01, max_trust = 10; // LAMB
    double trust_beta = 0.9;                 // 1-bit LAMB
    bool momentum_scaling = true;
    std::uint64_t variance_updates = 16; // 0/1 Adam
    std::uint64_t local_step_scaler = 32768;
    std::uint64_t local_steps = 16;
    std::uint64_t follow_interval = 0; // 0: frozen variances are not followed
    double thaw_ratio = 4;
};

// One tensor's elements in the whole vector.
struct Slice {
    Range range;
    std::size_t tensor; // its number
    std::size_t group;
};

double norm_of(const Vector& values);
Vector mean_of(const PerRank& values);

// The common part of all kinds: scaled and clipped gradients, and tensors that are never compressed.
class Optimizer {
  public:
    Optimizer(const Model& model_in, const Vector& parameters);
    virtual ~Optimizer() = default;
    Optimizer(const Optimizer&) = default;
    Optimizer& operator=(const Optimizer&) = default;

    // gradients[rank][element], as the library is given them.
    void step(const PerRank& gradients);

    // x is the same on every rank, except during local steps.
    virtual const Vector& parameters_of(std::size_t rank) const;
    // Does the next step average exactly?
    virtual bool next_is_exact() const { return true; }

    Model model; // its groups' settings may change between steps
    double gradient_scale = 1;
    double told_norm = 0; // the norm for a step that doesn't average exactly: the library's estimate
    double grad_norm = 0; // of the last step's average, divided by gradient_scale, not clipped
    Vector x, m, v;
    std::uint64_t steps = 0;

  protected:
    // The step of all tensors that may be compressed; gradients are already scaled and clipped.
    virtual void update(const PerRank& gradients, const Vector& average) = 0;
    // The whole step of one tensor with an exact average.
    virtual void dense_update(const Slice& slice, const Vector& average);
    // The number of updates of v, this step included.
    virtual std::uint64_t updates_of(const Slice&) const { return steps; }

    std::vector<Slice> slices(bool compressed) const;
    const Settings& settings(const Slice& slice) const { return model.groups[slice.group]; }
    double correction(double beta, std::uint64_t t) const; // 1 / (1 - beta^t), or 1
    void update_moments(const Slice& slice, const Vector& average);
    // D = sqrt(b v) + eps with b after `updates` of v.
    double denominator(const Slice& slice, double variance, std::uint64_t updates) const;
    // x -= lr (a m / D + weight_decay x)
    void adam_update(const Slice& slice, std::uint64_t v_updates);
    // a m / D for one tensor, zero elsewhere.
    Vector adam_direction(const Slice& slice, std::uint64_t v_updates) const;
    // x -= lr c u with u the direction + weight_decay x; returns c.
    double lamb_update(const Slice& slice, std::uint64_t v_updates);
};

class Adam : public Optimizer {
  public:
    using Optimizer::Optimizer;

  protected:
    void update(const PerRank& gradients, const Vector& average) override;
};

class Lamb : public Optimizer {
  public:
    using Optimizer::Optimizer;
    Vector trust; // each tensor's c in the last step

  protected:
    void update(const PerRank& gradients, const Vector& average) override;
    void dense_update(const Slice& slice, const Vector& average) override;
};

// The input of a rule that ends the warm-up, after each step; by group, and by compressed tensor.
struct Sight {
    Vector rates;
    Vector variances;     // ||v||_1
    Vector corrections;   // of v for its bias
    Vector squared_norms; // 1-bit LAMB: ||x||_2^2 as the step found it; else empty
};

// When a warm-up ends by itself.
class FreezeRule {
  public:
    virtual ~FreezeRule() = default;
    // Called once after each warm-up step; true: that step was the last of the warm-up.
    virtual bool observe(const Sight& sight) = 0;
    // The smallest distance of a ratio from a bound. At rounding distance a test can't tell which side is right.
    double margin() const { return margin_; }

  protected:
    bool within(double ratio, double band);

  private:
    double margin_ = 1e300;
};

// ONEBIT_FREEZE_PAPER: ||v_t||_1 / ||v_(t-delta)||_1 in [0.96, 1/0.96], delta = round(1 / (1 - beta2)).
class PaperRule : public FreezeRule {
  public:
    PaperRule(double beta2, std::uint64_t lr_warmup_steps);
    bool observe(const Sight& sight) override;

    std::uint64_t delta() const { return delta_; }
    double last_ratio() const { return last_ratio_; } // 0 while there is none

  private:
    std::uint64_t delta_;
    std::uint64_t lr_warmup_steps_;
    std::vector<double> norms_;
    double last_ratio_ = 0;
};

// ONEBIT_FREEZE_AUTO: all observed quantities have settled.
class SettledRule : public FreezeRule {
  public:
    // `filling`: steps before which v isn't full.
    SettledRule(double filling, std::uint64_t lr_warmup_steps, std::uint64_t window, double band);
    bool observe(const Sight& sight) override;

  private:
    bool rates_have_risen() const; // within the last window
    bool has_settled(std::size_t quantity);

    std::uint64_t lr_warmup_steps_;
    std::uint64_t stride_, window_;
    double filling_, band_;
    PerRank rates_, quantities_; // by look, the first one at step stride_
    std::uint64_t steps_ = 0;
};

// The common part of the kinds that freeze. The exchanged buffer leaves out tensors of no_compress groups: `packed`
// data has only the compressed tensors' elements.
class FreezingOptimizer : public Optimizer {
  public:
    FreezingOptimizer(const Model& model_in, const Vector& parameters);

    void freeze_at(std::uint64_t step) { planned_freeze_ = step; }
    void freeze_by_paper(std::uint64_t lr_warmup_steps);
    void freeze_when_settled(std::uint64_t lr_warmup_steps, std::uint64_t window, double band);
    void freeze_now();

    bool frozen() const { return freeze_step != 0; }
    bool next_is_exact() const override { return !frozen(); }
    std::uint64_t masked() const; // now
    double rule_margin() const { return rule_ == nullptr ? 1e300 : rule_->margin(); }

    Vector packed(const Vector& whole) const;
    Vector unpacked(const Vector& part) const; // zero in no_compress tensors

    TwoLevelAllreduce reduce;      // of the packed buffer
    bool exchanged = false;        // the last step exchanged something compressed
    std::uint64_t freeze_step = 0; // 0: warming up
    std::uint64_t exact_rounds = 0, compressed_rounds = 0;
    // Each packed element's smallest |c| / scale over all compressed exchanges, at any worker or the server. If it is
    // within rounding of zero, the other sign of the library is correct, too.
    Vector sign_margin;

    // Followed variances divided by their values at the freeze, by tensor; and how often they outgrew the freeze.
    Vector variance_ratio;
    std::uint64_t thaws = 0;
    std::uint64_t admitted = 0; // masked elements that took part later
    double told_growth = 0;     // of the only tensor's D^2: the library's estimate in place of the true one; 0: none
    double worst_estimate = 0;  // the largest relative error of a ratio

  protected:
    void update(const PerRank& gradients, const Vector& average) final;
    std::uint64_t updates_of(const Slice& slice) const override {
        return settings(slice).no_compress ? steps : exact_rounds;
    }
    // Called by thaw(), before m and v get their new values.
    virtual void meet() {}
    virtual void warm_up(const PerRank& gradients, const Vector& average);
    virtual void compressed(const PerRank& gradients) = 0;
    virtual void after_freeze() {}
    // A masked element takes part from now on; v and m have its initial values.
    virtual void after_admission(std::uint64_t /*element*/) {}
    // C(values), whole vectors in and out.
    Vector exchange(const PerRank& values);
    // Each rank's gradients become the mean of its node's. On two levels 1-bit Adam and 1-bit LAMB begin with this.
    PerRank means_of_nodes(const PerRank& gradients) const;
    // Where updates are exchanged: a gradient divided by D, bounded. m becomes a mean of such values.
    double weighted(const Slice& slice, std::uint64_t element, double gradient) const;
    void weigh_momentum();
    virtual std::uint64_t frozen_updates() const { return exact_rounds; } // of v
    void mask_where_v_is_zero();
    virtual bool watches_norms() const { return false; } // of the parameters, for the rule
    bool takes_part(std::uint64_t element) const;        // after the freeze

  private:
    void note_margins();
    double largest_beta2() const;
    double mean_share(const Slice& slice) const;
    bool measures_now() const;
    double variance_share(const Slice& slice, std::uint64_t element) const;
    void measure(const PerRank& gradients);
    void gather_masked(const PerRank& gradients);
    std::uint64_t periods_before(std::uint64_t step) const; // since the freeze
    void admit_newcomers();
    void thaw();
    Sight look(const Vector& x_before) const;

    std::vector<std::uint64_t> elements_; // of the packed buffer, in the whole
    std::uint64_t planned_freeze_ = 0;
    std::uint64_t least_freeze_ = 0; // after a thaw
    Vector follow_factor_;           // by tensor
    std::uint64_t last_measured_ = 0;
    std::shared_ptr<FreezeRule> rule_; // none: NULL
    std::vector<bool> mask_;           // of the whole; empty before the freeze
    Vector gathered_;                  // sums of mean gradients of masked elements since the last admission
};

// Adam and LAMB whose gradients are compressed from the first step on. They never freeze. They share the exchange with
// the kinds that freeze.
class CodedAdam : public FreezingOptimizer {
  public:
    using FreezingOptimizer::FreezingOptimizer;
    bool next_is_exact() const override { return false; }

  protected:
    void warm_up(const PerRank& gradients, const Vector& average) override;
    void compressed(const PerRank&) override {}
    std::uint64_t updates_of(const Slice&) const override { return steps; }
};

class CodedLamb : public CodedAdam {
  public:
    using CodedAdam::CodedAdam;

  protected:
    void dense_update(const Slice& slice, const Vector& average) override;
};

class OnebitAdam : public FreezingOptimizer {
  public:
    using FreezingOptimizer::FreezingOptimizer;

  protected:
    void compressed(const PerRank& gradients) override;
    void after_freeze() override { weigh_momentum(); }
};

class OnebitLamb : public FreezingOptimizer {
  public:
    OnebitLamb(const Model& model_in, const Vector& parameters);

    // For each tensor.
    Vector trust_sum, momentum_factor, ratio;
    std::vector<std::uint64_t> trust_steps; // in which c was not 1
    double trust_average(std::size_t tensor) const;
    Vector v_fresh;

  protected:
    void dense_update(const Slice& slice, const Vector& average) override;
    bool watches_norms() const override { return true; }
    void compressed(const PerRank& gradients) override;
    void after_freeze() override;

  private:
    void exchanged_update(const Slice& slice);
    void frozen_update(const Slice& slice, const Vector& momentum_before);
};

// What each of 0/1 Adam's steps exchanges.
class Schedule {
  public:
    Schedule(std::uint64_t variance_updates, std::uint64_t local_step_scaler, std::uint64_t local_steps);

    enum class Round { exact, compressed, local };
    Round next() const;
    void advance(); // takes the step that next() has named
    void freeze() { frozen_at_ = steps_; }
    void thaw() { frozen_at_ = 0, exact_interval_ = 1, exact_in_interval_ = 0; }

    std::uint64_t exact = 0, compressed = 0, local = 0; // so far

  private:
    std::uint64_t local_interval() const; // of the next step

    std::uint64_t variance_updates_, scaler_, longest_;
    std::uint64_t steps_ = 0, frozen_at_ = 0;
    std::uint64_t exact_interval_ = 1, exact_in_interval_ = 0;
};

class ZeroOneAdam : public FreezingOptimizer {
  public:
    ZeroOneAdam(const Model& model_in, const Vector& parameters);

    const Vector& parameters_of(std::size_t rank) const override;
    bool next_is_exact() const override { return schedule.next() == Schedule::Round::exact; }

    // D for each element that may be compressed, else 0.
    Vector denominators() const;

    Schedule schedule;
    PerRank local_x, local_m; // from the freeze on
    Vector anchor;            // x0
    Vector lr_sum, decay;     // L and the weight decay that is due, for each group

  protected:
    void warm_up(const PerRank& gradients, const Vector& average) override;
    void compressed(const PerRank& gradients) override;
    void after_freeze() override;
    void after_admission(std::uint64_t element) override;
    void meet() override;
    std::uint64_t frozen_updates() const override { return schedule.exact; }

  private:
    PerRank weighted_of(PerRank gradients) const;
    void local_step(const PerRank& gradients);
    void round();
};

} // namespace oracle
