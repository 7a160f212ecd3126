// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The operations of exact sums, on the host and on a GPU, real or emulated, against simple loops: the same bits.

#include <cfloat>
#include <cmath>
#include <memory>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "numeric/cuda/cuda_arithmetic.hpp"
#include "support/catch2.hpp"
#include "support/data.hpp"

namespace onebit {
namespace {

using onebit_test::same_bits;
using Values = std::vector<float>;

/// Consecutive arrays, at addresses that are aligned for a float and nothing larger.
class Arrays {
  public:
    Arrays(Arithmetic& arithmetic, std::size_t arrays, std::size_t count)
        : count_(count), all_(arrays * count + 1, arithmetic.memory()) {
        Values values(all_.size(), 7.0F);
        for (std::size_t k = 0; k < arrays; ++k) {
            given_.push_back(onebit_test::make_data(onebit_test::Kind::heavy_tailed, count, 1, static_cast<int>(k), 0));
            std::copy(given_.back().begin(), given_.back().end(), values.data() + 1 + k * count);
            places_.push_back(all_.data() + 1 + k * count);
        }
        all_.copy_from(values.data());
    }

    const std::vector<float*>& places() const { return places_; }
    const Values& given(std::size_t k) const { return given_[k]; }
    Values get(std::size_t k) const {
        Values values(all_.size());
        all_.copy_to(values.data());
        const auto begin = values.begin() + static_cast<std::ptrdiff_t>(1 + k * count_);
        return {begin, begin + static_cast<std::ptrdiff_t>(count_)};
    }

  private:
    std::size_t count_;
    AlignedBuffer<float> all_;
    std::vector<Values> given_;
    std::vector<float*> places_;
};

std::unique_ptr<Arithmetic> arithmetic_on(bool device) {
    if (device) return std::make_unique<CudaArithmetic>(nullptr);
    return std::make_unique<HostArithmetic>(2);
}

TEST_CASE("any number of arrays are added up in their order, into any of them", "[cuda]") {
    const bool device = GENERATE(false, true);
    const auto parts = GENERATE(as<std::size_t>(), 1, 2, 17, 256, 257, 600); // a launch takes 256
    const std::size_t count = parts < 100 ? 4097 : 33;
    const float factor = GENERATE(1.0F, 1.0F / 3);
    CAPTURE(device, parts, count, factor);
    const std::unique_ptr<Arithmetic> arithmetic = arithmetic_on(device);
    for (const std::size_t to : {std::size_t{0}, parts / 2, parts}) { // the last is none of them
        Arrays arrays(*arithmetic, parts + 1, count);
        const std::span all(arrays.places());
        arithmetic->sum(all.first(parts), factor, count, all[to]);
        Values expected = arrays.given(0);
        for (std::size_t k = 1; k < parts; ++k) {
            for (std::size_t i = 0; i < count; ++i) expected[i] += arrays.given(k)[i];
        }
        for (float& value : expected) value *= factor;
        CHECK(same_bits(arrays.get(to), expected));
        for (std::size_t k = 1; k <= parts; ++k) {
            if (k != to) CHECK(same_bits(arrays.get(k), arrays.given(k)));
        }
    }
    CHECK(arithmetic->failure().ok());
}

TEST_CASE("a mean is finite where its parts are, though their sum overflows", "[cuda]") {
    const bool device = GENERATE(false, true);
    const auto parts = GENERATE(as<std::size_t>(), 2, 3, 7);
    const std::unique_ptr<Arithmetic> arithmetic = arithmetic_on(device);
    Arrays arrays(*arithmetic, parts, 4097);
    AlignedBuffer<float> large(4097, arithmetic->memory()); // FLT_MAX, with a value of about 1 here and there
    Values values(4097, FLT_MAX);
    for (std::size_t i = 0; i < values.size(); i += 5) values[i] = arrays.given(0)[i];
    large.copy_from(values.data());
    const std::vector<float*> same(parts, large.data());
    arithmetic->sum(same, 1.0F / static_cast<float>(parts), 4097, arrays.places()[0]);
    const Values mean = arrays.get(0);
    for (std::size_t i = 0; i < mean.size(); ++i) CHECK(std::fabs(mean[i] - values[i]) <= std::fabs(values[i]) * 1e-6);
}

TEST_CASE("an array is added to another, or multiplied, in place or not", "[cuda]") {
    const bool device = GENERATE(false, true);
    const auto count = GENERATE(as<std::size_t>(), 1, 33, 4097);
    CAPTURE(device, count);
    const std::unique_ptr<Arithmetic> arithmetic = arithmetic_on(device);
    Arrays arrays(*arithmetic, 3, count);
    const std::vector<float*>& at = arrays.places();
    arithmetic->add(at[0], count, at[1]);
    arithmetic->multiply(at[0], 0.3F, count, at[2]);
    arithmetic->multiply(at[0], 0.7F, count, at[0]);
    Values sums, copies, products;
    for (std::size_t i = 0; i < count; ++i) {
        const float a = arrays.given(0)[i];
        products.push_back(0.7F * a);
        sums.push_back(arrays.given(1)[i] + a);
        copies.push_back(0.3F * a);
    }
    CHECK(same_bits(arrays.get(0), products));
    CHECK(same_bits(arrays.get(1), sums));
    CHECK(same_bits(arrays.get(2), copies));
}

} // namespace
} // namespace onebit
