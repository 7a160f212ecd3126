// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Errors that are kept in bfloat16 or in bytes: the possible loss by rounding, and that everything else is as with
// errors in float32.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <vector>

#include "oracle/codes.hpp"
#include "support/environment.hpp"
#include "support/handles.hpp"
#include "support/shard_handles.hpp"

using namespace onebit_test;

namespace {

constexpr onebit_algorithm_t forms[] = {ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_RING,
                                        ONEBIT_ALGORITHM_BRUCK};

// A way to compress, and the type in which its errors are kept.
struct NarrowMode : Mode {
    onebit_datatype_t error_type;
    std::string name() const { return Mode::name() + (error_type == ONEBIT_INT8 ? ", INT8" : ", BFLOAT16"); }
    oracle::ErrorType oracle_type() const {
        return error_type == ONEBIT_INT8 ? oracle::ErrorType::int8 : oracle::ErrorType::bfloat16;
    }
    // Bytes of an element, relative to those of a float.
    double share() const { return error_type == ONEBIT_INT8 ? 257.0 / 1024 : 0.5; }
};

// One of each codec and type; both scales of the sign code.
std::vector<NarrowMode> narrow_modes() {
    std::vector<NarrowMode> modes;
    for (const Mode& mode : every_mode()) {
        if (mode.group == ONEBIT_GROUP_BUFFER) continue;
        for (const onebit_datatype_t type : {ONEBIT_BFLOAT16, ONEBIT_INT8}) modes.push_back({mode, type});
    }
    return modes;
}

onebit_allreduce_config_t narrow_config(onebit_algorithm_t form, std::uint64_t count, const NarrowMode& mode) {
    onebit_allreduce_config_t config = form_config(form, count, mode);
    config.error_type = mode.error_type;
    return config;
}

// Whether the number has no more digits than bfloat16 has, 8. Those of bytes have 7.
bool is_narrow(float value) {
    return (std::bit_cast<std::uint32_t>(value) & 0xffffU) == 0;
}

void expect_same_errors(RankLog& log, const Errors& actual, const Errors& expected) {
    expect_bits(log, "the worker error", actual.worker, expected.worker);
    expect_bits(log, "the server error", actual.server, expected.server);
}

// Over the steps: results + mean worker error + server errors == averages of the inputs, except for the rounding of the
// errors. In each step that is at most 2^-8 of each error, or in bytes 2^-7 of the largest of its 256.
void check_conservation(onebit_comm_t comm, RankLog& log, const NarrowMode& mode) {
    constexpr std::uint64_t count = 1009, steps = 200;
    log.context(mode.name());
    Allreduce reduce(comm, narrow_config(ONEBIT_ALGORITHM_PIPELINED, count, mode), log);
    std::vector<double> balance(count, 0.0), allowed(count, 0.0);
    for (std::uint64_t t = 0; t < steps; ++t) {
        for (int r = 0; r < log.size(); ++r) {
            const std::vector<float> data = make_data(Kind::gaussian, count, 21, r, t);
            for (std::uint64_t i = 0; i < count; ++i) balance[i] += static_cast<double>(data[i]) / log.size();
        }
        const std::vector<float> output = reduce.run(make_data(Kind::gaussian, count, 21, log.rank(), t));
        const Errors errors = reduce.errors();
        ONEBIT_EXPECT(log, std::all_of(errors.worker.begin(), errors.worker.end(), is_narrow));
        ONEBIT_EXPECT(log, std::all_of(errors.server.begin(), errors.server.end(), is_narrow));
        std::vector<double> kept(count, 0.0), roundings(count, 0.0);
        // The errors of a chunk, which begin at element `from` of `own`.
        const auto add = [&](const oracle::Range& chunk, const std::vector<float>& own, std::uint64_t from,
                             double share) {
            for (std::uint64_t begin = 0; begin < chunk.count; begin += oracle::group_elements) {
                const std::uint64_t end = std::min(begin + oracle::group_elements, chunk.count);
                double largest = 0;
                for (std::uint64_t i = begin; i < end; ++i) {
                    largest = std::max(largest, std::fabs(static_cast<double>(own[from + i])));
                }
                for (std::uint64_t i = begin; i < end; ++i) {
                    const double e = own[from + i];
                    kept[chunk.begin + i] += e * share;
                    roundings[chunk.begin + i] +=
                        (mode.error_type == ONEBIT_INT8 ? largest * 0x1.03p-7 : std::fabs(e) * 0x1.01p-8) * share;
                }
            }
        };
        const auto chunks = oracle::partition(count, log.size());
        for (const auto& worker : log.gather_floats(errors.worker)) {
            for (const oracle::Range& chunk : chunks) add(chunk, worker, chunk.begin, 1.0 / log.size());
        }
        auto served = chunks.begin();
        for (const auto& server : log.gather_floats(errors.server)) add(*served++, server, 0, 1);
        double lost = 0;
        for (std::uint64_t i = 0; i < count; ++i) {
            balance[i] -= output[i];
            allowed[i] += roundings[i] + 1e-6 * (1 + std::fabs(static_cast<double>(output[i])));
            lost = std::max(lost, std::fabs(balance[i] - kept[i]) / allowed[i]);
        }
        ONEBIT_EXPECT(log, lost <= 1);
    }
}

// Errors of a whole buffer, which lie chunk by chunk.
std::vector<float> rounded_by_chunk(const NarrowMode& mode, const std::vector<float>& errors,
                                    const std::vector<oracle::Range>& chunks) {
    std::vector<float> rounded;
    for (const oracle::Range& chunk : chunks) {
        const auto begin = errors.begin() + static_cast<std::ptrdiff_t>(chunk.begin);
        const std::vector<float> own =
            oracle::kept(mode.oracle_type(), {begin, begin + static_cast<std::ptrdiff_t>(chunk.count)});
        rounded.insert(rounded.end(), own.begin(), own.end());
    }
    return rounded;
}

} // namespace

TEST_CASE("narrow errors lose no more than their rounding", "[allreduce][error_type]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const NarrowMode& mode : narrow_modes()) check_conservation(comm, log, mode);
    });
}

TEST_CASE("narrow errors take half the memory, or a quarter", "[allreduce][error_type]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const NarrowMode& mode : narrow_modes()) {
            log.context(mode.name());
            const std::uint64_t count = 50000;
            Allreduce wide(comm, flat_config(count, mode), log);
            Allreduce narrow(comm, narrow_config(ONEBIT_ALGORITHM_FLAT, count, mode), log);
            const auto wide_bytes = static_cast<double>(wide.info().state_bytes);
            const auto narrow_bytes = static_cast<double>(narrow.info().state_bytes);
            ONEBIT_EXPECT(log, std::fabs(narrow_bytes / wide_bytes - mode.share()) < 0.01);
        }
    });
}

TEST_CASE("narrow errors have the oracle's bits", "[allreduce][error_type][codes][long]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const NarrowMode& mode : narrow_modes()) {
            if (mode.codec == ONEBIT_CODEC_SIGN) continue; // its oracle computes in double
            for (const Kind kind : {Kind::gaussian, Kind::heavy_tailed, Kind::tiny}) {
                log.context(mode.name() + " " + name_of(kind));
                const std::uint64_t count = 9001;
                oracle::CodedAllreduce reference(count, log.size(), static_cast<oracle::Code>(mode.codec));
                reference.error_type = mode.oracle_type();
                Allreduce reduce(comm, narrow_config(ONEBIT_ALGORITHM_PIPELINED, count, mode), log);
                for (std::uint64_t t = 0; t < 8; ++t) {
                    oracle::FloatsPerRank inputs;
                    for (int r = 0; r < log.size(); ++r) inputs.push_back(make_data(kind, count, 5, r, t));
                    expect_bits(log, "the result", reduce.run(inputs[static_cast<std::size_t>(log.rank())]),
                                reference.step(inputs));
                    const Errors errors = reduce.errors();
                    expect_bits(log, "the worker error", errors.worker, reference.worker_error(log.rank()));
                    expect_bits(log, "the server error", errors.server, reference.server_error(log.rank()));
                }
            }
        }
    });
}

TEST_CASE("narrow errors have the oracle's bits on two levels", "[allreduce][error_type][codes][two_level]") {
    if (!can_have_ranks(4)) return;
    const Variable node_size("ONEBIT_NODE_SIZE", "2");
    run_ranks(4, [](onebit_comm_t comm, RankLog& log) {
        for (const NarrowMode& mode : narrow_modes()) {
            if (mode.codec == ONEBIT_CODEC_SIGN) continue;
            log.context(mode.name());
            const std::uint64_t count = 9001;
            oracle::CodedTwoLevel reference(count, 2, 2, static_cast<oracle::Code>(mode.codec));
            reference.set_error_type(mode.oracle_type());
            Allreduce reduce(comm, narrow_config(ONEBIT_ALGORITHM_TWO_LEVEL, count, mode), log);
            ONEBIT_EXPECT(log, reduce.info().algorithm == ONEBIT_ALGORITHM_TWO_LEVEL);
            for (std::uint64_t t = 0; t < 6; ++t) {
                oracle::FloatsPerRank inputs;
                for (int r = 0; r < log.size(); ++r) inputs.push_back(make_data(Kind::gaussian, count, 5, r, t));
                expect_bits(log, "the result", reduce.run(inputs[static_cast<std::size_t>(log.rank())]),
                            reference.step(inputs));
                expect_bits(log, "the worker error", reduce.errors().worker, reference.worker_error(log.rank()));
            }
        }
    });
}

TEST_CASE("the sign's narrow errors are those in float32, rounded", "[allreduce][error_type]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const NarrowMode& mode : narrow_modes()) {
            if (mode.codec != ONEBIT_CODEC_SIGN) continue;
            log.context(mode.name());
            const std::uint64_t count = 9001;
            Allreduce narrow(comm, narrow_config(ONEBIT_ALGORITHM_PIPELINED, count, mode), log);
            Allreduce wide(comm, form_config(ONEBIT_ALGORITHM_PIPELINED, count, mode), log);
            for (std::uint64_t t = 0; t < 6; ++t) {
                const Bytes state = narrow.packed();
                ONEBIT_EXPECT_OK(log, onebit_allreduce_unpack_state(wide.get(), state.data(), state.size()));
                expect_bits(log, "the result", narrow.run_steps(6, t, 1), wide.run_steps(6, t, 1));
                Errors rounded_errors = wide.errors();
                rounded_errors.worker =
                    rounded_by_chunk(mode, rounded_errors.worker, oracle::partition(count, log.size()));
                rounded_errors.server = oracle::kept(mode.oracle_type(), rounded_errors.server);
                expect_same_errors(log, narrow.errors(), rounded_errors);
            }
        }
    });
}

TEST_CASE("narrow errors are the same in every form, with two error states, threads and a mask",
          "[allreduce][error_type]") {
    const int n = GENERATE(from_range(rank_counts()));
    const bool tentative = GENERATE(false, true);
    const Variable second_error("ONEBIT_SECOND_ERROR", tentative ? "1" : "1000000"), piece("ONEBIT_PIECE", "4096");
    run_ranks(n, [=](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t count = 30011;
        std::vector<std::uint32_t> mask((count + 31) / 32);
        for (std::size_t w = 0; w < mask.size(); ++w) mask[w] = w % 5 == 0 ? 0 : 0x7fffffffU * (w % 3 + 1);
        for (const NarrowMode& mode : narrow_modes()) {
            for (const bool masked : {false, true}) {
                std::vector<float> expected;
                Errors errors;
                for (const onebit_algorithm_t form : forms) {
                    log.context(mode.name() + " form " + std::to_string(form) + (masked ? " masked" : ""));
                    onebit_allreduce_config_t config = narrow_config(form, count, mode);
                    if (form == ONEBIT_ALGORITHM_PIPELINED) config.threads = 2;
                    if (form == ONEBIT_ALGORITHM_RING) config.check = ONEBIT_CHECK_FULL_LOW_MEMORY;
                    Allreduce reduce(comm, config, log);
                    if (masked) ONEBIT_EXPECT_OK(log, onebit_allreduce_set_mask(reduce.get(), mask.data()));
                    const std::vector<float> output = reduce.run_steps(3, 0, 3);
                    ONEBIT_EXPECT(log, log.same_on_all(output.data(), output.size() * sizeof(float)));
                    if (expected.empty()) {
                        expected = output;
                        errors = reduce.errors();
                    }
                    expect_bits(log, "the result", output, expected);
                    expect_same_errors(log, reduce.errors(), errors);
                }
            }
        }
    });
}

TEST_CASE("narrow errors are saved as they are, and load into float32 and back", "[allreduce][error_type][state]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t count = 5001;
        for (const NarrowMode& mode : narrow_modes()) {
            log.context(mode.name());
            const onebit_allreduce_config_t narrow = narrow_config(ONEBIT_ALGORITHM_PIPELINED, count, mode);
            Allreduce before(comm, narrow, log), after(comm, narrow, log), wide(comm, flat_config(count, mode), log);
            before.run_steps(4, 0, 3);
            const Bytes state = before.packed();
            ONEBIT_EXPECT_OK(log, onebit_allreduce_unpack_state(wide.get(), state.data(), state.size()));
            expect_same_errors(log, wide.errors(), before.errors());
            const Bytes again = wide.packed();
            ONEBIT_EXPECT_OK(log, onebit_allreduce_unpack_state(after.get(), again.data(), again.size()));
            expect_bits(log, "the next result", after.run_steps(4, 3, 2), before.run_steps(4, 3, 2));
            expect_same_errors(log, after.errors(), before.errors());
        }
    });
}

TEST_CASE("values and narrow errors that overflow are refused by all, and finite ones stay finite",
          "[allreduce][error_type][magnitudes]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t count = 700;
        for (const NarrowMode& mode : narrow_modes()) {
            log.context(mode.name());
            Allreduce reduce(comm, narrow_config(ONEBIT_ALGORITHM_PIPELINED, count, mode), log);
            std::vector<float> huge(count, 3.4e38F), output(count);
            for (std::size_t i = 0; i < count; i += 3) huge[i] = 1e-30F;
            for (int call = 0; call < 6; ++call) {
                const onebit_status_t status = onebit_allreduce_run(reduce.get(), huge.data(), output.data());
                ONEBIT_EXPECT(log, status == ONEBIT_SUCCESS || status == ONEBIT_ERROR_NONFINITE);
                ONEBIT_EXPECT(log, log.same_on_all(&status, sizeof(status)));
                const Errors errors = reduce.errors();
                const auto finite = [](float e) { return std::isfinite(e); };
                ONEBIT_EXPECT(log, std::all_of(errors.worker.begin(), errors.worker.end(), finite));
                ONEBIT_EXPECT(log, std::all_of(errors.server.begin(), errors.server.end(), finite));
                if (status == ONEBIT_SUCCESS) {
                    ONEBIT_EXPECT(log, std::all_of(output.begin(), output.end(), finite));
                }
            }
            std::vector<float> spoiled(count, 1.0F);
            if (log.last_rank()) spoiled[count / 2] = NAN;
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "",
                                  onebit_allreduce_run(reduce.get(), spoiled.data(), output.data()));
            ONEBIT_EXPECT_OK(log, onebit_allreduce_reset(reduce.get()));
            reduce.run_steps(9, 0, 1);
        }
    });
}

TEST_CASE("an error type that can't be is refused on all ranks", "[allreduce][error_type][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const auto expect_fails = [&](onebit_status_t status, const char* needles, const auto& change) {
            log.context(needles);
            onebit_allreduce_config_t config = flat_config(1000);
            change(config);
            onebit_allreduce_t handle = nullptr;
            ONEBIT_EXPECT_FAILURE(log, status, needles, onebit_allreduce_create(comm, &config, &handle));
            ONEBIT_EXPECT(log, handle == nullptr);
        };
        using Config = onebit_allreduce_config_t;
        expect_fails(ONEBIT_ERROR_UNSUPPORTED, "config.error_type;ONEBIT_GROUP_BLOCK", [](Config& c) {
            c.error_type = ONEBIT_BFLOAT16;
            c.group = ONEBIT_GROUP_BUFFER;
        });
        expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, "config.error_type",
                     [](Config& c) { c.error_type = ONEBIT_FLOAT16; });
        expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, "config.error_type",
                     [](Config& c) { c.error_type = static_cast<onebit_datatype_t>(4); });
        expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, "config.datatype;config.error_type",
                     [](Config& c) { c.datatype = ONEBIT_INT8; });
        expect_fails(ONEBIT_ERROR_UNSUPPORTED, "config.error_type;ONEBIT_INT8;ONEBIT_GROUP_BLOCK", [](Config& c) {
            c.error_type = ONEBIT_INT8;
            c.group = ONEBIT_GROUP_BUFFER;
        });
        if (log.size() > 1) {
            expect_fails(ONEBIT_ERROR_MISMATCH, "config.error_type;rank", [&](Config& c) {
                if (log.last_rank()) c.error_type = ONEBIT_BFLOAT16;
            });
        }
    });
}

TEMPLATE_TEST_CASE("shards keep narrow errors, too", "[shards][error_type]", ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const Cut& cut : {mixed_cut(log.size()), cut_with_zeros(log.size())}) {
            for (const NarrowMode& mode : narrow_modes()) {
                log.context(cut.name + ", " + mode.name());
                onebit_shard_config_t config = shard_config(cut, mode);
                Shards<TestType> wide(comm, config, log);
                config.error_type = mode.error_type;
                Shards<TestType> narrow(comm, config, log);
                wide.run(wide.input(Kind::gaussian, 2, 0));
                narrow.run(narrow.input(Kind::gaussian, 2, 0));
                // The error of all shards, or of the own one.
                const std::vector<float> errors = wide.error();
                const std::vector<oracle::Range> own = {{0, errors.size()}};
                const bool whole = std::is_same_v<TestType, ReduceScatter>;
                expect_bits(log, "the error", narrow.error(),
                            rounded_by_chunk(mode, errors, whole ? cut.shards() : own));
                for (std::uint64_t t = 1; t < 4; ++t) narrow.run(narrow.input(Kind::gaussian, 2, t));
                const std::vector<float> later = narrow.error();
                ONEBIT_EXPECT(log, std::all_of(later.begin(), later.end(), is_narrow));
            }
        }
    });
}
