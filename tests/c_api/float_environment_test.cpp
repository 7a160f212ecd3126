// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The caller's floating-point environment affects no result, and no call changes it: rounding modes, flushing and traps
// on one rank, set before its handles are created and after, with one thread and with two.
#include <bit>

#include "support/directory.hpp"
#include "support/float_environments.hpp"
#include "support/shard_handles.hpp"
#include "support/training.hpp"

using namespace onebit_test;

namespace {

const FloatSettings& settings_of(const RankLog& log, const FloatSettings& foreign) {
    static const FloatSettings none = {"the default", [] {}};
    return log.last_rank() ? foreign : none;
}

// Values of all magnitudes: products become subnormal or are rounded, sums cancel.
std::vector<float> values_of_all_sizes(std::size_t count, int rank, std::uint64_t step) {
    std::vector<float> values = make_data(Kind::gaussian, count, 7, rank, step);
    Random random(8, rank, step);
    for (float& value : values) {
        const auto bits = static_cast<std::uint32_t>(random.next());
        if (bits % 8 == 0) value = std::ldexp(value, -120 - static_cast<int>(bits >> 8 & 31)); // also subnormal
        if (bits % 8 == 1) value = std::bit_cast<float>(bits >> 3 & 0x807fffffU);              // subnormal
        if (bits % 8 == 2) value = std::ldexp(value, -60);                                     // its square is
    }
    return values;
}

void append(Bytes& to, const std::vector<float>& values) {
    const auto* const first = reinterpret_cast<const unsigned char*>(values.data());
    to.insert(to.end(), first, first + values.size() * sizeof(float));
}

// All results and state of an allreduce, from calls made within the settings.
Bytes history(onebit_comm_t comm, RankLog& log, const onebit_allreduce_config_t& config,
              const FloatSettings& at_creation, const FloatSettings& settings) {
    Bytes seen;
    onebit_allreduce_t handle = nullptr;
    const auto within = [&](auto call) { ONEBIT_EXPECT_OK(log, call_within(settings, log, call)); };
    ONEBIT_EXPECT_OK(log,
                     call_within(at_creation, log, [&] { return onebit_allreduce_create(comm, &config, &handle); }));
    std::vector<float> result(config.count), worker(config.count), server(config.count);
    for (std::uint64_t step = 0; step < 2; ++step) {
        const std::vector<float> values = values_of_all_sizes(config.count, log.rank(), step);
        within([&] { return onebit_allreduce_run(handle, values.data(), result.data()); });
        append(seen, result);
        within([&] { return onebit_allreduce_start(handle, values.data(), result.data()); });
        int done = 0;
        within([&] { return onebit_allreduce_test(handle, &done); });
        within([&] { return onebit_allreduce_wait(handle); });
        append(seen, result);
        within([&] { return onebit_allreduce_get_error(handle, worker.data(), server.data(), nullptr, nullptr); });
        append(seen, worker);
        append(seen, server);
    }
    within([&] { return onebit_allreduce_destroy(handle); });
    return seen;
}

Bytes history(onebit_comm_t comm, RankLog& log, const onebit_optimizer_config_t& config,
              const FloatSettings& at_creation, const FloatSettings& settings) {
    constexpr std::size_t count = 5003;
    Bytes seen;
    std::vector<float> parameters = initial_parameters(count), gradients(count);
    std::vector<std::uint16_t> copy(count);
    onebit_tensor_t tensor = ONEBIT_TENSOR_INIT(parameters.data(), gradients.data(), count);
    tensor.copy = copy.data();
    tensor.copy_type = ONEBIT_FLOAT16;
    onebit_optimizer_t handle = nullptr;
    ONEBIT_EXPECT_OK(log, call_within(at_creation, log,
                                      [&] { return onebit_optimizer_create(comm, &config, &tensor, 1, &handle); }));
    for (std::uint64_t step = 1; step <= 14; ++step) {
        const std::vector<float> values = values_of_all_sizes(count, log.rank(), step);
        std::copy(values.begin(), values.end(), gradients.begin());    // their address stays the same
        if (step > 8) std::fill_n(gradients.begin(), count / 2, 0.0F); // moments that fade away
        ONEBIT_EXPECT_OK(log, call_within(settings, log, [&] { return onebit_optimizer_step(handle); }));
        append(seen, parameters);
        const auto* const halves = reinterpret_cast<const unsigned char*>(copy.data());
        seen.insert(seen.end(), halves, halves + count * sizeof(std::uint16_t));
    }
    ONEBIT_EXPECT_OK(log, call_within(settings, log, [&] { return onebit_optimizer_destroy(handle); }));
    return seen;
}

// The same of a reduce-scatter or an all-gather.
template <class Collective>
struct ShardConfig : onebit_shard_config_t {};

template <class Collective>
Bytes history(onebit_comm_t comm, RankLog& log, const ShardConfig<Collective>& config, const FloatSettings& at_creation,
              const FloatSettings& settings) {
    Bytes seen;
    typename Collective::Handle handle = nullptr;
    const auto within = [&](auto call) { ONEBIT_EXPECT_OK(log, call_within(settings, log, call)); };
    ONEBIT_EXPECT_OK(log, call_within(at_creation, log, [&] { return Collective::create(comm, &config, &handle); }));
    const std::uint64_t own = config.counts[log.rank()];
    std::vector<float> result(Collective::gathers ? config.count : own);
    std::vector<float> error(Collective::gathers ? own : config.count);
    for (std::uint64_t step = 0; step < 2; ++step) {
        const std::vector<float> values = values_of_all_sizes(error.size(), log.rank(), step);
        within([&] { return Collective::run(handle, values.data(), result.data()); });
        append(seen, result);
        within([&] { return Collective::start(handle, values.data(), result.data()); });
        int done = 0;
        within([&] { return Collective::test(handle, &done); });
        within([&] { return Collective::wait(handle); });
        append(seen, result);
        within([&] { return Collective::get_error(handle, error.data()); });
        append(seen, error);
    }
    within([&] { return Collective::destroy(handle); });
    return seen;
}

// The same within every foreign environment of one rank as in the default one.
template <typename Config>
void expect_no_say(onebit_comm_t comm, RankLog& log, Config config, const std::string& name) {
    static const FloatSettings none = {"the default", [] {}};
    config.threads = 1;
    log.context(name);
    const Bytes expected = history(comm, log, config, none, none);
    for (const FloatSettings& foreign : foreign_settings()) {
        for (const std::uint32_t threads : {1U, 2U}) {
            config.threads = threads;
            for (const bool from_the_start : {false, true}) {
                log.context(name + ", " + foreign.name + (from_the_start ? " from the start, " : ", ") +
                            std::to_string(threads) + " threads");
                const FloatSettings& settings = settings_of(log, foreign);
                ONEBIT_EXPECT(log, history(comm, log, config, from_the_start ? settings : none, settings) == expected);
            }
        }
    }
}

} // namespace

TEST_CASE("the caller's floating-point environment has no say in an allreduce", "[float-environment][long]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_algorithm_t form :
             {ONEBIT_ALGORITHM_DENSE, ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_TWO_LEVEL,
              ONEBIT_ALGORITHM_BRUCK, ONEBIT_ALGORITHM_RING, ONEBIT_ALGORITHM_LEVELS}) {
            for (const std::uint64_t count : {70U, 9001U}) {
                const std::string name = "algorithm " + std::to_string(form) + ", " + std::to_string(count);
                expect_no_say(comm, log, form_config(form, count), name);
            }
        }
        for (const Mode& mode : all_modes())
            expect_no_say(comm, log, form_config(ONEBIT_ALGORITHM_FLAT, 5000, mode), mode.name());
    });
}

TEMPLATE_TEST_CASE("the caller's floating-point environment has no say in shards", "[float-environment][shards][long]",
                   ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const Cut& cut : {equal_cut(log.size(), 33), mixed_cut(log.size())}) {
            const auto dense = shard_config(cut, default_mode(), ONEBIT_ALGORITHM_DENSE);
            expect_no_say(comm, log, ShardConfig<TestType>{dense}, "dense, " + cut.name);
            for (const Mode& mode : every_mode())
                expect_no_say(comm, log, ShardConfig<TestType>{shard_config(cut, mode)}, mode.name() + ", " + cut.name);
        }
    });
}

TEST_CASE("the caller's floating-point environment has no say in an optimizer", "[float-environment][long]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : all_kinds()) {
            onebit_optimizer_config_t config = quick_config(kind);
            config.weight_decay = 0.01;
            config.max_grad_norm = 50;
            expect_no_say(comm, log, config, name_of(kind));
        }
    });
}

TEST_CASE("no call changes the caller's floating-point environment, nor does one that fails", "[float-environment]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const SharedDirectory directory(log);
        for (const FloatSettings& settings : foreign_settings()) {
            log.context(settings.name);
            constexpr std::size_t count = 64;
            std::vector<float> x(count, 1.0F / 3), y(count), gradients(count, 0.1F);
            const std::string prefix = directory.prefix("all-" + std::to_string(&settings - foreign_settings().data()));
            const auto ok = [&](auto call) { ONEBIT_EXPECT_OK(log, call_within(settings, log, call)); };
            const auto fails = [&](onebit_status_t status, auto call) {
                ONEBIT_EXPECT_STATUS(log, status, call_within(settings, log, call));
            };
            int number = 0;
            std::uint64_t bytes = 0;
            void* memory = nullptr;
            onebit_comm_info_t comm_info = ONEBIT_COMM_INFO_INIT;
            ok([&] { return onebit_comm_rank(comm, &number); });
            ok([&] { return onebit_comm_size(comm, &number); });
            ok([&] { return onebit_comm_get_info(comm, &comm_info); });
            ok([&] { return onebit_mem_alloc(comm, 100, &memory); });
            ok([&] { return onebit_mem_free(memory); });
            ok([&] { return onebit_comm_tune(comm, count, 1e-3, nullptr); });
            const onebit_codec_t tuned = ONEBIT_CODEC_INT8;
            ok([&] { return onebit_comm_tune_codecs(comm, &tuned, 1, count, 1e-3, nullptr); });
            fails(ONEBIT_ERROR_INVALID_ARGUMENT,
                  [&] { return onebit_comm_tune_codecs(comm, &tuned, 0, count, 1e-3, nullptr); });
            fails(ONEBIT_ERROR_INVALID_ARGUMENT, [&] { return onebit_comm_tune(comm, 0, 1e-3, nullptr); });
            fails(ONEBIT_ERROR_INVALID_ARGUMENT, [&] { return onebit_comm_create_loopback(0, nullptr); });

            onebit_allreduce_config_t config = flat_config(count);
            onebit_allreduce_t reduce = nullptr;
            config.count = 0;
            fails(ONEBIT_ERROR_INVALID_ARGUMENT, [&] { return onebit_allreduce_create(comm, &config, &reduce); });
            config.count = count;
            ok([&] { return onebit_allreduce_create(comm, &config, &reduce); });
            ok([&] { return onebit_allreduce_run(reduce, x.data(), y.data()); });
            ok([&] { return onebit_allreduce_wait(reduce); });
            ok([&] { return onebit_allreduce_set_algorithm(reduce, ONEBIT_ALGORITHM_PIPELINED); });
            const std::uint32_t mask[] = {~0U, 7U};
            ok([&] { return onebit_allreduce_set_mask(reduce, mask); });
            ok([&] { return onebit_allreduce_run(reduce, x.data(), y.data()); });
            fails(ONEBIT_ERROR_INVALID_ARGUMENT, [&] { return onebit_allreduce_run(reduce, nullptr, y.data()); });
            x[3] = log.last_rank() ? HUGE_VALF : x[3];
            fails(ONEBIT_ERROR_NONFINITE, [&] { return onebit_allreduce_run(reduce, x.data(), y.data()); });
            onebit_allreduce_info_t info = ONEBIT_ALLREDUCE_INFO_INIT;
            ok([&] { return onebit_allreduce_get_info(reduce, &info); });
            ok([&] { return onebit_allreduce_save(reduce, prefix.c_str()); });
            ok([&] { return onebit_allreduce_load(reduce, prefix.c_str()); });
            fails(ONEBIT_ERROR_IO, [&] { return onebit_allreduce_load(reduce, "/nowhere/at/all"); });
            ok([&] { return onebit_allreduce_state_size(reduce, &bytes); });
            Bytes state(bytes);
            ok([&] { return onebit_allreduce_pack_state(reduce, state.data(), bytes); });
            ok([&] { return onebit_allreduce_unpack_state(reduce, state.data(), bytes); });
            state[90] ^= 1;
            fails(ONEBIT_ERROR_BAD_STATE, [&] { return onebit_allreduce_unpack_state(reduce, state.data(), bytes); });
            ok([&] { return onebit_allreduce_reset(reduce); });
            ok([&] { return onebit_allreduce_destroy(reduce); });
            fails(ONEBIT_ERROR_INVALID_HANDLE, [&] { return onebit_allreduce_destroy(reduce); });

            std::vector<float> parameters(count, 1.0F / 3);
            const onebit_tensor_t tensor = ONEBIT_TENSOR_INIT(parameters.data(), gradients.data(), count);
            onebit_optimizer_config_t training = quick_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM);
            training.bucket_size = 1024; // for grad_ready
            onebit_optimizer_t optimizer = nullptr;
            fails(ONEBIT_ERROR_INVALID_ARGUMENT,
                  [&] { return onebit_optimizer_create(comm, &training, nullptr, 1, &optimizer); });
            ok([&] { return onebit_optimizer_create(comm, &training, &tensor, 1, &optimizer); });
            ok([&] { return onebit_optimizer_set_lr(optimizer, 1.0 / 3); });
            ok([&] { return onebit_optimizer_set_group_lr(optimizer, 0, 1.0 / 7); });
            fails(ONEBIT_ERROR_INVALID_ARGUMENT, [&] { return onebit_optimizer_set_lr(optimizer, -1); });
            ok([&] { return onebit_optimizer_set_gradient_scale(optimizer, 3); });
            ok([&] { return onebit_optimizer_set_gradients(optimizer, 0, gradients.data()); });
            ok([&] { return onebit_optimizer_step(optimizer); });
            ok([&] { return onebit_optimizer_freeze(optimizer); });
            ok([&] { return onebit_optimizer_step(optimizer); });
            ok([&] { return onebit_optimizer_reset_error(optimizer); });
            ok([&] { return onebit_optimizer_save(optimizer, prefix.c_str()); });
            ok([&] { return onebit_optimizer_load(optimizer, prefix.c_str()); });
            ok([&] { return onebit_optimizer_get_error(optimizer, x.data(), y.data()); });
            gradients[5] = log.last_rank() ? NAN : 0.0F;
            fails(ONEBIT_ERROR_NONFINITE, [&] { return onebit_optimizer_step(optimizer); });
            gradients[5] = 0;
            ok([&] { return onebit_optimizer_grad_ready(optimizer, 0); });
            ok([&] { return onebit_optimizer_step(optimizer); });
            onebit_optimizer_info_t seen = ONEBIT_OPTIMIZER_INFO_INIT;
            ok([&] { return onebit_optimizer_get_info(optimizer, &seen); });
            ok([&] { return onebit_optimizer_destroy(optimizer); });
        }
    });
}
