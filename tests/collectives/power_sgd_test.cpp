// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Allreduces of matrices by approximations of a low rank.
#include "oracle/power_sgd.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "support/directory.hpp"
#include "support/handles.hpp"
#include "support/magnitudes.hpp"

using namespace onebit_test;

namespace {

// The matrices of a buffer.
struct Shapes {
    std::vector<std::uint64_t> numbers; // rows and columns

    std::uint64_t count() const {
        std::uint64_t count = 0;
        for (std::size_t i = 0; i < numbers.size(); i += 2) count += numbers[i] * numbers[i + 1];
        return count;
    }
    std::vector<oracle::MatrixShape> for_oracle() const {
        std::vector<oracle::MatrixShape> shapes;
        for (std::size_t i = 0; i < numbers.size(); i += 2) shapes.push_back({numbers[i], numbers[i + 1]});
        return shapes;
    }
};

// A vector first and last, odd sizes, a wide matrix, a tall one, one with several strips of columns, one whose rows are
// several parts.
const Shapes mixed = {{1, 37, 33, 65, 7, 1500, 2111, 9, 64, 64, 1, 1, 40, 10, 113, 1}};
const Shapes tall = {{3001, 301}};
const Shapes long_vector = {{1, 70001, 40, 50}}; // so many values are averaged in another way

constexpr std::uint32_t rank_of_all = 3;

onebit_allreduce_config_t config_of(const Shapes& shapes, onebit_algorithm_t algorithm = ONEBIT_ALGORITHM_FLAT) {
    onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(shapes.count());
    config.codec = ONEBIT_CODEC_POWERSGD;
    config.algorithm = algorithm;
    config.matrix_rank = rank_of_all;
    config.shapes = shapes.numbers.data();
    config.num_shapes = shapes.numbers.size() / 2;
    return config;
}

double largest_of(const std::vector<double>& values) {
    double largest = 0;
    for (const double value : values) {
        if (!(std::fabs(value) <= largest)) largest = std::fabs(value); // a NaN stays
    }
    return largest;
}

// Roundings in float32 of sums of up to a few thousand products, relative to the largest of the values.
void expect_near(RankLog& log, const char* what, const std::vector<float>& actual, const std::vector<double>& expected,
                 double tolerance) {
    if (!ONEBIT_EXPECT(log, actual.size() == expected.size())) return;
    std::vector<double> off(actual.size());
    for (std::size_t i = 0; i < off.size(); ++i) off[i] = actual[i] - expected[i];
    const double most = largest_of(off);
    log.expect(most <= tolerance, std::string(what) + " is off by " + std::to_string(most), __FILE__, __LINE__);
}

std::vector<double> widened(const std::vector<float>& values) {
    return {values.begin(), values.end()};
}

// Each call beside the oracle's, which begins with the library's errors and factors.
void check_beside_oracle(onebit_comm_t comm, RankLog& log, const Shapes& shapes, onebit_op_t op,
                         onebit_datatype_t type) {
    const auto ranks = static_cast<std::size_t>(log.size());
    onebit_allreduce_config_t config = config_of(shapes);
    config.op = op;
    config.datatype = type;
    Allreduce reduce(comm, config, log);
    oracle::PowerSgd expected(shapes.for_oracle(), rank_of_all, ranks, op == ONEBIT_OP_SUM);
    for (std::uint64_t step = 0; step < 6; ++step) {
        const Errors before = reduce.errors();
        const auto all_errors = log.gather_floats(before.worker);
        std::vector<std::vector<double>> inputs;
        for (std::size_t r = 0; r < ranks; ++r) {
            std::vector<float> input = make_data(Kind::gaussian, shapes.count(), 5, static_cast<int>(r), step);
            for (float& x : input) x = rounded(x, type);
            inputs.push_back(widened(input));
            expected.errors[r] = widened(all_errors[r]);
        }
        if (step > 0) expected.right = widened(before.server);
        expect_near(log, "the factors before", before.server, expected.right, 0); // those that are drawn among them
        expected.step(inputs, step);
        const std::vector<float> input(inputs[static_cast<std::size_t>(log.rank())].begin(),
                                       inputs[static_cast<std::size_t>(log.rank())].end());
        const Bytes sent = converted(input, type);
        Bytes received(sent.size());
        ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), sent.data(), received.data()));
        const std::vector<float> result = as_floats(received, type);
        const double largest = std::max(1.0, largest_of(expected.result));
        const double rounding = type == ONEBIT_FLOAT32 ? 2e-5 : type == ONEBIT_FLOAT16 ? 6e-4 : 5e-3;
        expect_near(log, "the result", result, expected.result, rounding * largest);
        const Errors after = reduce.errors();
        expect_near(log, "the error", after.worker, expected.errors[static_cast<std::size_t>(log.rank())],
                    2e-5 * std::max(1.0, largest));
        expect_near(log, "the factors", after.server, expected.right, 2e-5 * std::max(1.0, largest_of(expected.right)));
        ONEBIT_EXPECT(log, log.same_on_all(received.data(), received.size()));
        ONEBIT_EXPECT(log, log.same_on_all(after.server.data(), after.server.size() * sizeof(float)));
    }
}

// The most bytes that one rank sends in an exact average of that many floats: the library chooses the way.
std::uint64_t most_bytes(std::uint64_t numbers, std::uint64_t ranks) {
    return (numbers + 64 * ranks) * 4 * std::max<std::uint64_t>(2, ranks - 1) * (ranks > 1);
}

} // namespace

TEST_CASE("matrices of a low rank: each call is the oracle's", "[allreduce][powersgd][long]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_op_t op : {ONEBIT_OP_AVERAGE, ONEBIT_OP_SUM}) {
            for (const onebit_datatype_t type : {ONEBIT_FLOAT32, ONEBIT_FLOAT16, ONEBIT_BFLOAT16}) {
                log.context("op " + std::to_string(op) + ", type " + std::to_string(type));
                check_beside_oracle(comm, log, mixed, op, type);
            }
        }
        log.context("several parts");
        check_beside_oracle(comm, log, tall, ONEBIT_OP_AVERAGE, ONEBIT_FLOAT32);
        log.context("a long vector");
        check_beside_oracle(comm, log, long_vector, ONEBIT_OP_SUM, ONEBIT_FLOAT32);
    });
}

TEST_CASE("matrices of a low rank: nothing is lost in 200 calls", "[allreduce][powersgd][long]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        constexpr int steps = 200;
        const Shapes shapes = {{17, 23, 1, 40, 31, 19}};
        Allreduce reduce(comm, config_of(shapes), log);
        std::vector<double> balance(shapes.count(), 0.0);
        double largest = 0;
        for (std::uint64_t t = 0; t < steps; ++t) {
            for (int r = 0; r < log.size(); ++r) {
                const std::vector<float> data = make_data(Kind::heavy_tailed, shapes.count(), 21, r, t);
                for (std::size_t i = 0; i < data.size(); ++i) balance[i] += double{data[i]} / log.size();
            }
            const auto output = reduce.run(make_data(Kind::heavy_tailed, shapes.count(), 21, log.rank(), t));
            for (std::size_t i = 0; i < output.size(); ++i) {
                balance[i] -= output[i];
                largest = std::max(largest, std::fabs(double{output[i]}));
            }
        }
        for (const auto& worker : log.gather_floats(reduce.errors().worker)) {
            for (std::size_t i = 0; i < worker.size(); ++i) {
                balance[i] -= double{worker[i]} / log.size();
                largest = std::max(largest, std::fabs(double{worker[i]}));
            }
        }
        expect_balanced(log, balance, steps, largest);
        ONEBIT_EXPECT(log, largest > 0.1);
    });
}

TEST_CASE("matrices of a low rank: what has that rank is delivered whole", "[allreduce][powersgd]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        constexpr std::size_t rows = 120, columns = 77;
        const Shapes shapes = {{rows, columns}};
        Allreduce reduce(comm, config_of(shapes), log);
        const std::vector<float> left = make_data(Kind::gaussian, rows * rank_of_all, 1, 0, 0);
        const std::vector<float> right = make_data(Kind::gaussian, rank_of_all * columns, 2, 0, 0);
        std::vector<float> input(shapes.count(), 0.0F);
        std::vector<double> mean(shapes.count(), 0.0);
        for (std::size_t i = 0; i < input.size(); ++i) {
            double sum = 0;
            for (std::size_t k = 0; k < rank_of_all; ++k) {
                sum += double{left[i / columns * rank_of_all + k]} * right[k * columns + i % columns];
            }
            input[i] = static_cast<float>(sum * (log.rank() + 1)); // each rank another multiple
            mean[i] = sum * (log.size() + 1) / 2;
        }
        const std::vector<float> first = reduce.run(input), second = reduce.run(input);
        expect_near(log, "the first result", first, mean, 1e-4 * largest_of(mean)); // any directions find it
        expect_near(log, "the second result", second, mean, 1e-4 * largest_of(mean));
        // After zeros the directions come from the rounding's remainders, in which these values have no part. The
        // directions are found again, and the omitted values follow.
        for (int t = 0; t < 3; ++t) reduce.run(std::vector<float>(input.size(), 0.0F));
        for (int t = 0; t < 2; ++t) reduce.run(input);
        expect_near(log, "the result after zeros", reduce.run(input), mean, 1e-4 * largest_of(mean));
    });
}

TEST_CASE("matrices of a low rank: the same bits by any thread, any way of calling, in place or not",
          "[allreduce][powersgd][determinism]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const Shapes& shapes : {mixed, tall}) {
            onebit_allreduce_config_t threaded = config_of(shapes);
            threaded.threads = 3;
            onebit_allreduce_config_t unchecked = config_of(shapes);
            unchecked.check = ONEBIT_CHECK_NONE;
            Allreduce plain(comm, config_of(shapes), log), other(comm, threaded, log), third(comm, unchecked, log);
            for (std::uint64_t step = 0; step < 4; ++step) {
                const std::vector<float> input = make_data(Kind::gaussian, shapes.count(), 9, log.rank(), step);
                const std::vector<float> expected = plain.run(input);
                Buffer in_place(shapes.count(), true);
                in_place.set(input);
                ONEBIT_EXPECT_OK(log, onebit_allreduce_start(other.get(), in_place.data(), in_place.data()));
                int done = 0;
                while (done == 0) ONEBIT_EXPECT_OK(log, onebit_allreduce_test(other.get(), &done));
                expect_bits(log, "by threads, in place", in_place.get(), expected);
                ONEBIT_EXPECT(log, in_place.guards_intact());
                expect_bits(log, "unchecked", third.run(input), expected);
            }
            ONEBIT_EXPECT(log, plain.errors().same_as(other.errors()));
            ONEBIT_EXPECT(log, plain.errors().same_as(third.errors()));
        }
    });
}

TEST_CASE("matrices of a low rank: values of all magnitudes", "[allreduce][powersgd][magnitudes]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const std::uint64_t seed : {0, 1, 2, 3}) {
            const Shapes shapes = seed == 3 ? long_vector : Shapes{{37, 41, 1, 13}};
            Allreduce reduce(comm, config_of(shapes), log);
            bool refused = false, delivered = false;
            for (std::uint64_t step = 0; step < 3 * magnitude_turns; ++step) {
                const std::vector<float> values = make_magnitudes(shapes.count(), seed, log.rank(), step);
                std::vector<float> result(values.size());
                const onebit_status_t status = onebit_allreduce_run(reduce.get(), values.data(), result.data());
                ONEBIT_EXPECT(log, log.same_on_all(&status, sizeof status));
                const Errors errors = reduce.errors();
                ONEBIT_EXPECT(log, all_finite(errors.worker) && all_finite(errors.server));
                if (status == ONEBIT_SUCCESS) {
                    delivered = true;
                    ONEBIT_EXPECT(log, all_finite(result));
                    ONEBIT_EXPECT(log, log.same_on_all(result.data(), result.size() * sizeof(float)));
                    continue;
                }
                refused = true;
                ONEBIT_EXPECT(log, status == ONEBIT_ERROR_NONFINITE);
                ONEBIT_EXPECT(log, std::ranges::all_of(errors.worker, [](float e) { return e == 0; }));
            }
            ONEBIT_EXPECT(log, refused && delivered);
        }
        for (const Kind kind : {Kind::tiny, Kind::huge, Kind::zeros}) {
            log.context(name_of(kind));
            const Shapes shapes = {{37, 41, 1, 13}};
            Allreduce reduce(comm, config_of(shapes), log);
            double in = 0, out = 0;
            for (std::uint64_t step = 0; step < 40; ++step) {
                const std::vector<float> values = make_data(kind, shapes.count(), 3, 0, 0);
                for (const float x : values) in += double{x} * x;
                for (const float x : reduce.run(values)) out += double{x} * x;
            }
            ONEBIT_EXPECT(log, out > 0.5 * in); // most of it has been delivered, whatever its size
        }
    });
}

TEST_CASE("matrices of a low rank: what overflows fails on every rank, and all begins anew",
          "[allreduce][powersgd][magnitudes]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Shapes shapes = {{40, 50, 1, 77}};
        const auto expect_fresh_after = [&](onebit_allreduce_config_t config, const void* values, const char* needles) {
            Allreduce reduce(comm, config, log), fresh(comm, config, log);
            std::vector<float> result(shapes.count());
            const std::vector<std::uint16_t> ones(shapes.count(), to_half(1));
            const std::vector<float> wide_ones(shapes.count(), 1.0F);
            const bool wide = config.datatype == ONEBIT_FLOAT32;
            const void* const first = wide ? static_cast<const void*>(wide_ones.data()) : ones.data();
            ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), first, result.data()));
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, needles,
                                  onebit_allreduce_run(reduce.get(), values, result.data()));
            ONEBIT_EXPECT(log, reduce.errors().same_as(fresh.errors()));
            ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), first, result.data()));
        };
        onebit_allreduce_config_t config = config_of(shapes);
        std::vector<float> values(shapes.count(), 1.0F);
        values[77] = 1e38F; // more than a product may be made of
        expect_fresh_after(config, values.data(), "too large");
        if (log.size() == 1) return; // a sum of one is no larger
        values[77] = 1.0F;
        values[2003] = 3e38F; // of the vector, in a sum
        config.op = ONEBIT_OP_SUM;
        expect_fresh_after(config, values.data(), "element 2003;float32");
        const std::vector<std::uint16_t> halves(shapes.count(), to_half(60000));
        config.datatype = ONEBIT_FLOAT16; // all alike, a matrix of rank 1
        expect_fresh_after(config, halves.data(), "element 0;float16");
    });
}

TEST_CASE("matrices of a low rank: a call that is refused changes nothing", "[allreduce][powersgd][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Allreduce reduce(comm, config_of(mixed), log), twin(comm, config_of(mixed), log);
        reduce.run_steps(4, 0, 2);
        twin.run_steps(4, 0, 2);
        const Errors before = reduce.errors();
        std::vector<float> values = make_data(Kind::gaussian, mixed.count(), 4, log.rank(), 2), result(values.size());
        if (log.last_rank()) values[123] = INFINITY;
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "sendbuf[123];rank " + std::to_string(log.size() - 1),
                              onebit_allreduce_run(reduce.get(), values.data(), result.data()));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "recvbuf",
                              onebit_allreduce_run(reduce.get(), values.data(), nullptr));
        const std::vector<std::uint32_t> mask(mixed.count() / 32 + 1, 0xffffffffU);
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_UNSUPPORTED, "ONEBIT_CODEC_POWERSGD;mask",
                              onebit_allreduce_set_mask(reduce.get(), mask.data()));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "is not ONEBIT_ALGORITHM_DENSE or _FLAT",
                              onebit_allreduce_set_algorithm(reduce.get(), ONEBIT_ALGORITHM_PIPELINED));
        ONEBIT_EXPECT(log, reduce.errors().same_as(before));
        expect_bits(log, "the next result", reduce.run_steps(4, 2, 3), twin.run_steps(4, 2, 3));
    });
}

TEST_CASE("matrices of a low rank: saved states", "[allreduce][powersgd][state]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const SharedDirectory directory(log);
        const std::string prefix = directory.prefix("state");
        Allreduce reduce(comm, config_of(mixed), log), packed(comm, config_of(mixed), log),
            loaded(comm, config_of(mixed), log);
        reduce.run_steps(6, 0, 3);
        const Bytes state = reduce.packed();
        ONEBIT_EXPECT_OK(log, onebit_allreduce_save(reduce.get(), prefix.c_str()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_unpack_state(packed.get(), state.data(), state.size()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_load(loaded.get(), prefix.c_str()));
        const std::vector<float> expected = reduce.run_steps(6, 3, 2);
        expect_bits(log, "after unpacking", packed.run_steps(6, 3, 2), expected);
        expect_bits(log, "after loading", loaded.run_steps(6, 3, 2), expected);

        // Of another rank, of other shapes of as many numbers, and of another codec.
        onebit_allreduce_config_t other = config_of(mixed);
        other.matrix_rank = 2;
        Allreduce of_rank(comm, other, log);
        Shapes turned = mixed;
        std::swap(turned.numbers[2], turned.numbers[3]);
        Allreduce of_shapes(comm, config_of(turned), log), of_sign(comm, flat_config(mixed.count()), log);
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE, "server count|shapes",
                              onebit_allreduce_unpack_state(of_rank.get(), state.data(), state.size()));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE, "shapes",
                              onebit_allreduce_unpack_state(of_shapes.get(), state.data(), state.size()));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE, "codec",
                              onebit_allreduce_unpack_state(of_sign.get(), state.data(), state.size()));
        // Reset: as at first, except for the number of calls.
        Allreduce fresh(comm, config_of(mixed), log);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_reset(reduce.get()));
        ONEBIT_EXPECT(log, reduce.errors().same_as(fresh.errors()));
    });
}

TEST_CASE("matrices of a low rank: exact calls between, what is sent, and what AUTO becomes", "[allreduce][powersgd]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const auto ranks = static_cast<std::uint64_t>(log.size());
        Allreduce reduce(comm, config_of(tall), log);
        reduce.run_steps(8, 0, 2);
        const oracle::PowerSgd formula(tall.for_oracle(), rank_of_all, 1, false);
        const std::uint64_t numbers = formula.left_count() + formula.right_count();
        ONEBIT_EXPECT(log, reduce.info().last_bytes_sent <= most_bytes(numbers, ranks));
        ONEBIT_EXPECT(log, ranks == 1 || reduce.info().last_bytes_sent < reduce.info().dense_bytes / 20);
        const Errors before = reduce.errors();
        ONEBIT_EXPECT_OK(log, onebit_allreduce_set_algorithm(reduce.get(), ONEBIT_ALGORITHM_DENSE));
        const std::vector<float> exact = reduce.run_steps(8, 2, 1);
        std::vector<double> mean(exact.size(), 0.0);
        for (int r = 0; r < log.size(); ++r) {
            const std::vector<float> data = make_data(Kind::gaussian, exact.size(), 8, r, 2);
            for (std::size_t i = 0; i < data.size(); ++i) mean[i] += double{data[i]} / log.size();
        }
        expect_near(log, "the exact average", exact, mean, 1e-5);
        ONEBIT_EXPECT(log, reduce.errors().same_as(before));
        // Compression gains nothing here: exact, whatever the settings ask for.
        const Shapes vectors = {{1, 500, 500, 1, 2, 2}};
        Allreduce exact_alone(comm, config_of(vectors), log);
        ONEBIT_EXPECT(log, exact_alone.info().algorithm == ONEBIT_ALGORITHM_DENSE);
        ONEBIT_EXPECT(log, std::string(exact_alone.info().reason).find("no matrix") != std::string::npos);
        Allreduce automatic(comm, config_of(tall, ONEBIT_ALGORITHM_AUTO), log);
        const onebit_algorithm_t chosen = automatic.info().algorithm;
        ONEBIT_EXPECT(log, chosen == ONEBIT_ALGORITHM_DENSE || chosen == ONEBIT_ALGORITHM_FLAT);
        ONEBIT_EXPECT(log, log.same_on_all(&chosen, sizeof chosen));
        automatic.run_steps(8, 0, 2);
    });
}

TEST_CASE("matrices of a low rank: bad and unsupported settings", "[allreduce][powersgd][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        using Config = onebit_allreduce_config_t;
        static constexpr std::uint64_t too_long[] = {10, 10, 1, 901}, too_short[] = {10, 10, 1, 899};
        static constexpr std::uint64_t empty[] = {10, 0, 1, 1000}, wraps[] = {UINT64_MAX, UINT64_MAX};
        static constexpr std::uint64_t good[] = {10, 100}, other[] = {100, 10};
        const auto expect_fails = [&](onebit_status_t status, const char* needles,
                                      const std::function<void(Config&)>& spoil) {
            log.context(needles);
            Config config = ONEBIT_ALLREDUCE_CONFIG_INIT(1000);
            config.codec = ONEBIT_CODEC_POWERSGD;
            config.shapes = good;
            config.num_shapes = 1;
            spoil(config);
            onebit_allreduce_t handle = nullptr;
            ONEBIT_EXPECT_FAILURE(log, status, needles, onebit_allreduce_create(comm, &config, &handle));
            ONEBIT_EXPECT(log, handle == nullptr);
        };
        const auto with = [](const std::uint64_t* shapes, std::uint64_t number) {
            return [=](Config& c) { c.shapes = shapes, c.num_shapes = number; };
        };
        expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, "config.shapes;matrix 1;901", with(too_long, 2));
        expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, "config.shapes;999;1000", with(too_short, 2));
        expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, "config.shapes;matrix 0;empty", with(empty, 2));
        expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, "config.shapes;matrix 0", with(wraps, 1));
        expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, "config.shapes;num_shapes", with(nullptr, 1));
        expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, "config.shapes;num_shapes", with(good, 0));
        expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, "config.shapes;num_shapes", with(good, UINT64_MAX));
        for (int faulty = 0; faulty < log.size(); ++faulty) { // on one rank alone
            const std::string needles = "config.shapes;num_shapes;rank " + std::to_string(faulty);
            expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, needles.c_str(), [&](Config& c) {
                if (log.rank() == faulty) c.shapes = nullptr;
            });
        }
        expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, "config.num_shapes;ONEBIT_CODEC_POWERSGD", [](Config& c) {
            c.codec = ONEBIT_CODEC_SIGN;
            c.shapes = nullptr;
        });
        expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, "config.matrix_rank;64", [](Config& c) { c.matrix_rank = 65; });
        expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, "config.shapes;ONEBIT_CODEC_POWERSGD",
                     [](Config& c) { c.codec = ONEBIT_CODEC_SIGN; });
        expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, "config.matrix_rank;ONEBIT_CODEC_POWERSGD", [](Config& c) {
            c.codec = ONEBIT_CODEC_INT4;
            c.shapes = nullptr;
            c.num_shapes = 0;
            c.matrix_rank = 4;
        });
        expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, "config.scale", [](Config& c) { c.scale = ONEBIT_SCALE_L1; });
        expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, "config.group;ONEBIT_CODEC_POWERSGD",
                     [](Config& c) { c.group = ONEBIT_GROUP_BUFFER; });
        expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, "config.kept;ONEBIT_CODEC_POWERSGD",
                     [](Config& c) { c.kept = 64; });
        expect_fails(ONEBIT_ERROR_UNSUPPORTED, "config.error_type", [](Config& c) { c.error_type = ONEBIT_BFLOAT16; });
        for (const onebit_algorithm_t algorithm : {ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_TWO_LEVEL}) {
            expect_fails(ONEBIT_ERROR_UNSUPPORTED, "config.algorithm;ONEBIT_ALGORITHM_DENSE and _FLAT",
                         [=](Config& c) { c.algorithm = algorithm; });
        }
        if (log.size() > 1) {
            expect_fails(ONEBIT_ERROR_MISMATCH, "config.shapes;rank", [&](Config& c) {
                if (log.last_rank()) c.shapes = other;
            });
            expect_fails(ONEBIT_ERROR_MISMATCH, "config.matrix_rank;rank", [&](Config& c) {
                if (log.last_rank()) c.matrix_rank = 2;
            });
        }
        // What sends messages has none of these.
        onebit_shard_config_t shards = ONEBIT_SHARD_CONFIG_INIT(1000 * static_cast<std::uint64_t>(log.size()));
        shards.codec = ONEBIT_CODEC_POWERSGD;
        onebit_reduce_scatter_t reduce_scatter = nullptr;
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_UNSUPPORTED, "ONEBIT_CODEC_POWERSGD;allreduces;ONEBIT_CODEC_SIGN",
                              onebit_reduce_scatter_create(comm, &shards, &reduce_scatter));
        std::vector<float> parameters(1000), gradients(1000);
        const onebit_tensor_t tensor = ONEBIT_TENSOR_INIT(parameters.data(), gradients.data(), 1000);
        onebit_optimizer_config_t trains = ONEBIT_OPTIMIZER_CONFIG_INIT(ONEBIT_OPTIMIZER_ONEBIT_ADAM, 1e-3);
        trains.codec = ONEBIT_CODEC_POWERSGD;
        onebit_optimizer_t optimizer = nullptr;
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_UNSUPPORTED, "ONEBIT_CODEC_POWERSGD;allreduces;ONEBIT_CODEC_SIGN",
                              onebit_optimizer_create(comm, &trains, &tensor, 1, &optimizer));
    });
}

TEST_CASE("matrices of a low rank: zeros on every rank, and a first call after them", "[allreduce][powersgd]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Shapes shapes = {{50, 60}};
        const std::vector<float> zeros(shapes.count(), 0.0F);
        Allreduce reduce(comm, config_of(shapes), log);
        oracle::PowerSgd expected(shapes.for_oracle(), rank_of_all, static_cast<std::size_t>(log.size()), false);
        for (std::uint64_t step = 0; step < 4; ++step) { // factors are zero: directions are drawn by the call's number
            const std::vector<float> input =
                step < 2 ? zeros : make_data(Kind::gaussian, shapes.count(), 5, log.rank(), step);
            std::vector<std::vector<double>> inputs;
            for (const auto& values : log.gather_floats(input)) inputs.push_back(widened(values));
            expected.step(inputs, step);
            expect_near(log, "the result", reduce.run(input), expected.result, 1e-4);
        }
    });
}
