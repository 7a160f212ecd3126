// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "matrix.hpp"

namespace lm {
namespace {

// Uniform in [-limit, limit). By hand, because the standard distributions differ between libraries.
std::vector<float> random_values(std::size_t count, double limit, std::mt19937_64& random) {
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(limit * (std::ldexp(double(random() >> 11), -52) - 1.0));
    return values;
}

// matrix[row][:] += bias, for every row.
void add_bias(float* matrix, const float* bias, std::size_t rows, std::size_t columns) {
    for (std::size_t row = 0; row < rows; ++row) {
        for (std::size_t j = 0; j < columns; ++j) matrix[row * columns + j] += bias[j];
    }
}

// bias = sum of the matrix's rows: the gradient of add_bias.
void sum_rows(const float* matrix, float* bias, std::size_t rows, std::size_t columns) {
    std::fill_n(bias, columns, 0.0f);
    for (std::size_t row = 0; row < rows; ++row) {
        for (std::size_t j = 0; j < columns; ++j) bias[j] += matrix[row * columns + j];
    }
}

// Turns logits into probabilities, in place. Returns -log of the target's probability.
float softmax(float* logits, std::uint8_t target) {
    const float largest = *std::max_element(logits, logits + kBytes); // so that exp cannot overflow
    const float target_logit = logits[target] - largest;
    float sum = 0;
    for (std::size_t j = 0; j < kBytes; ++j) sum += logits[j] = std::exp(logits[j] - largest);
    for (std::size_t j = 0; j < kBytes; ++j) logits[j] /= sum;
    return std::log(sum) - target_logit;
}

} // namespace

Model::Model(const Shape& shape, std::size_t max_batch, std::uint64_t seed)
    : shape_(shape), input_(shape.context * shape.embedding) {
    std::mt19937_64 random(seed);
    auto add = [&](const char* name, std::size_t count, double limit) {
        parameters_.push_back({name, random_values(count, limit, random), std::vector<float>(count)});
    };
    add("embedding", kBytes * shape.embedding, 1.0);
    add("hidden weights", input_ * shape.hidden, std::sqrt(3.0 / double(input_)));
    add("hidden bias", shape.hidden, 0.0);
    add("output weights", shape.hidden * kBytes, std::sqrt(1.0 / double(shape.hidden)));
    add("output bias", kBytes, 0.0);

    embedded_.resize(max_batch * input_);
    d_embedded_.resize(max_batch * input_);
    hidden_.resize(max_batch * shape.hidden);
    d_hidden_.resize(max_batch * shape.hidden);
    output_.resize(max_batch * kBytes);
    transposed_.resize(std::max(embedded_.size(), hidden_.size()));
}

std::size_t Model::count() const {
    std::size_t count = 0;
    for (const Parameters& p : parameters_) count += p.values.size();
    return count;
}

float Model::loss(std::span<const std::uint8_t* const> examples) {
    return forward(examples);
}

float Model::loss_and_gradients(std::span<const std::uint8_t* const> examples) {
    const float loss = forward(examples);
    backward(examples);
    return loss;
}

float Model::forward(std::span<const std::uint8_t* const> examples) {
    const std::size_t batch = examples.size();
    float* to = embedded_.data();
    for (const std::uint8_t* example : examples) {
        for (std::size_t i = 0; i < shape_.context; ++i) {
            to = std::copy_n(values(kEmbedding) + example[i] * shape_.embedding, shape_.embedding, to);
        }
    }

    multiply(embedded_.data(), values(kHiddenWeights), hidden_.data(), batch, input_, shape_.hidden);
    add_bias(hidden_.data(), values(kHiddenBias), batch, shape_.hidden);
    for (std::size_t i = 0; i < batch * shape_.hidden; ++i) hidden_[i] = std::tanh(hidden_[i]);

    multiply(hidden_.data(), values(kOutputWeights), output_.data(), batch, shape_.hidden, kBytes);
    add_bias(output_.data(), values(kOutputBias), batch, kBytes);
    double sum = 0;
    for (std::size_t i = 0; i < batch; ++i) sum += softmax(&output_[i * kBytes], examples[i][shape_.context]);
    return static_cast<float>(sum / double(batch));
}

// From the last layer to the first. With c = a b, the gradients are da = dc b' and db = a' dc.
void Model::backward(std::span<const std::uint8_t* const> examples) {
    const std::size_t batch = examples.size(), hidden = shape_.hidden;
    float* transposed = transposed_.data();

    for (std::size_t i = 0; i < batch; ++i) output_[i * kBytes + examples[i][shape_.context]] -= 1.0f;
    for (std::size_t i = 0; i < batch * kBytes; ++i) output_[i] /= float(batch);

    transpose(hidden_.data(), transposed, batch, hidden);
    multiply(transposed, output_.data(), gradients(kOutputWeights), hidden, batch, kBytes);
    sum_rows(output_.data(), gradients(kOutputBias), batch, kBytes);

    multiply_transposed(output_.data(), values(kOutputWeights), d_hidden_.data(), batch, kBytes, hidden);
    for (std::size_t i = 0; i < batch * hidden; ++i) d_hidden_[i] *= 1.0f - hidden_[i] * hidden_[i];

    transpose(embedded_.data(), transposed, batch, input_);
    multiply(transposed, d_hidden_.data(), gradients(kHiddenWeights), input_, batch, hidden);
    sum_rows(d_hidden_.data(), gradients(kHiddenBias), batch, hidden);

    multiply_transposed(d_hidden_.data(), values(kHiddenWeights), d_embedded_.data(), batch, hidden, input_);
    embedding_gradients(examples);
}

// Adds the gradient of each byte of each context to the byte's row. The rows of other bytes stay exactly zero.
void Model::embedding_gradients(std::span<const std::uint8_t* const> examples) {
    std::vector<float>& rows = parameters_[kEmbedding].gradients;
    std::fill(rows.begin(), rows.end(), 0.0f);
    const float* from = d_embedded_.data();
    for (const std::uint8_t* example : examples) {
        for (std::size_t i = 0; i < shape_.context; ++i) {
            float* row = &rows[example[i] * shape_.embedding];
            for (std::size_t j = 0; j < shape_.embedding; ++j) row[j] += *from++;
        }
    }
}

} // namespace lm
