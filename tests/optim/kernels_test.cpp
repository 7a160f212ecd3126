// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Every optimizer kernel of every instruction set that this machine has against the scalar reference: the same bits.

#include "optim/kernels/kernels.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "support/catch2.hpp"

namespace onebit {
namespace {

constexpr std::size_t kCounts[] = {1, 2, 7, 15, 16, 17, 31, 32, 33, 63, 100, 1023, 1024, 4095, 4096};

/// All that a kernel may read and write: arrays of one length, each followed by guards, at addresses that are aligned
/// for a float but not for a vector.
struct Arrays {
    static constexpr std::size_t kGuards = 40;

    explicit Arrays(std::size_t elements) : count(elements) {
        std::mt19937 random(static_cast<unsigned>(elements));
        std::normal_distribution<float> gaussian;
        for (auto& array : storage) {
            array.resize(1 + count + kGuards, 77.0F);
            for (std::size_t i = 0; i < count; ++i) array[1 + i] = awkward(gaussian(random), random() % 16);
        }
        for (float& x : storage[kVariance]) x = std::fabs(x);
        buckets.resize(kSketchBuckets, 0.5F);
    }

    static float awkward(float x, unsigned kind) {
        switch (kind) {
            case 0:
                return 0.0F;
            case 1:
                return -0.0F;
            case 2:
                return x * 1e-20F;
            case 3:
                return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x807fffffU); // subnormal
            case 4:
                return x * 1e9F;
            case 5:
                return std::clamp(x, -1.0F, 1.0F) * 1e38F; // many results overflow
            default:
                return x;
        }
    }

    bool operator==(const Arrays& other) const {
        for (std::size_t a = 0; a < storage.size(); ++a) {
            if (std::memcmp(storage[a].data(), other.storage[a].data(), storage[a].size() * sizeof(float)) != 0) {
                return false;
            }
        }
        return buckets == other.buckets && std::memcmp(&result, &other.result, sizeof(result)) == 0;
    }

    float* f(std::size_t array) { return storage[array].data() + 1; }

    static constexpr std::size_t kVariance = 2;
    std::size_t count;
    std::array<std::vector<float>, 5> storage;
    std::vector<float> buckets;
    double result = -1;
};

constexpr AdamBetas kBetas = {0.9F, 0.1F, 0.99F, 0.01F, 5.0F};
constexpr AdamUpdate kUpdate = {0.01F, 1e-6F, 0.1F, 1.7F, 1.3F};
constexpr std::uint64_t kSeed = 0x123456789abcdef5;

// One function per row of kernels.def, by name: a row without one doesn't compile.
#define RUN(kernel) void run_##kernel(const OptimKernels& k, Arrays& a)
RUN(adam) {
    k.adam(a.f(0), 0.3F, a.f(1), a.f(2), a.f(3), a.count, kBetas, kUpdate);
}
RUN(moments) {
    k.moments(a.f(0), 0.3F, a.f(1), a.f(2), a.count, kBetas);
}
RUN(momentum) {
    k.momentum(a.f(0), 0.3F, a.f(1), a.count, kBetas);
}
RUN(weighted_momentum) {
    k.weighted_momentum(a.f(0), 0.3F, a.f(2), a.f(1), a.count, kBetas);
}
RUN(unweigh) {
    k.unweigh(a.f(0), a.f(2), a.count, kUpdate, a.f(1));
}
RUN(gather_masked) {
    for (std::size_t i = 0; i < a.count; i += 3) a.f(2)[i] = 0;
    k.gather_masked(a.f(0), 0.3F, a.f(2), a.f(1), a.count);
}
RUN(direction) {
    k.direction(a.f(0), a.f(2), a.f(1), a.count, kUpdate, a.f(3));
}
RUN(invert_denominator) {
    k.invert_denominator(a.f(2), a.count, kUpdate, a.f(2));
}
RUN(frozen_direction) {
    k.frozen_direction(a.f(0), a.f(1), a.f(3), a.count, kUpdate, a.f(4));
}
RUN(frozen_update) {
    k.frozen_update(a.f(0), a.f(1), a.f(3), a.count, kUpdate);
}
RUN(exchanged_update) {
    k.exchanged_update(a.f(0), a.f(3), a.count, kUpdate);
}
RUN(descend) {
    k.descend(a.f(0), 0.7F, a.f(1), a.count);
}
RUN(refresh) {
    k.refresh(a.f(0), a.f(1), a.f(3), a.f(2), a.count, kBetas, kUpdate, a.f(4));
}
RUN(drift) {
    k.drift(a.f(0), 0.3F, a.f(1), a.f(2), a.f(3), a.f(4), a.count, kBetas, kUpdate, true, a.f(0));
    k.drift(a.f(3), 0.3F, a.f(1), a.f(2), a.f(3), a.f(4), a.count, kBetas, kUpdate, false, a.f(4));
}
RUN(rejoin) {
    k.rejoin(a.f(0), a.f(1), 0.01F, a.f(3), a.f(4), a.count);
    k.rejoin(a.f(0), nullptr, 0.01F, a.f(3), a.f(4), a.count);
}
RUN(multiply) {
    k.multiply(a.f(0), 0.7F, a.count, a.f(0));
}
RUN(sum_squares) {
    a.result = k.sum_squares(a.f(0), a.count);
}
RUN(least) {
    a.result = k.least(a.f(2), a.count) + 0.0F;
} // of 0 and -0 either will do
RUN(sketch) {
    k.sketch(a.f(0), a.count, kSeed, a.buckets.data());
}
#undef RUN

} // namespace

TEST_CASE("optimizer kernels give the reference's bits on every instruction set", "[kernels]") {
    REQUIRE(available_optim_kernels().size() >= 2); // else nothing would be compared
    struct Row {
        const char* name;
        void (*run)(const OptimKernels&, Arrays&);
    };
    const Row rows[] = {
#define ONEBIT_OPTIM_KERNEL(result, kernel, parameters) {#kernel, run_##kernel},
#include "optim/kernels/kernels.def"
#undef ONEBIT_OPTIM_KERNEL
    };
    for (const OptimKernels* kernels : available_optim_kernels()) {
        for (const Row& row : rows) {
            for (const std::size_t count : kCounts) {
                CAPTURE(kernels->name, row.name, count);
                Arrays expected(count);
                Arrays actual(count);
                row.run(reference_optim_kernels(), expected);
                row.run(*kernels, actual);
                CHECK(actual == expected);
                CHECK_FALSE(actual == Arrays(count)); // it did something
            }
        }
    }
}

TEST_CASE("what overflows becomes the largest float, and NaNs stay", "[kernels]") {
    constexpr float most = std::numeric_limits<float>::max();
    constexpr std::size_t count = 77; // whole vectors and a rest
    for (const OptimKernels* kernels : available_optim_kernels()) {
        CAPTURE(kernels->name);
        const auto all_are = [](const std::vector<float>& values, float value) {
            return std::ranges::all_of(values, [=](float x) { return x == value; });
        };
        std::vector<float> x(count, -most);
        kernels->descend(std::vector<float>(count, 1.0F).data(), most, x.data(), count);
        CHECK(all_are(x, -most));
        // Update and decay overflow with opposite signs: the update is bounded first.
        const AdamUpdate update = {1, 1e-8F, most, 1, 1};
        std::vector<float> u(count);
        const std::vector<float> m(count, most);
        const std::vector<float> precondition(count, 1e8F);
        kernels->frozen_direction(m.data(), precondition.data(), x.data(), count, update, u.data());
        CHECK(all_are(u, -most));
        kernels->direction(m.data(), std::vector<float>(count, 1e-20F).data(), x.data(), count, update, u.data());
        CHECK(all_are(u, -most));
        kernels->multiply(m.data(), -2, count, u.data());
        CHECK(all_are(u, -most));
        std::vector<float> anchor(count, most);
        kernels->rejoin(m.data(), precondition.data(), most, anchor.data(), x.data(), count);
        CHECK(all_are(anchor, -most));
        const std::vector<float> zeros(count, 0.0F); // gradients that leave m as it is, and a masked preconditioner
        kernels->drift(zeros.data(), 1, zeros.data(), zeros.data(), x.data(), x.data(), count, kBetas,
                       {1, 1e-8F, 0, 1, 1}, true, u.data());
        CHECK(all_are(u, 0));
        std::vector<float> v_fresh(count, 1.0F);
        kernels->refresh(m.data(), x.data(), precondition.data(), v_fresh.data(), count, kBetas, update, u.data());
        CHECK(all_are(v_fresh, most));

        x.assign(count, std::numeric_limits<float>::quiet_NaN());
        kernels->descend(zeros.data(), 1, x.data(), count);
        CHECK(std::ranges::all_of(x, [](float value) { return std::isnan(value); }));
        x.assign(count, std::numeric_limits<float>::infinity());
        kernels->descend(zeros.data(), 1, x.data(), count);
        CHECK(all_are(x, most));
    }
}

TEST_CASE("sums of squares are right for all magnitudes", "[kernels]") {
    for (const OptimKernels* kernels : available_optim_kernels()) {
        for (const float magnitude : {1.2e-38F, 1e-30F, 1e-15F, 1.0F, 1e18F, 1e30F, 3.4e38F}) {
            CAPTURE(kernels->name, magnitude);
            const std::vector<float> values(4001, magnitude);
            const double sum = kernels->sum_squares(values.data(), values.size());
            CHECK(sum / magnitude / magnitude == Approx(4001).epsilon(1e-5));
        }
        CHECK(kernels->sum_squares(std::vector<float>(50).data(), 50) == 0);
    }
}

TEST_CASE("a sketch estimates the sum of squares", "[kernels]") {
    std::mt19937 random(5);
    std::normal_distribution<float> gaussian;
    double squares = 0;
    std::vector<float> buckets(kSketchBuckets);
    std::mt19937_64 seeds(6);
    for (int block = 0; block < 50; ++block) {
        std::vector<float> values(block % 2 == 0 ? 4096 : 777);
        for (float& x : values) {
            x = gaussian(random) + 0.3F; // a common offset must cancel, too
            squares += static_cast<double>(x) * x;
        }
        reference_optim_kernels().sketch(values.data(), values.size(), seeds(), buckets.data());
    }
    double estimate = 0;
    for (const float b : buckets) estimate += static_cast<double>(b) * b;
    CHECK(estimate / squares == Approx(1).margin(0.15)); // sqrt(2 / 1024) is 4.4 %
}

} // namespace onebit
