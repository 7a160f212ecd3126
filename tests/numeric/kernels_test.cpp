// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Every kernel on plain values of every instruction set that this machine has against the scalar reference: the same
// bits.

#include "compress/sign/kernels.hpp"

#include <cfenv>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "numeric/awkward_values.hpp"
#include "numeric/kernels.hpp"
#include "numeric/scaled_bytes.hpp"
#include "numeric/search.hpp"
#include "support/catch2.hpp"

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

/// Every kind of 16-bit value, NaNs and infinities among them, or finite ones alone.
std::vector<std::uint16_t> awkward_halves(std::size_t count, unsigned seed, bool finite) {
    std::mt19937 random(seed);
    std::vector<std::uint16_t> values(count);
    for (std::uint16_t& value : values) {
        value = static_cast<std::uint16_t>(random());
        if (finite && (value & 0x7c00U) == 0x7c00U) value ^= 0x4000U;
    }
    return values;
}

TEST_CASE("16-bit kernels give the reference's bits, and touch no more, on every instruction set", "[kernels]") {
    const NumericKernels& reference = reference_numeric_kernels();
    for (const NumericKernels* kernels : available_numeric_kernels()) {
        for (const std::size_t count : kCounts) {
            CAPTURE(kernels->name, count);
            const std::vector<std::uint16_t> halves = awkward_halves(count + 1, 31, false);
            const std::vector<float> floats = awkward_values(count + 1, 32);
            const auto expect_same = [&](const auto& expected_of, const auto& actual_of, auto zero) {
                for (const std::size_t misalignment : {0, 1, 16}) {
                    AlignedBuffer<decltype(zero)> expected(count + 64);
                    AlignedBuffer<decltype(zero)> actual(count + 64);
                    expected_of(expected.data() + misalignment);
                    actual_of(actual.data() + misalignment);
                    order_stores(Stores::kPastCaches);
                    CHECK(std::memcmp(actual.data(), expected.data(), actual.bytes()) == 0);
                }
            };
            for (const bool brain : {false, true}) {
                CAPTURE(brain);
                const auto widen = [&](const NumericKernels& k) {
                    return [&, f = brain ? k.widen_bfloat16 : k.widen_float16](float* to) {
                        f(halves.data() + 1, count, to);
                    };
                };
                expect_same(widen(reference), widen(*kernels), float{});
                const auto narrow = [&](const NumericKernels& k) {
                    return [&, f = brain ? k.narrow_bfloat16 : k.narrow_float16](std::uint16_t* to) {
                        CHECK(f(floats.data() + 1, count, to) ==
                              k.all_within(floats.data() + 1, count, brain ? 0x1.fefffep127F : 0x1.ffdffep15F));
                    };
                };
                expect_same(narrow(reference), narrow(*kernels), std::uint16_t{});
                for (const std::size_t part_count : {1, 2, 3, 8}) {
                    CAPTURE(part_count);
                    std::vector<std::vector<std::uint16_t>> values;
                    std::vector<const std::uint16_t*> parts;
                    for (std::size_t p = 0; p < part_count; ++p) {
                        values.push_back(awkward_halves(5 + count, 40 + static_cast<unsigned>(p), true));
                        parts.push_back(values.back().data());
                    }
                    const auto mean = [&](const NumericKernels& k) {
                        return [&, f = brain ? k.mean_bfloat16 : k.mean_float16](float* to) {
                            f(parts.data(), part_count, 5, 1.0F / static_cast<float>(part_count), count, to);
                        };
                    };
                    expect_same(mean(reference), mean(*kernels), float{});
                    for (const Stores stores : kAllStores) {
                        for (const float share : {1.0F / static_cast<float>(part_count), 1.0F}) { // sums overflow
                            std::vector<std::uint16_t> also(count);
                            const auto mean_in = [&](const NumericKernels& k) {
                                return [&, f = brain ? k.mean_in_bfloat16 : k.mean_in_float16](std::uint16_t* to) {
                                    f(parts.data(), part_count, 5, share, count, stores, to, Stores::kCached,
                                      also.data());
                                    order_stores(stores);
                                    CHECK(std::equal(also.begin(), also.end(), to));
                                };
                            };
                            expect_same(mean_in(reference), mean_in(*kernels), std::uint16_t{});
                        }
                    }
                }
            }
            for (const Stores stores : kAllStores) {
                const auto copy = [&](const NumericKernels& k) {
                    return [&](std::uint16_t* to) { k.copy_halves(halves.data() + 1, count, 0x7bff, stores, to); };
                };
                expect_same(copy(reference), copy(*kernels), std::uint16_t{});
            }
        }
    }
}

TEST_CASE("bytes with a power of two have the reference's bits, and touch no more, on every instruction set",
          "[kernels]") {
    const NumericKernels& reference = reference_numeric_kernels();
    for (const NumericKernels* kernels : available_numeric_kernels()) {
        for (const std::size_t count : kCounts) {
            for (const bool tiny : {false, true}) {
                CAPTURE(kernels->name, count, tiny);
                std::vector<float> values = awkward_values(count + 1, 33);
                for (float& value : values) value *= tiny ? 0x1p-120F : 1;
                if (count > 300) values[280] = std::numeric_limits<float>::infinity();
                struct Bytes {
                    AlignedBuffer<std::int8_t> codes;
                    AlignedBuffer<std::uint8_t> exponents;
                    AlignedBuffer<float> values;
                };
                const auto through = [&](const NumericKernels& k) {
                    Bytes bytes{AlignedBuffer<std::int8_t>(count + 64), AlignedBuffer<std::uint8_t>(count + 64),
                                AlignedBuffer<float>(count + 64)};
                    k.narrow_to_bytes(values.data() + 1, count, bytes.codes.data() + 3, bytes.exponents.data());
                    k.widen_bytes(bytes.codes.data() + 3, bytes.exponents.data(), count, bytes.values.data() + 1);
                    return bytes;
                };
                const Bytes expected = through(reference), actual = through(*kernels);
                CHECK(std::memcmp(actual.codes.data(), expected.codes.data(), actual.codes.bytes()) == 0);
                CHECK(std::memcmp(actual.exponents.data(), expected.exponents.data(), actual.exponents.bytes()) == 0);
                for (std::size_t i = 0; i < count + 64; ++i) { // NaNs may have any sign
                    const bool both_nan = std::isnan(actual.values[i]) && std::isnan(expected.values[i]);
                    CHECK((both_nan || std::memcmp(&actual.values[i], &expected.values[i], sizeof(float)) == 0));
                }
            }
        }
    }
}

TEST_CASE("bytes with a power of two: to the nearest, and again without a change", "[kernels]") {
    const NumericKernels& kernels = *available_numeric_kernels().front();
    for (const float scale : {1.0F, 0x1p-124F, 0x1p100F}) {
        std::mt19937 random(11);
        std::normal_distribution<float> gaussian;
        std::vector<float> values(5000), once(values.size()), twice(values.size());
        for (float& value : values) value = gaussian(random) * scale;
        values[300] = 127.9F * scale; // would round to 128
        std::vector<std::int8_t> codes(values.size());
        std::vector<std::uint8_t> exponents(ceil_divide(values.size(), kScaledGroup));
        kernels.narrow_to_bytes(values.data(), values.size(), codes.data(), exponents.data());
        kernels.widen_bytes(codes.data(), exponents.data(), codes.size(), once.data());
        kernels.narrow_to_bytes(once.data(), once.size(), codes.data(), exponents.data());
        kernels.widen_bytes(codes.data(), exponents.data(), codes.size(), twice.data());
        CHECK(std::memcmp(once.data(), twice.data(), once.size() * sizeof(float)) == 0);
        for (std::size_t i = 0; i < values.size(); ++i) {
            double largest = 0;
            for (std::size_t k = i / kScaledGroup * kScaledGroup;
                 k < std::min((i / kScaledGroup + 1) * kScaledGroup, values.size()); ++k) {
                largest = std::max(largest, std::fabs(static_cast<double>(values[k])));
            }
            const double unit = std::max(std::exp2(std::floor(std::log2(largest)) - 6), 0x1p-126);
            const double lost = std::fabs(static_cast<double>(values[i]) - static_cast<double>(once[i]));
            CAPTURE(scale, i, values[i], once[i]);
            CHECK(lost <= (std::fabs(once[i]) >= 127 * static_cast<float>(unit) ? unit : unit / 2));
        }
    }
}

TEST_CASE("halves_within and copy_halves find every 16-bit value beyond the largest, wherever it is", "[kernels]") {
    for (const NumericKernels* kernels : available_numeric_kernels()) {
        for (const std::uint16_t most : {0x7bff, 0x7f7f}) {
            for (const std::size_t count : kCounts) {
                CAPTURE(kernels->name, most, count);
                std::vector<std::uint16_t> values(count, most);
                values.front() = static_cast<std::uint16_t>(most | 0x8000U);
                AlignedBuffer<std::uint16_t> to(count);
                CHECK(kernels->halves_within(values.data(), count, most));
                CHECK(kernels->copy_halves(values.data(), count, most, Stores::kCached, to.data()));
                for (const std::size_t at : {std::size_t{0}, count / 2, count - 1}) {
                    for (const unsigned bad : {most + 1U, 0xffffU}) {
                        auto spoiled = values;
                        spoiled[at] = static_cast<std::uint16_t>(bad);
                        CHECK_FALSE(kernels->halves_within(spoiled.data(), count, most));
                        for (const Stores stores : kAllStores)
                            CHECK_FALSE(kernels->copy_halves(spoiled.data(), count, most, stores, to.data()));
                    }
                }
            }
        }
    }
}

TEST_CASE("means of the largest 16-bit values are finite, whatever their sum", "[kernels]") {
    for (const NumericKernels* kernels : available_numeric_kernels()) {
        CAPTURE(kernels->name);
        const std::vector<std::uint16_t> most(100, 0x7f7f);
        const std::vector<const std::uint16_t*> parts(3, most.data());
        std::vector<float> means(100);
        kernels->mean_bfloat16(parts.data(), 3, 0, 1.0F / 3, 100, means.data());
        for (const float mean : means) CHECK(std::fabs(mean / 0x1.fep127F - 1) < 1e-6F);
    }
}

TEST_CASE("16-bit formats: every value there and back, and what lies between them to the nearest", "[kernels]") {
    std::fenv_t own;
    std::fegetenv(&own);
    std::fesetenv(FE_DFL_ENV); // for values between subnormal numbers; kernels are unaffected
    for (const NumericKernels* kernels : available_numeric_kernels()) {
        CAPTURE(kernels->name);
        std::vector<std::uint16_t> all(65536);
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
        std::vector<float> wide(all.size());
        std::vector<std::uint16_t> back(all.size());
        for (const bool brain : {false, true}) {
            CAPTURE(brain);
            (brain ? kernels->widen_bfloat16 : kernels->widen_float16)(all.data(), all.size(), wide.data());
            (brain ? kernels->narrow_bfloat16 : kernels->narrow_float16)(wide.data(), wide.size(), back.data());
            const unsigned infinity = brain ? 0x7f80 : 0x7c00;
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < all.size(); ++i) {
                const bool is_nan = (i & 0x7fff) > infinity;
                if (is_nan ? !std::isnan(wide[i]) || (back[i] & 0x7fff) <= infinity : back[i] != all[i]) ++wrong;
                if (is_nan || (i & 0x7fff) >= infinity - 1) continue;
                // Midway to the next value: to the even one. Slightly off midway: to the nearer one.
                const float next = wide[i + 1];
                const float middle = wide[i] / 2 + next / 2;
                const float between[] = {middle, std::nextafter(middle, wide[i]), std::nextafter(middle, next)};
                std::uint16_t rounded[3];
                (brain ? kernels->narrow_bfloat16 : kernels->narrow_float16)(between, 3, rounded);
                const bool exact = between[0] != wide[i] && between[0] != next; // float32 has a number midway
                if (exact && rounded[0] != (i % 2 == 0 ? i : i + 1)) ++wrong;
                if (exact && (rounded[1] != i || rounded[2] != i + 1)) ++wrong;
            }
            CHECK(wrong == 0);
        }
        const float edges[] = {65519.99F, 65520.0F, 1e30F, std::numeric_limits<float>::infinity()};
        const float brain_edges[] = {-3.3953138e38F, -std::numeric_limits<float>::max(), edges[3], -edges[3]};
        std::uint16_t halves[4];
        kernels->narrow_float16(edges, 4, halves);
        CHECK(halves[0] == 0x7bff);
        CHECK((halves[1] == 0x7bff && halves[2] == 0x7bff && halves[3] == 0x7c00)); // finite ones stay finite
        kernels->narrow_bfloat16(brain_edges, 4, halves);
        CHECK((halves[0] == 0xff7f && halves[1] == 0xff7f && halves[2] == 0x7f80 && halves[3] == 0xff80));
        CHECK(1.0F == [&] {
            const std::uint16_t one = 0x3c00;
            float out = 0;
            kernels->widen_float16(&one, 1, &out);
            return out;
        }());
    }
    std::fesetenv(&own);
}

TEST_CASE("a search gives the first value beyond the limit", "[kernels]") {
    for (const NumericKernels* kernels : available_numeric_kernels()) {
        CAPTURE(kernels->name);
        std::vector<float> values(1000, 2.0F);
        CHECK(first_beyond(*kernels, 2.0F, values.data(), values.size()) == values.size());
        values[700] = -std::numeric_limits<float>::infinity();
        values[333] = std::nextafter(2.0F, 3.0F);
        CHECK(first_beyond(*kernels, 2.0F, values.data(), values.size()) == 333);
        CHECK(HostSearch({ONEBIT_FLOAT32, *kernels}).first_nonfinite(values.data(), values.size()) == 700);
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
