// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Every kernel of every instruction set that this machine has against the scalar reference: the same bits.

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "compress/sign/kernels.hpp"
#include "core/aligned_buffer.hpp"
#include "core/partition.hpp"
#include "numeric/awkward_values.hpp"
#include "support/catch2.hpp"

namespace onebit {
namespace {

constexpr onebit_scale_t kScales[] = {ONEBIT_SCALE_L1, ONEBIT_SCALE_L2};

/// A kernel's output; guards detect writes behind the end.
struct Outcome {
    explicit Outcome(const std::vector<float>& start)
        : corrected(start.size() + 64), bits(start.size() / 32 + 3, 0xdeadbeef) {
        std::copy(start.begin(), start.end(), corrected.data());
        std::fill(corrected.data() + start.size(), corrected.data() + corrected.size(), 77.0F);
    }
    bool operator==(const Outcome& other) const {
        return std::memcmp(&sum, &other.sum, sizeof(sum)) == 0 && bits == other.bits &&
               std::memcmp(corrected.data(), other.corrected.data(), corrected.bytes()) == 0;
    }
    float sum = 0;
    AlignedBuffer<float> corrected;
    std::vector<std::uint32_t> bits;
};

/// Calls body(kernels, count, scale, mask, description) for every case.
template <typename Body>
void for_each_case(const Body& body) {
    REQUIRE(available_sign_kernels().size() >= 2); // else nothing would be compared
    for (const SignKernels* kernels : available_sign_kernels()) {
        for (const std::size_t count : kCounts) {
            for (const onebit_scale_t scale : kScales) {
                for (const bool masked : {false, true}) {
                    const auto mask = random_words(count, 5);
                    CAPTURE(kernels->name, count, scale, masked);
                    body(*kernels, count, scale, masked ? mask.data() : nullptr);
                }
            }
        }
    }
}

TEST_CASE("encode gives the reference's bits on every instruction set, from one error buffer to another too",
          "[kernels]") {
    for_each_case([](const SignKernels& kernels, std::size_t count, onebit_scale_t scale, const std::uint32_t* mask) {
        std::vector<float> shifted = awkward_values(count + 1, 1); // + 1: a float's own alignment, no vector's
        const auto start = awkward_values(count, 2);
        Outcome expected(start);
        Outcome actual(start);
        for (int step = 0; step < 3; ++step) {
            const float old_scale = static_cast<float>(step) * 0.3F;
            std::vector<Outcome> asides;
            for (const Stores stores : kAllStores) {
                Outcome& aside = asides.emplace_back(std::vector<float>(count, 5.0F)); // must not matter
                aside.sum = kernels.encode(shifted.data() + 1, actual.corrected.data(), old_scale,
                                           aside.corrected.data(), stores, mask, count, scale, aside.bits.data());
                order_stores(stores);
            }
            expected.sum = reference_sign_kernels().encode(shifted.data() + 1, expected.corrected.data(), old_scale,
                                                           expected.corrected.data(), Stores::kCached, mask, count,
                                                           scale, expected.bits.data());
            actual.sum = kernels.encode(shifted.data() + 1, actual.corrected.data(), old_scale, actual.corrected.data(),
                                        Stores::kPastCaches, mask, count, scale, actual.bits.data());
            CHECK(actual == expected);
            for (const Outcome& aside : asides) CHECK(aside == expected);
        }
    });
}

TEST_CASE(
    "blend_encode gives the reference's bits on every instruction set, in place and into another error buffer too",
    "[kernels]") {
    const bool weighted = GENERATE(false, true);
    for_each_case([=](const SignKernels& kernels, std::size_t count, onebit_scale_t scale, const std::uint32_t* mask) {
        const std::vector<float> inputs = awkward_values(count + 1, 6);
        const auto start = awkward_values(count, 7);
        const auto last = random_words(count, 8);
        const std::vector<float> weights = awkward_values(count + 1, 9);
        const Blend blend = {0.9F, 0.1F, 0.37F, weighted ? weights.data() + 1 : nullptr, 2.5F};
        for (const bool in_place : {false, true}) {
            std::vector<Outcome> asides;
            Outcome expected(start);
            Outcome actual(start);
            for (const Stores stores : kAllStores) {
                Outcome aside(std::vector<float>(count, 5.0F));
                if (in_place) std::copy(last.begin(), last.end(), aside.bits.begin());
                aside.sum = kernels.blend_encode(inputs.data() + 1, blend, in_place ? aside.bits.data() : last.data(),
                                                 0.8F, expected.corrected.data(), 0.3F, aside.corrected.data(), stores,
                                                 mask, count, scale, aside.bits.data());
                order_stores(stores);
                asides.push_back(std::move(aside));
            }
            for (Outcome* outcome : {&expected, &actual}) {
                if (in_place) std::copy(last.begin(), last.end(), outcome->bits.begin());
                const std::uint32_t* const from = in_place ? outcome->bits.data() : last.data();
                outcome->sum = (outcome == &expected ? reference_sign_kernels() : kernels)
                                   .blend_encode(inputs.data() + 1, blend, from, 0.8F, outcome->corrected.data(), 0.3F,
                                                 outcome->corrected.data(), Stores::kCached, mask, count, scale,
                                                 outcome->bits.data());
            }
            CHECK(actual == expected);
            for (const Outcome& aside : asides) CHECK(aside == expected);
        }
    });
}

TEST_CASE("mean_encode gives the reference's bits on every instruction set, into another error buffer too",
          "[kernels]") {
    for (const std::size_t part_count : {1, 2, 3, 8}) {
        for_each_case([&](const SignKernels& kernels, std::size_t count, onebit_scale_t scale,
                          const std::uint32_t* mask) {
            std::vector<std::vector<float>> values;
            std::vector<const float*> parts; // each with another alignment
            for (std::size_t p = 0; p < part_count; ++p) {
                values.push_back(awkward_values(count + p, 20 + static_cast<unsigned>(p)));
                parts.push_back(values.back().data() + p);
            }
            const float share = 1.0F / static_cast<float>(part_count);
            std::vector<float> mean(count);
            for (std::size_t i = 0; i < count; ++i) {
                float total = parts[0][i];
                for (std::size_t p = 1; p < part_count; ++p) total += parts[p][i];
                mean[i] = total * share;
            }
            Outcome expected(awkward_values(count, 3)); // encode's output for the mean
            expected.sum =
                reference_sign_kernels().encode(mean.data(), expected.corrected.data(), 0.4F, expected.corrected.data(),
                                                Stores::kCached, mask, count, scale, expected.bits.data());
            Outcome actual(awkward_values(count, 3));
            for (const Stores stores : kAllStores) {
                Outcome aside(std::vector<float>(count, 5.0F));
                aside.sum = kernels.mean_encode(parts.data(), part_count, share, actual.corrected.data(), 0.4F,
                                                aside.corrected.data(), stores, mask, count, scale, aside.bits.data());
                order_stores(stores);
                CHECK(aside == expected);
            }
            actual.sum =
                kernels.mean_encode(parts.data(), part_count, share, actual.corrected.data(), 0.4F,
                                    actual.corrected.data(), Stores::kCached, mask, count, scale, actual.bits.data());
            CHECK(actual == expected);
        });
    }
}

constexpr std::size_t kFirstWord = 3; ///< of the signs; the scale is word 0

std::vector<std::vector<std::uint32_t>> messages_of(std::size_t ranks, std::size_t count) {
    std::vector<std::vector<std::uint32_t>> messages;
    for (std::size_t r = 0; r < ranks; ++r) {
        messages.push_back(random_words(count + kFirstWord * 32, 10 + static_cast<unsigned>(r)));
        const float rank_scale = 0.1F + static_cast<float>(r);
        std::memcpy(&messages.back()[0], &rank_scale, sizeof(rank_scale));
    }
    return messages;
}

TEST_CASE("average_encode gives the reference's bits on every instruction set, into another error buffer too",
          "[kernels]") {
    for (const std::size_t ranks : {1, 2, 3, 4, 7}) {
        for_each_case([&](const SignKernels& kernels, std::size_t count, onebit_scale_t scale,
                          const std::uint32_t* mask) {
            const auto messages = messages_of(ranks, count);
            std::vector<const std::uint32_t*> pointers;
            for (const auto& message : messages) pointers.push_back(message.data());
            const float share = 1.0F / static_cast<float>(ranks);
            Outcome expected(awkward_values(count, 3));
            Outcome actual(awkward_values(count, 3));
            expected.sum = reference_sign_kernels().average_encode(
                pointers.data(), ranks, kFirstWord, 0, share, expected.corrected.data(), 0.4F,
                expected.corrected.data(), Stores::kCached, mask, count, scale, expected.bits.data());
            for (const Stores stores : kAllStores) {
                Outcome aside(std::vector<float>(count, 5.0F));
                aside.sum =
                    kernels.average_encode(pointers.data(), ranks, kFirstWord, 0, share, actual.corrected.data(), 0.4F,
                                           aside.corrected.data(), stores, mask, count, scale, aside.bits.data());
                order_stores(stores);
                CHECK(aside == expected);
            }
            actual.sum = kernels.average_encode(pointers.data(), ranks, kFirstWord, 0, share, actual.corrected.data(),
                                                0.4F, actual.corrected.data(), Stores::kCached, mask, count, scale,
                                                actual.bits.data());
            CHECK(actual == expected);
        });
    }
}

TEST_CASE("average gives the reference's bits on every instruction set, and those that average_encode corrects",
          "[kernels]") {
    const auto stores = GENERATE(Stores::kCached, Stores::kPastCaches);
    for (const std::size_t ranks : {1, 2, 3, 70}) { // the last ones' magnitudes are computed again
        for_each_case([&](const SignKernels& kernels, std::size_t count, onebit_scale_t, const std::uint32_t* mask) {
            if (mask != nullptr) return; // it has none
            const auto messages = messages_of(ranks, count);
            std::vector<const std::uint32_t*> pointers;
            for (const auto& message : messages) pointers.push_back(message.data());
            const float share = 1.0F / static_cast<float>(ranks);
            Outcome encoded(std::vector<float>(count, 0.0F)); // with no error to correct by
            (void)reference_sign_kernels().average_encode(
                pointers.data(), ranks, kFirstWord, 0, share, encoded.corrected.data(), 0.0F, encoded.corrected.data(),
                Stores::kCached, nullptr, count, ONEBIT_SCALE_L2, encoded.bits.data());
            for (const std::size_t misalignment : {0, 1, 16}) {
                AlignedBuffer<float> values(count + 64);
                kernels.average(pointers.data(), ranks, kFirstWord, 0, share, count, stores,
                                values.data() + misalignment);
                order_stores(stores);
                CHECK(std::memcmp(values.data() + misalignment, encoded.corrected.data(), count * sizeof(float)) == 0);
                CHECK(std::all_of(values.data() + misalignment + count, values.data() + values.size(),
                                  [](float value) { return value == 0; }));
            }
        });
    }
}

TEST_CASE("decode gives the reference's bits on every instruction set", "[kernels]") {
    const auto stores = GENERATE(Stores::kCached, Stores::kPastCaches);
    for (const std::size_t misalignment : {0, 1, 16}) {
        for_each_case([&](const SignKernels& kernels, std::size_t count, onebit_scale_t, const std::uint32_t* mask) {
            const auto bits = random_words(count, 4);
            AlignedBuffer<float> expected(count + 64);
            AlignedBuffer<float> actual(count + 64);
            reference_sign_kernels().decode(bits.data(), 1.25F, mask, count, stores, expected.data() + misalignment);
            kernels.decode(bits.data(), 1.25F, mask, count, stores, actual.data() + misalignment);
            order_stores(stores);
            CHECK(std::memcmp(actual.data(), expected.data(), actual.bytes()) == 0);
        });
    }
}

TEST_CASE("every kernel of the list is there for every instruction set", "[kernels]") {
    for (const SignKernels* kernels : available_sign_kernels()) {
        CAPTURE(kernels->name);
#define ONEBIT_SIGN_KERNEL(result, kernel, parameters) CHECK(kernels->kernel != nullptr);
#include "compress/sign/kernels.def"
#undef ONEBIT_SIGN_KERNEL
    }
    CHECK(std::string(available_sign_kernels().back()->name) == "reference");
}

} // namespace
} // namespace onebit
