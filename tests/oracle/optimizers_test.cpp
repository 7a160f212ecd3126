// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The optimizers' oracle against cases worked out by hand. Most use one rank, beta1 = 1/2, beta2 = 3/4, eps = 1 and no
// bias correction: a first gradient (2, -4) then gives m = (1, -2), v = (1, 4), D = (2, 3).
#include "oracle/optimizers.hpp"

#include <cmath>
#include <functional>

#include "support/catch2.hpp"

using namespace oracle;

namespace {

void check_close(const Vector& actual, const Vector& expected) {
    REQUIRE(actual.size() == expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
        INFO("element " << i);
        CHECK(actual[i] == Approx(expected[i]).margin(1e-13).epsilon(1e-13));
    }
}

Model simple_model(const std::vector<Tensor>& tensors, double weight_decay = 0) {
    Model model;
    model.tensors = tensors;
    model.groups = {Settings{0.1, 0.5, 0.75, 1.0, weight_decay, false}};
    model.bias_correction = false;
    model.scale = Scale::l1;
    model.group = Group::tensor;
    model.exchange_updates = false; // as in the papers
    return model;
}

} // namespace

TEST_CASE("oracle: Adam", "[oracle]") {
    Model model = simple_model({{1}});
    SECTION("raw moments") { // g = 2: m = 1, v = 1
        model.ranks = 2;
        Adam adam(model, {1});
        adam.step({{1}, {3}});
        check_close(adam.x, {1 - 0.1 * (1.0 / 2)});
        adam.step({{0}, {0}}); // m = 0.5, v = 0.75
        check_close(adam.x, {0.95 - 0.1 * (0.5 / (std::sqrt(0.75) + 1))});
    }
    SECTION("corrected moments") { // m = 1 / 0.5, v = 1 / 0.25
        model.bias_correction = true;
        Adam adam(model, {1});
        adam.step({{2}});
        check_close(adam.x, {1 - 0.1 * (2.0 / 3)});
    }
    SECTION("weight decay is decoupled") {
        model.groups[0].weight_decay = 0.5;
        Adam adam(model, {2});
        adam.step({{2}});
        check_close(adam.x, {2 - 0.1 * (1.0 / 2 + 0.5 * 2)});
    }
}

TEST_CASE("oracle: gradients are scaled and clipped", "[oracle]") {
    Model model = simple_model({{2}});
    Adam adam(model, {1, 1});
    adam.gradient_scale = 4;
    adam.step({{8, -16}}); // as (2, -4)
    check_close(adam.m, {1, -2});
    adam.model.max_grad_norm = 5;
    adam.step({{24, -32}}); // (6, -8) has norm 10: halved
    CHECK(adam.grad_norm == Approx(10));
    check_close(adam.m, {2, -3});
    adam.told_norm = 1e9;   // an exact step ignores it
    adam.step({{12, -16}}); // (3, -4): norm 5
    check_close(adam.m, {2.5, -3.5});

    OnebitAdam onebit(model, {1, 1});
    onebit.model.max_grad_norm = 5;
    onebit.freeze_at(1);
    onebit.step({{2, -4}});
    onebit.told_norm = 10; // m_i = (0.5, -1) + (6, -8) / 4 = (2, -3)
    onebit.step({{6, -8}});
    check_close(onebit.m, {2.5, -2.5});
}

TEST_CASE("oracle: groups have settings of their own, no_compress is left out", "[oracle]") {
    Model model = simple_model({{1, 1}, {2, 0}});
    model.groups.push_back({0.2, 0, 0, 2.0, 0.5, true});
    model.bias_correction = true;
    OnebitAdam optimizer(model, {2, 1, 1});
    optimizer.freeze_at(1);
    optimizer.step({{4, 2, -4}});
    check_close(optimizer.x, {2 - 0.2 * (4.0 / (4 + 2) + 1), 1 - 0.1 * 2.0 / 3, 1 + 0.1 * 4.0 / 5});
    CHECK(optimizer.reduce.count() == 2);
    CHECK(optimizer.freeze_step == 1);
    const Vector before = optimizer.x;
    optimizer.step({{-1, 5, 0}}); // compressed: m_i = (3, -1)
    check_close(optimizer.m, {-1, 2, -2});
    check_close(optimizer.v, {1, 1, 4});
    CHECK(optimizer.x[0] == Approx(before[0] - 0.2 * (-1.0 / (1 + 2) + 0.5 * before[0])));
    check_close(optimizer.unpacked({7, 8}), {0, 7, 8});
    check_close(optimizer.packed({7, 8, 9}), {8, 9});
}

TEST_CASE("oracle: 1-bit Adam freezes v, carries errors, masks zeros", "[oracle]") {
    const bool corrected = GENERATE(false, true);
    Model model = simple_model({{1}, {2}});
    model.bias_correction = corrected;
    OnebitAdam optimizer(model, {1, 1, 1});
    optimizer.freeze_at(1);
    optimizer.step({{2, -4, 0}});
    CHECK(optimizer.freeze_step == 1);
    CHECK(optimizer.masked() == 1);
    const Vector before = optimizer.x;
    optimizer.step({{5, 0, 9}}); // m_i = (3, -1): scale 2, error (1, 1)
    check_close(optimizer.m, {2, -2, 0});
    check_close(optimizer.v, {1, 4, 0});
    check_close(optimizer.reduce.worker_error(0), {1, 1, 0});
    const double m_divisor = corrected ? 0.75 : 1, v_divisor = corrected ? 0.25 : 1;
    CHECK(optimizer.x[0] == Approx(before[0] - 0.1 * (2 / m_divisor / (std::sqrt(1 / v_divisor) + 1))));
    CHECK(optimizer.x[1] == Approx(before[1] + 0.1 * (2 / m_divisor / (std::sqrt(4 / v_divisor) + 1))));
    CHECK(optimizer.x[2] == 1);
    CHECK(optimizer.sign_margin[0] == Approx(1.0)); // |c| / scale: 3/2 and 1/2 at the worker, 2/2 at the server
    CHECK(optimizer.sign_margin[1] == Approx(0.5));
    optimizer.step({{0, 0, 0}}); // m_i = (1, -1), c = (2, 0): scale 1
    check_close(optimizer.m, {1, 1, 0});
    CHECK(optimizer.exact_rounds == 1);
    CHECK(optimizer.compressed_rounds == 2);
}

TEST_CASE("oracle: 1-bit Adam exchanges updates, each gradient's within what the warm-up could have had", "[oracle]") {
    Model model = simple_model({{1}, {2}});
    model.exchange_updates = true;
    OnebitAdam optimizer(model, {1, 1, 1});
    optimizer.freeze_at(1);
    optimizer.step({{2, -4, 0}}); // m = (1, -2), D = (2, 3)
    check_close({optimizer.m[0], optimizer.m[1]}, {0.5, -2.0 / 3});
    const Vector before = optimizer.x;
    optimizer.step({{5, 0, 9}}); // g / D = 2.5, at most 1 / sqrt(1 - 0.75): u_i = (0.25 + 1, -1/3)
    const double scale = (1.25 + 1.0 / 3) / 2;
    check_close(optimizer.m, {scale, -scale, 0});
    check_close(optimizer.x, {before[0] - 0.1 * scale, before[1] + 0.1 * scale, 1});
    check_close(optimizer.reduce.worker_error(0), {1.25 - scale, scale - 1.0 / 3, 0});
}

TEST_CASE("oracle: weight decay goes on for masked elements", "[oracle]") {
    OnebitAdam optimizer(simple_model({{2}}, 0.5), {1, 2});
    optimizer.step({{1, 0}});
    optimizer.freeze_now();
    optimizer.step({{1, 7}});
    CHECK(optimizer.x[1] == Approx(2 * 0.95 * 0.95));
}

TEST_CASE("oracle: the freeze rule", "[oracle]") {
    const auto sum = [](double norm) { return Sight{{}, {norm / 4, norm * 3 / 4}, {}, {}}; };
    PaperRule rule(0.5, 0);
    CHECK(rule.delta() == 2);
    CHECK_FALSE(rule.observe(sum(1)));
    CHECK_FALSE(rule.observe(sum(2)));
    CHECK_FALSE(rule.observe(sum(3))); // 3 / 1
    CHECK(rule.last_ratio() == 3);
    CHECK_FALSE(rule.observe(sum(1))); // 1 / 2: falling is no better than rising
    CHECK(rule.observe(sum(3.09)));    // 3.09 / 3 = 1.03
    CHECK(rule.margin() == Approx(1 / 0.96 - 1.03));
    CHECK(PaperRule(0.9, 0).delta() == 10);
    CHECK(PaperRule(0.999, 0).delta() == 1000);

    PaperRule late(0.5, 5);
    for (int t = 1; t <= 4; ++t) CHECK_FALSE(late.observe(sum(1)));
    CHECK(late.observe(sum(1)));

    PaperRule zero(0.5, 0);
    CHECK_FALSE(zero.observe(sum(0)));
    CHECK_FALSE(zero.observe(sum(0)));
    CHECK_FALSE(zero.observe(sum(0))); // 0 / 0 says nothing
}

TEST_CASE("oracle: the rule that waits until all has settled", "[oracle]") {
    const auto last_step = [](SettledRule rule, const std::function<Sight(std::uint64_t)>& sight) {
        std::uint64_t t = 1;
        while (t < 1000 && !rule.observe(sight(t))) ++t;
        return t;
    };
    const auto steady = [](std::uint64_t) { return Sight{{0.1}, {1, 0}, {1, 1}, {}}; };
    CHECK(last_step(SettledRule(2, 0, 4, 0.9), steady) == 8);   // two windows
    CHECK(last_step(SettledRule(20, 0, 4, 0.9), steady) == 20); // 1/(1 - beta2)
    CHECK(last_step(SettledRule(2, 30, 4, 0.9), steady) == 30); // the learning rate's warm-up
    CHECK(last_step(SettledRule(2, 0, 40, 0.9), steady) == 80); // looks at each second step
    CHECK(last_step(SettledRule(2, 0, 33, 0.9), steady) == 68); // a window of 34
    const auto rising = [](std::uint64_t t) { return Sight{{t < 20 ? 0.01 * t : 0.1}, {1}, {1}, {}}; };
    CHECK(last_step(SettledRule(2, 0, 4, 0.9), rising) == 23); // 0.19 was reached after step 19
    const auto jump = [](std::uint64_t t) { return Sight{{0.1}, {1, t < 20 ? 2.0 : 1.0}, {1, 1}, {}}; };
    CHECK(last_step(SettledRule(2, 25, 4, 0.9), jump) == 27); // unlike a window before from 20 to 23
    const auto filling = [](std::uint64_t t) { return Sight{{0.1}, {double(t)}, {1.0 / double(t)}, {}}; };
    CHECK(last_step(SettledRule(2, 0, 4, 0.9), filling) == 8); // corrected it is steady
    const auto norms = [](std::uint64_t t) { return Sight{{0.1}, {1}, {1}, {t < 20 ? double(t) : 20.0}}; };
    CHECK(last_step(SettledRule(2, 0, 4, 0.9), norms) == 25); // 20/18 = 1.11 after step 22 even in the band
}

TEST_CASE("oracle: the freeze rule sees the compressed tensors alone", "[oracle]") {
    Model model = simple_model({{1, 0}, {1, 1}, {1, 2}});
    model.groups = {Settings{0.1, 0.5, 0.5, 1.0, 0, false}, Settings{0.1, 0.5, 0.9, 1.0, 0, true},
                    Settings{0.1, 0.5, 0, 1.0, 0, false}};
    OnebitAdam optimizer(model, {1, 1, 1});
    optimizer.freeze_by_paper(0); // delta = 2, of group 0
    double wild = 1;
    for (std::uint64_t t = 1; t <= 7; ++t) { // v of tensor 0: 1 - 1/2^t; of tensor 2: 1
        optimizer.step({{1, wild *= 10, 1}});
        // The ratios: 1.875/1.5 = 1.25, 1.9375/1.75 = 1.107, 1.96875/1.875 = 1.05, 1.984/1.9375 = 1.024.
        CHECK(optimizer.freeze_step == (t < 6 ? 0 : 6));
    }
}

TEST_CASE("oracle: LAMB", "[oracle]") {
    Model model = simple_model({{2}, {1}});
    SECTION("a trust ratio for each tensor") { // u = (1/2, -2/3), of norm 5/6; u = 1/2, x = 0
        Lamb lamb(model, {3, 4, 0});
        lamb.step({{2, -4, 2}});
        check_close(lamb.trust, {6, 1});
        check_close(lamb.x, {3 - 0.6 / 2, 4 + 0.6 * 2 / 3, -0.1 / 2});
    }
    SECTION("clipped above and below") {
        model.max_trust = 2;
        model.min_trust = 1.5;
        Lamb lamb(model, {3, 4, 0.25});
        lamb.step({{2, -4, 2}}); // 6 and 1/2
        check_close(lamb.trust, {2, 1.5});
    }
    SECTION("no gradient") {
        Lamb lamb(model, {3, 4, 1});
        lamb.step({{2, -4, 0}});
        check_close(lamb.trust, {6, 1});
        CHECK(lamb.x[2] == 1);
    }
    SECTION("weight decay is in u") { // u = (1/2 + 3/2, -2/3 + 2)
        model.groups[0].weight_decay = 0.5;
        Lamb lamb(model, {3, 4, 0});
        lamb.step({{2, -4, 0}});
        const double c = 5 / std::sqrt(4 + 16.0 / 9);
        check_close(lamb.x, {3 - 0.1 * c * 2, 4 - 0.1 * c * 4 / 3, 0});
    }
}

TEST_CASE("oracle: 1-bit LAMB after the freeze", "[oracle]") {
    // m = (1, -1 | 3, 3): magnitudes 1 and 3, so factors 2 and 2/3. v = (1, 1 | 9, 9), D = (2, 2 | 4, 4).
    OnebitLamb lamb(simple_model({{2}, {2}}), {3, 4, 6, 8});
    lamb.freeze_at(1);
    lamb.step({{2, -2, 6, 6}});
    check_close(lamb.momentum_factor, {2, 2.0 / 3});
    const double c_a = 5 / std::sqrt(0.5), c_b = 10 / std::sqrt(2 * 9.0 / 16);
    CHECK(lamb.trust_average(0) == Approx(c_a));
    CHECK(lamb.trust_average(1) == Approx(c_b));
    const Vector before = lamb.x;
    lamb.step({{0, -2, 0, 0}}); // (1/2, -3/2 | 3/2, 3/2), scaled (1, -3 | 1, 1), sent 3/2
    check_close(lamb.m, {0.75, -0.75, 2.25, 2.25});
    check_close(lamb.v, {1, 1, 9, 9});
    // g of (m - before / 2) / (1/2): (1/2, -1/2 | 3/2, 3/2)
    check_close(lamb.v_fresh, {0.8125, 0.8125, 7.3125, 7.3125});
    const double r_a = 2 / (std::sqrt(0.8125) + 1), r_b = 4 / (std::sqrt(7.3125) + 1);
    check_close(lamb.ratio, {r_a, r_b});
    check_close(lamb.x, {before[0] - 0.1 * c_a * r_a * 0.375, before[1] + 0.1 * c_a * r_a * 0.375,
                         before[2] - 0.1 * c_b * r_b * 2.25 / 4, before[3] - 0.1 * c_b * r_b * 2.25 / 4});
    check_close(lamb.reduce.worker_error(0), {-0.5, -1.5, -0.5, -0.5});
}

TEST_CASE("oracle: 1-bit LAMB's running mean and bounds", "[oracle]") {
    Model model = simple_model({{2}, {1}});
    model.trust_beta = 0.75;
    model.max_trust = 4;
    model.momentum_scaling = false;
    OnebitLamb lamb(model, {3, 4, 0});
    lamb.step({{2, -4, 0}}); // 6, clipped to 4
    CHECK(lamb.trust_average(0) == Approx(4));
    CHECK(lamb.trust_average(1) == 1);
    lamb.model.max_trust = 1; // 1 is not counted
    lamb.step({{2, -4, 0}});
    CHECK(lamb.trust_steps[0] == 1);
    lamb.model.max_trust = 2;
    lamb.step({{2, -4, 0}}); // (3/4 * 4 + 2) / (3/4 + 1)
    CHECK(lamb.trust_average(0) == Approx(5 / 1.75));
    lamb.freeze_now();
    check_close(lamb.momentum_factor, {1, 1});
    CHECK(lamb.masked() == 1);
    lamb.v = {1e4, 1e4, 0}; // D / D_fresh is far above 4
    for (double r : {1.1, 1.21, 1.331}) {
        lamb.step({{2, -4, 0}});
        check_close(lamb.ratio, {r, 1}); // a masked element's D is D_fresh, eps
    }
    lamb.v = {0, 0, 0}; // and now far below 1/2
    lamb.v_fresh = {1e4, 1e4, 0};
    lamb.step({{2, -4, 0}});
    CHECK(lamb.ratio[0] == Approx(1.331 * 0.9));
}

TEST_CASE("oracle: 1-bit LAMB's ratio heeds weight decay", "[oracle]") {
    Model model = simple_model({{1}}, 0.5);
    model.momentum_scaling = false;
    OnebitLamb lamb(model, {2});
    lamb.freeze_at(1);
    lamb.step({{2}}); // m = v = 1, D = 2
    const double x = lamb.x[0];
    CHECK(x == Approx(2 - 0.1 * 2)); // u = 1/2 + 1, c u = x
    lamb.step({{0}});                // m = 1/2: g = 0, v_fresh = 3/4
    const double u0 = 0.25, u = u0 + 0.5 * x;
    const double expected = u0 / u * 2 / (std::sqrt(0.75) + 1) + 1 - u0 / u;
    CHECK(lamb.ratio[0] == Approx(expected));
    CHECK(lamb.x[0] == Approx(x - 0.1 * 2 / 1.5 * expected * u));
}

TEST_CASE("oracle: 1-bit Adam whose exchange has two levels", "[oracle]") {
    // 40 elements: a shard of 32 and one of 8. Gradients of (2, 4, 6, 8) in the one and of (-10, -30, -50, -70) in the
    // other give each shard and node a scale of its own, and lose nothing.
    Model model = simple_model({{40}});
    model.ranks = 4;
    model.places = 2;
    OnebitAdam optimizer(model, Vector(40, 1.0));
    optimizer.freeze_at(1);
    PerRank gradients(4, Vector(40));
    for (std::size_t r = 0; r < 4; ++r)
        for (std::size_t i = 0; i < 40; ++i)
            gradients[r][i] =
                i < 32 ? 2 * static_cast<double>(r + 1) : -10 * static_cast<double>(2 * r + 1); // means 5 and -40
    optimizer.step(gradients);
    optimizer.step(gradients);
    CHECK(optimizer.exchanged);
    Vector expected(40, 0.75 * 5);
    std::fill(expected.begin() + 32, expected.end(), 0.75 * -40);
    check_close(optimizer.m, expected);
    CHECK(optimizer.reduce.levels[0].worker_scale[1][0] == Approx(0.25 * 5 + 0.5 * 7));
    CHECK(optimizer.reduce.levels[1].worker_scale[0][0] == Approx(0.25 * 40 + 0.5 * 20));
    for (int rank = 0; rank < 4; ++rank) check_close(optimizer.reduce.worker_error(rank), Vector(40, 0.0));
    CHECK(optimizer.sign_margin[0] == Approx(1));
    CHECK(optimizer.sign_margin[39] == Approx(1));
    // On one level the scales are of whole buffers, and there are errors.
    model.places = 1;
    OnebitAdam flat(model, Vector(40, 1.0));
    flat.freeze_at(1);
    flat.step(gradients);
    flat.step(gradients);
    CHECK(flat.reduce.worker_error(0)[0] != 0);
}

TEST_CASE("oracle: on two levels 1-bit Adam's bound is of a node's mean gradient", "[oracle]") {
    Model model = simple_model({{40}});
    model.ranks = 4;
    model.places = 2;
    model.exchange_updates = true;
    OnebitAdam optimizer(model, Vector(40, 1.0));
    optimizer.freeze_at(1);
    PerRank gradients(4, Vector(40, 2.0));
    optimizer.step(gradients); // m = 1, D = 2, u = 1/2
    // g / D is at most 4 / sqrt(1/4) = 8. Node 0's gradients are 30 and -26, node 1's 100 and 2: 1 and 8, not 25.5.
    const double values[] = {30, -26, 100, 2};
    for (std::size_t r = 0; r < 4; ++r) gradients[r].assign(40, values[r]);
    optimizer.step(gradients);
    CHECK(optimizer.reduce.levels[0].worker_c[0][0] == Approx(0.25 + 0.5 * 1));
    CHECK(optimizer.reduce.levels[0].worker_c[1][0] == Approx(0.25 + 0.5 * 8));
    check_close(optimizer.m, Vector(40, 0.25 + 0.5 * 4.5));
}
