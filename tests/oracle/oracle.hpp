// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The reference that the library is tested against: all ranks of a compressed allreduce and of 1-bit Adam simulated in
// one object, in double precision, with the plainest loops that say what is meant. It includes nothing of the library,
// so that a mistake in one is not repeated in the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace oracle {

using Vector = std::vector<double>;
using PerRank = std::vector<Vector>; // [rank][element]
using Signs = std::vector<int>;      // +1 or -1 for each element

enum class Scale { l2, l1 };
enum class Group { block, tensor };

constexpr std::uint64_t word_elements = 32;
constexpr std::uint64_t block_elements = 4096;

struct Range {
    std::uint64_t begin;
    std::uint64_t count;
    std::uint64_t end() const { return begin + count; }
};

// Rank j's chunk of `count` elements: whole 32-element words, the first ranks one word more, the last word clipped.
std::vector<Range> partition(std::uint64_t count, int ranks);

// A range cut into blocks of 4096 elements counted from its own start; the last may be short, none is empty.
std::vector<Range> blocks_of(Range range);

// +1 for x >= 0, both zeros included, else -1.
int sign_of(double x);

// The first element whose given sign differs from c's although |c| exceeds the tolerance there; -1 if there is none.
// With it a test may take the library's own signs: they may differ from the oracle's only within rounding of zero.
std::int64_t first_implausible_sign(const Signs& given, const Vector& c, const Vector& tolerance);

// The flat compressed allreduce of all ranks. Public data: it's a test's instrument, to be looked at and set.
class FlatAllreduce {
  public:
    FlatAllreduce(std::uint64_t count, int ranks, Scale scale, Group group);

    // Elements outside the mask are exactly zero from now on: value, error and result; they count in no scale.
    void set_mask(const std::vector<bool>& mask);

    // One call with inputs[rank][element]. Signs that are given (not empty) are used instead of the computed ones.
    void step(const PerRank& inputs);
    void step(const PerRank& inputs, const std::vector<Signs>& worker_signs, const Signs& server_signs);

    std::uint64_t count() const { return count_; }
    int ranks() const { return ranks_; }
    const std::vector<Range>& chunks() const { return chunks_; }
    bool takes_part(std::uint64_t i) const { return mask_.empty() || mask_[i]; }

    // The error state; tests may overwrite it (teacher forcing). Chunk j of server_error belongs to rank j.
    PerRank worker_error;
    Vector server_error;

    // What the last step saw: the compensated values before their signs were taken, and each element's scale.
    PerRank worker_c, worker_scale;
    Vector server_c, server_scale;
    Vector result;

  private:
    double scale_of(const Vector& c, const std::vector<Range>& ranges) const;
    std::vector<std::vector<Range>> worker_groups() const;
    std::vector<std::vector<Range>> server_groups() const;
    void compress(const std::vector<std::vector<Range>>& groups, const Vector& c, const Signs& given, Vector& scale,
                  Vector& value, Vector& error) const;

    std::uint64_t count_;
    int ranks_;
    Scale scale_;
    Group group_;
    std::vector<Range> chunks_;
    std::vector<bool> mask_;
};

struct AdamConfig {
    double lr = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0;
    bool bias_correction = true;
};

// Adam on the exact average of the ranks' gradients; weight decay is decoupled.
class Adam {
  public:
    Adam(const AdamConfig& config, const Vector& parameters);
    void step(const PerRank& gradients);

    AdamConfig config;
    Vector x, m, v;
    std::uint64_t steps = 0;
};

// The rule that ends the warm-up: ||v_t||_1 / ||v_(t-delta)||_1 in [0.96, 1/0.96], delta = round(1 / (1 - beta2)).
class FreezeRule {
  public:
    FreezeRule(double beta2, std::uint64_t lr_warmup_steps);

    // Called once after each warm-up step with ||v||_1; true: that step was the last of the warm-up.
    bool observe(double v_norm);

    std::uint64_t delta() const { return delta_; }
    double last_ratio() const { return last_ratio_; } // 0 while there is none
    // How near the ratio ever came to one of its bounds: within rounding of one a test can't tell who is right.
    double margin() const { return margin_; }

  private:
    std::uint64_t delta_;
    std::uint64_t lr_warmup_steps_;
    std::vector<double> norms_;
    double last_ratio_ = 0;
    double margin_ = 1e300;
};

// 1-bit Adam: Adam until the freeze, then the compressed momentum with v frozen.
class OnebitAdam {
  public:
    OnebitAdam(const AdamConfig& config, const Vector& parameters, int ranks, Scale scale, Group group);

    void freeze_at(std::uint64_t step) { planned_freeze_ = step; }
    void freeze_by_rule(std::uint64_t lr_warmup_steps) { rule_ = {FreezeRule(adam.config.beta2, lr_warmup_steps)}; }
    void freeze_now();
    void step(const PerRank& gradients);

    bool frozen() const { return freeze_step != 0; }
    std::uint64_t masked() const;
    double rule_margin() const { return rule_.empty() ? 1e300 : rule_.front().margin(); }

    Adam adam; // its x, m and steps go on being the state after the freeze
    FlatAllreduce reduce;
    std::uint64_t freeze_step = 0; // 0: warming up
    // Each element's smallest |c| / scale of any compressed step, at any worker or the server: where it is within
    // rounding of zero the library may rightly take the other sign.
    Vector sign_margin;

  private:
    void compressed_step(const PerRank& gradients);
    void note_margins();

    std::uint64_t planned_freeze_ = 0;
    std::vector<FreezeRule> rule_; // one or none
    std::vector<bool> mask_;
};

} // namespace oracle
