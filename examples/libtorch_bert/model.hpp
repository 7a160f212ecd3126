// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// A small BERT: token and position embeddings, transformer layers with the normalisation after each half (as in BERT),
// and a head that guesses the masked tokens. The head's weights are tied to the embeddings. No segments, no second
// task, no dropout.

#ifndef ONEBIT_EXAMPLES_BERT_MODEL_HPP
#define ONEBIT_EXAMPLES_BERT_MODEL_HPP

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "examples.hpp"

namespace bert {

struct Shape {
    std::int64_t vocabulary = 1000;
    std::int64_t sequence = 64; // tokens
    std::int64_t width = 128;
    std::int64_t heads = 4;
    std::int64_t layers = 2;
};

// One transformer layer.
class LayerImpl : public torch::nn::Module {
  public:
    explicit LayerImpl(const Shape& shape);
    // [batch, sequence, width] to [tokens, width]: all tokens, or only the tokens at `positions` (as in a Batch).
    torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& positions = {});

  private:
    torch::Tensor attend(const torch::Tensor& x);

    std::int64_t heads_;
    torch::nn::Linear query_key_value_, attention_output_, widen_, narrow_;
    torch::nn::LayerNorm attention_norm_, feed_forward_norm_;
};
TORCH_MODULE(Layer);

class BertImpl : public torch::nn::Module {
  public:
    explicit BertImpl(const Shape& shape);
    // Mean loss, in nats, over the tokens to guess.
    torch::Tensor loss(const Batch& batch);

  private:
    // The last layer's output for the tokens to guess.
    torch::Tensor encode(const Batch& batch);

    Shape shape_;
    torch::nn::Embedding tokens_, positions_;
    torch::nn::LayerNorm embedding_norm_;
    std::vector<Layer> layers_;
    torch::nn::Linear head_;
    torch::nn::LayerNorm head_norm_;
    torch::Tensor head_bias_;
};
TORCH_MODULE(Bert);

} // namespace bert

#endif // ONEBIT_EXAMPLES_BERT_MODEL_HPP
