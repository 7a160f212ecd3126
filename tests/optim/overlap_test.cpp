// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Exchanges that begin in the backward pass. An early begin changes only the time. A step that has begun can still be
// refused.
#include <limits>

#include "optim/buckets.hpp"
#include "support/directory.hpp"
#include "support/environment.hpp"
#include "support/training.hpp"

using namespace onebit_test;

namespace {

constexpr onebit_status_t bad = ONEBIT_ERROR_INVALID_ARGUMENT;
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

// With buckets {6, 5}, {4, 3, 2} and {1, 0} of compressed tensors, and {7}, which isn't compressed.
Setup bucket_setup(onebit_optimizer_kind_t kind) {
    Setup setup{quick_config(kind), {1400, 800, 660, 3, 1221, 400, 1800, 600}};
    setup.config.weight_decay = 0.1;
    setup.config.bucket_size = 2200;
    setup.groups.assign(2, ONEBIT_PARAM_GROUP_INIT(0.01));
    setup.groups[1].no_compress = 1;
    setup.group_of = {0, 0, 0, 0, 0, 0, 0, 1};
    return setup;
}

Order backwards(const Setup& setup) {
    Order order = forwards(setup);
    std::reverse(order.begin(), order.end());
    return order;
}
} // namespace

TEST_CASE("when gradients are ready changes nothing, whatever the order and the rank", "[optimizer][overlap]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            for (const bool clipped : {false, true}) {
                Setup setup = bucket_setup(kind);
                setup.config.max_grad_norm = clipped ? 40 : 0;
                setup.config.group = clipped ? ONEBIT_GROUP_BUFFER : ONEBIT_GROUP_BLOCK;
                setup.gradient_type = clipped ? ONEBIT_FLOAT16 : ONEBIT_FLOAT32;
                Training expected(comm, setup, log), in_order(comm, setup, log);
                if (kind == ONEBIT_OPTIMIZER_ONEBIT_ADAM) setup.config.threads = 2;
                Training mixed(comm, setup, log);
                const Gradient gradient = gaussian_gradient(total(setup.sizes), 1);
                for (std::uint64_t t = 1; t <= 17; ++t) {
                    log.context(name_of(kind) + (clipped ? ", clipped, step " : ", step ") + std::to_string(t));
                    std::vector<float> values = gradient(log.rank(), t);
                    std::fill(values.begin() + 100, values.begin() + 120, 0.0f); // to be masked
                    expected.step(values);
                    step(in_order, values, backwards(setup), log);
                    step(mixed, values, shuffled(setup, log.rank(), t), log);
                    ONEBIT_EXPECT(log, Snapshot(in_order).same_as(Snapshot(expected)));
                    ONEBIT_EXPECT(log, Snapshot(mixed).same_as(Snapshot(expected)));
                }
                ONEBIT_EXPECT(log, expected.info().masked == (freezes(kind) ? 20U : 0U));
            }
        }
    });
}

TEST_CASE("one bucket gives what no buckets give", "[optimizer][overlap]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            for (const onebit_compressed_t compressed : ways_to_compress(kind)) {
                log.context(name_of(kind) + ", way " + std::to_string(compressed));
                Setup setup = bucket_setup(kind);
                setup.sizes = {4097, 300, 33, 1, 61, 20, 9000, 30};
                setup.config.compressed = compressed;
                setup.config.bucket_size = 1000000;
                Training early(comm, setup, log);
                setup.config.bucket_size = 0;
                Training plain(comm, setup, log);
                const Gradient gradient = in_eighths(gaussian_gradient(total(setup.sizes), 1));
                for (std::uint64_t t = 1; t <= 17; ++t) {
                    const std::vector<float> values = gradient(log.rank(), t);
                    step(early, values, backwards(setup), log);
                    plain.step(values);
                    ONEBIT_EXPECT(log, Snapshot(early).same_as(Snapshot(plain)));
                }
            }
        }
    });
}

TEST_CASE("buckets are trained as optimizers of their own would be", "[optimizer][overlap]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            Setup setup{quick_config(kind), {1100, 500, 600, 5000}};
            setup.config.bucket_size = 1200; // 5000 are a bucket all the same
            Training whole(comm, setup, log);
            const std::vector<float> start = initial_parameters(total(setup.sizes));
            const auto part_of = [](const std::vector<float>& all, std::size_t begin, std::size_t end) {
                return std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(begin),
                                          all.begin() + static_cast<std::ptrdiff_t>(end));
            };
            const std::vector<Sizes> parts = {{1100}, {500, 600}, {5000}};
            std::vector<std::unique_ptr<Training>> alone;
            std::size_t begin = 0;
            for (const Sizes& part : parts) {
                Setup own{quick_config(kind), part};
                alone.push_back(std::make_unique<Training>(comm, own, part_of(start, begin, begin + total(part)), log));
                begin += total(part);
            }
            const Gradient gradient = in_eighths(gaussian_gradient(total(setup.sizes), 1));
            for (std::uint64_t t = 1; t <= 17; ++t) {
                const std::vector<float> values = gradient(log.rank(), t);
                step(whole, values, backwards(setup), log);
                std::vector<float> together;
                begin = 0;
                for (std::size_t p = 0; p < parts.size(); ++p) {
                    alone[p]->step(part_of(values, begin, begin + total(parts[p])));
                    begin += total(parts[p]);
                    const std::vector<float> own = alone[p]->parameters();
                    together.insert(together.end(), own.begin(), own.end());
                }
                ONEBIT_EXPECT(log, same_bits(whole.parameters(), together));
            }
        }
    });
}

TEST_CASE("exchanges begin when gradients are ready", "[optimizer][overlap]") {
    run_ranks(rank_counts().back(), [](onebit_comm_t comm, RankLog& log) {
        if (log.size() == 1) return; // nothing is sent
        const Setup setup = bucket_setup(ONEBIT_OPTIMIZER_ONEBIT_ADAM);
        Training training(comm, setup, log);
        const Gradient gradient = gaussian_gradient(total(setup.sizes), 1);
        for (std::uint64_t t = 1; t <= 10; ++t) {
            log.context("step " + std::to_string(t));
            training.set_gradients(gradient(log.rank(), t));
            const auto sent = [&] {
                const onebit_optimizer_info_t info = training.info();
                return info.warmup_bytes_sent + info.compressed_bytes_sent;
            };
            // Not in the step after the freeze. The bucket {7} comes first, {6, 5} waits for it.
            const bool early = t != 7;
            std::uint64_t before = sent();
            announce(training, {6, 5, 4, 0}, log);
            ONEBIT_EXPECT(log, sent() == before);
            announce(training, {7}, log);
            ONEBIT_EXPECT(log, (sent() > before) == early);
            log.barrier(); // so that nothing of these two is left to be sent after the next call
            announce(training, {1}, log);
            log.barrier();
            announce(training, {3}, log);
            before = sent();
            announce(training, {2}, log); // the last of {4, 3, 2}, and {1, 0} is ready
            ONEBIT_EXPECT(log, (sent() > before) == early);
            ONEBIT_EXPECT_OK(log, onebit_optimizer_step(training.get()));
        }
    });
}

TEST_CASE("a step that has begun is refused and changes nothing", "[optimizer][overlap][overflow]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            const Setup setup = bucket_setup(kind);
            const Gradient gradient = gaussian_gradient(total(setup.sizes), 1);
            Training training(comm, setup, log), twin(comm, setup, log);
            std::uint64_t skipped = 0;
            for (std::uint64_t t = 1; t <= 17; ++t) {
                log.context(name_of(kind) + ", step " + std::to_string(t));
                const int faulty = static_cast<int>(t) % log.size();
                const std::string culprit = ";rank " + std::to_string(faulty);
                const Snapshot before(training);

                std::vector<float> wrong = gradient(log.rank(), 1000 + t);
                if (log.rank() == faulty) wrong[t * 17 % wrong.size()] = not_a_number;
                training.set_gradients(wrong);
                announce(training, shuffled(setup, log.rank(), t), log);
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "nan" + culprit,
                                      onebit_optimizer_step(training.get()));
                ONEBIT_EXPECT(log, Snapshot(training).same_as(before));
                ONEBIT_EXPECT(log, training.info().skipped == ++skipped);

                // Another rank lacks a tensor's gradients.
                training.set_gradients(gradient(log.rank(), 2000 + t));
                const std::size_t missing = t % setup.sizes.size();
                const void* const place = training.gradients(missing);
                Order order = backwards(setup);
                if (log.rank() == faulty) {
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradients(training.get(), missing, nullptr));
                    order.erase(std::find(order.begin(), order.end(), missing));
                }
                announce(training, order, log);
                ONEBIT_EXPECT_FAILURE(log, bad, "gradients" + culprit, onebit_optimizer_step(training.get()));
                ONEBIT_EXPECT(log, Snapshot(training).same_as(before));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradients(training.get(), missing, place));

                step(training, gradient(log.rank(), t), backwards(setup), log);
                twin.steps(gradient, t, t);
                ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
            }
        }
    });
}

// In one bucket of three: the others' exchanges must not count either, whether early or, right after the freeze, late.
TEST_CASE("a message that overflows refuses the step as a whole", "[optimizer][overlap][overflow]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : freezing_kinds()) {
            const Setup setup = bucket_setup(kind);
            const bool zero_one = kind == ONEBIT_OPTIMIZER_ZERO_ONE_ADAM; // compresses before the freeze
            const Gradient gradient = gaussian_gradient(total(setup.sizes), 1);
            Training training(comm, setup, log), twin(comm, setup, log);
            for (std::uint64_t t = 1; t <= (zero_one ? 6U : 10U); ++t) {
                log.context(name_of(kind) + ", step " + std::to_string(t));
                if (zero_one ? t == 3 || t == 5 : t == 7 || t == 9) {
                    const Snapshot before(training);
                    std::vector<float> huge = gradient(log.rank(), 1000 + t);
                    huge[1500] = std::numeric_limits<float>::max();
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(training.get(), 1e-6));
                    training.set_gradients(huge);
                    announce(training, backwards(setup), log);
                    ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "overflow",
                                          onebit_optimizer_step(training.get()));
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(training.get(), 1));
                    ONEBIT_EXPECT(log, Snapshot(training).same_as(before));
                }
                step(training, gradient(log.rank(), t), backwards(setup), log);
                twin.steps(gradient, t, t);
                ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
            }
        }
    });
}

TEST_CASE("a step that has begun keeps its settings", "[optimizer][overlap][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        SharedDirectory directory(log);
        const std::string prefix = directory.prefix("training");
        const auto busy = [&](onebit_status_t status) {
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BUSY, "onebit_optimizer_step;cancel_step", status);
        };
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            const Setup setup = bucket_setup(kind);
            const Gradient gradient = gaussian_gradient(total(setup.sizes), 1);
            Training training(comm, setup, log), twin(comm, setup, log);
            std::vector<float> error(total(setup.sizes));
            const onebit_optimizer_t handle = training.get();
            for (std::uint64_t t = 1; t <= 12; ++t) {
                log.context(name_of(kind) + ", step " + std::to_string(t));
                training.set_gradients(gradient(log.rank(), t));
                announce(training, {7, 5}, log);
                const auto set = [&](onebit_optimizer_t optimizer) { // the next step's
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_lr(optimizer, 0.01 + 0.001 * double(t)));
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_group_lr(optimizer, 0, 0.02 / double(t)));
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(optimizer, 1 + double(t % 3)));
                };
                set(handle);
                busy(onebit_optimizer_set_gradients(handle, 7, error.data()));
                busy(onebit_optimizer_set_parameters(handle, 0, error.data()));
                const std::vector<const void*> nowhere(8);
                busy(onebit_optimizer_set_all_gradients(handle, nowhere.data(), 8));
                busy(onebit_optimizer_freeze(handle));
                busy(onebit_optimizer_reset_error(handle));
                busy(onebit_optimizer_get_error(handle, error.data(), nullptr));
                busy(onebit_optimizer_save(handle, prefix.c_str()));
                busy(onebit_optimizer_load(handle, prefix.c_str()));
                busy(onebit_optimizer_destroy(handle));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradients(handle, 0, training.gradients(0)));

                ONEBIT_EXPECT_FAILURE(log, bad, "already", onebit_optimizer_grad_ready(handle, 7));
                ONEBIT_EXPECT_FAILURE(log, bad, "tensor: 8", onebit_optimizer_grad_ready(handle, 8));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradients(handle, 2, nullptr));
                ONEBIT_EXPECT_FAILURE(log, bad, "no gradients", onebit_optimizer_grad_ready(handle, 2));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradients(handle, 2, training.gradients(2)));
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_HANDLE, "optimizer",
                                      onebit_optimizer_grad_ready(nullptr, 0));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_step(handle));
                twin.steps(gradient, t, t);
                set(twin.get());
                ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
            }
            Setup without = setup;
            without.config.bucket_size = 0;
            Training plain(comm, without, log);
            ONEBIT_EXPECT_FAILURE(log, bad, "bucket_size", onebit_optimizer_grad_ready(plain.get(), 0));
        }
    });
}

TEST_CASE("ranks that differ when a step has begun", "[optimizer][overlap][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        if (log.size() == 1) return;
        for (onebit_optimizer_kind_t kind : freezing_kinds()) {
            log.context(name_of(kind));
            const Setup setup = bucket_setup(kind);
            const Gradient gradient = gaussian_gradient(total(setup.sizes), 1);
            Training training(comm, setup, log), twin(comm, setup, log);
            training.steps(gradient, 1, 4);
            twin.steps(gradient, 1, 4);

            // Ranks differ in the learning rate: the step is refused, without damage.
            ONEBIT_EXPECT_OK(log, onebit_optimizer_set_lr(training.get(), log.last_rank() ? 0.02 : 0.01));
            training.set_gradients(gradient(log.rank(), 5));
            announce(training, backwards(setup), log);
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "learning rate", onebit_optimizer_step(training.get()));
            ONEBIT_EXPECT_OK(log, onebit_optimizer_set_lr(training.get(), 0.01));
            training.steps(gradient, 5, 5);
            twin.steps(gradient, 5, 5);
            ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));

            // Ranks differ in the stage: some ranks have begun exchanges that the others never begin. All ranks fail at
            // once and for good, even if a rank has another error to report.
            if (log.last_rank()) ONEBIT_EXPECT_OK(log, onebit_optimizer_freeze(training.get()));
            std::vector<float> values = gradient(log.rank(), 6);
            if (log.rank() == 0) values[5] = not_a_number;
            training.set_gradients(values);
            announce(training, backwards(setup), log);
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "stage", onebit_optimizer_step(training.get()));
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "broken;stage", onebit_optimizer_step(training.get()));
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "broken", onebit_optimizer_grad_ready(training.get(), 0));
        }
    });
}

TEST_CASE("nothing to compress, in buckets too", "[optimizer][overlap][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        std::vector<float> x(5000), g(5000);
        const onebit_tensor_t tensor = ONEBIT_TENSOR_INIT(x.data(), g.data(), x.size());
        onebit_param_group_t group = ONEBIT_PARAM_GROUP_INIT(0.01);
        group.no_compress = 1;
        onebit_optimizer_config_t config = quick_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM);
        config.groups = &group;
        config.num_groups = 1;
        for (const std::uint64_t bucket_size : {0, ONEBIT_BUCKET_SIZE_SUGGESTED}) {
            config.bucket_size = bucket_size;
            onebit_optimizer_t optimizer = nullptr;
            ONEBIT_EXPECT_FAILURE(log, bad, "to be compressed",
                                  onebit_optimizer_create(comm, &config, &tensor, 1, &optimizer));
        }
    });
}

// The exchanges have begun and will never end. The status is clear, also in later calls, and no memory is freed that
// may still be written to.
TEST_CASE("a rank that never makes the step that others have begun", "[optimizer][overlap][timeout]") {
    const int n = GENERATE(from_range(rank_counts()));
    if (n != 3) return; // the test takes seconds
    const Variable timeout("ONEBIT_TIMEOUT", "2");
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const std::uint64_t last : {3, 8}) { // in the warm-up, and after it
            const Setup setup = bucket_setup(ONEBIT_OPTIMIZER_ONEBIT_ADAM);
            const Gradient gradient = gaussian_gradient(total(setup.sizes), 1);
            Training training(comm, setup, log);
            training.steps(gradient, 1, last);
            if (!log.last_rank()) {
                training.set_gradients(gradient(log.rank(), last + 1));
                announce(training, backwards(setup), log);
                ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_TIMEOUT, onebit_optimizer_step(training.get()));
                ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_TIMEOUT, onebit_optimizer_step(training.get()));
                ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_TIMEOUT, onebit_optimizer_grad_ready(training.get(), 0));
            }
            log.barrier();
        }
    });
}

TEST_CASE("buckets are saved and loaded", "[optimizer][overlap][save]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            for (std::uint64_t at : {4, 6, 9, 11}) {
                log.context(name_of(kind) + " after step " + std::to_string(at));
                SharedDirectory directory(log);
                const std::string prefix = directory.prefix("training");
                Setup setup = bucket_setup(kind);
                const Gradient gradient = gaussian_gradient(total(setup.sizes), 1);
                Training uninterrupted(comm, setup, log), resumed(comm, setup, log);
                for (std::uint64_t t = 1; t <= at; ++t)
                    step(uninterrupted, gradient(log.rank(), t), backwards(setup), log);
                ONEBIT_EXPECT_OK(log, onebit_optimizer_save(uninterrupted.get(), prefix.c_str()));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_load(resumed.get(), prefix.c_str()));
                for (std::uint64_t t = at + 1; t <= at + 8; ++t) {
                    for (Training* training : {&uninterrupted, &resumed})
                        step(*training, gradient(log.rank(), t), backwards(setup), log);
                    ONEBIT_EXPECT(log, Snapshot(uninterrupted).same_as(Snapshot(resumed)));
                }
                setup.config.bucket_size = 4000;
                Training other(comm, setup, log);
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE, "bucket",
                                      onebit_optimizer_load(other.get(), prefix.c_str()));
            }
        }
    });
}

TEST_CASE("what buckets take in memory", "[optimizer][overlap][memory]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable node_size("ONEBIT_NODE_SIZE", "1"); // no shared memory, which only a step without buckets uses
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : {ONEBIT_OPTIMIZER_ADAM, ONEBIT_OPTIMIZER_ONEBIT_ADAM}) {
            log.context(name_of(kind));
            Setup setup{quick_config(kind), {10000, 20000, 15000}};
            Training plain(comm, setup, log);
            setup.config.bucket_size = 20000;
            Training early(comm, setup, log);
            const Gradient gradient = gaussian_gradient(total(setup.sizes), 1);
            for (Training* training : {&plain, &early}) training->steps(gradient, 1, 8);
            const std::uint64_t count = total(setup.sizes), ranks = static_cast<std::uint64_t>(log.size());
            const std::uint64_t plain_bytes = plain.info().state_bytes, early_bytes = early.info().state_bytes;
            // What arrives of exact sums; after the freeze, the errors of a step that may yet be refused, its messages.
            const std::uint64_t promised =
                freezes(kind) ? 4 * count + 4 * count / ranks + count / 8 : 4 * count * (ranks - 1) / ranks;
            // The other has up to 8 bytes per element for exact sums, as long as it makes them.
            const std::uint64_t of_sums = freezes(kind) ? 0 : 8 * count;
            ONEBIT_EXPECT(log, early_bytes + of_sums + 8192 >= plain_bytes + promised);
            ONEBIT_EXPECT(log, early_bytes <= plain_bytes + promised + count / 256 + 8192);
        }
    });
}

TEST_CASE("exact averages of buckets take no shared memory, which they have no use for",
          "[optimizer][overlap][memory]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Setup setup{quick_config(ONEBIT_OPTIMIZER_ADAM), {10000, 20000, 15000}};
        setup.config.bucket_size = 20000;
        Training training(comm, setup, log);
        const Gradient gradient = gaussian_gradient(total(setup.sizes), 1);
        training.steps(gradient, 1, 2);
        // Two moments, gradients as they are sent and as they arrive; shared memory would be 16 bytes per element more.
        ONEBIT_EXPECT(log, training.info().state_bytes <= 16 * total(setup.sizes) + (64u << 10));
    });
}
