// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The oracle against cases worked out by hand: the library's reference must itself be tested.
#include "oracle/oracle.hpp"

#include <algorithm>
#include <cmath>

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

void check_ranges(const std::vector<Range>& actual, const std::vector<Range>& expected) {
    REQUIRE(actual.size() == expected.size());
    for (std::size_t j = 0; j < actual.size(); ++j) {
        CHECK(actual[j].begin == expected[j].begin);
        CHECK(actual[j].count == expected[j].count);
    }
}

// Inputs of each rank, in [-1, 1]; they don't repeat.
PerRank made_up(std::size_t ranks, std::size_t count, int step) {
    PerRank values(ranks, Vector(count));
    for (std::size_t r = 0; r < ranks; ++r)
        for (std::size_t i = 0; i < count; ++i)
            values[r][i] = std::sin(1.7 * static_cast<double>(i * i) + 2.3 * static_cast<double>(r + 1) + 0.9 * step);
    return values;
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
    // 64 elements near zero and 64 that are not. Elements 0 and 1 are sent with the opposite sign.
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

TEST_CASE("oracle: two levels, two nodes of two ranks", "[oracle]") {
    // 96 elements: a shard of 64 in place 0, in which each node serves 32; one of 32 in place 1, all node 0's. What is
    // exchanged is 1 in node 0, and -3 in node 1, but for one 3, as in the flat case above; ten times that in shard 1.
    PerRank inputs(4, Vector(96));
    for (std::size_t i = 0; i < 96; ++i) {
        const double size = i < 64 ? 1 : 10;
        inputs[0][i] = size * 5;
        inputs[1][i] = size * -3;
        inputs[2][i] = size * -3;
        inputs[3][i] = size * -3;
    }
    inputs[2][0] = 3;
    inputs[3][0] = 3;
    TwoLevelAllreduce reduce(96, 2, 2, Scale::l1, Group::tensor);
    check_ranges(reduce.shards(), {{0, 64}, {64, 32}});
    check_ranges({reduce.chunk(0), reduce.chunk(1), reduce.chunk(2), reduce.chunk(3)},
                 {{0, 32}, {64, 32}, {32, 32}, {96, 0}});
    CHECK(reduce.ranks() == 4);
    reduce.step(inputs);
    // One scale for each shard and node: 1 and 3, 10 and 30. A server's is of its chunk.
    CHECK(reduce.levels[0].worker_scale[1][63] == 3);
    CHECK(reduce.levels[1].worker_scale[1][0] == 30);
    CHECK(reduce.result[0] == Approx(33.0 / 32));
    CHECK(reduce.result[1] == Approx(-33.0 / 32));
    CHECK(reduce.result[32] == -1);
    CHECK(reduce.result[64] == -10);
    Vector left(96, 0.0);
    for (std::size_t i = 0; i < 32; ++i) left[i] = (i == 0 ? 31.0 : 1.0) / 32;
    check_close(reduce.server_error(0), left);
    for (int rank = 0; rank < 4; ++rank) {
        check_close(reduce.worker_error(rank), Vector(96, 0.0));
        if (rank > 0) check_close(reduce.server_error(rank), Vector(96, 0.0));
    }
    // The flat exchange's scales and errors don't occur here.
    FlatAllreduce flat(96, 4, Scale::l1, Group::tensor);
    flat.step(inputs);
    CHECK(flat.worker_scale[0][0] == Approx(20));
    reduce.step(PerRank(4, Vector(96, 0.0)));
    CHECK(reduce.result[0] == Approx(62.0 / 32 / 32));
    CHECK(reduce.result[64] == 0);
    reduce.reset();
    check_close(reduce.server_error(0), Vector(96, 0.0));
}

TEST_CASE("oracle: two levels of one place are flat", "[oracle]") {
    for (const Group group : {Group::block, Group::tensor}) {
        TwoLevelAllreduce reduce(9001, 3, 1, Scale::l2, group);
        FlatAllreduce flat(9001, 3, Scale::l2, group);
        for (int step = 0; step < 3; ++step) {
            reduce.step(made_up(3, 9001, step));
            flat.step(made_up(3, 9001, step));
            CHECK(reduce.result == flat.result);
        }
        for (int rank = 0; rank < 3; ++rank) {
            const std::size_t r = static_cast<std::size_t>(rank);
            CHECK(reduce.worker_error(rank) == flat.worker_error[r]);
        }
        check_ranges({reduce.chunk(0), reduce.chunk(1), reduce.chunk(2)}, flat.chunks());
    }
}

TEST_CASE("oracle: two levels are a flat exchange of the nodes' averages for each shard", "[oracle]") {
    const auto [nodes, places] = GENERATE(table<int, int>({{2, 2}, {2, 3}, {3, 2}, {4, 2}, {1, 2}}));
    const std::uint64_t count = GENERATE(std::uint64_t{7}, std::uint64_t{97}, std::uint64_t{9001});
    for (const Group group : {Group::block, Group::tensor}) {
        TwoLevelAllreduce reduce(count, nodes, places, Scale::l1, group);
        Vector balance(count, 0.0);
        const std::vector<Range> shards = partition(count, places);
        std::vector<FlatAllreduce> alone;
        for (const Range& shard : shards) alone.emplace_back(shard.count, nodes, Scale::l1, group);
        const std::size_t ranks = static_cast<std::size_t>(nodes * places);
        for (int step = 0; step < 5; ++step) {
            const PerRank inputs = made_up(ranks, count, step);
            reduce.step(inputs);
            for (std::size_t place = 0; place < shards.size(); ++place) {
                PerRank means(static_cast<std::size_t>(nodes), Vector(shards[place].count, 0.0));
                for (std::size_t r = 0; r < ranks; ++r)
                    for (std::uint64_t i = 0; i < shards[place].count; ++i)
                        means[r / shards.size()][i] += inputs[r][shards[place].begin + i] / places;
                alone[place].step(means);
                CHECK(part_of(reduce.result, shards[place]) == alone[place].result);
            }
            // Nothing is lost: what went in has come out or lies in the errors.
            for (std::uint64_t i = 0; i < count; ++i) {
                for (const Vector& input : inputs) balance[i] += input[i] / static_cast<double>(ranks);
                balance[i] -= reduce.result[i];
            }
        }
        std::size_t outside = 0;
        for (int rank = 0; rank < reduce.ranks(); ++rank) {
            const Vector worker = reduce.worker_error(rank), server = reduce.server_error(rank);
            const Range shard = reduce.shard(rank), chunk = reduce.chunk(rank);
            for (std::uint64_t i = 0; i < count; ++i) {
                balance[i] -= worker[i] / nodes + server[i];
                if (worker[i] != 0 && (i < shard.begin || i >= shard.end())) ++outside;
                if (server[i] != 0 && (i < chunk.begin || i >= chunk.end())) ++outside;
            }
        }
        CHECK(outside == 0);
        double lost = 0;
        for (const double each : balance) lost = std::max(lost, std::fabs(each));
        CHECK(lost < 1e-12);
    }
}

TEST_CASE("oracle: on two levels, too, there are masks, and signs to follow", "[oracle]") {
    const std::uint64_t count = 200;
    TwoLevelAllreduce reduce(count, 2, 2, Scale::l2, Group::block), following(count, 2, 2, Scale::l2, Group::block);
    std::vector<bool> mask(count);
    for (std::size_t i = 0; i < count; ++i) mask[i] = i % 3 != 0;
    for (TwoLevelAllreduce* each : {&reduce, &following}) {
        each->step(made_up(4, count, 0));
        each->set_mask(mask);
    }
    CHECK_FALSE(reduce.takes_part(0));
    CHECK(reduce.takes_part(127)); // the last of shard 0, which has a word more
    CHECK_FALSE(reduce.takes_part(129));
    CHECK(reduce.takes_part(130));
    // Node 1 sends element 1 of shard 0 and element 130 (2 of shard 1) with the opposite sign.
    PerRank inputs = made_up(4, count, 1);
    for (const auto& [place, element] : {std::pair<int, std::size_t>{0, 1}, {1, 130}}) {
        const int rank = 2 + place;
        const double error = reduce.worker_error(rank)[element];
        inputs[2][element] = inputs[3][element] = 1e-9 - error;
    }
    reduce.step(inputs);
    CHECK(reduce.result[129] == 0);
    CHECK(reduce.worker_error(3)[129] == 0);
    PerRank left;
    for (int rank = 0; rank < 4; ++rank) left.push_back(reduce.worker_error(rank));
    Vector served(count, 0.0);
    for (int rank = 0; rank < 4; ++rank) {
        const Vector own = reduce.server_error(rank);
        for (std::size_t i = 0; i < count; ++i) served[i] += own[i];
    }
    left[2][1] += 1; // the error is larger than the value: a negative number must have been sent
    left[3][130] += 1;
    following.follow(left, served);
    following.step(inputs);
    CHECK(reduce.levels[0].worker_signs[1][1] == 1);
    CHECK(following.levels[0].worker_signs[1][1] == -1);
    CHECK(following.levels[1].worker_signs[1][130 - 128] == -1);
    CHECK(following.worker_error(3)[130] > 0);
    CHECK(following.worker_error(2)[130] == 0); // not its shard
}
