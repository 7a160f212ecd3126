// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// A masked language model's examples: sequences of tokens. Some tokens are hidden, and the model has to guess them.

#ifndef ONEBIT_EXAMPLES_BERT_EXAMPLES_HPP
#define ONEBIT_EXAMPLES_BERT_EXAMPLES_HPP

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "random.hpp"
#include "text.hpp"

namespace bert {

struct Batch {
    std::vector<Token> inputs;           // sequences one after the other, some tokens masked
    std::vector<std::int64_t> positions; // indices into inputs of the tokens to guess
    std::vector<Token> targets;          // the tokens themselves
};

// Appends a sequence to the batch. BERT's rule: 15 % of the tokens are to be guessed; of these, 80 % become [MASK],
// 10 % a random token, 10 % stay.
void append_masked(std::span<const Token> sequence, std::size_t vocabulary, Random random, Batch& batch);

// Sequence number k of a training is the same for every arm and every number of ranks: all windows of the text in
// random order, in each epoch another order and another offset, and masked anew.
class Sampler {
  public:
    Sampler(std::span<const Token> tokens, std::size_t sequence, std::size_t vocabulary, std::uint64_t seed);

    // Sequences first to first + count - 1. Later calls are quickest with later numbers.
    Batch batch(std::uint64_t first, std::size_t count);

  private:
    void begin_epoch(std::uint64_t epoch);

    std::span<const Token> tokens_;
    std::size_t sequence_;
    std::size_t vocabulary_;
    std::uint64_t seed_;
    std::vector<std::size_t> windows_; // where each begins, in the order of this epoch
    std::uint64_t epoch_ = 0;
};

// Sequences begin, begin + step, ... of the held-out tokens, in batches of at most `batch`. The masks depend on the
// sequence alone, so that all trainings are judged by the same guesses.
std::vector<Batch> held_out_batches(std::span<const Token> tokens, std::size_t sequence, std::size_t vocabulary,
                                    std::size_t batch, std::size_t begin, std::size_t step);

// Mean loss, over the tokens to guess, of a model that knows how frequent each token of the training text is, and
// nothing of the context.
double unigram_loss(std::span<const Token> training, const std::vector<Batch>& held_out, std::size_t vocabulary);

} // namespace bert

#endif // ONEBIT_EXAMPLES_BERT_EXAMPLES_HPP
