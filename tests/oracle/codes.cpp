// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#include "oracle/codes.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>
#include <numeric>

namespace oracle {

namespace {

constexpr float smallest_normal = 0x1p-126F;

// A subnormal operand counts as zero.
double operand(float x) {
    return std::fabs(x) < smallest_normal ? std::copysign(0.0, static_cast<double>(x)) : static_cast<double>(x);
}

// The nearest whole number; a tie goes to the even one.
double nearest_whole(double x) {
    const double below = std::floor(x), part = x - below;
    const bool odd = std::floor(below / 2) * 2 != below;
    return part > 0.5 || (part == 0.5 && odd) ? below + 1 : below;
}

// The largest whole number that a code stands for.
float most(Code code) {
    return code == Code::int8 ? 127.0F : 7.0F;
}

bool is_whole(Code code) {
    return code == Code::int8 || code == Code::int4;
}

// Eight binary digits; the first digit is 1.
float to_bfloat16(float c) {
    if (c == 0) return c;
    int exponent = 0;
    const double m = std::frexp(static_cast<double>(c), &exponent); // 0.5 <= |m| < 1
    const double value = std::ldexp(nearest_whole(m * 256), exponent - 8);
    const double largest = 255 * 0x1p120;
    return static_cast<float>(std::clamp(value, -largest, largest));
}

// The power of two that brings the largest magnitude into [2^14, 2^15), but at least 2^-126.
float float16_scale(float largest) {
    if (largest == 0) return smallest_normal;
    int exponent = 0;
    std::frexp(largest, &exponent); // 2^(exponent - 1) <= largest < 2^exponent
    return std::ldexp(1.0F, std::max(exponent - 15, -126));
}

// Eleven binary digits, the first being 1; or a multiple of 2^-24. Below 2^15.
std::uint32_t to_float16(float x) {
    const std::uint32_t sign = std::signbit(x) ? 0x8000U : 0;
    const double magnitude = std::fabs(operand(x));
    if (magnitude == 0) return sign;
    int exponent = 0;
    std::frexp(magnitude, &exponent);
    const int last_digit = std::max(exponent - 11, -24);
    const double digits = nearest_whole(std::ldexp(magnitude, -last_digit)); // at most 2^11
    const auto half = static_cast<std::uint32_t>(1024 * (last_digit + 24) + digits);
    return sign | std::min(half, 0x77ffU);
}

float from_float16(std::uint32_t bits) {
    const std::uint32_t exponent = bits >> 10 & 0x1f, digits = bits & 0x3ff;
    const double magnitude =
        exponent == 0 ? std::ldexp(digits, -24) : std::ldexp(1024 + digits, static_cast<int>(exponent) - 25);
    return static_cast<float>((bits & 0x8000U) != 0 ? -magnitude : magnitude);
}

// The thresholds between the levels M, M/2, ... M/64 and 0, as fractions of M.
constexpr float fp4_thresholds[] = {0.75F,           0.75F * 0x1p-1F, 0.75F * 0x1p-2F, 0.75F * 0x1p-3F,
                                    0.75F * 0x1p-4F, 0.75F * 0x1p-5F, 0x1p-7F};

std::uint32_t fp4_exponent(float magnitude, float largest) {
    std::uint32_t greater = 0;
    for (const float threshold : fp4_thresholds)
        if (times(largest, threshold) > magnitude) ++greater;
    return greater;
}

// A NaN if any element is a NaN.
float largest_magnitude(const Floats& group) {
    float largest = 0;
    for (const float c : group)
        if (std::isnan(c) || std::fabs(c) > largest) largest = std::fabs(c);
    return largest;
}

// Twice the root mean square of the nonzero elements, but at most the largest magnitude, which is finite.
// For INT2: once the root mean square, but at most 2/3 of the largest magnitude.
float quadratic_scale(Code code, const Floats& group, float largest) {
    float nonzeros = 0;
    for (const float c : group)
        if (operand(c) != 0) ++nonzeros;
    if (nonzeros == 0) return 0;
    int exponent = 0;
    std::frexp(largest, &exponent); // 2^(exponent - 1) <= largest < 2^exponent
    const float p = std::ldexp(1.0F, std::max(1 - exponent, -126));
    std::array<float, 32> lanes = {};
    for (std::size_t i = 0; i < group.size(); ++i) {
        const float part = times(group[i], p);
        lanes[i % 32] = plus(lanes[i % 32], times(part, part));
    }
    for (std::size_t half = 16; half > 0; half /= 2)
        for (std::size_t j = 0; j < half; ++j) lanes[j] = plus(lanes[j], lanes[j + half]);
    const float root = square_root(divided(lanes[0], nonzeros));
    if (code == Code::ternary) return std::min(times(times(2.0F, root), divided(1.0F, p)), largest);
    return std::min(times(root, divided(1.0F, p)), times(11184810 * 0x1p-24F, largest));
}

// The mean magnitude of the elements of one sign, zeros left out, as a bfloat16; at most the largest.
float mean_of_sign(const Floats& group, float largest, bool negative) {
    std::array<float, 32> lanes = {};
    float count = 0;
    for (std::size_t i = 0; i < group.size(); ++i) {
        if (operand(group[i]) == 0 || std::signbit(group[i]) != negative) continue;
        ++count;
        lanes[i % 32] = plus(lanes[i % 32], times(std::fabs(group[i]), 0x1p-8F));
    }
    if (count == 0) return 0;
    for (std::size_t half = 16; half > 0; half /= 2)
        for (std::size_t j = 0; j < half; ++j) lanes[j] = plus(lanes[j], lanes[j + half]);
    return to_bfloat16(std::min(times(lanes[0], divided(256.0F, count)), largest));
}

float sign_extended(Code code, std::uint32_t bits) {
    const int all = code == Code::int8 ? 256 : 16;
    const int value = static_cast<int>(bits);
    return static_cast<float>(value < all / 2 ? value : value - all);
}

// One run's bytes.
using Run = std::array<std::uint32_t, 64>;

void put(std::uint64_t width, Run& run, std::size_t j, std::uint32_t bits) {
    if (width == 1) run[j / 8] |= bits << j % 8;
    if (width == 2) run[j % 8] |= bits << 2 * (j / 8);
    if (width == 4) run[j % 16] |= bits << 4 * (j / 16);
    if (width == 8) run[j] = bits;
    if (width == 16) {
        run[2 * j] = bits & 0xff;
        run[2 * j + 1] = bits >> 8;
    }
}

std::uint32_t get(std::uint64_t width, const Run& run, std::size_t j) {
    if (width == 1) return run[j / 8] >> j % 8 & 1;
    if (width == 2) return run[j % 8] >> 2 * (j / 8) & 3;
    if (width == 4) return run[j % 16] >> 4 * (j / 16) & 0xf;
    return width == 8 ? run[j] : run[2 * j] | run[2 * j + 1] << 8;
}

void append(Words& words, const Run& run, std::uint64_t count) {
    for (std::size_t w = 0; w < count; ++w)
        words.push_back(run[4 * w] | run[4 * w + 1] << 8 | run[4 * w + 2] << 16 | run[4 * w + 3] << 24);
}

Run run_at(const Words& words, std::uint64_t at, std::uint64_t count) {
    Run run = {};
    for (std::size_t byte = 0; byte < 4 * count; ++byte) run[byte] = words[at + byte / 4] >> 8 * (byte % 4) & 0xff;
    return run;
}

std::uint64_t groups_in(std::uint64_t elements) {
    return (elements + group_elements - 1) / group_elements;
}
std::uint64_t runs_in(std::uint64_t elements) {
    return (elements + word_elements - 1) / word_elements;
}

Floats part_of(const Floats& whole, Range range) {
    const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(range.begin);
    return {begin, begin + static_cast<std::ptrdiff_t>(range.count)};
}

// ---- Few elements of each block ----

constexpr std::uint64_t position_bits = 12;

// How many of a block's elements are kept.
std::uint64_t kept_of(TopK topk, std::uint64_t elements) {
    return (topk.kept * elements + block_elements - 1) / block_elements;
}

std::uint64_t words_of_entries(std::uint64_t count, std::uint64_t bits) {
    return (count * bits + 31) / 32;
}

bool is_sparse(Code code) {
    return code == Code::topk || code == Code::randomk;
}

// The words between the scale and the codes.
std::uint64_t position_words(Code code, std::uint64_t r) {
    return code == Code::topk ? words_of_entries(r, position_bits) : 1;
}

std::uint64_t sparse_block_words(Code code, TopK topk, std::uint64_t elements) {
    const std::uint64_t r = kept_of(topk, elements);
    return 1 + position_words(code, r) + words_of_entries(r, topk.bits);
}

// The words from `first` on hold entries of `bits` bits each.
void put_entry(Words& words, std::uint64_t first, std::uint64_t bits, std::uint64_t j, std::uint32_t entry) {
    for (std::uint64_t k = 0; k < bits; ++k) {
        const std::uint64_t bit = bits * j + k;
        words[first + bit / 32] |= (entry >> k & 1) << bit % 32;
    }
}

std::uint32_t get_entry(const Words& words, std::uint64_t first, std::uint64_t bits, std::uint64_t j) {
    std::uint32_t entry = 0;
    for (std::uint64_t k = 0; k < bits; ++k) {
        const std::uint64_t bit = bits * j + k;
        entry |= (words[first + bit / 32] >> bit % 32 & 1) << k;
    }
    return entry;
}

// Positions of the r largest, ascending. All elements are finite.
std::vector<std::size_t> positions_of_largest(const Floats& block, std::uint64_t r) {
    std::vector<std::size_t> positions(block.size());
    std::iota(positions.begin(), positions.end(), std::size_t{0});
    std::stable_sort(positions.begin(), positions.end(), [&](std::size_t a, std::size_t b) {
        return std::fabs(operand(block[a])) > std::fabs(operand(block[b]));
    });
    positions.resize(r);
    std::sort(positions.begin(), positions.end());
    return positions;
}

constexpr std::uint64_t word_values = std::uint64_t{1} << 32;

// Modulo 2^32.
std::uint64_t stirred(std::uint64_t x) {
    x = (x ^ x / 65536) * 2246822507 % word_values;
    x = (x ^ x / 8192) * 3266489909 % word_values;
    return x ^ x / 65536;
}

// The positions that the call draws in block `index` of a chunk; the block has m elements.
std::vector<std::size_t> positions_drawn(std::uint64_t call, std::uint64_t index, std::uint64_t m, std::uint64_t r) {
    constexpr std::uint64_t g = 2654435769;
    const std::uint64_t h = stirred((stirred((call + g) % word_values) + index) % word_values);
    std::vector<std::size_t> positions;
    for (std::uint64_t j = 0; j < r; ++j) {
        const std::uint64_t a = j * m / r, b = (j + 1) * m / r;
        positions.push_back(a + stirred((h + (j + 1) * g) % word_values) * (b - a) / word_values);
    }
    return positions;
}

Floats elements_at(const Floats& block, const std::vector<std::size_t>& positions) {
    Floats elements;
    for (const std::size_t i : positions) elements.push_back(block[i]);
    return elements;
}

// The mean magnitude of the kept nonzero elements, but at most the largest.
float mean_magnitude(const Floats& block, const std::vector<std::size_t>& kept) {
    float nonzeros = 0, sum = 0;
    for (const std::size_t i : kept)
        if (operand(block[i]) != 0) ++nonzeros;
    if (nonzeros == 0) return 0;
    for (const std::size_t i : kept)
        if (operand(block[i]) != 0) sum = plus(sum, times(std::fabs(block[i]), divided(1.0F, nonzeros)));
    return std::min(sum, largest_magnitude(elements_at(block, kept)));
}

std::uint32_t sign_code(float c) {
    if (operand(c) > 0) return 1;
    return operand(c) < 0 ? 3 : 0;
}

// A code of 8 bits has the value of the same INT8 code, a code of 2 bits that of TERNARY.
float topk_value(TopK topk, std::uint32_t bits, float scale) {
    return value_of(topk.bits == 8 ? Code::int8 : Code::ternary, bits, scale);
}

Encoded encode_sparse(Code code, TopK topk, const Floats& c, std::uint64_t call) {
    Encoded encoded;
    encoded.error = c;
    for (const Range& block : blocks_of({0, c.size()})) {
        const Floats elements = part_of(c, block);
        Words words(sparse_block_words(code, topk, block.count), 0);
        float scale = largest_magnitude(elements);
        if (std::isfinite(scale)) {
            const std::uint64_t r = kept_of(topk, block.count);
            const std::vector<std::size_t> kept =
                code == Code::topk ? positions_of_largest(elements, r)
                                   : positions_drawn(call, block.begin / block_elements, block.count, r);
            if (code == Code::randomk) words[1] = static_cast<std::uint32_t>(call % word_values);
            const std::uint64_t codes = 1 + position_words(code, r);
            scale = topk.bits == 8 ? scale_of(Code::int8, elements_at(elements, kept)) : mean_magnitude(elements, kept);
            for (std::size_t j = 0; j < kept.size(); ++j) {
                const float x = elements[kept[j]];
                const std::uint32_t bits = topk.bits == 8 ? code_of(Code::int8, x, scale) : sign_code(x);
                if (code == Code::topk) put_entry(words, 1, position_bits, j, static_cast<std::uint32_t>(kept[j]));
                put_entry(words, codes, topk.bits, j, bits);
                encoded.error[block.begin + kept[j]] = minus(x, topk_value(topk, bits, scale));
            }
        }
        words[0] = std::bit_cast<std::uint32_t>(scale);
        encoded.finite = encoded.finite && std::isfinite(scale);
        encoded.words.insert(encoded.words.end(), words.begin(), words.end());
    }
    return encoded;
}

// A message's values, and which elements it contains.
struct Decoded {
    Floats values;
    std::vector<bool> sent;
};

// All elements of a block that is not finite are NaN.
Decoded decode_sparse(Code code, TopK topk, const Words& words, std::uint64_t count, float share) {
    Decoded decoded{Floats(count, 0.0F), std::vector<bool>(count, false)};
    std::uint64_t at = 0;
    for (const Range& block : blocks_of({0, count})) {
        const std::uint64_t r = kept_of(topk, block.count);
        const std::uint64_t codes = at + 1 + position_words(code, r);
        std::vector<std::size_t> positions;
        if (code == Code::randomk)
            positions = positions_drawn(words[at + 1], block.begin / block_elements, block.count, r);
        for (std::uint64_t j = 0; j < r && code == Code::topk; ++j)
            positions.push_back(get_entry(words, at + 1, position_bits, j));
        const auto scale = std::bit_cast<float>(words[at]);
        for (std::uint64_t i = block.begin; i < block.end() && !std::isfinite(scale); ++i) {
            decoded.values[i] = std::numeric_limits<float>::quiet_NaN();
            decoded.sent[i] = true;
        }
        for (std::uint64_t j = 0; j < r && std::isfinite(scale); ++j) {
            const std::uint64_t i = block.begin + positions[j];
            decoded.values[i] = times(topk_value(topk, get_entry(words, codes, topk.bits, j), scale), share);
            decoded.sent[i] = true;
        }
        at += sparse_block_words(code, topk, block.count);
    }
    return decoded;
}

} // namespace

std::uint64_t bits_of(Code code) {
    if (code == Code::means) return 1;
    if (code == Code::bfloat16 || code == Code::float16) return 16;
    if (code == Code::ternary || code == Code::int2) return 2;
    return code == Code::int8 ? 8 : 4;
}

// x is a sum, product or quotient of two floats, or the root of one float, rounded to double. A double has more than
// 2 p + 2 digits, where p is a float's number of digits. So rounding twice gives the same as rounding once.
float rounded(double x) {
    if (std::fabs(x) >= 0x1p-100 || !std::isfinite(x)) return static_cast<float>(x);
    const auto digits = static_cast<float>(x * 0x1p140); // far from where exponents end
    if (std::fabs(digits) < 0x1p14F) return std::copysign(0.0F, digits);
    return static_cast<float>(x);
}

float plus(float a, float b) {
    return rounded(operand(a) + operand(b));
}
float minus(float a, float b) {
    return rounded(operand(a) - operand(b));
}
float times(float a, float b) {
    return rounded(operand(a) * operand(b));
}
float divided(float a, float b) {
    return rounded(operand(a) / operand(b));
}
float square_root(float a) {
    return rounded(std::sqrt(operand(a)));
}

float scale_of(Code code, const Floats& group) {
    const float largest = largest_magnitude(group);
    if (!std::isfinite(largest)) return largest;
    if (code == Code::ternary || code == Code::int2) return quadratic_scale(code, group, largest);
    if (code == Code::float16) return float16_scale(largest);
    if (code == Code::means) {
        const std::uint32_t positive = std::bit_cast<std::uint32_t>(mean_of_sign(group, largest, false));
        const std::uint32_t negative = std::bit_cast<std::uint32_t>(mean_of_sign(group, largest, true));
        return std::bit_cast<float>(positive | negative >> 16);
    }
    if (!is_whole(code)) return largest;
    const float s = divided(largest, most(code));
    return std::isinf(times(s, most(code))) ? std::nextafter(s, 0.0F) : s;
}

std::uint32_t code_of(Code code, float c, float scale) {
    if (is_whole(code)) {
        if (scale == 0) return 0;
        const double q = nearest_whole(static_cast<double>(times(c, divided(1.0F, scale))));
        return static_cast<std::uint32_t>(static_cast<int>(q)) & (code == Code::int8 ? 0xffU : 0xfU);
    }
    if (code == Code::bfloat16) return std::bit_cast<std::uint32_t>(to_bfloat16(c)) >> 16;
    if (code == Code::means) return operand(c) < 0 ? 1 : 0;
    if (code == Code::float16) return to_float16(times(c, divided(1.0F, scale)));
    if (code == Code::int2) {
        if (operand(c) < 0) return operand(c) < -operand(scale) ? 2 : 3;
        return operand(c) > operand(scale) ? 1 : 0;
    }
    if (code == Code::ternary) {
        const double threshold = operand(times(0.5F, scale));
        if (operand(c) > threshold) return 1;
        return operand(c) < -threshold ? 3 : 0;
    }
    const std::uint32_t exponent = c == 0 ? 7 : fp4_exponent(std::fabs(c), scale); // the scale is M
    return c < 0 && exponent < 7 ? exponent + 8 : exponent;
}

float value_of(Code code, std::uint32_t bits, float scale) {
    if (is_whole(code)) return times(sign_extended(code, bits), scale);
    if (code == Code::bfloat16) return std::bit_cast<float>(bits << 16);
    if (code == Code::float16) return times(from_float16(bits), scale);
    if (code == Code::means) {
        const auto halves = std::bit_cast<std::uint32_t>(scale);
        return bits == 0 ? std::bit_cast<float>(halves >> 16 << 16) : -std::bit_cast<float>(halves << 16);
    }
    if (code == Code::int2) {
        constexpr float levels[] = {0.5F, 1.5F, -1.5F, -0.5F};
        return times(levels[bits], scale);
    }
    if (code == Code::ternary) {
        if (bits == 1) return scale;
        return bits == 3 ? -scale : 0;
    }
    const std::uint32_t exponent = bits % 8;
    if (exponent == 7) return 0;
    const float magnitude = times(scale, std::ldexp(1.0F, -static_cast<int>(exponent)));
    return bits >= 8 ? -magnitude : magnitude;
}

std::uint64_t message_words(Code code, std::uint64_t count, TopK topk) {
    std::uint64_t words = 0;
    for (const Range& block : blocks_of({0, count})) {
        words += is_sparse(code) ? sparse_block_words(code, topk, block.count)
                                 : groups_in(block.count) + bits_of(code) * runs_in(block.count);
    }
    return words;
}

Encoded encode(Code code, const Floats& c, TopK topk, std::uint64_t call) {
    if (is_sparse(code)) return encode_sparse(code, topk, c, call);
    Encoded encoded;
    encoded.error.resize(c.size());
    for (const Range& block : blocks_of({0, c.size()})) {
        Floats scales;
        for (std::uint64_t group = 0; group < groups_in(block.count); ++group) {
            const std::uint64_t begin = block.begin + group * group_elements;
            const std::uint64_t end = std::min(begin + group_elements, block.end());
            scales.push_back(scale_of(code, part_of(c, {begin, end - begin})));
            encoded.finite = encoded.finite && std::isfinite(scales.back());
            encoded.words.push_back(std::bit_cast<std::uint32_t>(scales.back()));
        }
        for (std::uint64_t begin = block.begin; begin < block.end(); begin += word_elements) {
            const float scale = scales[(begin - block.begin) / group_elements];
            Run run = {};
            for (std::size_t j = 0; j < word_elements; ++j) {
                const std::uint64_t i = begin + j;
                const float x = i < block.end() ? c[i] : 0.0F;
                const std::uint32_t bits = std::isfinite(scale) ? code_of(code, x, scale) : 0;
                put(bits_of(code), run, j, bits);
                if (i >= block.end()) continue;
                encoded.error[i] = std::isfinite(scale) ? minus(x, value_of(code, bits, scale)) : x;
            }
            append(encoded.words, run, bits_of(code));
        }
    }
    return encoded;
}

Floats decode(Code code, const Words& words, std::uint64_t count, float share, TopK topk) {
    if (is_sparse(code)) return decode_sparse(code, topk, words, count, share).values;
    Floats values;
    Run run = {};
    std::uint64_t at = 0;
    for (const Range& block : blocks_of({0, count})) {
        const std::uint64_t first_run = at + groups_in(block.count);
        for (std::uint64_t i = 0; i < block.count; ++i) {
            if (i % word_elements == 0)
                run = run_at(words, first_run + bits_of(code) * (i / word_elements), bits_of(code));
            const auto scale = std::bit_cast<float>(words[at + i / group_elements]);
            const std::uint32_t bits = get(bits_of(code), run, i % word_elements);
            values.push_back(std::isfinite(scale) ? times(value_of(code, bits, scale), share)
                                                  : std::numeric_limits<float>::quiet_NaN());
        }
        at = first_run + bits_of(code) * runs_in(block.count);
    }
    return values;
}

std::vector<bool> elements_sent(Code code, const Words& words, std::uint64_t count, TopK topk) {
    if (is_sparse(code)) return decode_sparse(code, topk, words, count, 1.0F).sent;
    return std::vector<bool>(count, true);
}

Floats kept(ErrorType type, Floats errors) {
    if (type == ErrorType::float32) return errors;
    for (std::uint64_t begin = 0; begin < errors.size(); begin += group_elements) {
        const std::uint64_t end = std::min<std::uint64_t>(begin + group_elements, errors.size());
        // 2^6 to 2^7 units are the largest.
        int exponent = 0;
        std::frexp(largest_magnitude(part_of(errors, {begin, end - begin})), &exponent);
        const int unit = std::max(exponent - 7, -126);
        for (std::uint64_t i = begin; i < end; ++i) {
            if (type == ErrorType::bfloat16) {
                errors[i] = to_bfloat16(errors[i]);
            } else {
                const double number = nearest_whole(std::ldexp(static_cast<double>(errors[i]), -unit));
                errors[i] = std::ldexp(static_cast<float>(std::clamp(number, -127.0, 127.0) + 0.0), unit); // never -0
            }
        }
    }
    return errors;
}

Floats exact(const FloatsPerRank& inputs, Op op) {
    const float share = op == Op::sum ? 1.0F : divided(1.0F, static_cast<float>(inputs.size()));
    Floats result = inputs[0];
    for (std::size_t i = 0; i < result.size(); ++i) {
        double wide = operand(inputs[0][i]);
        for (std::size_t r = 1; r < inputs.size(); ++r) {
            result[i] = plus(result[i], inputs[r][i]);
            wide += operand(inputs[r][i]);
        }
        if (op == Op::sum) continue;
        result[i] = times(result[i], share);
        if (std::isfinite(result[i])) continue;
        const double largest = static_cast<double>(FLT_MAX);
        result[i] = static_cast<float>(std::clamp(wide * static_cast<double>(share), -largest, largest));
    }
    return result;
}

CodedAllreduce::CodedAllreduce(std::uint64_t count, int ranks, Code code, Op op, TopK topk)
    : worker_errors(static_cast<std::size_t>(ranks), Floats(count, 0.0F)),
      result(count, 0.0F),
      count_(count),
      code_(code),
      topk_(topk),
      share_(op == Op::sum ? 1.0F : divided(1.0F, static_cast<float>(ranks))),
      chunks_(partition(count, ranks)) {
    for (const Range& chunk : chunks_) server_errors.emplace_back(chunk.count, 0.0F);
}

void CodedAllreduce::set_mask(const std::vector<bool>& mask) {
    mask_ = mask;
    clear_outside_mask();
}

void CodedAllreduce::clear_outside_mask() {
    for (std::size_t j = 0; j < chunks_.size(); ++j) {
        for (std::uint64_t i = chunks_[j].begin; i < chunks_[j].end(); ++i) {
            if (takes_part(i)) continue;
            for (Floats& error : worker_errors) error[i] = 0;
            server_errors[j][i - chunks_[j].begin] = 0;
            result[i] = 0;
        }
    }
}

void CodedAllreduce::reset() {
    for (Floats& error : worker_errors) error.assign(error.size(), 0.0F);
    for (Floats& error : server_errors) error.assign(error.size(), 0.0F);
}

// The message of a chunk. `values` and `error` have one number for each element; `error` is replaced.
Words CodedAllreduce::send(Range range, const Floats& values, float* error) {
    Floats c(range.count, 0.0F);
    for (std::uint64_t k = 0; k < range.count; ++k)
        if (takes_part(range.begin + k)) c[k] = plus(values[k], error[k]);
    Encoded encoded = encode(code_, c, topk_, call);
    for (std::uint64_t k = 0; k < range.count; ++k)
        if (!takes_part(range.begin + k)) encoded.error[k] = 0;
    const Floats errors = kept(error_type, encoded.error);
    std::copy(errors.begin(), errors.end(), error);
    finite = finite && encoded.finite;
    return encoded.words;
}

const Floats& CodedAllreduce::step(const FloatsPerRank& inputs) {
    finite = true;
    worker_messages.assign(inputs.size(), {});
    server_messages.clear();
    for (std::size_t r = 0; r < inputs.size(); ++r) {
        for (const Range& chunk : chunks_) {
            const auto begin = inputs[r].begin() + static_cast<std::ptrdiff_t>(chunk.begin);
            const Floats values(begin, begin + static_cast<std::ptrdiff_t>(chunk.count));
            worker_messages[r].push_back(send(chunk, values, worker_errors[r].data() + chunk.begin));
        }
    }
    for (std::size_t j = 0; j < chunks_.size(); ++j) {
        const Range chunk = chunks_[j];
        Floats y(chunk.count, 0.0F);
        for (const std::vector<Words>& messages : worker_messages) {
            const Floats values = decode(code_, messages[j], chunk.count, share_, topk_);
            const std::vector<bool> sent = elements_sent(code_, messages[j], chunk.count, topk_);
            for (std::uint64_t k = 0; k < chunk.count; ++k)
                if (sent[k]) y[k] = plus(y[k], values[k]);
        }
        server_messages.push_back(send(chunk, y, server_errors[j].data()));
        const Floats values = decode(code_, server_messages[j], chunk.count, 1.0F, topk_);
        std::copy(values.begin(), values.end(), result.begin() + static_cast<std::ptrdiff_t>(chunk.begin));
    }
    if (finite)
        ++call;
    else
        reset();
    clear_outside_mask();
    return result;
}

CodedTwoLevel::CodedTwoLevel(std::uint64_t count, int nodes, int places, Code code, Op op, TopK topk)
    : result(count, 0.0F), count_(count), nodes_(nodes), places_(places), op_(op), shards_(partition(count, places)) {
    for (const Range& shard : shards_) levels_.emplace_back(shard.count, nodes, code, op, topk);
}

void CodedTwoLevel::set_error_type(ErrorType type) {
    for (CodedAllreduce& level : levels_) level.error_type = type;
}

void CodedTwoLevel::set_mask(const std::vector<bool>& mask) {
    for (std::size_t place = 0; place < shards_.size(); ++place) {
        const auto begin = mask.begin() + static_cast<std::ptrdiff_t>(shards_[place].begin);
        levels_[place].set_mask({begin, begin + static_cast<std::ptrdiff_t>(shards_[place].count)});
    }
}

void CodedTwoLevel::reset() {
    for (CodedAllreduce& level : levels_) level.reset();
}

const Floats& CodedTwoLevel::step(const FloatsPerRank& inputs) {
    FloatsPerRank averages; // [node]
    for (int node = 0; node < nodes_; ++node) {
        const auto first = inputs.begin() + static_cast<std::ptrdiff_t>(node) * places_;
        averages.push_back(exact({first, first + places_}, op_));
    }
    finite = true;
    for (std::size_t place = 0; place < shards_.size(); ++place) {
        const auto begin = static_cast<std::ptrdiff_t>(shards_[place].begin);
        const auto end = static_cast<std::ptrdiff_t>(shards_[place].end());
        FloatsPerRank parts;
        for (const Floats& average : averages) parts.emplace_back(average.begin() + begin, average.begin() + end);
        const Floats& values = levels_[place].step(parts);
        std::copy(values.begin(), values.end(), result.begin() + begin);
        finite = finite && levels_[place].finite;
    }
    if (!finite) reset();
    return result;
}

Floats CodedTwoLevel::worker_error(int rank) const {
    const auto place = static_cast<std::size_t>(rank % places_);
    const Floats own = levels_[place].worker_error(rank / places_);
    Floats error(count_, 0.0F);
    std::copy(own.begin(), own.end(), error.begin() + static_cast<std::ptrdiff_t>(shards_[place].begin));
    return error;
}

Range CodedTwoLevel::served(int rank) const {
    const auto place = static_cast<std::size_t>(rank % places_);
    const Range chunk = levels_[place].served(rank / places_);
    return {shards_[place].begin + chunk.begin, chunk.count};
}

Floats CodedTwoLevel::server_error(int rank) const {
    return levels_[static_cast<std::size_t>(rank % places_)].server_error(rank / places_);
}

} // namespace oracle
