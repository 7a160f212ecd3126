// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The C++ layer's destructors during operations, and both halves of an allreduce. (header_test.cpp tests the rest.)
#include <onebit/onebit.hpp>
#include <optional>

#include "support/handles.hpp"

using namespace onebit_test;

namespace {

// Two tensors, a bucket each.
struct Problem {
    std::vector<float> x = std::vector<float>(2000, 1), g = std::vector<float>(2000, 0.5f);

    onebit_optimizer_t make(onebit_comm_t comm, RankLog& log, onebit_optimizer_kind_t kind) {
        onebit_optimizer_config_t config = ONEBIT_OPTIMIZER_CONFIG_INIT(kind, 0.125);
        config.bucket_size = 1000;
        const onebit_tensor_t tensors[] = {ONEBIT_TENSOR_INIT(x.data(), g.data(), 1000),
                                           ONEBIT_TENSOR_INIT(x.data() + 1000, g.data() + 1000, 1000)};
        onebit_optimizer_t handle = nullptr;
        ONEBIT_EXPECT_OK(log, onebit_optimizer_create(comm, &config, tensors, 2, &handle));
        return handle;
    }
};

using Owner = onebit::UniqueHandle<onebit_optimizer_t, onebit::cancel_and_destroy>;

} // namespace

TEST_CASE("an optimizer's destructor gives up the step that has begun", "[optimizer][cpp]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : {ONEBIT_OPTIMIZER_ADAM, ONEBIT_OPTIMIZER_ONEBIT_ADAM}) {
            for (const bool all_ready : {false, true}) { // on the last rank, whose owner is destroyed; other ranks step
                log.context(std::string("kind ") + std::to_string(kind) + (all_ready ? ", all ready" : ""));
                Problem problem;
                const std::vector<float> before = problem.x;
                const onebit_optimizer_t handle = problem.make(comm, log, kind);
                std::optional<Owner> owner(std::in_place, handle);
                ONEBIT_EXPECT_OK(log, onebit_optimizer_grad_ready(handle, 1));
                if (all_ready || !log.last_rank()) ONEBIT_EXPECT_OK(log, onebit_optimizer_grad_ready(handle, 0));
                if (!log.last_rank()) {
                    const onebit_status_t status = onebit_optimizer_step(handle);
                    ONEBIT_EXPECT(log, status == ONEBIT_ERROR_CANCELLED);
                    ONEBIT_EXPECT(log, holds(onebit_last_error(), "rank " + std::to_string(log.size() - 1) +
                                                                      ";its optimizer was destroyed"));
                }
                owner.reset();
                ONEBIT_EXPECT(log, same_bits(problem.x, before));
                ONEBIT_EXPECT(log, log.same_on_all(problem.x.data(), problem.x.size() * sizeof(float)));
                ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_HANDLE, onebit_optimizer_step(handle)); // released
            }
        }
    });
}

TEST_CASE("an allreduce in its halves, the second one finished by its destructor", "[shards][cpp]") {
    for_each_size(1, [](onebit_comm_t comm, RankLog& log) {
        onebit_comm_t mine = nullptr;
        ONEBIT_EXPECT_OK(log, onebit_comm_split(comm, 0, log.rank(), &mine));
        const onebit::Communicator communicator(mine);
        std::vector<std::uint64_t> counts; // a shard is larger than the one before it
        std::uint64_t begin = 0, whole = 0;
        for (int rank = 0; rank < log.size(); ++rank) {
            counts.push_back(40 * (static_cast<std::uint64_t>(rank) + 1));
            if (rank < log.rank()) begin += counts.back();
            whole += counts.back();
        }
        onebit_shard_config_t config = ONEBIT_SHARD_CONFIG_INIT(whole);
        config.counts = counts.data();
        config.algorithm = ONEBIT_ALGORITHM_DENSE;
        config.op = ONEBIT_OP_SUM;
        std::vector<float> values, sum;
        for (std::uint64_t i = 0; i < whole; ++i) {
            values.push_back(static_cast<float>((static_cast<std::uint64_t>(log.rank()) + 1) * (i % 7)));
            sum.push_back(static_cast<float>(counts.size() * (counts.size() + 1) / 2 * (i % 7)));
        }
        int finished = 0;
        const auto count = [](void* context, onebit_status_t status) {
            *static_cast<int*>(context) += status == ONEBIT_SUCCESS ? 1 : 0;
        };
        {
            onebit::ReduceScatter made(communicator, config);
            onebit::ReduceScatter reduce_scatter(std::move(made));
            const onebit_shard_info_t info = reduce_scatter.info();
            ONEBIT_EXPECT(log, info.shard_begin == begin && info.algorithm == ONEBIT_ALGORITHM_DENSE);
            ONEBIT_EXPECT(log, info.shard_count == counts[static_cast<std::size_t>(log.rank())]);
            reduce_scatter.run(values.data(), values.data() + begin);
            config.op = ONEBIT_OP_AVERAGE; // 0: a gather has no operation
            onebit::AllGather all_gather(communicator, config);
            all_gather.set_callback(count, &finished);
            all_gather.start(values.data() + begin, values.data());
        }
        ONEBIT_EXPECT(log, finished == 1 && same_bits(values, sum));
        counts[0] += 1;
        try {
            const onebit::AllGather refused(communicator, config);
            ONEBIT_EXPECT(log, false);
        } catch (const onebit::Error& error) {
            ONEBIT_EXPECT(log, error.status() == ONEBIT_ERROR_INVALID_ARGUMENT && holds(error.what(), "counts"));
        }
    });
}
