// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernels of the codes of few elements: every instruction set that this machine has against the scalar reference,
// the same bits.

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "compress/sparse/kernels.hpp"
#include "compress/sparse/topk.hpp"
#include "core/aligned_buffer.hpp"
#include "numeric/awkward_values.hpp"
#include "support/catch2.hpp"

namespace onebit {
namespace {

using Words = std::vector<std::uint32_t>;

/// Calls body(kernels, reference, count) for every instruction set. Counts beyond a block's are the test's own.
template <typename Body>
void for_each_case(const Body& body) {
    REQUIRE(available_sparse_kernels().size() >= 2); // else nothing would be compared
    for (const SparseKernels* kernels : available_sparse_kernels()) {
        for (const std::size_t count : kCounts) {
            CAPTURE(kernels->name, count);
            body(*kernels, reference_sparse_kernels(), count);
        }
    }
}

TEST_CASE("few elements: every instruction set corrects to the reference's bits", "[kernels][sparse]") {
    for_each_case([](const SparseKernels& kernels, const SparseKernels& reference, std::size_t count) {
        const std::vector<float> values = awkward_values(count + 1, 3); // + 1: no vector's alignment
        const std::vector<float> error = awkward_values(count, 4);
        const Words mask = random_words(count, 5);
        for (const std::uint32_t* const valid : {static_cast<const std::uint32_t*>(nullptr), mask.data()}) {
            const auto corrected_by = [&](const SparseKernels& by, bool in_place) {
                AlignedBuffer<float> before(count + 64), aside(count + 64);
                std::fill_n(before.data(), count + 64, 77.0F);
                std::fill_n(aside.data(), count + 64, 77.0F);
                std::copy(error.begin(), error.end(), before.data());
                AlignedBuffer<float>& after = in_place ? before : aside;
                by.correct(values.data() + 1, before.data(), after.data(), valid, count);
                return std::vector<float>(after.data(), after.data() + count + 64);
            };
            const std::vector<float> expected = corrected_by(reference, true);
            for (const bool in_place : {false, true}) {
                const std::vector<float> actual = corrected_by(kernels, in_place);
                CHECK(std::memcmp(actual.data(), expected.data(), expected.size() * sizeof(float)) == 0);
            }
        }
    });
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::uint32_t bits_of(float value) {
    return std::bit_cast<std::uint32_t>(value);
}

TEST_CASE("few elements: every instruction set finds the reference's largest, the k-th, and those that reach a bound",
          "[kernels][sparse]") {
    for_each_case([](const SparseKernels& kernels, const SparseKernels& reference, std::size_t count) {
        for (const float spoiler : {1.0F, -std::numeric_limits<float>::infinity(),
                                    -std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::max()}) {
            std::vector<float> values = awkward_values(count, 9);
            values[count / 2] = spoiler;
            const std::size_t runs = ceil_divide(count, kRunElements);
            std::vector<float> of_runs(runs + 1, 77.0F), expected_of_runs(runs + 1, 77.0F);
            const float largest = reference.find_largest(values.data(), count, expected_of_runs.data());
            CHECK(bits_of(kernels.find_largest(values.data(), count, of_runs.data())) == bits_of(largest));
            CHECK(same_bits(of_runs, expected_of_runs));
            CHECK(bits_of(of_runs[count / 2 / kRunElements]) >= (bits_of(spoiler) & 0x7fffffffU));

            std::vector<float> sorted = values;
            for (float& value : sorted) value = std::bit_cast<float>(bits_of(value) & 0x7fffffffU);
            std::sort(sorted.begin(), sorted.end(), [](float a, float b) { return bits_of(a) > bits_of(b); });
            for (const std::size_t k : {std::size_t{1}, ceil_divide(count, std::size_t{3}), count}) {
                const float kth = sorted[k - 1];
                CHECK(bits_of(reference.find_kth(values.data(), count, k)) == bits_of(kth));
                CHECK(bits_of(kernels.find_kth(values.data(), count, k)) == bits_of(kth));
                Positions expected, positions;
                const std::size_t found = reference.find_at_least(values.data(), count, of_runs.data(), kth, &expected);
                CHECK(found >= k);
                CHECK(kernels.find_at_least(values.data(), count, of_runs.data(), kth, &positions) == found);
                CHECK(std::equal(expected.at, expected.at + std::min(found, Positions::kMost), positions.at));
            }
        }
    });
}

TEST_CASE("few elements: entries of any length lie side by side", "[sparse]") {
    std::mt19937 random(11);
    for (const unsigned bits : {2U, 8U, kPositionBits}) {
        for (const std::size_t entries : {1, 2, 3, 8, 64, 127, 128}) {
            Words words(entry_words(bits, entries) + 1);
            words.back() = 0xdeadbeef;
            Words values(entries);
            for (std::size_t j = 0; j < entries; ++j) {
                values[j] = static_cast<std::uint32_t>(random()) & ((1U << bits) - 1);
                write_entry(words.data(), bits, j, values[j]);
            }
            CAPTURE(bits, entries);
            CHECK(words.back() == 0xdeadbeef);
            for (std::size_t j = 0; j < entries; ++j) CHECK(read_entry(words.data(), bits, j) == values[j]);
        }
    }
}

} // namespace
} // namespace onebit
