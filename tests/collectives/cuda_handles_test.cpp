// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Allreduce handles on a GPU's memory, through the C interface: the host's bits, from the host's values. Ranks are
// threads or MPI processes, the GPU a real one or an emulated one, whose memory the host can't touch.

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "compress/device_memory.hpp"
#include "support/environment.hpp"
#include "support/handles.hpp"
#include "support/magnitudes.hpp"

namespace {

using namespace onebit_test;
using onebit::DeviceArray;
using Values = std::vector<float>;

constexpr std::size_t kCounts[] = {5, 8203};

onebit_allreduce_config_t on_gpu(onebit_allreduce_config_t config) {
    config.memory = ONEBIT_MEMORY_CUDA;
    return config;
}

/// A call on the GPU, in place or not.
Values run_on_gpu(Allreduce& handle, RankLog& log, const Values& values, bool in_place) {
    DeviceArray<float> input(values);
    DeviceArray<float> output(Values(values.size(), 7.0F));
    DeviceArray<float>& result = in_place ? input : output;
    ONEBIT_EXPECT_OK(log, onebit_allreduce_run(handle.get(), input.data(), result.data()));
    if (!in_place) ONEBIT_EXPECT(log, same_bits(input.get(), values));
    return result.get();
}

std::vector<std::uint32_t> mask_for(std::size_t count) {
    std::vector<std::uint32_t> mask((count + 31) / 32);
    for (std::size_t w = 0; w < mask.size(); ++w) mask[w] = 0x5a5ac3ffU * static_cast<std::uint32_t>(w + 1);
    return mask;
}

/// The default mode with that codec, a grouped one.
Mode coded(onebit_codec_t codec) {
    Mode mode = default_mode();
    mode.codec = codec;
    return mode;
}

TEST_CASE("a handle on a GPU gives the host's averages, errors and messages, to the bit", "[cuda][handles]") {
    const int n = GENERATE(from_range(rank_counts()));
    for (const onebit_algorithm_t form : {ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED}) {
        for (const Mode mode :
             {all_modes()[0], all_modes()[1], coded(ONEBIT_CODEC_INT8), coded(ONEBIT_CODEC_TERNARY)}) {
            for (const std::size_t count : kCounts) {
                CAPTURE(form, mode.name(), count);
                run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
                    Allreduce host(comm, form_config(form, count, mode), log);
                    Allreduce gpu(comm, on_gpu(form_config(form, count, mode)), log);
                    for (std::uint64_t step = 0; step < 3; ++step) {
                        if (step == 1) {
                            const std::vector<std::uint32_t> mask = mask_for(count);
                            ONEBIT_EXPECT_OK(log, onebit_allreduce_set_mask(host.get(), mask.data()));
                            ONEBIT_EXPECT_OK(log, onebit_allreduce_set_mask(gpu.get(), mask.data()));
                        }
                        const Values values = make_data(Kind::heavy_tailed, count, 7, log.rank(), step);
                        const Values average = run_on_gpu(gpu, log, values, step % 2 == 1);
                        ONEBIT_EXPECT(log, same_bits(average, host.run(values)));
                        ONEBIT_EXPECT(log, gpu.info().last_bytes_sent == host.info().last_bytes_sent);
                    }
                    ONEBIT_EXPECT(log, gpu.errors().same_as(host.errors()));
                    ONEBIT_EXPECT(log, std::string(gpu.info().kernels) == "cuda");
                });
            }
        }
    }
}

TEST_CASE("a state goes from the host to a GPU and back", "[cuda][handles]") {
    const int n = GENERATE(from_range(rank_counts()));
    constexpr std::size_t kCount = 9001;
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const auto config = form_config(ONEBIT_ALGORITHM_PIPELINED, kCount);
        Allreduce host(comm, config, log);
        Allreduce gpu(comm, on_gpu(config), log);
        host.run_steps(3, 0, 2);
        Bytes state = host.packed();
        ONEBIT_EXPECT_OK(log, onebit_allreduce_unpack_state(gpu.get(), state.data(), state.size()));
        const Values values = make_data(Kind::gaussian, kCount, 3, log.rank(), 2);
        ONEBIT_EXPECT(log, same_bits(run_on_gpu(gpu, log, values, false), host.run(values)));
        ONEBIT_EXPECT(log, gpu.packed() == host.packed());
        ONEBIT_EXPECT_OK(log, onebit_allreduce_reset(gpu.get()));
        const Errors errors = gpu.errors();
        const auto is_zero = [](float x) { return x == 0; };
        ONEBIT_EXPECT(log, std::all_of(errors.worker.begin(), errors.worker.end(), is_zero));
        ONEBIT_EXPECT(log, std::all_of(errors.server.begin(), errors.server.end(), is_zero));
    });
}

TEST_CASE("a dense handle on a GPU gives the average, the same bits on every rank", "[cuda][handles]") {
    const int n = GENERATE(from_range(rank_counts()));
    for (const std::size_t count : kCounts) {
        run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
            Allreduce host(comm, form_config(ONEBIT_ALGORITHM_DENSE, count), log);
            Allreduce gpu(comm, on_gpu(form_config(ONEBIT_ALGORITHM_DENSE, count)), log);
            const Values values = make_data(Kind::gaussian, count, 5, log.rank(), 0);
            const Values average = run_on_gpu(gpu, log, values, true);
            ONEBIT_EXPECT(log, nearly_same(average, host.run(values)));
            ONEBIT_EXPECT(log, log.same_on_all(average.data(), count * sizeof(float)));
        });
    }
}

TEST_CASE("a GPU delivers exact averages of all magnitudes", "[cuda][handles][magnitudes]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        Allreduce gpu(comm, on_gpu(form_config(ONEBIT_ALGORITHM_DENSE, 8203)), log);
        for (std::uint64_t step = 0; step < magnitude_turns; ++step) {
            log.context("step " + std::to_string(step));
            const Values average = run_on_gpu(gpu, log, make_magnitudes(8203, 1, log.rank(), step), step % 2 == 0);
            ONEBIT_EXPECT(log, is_average_of_magnitudes(average, 1, log.size(), step));
        }
    });
}

TEST_CASE("a GPU compresses values of all magnitudes as the host does, and leaves all finite",
          "[cuda][handles][magnitudes]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        std::vector<Mode> modes = all_modes();
        for (const onebit_codec_t codec : {ONEBIT_CODEC_INT4, ONEBIT_CODEC_FP4, ONEBIT_CODEC_BFLOAT16,
                                           ONEBIT_CODEC_FLOAT16, ONEBIT_CODEC_INT2, ONEBIT_CODEC_MEANS})
            modes.push_back(coded(codec));
        for (const Mode mode : modes) {
            const auto config = form_config(ONEBIT_ALGORITHM_PIPELINED, 8203, mode);
            Allreduce host(comm, config, log), gpu(comm, on_gpu(config), log);
            for (std::uint64_t step = 0; step < 2 * magnitude_turns; ++step) {
                log.context(mode.name() + ", step " + std::to_string(step));
                Values values = make_magnitudes(8203, 1, log.rank(), step);
                DeviceArray<float> buffer(values);
                const onebit_status_t on_host = onebit_allreduce_run(host.get(), values.data(), values.data());
                const onebit_status_t there = onebit_allreduce_run(gpu.get(), buffer.data(), buffer.data());
                ONEBIT_EXPECT(log, there == on_host && log.same_on_all(&there, sizeof there));
                if (there == ONEBIT_SUCCESS) ONEBIT_EXPECT(log, same_bits(buffer.get(), values) && all_finite(values));
                const Errors errors = gpu.errors();
                ONEBIT_EXPECT(log, all_finite(errors.worker) && all_finite(errors.server));
                ONEBIT_EXPECT(log, errors.same_as(host.errors()));
            }
        }
    });
}

TEST_CASE("a handle on a GPU changes from exact to compressed, and works in parts", "[cuda][handles]") {
    const int n = GENERATE(from_range(rank_counts()));
    constexpr std::size_t kCount = 5000;
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        Allreduce host(comm, form_config(ONEBIT_ALGORITHM_PIPELINED, kCount), log);
        Allreduce gpu(comm, on_gpu(form_config(ONEBIT_ALGORITHM_PIPELINED, kCount)), log);
        for (const onebit_algorithm_t form :
             {ONEBIT_ALGORITHM_DENSE, ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED}) {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_set_algorithm(host.get(), form));
            ONEBIT_EXPECT_OK(log, onebit_allreduce_set_algorithm(gpu.get(), form));
            const Values values = make_data(Kind::gaussian, kCount, 9, log.rank(), form);
            DeviceArray<float> buffer(values);
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(gpu.get(), buffer.data(), buffer.data()));
            for (int done = 0; done == 0;) {
                if (!ONEBIT_EXPECT_OK(log, onebit_allreduce_test(gpu.get(), &done))) break;
            }
            const Values expected = host.run(values);
            const bool exact = form == ONEBIT_ALGORITHM_DENSE;
            ONEBIT_EXPECT(log, exact ? nearly_same(buffer.get(), expected) : same_bits(buffer.get(), expected));
        }
    });
}

TEST_CASE("AUTO measures calls on a GPU's memory by themselves, and says what it chose and why", "[cuda][handles]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(4096);
        Allreduce handle(comm, on_gpu(config), log);
        const std::string reason = handle.info().reason;
        ONEBIT_EXPECT(
            log, holds(reason, log.size() == 1 ? "one rank" : "4096 elements: dense;pipelined;measured|estimated"));
        ONEBIT_EXPECT(log, log.same_on_all(reason.data(), reason.size()));

        Allreduce two_level(comm, on_gpu(form_config(ONEBIT_ALGORITHM_TWO_LEVEL, 4096)), log);
        ONEBIT_EXPECT(log, two_level.info().algorithm == ONEBIT_ALGORITHM_PIPELINED);
        ONEBIT_EXPECT(log, holds(two_level.info().reason, "not two_level;GPU's memory"));
    });
}

// ---- what is wrong ----

TEST_CASE("a buffer that is not in a GPU's memory is refused on every rank, and nothing is lost", "[cuda][handles]") {
    const int n = GENERATE(from_range(rank_counts()));
    constexpr std::size_t kCount = 4200;
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        Allreduce gpu(comm, on_gpu(form_config(ONEBIT_ALGORITHM_PIPELINED, kCount)), log);
        const Values values = make_data(Kind::gaussian, kCount, 1, log.rank(), 0);
        run_on_gpu(gpu, log, values, false);
        const Errors before = gpu.errors();
        DeviceArray<float> good(values);
        Values on_host = values;
        float* freed = nullptr;
        {
            const DeviceArray<float> gone(values);
            freed = gone.data();
            log.barrier(); // no rank allocates any more: no other memory takes its place
        }
        const auto run = [&](const float* input, float* output) {
            return log.last_rank() ? onebit_allreduce_run(gpu.get(), input, output)
                                   : onebit_allreduce_run(gpu.get(), good.data(), good.data());
        };
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "sendbuf;not in a GPU's memory",
                              run(on_host.data(), good.data()));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "recvbuf;not in a GPU's memory",
                              run(good.data(), on_host.data()));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "sendbuf;not in a GPU's memory", run(freed, freed));
        ONEBIT_EXPECT(log, gpu.errors().same_as(before));
        ONEBIT_EXPECT(log, same_bits(good.get(), values));
    });
}

TEST_CASE("a buffer in a GPU's memory is refused by a handle on the host", "[cuda][handles]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        Allreduce host(comm, form_config(ONEBIT_ALGORITHM_FLAT, 100), log);
        const Values values(100, 1.0F);
        DeviceArray<float> on_device(values);
        Values on_host = values;
        float* const spoilt = log.last_rank() ? on_device.data() : on_host.data();
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "recvbuf;in a GPU's memory",
                              onebit_allreduce_run(host.get(), on_host.data(), spoilt));
        ONEBIT_EXPECT(log, same_bits(host.run(values), values));
    });
}

TEST_CASE("values that are not finite, or overflow, are found on a GPU", "[cuda][handles]") {
    const int n = GENERATE(from_range(rank_counts()));
    constexpr std::size_t kCount = 20000;
    for (const onebit_algorithm_t form : {ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED}) {
        run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
            Allreduce gpu(comm, on_gpu(form_config(form, kCount)), log);
            const Values values = make_data(Kind::gaussian, kCount, 1, log.rank(), 0);
            run_on_gpu(gpu, log, values, false);
            const Errors before = gpu.errors();
            Values bad = values;
            if (log.last_rank()) bad[12345] = bad[19000] = -std::numeric_limits<float>::infinity();
            DeviceArray<float> buffer(bad);
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "sendbuf[12345] is -inf;rank",
                                  onebit_allreduce_run(gpu.get(), buffer.data(), buffer.data()));
            ONEBIT_EXPECT(log, gpu.errors().same_as(before));

            // The values are finite, but not with the error: the sum of squares is taken in double, so only the largest
            // floats overflow.
            Values large(kCount, 0.0F);
            for (std::size_t i = kCount - 100; i < kCount; ++i) {
                large[i] = i % 2 == 0 ? std::numeric_limits<float>::max() : 1.0F;
            }
            onebit_status_t status = ONEBIT_SUCCESS;
            for (int call = 0; call < 20 && status == ONEBIT_SUCCESS; ++call) {
                buffer.set(large);
                status = onebit_allreduce_run(gpu.get(), buffer.data(), buffer.data());
            }
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE,
                                  "overflowed;chunk of rank " + std::to_string(log.size() - 1) + " ", status);
            ONEBIT_EXPECT(log, same_bits(gpu.errors().worker, Values(kCount, 0.0F)));
        });
    }
}

TEST_CASE("what a GPU can't be asked for is said on every rank", "[cuda][handles]") {
    const int n = GENERATE(from_range(rank_counts()));
    {
        const Variable direct("ONEBIT_GPU_PATH", "direct");
        run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
            onebit_allreduce_t handle = nullptr;
            const onebit_allreduce_config_t config = on_gpu(form_config(ONEBIT_ALGORITHM_FLAT, 100));
            const onebit_status_t status = onebit_allreduce_create(comm, &config, &handle);
            if (status != ONEBIT_SUCCESS) { // there are MPIs that can
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_UNSUPPORTED, "ONEBIT_GPU_PATH=direct;can't reach", status);
            }
            ONEBIT_EXPECT_OK(log, onebit_allreduce_destroy(handle));
        });
    }
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        onebit_allreduce_t handle = nullptr;
        onebit_allreduce_config_t config = on_gpu(form_config(ONEBIT_ALGORITHM_BRUCK, 100));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_UNSUPPORTED, "BRUCK", onebit_allreduce_create(comm, &config, &handle));
        config = on_gpu(form_config(ONEBIT_ALGORITHM_FLAT, 100));
        config.datatype = ONEBIT_BFLOAT16;
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_UNSUPPORTED, "config.datatype;bfloat16;HOST",
                              onebit_allreduce_create(comm, &config, &handle));
        for (const onebit_codec_t codec : {ONEBIT_CODEC_TOPK, ONEBIT_CODEC_RANDOMK}) {
            config = on_gpu(form_config(ONEBIT_ALGORITHM_FLAT, 100, coded(codec)));
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_UNSUPPORTED, "config.codec;K;config.memory;ONEBIT_CODEC_INT8",
                                  onebit_allreduce_create(comm, &config, &handle));
        }
        config = on_gpu(form_config(ONEBIT_ALGORITHM_FLAT, 100));
        config.error_type = ONEBIT_BFLOAT16;
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_UNSUPPORTED, "config.error_type;HOST",
                              onebit_allreduce_create(comm, &config, &handle));
        if (log.size() > 1) {
            config = form_config(ONEBIT_ALGORITHM_FLAT, 100);
            if (log.last_rank()) config = on_gpu(config);
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "config.memory",
                                  onebit_allreduce_create(comm, &config, &handle));
        }
        config = form_config(ONEBIT_ALGORITHM_FLAT, 100);
        int somewhere = 0;
        if (log.last_rank()) config.stream = &somewhere;
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "config.stream;config.memory",
                              onebit_allreduce_create(comm, &config, &handle));
    });
}

} // namespace
