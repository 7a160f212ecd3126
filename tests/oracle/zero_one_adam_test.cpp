// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The oracle of 0/1 Adam and its schedule against cases worked out by hand.
#include <cmath>
#include <string>

#include "oracle/optimizers.hpp"
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

// E, c, l: exact, compressed, local.
std::string rounds(Schedule& schedule, int steps) {
    std::string text;
    for (int t = 0; t < steps; ++t) {
        text += "Ecl"[static_cast<int>(schedule.next())];
        schedule.advance();
    }
    return text;
}

Model simple_model(int ranks, double weight_decay = 0) {
    Model model;
    model.tensors = {{2}};
    model.groups = {Settings{0.1, 0.5, 0.75, 1.0, weight_decay, false}};
    model.ranks = ranks;
    model.bias_correction = false;
    model.scale = Scale::l1;
    model.group = Group::tensor;
    model.variance_updates = 1;
    model.local_step_scaler = 1;
    model.local_steps = 2;
    model.exchange_updates = false; // as in the paper
    return model;
}

} // namespace

TEST_CASE("oracle: 0/1 Adam's schedule", "[oracle]") {
    Schedule schedule(2, 3, 4);
    // Exact at 1 2 | 4 6 | 8 12 | 16 24
    CHECK(rounds(schedule, 17) == "EEcEcEcEcccEcccEc");
    schedule.freeze();
    // 18 19 20 | 21 22 23 | 24 25 26 | 27 28 29 ..., intervals 1, 2, 4, 4
    CHECK(rounds(schedule, 13) == "ccclclclllcll");
}

TEST_CASE("oracle: 0/1 Adam's longest interval need not be a power of two", "[oracle]") {
    Schedule schedule(1, 1, 3);
    CHECK(rounds(schedule, 1) == "E");
    schedule.freeze();
    CHECK(rounds(schedule, 8) == "clllcllc"); // 2 | 3, of interval 2 | 4 ..., of interval 3
}

TEST_CASE("oracle: 0/1 Adam's published schedule", "[oracle]") {
    Schedule schedule(16, 32678, 16);
    while (schedule.exact + schedule.compressed < 12500) schedule.advance();
    CHECK(schedule.exact == 153);
    CHECK(schedule.compressed == 12347);
    schedule.freeze();
    for (std::uint64_t t = 12500; t < 152000; ++t) schedule.advance();
    CHECK(schedule.exact == 153);
    CHECK(schedule.compressed - 12347 == 61821);
    CHECK(schedule.local == 139500 - 61821);
}

TEST_CASE("oracle: 0/1 Adam, one rank", "[oracle]") {
    const double decay = GENERATE(0.0, 0.5);
    ZeroOneAdam optimizer(simple_model(1, decay), {1, 1});
    const double kept = 1 - 0.1 * decay;
    optimizer.step({{2, -4}}); // exact
    check_close(optimizer.m, {1, -2});
    check_close(optimizer.x, {kept - 0.1 / 2, kept + 0.1 * 2 / 3});
    optimizer.step({{0, 0}}); // exact: the interval is 2
    check_close(optimizer.v, {0.75, 3});
    Vector before = optimizer.x;
    optimizer.step({{3, -1}}); // compressed: (2, -2) and the error (1, 1)
    check_close(optimizer.m, {1.25, -1.5});
    check_close(optimizer.v, {0.75, 3});
    const Vector d = {std::sqrt(0.75) + 1, std::sqrt(3.0) + 1};
    check_close(optimizer.x, {kept * before[0] - 0.1 * 1.25 / d[0], kept * before[1] + 0.1 * 1.5 / d[1]});
    check_close(optimizer.reduce.worker_error(0), {1, 1});
    optimizer.freeze_now();
    check_close(optimizer.reduce.worker_error(0), {0, 0});

    before = optimizer.x;
    optimizer.step({{1, 1}}); // step 4, a round: m = (1.125, -0.25), (x - x0) D = -0.1 m
    check_close(optimizer.local_m[0], {0.6875, -0.6875});
    check_close(optimizer.reduce.worker_error(0), {-0.04375, -0.04375});
    check_close(optimizer.parameters_of(0), {kept * before[0] - 0.06875 / d[0], kept * before[1] + 0.06875 / d[1]});

    before = optimizer.parameters_of(0);
    optimizer.step({{1, 0}}); // step 5, local: m = (0.84375, -0.34375)
    check_close(optimizer.parameters_of(0), {before[0] - 0.084375 / d[0], before[1] + 0.034375 / d[1]});
    CHECK_FALSE(optimizer.exchanged);
    optimizer.step({{0, 0}}); // step 6: m = (0.421875, -0.171875)
    CHECK(optimizer.exchanged);
    // -0.1 times both momenta, and the error: (-0.1703125, 0.0078125), scale 0.0890625
    check_close(optimizer.reduce.result, {-0.0890625, 0.0890625});
    check_close(optimizer.local_m[0], {0.4453125, -0.4453125}); // over L = 0.2
    const double twice = 1 - 0.2 * decay;
    check_close(optimizer.parameters_of(0),
                {twice * before[0] - 0.0890625 / d[0], twice * before[1] + 0.0890625 / d[1]});
    check_close(optimizer.x, optimizer.parameters_of(0));
    CHECK(optimizer.exact_rounds == 2);
    CHECK(optimizer.compressed_rounds == 3);
}

TEST_CASE("oracle: 0/1 Adam's ranks part and meet", "[oracle]") {
    Model model = simple_model(2);
    model.tensors = {{1}, {1, 1}};
    model.groups.push_back({0.1, 0, 0, 1.0, 0, true});
    ZeroOneAdam optimizer(model, {1, 1});
    optimizer.step({{2, 1}, {2, 3}});
    optimizer.freeze_now(); // m = 1, D = 2; steps: 2 a round, 3 local, 4 a round
    optimizer.step({{1, 1}, {1, 1}});
    check_close(optimizer.parameters_of(0), optimizer.parameters_of(1));
    CHECK(optimizer.local_m[0][0] == Approx(1));
    const double dense = optimizer.x[1], start = optimizer.parameters_of(0)[0];
    optimizer.step({{1, 5}, {3, -1}}); // m = 1 and 2; the other tensor's average is 2
    check_close(optimizer.parameters_of(0), {start - 0.05, dense - 0.2 / 3});
    check_close(optimizer.parameters_of(1), {start - 0.1, dense - 0.2 / 3});
    optimizer.step({{1, 0}, {2, 0}}); // m = 1 and 2: -0.2 and -0.4 in all
    CHECK(optimizer.reduce.count() == 1);
    check_close(optimizer.parameters_of(0), {start - 0.3 / 2, dense - 0.2 / 3});
    check_close(optimizer.parameters_of(1), optimizer.parameters_of(0));
    CHECK(optimizer.local_m[1][0] == Approx(1.5));
}

TEST_CASE("oracle: 0/1 Adam's ranks meet on two levels", "[oracle]") {
    Model model = simple_model(4);
    model.tensors = {{40}}; // shards of 32 and 8
    model.places = 2;
    ZeroOneAdam optimizer(model, Vector(40, 1.0));
    PerRank gradients(4, Vector(40, 2.0));
    optimizer.step(gradients);
    optimizer.freeze_now(); // m = 1, D = 2; steps: 2 a round, 3 local, 4 a round
    optimizer.step(gradients);
    const double start = optimizer.parameters_of(0)[0];
    for (std::size_t r = 0; r < 4; ++r) {
        std::fill(gradients[r].begin(), gradients[r].begin() + 32, static_cast<double>(r));
        std::fill(gradients[r].begin() + 32, gradients[r].end(), -20 - static_cast<double>(r));
    }
    optimizer.step(gradients);
    CHECK(optimizer.parameters_of(0)[0] != optimizer.parameters_of(1)[0]);
    optimizer.step(gradients);
    // m was 1.5 before; then (1.5 + g)/2 and (1.5 + 3 g)/4: -0.1 (2.25/2 + 5 g/4) / 2 in all, of the mean g.
    const auto way = [](double g) { return -0.1 * (1.5 * 0.75 + 1.25 * g) / 2; };
    for (std::size_t r = 0; r < 4; ++r) {
        CHECK(optimizer.parameters_of(r)[0] == Approx(start + way(1.5)));
        CHECK(optimizer.parameters_of(r)[39] == Approx(start + way(-21.5)));
        check_close(optimizer.reduce.worker_error(static_cast<int>(r)), Vector(40, 0.0));
    }
}

TEST_CASE("oracle: on two levels 0/1 Adam's ranks each have the bound", "[oracle]") {
    Model model = simple_model(4);
    model.places = 2;
    model.exchange_updates = true;
    ZeroOneAdam optimizer(model, {1, 1});
    const PerRank gradients(4, Vector(2, 2.0));
    optimizer.step(gradients);
    optimizer.step(gradients); // exact at 1, 2, 4: v = 1 and then 1.75
    const double d = std::sqrt(1.75) + 1;
    // g / D is at most 4 / sqrt(1/4) = 8.
    optimizer.step({{100 * d, 100 * d}, {-2 * d, -2 * d}, {d, d}, {3 * d, 3 * d}});
    CHECK(optimizer.reduce.levels[0].worker_c[0][0] == Approx((8 - 2) / 2.0));
    CHECK(optimizer.reduce.levels[0].worker_c[1][0] == Approx(2));
}

TEST_CASE("oracle: 0/1 Adam's mask follows v", "[oracle]") {
    Model model = simple_model(1, 0.5);
    model.variance_updates = 1;
    ZeroOneAdam optimizer(model, {1, 2});
    optimizer.step({{2, 0}});
    optimizer.step({{2, 0}}); // exact at 1, 2, 4
    optimizer.step({{4, 9}}); // the second element is masked: the scale is 4
    CHECK(optimizer.reduce.result[0] == Approx(4));
    CHECK(optimizer.m[1] == 0);
    CHECK(optimizer.x[1] == Approx(2 * 0.95 * 0.95 * 0.95));
    optimizer.step({{2, 8}});
    optimizer.step({{3, 5}});
    CHECK(optimizer.reduce.result[1] == Approx(4));
    CHECK(optimizer.masked() == 0);

    ZeroOneAdam frozen(model, {1, 2});
    frozen.step({{2, 0}});
    frozen.freeze_now();
    CHECK(frozen.masked() == 1);
    for (int t = 2; t <= 4; ++t) frozen.step({{2, 7}});
    CHECK(frozen.parameters_of(0)[1] == Approx(2 * 0.95 * 0.95 * 0.9)); // decay of two steps at once
    CHECK(frozen.local_m[0][1] == 0);
}

TEST_CASE("oracle: 0/1 Adam's corrections count updates", "[oracle]") {
    Model model = simple_model(1);
    model.bias_correction = true;
    model.variance_updates = 1;
    ZeroOneAdam optimizer(model, {1, 1});
    optimizer.step({{2, 2}});
    optimizer.step({{2, 2}});
    optimizer.step({{2, 2}}); // m = 1.75 / (1 - 1/8); two updates of v: 1.75 / (1 - 9/16)
    CHECK(optimizer.v[0] == Approx(1.75));
    CHECK(optimizer.x[0] == Approx(1 - 0.1 * 3 * 2.0 / 3)); // each is 2 and 2^2
    optimizer.freeze_now();
    const double before = optimizer.x[0];
    optimizer.step({{6, 6}}); // m = 0.875 * 2 + 3 = 3.875 (raw), corrected by 15/16
    const double m = 1.75 / 2 + 3, a = 16.0 / 15;
    CHECK(optimizer.parameters_of(0)[0] == Approx(before - 0.1 * a * m / 3));
    CHECK(optimizer.local_m[0][0] == Approx(m)); // L = 0.1 a
    optimizer.model.groups[0].lr = 0;            // L = 0: m stays
    optimizer.step({{0, 0}});
    optimizer.step({{0, 0}});
    CHECK(optimizer.local_m[0][0] == Approx(m / 4));
}
