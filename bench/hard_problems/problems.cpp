// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "hard_problems/problems.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <numeric>
#include <sstream>
#include <stdexcept>

namespace hard {
namespace {

using Normal = std::normal_distribution<double>;

/// (x - x*)' H (x - x*) / 2 with H = D Q diag(10^-4 ... 10^2) Q' D, Q a random rotation, D = 10^(-1 ... 1).
class Quadratic final : public Problem {
  public:
    explicit Quadratic(std::uint64_t seed) : scale_(kCount), target_(kCount), rotated_(kCount * kCount) {
        std::mt19937_64 generator(seed);
        std::uniform_real_distribution<double> exponent(-1, 1);
        Normal normal;
        for (double& d : scale_) d = std::pow(10, exponent(generator));
        for (std::size_t i = 0; i < kCount; ++i) target_[i] = normal(generator) / scale_[i];
        rotate(generator);
    }

    std::vector<std::size_t> sizes() const override { return {100, 1, 299}; }
    Vector start() const override { return Vector(kCount); }
    std::uint64_t steps() const override { return 6000; }

    void gradient(std::span<const float> x, std::mt19937_64& generator, std::span<float> gradient) const override {
        const std::vector<double> along = coordinates(x);
        std::vector<double> sum(kCount);
        for (std::size_t k = 0; k < kCount; ++k) {
            const double pull = eigenvalue(k) * along[k];
            for (std::size_t i = 0; i < kCount; ++i) sum[i] += pull * rotated_[k * kCount + i];
        }
        Normal noise(0, 0.01);
        for (std::size_t i = 0; i < kCount; ++i) {
            gradient[i] = static_cast<float>(scale_[i] * (sum[i] + noise(generator)));
        }
    }

    Loss loss(std::span<const float> x) const override {
        const std::vector<double> along = coordinates(x);
        double sum = 0;
        for (std::size_t k = 0; k < kCount; ++k) sum += eigenvalue(k) * along[k] * along[k] / 2;
        return {sum};
    }

  private:
    static constexpr std::size_t kCount = 400;

    static double eigenvalue(std::size_t k) { return std::pow(10, -4 + 6 * static_cast<double>(k) / (kCount - 1)); }

    /// Orthonormal rows.
    void rotate(std::mt19937_64& generator) {
        Normal normal;
        for (double& q : rotated_) q = normal(generator);
        for (std::size_t k = 0; k < kCount; ++k) {
            double* const row = &rotated_[k * kCount];
            for (int again = 0; again < 2; ++again) {
                for (std::size_t j = 0; j < k; ++j) {
                    const double* const before = &rotated_[j * kCount];
                    const double along = std::inner_product(row, row + kCount, before, 0.0);
                    for (std::size_t i = 0; i < kCount; ++i) row[i] -= along * before[i];
                }
            }
            const double norm = std::sqrt(std::inner_product(row, row + kCount, row, 0.0));
            for (std::size_t i = 0; i < kCount; ++i) row[i] /= norm;
        }
    }

    /// Q' D (x - x*).
    std::vector<double> coordinates(std::span<const float> x) const {
        std::vector<double> away(kCount);
        for (std::size_t i = 0; i < kCount; ++i) away[i] = scale_[i] * (double{x[i]} - target_[i]);
        std::vector<double> along(kCount);
        for (std::size_t k = 0; k < kCount; ++k) {
            along[k] = std::inner_product(away.begin(), away.end(), &rotated_[k * kCount], 0.0);
        }
        return along;
    }

    std::vector<double> scale_;   ///< D
    std::vector<double> target_;  ///< x*
    std::vector<double> rotated_; ///< Q', row by row
};

/// Logistic regression on examples of 20 features each, the k-th of 6000 as frequent as 1/k^1.1.
class Logistic final : public Problem {
  public:
    explicit Logistic(std::uint64_t seed) : weights_(kFeatures) {
        std::mt19937_64 generator(seed);
        Normal normal;
        for (double& w : weights_) w = normal(generator);
        double sum = 0;
        for (std::size_t k = 1; k <= kFeatures; ++k) {
            sum += std::pow(static_cast<double>(k), -1.1);
            up_to_.push_back(sum);
        }
        for (std::size_t i = 0; i < 4000; ++i) held_out_.push_back(draw(generator));
    }

    std::vector<std::size_t> sizes() const override { return {kFeatures, 1}; }
    Vector start() const override { return Vector(kFeatures + 1); }
    std::uint64_t steps() const override { return 5000; }

    void gradient(std::span<const float> x, std::mt19937_64& generator, std::span<float> gradient) const override {
        constexpr int kExamples = 16;
        std::ranges::fill(gradient, 0.0F);
        for (int i = 0; i < kExamples; ++i) {
            const Example example = draw(generator);
            const double off = (probability(x, example) - example.label) / kExamples;
            for (const std::size_t k : example.features) gradient[k] += static_cast<float>(off);
            gradient[kFeatures] += static_cast<float>(off);
        }
    }

    Loss loss(std::span<const float> x) const override {
        double sum = 0;
        for (const Example& example : held_out_) {
            const double z = logit(x, example);
            sum += std::max(z, 0.0) - z * example.label + std::log1p(std::exp(-std::abs(z)));
        }
        return {sum / static_cast<double>(held_out_.size())};
    }

  private:
    static constexpr std::size_t kFeatures = 6000;

    struct Example {
        std::array<std::size_t, 20> features;
        double label;
    };

    Example draw(std::mt19937_64& generator) const {
        Example example{};
        std::uniform_real_distribution<double> uniform(0, up_to_.back());
        double z = 0;
        for (std::size_t& feature : example.features) {
            feature = static_cast<std::size_t>(std::ranges::upper_bound(up_to_, uniform(generator)) - up_to_.begin());
            feature = std::min(feature, kFeatures - 1);
            z += weights_[feature];
        }
        example.label = std::bernoulli_distribution(1 / (1 + std::exp(-z)))(generator) ? 1 : 0;
        return example;
    }

    static double logit(std::span<const float> x, const Example& example) {
        double z = double{x[kFeatures]};
        for (const std::size_t k : example.features) z += double{x[k]};
        return z;
    }
    static double probability(std::span<const float> x, const Example& example) {
        return 1 / (1 + std::exp(-logit(x, example)));
    }

    std::vector<double> weights_;
    std::vector<double> up_to_; ///< sums of the frequencies
    std::vector<Example> held_out_;
};

/// A net of 64, 128 and 10 units on scikit-learn's digits of 8 x 8 pixels.
class Digits final : public Problem {
  public:
    Digits(std::uint64_t seed, const std::string& file) : seed_(seed) {
        std::ifstream lines(file);
        if (!lines) throw std::runtime_error("cannot read \"" + file + "\": --digits names the file of digits");
        for (std::string line; std::getline(lines, line);) read(line);
        if (images_.size() < kTrained + 100) throw std::runtime_error(file + ": too few digits");
        std::mt19937_64 generator(seed);
        std::shuffle(images_.begin(), images_.end(), generator);
    }

    std::vector<std::size_t> sizes() const override {
        return {kHidden * kPixels, kHidden, kClasses * kHidden, kClasses};
    }
    std::uint64_t steps() const override { return 4000; }

    Vector start() const override {
        std::mt19937_64 generator(seed_ + 1);
        Vector x(kAll);
        std::normal_distribution<float> first(0, std::sqrt(2.0F / kPixels));
        std::normal_distribution<float> second(0, std::sqrt(2.0F / kHidden));
        for (std::size_t i = 0; i < kBias1; ++i) x[i] = first(generator);
        for (std::size_t i = kWeights2; i < kBias2; ++i) x[i] = second(generator);
        return x;
    }

    void gradient(std::span<const float> x, std::mt19937_64& generator, std::span<float> gradient) const override {
        constexpr int kExamples = 32;
        std::ranges::fill(gradient, 0.0F);
        std::uniform_int_distribution<std::size_t> choose(0, kTrained - 1);
        for (int i = 0; i < kExamples; ++i) add_gradient(x, images_[choose(generator)], 1.0F / kExamples, gradient);
    }

    Loss loss(std::span<const float> x) const override {
        double sum = 0;
        for (std::size_t i = 0; i < kTrained; ++i) {
            sum -= std::log(std::max(double{forward(x, images_[i]).output[images_[i].label]}, 1e-300));
        }
        std::size_t right = 0;
        for (std::size_t i = kTrained; i < images_.size(); ++i) {
            const auto& output = forward(x, images_[i]).output;
            right += std::ranges::max_element(output) - output.begin() == images_[i].label ? 1 : 0;
        }
        return {sum / double{kTrained}, static_cast<double>(right) / static_cast<double>(images_.size() - kTrained)};
    }

  private:
    static constexpr std::size_t kPixels = 64, kHidden = 128, kClasses = 10, kTrained = 1400;
    static constexpr std::size_t kBias1 = kHidden * kPixels, kWeights2 = kBias1 + kHidden;
    static constexpr std::size_t kBias2 = kWeights2 + kClasses * kHidden, kAll = kBias2 + kClasses;

    struct Image {
        std::array<float, kPixels> pixels;
        int label;
    };
    struct Activations {
        std::array<float, kHidden> hidden;
        std::array<float, kClasses> output; ///< probabilities
    };

    void read(const std::string& line) {
        std::istringstream numbers(line);
        std::string number;
        Image image{};
        for (float& pixel : image.pixels) {
            std::getline(numbers, number, ',');
            pixel = std::stof(number) / 16;
        }
        std::getline(numbers, number, ',');
        image.label = std::stoi(number);
        images_.push_back(image);
    }

    static Activations forward(std::span<const float> x, const Image& image) {
        Activations a{};
        for (std::size_t h = 0; h < kHidden; ++h) {
            const float z =
                std::inner_product(image.pixels.begin(), image.pixels.end(), &x[h * kPixels], x[kBias1 + h]);
            a.hidden[h] = std::max(z, 0.0F);
        }
        for (std::size_t c = 0; c < kClasses; ++c) {
            a.output[c] =
                std::inner_product(a.hidden.begin(), a.hidden.end(), &x[kWeights2 + c * kHidden], x[kBias2 + c]);
        }
        const float most = *std::ranges::max_element(a.output);
        for (float& z : a.output) z = std::exp(z - most);
        const float sum = std::accumulate(a.output.begin(), a.output.end(), 0.0F);
        for (float& z : a.output) z /= sum;
        return a;
    }

    static void add_gradient(std::span<const float> x, const Image& image, float share, std::span<float> gradient) {
        const Activations a = forward(x, image);
        std::array<float, kHidden> back{};
        for (std::size_t c = 0; c < kClasses; ++c) {
            const float off = share * (a.output[c] - (static_cast<std::size_t>(image.label) == c ? 1.0F : 0.0F));
            gradient[kBias2 + c] += off;
            for (std::size_t h = 0; h < kHidden; ++h) {
                gradient[kWeights2 + c * kHidden + h] += off * a.hidden[h];
                back[h] += off * x[kWeights2 + c * kHidden + h];
            }
        }
        for (std::size_t h = 0; h < kHidden; ++h) {
            if (a.hidden[h] <= 0) continue;
            gradient[kBias1 + h] += back[h];
            for (std::size_t p = 0; p < kPixels; ++p) gradient[h * kPixels + p] += back[h] * image.pixels[p];
        }
    }

    std::uint64_t seed_;
    std::vector<Image> images_; ///< the first kTrained to train on
};

} // namespace

std::unique_ptr<Problem> make_problem(const std::string& name, std::uint64_t seed, const std::string& digits) {
    if (name == "quadratic") return std::make_unique<Quadratic>(seed);
    if (name == "logistic") return std::make_unique<Logistic>(seed);
    if (name == "digits") return std::make_unique<Digits>(seed, digits);
    throw std::runtime_error("there is no problem \"" + name + "\"");
}

} // namespace hard
