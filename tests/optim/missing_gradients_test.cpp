// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Tensors without gradients, on some ranks or on all, in some steps: the same as zeros, to the bit.
#include "support/training.hpp"

using namespace onebit_test;

namespace {

const Sizes& sizes() {
    static const Sizes all = {5000, 33, 7, 4100, 1, 63};
    return all;
}

// Whether a rank has gradients of a tensor: of the first always, of the last only late.
bool has_gradients(int rank, std::size_t tensor, std::uint64_t step) {
    if (tensor == 0) return true;
    if (tensor + 1 == sizes().size()) return step > 9;
    return (static_cast<std::uint64_t>(rank) + tensor + step) % 3 != 0;
}

std::vector<float> with_zeros_for_none(std::vector<float> all, int rank, std::uint64_t step) {
    auto from = all.begin();
    for (std::size_t k = 0; k < sizes().size(); ++k) {
        const auto end = from + static_cast<std::ptrdiff_t>(sizes()[k]);
        if (!has_gradients(rank, k, step)) std::fill(from, end, 0.0F);
        from = end;
    }
    return all;
}

} // namespace

TEST_CASE("missing gradients are zeros, to the bit", "[optimizer][missing]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Gradient gradient = gaussian_gradient(total(sizes()), 5);
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            for (const std::uint64_t bucket_size : {0, 1500}) {
                for (const onebit_datatype_t type : {ONEBIT_FLOAT32, ONEBIT_FLOAT16, ONEBIT_BFLOAT16}) {
                    Setup setup{quick_config(kind), sizes()};
                    setup.gradient_type = type;
                    setup.config.compressed = ways_to_compress(kind).back();
                    if (type == ONEBIT_FLOAT32) setup.config.compressed = ONEBIT_COMPRESSED_UPDATES;
                    setup.config.bucket_size = bucket_size;
                    setup.config.follow_interval = freezes(kind) ? 2 : 0;
                    if (type == ONEBIT_BFLOAT16) setup.config.max_grad_norm = 40;
                    Training twin(comm, setup, log);
                    setup.config.missing_gradients = 1;
                    Training training(comm, setup, log);
                    for (std::uint64_t t = 1; t <= 16; ++t) {
                        log.context(name_of(kind) + ", type " + std::to_string(type) + ", step " + std::to_string(t));
                        const std::vector<float> mine = gradient(log.rank(), t);
                        training.set_gradients(mine);
                        for (std::size_t k = 0; k < sizes().size(); ++k) {
                            const void* const there = training.gradients(k);
                            const bool has = has_gradients(log.rank(), k, t);
                            ONEBIT_EXPECT_OK(log,
                                             onebit_optimizer_set_gradients(training.get(), k, has ? there : nullptr));
                            const bool ready = bucket_size > 0 && (t + k) % 2 == 0;
                            if (ready) ONEBIT_EXPECT_OK(log, onebit_optimizer_grad_ready(training.get(), k));
                        }
                        ONEBIT_EXPECT_OK(log, onebit_optimizer_step(training.get()));
                        twin.step(with_zeros_for_none(mine, log.rank(), t));
                        ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
                    }
                }
            }
        }
    });
}

TEST_CASE("a rank that has no gradients at all, and a step without any", "[optimizer][missing]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Gradient gradient = gaussian_gradient(total(sizes()), 5);
        const std::vector<const void*> none(sizes().size());
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            Setup setup{quick_config(kind), sizes()};
            Training twin(comm, setup, log);
            setup.config.missing_gradients = 1;
            Training training(comm, setup, log);
            for (std::uint64_t t = 1; t <= 12; ++t) {
                std::vector<float> mine = gradient(log.rank(), t);
                const bool without = t % 5 == 0 || (log.last_rank() && t % 2 == 0);
                if (without) {
                    mine.assign(mine.size(), 0.0F);
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_all_gradients(training.get(), none.data(), none.size()));
                } else {
                    training.set_gradients(mine);
                    for (std::size_t k = 0; k < sizes().size(); ++k)
                        ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradients(training.get(), k, training.gradients(k)));
                }
                ONEBIT_EXPECT_OK(log, onebit_optimizer_step(training.get()));
                twin.step(mine);
                ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
            }
        }
    });
}

TEST_CASE("a setting for missing gradients that can't be", "[optimizer][missing][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        std::vector<float> x(100), g(100);
        const onebit_tensor_t tensor = ONEBIT_TENSOR_INIT(x.data(), g.data(), 100);
        const auto refused = [&](onebit_status_t status, const std::string& needles, int missing) {
            onebit_optimizer_config_t config = optimizer_config(ONEBIT_OPTIMIZER_ADAM);
            config.missing_gradients = missing;
            onebit_optimizer_t optimizer = nullptr;
            ONEBIT_EXPECT_FAILURE(log, status, needles, onebit_optimizer_create(comm, &config, &tensor, 1, &optimizer));
        };
        refused(ONEBIT_ERROR_INVALID_ARGUMENT, "config.missing_gradients;2", 2);
        refused(ONEBIT_ERROR_INVALID_ARGUMENT, "config.missing_gradients;-1", -1);
        if (log.size() > 1) refused(ONEBIT_ERROR_MISMATCH, "config.missing_gradients", log.last_rank() ? 1 : 0);
    });
}
