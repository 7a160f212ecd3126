// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Every kernel on plain values of every instruction set that this machine has against the scalar reference: the same
// bits.

#include "compress/sign/kernels.hpp"

#include <catch2/catch.hpp>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "numeric/awkward_values.hpp"
#include "numeric/kernels.hpp"
#include "numeric/search.hpp"

namespace onebit {
namespace {

TEST_CASE("all_within and copy find every NaN and infinity, wherever it is", "[kernels]") {
    const float bad_values[] = {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
                                std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
    for (const NumericKernels* kernels : available_numeric_kernels()) {
        for (const std::size_t count : kCounts) {
            CAPTURE(kernels->name, count);
            std::vector<float> values(count, std::numeric_limits<float>::max());
            values.front() = -std::numeric_limits<float>::max();
            CHECK(kernels->all_within(values.data(), count, FLT_MAX));
            AlignedBuffer<float> copied(count);
            for (const Stores stores : kAllStores) CHECK(kernels->copy(values.data(), count, stores, copied.data()));
            for (const std::size_t at : {std::size_t{0}, count / 2, count - 1}) {
                for (const float bad : bad_values) {
                    auto spoiled = values;
                    spoiled[at] = bad;
                    CHECK_FALSE(kernels->all_within(spoiled.data(), count, FLT_MAX));
                    for (const Stores stores : kAllStores) {
                        CHECK_FALSE(kernels->copy(spoiled.data(), count, stores, copied.data()));
                    }
                }
            }
        }
    }
}

TEST_CASE("all_within finds every value beyond the limit, wherever it is", "[kernels]") {
    for (const NumericKernels* kernels : available_numeric_kernels()) {
        for (const float limit : {FLT_MIN, 1.8e19F, FLT_MAX / 2}) {
            const float bad_values[] = {std::nextafter(limit, FLT_MAX), -std::nextafter(limit, FLT_MAX), -FLT_MAX,
                                        std::numeric_limits<float>::infinity(),
                                        std::numeric_limits<float>::quiet_NaN()};
            for (const std::size_t count : kCounts) {
                CAPTURE(kernels->name, limit, count);
                std::vector<float> values(count, limit);
                values.front() = -limit;
                CHECK(kernels->all_within(values.data(), count, limit));
                for (const std::size_t at : {std::size_t{0}, count / 2, count - 1}) {
                    for (const float bad : bad_values) {
                        auto spoiled = values;
                        spoiled[at] = bad;
                        CHECK_FALSE(kernels->all_within(spoiled.data(), count, limit));
                    }
                }
            }
        }
    }
}

TEST_CASE("copy copies what it is to, and no more, on every instruction set", "[kernels]") {
    for (const NumericKernels* kernels : available_numeric_kernels()) {
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{33}, std::size_t{70001}}) {
            for (const std::size_t misalignment : {0, 1, 16}) {
                for (const Stores stores : kAllStores) {
                    CAPTURE(kernels->name, count, misalignment);
                    const std::vector<float> values = awkward_values(count + 1, 9);
                    AlignedBuffer<float> expected(count + 64);
                    AlignedBuffer<float> actual(count + 64);
                    std::copy_n(values.data() + 1, count, expected.data() + misalignment);
                    CHECK(kernels->copy(values.data() + 1, count, stores, actual.data() + misalignment));
                    order_stores(stores);
                    CHECK(std::memcmp(actual.data(), expected.data(), actual.bytes()) == 0);
                }
            }
        }
    }
}

TEST_CASE("mean gives the reference's bits in both places, and no more, on every instruction set", "[kernels]") {
    constexpr std::size_t kFirst = 5;
    for (const NumericKernels* kernels : available_numeric_kernels()) {
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{33}, std::size_t{9001}}) {
            for (const std::size_t part_count : {1, 2, 3, 8}) {
                std::vector<std::vector<float>> values;
                std::vector<const float*> parts; // each with another alignment
                for (std::size_t p = 0; p < part_count; ++p) {
                    values.push_back(awkward_values(kFirst + count + p, 20 + static_cast<unsigned>(p)));
                    parts.push_back(values.back().data() + p);
                }
                for (const auto& [misalignment, also_misalignment] : {std::pair{0, 16}, std::pair{0, 1}, {1, 0}}) {
                    for (const Stores stores : kAllStores) {
                        for (const Stores also_stores : kAllStores) {
                            CAPTURE(kernels->name, count, part_count, misalignment, also_misalignment);
                            AlignedBuffer<float> expected(count + 64), also_expected(count + 64);
                            AlignedBuffer<float> actual(count + 64), also_actual(count + 64);
                            reference_numeric_kernels().mean(parts.data(), part_count, kFirst, 0.3F, count, stores,
                                                             expected.data() + misalignment, also_stores,
                                                             also_expected.data() + also_misalignment);
                            kernels->mean(parts.data(), part_count, kFirst, 0.3F, count, stores,
                                          actual.data() + misalignment, also_stores,
                                          also_actual.data() + also_misalignment);
                            order_stores(Stores::kPastCaches);
                            CHECK(std::memcmp(actual.data(), expected.data(), actual.bytes()) == 0);
                            CHECK(std::memcmp(also_actual.data(), also_expected.data(), actual.bytes()) == 0);
                        }
                    }
                }
                if (count == 0) continue;
                // Where a part is read.
                std::vector<float> expected(count), also_expected(count), also_actual(count);
                reference_numeric_kernels().mean(parts.data(), part_count, kFirst, 0.3F, count, Stores::kCached,
                                                 expected.data(), Stores::kCached, also_expected.data());
                float* const last = values.back().data() + part_count - 1 + kFirst;
                kernels->mean(parts.data(), part_count, kFirst, 0.3F, count, Stores::kCached, last, Stores::kCached,
                              also_actual.data());
                CHECK(std::memcmp(last, expected.data(), count * sizeof(float)) == 0);
                CHECK(std::memcmp(also_actual.data(), expected.data(), count * sizeof(float)) == 0);
            }
        }
    }
}

TEST_CASE("a search gives the first value beyond the limit", "[kernels]") {
    for (const NumericKernels* kernels : available_numeric_kernels()) {
        CAPTURE(kernels->name);
        std::vector<float> values(1000, 2.0F);
        CHECK(first_beyond(*kernels, 2.0F, values.data(), values.size()) == values.size());
        values[700] = -std::numeric_limits<float>::infinity();
        values[333] = std::nextafter(2.0F, 3.0F);
        CHECK(first_beyond(*kernels, 2.0F, values.data(), values.size()) == 333);
        CHECK(HostSearch(*kernels).first_nonfinite(values.data(), values.size()) == 700);
    }
}

TEST_CASE("every kernel of the list of plain values is there for every instruction set, by the sign codec's names",
          "[kernels]") {
    REQUIRE(available_numeric_kernels().size() == available_sign_kernels().size());
    for (std::size_t i = 0; i < available_numeric_kernels().size(); ++i) {
        const NumericKernels& kernels = *available_numeric_kernels()[i];
        CAPTURE(kernels.name);
        CHECK(std::string(kernels.name) == available_sign_kernels()[i]->name);
        CHECK(&numeric_kernels(kernels.name) == &kernels);
#define ONEBIT_NUMERIC_KERNEL(result, kernel, parameters) CHECK(kernels.kernel != nullptr);
#include "numeric/kernels.def"
#undef ONEBIT_NUMERIC_KERNEL
    }
    CHECK(std::string(available_numeric_kernels().back()->name) == "reference");
    CHECK(&numeric_kernels("") == available_numeric_kernels().front());
}

} // namespace
} // namespace onebit
