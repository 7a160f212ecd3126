// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#include "model.hpp"

#include <cmath>
#include <string>

namespace bert {
namespace {

constexpr double kInitialDeviation = 0.05; // BERT's 0.02 is for a width of 768; scaled with its inverse square root
constexpr double kSlowest = 300;           // position's slowest wave: one radian in that many tokens

torch::nn::LayerNorm make_norm(std::int64_t width) {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

// Sine waves, as large as the other embeddings. They are trained like the other embeddings, but neighbours look alike
// from the start. With random numbers the model takes much longer to learn which positions are neighbours.
torch::Tensor waves(std::int64_t sequence, std::int64_t width) {
    const torch::Tensor position = torch::arange(sequence).unsqueeze(1);
    const torch::Tensor share = torch::arange((width + 1) / 2) / double((width + 1) / 2);
    const torch::Tensor angle = position * torch::exp(-std::log(kSlowest) * share);
    return torch::cat({angle.sin(), angle.cos()}, 1).narrow(1, 0, width) * (std::sqrt(2.0) * kInitialDeviation);
}

} // namespace

// No bias for queries, keys and values. Attention doesn't depend on a bias of the keys. So the bias's gradient would be
// only rounding errors, and its variance almost zero: its compressed momentum would be enlarged without limit.
LayerImpl::LayerImpl(const Shape& shape)
    : heads_(shape.heads),
      query_key_value_(torch::nn::LinearOptions(shape.width, 3 * shape.width).bias(false)),
      attention_output_(shape.width, shape.width),
      widen_(shape.width, 4 * shape.width),
      narrow_(4 * shape.width, shape.width),
      attention_norm_(make_norm(shape.width)),
      feed_forward_norm_(make_norm(shape.width)) {
    register_module("query_key_value", query_key_value_);
    register_module("attention_output", attention_output_);
    register_module("attention_norm", attention_norm_);
    register_module("widen", widen_);
    register_module("narrow", narrow_);
    register_module("feed_forward_norm", feed_forward_norm_);
}

torch::Tensor LayerImpl::attend(const torch::Tensor& x) {
    const std::int64_t batch = x.size(0), sequence = x.size(1), width = x.size(2), head = width / heads_;
    // [3, batch, heads, sequence, head]
    const torch::Tensor qkv = query_key_value_(x).view({batch, sequence, 3, heads_, head}).permute({2, 0, 3, 1, 4});
    const torch::Tensor scores = torch::matmul(qkv[0] / std::sqrt(double(head)), qkv[1].transpose(-2, -1));
    const torch::Tensor mixed = torch::matmul(torch::softmax(scores, -1), qkv[2]);
    return mixed.transpose(1, 2).reshape({batch * sequence, width});
}

torch::Tensor LayerImpl::forward(const torch::Tensor& x, const torch::Tensor& positions) {
    torch::Tensor y = x.view({-1, x.size(2)}), mixed = attend(x);
    if (positions.defined()) {
        y = y.index_select(0, positions);
        mixed = mixed.index_select(0, positions);
    }
    y = attention_norm_(y + attention_output_(mixed));
    return feed_forward_norm_(y + narrow_(torch::gelu(widen_(y))));
}

BertImpl::BertImpl(const Shape& shape)
    : shape_(shape),
      tokens_(shape.vocabulary, shape.width),
      positions_(shape.sequence, shape.width),
      embedding_norm_(make_norm(shape.width)),
      head_(shape.width, shape.width),
      head_norm_(make_norm(shape.width)) {
    register_module("tokens", tokens_);
    register_module("positions", positions_);
    register_module("embedding_norm", embedding_norm_);
    for (std::int64_t i = 0; i < shape.layers; ++i) {
        layers_.push_back(register_module("layer" + std::to_string(i), Layer(shape)));
    }
    register_module("head", head_);
    register_module("head_norm", head_norm_);
    head_bias_ = register_parameter("head_bias", torch::zeros({shape.vocabulary}));

    const torch::NoGradGuard no_grad;
    for (auto& item : named_parameters()) {
        if (item.value().dim() > 1) item.value().normal_(0.0, kInitialDeviation);
        if (item.value().dim() == 1 && item.key().find("bias") != std::string::npos) item.value().zero_();
    }
    positions_->weight.copy_(waves(shape.sequence, shape.width));
}

torch::Tensor BertImpl::encode(const Batch& batch) {
    const torch::Tensor inputs = torch::tensor(batch.inputs).view({-1, shape_.sequence});
    torch::Tensor x = embedding_norm_(tokens_(inputs) + positions_->weight);
    for (std::size_t i = 0; i + 1 < layers_.size(); ++i) x = layers_[i](x).view_as(x);
    // The last layer computes only the tokens to guess, which saves most of its work.
    return layers_.back()(x, torch::tensor(batch.positions));
}

torch::Tensor BertImpl::loss(const Batch& batch) {
    const torch::Tensor guessed = encode(batch);
    const torch::Tensor hidden = head_norm_(torch::gelu(head_(guessed)));
    const torch::Tensor logits = torch::addmm(head_bias_, hidden, tokens_->weight.t());
    return torch::nn::functional::cross_entropy(logits, torch::tensor(batch.targets));
}

} // namespace bert
