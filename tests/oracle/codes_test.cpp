// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The oracle of the codes against cases worked out by hand, and against double precision.
#include "oracle/codes.hpp"

#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>

#include "support/catch2.hpp"
#include "support/data.hpp"
#include "support/magnitudes.hpp"

using namespace oracle;
using onebit_test::Kind;
using onebit_test::make_data;
using onebit_test::same_bits;

namespace {

// The codes with a scale for each group.
constexpr Code grouped_codes[] = {Code::int8,    Code::int4,    Code::fp4,  Code::bfloat16,
                                  Code::ternary, Code::float16, Code::int2, Code::means};
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

std::uint32_t bits(float x) {
    return std::bit_cast<std::uint32_t>(x);
}

// The message of one run. Its first elements are given, the others are zero.
Words words_of(Code code, const Floats& first) {
    Floats c(word_elements, 0.0F);
    std::copy(first.begin(), first.end(), c.begin());
    return encode(code, c).words;
}

FloatsPerRank inputs_of(Kind kind, std::uint64_t count, int ranks, std::uint64_t step) {
    FloatsPerRank inputs;
    for (int r = 0; r < ranks; ++r) inputs.push_back(make_data(kind, count, 17, r, step));
    return inputs;
}

// The elements of element i's group. 4096 is a multiple of 256.
Floats group_of(const Floats& c, std::uint64_t i) {
    const std::uint64_t begin = i / group_elements * group_elements;
    const std::uint64_t end = std::min<std::uint64_t>(begin + group_elements, c.size());
    return {c.begin() + static_cast<std::ptrdiff_t>(begin), c.begin() + static_cast<std::ptrdiff_t>(end)};
}

double largest_of(const Floats& group) {
    double largest = 0;
    for (const float c : group) largest = std::max(largest, std::fabs(static_cast<double>(c)));
    return largest;
}

// In double, of the nonzero elements.
double root_mean_square(const Floats& group) {
    double squares = 0, nonzeros = 0;
    for (const float c : group) {
        squares += static_cast<double>(c) * static_cast<double>(c);
        if (c != 0) ++nonzeros;
    }
    return nonzeros == 0 ? 0 : std::sqrt(squares / nonzeros);
}

// The error that a code may make for an element of a group.
double allowed(Code code, double c, const Floats& group) {
    const double largest = largest_of(group), rounding = 1e-6 * largest;
    if (code == Code::ternary) {
        const double scale = std::min(2 * root_mean_square(group), largest);
        return std::min(std::fabs(c), std::fabs(std::fabs(c) - scale)) + rounding;
    }
    if (code == Code::int2) {
        const double scale = std::min(root_mean_square(group), largest * 2 / 3);
        return std::min(std::fabs(std::fabs(c) - scale / 2), std::fabs(std::fabs(c) - scale * 3 / 2)) + rounding;
    }
    if (code == Code::means) {
        double sum = 0, count = 0;
        for (const float x : group) {
            if (x == 0 || (x < 0) != (c < 0)) continue;
            sum += std::fabs(static_cast<double>(x));
            ++count;
        }
        const double mean = count == 0 ? 0 : sum / count;
        return std::fabs(std::fabs(c) - mean) + mean * 0x1p-8 + rounding;
    }
    if (code == Code::float16) return std::max(std::fabs(c) * 0x1p-11, largest * 0x1p-39); // 2^-25 of 2^14
    if (code == Code::int8) return largest / 127 / 2 + rounding;
    if (code == Code::int4) return largest / 7 / 2 + rounding;
    if (code == Code::bfloat16) return std::fabs(c) * 0x1p-8;
    double nearest = std::fabs(c); // as if 0 were sent
    for (int k = 0; k <= 6; ++k) nearest = std::min(nearest, std::fabs(std::fabs(c) - std::ldexp(largest, -k)));
    return nearest + rounding;
}

// Over the steps: results + mean worker error + server errors == averages of the inputs.
void check_conservation(Code code, Op op, Kind kind, int ranks, TopK topk = {}) {
    constexpr std::uint64_t count = 1009, steps = 200;
    INFO(name_of(code) << " ranks " << ranks << " " << onebit_test::name_of(kind));
    INFO("kept " << topk.kept << ", " << topk.bits << " bits");
    CodedAllreduce reduce(count, ranks, code, op, topk);
    const double share = op == Op::sum ? 1 : 1.0 / ranks;
    Vector balance(count, 0.0);
    double largest = 0, largest_input = 0;
    for (std::uint64_t t = 0; t < steps; ++t) {
        const FloatsPerRank inputs = inputs_of(kind, count, ranks, t);
        for (const Floats& x : inputs) largest_input = std::max(largest_input, largest_of(x));
        const Floats& result = reduce.step(inputs);
        REQUIRE(reduce.finite);
        for (std::uint64_t i = 0; i < count; ++i) {
            for (const Floats& x : inputs) balance[i] += share * static_cast<double>(x[i]);
            balance[i] -= static_cast<double>(result[i]);
            largest = std::max(largest, std::fabs(static_cast<double>(result[i])));
        }
    }
    double most_error = 0;
    for (std::size_t j = 0; j < reduce.chunks().size(); ++j) {
        for (std::uint64_t i = 0; i < reduce.chunks()[j].count; ++i) {
            const std::uint64_t k = reduce.chunks()[j].begin + i;
            for (const Floats& error : reduce.worker_errors) {
                balance[k] -= share * static_cast<double>(error[k]);
                most_error = std::max(most_error, std::fabs(static_cast<double>(error[k])));
            }
            balance[k] -= static_cast<double>(reduce.server_errors[j][i]);
        }
    }
    double lost = 0;
    for (const double b : balance) lost = std::max(lost, std::fabs(b));
    CHECK(lost <= static_cast<double>(steps) * 3e-7 * largest);
    // Errors don't grow. Codes of 1 and 2 bits send less than the largest. TOPK's others wait until they are large.
    double most = bits_of(code) <= 2 ? largest_input : largest;
    if (code == Code::topk && topk.bits == 2) most = std::max(largest, largest_input);
    if (code == Code::means) most = 2 * largest_input;       // the means leave more for later
    if (code == Code::randomk) most = largest_input * steps; // RANDOMK's others wait for a draw
    CHECK(most_error <= most * ranks);
    CHECK(most_error > 0);
}

// A call of two ranks with 100 elements whose value and error overflow: it has no result, and all errors are zero.
void check_failed_call(CodedAllreduce& reduce) {
    FloatsPerRank inputs(2, Floats(100, 1.0F));
    reduce.worker_errors[1][50] = FLT_MAX;
    inputs[1][50] = FLT_MAX;
    reduce.step(inputs);
    CHECK(!reduce.finite);
    CHECK(same_bits(reduce.worker_errors[1], Floats(100, 0.0F)));
    CHECK(same_bits(reduce.server_errors[0], Floats(64, 0.0F)));
}

} // namespace

TEST_CASE("codes: float operations know no subnormal numbers", "[oracle]") {
    CHECK(plus(0x1p-126F, 0x1p-130F) == 0x1p-126F); // an operand
    CHECK(bits(minus(0x1p-126F, 0x1.8p-126F)) == bits(-0.0F));
    CHECK(bits(plus(-0x1p-130F, -0.0F)) == bits(-0.0F));
    CHECK(bits(times(-0x1p-100F, 0x1p-27F)) == bits(-0.0F));
    CHECK(times(0x1p-100F, 0x1p-26F) == 0x1p-126F);
    CHECK(times(0x1.fffffep-64F, 0x1p-63F) == 0); // exact in 24 digits, and below 2^-126
    CHECK(times(0x1.fffffep-64F, 0x1.000002p-63F) == 0x1p-126F);
    CHECK(divided(0x1p-120F, 127.0F) == 0);
    CHECK(divided(0x1p-119F, 127.0F) == 0x1.020408p-126F);
    CHECK(divided(1.0F, 3.0F) == 1.0F / 3.0F);
    CHECK(square_root(2.0F) == 0x1.6a09e6p0F);
    CHECK(square_root(0x1p-126F) == 0x1p-63F);
    CHECK(square_root(0x1p-128F) == 0);
    CHECK(std::isinf(times(FLT_MAX, 2.0F)));
    CHECK(std::isinf(plus(FLT_MAX, FLT_MAX)));
    // Elsewhere results are the processor's.
    for (std::uint64_t step = 0; step < 6; ++step) {
        const Floats a = onebit_test::make_magnitudes(2000, 3, 0, step),
                     b = onebit_test::make_magnitudes(2000, 4, 1, step);
        for (std::size_t i = 0; i < a.size(); ++i) {
            if (std::fabs(a[i]) < FLT_MIN || std::fabs(b[i]) < FLT_MIN) continue;
            const float results[] = {a[i] + b[i], a[i] * b[i], a[i] / b[i]};
            const float mine[] = {plus(a[i], b[i]), times(a[i], b[i]), divided(a[i], b[i])};
            for (int k = 0; k < 3; ++k) {
                const bool subnormal = std::fabs(results[k]) < FLT_MIN;
                if (bits(mine[k]) != bits(subnormal ? std::copysign(0.0F, results[k]) : results[k]))
                    CHECK(mine[k] == results[k]);
            }
            if (bits(square_root(std::fabs(a[i]))) != bits(std::sqrt(std::fabs(a[i]))))
                CHECK(square_root(std::fabs(a[i])) == std::sqrt(std::fabs(a[i])));
        }
    }
}

TEST_CASE("codes: INT8 by hand", "[oracle]") {
    // Scale 1: whole numbers, ties to even.
    const Floats c = {127, -127, 0.5F, 1.5F, -0.5F, -1.5F, -2.5F, -1};
    const Words words = words_of(Code::int8, c);
    REQUIRE(words.size() == 9);
    CHECK(words[0] == bits(1.0F));
    CHECK(words[1] == 0x0200817fU);
    CHECK(words[2] == 0xfffefe00U);
    CHECK(words[3] == 0);
    const Encoded encoded = encode(Code::int8, c);
    CHECK(encoded.words == words); // the filling is zeros
    CHECK(same_bits(encoded.error, {0, 0, 0.5F, -0.5F, -0.5F, 0.5F, -0.5F, 0}));
    CHECK(same_bits(decode(Code::int8, words, 4, 0.25F), {31.75F, -31.75F, 0, 0.5F}));
}

TEST_CASE("codes: INT4 by hand", "[oracle]") {
    Floats c(40, 0.0F);
    c[0] = 14;    // scale 2
    c[1] = -14;   // -7
    c[16] = 3;    // 1.5, to even: 2
    c[17] = -2;   // -1
    c[15] = 5.5F; // 2.75: 3
    c[31] = 1;    // 0.5, to even: 0
    c[33] = 4;    // of the next run
    const Encoded encoded = encode(Code::int4, c);
    REQUIRE(encoded.words.size() == 1 + 2 * 4);
    CHECK(encoded.words[0] == bits(2.0F));
    CHECK(encoded.words[1] == 0x0000f927U); // bytes 0x27, 0xf9
    CHECK(encoded.words[2] == 0);
    CHECK(encoded.words[4] == 0x03000000U);
    CHECK(encoded.words[5] == 0x00000200U);
    CHECK(encoded.error[16] == -1);
    CHECK(encoded.error[17] == 0);
    CHECK(encoded.error[31] == 1);
    CHECK(decode(Code::int4, encoded.words, 40, 1.0F)[33] == 4);
}

TEST_CASE("codes: FP4 by hand", "[oracle]") {
    // Levels 64, 32, 16, 8, 4, 2, 1 and 0; thresholds 48, 24, 12, 6, 3, 1.5 and 0.5 are of the level above.
    const Floats c = {64, 48, 47, -24, -23, 1.5F, 1.4F, 0.5F, -0.49F, -0.5F};
    const Words words = words_of(Code::fp4, c);
    REQUIRE(words.size() == 5);
    CHECK(words[0] == bits(64.0F));
    CHECK(words[1] == 0x79717070U); // 0, 0, 1, 9; the high halves are zeros' codes
    CHECK(words[2] == 0x7676757aU); // 10, 5, 6, 6
    CHECK(words[3] == 0x77777e77U); // 7, 14
    CHECK(words[4] == 0x77777777U);
    const Encoded encoded = encode(Code::fp4, c);
    CHECK(encoded.words == words);
    CHECK(same_bits(encoded.error, {0, -16, 15, 8, -7, -0.5F, 1.4F - 1.0F, -0.5F, -0.49F, 0.5F}));
    // Zeros stay zeros, although no threshold is above them.
    CHECK(words_of(Code::fp4, {}) == Words{0, 0x77777777U, 0x77777777U, 0x77777777U, 0x77777777U});
    CHECK(decode(Code::fp4, {bits(1.0F), 0xfU, 0, 0, 0}, 1, 1.0F)[0] == 0);
}

TEST_CASE("codes: BFLOAT16 by hand", "[oracle]") {
    const Floats c = {1.0F, -0x1.01p0F, 0x1.03p0F, 0x1.010002p0F, FLT_MAX, -FLT_MAX, -0.0F};
    const Encoded encoded = encode(Code::bfloat16, c);
    REQUIRE(encoded.words.size() == 17);
    CHECK(encoded.words[0] == bits(FLT_MAX));
    CHECK(encoded.words[1] == 0xbf803f80U); // ties to even, down
    CHECK(encoded.words[2] == 0x3f813f82U); // up; and above the middle
    CHECK(encoded.words[3] == 0xff7f7f7fU);
    CHECK(encoded.words[4] == 0x00008000U);
    CHECK(encoded.error[1] == -0x1p-8F);
    CHECK(encoded.error[4] == 0x1.fffffep127F - 0x1.fep127F);
    CHECK(same_bits(decode(Code::bfloat16, encoded.words, 3, 0.5F), {0.5F, -0.5F, 0x1.04p-1F}));
}

TEST_CASE("codes: FLOAT16 by hand", "[oracle]") {
    // The scale is 1: 2^14 is among them.
    const Floats c = {0x1p14F, -1.0F, 0x1.002p0F, 0x1.006p0F, 0x1.002002p0F, 0x1p-24F, -0x1p-25F, 0x1.8p-24F, -0.0F};
    const Encoded encoded = encode(Code::float16, c);
    REQUIRE(encoded.words.size() == 17);
    CHECK(encoded.words[0] == bits(1.0F));
    CHECK(encoded.words[1] == 0xbc007400U);
    CHECK(encoded.words[2] == 0x3c023c00U); // ties to even, down, and up
    CHECK(encoded.words[3] == 0x00013c01U); // above the middle; the smallest
    CHECK(encoded.words[4] == 0x00028000U); // half of it is 0, with the whole value as error; 1.5 is 2
    CHECK(encoded.words[5] == 0x00008000U);
    CHECK(encoded.error[2] == 0x1p-11F);
    CHECK(encoded.error[6] == -0x1p-25F);
    CHECK(encoded.error[7] == -0x1p-25F);
    CHECK(same_bits(decode(Code::float16, encoded.words, 3, 0.5F), {0x1p13F, -0.5F, 0.5F}));

    CHECK(scale_of(Code::float16, {3.0F}) == 0x1p-13F); // 2^14 to 2^15 for 2 to 4
    CHECK(scale_of(Code::float16, {0x1.fffffep1F}) == 0x1p-13F);
    CHECK(scale_of(Code::float16, {4.0F, -1}) == 0x1p-12F);
    CHECK(scale_of(Code::float16, {FLT_MAX}) == 0x1p113F);
    CHECK(scale_of(Code::float16, {0x1p-126F}) == 0x1p-126F);
    CHECK(scale_of(Code::float16, {0.0F}) == 0x1p-126F);
    // A value that would round to 2^15 becomes the largest value below 2^15.
    CHECK(words_of(Code::float16, {FLT_MAX, -0x1.ffep127F})[1] == 0xf7ff77ffU);
    CHECK(words_of(Code::float16, {0x1p127F, 0x1p-20F})[1] == 0x00007400U); // 2^-133 is 0
}

TEST_CASE("codes: INT2 by hand", "[oracle]") {
    // The root mean square of the four nonzero elements is 4.
    const Floats c = {0, 1, -0.0F, -7, 0, 3, std::sqrt(5.0F), 0};
    const Encoded encoded = encode(Code::int2, c);
    CHECK(encoded.words == Words{bits(4.0F), 0x02000000U, 0});
    CHECK(same_bits(encoded.error, {-2, -1, -2, -1, -2, 1, std::sqrt(5.0F) - 2, -2}));
    CHECK(same_bits(decode(Code::int2, encoded.words, 4, 0.5F), {1, 1, 1, -3}));
    CHECK(code_of(Code::int2, 4, 4) == 0); // a tie
    CHECK(code_of(Code::int2, -4, 4) == 3);
    CHECK(code_of(Code::int2, std::nextafter(4.0F, 5.0F), 4) == 1);
    CHECK(code_of(Code::int2, std::nextafter(-4.0F, -5.0F), 4) == 2);
    CHECK(value_of(Code::int2, 3, 4) == -2);
    // Equal magnitudes: 1.5 times the scale, except for rounding down.
    const Encoded equal = encode(Code::int2, Floats(40, -3.0F));
    CHECK(equal.words[0] == bits(std::nextafter(2.0F, 0.0F)));
    CHECK(equal.words[1] == 0xaaaaaaaaU);
    CHECK(equal.words[3] == 0x02020202U); // 8 elements, each in a byte of its own
    CHECK(equal.error[0] == -3 + std::nextafter(2.0F, 0.0F) * 1.5F);
    CHECK(std::isfinite(value_of(Code::int2, 1, scale_of(Code::int2, {FLT_MAX}))));
    CHECK(same_bits(encode(Code::int2, Floats(300, 0.0F)).error, Floats(300, 0.0F)));
}

TEST_CASE("codes: MEANS by hand", "[oracle]") {
    // The mean of 1, 3 and 8, and of 7 and 2. Zeros count in neither, and are sent as the first.
    const Floats c = {0, 1, -0.0F, -7, 3, 8, -2};
    const Encoded encoded = encode(Code::means, c);
    CHECK(encoded.words == Words{0x40804090U, 0x48U}); // 4 and 4.5
    CHECK(same_bits(encoded.error, {-4, -3, -4, -2.5F, -1, 4, 2.5F}));
    CHECK(same_bits(decode(Code::means, encoded.words, 4, 0.5F), {2, 2, 2, -2.25F}));
    CHECK(encode(Code::means, Floats(40, -3.0F)).words == Words{0x00004040U, 0xffffffffU, 0xffU});
    CHECK(encode(Code::means, Floats(300, 0.0F)).words == Words(12, 0));
    CHECK(scale_of(Code::means, Floats(256, 0x1.018p0F)) == std::bit_cast<float>(0x3f810000U)); // to the nearest
    CHECK(scale_of(Code::means, Floats(256, FLT_MAX)) == 0x1.fep127F);                          // the largest bfloat16
    CHECK(scale_of(Code::means, Floats(256, 0x1p-126F)) == 0);                                  // its 256th is 0
    CHECK(same_bits(encode(Code::means, Floats(256, 0x1p-126F)).error, Floats(256, 0x1p-126F)));
}

TEST_CASE("codes: TERNARY by hand", "[oracle]") {
    // The mean square of the two nonzero elements is 25: 2 * 5 is more than 7, so the scale is 7. Half of it is 3.5.
    const Floats c = {0, 1, -0.0F, -7, 0};
    const Words words = words_of(Code::ternary, c);
    CHECK(words == Words{bits(7.0F), 0x03000000U, 0});
    const Encoded encoded = encode(Code::ternary, c);
    CHECK(encoded.words == words); // the filling is zeros
    CHECK(same_bits(encoded.error, {0, 1, -0.0F, 0, 0}));
    CHECK(same_bits(decode(Code::ternary, words, 5, 0.5F), {0, 0, 0, -3.5F, 0}));
    // The mean square of the eight nonzero elements is 36. Ties with half of 12 are zeros.
    const Encoded ties = encode(Code::ternary, {-2, -2, 0, 14, -2, -2, -2, 6, -6});
    CHECK(ties.words == Words{bits(12.0F), 0x01000000U, 0});
    CHECK(same_bits(ties.error, {-2, -2, 0, 2, -2, -2, -2, 6, -6}));
    CHECK(code_of(Code::ternary, std::nextafter(6.0F, 7.0F), 12) == 1);
    CHECK(code_of(Code::ternary, std::nextafter(-6.0F, -7.0F), 12) == 3);
    CHECK(words_of(Code::ternary, {}) == Words{0, 0, 0});
    CHECK(same_bits(encode(Code::ternary, Floats(300, 0.0F)).error, Floats(300, 0.0F)));
}

TEST_CASE("codes: TERNARY's places in a run's words", "[oracle]") {
    struct Place {
        std::size_t i, word;
        std::uint32_t lower_bit;
    };
    for (const Place place : {Place{0, 1, 0}, Place{1, 1, 8}, Place{7, 2, 24}, Place{8, 1, 2}, Place{16, 1, 4},
                              Place{31, 2, 30}, Place{32, 3, 0}, Place{39, 4, 24}}) {
        for (const float value : {0.3F, -0.3F}) {
            Floats c(40, 0.0F);
            c[place.i] = value; // its magnitude is the scale
            Words words = {bits(0.3F), 0, 0, 0, 0};
            words[place.word] = (value > 0 ? 1U : 3U) << place.lower_bit;
            const Encoded encoded = encode(Code::ternary, c);
            CHECK(encoded.words == words);
            CHECK(same_bits(encoded.error, Floats(40, 0.0F)));
            CHECK(same_bits(decode(Code::ternary, words, 40, 1.0F), c));
        }
    }
}

TEST_CASE("codes: TERNARY's scale by hand", "[oracle]") {
    const auto scale = [](const Floats& group) { return scale_of(Code::ternary, group); };
    // Equal magnitudes: the scale is that magnitude.
    CHECK(scale({3, -3, 0, 3}) == 3);
    CHECK(scale(Floats(256, -0.7F)) == 0.7F);
    // The last group is short, and the first one's elements don't count in it.
    Floats c(261, 5.0F);
    for (std::size_t i = 256; i < 261; ++i) c[i] = 0;
    c[256] = 1;
    c[260] = -7;
    Words words = {bits(5.0F), bits(7.0F)};
    for (int half_run = 0; half_run < 16; ++half_run) words.push_back(0x55555555U);
    words.push_back(0);
    words.push_back(0x00000003U);
    CHECK(encode(Code::ternary, c).words == words);

    // Near the largest float p is 2^-126. Elements too small for p are counted nevertheless.
    CHECK(scale({FLT_MAX}) == FLT_MAX);
    CHECK(scale(Floats(256, FLT_MAX)) == FLT_MAX);
    CHECK(scale({0x1p125F, -0x1.cp127F}) == 0x1.cp127F);
    Floats alone(16, 0.5F);
    alone[3] = -0x1p127F;
    CHECK(scale(alone) == 0x1p126F); // mean square 2^254 / 16
    // The smallest magnitude: half of it is 0.
    const Encoded least = encode(Code::ternary, {0x1p-126F, 0, -0x1p-126F});
    CHECK(least.words == Words{bits(0x1p-126F), 0x00030001U, 0});
    CHECK(same_bits(least.error, {0, 0, 0}));
    // 14 and eight times 1, each 2^-126: mean square 204 / 9, and 2^-126 is below half of twice its root.
    Floats small(9, 0x1p-126F);
    small[0] = -0x1.cp-123F;
    const Encoded of_small = encode(Code::ternary, small);
    CHECK(of_small.words[1] == 0x00000003U);
    CHECK(of_small.error[0] == minus(small[0], -scale(small)));
    CHECK(of_small.error[1] == 0x1p-126F);

    // The order of the sum. 1 absorbs any number of 2^-24 one by one, but not three at once.
    Floats one_lane(256, 0.0F), two_lanes(256, 0.0F), pairs(256, 0.0F);
    one_lane[0] = two_lanes[0] = pairs[0] = 1;
    one_lane[32] = one_lane[64] = one_lane[224] = 0x1p-12F;
    for (std::size_t i = 100; i < 112; ++i) one_lane[i] = two_lanes[i] = 0x1p-30F; // lost in any sum
    CHECK(scale(one_lane) == 0.5F);
    two_lanes[16] = two_lanes[48] = two_lanes[80] = 0x1p-12F;
    CHECK(scale(two_lanes) == std::nextafter(0.5F, 1.0F)); // 2 sqrt((1 + 2^-22) / 16)
    // Lanes 8 and 24 are added before 8 and 0.
    for (const std::size_t i : {4U, 8U, 20U, 24U}) pairs[i] = 0x1p-12F;
    for (std::size_t i = 100; i < 111; ++i) pairs[i] = 0x1p-30F;
    CHECK(scale(pairs) == std::nextafter(0.5F, 1.0F));
}

TEST_CASE("codes: TOPK of 8 bits by hand", "[oracle]") {
    // Two of 128 are kept. The scale is 1.
    Floats c(128, 60.0F);
    c[2] = -0.0F;
    c[5] = 127;
    c[100] = -62.5F; // to even
    const Encoded encoded = encode(Code::topk, c);
    CHECK(encoded.words == Words{bits(1.0F), 0x00064005U, 0x0000c27fU});
    CHECK(encoded.finite);
    Floats error = c;
    error[5] = 0;
    error[100] = -0.5F;
    CHECK(same_bits(encoded.error, error));
    Floats sent(128, 0.0F);
    sent[5] = 31.75F;
    sent[100] = -15.5F;
    CHECK(same_bits(decode(Code::topk, encoded.words, 128, 0.25F), sent));
    std::vector<bool> kept(128, false);
    kept[5] = kept[100] = true;
    CHECK(elements_sent(Code::topk, encoded.words, 128) == kept);
    // A kept element may have the code 0.
    c[100] = 0;
    for (float& x : c)
        if (x == 60) x = 0.25F;
    CHECK(encode(Code::topk, c).words == Words{bits(1.0F), 0x00005000U, 0x00007f00U});
    // Only zeros.
    CHECK(encode(Code::topk, Floats(128, -0.0F)).words == Words{0, 0x00001000U, 0});
    CHECK(same_bits(encode(Code::topk, Floats(128, -0.0F)).error, Floats(128, -0.0F)));
    CHECK(encode(Code::topk, {}).words.empty());
}

TEST_CASE("codes: TOPK of 2 bits by hand", "[oracle]") {
    // Four of 256 are kept, with the mean 3.
    Floats c(256, 0.5F);
    c[10] = 1;
    c[20] = -2;
    c[30] = 3;
    c[255] = 6;
    const Encoded encoded = encode(Code::topk, c, {64, 2});
    CHECK(encoded.words == Words{bits(3.0F), 0x1e01400aU, 0x0000ff0U, 0x5dU});
    Floats error = c, sent(256, 0.0F);
    error[10] = -2;
    error[20] = 1;
    error[30] = 0;
    error[255] = 3;
    CHECK(same_bits(encoded.error, error));
    sent[10] = sent[30] = sent[255] = 1.5F;
    sent[20] = -1.5F;
    CHECK(same_bits(decode(Code::topk, encoded.words, 256, 0.5F, {64, 2}), sent));
    CHECK(encode(Code::topk, Floats(256, 0.0F), {64, 2}).words == Words{0, 0x02001000U, 0x30U, 0});
}

TEST_CASE("codes: of equally large elements TOPK keeps the earlier", "[oracle]") {
    for (const unsigned b : {8U, 2U}) {
        const auto positions = [&](const Floats& c) { return encode(Code::topk, c, {64, b}).words[1]; };
        Floats c(128, -1.0F); // two are kept
        for (std::size_t i = 0; i < 128; i += 2) c[i] = 1;
        CHECK(positions(c) == 0x00001000U);
        c[7] = 2;
        CHECK(positions(c) == 0x00007000U);
        c[0] = c[1] = 0.5F;
        CHECK(positions(c) == 0x00007002U);
        c[127] = -3;
        CHECK(positions(c) == 0x0007f007U);
        c[126] = 3;
        CHECK(positions(c) == 0x0007f07eU);
        c[125] = -3;
        CHECK(positions(c) == 0x0007e07dU);
        // Subnormal numbers are zeros, and those of both signs are equal.
        Floats zeros(128, 0.0F);
        zeros[0] = -0.0F;
        zeros[3] = 0x1p-127F;
        CHECK(positions(zeros) == 0x00001000U);
        CHECK(encode(Code::topk, zeros, {64, b}).error[3] == 0x1p-127F); // it is copied
    }
}

TEST_CASE("codes: TOPK with fewer elements than it keeps that are not 0", "[oracle]") {
    // Four are kept: two of the zeros, the earliest. They don't count in the mean.
    Floats c(256, 0.0F);
    c[0] = -0.0F;
    c[100] = -4;
    c[200] = 8;
    const Encoded two = encode(Code::topk, c, {64, 2});
    CHECK(two.words == Words{bits(6.0F), 0x64001000U, 0xc80U, 0x70U});
    Floats error = c;
    error[100] = 2;
    error[200] = 2;
    CHECK(same_bits(two.error, error));
    c[200] = 127;
    const Encoded eight = encode(Code::topk, c);
    CHECK(eight.words == Words{bits(1.0F), 0x64001000U, 0xc80U, 0x7ffc0000U});
    error = Floats(256, 0.0F);
    error[0] = -0.0F;
    CHECK(same_bits(eight.error, error));
}

TEST_CASE("codes: TOPK keeps as large a part of a short block", "[oracle]") {
    struct Length {
        std::uint64_t count;
        TopK topk;
        std::uint64_t words;
    };
    for (const Length& length :
         {Length{0, {}, 0}, Length{1, {}, 3}, Length{64, {}, 3}, Length{65, {}, 3}, Length{128, {}, 3},
          Length{129, {}, 1 + 2 + 1}, Length{4096, {}, 1 + 24 + 16}, Length{4096, {64, 2}, 1 + 24 + 4},
          Length{4095, {}, 1 + 24 + 16}, Length{4032, {}, 1 + 24 + 16}, Length{4032 - 1, {63, 8}, 1 + 24 + 16},
          Length{4096 + 65, {}, 41 + 3}, Length{2 * 4096 + 320, {64, 2}, 2 * 29 + 1 + 2 + 1}, Length{4096, {1, 8}, 3},
          Length{4097, {1, 2}, 6}, Length{33, {4096, 8}, 1 + 13 + 9}, Length{33, {4096, 2}, 1 + 13 + 3},
          Length{40, {100, 2}, 3}, Length{4096, {4096, 8}, 1 + 1536 + 1024}}) {
        INFO(length.count << " elements, " << length.topk.kept << " of 4096, " << length.topk.bits << " bits");
        CHECK(message_words(Code::topk, length.count, length.topk) == length.words);
        CHECK(encode(Code::topk, Floats(length.count, 1.0F), length.topk).words.size() == length.words);
    }
    // 100 * 40 elements are less than 4096, and 100 * 41 are more.
    CHECK(encode(Code::topk, Floats(40, 1.0F), {100, 8}).words == Words{bits(divided(1.0F, 127.0F)), 0, 0x7fU});
    CHECK(encode(Code::topk, Floats(41, 1.0F), {100, 8}).words == Words{bits(divided(1.0F, 127.0F)), 0x1000U, 0x7f7fU});
    // Each block has its own scale and positions.
    for (const unsigned b : {8U, 2U}) {
        const Floats c = make_data(Kind::heavy_tailed, 4096 + 65, 1, 0, 0);
        const Encoded encoded = encode(Code::topk, c, {64, b});
        Words parts = encode(Code::topk, {c.begin(), c.begin() + 4096}, {64, b}).words;
        for (const std::uint32_t word : encode(Code::topk, {c.begin() + 4096, c.end()}, {64, b}).words)
            parts.push_back(word);
        CHECK(encoded.words == parts);
    }
}

TEST_CASE("codes: TOPK's positions and codes go on in the next word", "[oracle]") {
    const std::size_t positions[] = {0x123, 0x456, 0x789, 0xabc, 0xdef, 0xf01, 0xf23, 0xf45, 0xfff};
    const float values[] = {127, -127, 1, 2, 3, -1, -2, -3, 64};
    Floats c(4096, 0.0F);
    for (std::size_t j = 0; j < 9; ++j) c[positions[j]] = values[j];
    const Encoded eight = encode(Code::topk, c, {9, 8});
    CHECK(eight.words ==
          Words{bits(1.0F), 0x89456123U, 0x1defabc7U, 0xf45f23f0U, 0x00000fffU, 0x0201817fU, 0xfdfeff03U, 0x00000040U});
    CHECK(same_bits(eight.error, Floats(4096, 0.0F)));
    CHECK(same_bits(decode(Code::topk, eight.words, 4096, 1.0F, {9, 8}), c));
    Words two = encode(Code::topk, c, {9, 2}).words;
    REQUIRE(two.size() == 6);
    CHECK(Words(two.begin() + 1, two.end()) == Words{0x89456123U, 0x1defabc7U, 0xf45f23f0U, 0x00000fffU, 0x0001fd5dU});
    // Two whole words of codes, and twelve of positions.
    Floats all(32, 0.5F);
    all[15] = all[31] = -0.5F;
    two = encode(Code::topk, all, {4096, 2}).words;
    REQUIRE(two.size() == 15);
    CHECK(two[0] == bits(0.5F));
    CHECK(two[1] == 0x02001000U);
    CHECK(two[12] == 0x01f01e01U);
    CHECK(two[13] == 0xd5555555U);
    CHECK(two[14] == 0xd5555555U);
    CHECK(same_bits(decode(Code::topk, two, 32, 1.0F, {4096, 2}), all));
}

TEST_CASE("codes: TOPK's mean by hand", "[oracle]") {
    const auto scale = [](Floats c, std::uint64_t kept) {
        c.resize(4096, 0.0F);
        return std::bit_cast<float>(encode(Code::topk, c, {kept, 2}).words[0]);
    };
    // Added up in the order of positions: 2^24 absorbs three times 1.
    CHECK(scale({0x1p26F, -4, 4, 4}, 4) == 0x1p24F);
    CHECK(scale({4, 4, -4, 0x1p26F}, 4) == 0x1p24F + 4);
    // Each element is multiplied alone. So no sum is too large, but products may be too small.
    CHECK(scale(Floats(4, -FLT_MAX), 4) == FLT_MAX);
    CHECK(scale({-FLT_MAX, FLT_MAX, 0x1p126F, 0}, 4) < FLT_MAX);
    CHECK(scale({0x1p-126F}, 4) == 0x1p-126F);
    const Encoded tiny = encode(Code::topk, {0x1p-126F, -0x1p-126F}, {4096, 2});
    CHECK(tiny.words == Words{0, 0x1000U, 0xdU});
    CHECK(same_bits(tiny.error, {0x1p-126F, -0x1p-126F}));
    CHECK(same_bits(decode(Code::topk, tiny.words, 2, 1.0F, {4096, 2}), {0, -0.0F})); // s and -s
    CHECK(scale({0x1p-125F, 0x1p-126F}, 2) == 0x1p-126F);
    // With rounding, the mean of equal numbers may be larger than the numbers.
    float sum = 0;
    for (int i = 0; i < 11; ++i) sum = plus(sum, divided(1.0F, 11.0F));
    CHECK(sum > 1);
    CHECK(scale(Floats(11, 1.0F), 11) == 1);
    // 1/41 is rounded first, and 41 times that is below 1.
    Floats of_41(41, 0x1p-60F);
    of_41[0] = -41;
    CHECK(scale(of_41, 41) == std::nextafter(1.0F, 0.0F));
    // Zeros don't count.
    CHECK(scale({7}, 3) == 7);
}

TEST_CASE("codes: TOPK keeps the largest, and all else is error", "[oracle]") {
    for (const TopK topk : {TopK{64, 8}, TopK{64, 2}, TopK{1, 8}, TopK{1000, 2}, TopK{4096, 8}, TopK{4096, 2}}) {
        for (const Kind kind : {Kind::gaussian, Kind::heavy_tailed, Kind::zeros, Kind::tiny, Kind::huge}) {
            INFO(topk.kept << " of 4096, " << topk.bits << " bits, " << onebit_test::name_of(kind));
            const Floats c = make_data(kind, 5001, 2, 0, 0);
            const Encoded encoded = encode(Code::topk, c, topk);
            const Floats sent = decode(Code::topk, encoded.words, c.size(), 1.0F, topk);
            const std::vector<bool> kept = elements_sent(Code::topk, encoded.words, c.size(), topk);
            REQUIRE(encoded.finite);
            std::size_t wrong = 0;
            for (const Range& block : blocks_of({0, c.size()})) {
                std::uint64_t count = 0;
                float least = infinity, largest_left = 0;
                double largest = 0, sum = 0;
                for (std::uint64_t i = block.begin; i < block.end(); ++i) {
                    if (!kept[i]) {
                        largest_left = std::max(largest_left, std::fabs(c[i]));
                        if (bits(encoded.error[i]) != bits(c[i]) || bits(sent[i]) != 0) ++wrong;
                        continue;
                    }
                    ++count;
                    least = std::min(least, std::fabs(c[i]));
                    largest = std::max(largest, std::fabs(static_cast<double>(c[i])));
                    sum += std::fabs(static_cast<double>(c[i]));
                    if (bits(encoded.error[i]) != bits(minus(c[i], sent[i]))) ++wrong;
                }
                const double share = static_cast<double>(topk.kept * block.count) / 4096;
                CHECK(count == static_cast<std::uint64_t>(std::ceil(share)));
                CHECK(least >= largest_left);
                for (std::uint64_t i = block.begin; i < block.end(); ++i) {
                    if (!kept[i] || c[i] == 0) continue; // enough elements are not 0, or all are kept
                    const double lost = std::fabs(static_cast<double>(encoded.error[i]));
                    if (topk.bits == 8 && !(lost <= largest / 127 / 2 + 1e-6 * largest)) ++wrong;
                    if (topk.bits == 2 && (sent[i] > 0) != (c[i] > 0)) ++wrong;
                    if (topk.bits == 2 && topk.kept <= 1000 &&
                        std::fabs(sent[i]) != Approx(sum / static_cast<double>(count)))
                        ++wrong;
                }
            }
            CHECK(wrong == 0);
        }
    }
}

TEST_CASE("codes: TOPK at all magnitudes", "[oracle]") {
    for (const TopK topk : {TopK{64, 8}, TopK{64, 2}, TopK{4096, 8}, TopK{4096, 2}}) {
        for (std::uint64_t step = 0; step < 12; ++step) {
            INFO(topk.kept << " of 4096, " << topk.bits << " bits, step " << step);
            Floats c;
            for (const float x : onebit_test::make_magnitudes(1000, 1, 0, step)) c.push_back(plus(x, 0.0F));
            const Encoded encoded = encode(Code::topk, c, topk);
            CHECK(encoded.finite);
            CHECK(onebit_test::all_finite(decode(Code::topk, encoded.words, c.size(), 1.0F, topk)));
            CHECK(onebit_test::all_finite(encoded.error));
        }
    }
}

TEST_CASE("codes: a block of TOPK that is not finite is all error", "[oracle]") {
    for (const unsigned b : {8U, 2U}) {
        for (const float bad : {infinity, -infinity, not_a_number}) {
            Floats c(4096 + 64, 2.0F);
            c[5] = bad;
            c[6] = FLT_MAX;
            const Encoded encoded = encode(Code::topk, c, {64, b});
            CHECK(!encoded.finite);
            const std::uint64_t next = b == 8 ? 41 : 29;
            REQUIRE(encoded.words.size() == next + 3);
            CHECK(!std::isfinite(std::bit_cast<float>(encoded.words[0])));
            for (std::uint64_t w = 1; w < next; ++w) CHECK(encoded.words[w] == 0);
            Floats error = c;
            error[4096] = minus(2, times(b == 8 ? 127.0F : 1.0F, b == 8 ? divided(2, 127) : 2.0F));
            CHECK(same_bits(encoded.error, error));
            const Floats sent = decode(Code::topk, encoded.words, c.size(), 1.0F, {64, b});
            CHECK(std::isnan(sent[0]));
            CHECK(std::isnan(sent[4095]));
            CHECK(sent[4096] == Approx(2));
            CHECK(sent[4097] == 0);
        }
        CodedAllreduce reduce(100, 2, Code::topk, Op::average, {64, b});
        check_failed_call(reduce);
        FloatsPerRank inputs(2, Floats(100, 1.0F));
        inputs[1][50] = 3;
        reduce.step(inputs);
        CHECK(reduce.finite);
        CHECK(reduce.result[50] == Approx(1.5));
    }
}

TEST_CASE("codes: RANDOMK draws one element of each of so many parts", "[oracle]") {
    for (const TopK sparse : {TopK{64, 8}, TopK{64, 2}, TopK{1, 8}, TopK{100, 2}, TopK{4096, 8}}) {
        const Floats c = make_data(Kind::gaussian, 5001, 2, 0, 0);
        for (std::uint64_t call = 0; call < 20; ++call) {
            INFO(sparse.kept << " of 4096, " << sparse.bits << " bits, call " << call);
            const Encoded encoded = encode(Code::randomk, c, sparse, call);
            REQUIRE(encoded.words.size() == message_words(Code::randomk, c.size(), sparse));
            CHECK(encoded.words[1] == call);
            const std::vector<bool> kept = elements_sent(Code::randomk, encoded.words, c.size(), sparse);
            const Floats sent = decode(Code::randomk, encoded.words, c.size(), 1.0F, sparse);
            for (std::uint64_t i = 0; i < c.size(); ++i) {
                const float error = kept[i] ? minus(c[i], sent[i]) : c[i];
                if (bits(encoded.error[i]) != bits(error)) FAIL("element " << i);
            }
            for (const Range& block : blocks_of({0, c.size()})) {
                const std::uint64_t r = (sparse.kept * block.count + 4095) / 4096;
                for (std::uint64_t j = 0; j < r; ++j) {
                    const auto from = static_cast<std::ptrdiff_t>(block.begin + j * block.count / r);
                    const auto to = static_cast<std::ptrdiff_t>(block.begin + (j + 1) * block.count / r);
                    if (std::count(kept.begin() + from, kept.begin() + to, true) != 1) FAIL("part " << j);
                }
            }
        }
    }
}

TEST_CASE("codes: RANDOMK's words by hand", "[oracle]") {
    // Call 0, block 0: h = mix(mix(g)); the part is the whole block of one element.
    CHECK(encode(Code::randomk, {127.0F}).words == Words{bits(1.0F), 0, 0x7fU});
    CHECK(encode(Code::randomk, {-4.0F}, {64, 2}, 0x123456789U).words == Words{bits(4.0F), 0x23456789U, 3});
    // All elements are kept, and coded by the largest kept element.
    Floats all(32, 1.0F);
    all[31] = -127;
    const Encoded encoded = encode(Code::randomk, all, {4096, 8}, 7);
    REQUIRE(encoded.words.size() == 2 + 8);
    CHECK(encoded.words[0] == bits(1.0F));
    CHECK(encoded.words[1] == 7);
    CHECK(encoded.words[2] == 0x01010101U);
    CHECK(encoded.words[9] == 0x81010101U);
    CHECK(same_bits(encoded.error, Floats(32, 0.0F)));
    // The scale is that of the kept elements.
    Floats few(64, 3.0F);
    const std::vector<bool> kept = elements_sent(Code::randomk, encode(Code::randomk, few).words, few.size());
    for (std::size_t i = 0; i < few.size(); ++i)
        if (!kept[i]) few[i] = 1000;
    CHECK(encode(Code::randomk, few).words[0] == bits(divided(3.0F, 127.0F)));
}

TEST_CASE("codes: RANDOMK draws each element equally often", "[oracle]") {
    constexpr std::uint64_t calls = 10000;
    for (const std::uint64_t count : {4096U, 1000U}) {
        const Floats c(count, 1.0F);
        std::vector<double> times_drawn(count, 0.0);
        for (std::uint64_t call = 0; call < calls; ++call) {
            const Words words = encode(Code::randomk, c, {}, call).words;
            const std::vector<bool> kept = elements_sent(Code::randomk, words, count);
            for (std::uint64_t i = 0; i < count; ++i) times_drawn[i] += kept[i] ? 1 : 0;
        }
        const std::uint64_t r = (64 * count + 4095) / 4096;
        double chi_square = 0;
        std::size_t beyond = 0; // more than four sigma; some parts are one element longer
        for (std::uint64_t i = 0; i < count; ++i) {
            std::uint64_t j = i * r / count;
            while ((j + 1) * count / r <= i) ++j;
            const double p = 1.0 / static_cast<double>((j + 1) * count / r - j * count / r);
            const double deviation = times_drawn[i] - static_cast<double>(calls) * p;
            const double variance = static_cast<double>(calls) * p * (1 - p);
            chi_square += deviation * deviation / variance;
            if (std::fabs(deviation) > 4 * std::sqrt(variance)) ++beyond;
        }
        INFO(count << " elements, chi square over their number " << chi_square / static_cast<double>(count));
        CHECK(beyond <= 2); // 0.3 of 4096 are expected
        CHECK(chi_square / static_cast<double>(count) < 1.2);
        CHECK(chi_square / static_cast<double>(count) > 0.8);
    }
}

TEST_CASE("codes: a server of TOPK adds up what was kept", "[oracle]") {
    // One of 32 elements is kept, and sent as it is. Element 0 by two ranks whose sum is tiny: -0. Rank 2 has another.
    CodedAllreduce reduce(32, 3, Code::topk, Op::sum, {64, 2});
    FloatsPerRank inputs(3, Floats(32, 0.0F));
    inputs[0][0] = 0x1.8p-126F;
    inputs[1][0] = -0x1.cp-126F;
    inputs[2][1] = 5;
    inputs[2][2] = -4;
    reduce.server_errors[0][0] = -0.0F;
    reduce.server_errors[0][3] = -0.0F;
    reduce.server_errors[0][4] = -2;
    reduce.step(inputs);
    CHECK(reduce.worker_messages[2][0] == Words{bits(5.0F), 1, 1});
    CHECK(same_bits(reduce.worker_errors[1], Floats(32, 0.0F)));
    CHECK(reduce.worker_errors[2][2] == -4);
    CHECK(bits(reduce.server_errors[0][0]) == bits(-0.0F)); // -0 + -0, and nothing of rank 2
    CHECK(bits(reduce.server_errors[0][3]) == 0);           // 0 + -0
    CHECK(reduce.server_errors[0][4] == -2);
    Floats result(32, 0.0F);
    result[1] = 5;
    CHECK(same_bits(reduce.result, result));
    // Elements that were not sent are sent later.
    reduce.step(FloatsPerRank(3, Floats(32, 0.0F)));
    CHECK(reduce.worker_errors[2][2] == 0);
    CHECK(reduce.result[2] == -4);
    reduce.step(FloatsPerRank(3, Floats(32, 0.0F)));
    CHECK(reduce.result[4] == -2);
    CHECK(bits(reduce.result[2]) == 0);

    // An average, of 8 bits: 127 and -254 are kept, of other elements.
    CodedAllreduce average(32, 2, Code::topk);
    inputs = FloatsPerRank(2, Floats(32, 1.0F));
    inputs[0][30] = 127;
    inputs[1][31] = -254;
    average.step(inputs);
    CHECK(average.worker_messages[0][0] == Words{bits(1.0F), 30, 0x7fU});
    CHECK(average.worker_messages[1][0] == Words{bits(2.0F), 31, 0x81U});
    CHECK(average.server_messages[0] == Words{bits(1.0F), 31, 0x81U});
    CHECK(average.server_errors[0][30] == 63.5F);
    CHECK(average.worker_errors[0][31] == 1);
    CHECK(average.result[31] == -127);
    CHECK(average.result[30] == 0);
}

TEST_CASE("codes: groups count from their block's beginning", "[oracle]") {
    for (const Code code : grouped_codes) {
        const Floats c = make_data(Kind::heavy_tailed, 4096 + 300, 1, 0, 0);
        const Encoded encoded = encode(code, c);
        const std::uint64_t block = 16 + 128 * bits_of(code);
        REQUIRE(encoded.words.size() == block + 2 + 10 * bits_of(code));
        CHECK(message_words(code, c.size()) == encoded.words.size());
        CHECK(message_words(code, 0) == 0);
        for (std::uint64_t i : {0U, 255U, 256U, 4095U, 4096U, 4351U, 4352U, 4395U}) {
            const std::uint64_t word = i < 4096 ? i / 256 : block + (i - 4096) / 256;
            CHECK(encoded.words[word] == bits(scale_of(code, group_of(c, i))));
        }
        // A message consists of its blocks.
        const Encoded last = encode(code, {c.begin() + 4096, c.end()});
        CHECK(Words(encoded.words.begin() + static_cast<std::ptrdiff_t>(block), encoded.words.end()) == last.words);
    }
}

TEST_CASE("codes: an encoder loses half a step, 2^-8 of a value, or what is left to the nearest level", "[oracle]") {
    for (const Code code : grouped_codes) {
        for (const Kind kind : {Kind::gaussian, Kind::heavy_tailed, Kind::zeros, Kind::tiny, Kind::huge}) {
            const Floats c = make_data(kind, 5001, 2, 0, 0);
            const Encoded encoded = encode(code, c);
            const Floats sent = decode(code, encoded.words, c.size(), 1.0F);
            REQUIRE(encoded.finite);
            std::size_t wrong = 0, unequal = 0;
            for (std::uint64_t i = 0; i < c.size(); ++i) {
                const double lost = std::fabs(static_cast<double>(c[i]) - static_cast<double>(sent[i]));
                if (!(lost <= allowed(code, static_cast<double>(c[i]), group_of(c, i)))) ++wrong;
                if (bits(encoded.error[i]) != bits(minus(c[i], sent[i]))) ++unequal;
            }
            INFO("code " << static_cast<int>(code) << " " << onebit_test::name_of(kind));
            CHECK(wrong == 0);
            CHECK(unequal == 0);
        }
    }
}

TEST_CASE("codes: the largest floats stand for finite ones, and tiny ones for little", "[oracle]") {
    for (const Code code : grouped_codes) {
        for (std::uint64_t step = 0; step < 12; ++step) {
            const Floats c = onebit_test::make_magnitudes(1000, 1, 0, step);
            Floats flushed;
            for (const float x : c) flushed.push_back(plus(x, 0.0F));
            const Encoded encoded = encode(code, flushed);
            const Floats sent = decode(code, encoded.words, c.size(), 1.0F);
            CHECK(encoded.finite);
            CHECK(onebit_test::all_finite(sent));
            CHECK(onebit_test::all_finite(encoded.error));
            std::size_t wrong = 0;
            for (std::uint64_t i = 0; i < c.size(); ++i) {
                const double lost = std::fabs(static_cast<double>(flushed[i]) - static_cast<double>(sent[i]));
                const double most = allowed(code, static_cast<double>(flushed[i]), group_of(flushed, i));
                if (!(lost <= most + 0x1p-118)) ++wrong;
            }
            INFO("code " << static_cast<int>(code) << " step " << step);
            CHECK(wrong == 0);
        }
    }
    for (const Code code : {Code::int8, Code::int4}) {
        const float s = scale_of(code, {FLT_MAX}), most = code == Code::int8 ? 127.0F : 7.0F;
        CHECK(std::isfinite(times(s, most)));
        CHECK(s >= std::nextafter(divided(FLT_MAX, most), 0.0F));
    }
}

TEST_CASE("codes: a group that is not finite is all error", "[oracle]") {
    for (const Code code : grouped_codes) {
        for (const float bad : {infinity, not_a_number}) {
            Floats c(300, 2.0F);
            c[5] = bad;
            const Encoded encoded = encode(code, c);
            CHECK(!encoded.finite);
            CHECK(!std::isfinite(std::bit_cast<float>(encoded.words[0])));
            CHECK(encoded.words[1] == bits(scale_of(code, Floats(44, 2.0F))));
            CHECK(encoded.words[2] == 0);
            CHECK(encoded.error[0] == 2);
            CHECK(encoded.error[299] == (code == Code::int2 ? 0x1p-23F : 0)); // INT2 rounds 2/3 down
        }
        CodedAllreduce reduce(100, 2, code);
        check_failed_call(reduce);
        FloatsPerRank inputs(2, Floats(100, 1.0F));
        inputs[1][50] = 1;
        reduce.step(inputs);
        CHECK(reduce.finite);
        CHECK(reduce.result[50] == Approx(1));
    }
}

TEST_CASE("codes: two ranks by hand", "[oracle]") {
    // Chunks of 32 elements and of one. All scales are powers of two.
    Floats a(33, 127.0F), b(33, -127.0F * 2);
    a[1] = 2.75F; // sent as 3
    b[1] = 3;     // 1.5, sent as 2: 4
    CodedAllreduce reduce(33, 2, Code::int8);
    reduce.step({a, b});
    CHECK(reduce.worker_errors[0][1] == -0.25F);
    CHECK(reduce.worker_errors[1][1] == -1);
    CHECK(reduce.result[0] == -63.5F);
    // The server has 3.5 with scale 0.5.
    CHECK(reduce.result[1] == 3.5F);
    CHECK(reduce.server_errors[0][1] == 0);
    CHECK(reduce.result[32] == -63.5F);
    CHECK(reduce.worker_messages[1][0][0] == bits(2.0F));
    CHECK(reduce.server_messages[0][0] == bits(0.5F));
    CHECK(reduce.server_messages[1][1] == 0x81U);

    CodedAllreduce sum(33, 2, Code::int8, Op::sum);
    sum.step({a, b});
    CHECK(sum.result[1] == 7);
    CHECK(sum.result[32] == -127);
}

TEST_CASE("codes: outside the mask all is zero and not counted", "[oracle]") {
    for (const Code code : all_codes) {
        CodedAllreduce reduce(70, 2, code);
        const FloatsPerRank inputs = {make_data(Kind::gaussian, 70, 1, 0, 0), make_data(Kind::gaussian, 70, 1, 1, 0)};
        reduce.step(inputs);
        std::vector<bool> mask(70, true);
        mask[3] = mask[69] = false;
        reduce.set_mask(mask);
        CHECK(reduce.worker_errors[1][69] == 0);
        CHECK(reduce.server_errors[0][3] == 0);
        CHECK(reduce.worker_errors[0][4] != 0);
        FloatsPerRank large = inputs;
        large[0][3] = 1000;
        const Floats result = reduce.step(large);
        CHECK(bits(result[3]) == 0);
        CHECK(bits(result[69]) == 0);
        CHECK(bits(reduce.worker_errors[0][3]) == 0);
        CHECK(std::bit_cast<float>(reduce.worker_messages[0][0][0]) < 10);
        // With magnitudes so small that only the first level of FP4 is left.
        reduce.reset();
        reduce.step(FloatsPerRank(2, Floats(70, 0x1p-126F)));
        CHECK(bits(reduce.result[3]) == 0);
        CHECK(bits(reduce.worker_errors[0][3]) == 0);
        CHECK(bits(reduce.server_errors[0][3]) == 0);
    }
}

TEST_CASE("codes: error feedback loses nothing in 200 steps", "[oracle]") {
    for (const Code code : all_codes) {
        check_conservation(code, Op::average, Kind::gaussian, 1);
        check_conservation(code, Op::average, Kind::heavy_tailed, 3);
        check_conservation(code, Op::sum, Kind::zeros, 2);
    }
    for (const TopK topk : {TopK{64, 2}, TopK{1024, 2}, TopK{1, 8}, TopK{4096, 8}}) {
        check_conservation(Code::topk, Op::average, Kind::gaussian, 1, topk);
        check_conservation(Code::topk, Op::average, Kind::heavy_tailed, 3, topk);
        check_conservation(Code::topk, Op::sum, Kind::zeros, 2, topk);
    }
}

TEST_CASE("codes: two levels average inside nodes", "[oracle]") {
    constexpr TopK topk{300, 2}; // not the defaults
    for (const Code code : all_codes) {
        for (const Op op : {Op::average, Op::sum}) {
            CodedTwoLevel reduce(1000, 2, 3, code, op, topk);
            std::vector<CodedAllreduce> shards;
            const std::vector<Range> ranges = partition(1000, 3);
            for (const Range& shard : ranges) shards.emplace_back(shard.count, 2, code, op, topk);
            for (std::uint64_t step = 0; step < 3; ++step) {
                const FloatsPerRank inputs = inputs_of(Kind::gaussian, 1000, 6, step);
                FloatsPerRank nodes(2, Floats(1000));
                for (std::size_t i = 0; i < 1000; ++i) {
                    for (std::size_t node = 0; node < 2; ++node) {
                        nodes[node][i] = (inputs[3 * node][i] + inputs[3 * node + 1][i]) + inputs[3 * node + 2][i];
                        if (op == Op::average) nodes[node][i] *= 1.0F / 3.0F;
                    }
                }
                const Floats result = reduce.step(inputs);
                for (std::size_t l = 0; l < 3; ++l) {
                    const auto begin = static_cast<std::ptrdiff_t>(ranges[l].begin);
                    const auto end = static_cast<std::ptrdiff_t>(ranges[l].end());
                    FloatsPerRank parts;
                    for (const Floats& node : nodes) parts.emplace_back(node.begin() + begin, node.begin() + end);
                    CHECK(same_bits(shards[l].step(parts), {result.begin() + begin, result.begin() + end}));
                    const Floats worker = reduce.worker_error(static_cast<int>(l) + 3);
                    CHECK(same_bits(shards[l].worker_errors[1], {worker.begin() + begin, worker.begin() + end}));
                    CHECK(same_bits(shards[l].server_errors[0], reduce.server_error(static_cast<int>(l))));
                    CHECK(reduce.served(static_cast<int>(l) + 3).begin ==
                          ranges[l].begin + shards[l].chunks()[1].begin);
                }
            }
        }
    }
    // A sum overflows, but its average doesn't.
    CHECK(exact({{FLT_MAX}, {FLT_MAX}}, Op::average)[0] == FLT_MAX);
    CHECK(exact({{FLT_MAX}, {FLT_MAX}, {-FLT_MAX}}, Op::average)[0] == Approx(FLT_MAX / 3));
    CHECK(std::isinf(exact({{FLT_MAX}, {FLT_MAX}}, Op::sum)[0]));
}
