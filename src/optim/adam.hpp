// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "optim/fused_optimizer.hpp"

namespace onebit {

/// Adam and 1-bit Adam [1-bit Adam, algorithm 1]: 1-bit Adam's warm-up is Adam, and Adam is a warm-up without end.
///
/// In the compression stage there is no momentum in memory: m is the last message, one bit per element and a scale. A
/// step is two passes, from block to block:
///   before the exchange  read g, the frozen preconditioner and the error; m from its bits; write the error and new
///   bits after it             read x; m from the new bits; write x
/// (Where momenta are exchanged, the preconditioner is read after the exchange.)
/// 24.4 bytes per element, where dense Adam moves 28. Only the first step after the freeze, and after a load, reads m
/// from memory.
/// Adam and 1-bit Adam. With a codec for gradients, Adam averages its gradients by this codec in every step.
class Adam final : public FusedOptimizer {
  public:
    static Status create(Communicator& communicator, Settings settings, std::vector<Tensor> tensors,
                         std::unique_ptr<Optimizer>* optimizer);

  private:
    using FusedOptimizer::FusedOptimizer;

    std::unique_ptr<ValueSource> make_source(Bucket& bucket) override;
    void update_exactly(Bucket& bucket) override;
    void update_compressed(Bucket& bucket) override;
    Status freeze_bucket(Bucket& bucket) override;
};

} // namespace onebit
