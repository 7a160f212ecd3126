// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Buffers of 16-bit values. A compressed call is the float32 call of the same values, rounded. An exact call is a sum
// in float32 in rank order, rounded. A value too large becomes an infinity only with an error.
#include <cfloat>
#include <cstring>

#include "support/environment.hpp"
#include "support/handles.hpp"
#include "support/shard_handles.hpp"

using namespace onebit_test;

namespace {

constexpr onebit_datatype_t kTypes[] = {ONEBIT_FLOAT16, ONEBIT_BFLOAT16};
constexpr onebit_algorithm_t kCompressed[] = {ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED,
                                              ONEBIT_ALGORITHM_TWO_LEVEL, ONEBIT_ALGORITHM_BRUCK,
                                              ONEBIT_ALGORITHM_RING};

// These codecs differ in how values are read and results written; floats suffice for the codecs themselves.
constexpr Mode kModes[] = {{ONEBIT_SCALE_L2, ONEBIT_GROUP_BLOCK},
                           {ONEBIT_SCALE_L1, ONEBIT_GROUP_BUFFER},
                           {ONEBIT_SCALE_L2, ONEBIT_GROUP_BLOCK, ONEBIT_CODEC_INT8}};

float most_of(onebit_datatype_t type) {
    return type == ONEBIT_FLOAT16 ? 65504.0F : 0x1.fep127F;
}

// Values that the type has.
std::vector<float> narrow_data(Kind kind, onebit_datatype_t type, std::size_t count, int rank, std::uint64_t step) {
    std::vector<float> values = make_data(kind, count, 61, rank, step);
    for (float& x : values) x = rounded(x, type);
    return values;
}

onebit_allreduce_config_t narrow_config(onebit_datatype_t type, onebit_algorithm_t form, std::uint64_t count,
                                        Mode mode = default_mode()) {
    onebit_allreduce_config_t config = form_config(form, count, mode);
    config.datatype = type;
    return config;
}

// 16-bit values between guards that must stay unchanged, aligned to two bytes only.
class NarrowBuffer {
  public:
    NarrowBuffer(const std::vector<float>& values, onebit_datatype_t type)
        : bytes_(values.size() * 2 + 2 * kGuard + 2, kUntouched), count_(values.size()) {
        const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
        begin_ = kGuard + (address + kGuard) % 4 / 2 * 2 + (address % 4 == 0 ? 2 : 0);
        const Bytes converted = onebit_test::converted(values, type);
        if (!values.empty()) std::memcpy(bytes_.data() + begin_, converted.data(), converted.size());
    }
    void* data() { return bytes_.data() + begin_; }
    Bytes get() const {
        const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(begin_);
        return {begin, begin + static_cast<std::ptrdiff_t>(2 * count_)};
    }
    bool guards_intact() const {
        for (std::size_t i = 0; i < bytes_.size(); ++i)
            if ((i < begin_ || i >= begin_ + 2 * count_) && bytes_[i] != kUntouched) return false;
        return true;
    }

  private:
    static constexpr std::size_t kGuard = 64;
    static constexpr unsigned char kUntouched = 0xa5;
    Bytes bytes_;
    std::size_t count_, begin_ = 0;
};

// An allreduce, run or started, in place or not.
Bytes run_narrow(onebit_allreduce_t handle, const std::vector<float>& values, onebit_datatype_t type, Way way,
                 RankLog& log) {
    NarrowBuffer input(values, type), output(std::vector<float>(values.size(), 7), type);
    const Bytes before = input.get();
    NarrowBuffer& result = way.in_place ? input : output;
    if (way.started) {
        ONEBIT_EXPECT_OK(log, onebit_allreduce_start(handle, input.data(), result.data()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(handle));
    } else {
        ONEBIT_EXPECT_OK(log, onebit_allreduce_run(handle, input.data(), result.data()));
    }
    ONEBIT_EXPECT(log, input.guards_intact() && output.guards_intact());
    ONEBIT_EXPECT(log, way.in_place || input.get() == before);
    return result.get();
}

Way way_of(std::uint64_t call) {
    return {.in_place = call % 2 == 1, .started = call % 3 == 2};
}

} // namespace

TEST_CASE("a compressed allreduce of 16-bit values is that of the same floats, rounded", "[allreduce][narrow]") {
    const bool on_nodes = GENERATE(false, true);
    const Variable nodes("ONEBIT_NODE_SIZE", on_nodes ? "2" : "");
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        for (const onebit_datatype_t type : kTypes) {
            for (const onebit_algorithm_t form : kCompressed) {
                if (on_nodes != (form == ONEBIT_ALGORITHM_TWO_LEVEL)) continue;
                for (const Mode& mode : kModes) {
                    for (const std::uint64_t count : {33, 12289}) {
                        for (const onebit_op_t op : {ONEBIT_OP_AVERAGE, ONEBIT_OP_SUM}) {
                            log.context(std::to_string(type) + " " + std::to_string(form) + " " + mode.name() + " of " +
                                        std::to_string(count));
                            onebit_allreduce_config_t config = form_config(form, count, mode);
                            config.op = op;
                            Allreduce wide(comm, config, log);
                            config.datatype = type;
                            Allreduce narrow(comm, config, log);
                            for (std::uint64_t call = 0; call < 4; ++call) {
                                const auto values = narrow_data(Kind::heavy_tailed, type, count, log.rank(), call);
                                const Bytes output = run_narrow(narrow.get(), values, type, way_of(call), log);
                                ONEBIT_EXPECT(log, output == converted(wide.run(values), type));
                                ONEBIT_EXPECT(log, log.same_on_all(output.data(), output.size()));
                            }
                            ONEBIT_EXPECT(log, narrow.errors().same_as(wide.errors()));
                            ONEBIT_EXPECT(log, narrow.info().last_bytes_sent == wide.info().last_bytes_sent);
                            ONEBIT_EXPECT(log, narrow.info().dense_bytes == wide.info().dense_bytes / 2);
                        }
                    }
                }
            }
        }
    });
}

TEST_CASE("a state of 16-bit values is one of floats", "[allreduce][narrow][state]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        Allreduce narrow(comm, narrow_config(ONEBIT_BFLOAT16, ONEBIT_ALGORITHM_FLAT, 5001), log);
        for (std::uint64_t call = 0; call < 3; ++call)
            run_narrow(narrow.get(), narrow_data(Kind::gaussian, ONEBIT_BFLOAT16, 5001, log.rank(), call),
                       ONEBIT_BFLOAT16, {}, log);
        Allreduce wide(comm, flat_config(5001), log);
        const Bytes state = narrow.packed();
        ONEBIT_EXPECT_OK(log, onebit_allreduce_unpack_state(wide.get(), state.data(), state.size()));
        ONEBIT_EXPECT(log, wide.errors().same_as(narrow.errors()));
    });
}

TEST_CASE("an exact allreduce of 16-bit values adds up in float32, in the order of ranks", "[allreduce][narrow]") {
    const onebit_check_t check = GENERATE(ONEBIT_CHECK_FULL, ONEBIT_CHECK_NONE);
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const auto ranks = static_cast<std::uint64_t>(log.size());
        for (const std::uint64_t count :
             {ranks, std::uint64_t{33}, std::uint64_t{2049}, std::uint64_t{70001}, (std::uint64_t{1} << 18) + 5}) {
            for (const onebit_datatype_t type : kTypes) {
                for (const onebit_op_t op : {ONEBIT_OP_AVERAGE, ONEBIT_OP_SUM}) {
                    log.context(std::to_string(type) + " of " + std::to_string(count) + " op " + std::to_string(op));
                    onebit_allreduce_config_t config = narrow_config(type, ONEBIT_ALGORITHM_DENSE, count);
                    config.check = check;
                    config.op = op;
                    Allreduce reduce(comm, config, log);
                    std::vector<float> expected(count);
                    for (int r = 0; r < log.size(); ++r) {
                        const auto part = narrow_data(Kind::gaussian, type, count, r, 3);
                        for (std::uint64_t i = 0; i < count; ++i)
                            expected[i] = r == 0 ? part[i] : expected[i] + part[i];
                    }
                    const float share = op == ONEBIT_OP_SUM ? 1.0F : 1.0F / static_cast<float>(log.size());
                    for (float& x : expected) x *= share;
                    const auto values = narrow_data(Kind::gaussian, type, count, log.rank(), 3);
                    for (std::uint64_t call = 0; call < 3; ++call) {
                        const Bytes output = run_narrow(reduce.get(), values, type, way_of(call), log);
                        ONEBIT_EXPECT(log, output == converted(expected, type));
                    }
                }
            }
        }
    });
}

TEST_CASE("exact averages of the largest 16-bit values are finite, and sums of them an error", "[allreduce][narrow]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        for (const onebit_datatype_t type : kTypes) {
            for (const std::uint64_t count : {std::uint64_t{33}, std::uint64_t{2049}, (std::uint64_t{1} << 18) + 5}) {
                log.context(std::to_string(type) + " of " + std::to_string(count));
                onebit_allreduce_config_t config = narrow_config(type, ONEBIT_ALGORITHM_DENSE, count);
                const std::vector<float> values(count, -most_of(type));
                Allreduce average(comm, config, log);
                ONEBIT_EXPECT(log, run_narrow(average.get(), values, type, {}, log) == converted(values, type));
                config.op = ONEBIT_OP_SUM;
                Allreduce sum(comm, config, log);
                NarrowBuffer input(values, type), output(values, type);
                if (log.size() > 1)
                    ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE,
                                          type == ONEBIT_FLOAT16 ? "overflows float16" : "overflows bfloat16",
                                          onebit_allreduce_run(sum.get(), input.data(), output.data()));
                const std::vector<float> ones(count, 1), expected(count, static_cast<float>(log.size()));
                ONEBIT_EXPECT(log, run_narrow(sum.get(), ones, type, {}, log) == converted(expected, type));
            }
        }
    });
}

TEST_CASE("a compressed average too large for float16 is NONFINITE on every rank", "[allreduce][narrow]") {
    const bool on_nodes = GENERATE(false, true);
    const Variable nodes("ONEBIT_NODE_SIZE", on_nodes ? "2" : "");
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        for (const onebit_algorithm_t form : kCompressed) {
            if (on_nodes != (form == ONEBIT_ALGORITHM_TWO_LEVEL)) continue;
            for (const onebit_check_t check : {ONEBIT_CHECK_FULL, ONEBIT_CHECK_FULL_LOW_MEMORY}) {
                log.context(std::to_string(form) + " check " + std::to_string(check));
                onebit_allreduce_config_t config = narrow_config(ONEBIT_FLOAT16, form, 9001);
                config.check = check;
                Allreduce reduce(comm, config, log);
                std::vector<float> values(9001, 0);
                for (std::size_t i = 0; i < values.size(); i += 2) values[i] = 65504;
                // Half of the values remain as error, which disturbs the next values.
                run_narrow(reduce.get(), values, ONEBIT_FLOAT16, {}, log);
                NarrowBuffer input(values, ONEBIT_FLOAT16), output(values, ONEBIT_FLOAT16);
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "recvbuf;reset",
                                      onebit_allreduce_run(reduce.get(), input.data(), output.data()));
                const Errors errors = reduce.errors();
                ONEBIT_EXPECT(log, errors.worker == std::vector<float>(errors.worker.size(), 0));
                const std::vector<float> ones(9001, 1);
                ONEBIT_EXPECT(
                    log, run_narrow(reduce.get(), ones, ONEBIT_FLOAT16, {}, log) == converted(ones, ONEBIT_FLOAT16));
            }
        }
    });
}

TEST_CASE("a NaN or an infinity among 16-bit values is named on every rank", "[allreduce][narrow][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        for (const onebit_datatype_t type : kTypes) {
            for (const onebit_algorithm_t form : {ONEBIT_ALGORITHM_DENSE, ONEBIT_ALGORITHM_PIPELINED}) {
                for (const std::uint64_t count : {std::uint64_t{33}, (std::uint64_t{1} << 18) + 5}) {
                    for (const float bad : {NAN, -INFINITY}) {
                        log.context(std::to_string(type) + " " + std::to_string(form) + " " + std::to_string(bad));
                        Allreduce reduce(comm, narrow_config(type, form, count), log);
                        std::vector<float> values(count, 1);
                        if (log.last_rank()) values[17] = bad;
                        NarrowBuffer input(values, type), output(values, type);
                        const Errors before = reduce.errors();
                        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE,
                                              std::string("sendbuf[17] is ") + (std::isnan(bad) ? "nan" : "-inf"),
                                              onebit_allreduce_run(reduce.get(), input.data(), output.data()));
                        ONEBIT_EXPECT(log, reduce.errors().same_as(before));
                        values[17] = 1;
                        ONEBIT_EXPECT(log, run_narrow(reduce.get(), values, type, {}, log) == converted(values, type));
                    }
                }
            }
        }
    });
}

TEST_CASE("16-bit buffers at an odd address, or that overlap by an element, are refused", "[narrow][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        Allreduce reduce(comm, narrow_config(ONEBIT_FLOAT16, ONEBIT_ALGORITHM_FLAT, 100), log);
        NarrowBuffer values(std::vector<float>(202, 1), ONEBIT_FLOAT16);
        auto* const at = static_cast<std::byte*>(values.data());
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "recvbuf;aligned to 2 bytes",
                              onebit_allreduce_run(reduce.get(), at, at + 201));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "overlap",
                              onebit_allreduce_run(reduce.get(), at, at + 198));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), at, at + 200));
    });
}

TEMPLATE_TEST_CASE("16-bit shards: the compressed collective is that of the same floats, rounded", "[shards][narrow]",
                   ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        for (const Cut& cut : {mixed_cut(log.size()), cut_with_zeros(log.size()), chunk_cut(log.size(), 12289)}) {
            for (const onebit_datatype_t type : kTypes) {
                for (const Mode& mode : kModes) {
                    log.context(cut.name + " " + std::to_string(type) + " " + mode.name());
                    onebit_shard_config_t config = shard_config(cut, mode);
                    Shards<TestType> wide(comm, config, log);
                    config.datatype = type;
                    Shards<TestType> narrow(comm, config, log);
                    for (std::uint64_t call = 0; call < 3; ++call) {
                        const auto values = narrow_data(Kind::heavy_tailed, type, wide.input_count(), log.rank(), call);
                        NarrowBuffer input(values, type);
                        NarrowBuffer output(std::vector<float>(wide.output_count(), 7), type);
                        ONEBIT_EXPECT_OK(log, TestType::run(narrow.get(), input.data(), output.data()));
                        ONEBIT_EXPECT(log, output.get() == converted(wide.run(values), type));
                        ONEBIT_EXPECT(log, input.guards_intact() && output.guards_intact());
                    }
                    ONEBIT_EXPECT(log, same_bits(narrow.error(), wide.error()));
                }
            }
        }
    });
}

TEMPLATE_TEST_CASE("16-bit shards: an exact collective is exact but for one rounding", "[shards][narrow]",
                   ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        for (const Cut& cut : {mixed_cut(log.size()), cut_with_zeros(log.size()), equal_cut(log.size(), 4097)}) {
            for (const onebit_datatype_t type : kTypes) {
                log.context(cut.name + " " + std::to_string(type));
                onebit_shard_config_t config = shard_config(cut, default_mode(), ONEBIT_ALGORITHM_DENSE);
                Shards<TestType> wide(comm, config, log); // whose sums are in the order of ranks, too
                config.datatype = type;
                Shards<TestType> narrow(comm, config, log);
                const auto values = narrow_data(Kind::gaussian, type, wide.input_count(), log.rank(), 9);
                NarrowBuffer input(values, type), output(std::vector<float>(wide.output_count(), 7), type);
                ONEBIT_EXPECT_OK(log, TestType::run(narrow.get(), input.data(), output.data()));
                ONEBIT_EXPECT(log, output.get() == converted(wide.run(values), type));
                ONEBIT_EXPECT(log, input.guards_intact() && output.guards_intact());
                ONEBIT_EXPECT(log, narrow.info().dense_bytes == wide.info().dense_bytes / 2);
            }
        }
    });
}

TEST_CASE("a reduce-scatter whose result is too large for its type fails on every rank", "[shards][narrow]") {
    const onebit_algorithm_t form = GENERATE(ONEBIT_ALGORITHM_DENSE, ONEBIT_ALGORITHM_PIPELINED);
    const int n = GENERATE(from_range(rank_counts()));
    if (n == 1) return;
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const Cut cut = equal_cut(log.size(), 4097);
        for (const onebit_datatype_t type : kTypes) {
            log.context(std::to_string(type));
            onebit_shard_config_t config = shard_config(cut, default_mode(), form);
            config.datatype = type;
            config.op = ONEBIT_OP_SUM;
            Shards<ReduceScatter> sum(comm, config, log);
            std::vector<float> values(cut.total(), 1);
            for (std::uint64_t i = 0; i < 4097; ++i) values[i] = most_of(type); // the first rank's alone
            NarrowBuffer input(values, type), output(std::vector<float>(4097, 0), type);
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "overflow",
                                  onebit_reduce_scatter_run(sum.get(), input.data(), output.data()));
            NarrowBuffer ones(std::vector<float>(cut.total(), 1), type);
            ONEBIT_EXPECT_OK(log, onebit_reduce_scatter_run(sum.get(), ones.data(), output.data()));
            const std::vector<float> expected(4097, static_cast<float>(log.size()));
            ONEBIT_EXPECT(log, output.get() == converted(expected, type));
        }
    });
}
