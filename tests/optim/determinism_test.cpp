// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The same bits with any number of threads, and on every rank; and the number of bytes sent.
#include "support/training.hpp"

using namespace onebit_test;

namespace {

// Several blocks of 4096 elements, no boundary of a tensor on one of a block or word.
const Sizes& large_sizes() {
    static const Sizes sizes = {20001, 3, 9000, 3 * 4096 + 1};
    return sizes;
}

std::vector<std::vector<float>> gradients_of(const RankLog& log, std::uint64_t steps) {
    const Gradient gradient = gaussian_gradient(total(large_sizes()), 1);
    std::vector<std::vector<float>> gradients;
    for (std::uint64_t t = 1; t <= steps; ++t) gradients.push_back(gradient(log.rank(), t));
    return gradients;
}

} // namespace

TEST_CASE("threads change no bit, and all ranks have the same", "[optimizer][determinism]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::vector<std::vector<float>> gradients = gradients_of(log, 14);
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            Setup setup{quick_config(kind), large_sizes()};
            setup.config.compressed = ways_to_compress(kind).back();
            setup.config.weight_decay = 0.01;
            setup.groups.assign(2, ONEBIT_PARAM_GROUP_INIT(0.01));
            setup.groups[1].no_compress = 1;
            setup.group_of = {0, 1, 1, 0};
            setup.copies = true;
            setup.copy_type = ONEBIT_BFLOAT16;
            setup.config.threads = 1;
            Training one(comm, setup, log);
            setup.config.threads = 2;
            Training two(comm, setup, log);
            setup.config.threads = 4;
            Training four(comm, setup, log);
            for (const std::vector<float>& values : gradients) {
                const std::uint64_t rounds = one.info().exact_rounds + one.info().compressed_rounds;
                one.step(values);
                two.step(values);
                four.step(values);
                ONEBIT_EXPECT(log, same_bits(one.parameters(), two.parameters()) && one.copies() == two.copies());
                ONEBIT_EXPECT(log, same_bits(one.parameters(), four.parameters()) && one.copies() == four.copies());
                ONEBIT_EXPECT(log, one.errors().same_as(two.errors()) && one.errors().same_as(four.errors()));
                if (one.info().exact_rounds + one.info().compressed_rounds > rounds)
                    ONEBIT_EXPECT(log, one.parameters_same_on_all());
            }
        }
    });
}

TEST_CASE("the same training twice is the same bits", "[optimizer][determinism]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Sizes sizes = {500, 33, 1000};
        const Gradient gradient = gaussian_gradient(total(sizes), 2);
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            Training once(comm, quick_config(kind), sizes, log);
            once.steps(gradient, 1, 16);
            Training again(comm, quick_config(kind), sizes, log);
            again.steps(gradient, 1, 16);
            ONEBIT_EXPECT(log, same_bits(once.parameters(), again.parameters()));
            ONEBIT_EXPECT(log, once.errors().same_as(again.errors()));
        }
    });
}

TEST_CASE("the compressed stage sends little", "[optimizer]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::vector<std::vector<float>> gradients = gradients_of(log, 16);
        for (onebit_optimizer_kind_t kind : freezing_kinds()) {
            log.context(name_of(kind));
            Training training(comm, quick_config(kind), large_sizes(), log);
            for (const std::vector<float>& values : gradients) {
                training.step(values);
                if (training.info().steps == 6) ONEBIT_EXPECT(log, training.info().compressed_bytes_sent == 0);
            }
            const onebit_optimizer_info_t info = training.info();
            // 0/1 Adam, frozen after step 6: rounds at 7, 8, 9, 10, 12 and 16.
            const double rounds = kind == ONEBIT_OPTIMIZER_ZERO_ONE_ADAM ? 6 : 10;
            const double peers = log.size() - 1, d = static_cast<double>(total(large_sizes()));
            // Signs, a scale for each block begun, half a word of each chunk; 64 bytes for each peer and step.
            const double signs = 2 * peers / log.size() * d / 8;
            const double most = signs + 2 * peers * (4 * (d / log.size() / 4096 + 1) + 8);
            const double sent = static_cast<double>(info.compressed_bytes_sent);
            ONEBIT_EXPECT(log, sent <= rounds * most + 10 * 64 * peers);
            ONEBIT_EXPECT(log, sent >= rounds * (signs - 8 * peers));
            ONEBIT_EXPECT(log, (info.warmup_bytes_sent == 0) == (log.size() == 1));
            ONEBIT_EXPECT(log, info.state_bytes > 0);
        }
    });
}
