// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#include "examples.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace bert {
namespace {

constexpr double kGuessed = 0.15;                         // of the tokens of a sequence
constexpr std::uint64_t kEpochStream = ~std::uint64_t{0}; // of random numbers, downwards; sequences: from 0 up
constexpr std::uint64_t kHeldOutSeed = 0x68656c64;

template <class T>
void shuffle(std::vector<T>& values, Random& random) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.below(i)]);
}

} // namespace

void append_masked(std::span<const Token> sequence, std::size_t vocabulary, Random random, Batch& batch) {
    const std::size_t first = batch.inputs.size();
    batch.inputs.insert(batch.inputs.end(), sequence.begin(), sequence.end());
    std::vector<std::size_t> places(sequence.size());
    std::iota(places.begin(), places.end(), std::size_t{0});
    shuffle(places, random);
    // The same number in each sequence, so that the mean over the ranks' means is the mean over the tokens.
    places.resize(std::max<std::size_t>(1, std::lround(kGuessed * double(sequence.size()))));
    for (const std::size_t place : places) {
        batch.positions.push_back(static_cast<std::int64_t>(first + place));
        batch.targets.push_back(sequence[place]);
        const std::uint64_t die = random.below(10);
        if (die < 8) batch.inputs[first + place] = kMask;
        if (die == 8) batch.inputs[first + place] = static_cast<Token>(random.below(vocabulary));
    }
}

Sampler::Sampler(std::span<const Token> tokens, std::size_t sequence, std::size_t vocabulary, std::uint64_t seed)
    : tokens_(tokens), sequence_(sequence), vocabulary_(vocabulary), seed_(seed) {
    if (tokens.size() < 2 * sequence) throw std::runtime_error("the text is too short for sequences of this length");
    begin_epoch(0);
}

void Sampler::begin_epoch(std::uint64_t epoch) {
    Random random(seed_, kEpochStream - epoch);
    const std::size_t offset = random.below(sequence_);
    windows_.resize((tokens_.size() - sequence_ + 1) / sequence_); // with every offset this many fit
    for (std::size_t i = 0; i < windows_.size(); ++i) windows_[i] = offset + i * sequence_;
    shuffle(windows_, random);
    epoch_ = epoch;
}

Batch Sampler::batch(std::uint64_t first, std::size_t count) {
    Batch batch;
    for (std::uint64_t k = first; k < first + count; ++k) {
        if (k / windows_.size() != epoch_) begin_epoch(k / windows_.size());
        append_masked(tokens_.subspan(windows_[k % windows_.size()], sequence_), vocabulary_, Random(seed_, k), batch);
    }
    return batch;
}

std::vector<Batch> held_out_batches(std::span<const Token> tokens, std::size_t sequence, std::size_t vocabulary,
                                    std::size_t batch, std::size_t begin, std::size_t step) {
    std::vector<Batch> batches;
    for (std::size_t k = begin; (k + 1) * sequence <= tokens.size(); k += step) {
        if (batches.empty() || batches.back().inputs.size() == batch * sequence) batches.emplace_back();
        append_masked(tokens.subspan(k * sequence, sequence), vocabulary, Random(kHeldOutSeed, k), batches.back());
    }
    return batches;
}

double unigram_loss(std::span<const Token> training, const std::vector<Batch>& held_out, std::size_t vocabulary) {
    std::vector<double> counts(vocabulary, 1.0); // one more of each, so that no token has probability 0
    for (const Token token : training) ++counts[static_cast<std::size_t>(token)];
    const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
    double sum = 0, guesses = 0;
    for (const Batch& batch : held_out) {
        for (const Token target : batch.targets) sum -= std::log(counts[static_cast<std::size_t>(target)] / total);
        guesses += double(batch.targets.size());
    }
    return sum / guesses;
}

} // namespace bert
