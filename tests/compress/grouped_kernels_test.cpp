// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The grouped codes: every instruction set that this machine has against the scalar reference, the same bits.
// And the reference's bits against double precision.

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "compress/grouped/kernels.hpp"
#include "compress/grouped/layout.hpp"
#include "core/aligned_buffer.hpp"
#include "numeric/awkward_values.hpp"
#include "support/catch2.hpp"

namespace onebit {
namespace {

using Words = std::vector<std::uint32_t>;

AlignedBuffer<float> copy_of(const AlignedBuffer<float>& values) {
    AlignedBuffer<float> copy(values.size());
    copy.copy_from(values.data());
    return copy;
}

/// An encoder's output; guards detect writes behind the end.
struct Outcome {
    Outcome(unsigned bits, const std::vector<float>& start)
        : error(start.size() + 64),
          scales(scale_words(start.size()) + 2, 0xdeadbeef),
          codes(code_words(bits, start.size()) + 2, 0xdeadbeef) {
        std::copy(start.begin(), start.end(), error.data());
        std::fill(error.data() + start.size(), error.data() + error.size(), 77.0F);
    }
    Outcome(const Outcome& other) : error(copy_of(other.error)), scales(other.scales), codes(other.codes) {}
    Outcome(Outcome&&) = default;
    Outcome& operator=(Outcome&&) = default;
    ~Outcome() = default;
    GroupsToWrite groups() { return {scales.data(), codes.data()}; }
    GroupsToRead read() const { return {scales.data(), codes.data()}; }
    bool operator==(const Outcome& other) const {
        return scales == other.scales && codes == other.codes &&
               std::memcmp(error.data(), other.error.data(), error.bytes()) == 0;
    }
    AlignedBuffer<float> error;
    Words scales;
    Words codes;
};

/// Awkward values. Each group of 256 has its own magnitude: denormals, the largest floats, all zero.
std::vector<float> values_of_all_magnitudes(std::size_t count, unsigned seed) {
    constexpr float kFactors[] = {1, 1e-38F, 0, 1e22F, 1e-30F};
    std::vector<float> values = awkward_values(count, seed);
    for (std::size_t i = 0; i < count; ++i) values[i] *= kFactors[(i / kGroupElements + seed) % std::size(kFactors)];
    if (count > 700) values[600] = FLT_MAX;
    return values;
}

/// Rounds to the nearest, or by numbers drawn with some seed in the second half of a block.
void encode(const GroupedKernels& by, bool stochastic, const float* values, const float* before, float* after,
            Stores stores, const std::uint32_t* valid, std::size_t count, const GroupsToWrite& to) {
    stochastic ? by.encode_stochastic({12345, 2048}, values, before, after, stores, valid, count, to)
               : by.encode(values, before, after, stores, valid, count, to);
}

/// Calls body(kernels, reference, count, mask, stochastic) for every code of every instruction set.
template <typename Body>
void for_each_case(const Body& body) {
    REQUIRE(available_grouped_kernels().size() >= 2); // else nothing would be compared
    for (const GroupedTable* table : available_grouped_kernels()) {
        for (std::size_t code = 0; code < std::size(table->codes); ++code) {
            for (const std::size_t count : kCounts) {
                for (const bool masked : {false, true}) {
                    const Words mask = random_words(count, 5);
                    const GroupedKernels& reference = reference_grouped_kernels().codes[code];
                    REQUIRE((table->codes[code].encode_stochastic == nullptr) ==
                            (reference.encode_stochastic == nullptr));
                    for (const bool stochastic : {false, true}) {
                        if (stochastic && reference.encode_stochastic == nullptr) continue;
                        CAPTURE(table->name, table->codes[code].codec, count, masked, stochastic);
                        body(table->codes[code], reference, count, masked ? mask.data() : nullptr, stochastic);
                    }
                }
            }
        }
    }
}

TEST_CASE("grouped codes: every instruction set encodes, adds up and decodes to the reference's bits",
          "[kernels][grouped]") {
    for_each_case([](const GroupedKernels& kernels, const GroupedKernels& reference, std::size_t count,
                     const std::uint32_t* mask, bool stochastic) {
        const std::vector<float> start = awkward_values(count, 2);
        Outcome expected(reference.bits, start);
        Outcome actual(kernels.bits, start);
        for (unsigned step = 0; step < 3; ++step) {
            const std::vector<float> shifted = values_of_all_magnitudes(count + 1, step); // + 1: no vector's alignment
            for (const Stores stores : kAllStores) {
                Outcome aside(kernels.bits, std::vector<float>(count, 5.0F)); // must not matter
                encode(kernels, stochastic, shifted.data() + 1, actual.error.data(), aside.error.data(), stores, mask,
                       count, aside.groups());
                order_stores(stores);
                Outcome from_reference = expected;
                encode(reference, stochastic, shifted.data() + 1, from_reference.error.data(),
                       from_reference.error.data(), stores, mask, count, from_reference.groups());
                CHECK(aside == from_reference);
            }
            encode(kernels, stochastic, shifted.data() + 1, actual.error.data(), actual.error.data(),
                   Stores::kPastCaches, mask, count, actual.groups());
            encode(reference, stochastic, shifted.data() + 1, expected.error.data(), expected.error.data(),
                   Stores::kCached, mask, count, expected.groups());
            CHECK(actual == expected);

            for (const std::size_t misaligned : {0, 1}) {
                for (const Stores stores : kAllStores) {
                    AlignedBuffer<float> decoded(count + 64), decoded_by_reference(count + 64);
                    kernels.decode(expected.read(), mask, count, stores, decoded.data() + misaligned);
                    order_stores(stores);
                    reference.decode(expected.read(), mask, count, stores, decoded_by_reference.data() + misaligned);
                    CHECK(std::memcmp(decoded.data(), decoded_by_reference.data(), decoded.bytes()) == 0);
                }
            }
            AlignedBuffer<float> sums(count + 64), sums_by_reference(count + 64);
            for (const float share : {1.0F, 1.0F / 3}) {
                kernels.add(expected.read(), share, count, sums.data());
                reference.add(expected.read(), share, count, sums_by_reference.data());
            }
            CHECK(std::memcmp(sums.data(), sums_by_reference.data(), sums.bytes()) == 0);
        }
    });
}

TEST_CASE("grouped codes: a group that is not finite says so, and keeps its values as error", "[kernels][grouped]") {
    const float spoiler = GENERATE(std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                                   std::numeric_limits<float>::quiet_NaN());
    for_each_case([=](const GroupedKernels& kernels, const GroupedKernels& reference, std::size_t count,
                      const std::uint32_t*, bool stochastic) {
        std::vector<float> values = awkward_values(count, 3);
        values[count / 2] = spoiler;
        Outcome expected(reference.bits, std::vector<float>(count, 0.0F));
        Outcome actual = expected;
        encode(reference, stochastic, values.data(), expected.error.data(), expected.error.data(), Stores::kCached,
               nullptr, count, expected.groups());
        encode(kernels, stochastic, values.data(), actual.error.data(), actual.error.data(), Stores::kCached, nullptr,
               count, actual.groups());
        CHECK(actual == expected);
        for (std::size_t g = 0; g < scale_words(count); ++g) {
            CHECK(std::isfinite(std::bit_cast<float>(actual.scales[g])) == (g != count / 2 / kGroupElements));
        }
        CHECK(std::memcmp(&actual.error[count / 2], &values[count / 2], sizeof(float)) == 0);
        std::vector<float> sums(count, 1.0F); // a server's sums: the server must detect it, too
        kernels.add(actual.read(), 0.5F, count, sums.data());
        CHECK(!std::isfinite(sums[count / 2]));
    });
}

/// Sizes of element i's group; none of them is 0.
struct GroupSizes {
    double root_mean_square = 0;
    double largest = 0;
};
GroupSizes sizes_of_group(const std::vector<float>& values, std::size_t i) {
    double squares = 0, largest = 0;
    for (std::size_t k = i / kGroupElements * kGroupElements; k < (i / kGroupElements + 1) * kGroupElements; ++k) {
        const double magnitude = std::fabs(static_cast<double>(values[k]));
        squares += magnitude * magnitude;
        largest = std::max(largest, magnitude);
    }
    return {std::sqrt(squares / kGroupElements), largest};
}
double ternary_scale(const std::vector<float>& values, std::size_t i) {
    const GroupSizes sizes = sizes_of_group(values, i);
    return std::min(2 * sizes.root_mean_square, sizes.largest);
}
/// The mean magnitude of the elements in element i's group that have the sign of element i.
double mean_of_sign(const std::vector<float>& values, std::size_t i) {
    double sum = 0, count = 0;
    for (std::size_t k = i / kGroupElements * kGroupElements; k < (i / kGroupElements + 1) * kGroupElements; ++k) {
        if ((values[k] < 0) != (values[i] < 0)) continue;
        sum += std::fabs(static_cast<double>(values[k]));
        ++count;
    }
    return sum / count;
}
double int2_scale(const std::vector<float>& values, std::size_t i) {
    const GroupSizes sizes = sizes_of_group(values, i);
    return std::min(sizes.root_mean_square, sizes.largest * 2 / 3);
}

TEST_CASE("grouped codes: what a code stands for is the nearest that it can express", "[kernels][grouped]") {
    constexpr std::size_t kCount = 4096;
    std::mt19937 random(7);
    std::normal_distribution<float> gaussian;
    std::vector<float> values(kCount);
    for (float& value : values) value = gaussian(random);
    for (const GroupedKernels& kernels : reference_grouped_kernels().codes) {
        Outcome encoded(kernels.bits, std::vector<float>(kCount, 0.0F));
        kernels.encode(values.data(), encoded.error.data(), encoded.error.data(), Stores::kCached, nullptr, kCount,
                       encoded.groups());
        std::vector<float> decoded(kCount);
        kernels.decode(encoded.read(), nullptr, kCount, Stores::kCached, decoded.data());
        for (std::size_t i = 0; i < kCount; ++i) {
            const double largest = sizes_of_group(values, i).largest;
            const double x = values[i], magnitude = std::fabs(x);
            double most = 0; // distance to the nearest
            switch (kernels.codec) {
                case ONEBIT_CODEC_INT8:
                    most = largest / 127 / 2;
                    break;
                case ONEBIT_CODEC_INT4:
                    most = largest / 7 / 2;
                    break;
                case ONEBIT_CODEC_FP4:
                    most = magnitude; // to zero
                    for (int e = 0; e <= 6; ++e) most = std::min(most, std::fabs(magnitude - std::ldexp(largest, -e)));
                    break;
                case ONEBIT_CODEC_BFLOAT16:
                    most = magnitude / 256;
                    break;
                case ONEBIT_CODEC_TERNARY: // to zero or the scale
                    most = std::min(magnitude, std::fabs(magnitude - ternary_scale(values, i)) + 1e-6);
                    break;
                case ONEBIT_CODEC_FLOAT16:
                    most = magnitude / 2048;
                    break;
                case ONEBIT_CODEC_INT2: // to half the scale, or one and a half
                    most = std::min(std::fabs(magnitude - int2_scale(values, i) / 2),
                                    std::fabs(magnitude - int2_scale(values, i) * 1.5)) +
                           1e-6;
                    break;
                case ONEBIT_CODEC_MEANS: // to that of its sign, rounded to bfloat16
                    most = std::fabs(magnitude - mean_of_sign(values, i)) + mean_of_sign(values, i) / 256;
                    break;
                default:
                    FAIL("no bound is known of codec " << kernels.codec);
            }
            CAPTURE(kernels.codec, i, x, decoded[i]);
            CHECK(std::fabs(x - static_cast<double>(decoded[i])) <= most * 1.000001);
            const bool has_zero = kernels.codec != ONEBIT_CODEC_INT2 && kernels.codec != ONEBIT_CODEC_MEANS;
            const double margin = has_zero ? 0 : 1e-7; // of what is sent for 0
            CHECK(static_cast<double>(decoded[i]) + static_cast<double>(encoded.error[i]) ==
                  Approx(x).epsilon(1e-6).margin(margin));
        }
    }
}

/// docs/WIRE_FORMAT.md's "mix".
std::uint32_t mix(std::uint32_t x) {
    x = (x ^ x / 65536) * 2246822507U;
    x = (x ^ x / 8192) * 3266489909U;
    return x ^ x / 65536;
}

TEST_CASE("grouped codes: stochastic rounding goes up or down as is drawn, and in the mean to the value",
          "[kernels][grouped]") {
    constexpr std::size_t kCount = 300; // a group, and a short one
    constexpr std::uint32_t kDraws = 10000;
    constexpr std::uint32_t kFirst = 1024;
    std::mt19937 random(11);
    std::normal_distribution<double> gaussian;
    std::vector<float> values(kCount);
    for (float& value : values) value = static_cast<float>(gaussian(random));
    values[5] = 0;
    int codes = 0;
    for (const GroupedKernels& kernels : reference_grouped_kernels().codes) {
        if (kernels.encode_stochastic == nullptr) continue;
        ++codes;
        std::vector<double> sums(kCount), squares(kCount);
        std::size_t wrong = 0;
        for (std::uint32_t seed = 0; seed < kDraws; ++seed) {
            Outcome encoded(kernels.bits, std::vector<float>(kCount, 0.0F));
            kernels.encode_stochastic({seed, kFirst}, values.data(), encoded.error.data(), encoded.error.data(),
                                      Stores::kCached, nullptr, kCount, encoded.groups());
            std::vector<float> decoded(kCount);
            kernels.decode(encoded.read(), nullptr, kCount, Stores::kCached, decoded.data());
            for (std::size_t i = 0; i < kCount; ++i) {
                const double scale = std::bit_cast<float>(encoded.scales[i / kGroupElements]);
                const double x = values[i], y = decoded[i];
                sums[i] += y;
                squares[i] += (y - x) * (y - x);
                if (std::fabs(y - x) >= scale * 1.00001) ++wrong; // up or down, no further
                const std::uint32_t bits = mix(seed + (kFirst + static_cast<std::uint32_t>(i) + 1) * 2654435769U);
                const double drawn = static_cast<double>(static_cast<std::int32_t>(bits)) / 4294967296.0;
                const double to_whole = std::fabs(y / scale - (x / scale + drawn));
                if (to_whole > 0.50001) ++wrong; // the nearest to the value moved by the draw, within the code
            }
        }
        CAPTURE(kernels.codec);
        CHECK(wrong == 0);
        CHECK(sums[5] == 0); // zero is always zero
        for (std::size_t i = 0; i < kCount; ++i) {
            const double sigma = std::sqrt(squares[i] / kDraws / kDraws) + 1e-7;
            CAPTURE(i, values[i], sums[i] / kDraws, sigma);
            CHECK(std::fabs(sums[i] / kDraws - static_cast<double>(values[i])) <= 4 * sigma);
        }
    }
    CHECK(codes == 2);
}

/// The inverse of mix.
std::uint32_t unmix(std::uint32_t x) {
    const auto inverse_of = [](std::uint32_t factor) { // modulo 2^32
        std::uint32_t inverse = factor;
        for (int i = 0; i < 5; ++i) inverse *= 2 - factor * inverse;
        return inverse;
    };
    x = (x ^ x >> 16) * inverse_of(3266489909U);
    x = (x ^ x >> 13 ^ x >> 26) * inverse_of(2246822507U);
    return x ^ x >> 16;
}

TEST_CASE("grouped codes: the largest draw takes the largest value no further than the code goes",
          "[kernels][grouped]") {
    constexpr std::size_t kAt = 37;
    for (const std::uint32_t bits : {0x7fffffffU, 0x80000000U, 0x7fffff00U}) {
        REQUIRE(mix(unmix(bits)) == bits);
        for (const float sign : {1.0F, -1.0F}) {
            for (const GroupedTable* table : available_grouped_kernels()) {
                for (const GroupedKernels& kernels : table->codes) {
                    if (kernels.encode_stochastic == nullptr) continue;
                    std::vector<float> values(kGroupElements, 0.25F);
                    values[kAt] = sign * 1.7F;
                    Outcome encoded(kernels.bits, std::vector<float>(kGroupElements, 0.0F));
                    const std::uint32_t seed = unmix(bits) - static_cast<std::uint32_t>(kAt + 1) * 2654435769U;
                    kernels.encode_stochastic({seed, 0}, values.data(), encoded.error.data(), encoded.error.data(),
                                              Stores::kCached, nullptr, kGroupElements, encoded.groups());
                    std::vector<float> decoded(kGroupElements);
                    kernels.decode(encoded.read(), nullptr, kGroupElements, Stores::kCached, decoded.data());
                    CAPTURE(table->name, kernels.codec, bits, sign, decoded[kAt]);
                    const double scale = std::bit_cast<float>(encoded.scales[0]);
                    CHECK(std::fabs(static_cast<double>(decoded[kAt] - values[kAt])) <= scale * 1.00001);
                }
            }
        }
    }
}

} // namespace
} // namespace onebit
