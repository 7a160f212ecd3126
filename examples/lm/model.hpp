// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// A byte-level neural language model after Bengio et al. (JMLR 2003): the last few bytes, each by its embedding, go
// through one hidden layer of tanh and a softmax that guesses the next byte.

#ifndef ONEBIT_EXAMPLES_LM_MODEL_HPP
#define ONEBIT_EXAMPLES_LM_MODEL_HPP

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lm {

constexpr std::size_t kBytes = 256; // the vocabulary

struct Shape {
    std::size_t context;   // bytes that the model sees
    std::size_t embedding; // numbers that stand for one byte
    std::size_t hidden;    // units of the hidden layer
};

struct Parameters {
    std::string name;
    std::vector<float> values;
    std::vector<float> gradients; // of the mean loss of the last batch
};

class Model {
  public:
    // The same seed gives the same initial parameters, on every rank. No batch may be larger than max_batch.
    Model(const Shape& shape, std::size_t max_batch, std::uint64_t seed);

    // Mean loss (nats per byte) of a batch. Each example is context + 1 bytes of text: the context, then the next byte.
    float loss(std::span<const std::uint8_t* const> examples);

    // The same, and fills the gradients.
    float loss_and_gradients(std::span<const std::uint8_t* const> examples);

    std::vector<Parameters>& parameters() { return parameters_; }
    std::size_t count() const; // of parameters, in all

  private:
    enum { kEmbedding, kHiddenWeights, kHiddenBias, kOutputWeights, kOutputBias };

    float forward(std::span<const std::uint8_t* const> examples);
    void backward(std::span<const std::uint8_t* const> examples);
    void embedding_gradients(std::span<const std::uint8_t* const> examples);
    float* values(int which) { return parameters_[which].values.data(); }
    float* gradients(int which) { return parameters_[which].gradients.data(); }

    Shape shape_;
    std::size_t input_; // width of the concatenated embeddings
    std::vector<Parameters> parameters_;
    // One row for each example of the batch. `output_` holds the probabilities, then the gradients of the logits.
    std::vector<float> embedded_, hidden_, output_, d_hidden_, d_embedded_;
    std::vector<float> transposed_; // scratch for a transposed factor
};

} // namespace lm

#endif // ONEBIT_EXAMPLES_LM_MODEL_HPP
