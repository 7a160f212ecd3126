// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// An optimizer's state of a tensor, in Adam's form: read in every stage, and set to the state of another optimizer.
#include <cmath>
#include <limits>

#include "support/beside_oracle.hpp"
#include "support/blobs.hpp"

using namespace onebit_test;

namespace {

const Sizes& sizes() {
    static const Sizes all = {33, 7, 50, 1, 64, 13, 71};
    return all;
}

// Three groups, the last of which is never compressed, and a row without a gradient before step 9.
Setup moments_setup(onebit_optimizer_kind_t kind, onebit_compressed_t compressed = ONEBIT_COMPRESSED_UPDATES) {
    Setup setup{quick_config(kind), sizes(), three_groups(), {0, 2, 1, 0, 0, 2, 1}};
    setup.config.compressed = compressed;
    return setup;
}

const Gradient& moments_gradient() {
    static const Gradient gradient = beginning_late(gaussian_gradient(total(sizes()), 1), 95, 105, 9);
    return gradient;
}

std::vector<float> state_of(onebit_optimizer_t optimizer, std::size_t tensor, onebit_state_t which, std::size_t count,
                            RankLog& log) {
    std::vector<float> values(count + 1, -12345.5F);
    ONEBIT_EXPECT_OK(log, onebit_optimizer_get_state(optimizer, tensor, which, values.data()));
    ONEBIT_EXPECT(log, values.back() == -12345.5F);
    values.pop_back();
    return values;
}

// Of all tensors, one behind the other.
std::vector<float> states_of(Training& training, onebit_state_t which, RankLog& log) {
    std::vector<float> all;
    for (std::size_t k = 0; k < sizes().size(); ++k) {
        const std::vector<float> one = state_of(training.get(), k, which, sizes()[k], log);
        all.insert(all.end(), one.begin(), one.end());
    }
    return all;
}

// Copies everything of `from` that set_state can set, and its number of steps.
void import_into(Training& training, Training& from, RankLog& log) {
    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_steps(training.get(), from.info().steps));
    // In whatever order.
    const auto last = static_cast<std::size_t>(log.rank()) % sizes().size();
    for (std::size_t n = 0; n < sizes().size(); ++n) {
        const std::size_t k = (n + last) % sizes().size();
        for (const onebit_state_t which : {ONEBIT_STATE_EXP_AVG_SQ, ONEBIT_STATE_EXP_AVG}) {
            const std::vector<float> values = state_of(from.get(), k, which, sizes()[k], log);
            ONEBIT_EXPECT_OK(log, onebit_optimizer_set_state(training.get(), k, which, values.data()));
        }
    }
}

// The oracle's m and v, in units of momentum.
struct Moments {
    oracle::Vector m, v;
};
Moments moments_of(BesideOracle& both, const Setup& setup, RankLog& log) {
    const oracle::Optimizer& reference = *both.reference;
    Moments moments{reference.m, reference.v};
    const auto* const zero_one = dynamic_cast<const oracle::ZeroOneAdam*>(both.freezing);
    if (both.freezing == nullptr || !both.freezing->frozen()) return moments;
    if (zero_one != nullptr) moments.m = zero_one->local_m[static_cast<std::size_t>(log.rank())];
    const std::uint64_t updates = zero_one != nullptr ? zero_one->schedule.exact : both.freezing->exact_rounds;
    std::size_t i = 0;
    for (std::size_t k = 0; k < sizes().size(); ++k) {
        const onebit_param_group_t& group = setup.groups[setup.group_of[k]];
        const double bias =
            setup.config.bias_correction != 0 ? 1 - std::pow(group.beta2, static_cast<double>(updates)) : 1.0;
        for (std::size_t end = i + sizes()[k]; i < end; ++i) {
            const bool in_updates = group.no_compress == 0 && setup.config.compressed == ONEBIT_COMPRESSED_UPDATES;
            if (in_updates) moments.m[i] *= std::sqrt(moments.v[i] / bias) + group.eps;
            if (group.no_compress != 0) moments.m[i] = reference.m[i]; // which does not go its own way
        }
    }
    return moments;
}

// Relative to the tensor's.
void expect_near(const std::vector<float>& actual, const oracle::Vector& expected, double tolerance, const char* what,
                 RankLog& log) {
    std::size_t i = 0, wrong = 0;
    for (const std::size_t size : sizes()) {
        double squares = 0;
        for (std::size_t j = i; j < i + size; ++j) squares += expected[j] * expected[j];
        const double scale = std::sqrt(squares / static_cast<double>(size));
        for (const std::size_t end = i + size; i < end; ++i)
            wrong += std::fabs(actual[i] - expected[i]) <= tolerance * (scale + std::fabs(expected[i])) ? 0 : 1;
    }
    log.expect(wrong == 0, std::to_string(wrong) + " wrong values of " + what, __FILE__, __LINE__);
}

} // namespace

TEST_CASE("moments are the oracle's in every stage", "[optimizer][moments]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            for (const onebit_compressed_t compressed : ways_to_compress(kind)) {
                for (const int bias : {0, 1}) {
                    Setup setup = moments_setup(kind, compressed);
                    setup.config.bias_correction = bias;
                    BesideOracle both(comm, setup, log);
                    for (std::uint64_t t = 0; t <= 16; ++t) {
                        log.context(name_of(kind) + ", way " + std::to_string(compressed) + ", step " +
                                    std::to_string(t));
                        if (t > 0) both.step(moments_gradient(), t);
                        const Moments expected = moments_of(both, setup, log);
                        expect_near(states_of(both.training, ONEBIT_STATE_EXP_AVG, log), expected.m, 1e-3, "m", log);
                        expect_near(states_of(both.training, ONEBIT_STATE_EXP_AVG_SQ, log), expected.v, 1e-4, "v", log);
                    }
                }
            }
        }
    });
}

TEST_CASE("errors by the tensor are those of all; a state that moves has the same moments",
          "[optimizer][moments][blobs]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            for (const std::uint64_t bucket_size : {0, 64}) {
                Setup setup = moments_setup(kind, ways_to_compress(kind).back());
                setup.config.bucket_size = bucket_size;
                Training training(comm, setup, log), moved(comm, setup, log);
                for (std::uint64_t t = 1; t <= 14; ++t) {
                    log.context(name_of(kind) + ", step " + std::to_string(t));
                    training.steps(moments_gradient(), t, t);
                    const OptimizerErrors errors = training.errors();
                    ONEBIT_EXPECT(log, same_bits(states_of(training, ONEBIT_STATE_WORKER_ERROR, log), errors.worker));
                    ONEBIT_EXPECT(log, same_bits(states_of(training, ONEBIT_STATE_SERVER_ERROR, log), errors.server));
                    ONEBIT_EXPECT_OK(log, unpack(moved.get(), {packed(training.get(), log)}));
                    for (const onebit_state_t which : {ONEBIT_STATE_EXP_AVG, ONEBIT_STATE_EXP_AVG_SQ}) {
                        ONEBIT_EXPECT(log, same_bits(states_of(training, which, log), states_of(moved, which, log)));
                    }
                }
            }
        }
    });
}

// A dense training goes on as another kind, as if that kind had made all steps.
TEST_CASE("a training begun with Adam goes on from its moments", "[optimizer][moments]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            for (const std::uint64_t bucket_size : {0, 64}) {
                const bool lamb = kind == ONEBIT_OPTIMIZER_LAMB || kind == ONEBIT_OPTIMIZER_ONEBIT_LAMB;
                const onebit_optimizer_kind_t dense = lamb ? ONEBIT_OPTIMIZER_LAMB : ONEBIT_OPTIMIZER_ADAM;
                Setup setup = moments_setup(kind);
                setup.config.bucket_size = bucket_size;
                setup.config.variance_updates = 100;                 // 0/1 Adam: all exact until the freeze
                setup.config.min_trust = setup.config.max_trust = 1; // there is nothing else to take over
                Setup begun = moments_setup(dense);
                begun.config.bucket_size = bucket_size;
                begun.config.min_trust = begun.config.max_trust = 1;
                Training before(comm, begun, log), whole(comm, setup, log);
                before.steps(moments_gradient(), 1, 4);
                whole.steps(moments_gradient(), 1, 4);
                Training after(comm, setup, before.parameters(), log);
                import_into(after, before, log);
                ONEBIT_EXPECT(log, after.info().steps == 4 && after.info().exact_rounds == 4);
                for (std::uint64_t t = 5; t <= 14; ++t) {
                    log.context(name_of(kind) + ", step " + std::to_string(t));
                    after.steps(moments_gradient(), t, t);
                    whole.steps(moments_gradient(), t, t);
                    ONEBIT_EXPECT(log, Snapshot(after).same_as(Snapshot(whole)));
                }
            }
        }
    });
}

TEST_CASE("what was set is saved, and a freeze step that lies behind comes next", "[optimizer][moments][blobs]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            Training before(comm, moments_setup(ONEBIT_OPTIMIZER_ADAM), log);
            before.steps(moments_gradient(), 1, 9);
            Training training(comm, moments_setup(kind), log), other(comm, moments_setup(kind), log);
            training.steps(moments_gradient(), 1, 5); // 0/1 Adam has compressed by now
            import_into(training, before, log);
            ONEBIT_EXPECT_OK(log, unpack(other.get(), {packed(training.get(), log)}));
            for (std::uint64_t t = 10; t <= 20; ++t) {
                training.steps(moments_gradient(), t, t);
                other.steps(moments_gradient(), t, t);
                ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(other)));
                ONEBIT_EXPECT(log, training.info().freeze_step == (freezes(kind) ? 10 : 0));
            }
        }
    });
}

TEST_CASE("ranks that set different states are told at the next step", "[optimizer][moments][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        if (log.size() == 1) return;
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            for (const std::uint64_t bucket_size : {0, 64}) {
                log.context(name_of(kind));
                Setup setup = moments_setup(kind);
                setup.config.bucket_size = bucket_size;
                Training training(comm, setup, log), twin(comm, setup, log);
                training.steps(moments_gradient(), 1, 3);
                twin.steps(moments_gradient(), 1, 3);
                std::vector<float> own = state_of(training.get(), 2, ONEBIT_STATE_EXP_AVG, 50, log);
                const std::vector<float> right = own;
                if (log.last_rank()) own[17] += 1;
                ONEBIT_EXPECT_OK(log, onebit_optimizer_set_state(training.get(), 2, ONEBIT_STATE_EXP_AVG, own.data()));
                training.set_gradients(moments_gradient()(log.rank(), 4));
                const std::vector<float> before = training.parameters();
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "rank;state that was set",
                                      onebit_optimizer_step(training.get()));
                ONEBIT_EXPECT(log, same_bits(before, training.parameters()));
                ONEBIT_EXPECT_OK(log,
                                 onebit_optimizer_set_state(training.get(), 2, ONEBIT_STATE_EXP_AVG, right.data()));
                if (log.last_rank()) ONEBIT_EXPECT_OK(log, onebit_optimizer_set_steps(training.get(), 7));
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "rank", onebit_optimizer_step(training.get()));
            }
        }
    });
}

TEST_CASE("states that can't be read or set", "[optimizer][moments][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const onebit_status_t bad = ONEBIT_ERROR_INVALID_ARGUMENT, unsupported = ONEBIT_ERROR_UNSUPPORTED;
        const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            Training training(comm, moments_setup(kind), log), twin(comm, moments_setup(kind), log);
            const onebit_optimizer_t handle = training.get();
            std::vector<float> values(50, 0.5F);
            const auto get = [&](std::size_t tensor, int which, float* to) {
                return onebit_optimizer_get_state(handle, tensor, static_cast<onebit_state_t>(which), to);
            };
            const auto set = [&](std::size_t tensor, int which, const float* from) {
                return onebit_optimizer_set_state(handle, tensor, static_cast<onebit_state_t>(which), from);
            };
            ONEBIT_EXPECT_FAILURE(log, bad, "tensors[2];0.5;set_steps", set(2, 0, values.data())); // after no step
            ONEBIT_EXPECT_FAILURE(log, bad, "tensors[2];0.5;set_steps", set(2, 1, values.data()));
            for (std::uint64_t t = 1; t <= 9; ++t) {
                log.context(name_of(kind) + ", step " + std::to_string(t));
                training.steps(moments_gradient(), t, t);
                twin.steps(moments_gradient(), t, t);
                ONEBIT_EXPECT_FAILURE(log, bad, "tensor: 7;there are 7", get(7, 0, values.data()));
                ONEBIT_EXPECT_FAILURE(log, bad, "tensor: 7;there are 7", set(7, 0, values.data()));
                ONEBIT_EXPECT_FAILURE(log, bad, "values is NULL", get(2, 0, nullptr));
                ONEBIT_EXPECT_FAILURE(log, bad, "values is NULL", set(2, 0, nullptr));
                for (const int which : {-1, 4, 1000}) {
                    ONEBIT_EXPECT_FAILURE(log, bad, "which", get(2, which, values.data()));
                    ONEBIT_EXPECT_FAILURE(log, bad, "which", set(2, which, values.data()));
                }
                for (const int which : {2, 3})
                    ONEBIT_EXPECT_FAILURE(log, unsupported, "error", set(2, which, values.data()));
                const bool frozen = training.info().frozen != 0;
                if (frozen) {
                    for (const int which : {0, 1})
                        ONEBIT_EXPECT_FAILURE(log, unsupported, "tensors[2];frozen after step 6",
                                              set(2, which, values.data()));
                    ONEBIT_EXPECT_FAILURE(log, unsupported, "frozen", onebit_optimizer_set_steps(handle, 9));
                }
                const std::size_t tensor = frozen ? 1 : 2; // one that never freezes
                for (const float wrong : {nan, infinity, -infinity, std::numeric_limits<float>::max()}) {
                    std::vector<float> spoilt(50, 0.0F);
                    spoilt[3] = wrong;
                    ONEBIT_EXPECT_FAILURE(log, bad, "values[3]", set(tensor, 0, spoilt.data()));
                    ONEBIT_EXPECT_FAILURE(log, bad, "values[3]", set(tensor, 1, spoilt.data()));
                    spoilt[3] = -1e-30F;
                    ONEBIT_EXPECT_FAILURE(log, bad, "values[3]", set(tensor, 1, spoilt.data()));
                }
                if (!frozen)
                    for (const std::uint64_t steps : {std::uint64_t{0}, std::uint64_t{1} << 48, UINT64_MAX})
                        ONEBIT_EXPECT_FAILURE(log, bad, "steps", onebit_optimizer_set_steps(handle, steps));
                ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
            }
            ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_HANDLE, onebit_optimizer_set_steps(nullptr, 3));
        }
    });
}

TEST_CASE("no state is read or set while a step has begun", "[optimizer][moments][overlap][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Setup setup = moments_setup(ONEBIT_OPTIMIZER_ONEBIT_ADAM);
        setup.config.bucket_size = 64;
        Training training(comm, setup, log);
        training.steps(moments_gradient(), 1, 2);
        std::vector<float> values(50, 0.5F);
        const onebit_optimizer_t handle = training.get();
        ONEBIT_EXPECT_OK(log, onebit_optimizer_grad_ready(handle, 1));
        for (const onebit_status_t status : {onebit_optimizer_get_state(handle, 2, ONEBIT_STATE_EXP_AVG, values.data()),
                                             onebit_optimizer_set_state(handle, 2, ONEBIT_STATE_EXP_AVG, values.data()),
                                             onebit_optimizer_set_steps(handle, 5)})
            ONEBIT_EXPECT(log, status == ONEBIT_ERROR_BUSY);
        ONEBIT_EXPECT_OK(log, onebit_optimizer_step(handle));
    });
}
