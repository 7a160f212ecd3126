// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Exact averages where nodes have several ranks each: a node's values are added up first, and then the nodes' sums.
// ONEBIT_NODE_SIZE makes nodes of the ranks of one machine.
#include <limits>

#include "support/environment.hpp"
#include "support/exact_averages.hpp"

using namespace onebit_test;

namespace {

// More elements than recursive doubling takes: one piece, uneven chunks, more pieces than slots with a short last one.
const std::vector<std::uint64_t> counts = {65537, 100003, 8 * 131072 + 77};

struct Nodes {
    int ranks, places;

    int count() const { return ranks / places; }
};

std::vector<Nodes> all_nodes() {
    std::vector<Nodes> all;
    for (const Nodes nodes : {Nodes{4, 2}, Nodes{6, 2}, Nodes{6, 3}, Nodes{12, 4}})
        if (can_have_ranks(nodes.ranks)) all.push_back(nodes);
    return all;
}

void run_on(const Nodes& nodes, const std::function<void(onebit_comm_t, RankLog&)>& body) {
    const Variable node_size("ONEBIT_NODE_SIZE", std::to_string(nodes.places).c_str());
    run_ranks(nodes.ranks, body);
}

void add(std::vector<float>* sum, const std::vector<float>& values) {
    for (std::size_t i = 0; i < sum->size(); ++i) (*sum)[i] += values[i];
}

void scale(std::vector<float>* sum, int ranks) {
    for (float& value : *sum) value *= 1.0f / static_cast<float>(ranks);
}

// In float32: within each node in rank order, then in the order of nodes.
std::vector<float> expected_of(std::uint64_t count, const Nodes& nodes, std::uint64_t step, onebit_op_t op) {
    std::vector<float> total;
    for (int node = 0; node < nodes.count(); ++node) {
        std::vector<float> of_node = input_of(count, node * nodes.places, step);
        for (int place = 1; place < nodes.places; ++place)
            add(&of_node, input_of(count, node * nodes.places + place, step));
        if (op == ONEBIT_OP_AVERAGE) scale(&of_node, nodes.places);
        if (node == 0) {
            total = of_node;
        } else {
            add(&total, of_node);
        }
    }
    if (op == ONEBIT_OP_AVERAGE) scale(&total, nodes.count());
    return total;
}

} // namespace

TEST_CASE("exact averages and sums over nodes of several ranks: within the nodes, then between them",
          "[sum][two_level]") {
    for (const Nodes& nodes : all_nodes()) {
        run_on(nodes, [&nodes](onebit_comm_t comm, RankLog& log) {
            std::uint64_t step = 0;
            for (const std::uint64_t count : counts) {
                for (const onebit_op_t op : {ONEBIT_OP_AVERAGE, ONEBIT_OP_SUM}) {
                    log.context(std::to_string(nodes.places) + " ranks a node, " + std::to_string(count) +
                                " elements, op " + std::to_string(op));
                    onebit_allreduce_config_t config = dense_config(count);
                    config.op = op;
                    config.threads = op == ONEBIT_OP_SUM ? 3 : 1;
                    Allreduce reduce(comm, config, log);
                    for (const bool in_place : {false, true}) {
                        Buffer input(count, in_place), output(count, in_place);
                        input.set(input_of(count, log.rank(), ++step));
                        Buffer& result = in_place ? input : output;
                        ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), input.data(), result.data()));
                        ONEBIT_EXPECT(log, same_bits(result.get(), expected_of(count, nodes, step, op)));
                        ONEBIT_EXPECT(log, input.guards_intact() && output.guards_intact());
                        if (!in_place) ONEBIT_EXPECT(log, same_bits(input.get(), input_of(count, log.rank(), step)));
                    }
                }
            }
        });
    }
}

TEST_CASE("an average over nodes that is representable is delivered, though sums of it are not", "[sum][two_level]") {
    for (const Nodes& nodes : all_nodes()) {
        run_on(nodes, [](onebit_comm_t comm, RankLog& log) {
            const std::uint64_t count = 70001;
            Allreduce reduce(comm, dense_config(count), log);
            const float most = std::numeric_limits<float>::max();
            std::vector<float> values(count, most / 2), result(count);
            values[count - 1] = -most;
            ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), values.data(), result.data()));
            const auto near = [](float a, float b) { return std::fabs(a / b - 1) < 1e-6F; };
            ONEBIT_EXPECT(log, near(result[0], most / 2) && near(result[count - 1], -most));

            if (log.rank() == log.size() - 1) values[count / 2] = std::numeric_limits<float>::infinity();
            ONEBIT_EXPECT(log,
                          onebit_allreduce_run(reduce.get(), values.data(), result.data()) == ONEBIT_ERROR_NONFINITE);
            values[count / 2] = 1;
            ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), values.data(), result.data()));
        });
    }
}

TEST_CASE("an optimizer's exact rounds begun in the backward pass are the same on nodes as on one",
          "[sum][two_level]") {
    const std::uint64_t count = 20011;
    // Whole numbers, whose sums are exact in any order: only a value that is lost or counted twice makes a difference.
    const auto train = [count](onebit_comm_t comm, RankLog& log) {
        std::vector<float> values(3 * count, 1), gradients(3 * count);
        std::vector<onebit_tensor_t> tensors;
        for (std::uint64_t t = 0; t < 3; ++t)
            tensors.push_back(ONEBIT_TENSOR_INIT(values.data() + t * count, gradients.data() + t * count, count));
        onebit_optimizer_config_t config = ONEBIT_OPTIMIZER_CONFIG_INIT(ONEBIT_OPTIMIZER_ADAM, 0.01);
        config.bucket_size = count;
        onebit_optimizer_t optimizer = nullptr;
        ONEBIT_EXPECT_OK(log, onebit_optimizer_create(comm, &config, tensors.data(), tensors.size(), &optimizer));
        for (std::uint64_t step = 0; step < 3; ++step) {
            for (std::uint64_t i = 0; i < gradients.size(); ++i)
                gradients[i] = static_cast<float>((i * 7 + static_cast<std::uint64_t>(log.rank()) * 13 + step) % 101);
            for (std::size_t t = 3; t-- > 0;) ONEBIT_EXPECT_OK(log, onebit_optimizer_grad_ready(optimizer, t));
            ONEBIT_EXPECT_OK(log, onebit_optimizer_step(optimizer));
        }
        ONEBIT_EXPECT_OK(log, onebit_optimizer_destroy(optimizer));
        return values;
    };
    for (const Nodes& nodes : all_nodes()) {
        std::vector<float> on_one_node;
        run_ranks(nodes.ranks, [&](onebit_comm_t comm, RankLog& log) {
            const std::vector<float> values = train(comm, log);
            if (log.rank() == 0 || !can_have_ranks(1)) on_one_node = values; // threads are all here, processes alone
        });
        run_on(nodes,
               [&](onebit_comm_t comm, RankLog& log) { ONEBIT_EXPECT(log, same_bits(train(comm, log), on_one_node)); });
    }
}
