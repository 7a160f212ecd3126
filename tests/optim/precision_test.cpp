// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Gradients in half precision count as exactly their float values. Low-precision copies are the rounded parameters.
#include "support/training.hpp"

using namespace onebit_test;

namespace {

const Sizes& odd_sizes() {
    static const Sizes sizes = {33, 1, 127, 5, 64, 71};
    return sizes;
}

// Values of `type`: Gaussian ones, both zeros, and from the subnormal up to a hundredth of the largest.
Gradient gradient_in(onebit_datatype_t type) {
    return [type, inner = gaussian_gradient(total(odd_sizes()), 3)](int rank, std::uint64_t t) {
        std::vector<float> values = inner(rank, t);
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (i % 7 == 0) values[i] *= 1e-7f; // binary16: 1 to 10 units of the smallest number
            if (i % 11 == 0) values[i] *= type == ONEBIT_BFLOAT16 ? 1e-12f : 1e-3f;
            if (i % 13 == 0) values[i] *= 60.0f;
            if (i % 17 == 0) values[i] = t % 2 == 0 ? 0.0f : -0.0f;
            values[i] = rounded(values[i], type);
        }
        return values;
    };
}

// Parameters on and around every kind of boundary between two numbers of `type`.
std::vector<float> hard_to_round(onebit_datatype_t type, std::size_t count) {
    const int kept = type == ONEBIT_FLOAT16 ? 13 : 16; // bits of a float's fraction that are lost
    const std::uint32_t half_way = 1u << (kept - 1);
    std::vector<float> values = {0.0f,     -0.0f,        65503.0f,     65519.0f,   65520.0f,  -65520.0f,
                                 65536.0f, 0x1p-24f,     0x1p-25f,     0x1.8p-25f, -0x1p-26f, 0x1.8p-24f,
                                 0x1p-14f, 0x1.ffcp-15f, 0x1.ffep-15f, 1e-30f,     3.39e38f,  -3.4028235e38f};
    Random random(9, 0, 0);
    while (values.size() < count) {
        std::uint32_t bits = static_cast<std::uint32_t>(random.next());
        const std::uint32_t exponent = type == ONEBIT_FLOAT16 ? 100 + bits % 50 : 1 + bits % 253; // about 2^-27 to 2^22
        bits = (bits & 0x807fffffu) | exponent << 23;
        if (bits % 3 != 0) bits &= ~(2 * half_way - 1); // exact,
        if (bits % 2 == 0) bits |= half_way;            // half-way between two,
        if (bits % 5 == 0) bits ^= 1;                   // or next to that
        values.push_back(float_of(bits));
    }
    values.resize(count);
    return values;
}

} // namespace

TEST_CASE("gradients in half precision are their float values", "[optimizer][precision]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            for (onebit_datatype_t type : {ONEBIT_FLOAT16, ONEBIT_BFLOAT16}) {
                log.context(name_of(kind) + (type == ONEBIT_FLOAT16 ? ", float16" : ", bfloat16"));
                Setup setup{quick_config(kind), odd_sizes()};
                setup.config.max_grad_norm = 50;
                Training full(comm, setup, log);
                setup.gradient_type = type;
                Training half(comm, setup, log);
                for (Training* training : {&full, &half})
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(training->get(), 3));
                const Gradient gradient = gradient_in(type);
                for (std::uint64_t t = 1; t <= 16; ++t) {
                    full.steps(gradient, t, t);
                    half.steps(gradient, t, t);
                    ONEBIT_EXPECT(log, Snapshot(full).same_as(Snapshot(half)));
                }
            }
        }
    });
}

TEST_CASE("tensors may differ in the type of their gradients", "[optimizer][precision]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        onebit_optimizer_config_t config = quick_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM);
        std::vector<float> x(100, 1.0f), y(57, 2.0f), plain_x = x, plain_y = y;
        std::vector<float> plain_gx(100), plain_gy(57);
        std::vector<std::uint16_t> gx(100), gy(57), x_copy(100), y_copy(57);
        std::vector<onebit_tensor_t> mixed = {ONEBIT_TENSOR_INIT(x.data(), gx.data(), 100),
                                              ONEBIT_TENSOR_INIT(y.data(), gy.data(), 57)};
        mixed[0].gradient_type = mixed[1].copy_type = ONEBIT_FLOAT16;
        mixed[1].gradient_type = mixed[0].copy_type = ONEBIT_BFLOAT16;
        mixed[0].copy = x_copy.data();
        mixed[1].copy = y_copy.data();
        const std::vector<onebit_tensor_t> plain = {ONEBIT_TENSOR_INIT(plain_x.data(), plain_gx.data(), 100),
                                                    ONEBIT_TENSOR_INIT(plain_y.data(), plain_gy.data(), 57)};
        onebit_optimizer_t one = nullptr, other = nullptr;
        ONEBIT_EXPECT_OK(log, onebit_optimizer_create(comm, &config, mixed.data(), 2, &one));
        ONEBIT_EXPECT_OK(log, onebit_optimizer_create(comm, &config, plain.data(), 2, &other));
        for (std::uint64_t t = 1; t <= 10; ++t) {
            const std::vector<float> values = make_data(Kind::gaussian, 157, 4, log.rank(), t);
            for (std::size_t i = 0; i < 157; ++i) {
                if (i < 100) plain_gx[i] = from_half(gx[i] = to_half(values[i]));
                if (i >= 100) plain_gy[i - 100] = from_bfloat(gy[i - 100] = to_bfloat(values[i]));
            }
            ONEBIT_EXPECT_OK(log, onebit_optimizer_step(one));
            ONEBIT_EXPECT_OK(log, onebit_optimizer_step(other));
            ONEBIT_EXPECT(log, same_bits(x, plain_x) && same_bits(y, plain_y));
            const Bytes expected_x = converted(x, ONEBIT_BFLOAT16), expected_y = converted(y, ONEBIT_FLOAT16);
            ONEBIT_EXPECT(log, std::memcmp(x_copy.data(), expected_x.data(), expected_x.size()) == 0);
            ONEBIT_EXPECT(log, std::memcmp(y_copy.data(), expected_y.data(), expected_y.size()) == 0);
        }
        ONEBIT_EXPECT_OK(log, onebit_optimizer_destroy(one));
        ONEBIT_EXPECT_OK(log, onebit_optimizer_destroy(other));
    });
}

TEST_CASE("copies are the parameters to the nearest, after every step", "[optimizer][precision]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Gradient gradient = gaussian_gradient(total(odd_sizes()), 1);
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            for (onebit_datatype_t type : {ONEBIT_FLOAT32, ONEBIT_FLOAT16, ONEBIT_BFLOAT16}) {
                log.context(name_of(kind) + ", copy type " + std::to_string(static_cast<int>(type)));
                Setup setup{quick_config(kind), odd_sizes()};
                Training bare(comm, setup, log);
                setup.groups.assign(2, ONEBIT_PARAM_GROUP_INIT(0.01));
                setup.group_of = {0, 0, 1, 0, 1, 0};
                setup.copies = true;
                setup.copy_type = type;
                Training copied(comm, setup, log);
                for (std::uint64_t t = 1; t <= 16; ++t) {
                    bare.steps(gradient, t, t);
                    copied.steps(gradient, t, t);
                    ONEBIT_EXPECT(log, copied.copies() == converted(copied.parameters(), type));
                    ONEBIT_EXPECT(log, same_bits(bare.parameters(), copied.parameters()));
                }
            }
        }
    });
}

TEST_CASE("copies round ties to even, to subnormals, and what is too large to the largest number",
          "[optimizer][precision]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : {ONEBIT_OPTIMIZER_ADAM, ONEBIT_OPTIMIZER_ONEBIT_ADAM}) {
            for (onebit_datatype_t type : {ONEBIT_FLOAT16, ONEBIT_BFLOAT16}) {
                log.context(name_of(kind) + (type == ONEBIT_FLOAT16 ? ", float16" : ", bfloat16"));
                Setup setup{quick_config(kind, 0), {4099, 1001}};
                if (freezes(kind)) setup.config.freeze_step = 1;
                setup.copies = true;
                setup.copy_type = type;
                const std::vector<float> start = hard_to_round(type, total(setup.sizes));
                Training training(comm, setup, start, log);
                for (std::uint64_t t = 1; t <= 3; ++t) {
                    training.step(make_data(Kind::gaussian, start.size(), 1, log.rank(), t));
                    ONEBIT_EXPECT(log, training.copies() == copied(training.parameters(), type));
                    const std::vector<float> now = training.parameters();
                    ONEBIT_EXPECT(log, std::equal(now.begin(), now.end(), start.begin())); // the learning rate is 0
                }
            }
        }
    });
}
