// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The oracle against cases worked out by hand: what judges the library must be trusted first.
#include "oracle/oracle.hpp"

#include <catch2/catch.hpp>

using namespace oracle;

namespace {

void check_close(const Vector& actual, const Vector& expected) {
    REQUIRE(actual.size() == expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
        INFO("element " << i);
        CHECK(actual[i] == Approx(expected[i]).margin(1e-13).epsilon(1e-13));
    }
}

void check_ranges(const std::vector<Range>& actual, const std::vector<Range>& expected) {
    REQUIRE(actual.size() == expected.size());
    for (std::size_t j = 0; j < actual.size(); ++j) {
        CHECK(actual[j].begin == expected[j].begin);
        CHECK(actual[j].count == expected[j].count);
    }
}

} // namespace

TEST_CASE("oracle: partition into whole words", "[oracle]") {
    check_ranges(partition(100, 3), {{0, 64}, {64, 32}, {96, 4}}); // 4 words: 2 + 1 + 1, the last clipped
    check_ranges(partition(64, 2), {{0, 32}, {32, 32}});
    check_ranges(partition(3, 4), {{0, 3}, {3, 0}, {3, 0}, {3, 0}}); // fewer words than ranks
    check_ranges(partition(4097, 1), {{0, 4097}});
    check_ranges(partition(33, 2), {{0, 32}, {32, 1}});
}

TEST_CASE("oracle: blocks count from the chunk's start", "[oracle]") {
    check_ranges(blocks_of({64, 4097}), {{64, 4096}, {4160, 1}});
    check_ranges(blocks_of({64, 4096}), {{64, 4096}});
    CHECK(blocks_of({64, 0}).empty());
}

TEST_CASE("oracle: one rank, two steps, L1", "[oracle]") {
    FlatAllreduce reduce(2, 1, Scale::l1, Group::tensor);
    reduce.step({{3, -1}}); // scale 2; the server receives (2, -2) and loses nothing
    check_close(reduce.worker_c[0], {3, -1});
    check_close(reduce.worker_error[0], {1, 1});
    check_close(reduce.server_c, {2, -2});
    check_close(reduce.server_error, {0, 0});
    check_close(reduce.result, {2, -2});
    reduce.step({{0, 0}}); // the errors alone: (1, 1)
    check_close(reduce.result, {1, 1});
    check_close(reduce.worker_error[0], {0, 0});
}

TEST_CASE("oracle: L2 is the root mean square", "[oracle]") {
    FlatAllreduce reduce(2, 1, Scale::l2, Group::block);
    reduce.step({{7, -1}}); // (49 + 1) / 2 = 25
    check_close(reduce.result, {5, -5});
    check_close(reduce.worker_error[0], {2, 4});
}

TEST_CASE("oracle: two ranks, server error carried over", "[oracle]") {
    // 64 elements, so each rank serves 32. Rank 0 sends scale 1, rank 1 scale 3 with one sign turned.
    Vector a(64, 1.0), b(64, -3.0);
    b[0] = 3;
    FlatAllreduce reduce(64, 2, Scale::l1, Group::block);
    reduce.step({a, b});
    // Chunk 0: y = (2, -1, -1, ...), scale 33/32. Chunk 1: y = -1 throughout, scale 1.
    CHECK(reduce.server_c[0] == 2);
    CHECK(reduce.server_c[1] == -1);
    CHECK(reduce.result[0] == Approx(33.0 / 32));
    CHECK(reduce.result[1] == Approx(-33.0 / 32));
    CHECK(reduce.result[32] == -1);
    CHECK(reduce.server_error[0] == Approx(31.0 / 32));
    CHECK(reduce.server_error[1] == Approx(1.0 / 32));
    CHECK(reduce.server_error[32] == 0);
    check_close(reduce.worker_error[0], Vector(64, 0.0));
    check_close(reduce.worker_error[1], Vector(64, 0.0));
    // All that is left comes out with the next input: y = (31/32, 1/32, 1/32, ...), scale 62/32/32.
    reduce.step({Vector(64, 0.0), Vector(64, 0.0)});
    CHECK(reduce.result[0] == Approx(62.0 / 32 / 32));
    CHECK(reduce.result[1] == Approx(62.0 / 32 / 32));
    CHECK(reduce.result[32] == 0);
}

TEST_CASE("oracle: the groups that share a scale", "[oracle]") {
    SECTION("chunks of the worker's buffer") {
        Vector x(33, 4.0);
        x[32] = 2;
        FlatAllreduce tensor(33, 2, Scale::l1, Group::tensor), block(33, 2, Scale::l1, Group::block);
        tensor.step({x, x});
        block.step({x, x});
        CHECK(tensor.worker_scale[0][0] == Approx(130.0 / 33));
        CHECK(tensor.worker_scale[1][32] == Approx(130.0 / 33));
        check_close(block.result, x); // each chunk is constant
    }
    SECTION("blocks within a chunk") {
        Vector x(4097, 1.0);
        x[4096] = 5;
        FlatAllreduce tensor(4097, 1, Scale::l1, Group::tensor), block(4097, 1, Scale::l1, Group::block);
        tensor.step({x});
        block.step({x});
        CHECK(tensor.result[4096] == Approx(4101.0 / 4097));
        CHECK(tensor.result[0] == Approx(4101.0 / 4097));
        check_close(block.result, x);
    }
}

TEST_CASE("oracle: both zeros are positive", "[oracle]") {
    CHECK(sign_of(-0.0) == 1);
    FlatAllreduce reduce(2, 1, Scale::l1, Group::tensor);
    reduce.step({{-0.0, -2}});
    check_close(reduce.result, {1, -1});
    check_close(reduce.worker_error[0], {-1, -1});
}

TEST_CASE("oracle: outside the mask all is zero and not counted", "[oracle]") {
    FlatAllreduce reduce(3, 1, Scale::l1, Group::tensor);
    reduce.step({{4, 1, 1}});
    reduce.set_mask({false, true, true});
    CHECK(reduce.worker_error[0][0] == 0);
    CHECK(reduce.worker_error[0][1] != 0);
    reduce.worker_error = {{0, 0, 0}};
    reduce.server_error = {0, 0, 0};
    reduce.step({{100, 3, -1}}); // the mean of 3 and 1
    check_close(reduce.result, {0, 2, -2});
    check_close(reduce.worker_error[0], {0, 1, 1});
}

TEST_CASE("oracle: signs can be fed and are judged", "[oracle]") {
    FlatAllreduce reduce(2, 1, Scale::l1, Group::tensor);
    reduce.step({{3, 1e-9}}, {{1, -1}}, {1, -1});
    CHECK(reduce.worker_error[0][1] > 1.4); // 1e-9 + 1.5
    CHECK(reduce.result[1] < 0);
    const Vector tolerance(2, 1e-6);
    CHECK(first_implausible_sign({1, -1}, {3, 1e-9}, tolerance) == -1);
    CHECK(first_implausible_sign({1, -1}, {3, 1e-3}, tolerance) == 1);
    CHECK(first_implausible_sign({-1, 1}, {3, 1e-3}, tolerance) == 0);
}

TEST_CASE("oracle: signs can be followed by the errors they leave", "[oracle]") {
    // 64 elements near zero and 64 that are not: 0 and 1 are sent the other way round.
    Vector a(128, 3.0), b(128, -1.0);
    a[0] = a[64] = 1e-9;
    FlatAllreduce forced(128, 2, Scale::l2, Group::block), following(128, 2, Scale::l2, Group::block);
    std::vector<Signs> worker = {Signs(128, 1), Signs(128, -1)};
    worker[0][0] = worker[0][64] = -1;
    Signs server(128, 1);
    for (std::size_t i : {0, 64, 65}) server[i] = -1;
    forced.step({a, b}, worker, server);
    following.follow(forced.worker_error, forced.server_error);
    following.step({a, b});
    CHECK(following.worker_signs == worker);
    CHECK(following.server_signs == server);
    check_close(following.result, forced.result);
    check_close(following.worker_error[0], forced.worker_error[0]);
    following.step({a, b}); // for one step only
    CHECK(following.server_signs[65] == sign_of(following.server_c[65]));
    following.reset();
    check_close(following.server_error, Vector(128, 0.0));
    check_close(following.worker_error[1], Vector(128, 0.0));
}
