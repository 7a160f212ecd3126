// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The grouped codes and those of few elements against their oracle, which computes with the same float
// operations: results and both errors have its bits, on every rank and in every form.
#include <algorithm>
#include <functional>
#include <optional>
#include <sstream>

#include "oracle/codes.hpp"
#include "support/environment.hpp"
#include "support/handles.hpp"
#include "support/magnitudes.hpp"
#include "support/sanitized.hpp"

using namespace onebit_test;
using oracle::all_codes;
using oracle::Code;

namespace {

constexpr onebit_op_t all_ops[] = {ONEBIT_OP_AVERAGE, ONEBIT_OP_SUM};
// With the same bits as the flat one.
const std::vector<onebit_algorithm_t> other_forms = {ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_RING,
                                                     ONEBIT_ALGORITHM_BRUCK};

using Mask = std::vector<std::uint32_t>;
using Inputs = std::vector<oracle::FloatsPerRank>; // [step][rank]
using Maker = std::function<std::vector<float>(int rank, std::uint64_t step)>;

Inputs make_inputs(int ranks, std::uint64_t steps, const Maker& make) {
    Inputs inputs(steps);
    for (std::uint64_t step = 0; step < steps; ++step)
        for (int r = 0; r < ranks; ++r) inputs[step].push_back(make(r, step));
    return inputs;
}
Inputs make_inputs(Kind kind, std::uint64_t count, int ranks, std::uint64_t steps) {
    return make_inputs(ranks, steps, [=](int r, std::uint64_t step) { return make_data(kind, count, 13, r, step); });
}

// The expected state of every rank after a step.
struct Outcome {
    bool finite = true;
    std::vector<float> result;
    std::vector<Errors> errors; // [rank]
};

// Some calls and their expected results. A script is made once, for all ranks and forms.
struct Script {
    onebit_allreduce_config_t config; // except for the form
    std::string name;
    Mask mask; // empty: none
    const Inputs* inputs = nullptr;
    std::vector<Outcome> outcomes; // [step]
};

std::vector<bool> flags(const Mask& mask, std::uint64_t count) {
    std::vector<bool> flags;
    for (std::uint64_t i = 0; i < count; ++i) flags.push_back((mask[i / 32] >> (i % 32) & 1) != 0);
    return flags;
}

// The first element of each word is masked, and so is the first element of each block and chunk.
Mask mask_of_beginnings(std::uint64_t count) {
    return Mask((count + 31) / 32, ~std::uint32_t{1});
}

// Half of the elements at random, and a long masked stretch.
Mask random_mask(std::uint64_t count) {
    Random random(5, 0, 0); // the same on every rank
    Mask mask;
    for (std::uint64_t w = 0; w < (count + 31) / 32; ++w) mask.push_back(static_cast<std::uint32_t>(random.next()));
    for (std::size_t w = 20; w < 60 && w < mask.size(); ++w) mask[w] = 0;
    return mask;
}

template <typename Reference>
void play(Script& script, Reference& reference, int ranks) {
    if (!script.mask.empty()) reference.set_mask(flags(script.mask, script.config.count));
    for (const oracle::FloatsPerRank& values : *script.inputs) {
        Outcome outcome;
        outcome.result = reference.step(values);
        outcome.finite = reference.finite;
        for (int r = 0; r < ranks; ++r)
            outcome.errors.push_back({reference.worker_error(r), reference.server_error(r), reference.served(r).begin});
        script.outcomes.push_back(std::move(outcome));
    }
}

// `places` > 1: on two levels, with that many ranks on each node. `call`: the number of the first call.
Script write_script(const Inputs& inputs, Code code, onebit_op_t op = ONEBIT_OP_AVERAGE, const Mask& mask = {},
                    int places = 1, const std::optional<oracle::TopK>& topk = {}, std::uint64_t call = 0) {
    const std::uint64_t count = inputs[0][0].size();
    const int ranks = static_cast<int>(inputs[0].size());
    Script script;
    script.config = flat_config(count);
    script.config.codec = static_cast<onebit_codec_t>(static_cast<int>(code));
    script.config.op = op;
    if (topk) {
        script.config.kept = static_cast<std::uint32_t>(topk->kept);
        script.config.value_bits = topk->bits;
    }
    script.name = std::string(oracle::name_of(code)) + " " + std::to_string(count) +
                  (op == ONEBIT_OP_SUM ? " sum" : "") + (mask.empty() ? "" : " masked");
    script.mask = mask;
    script.inputs = &inputs;
    const oracle::Op oracle_op = op == ONEBIT_OP_SUM ? oracle::Op::sum : oracle::Op::average;
    if (places == 1) {
        oracle::CodedAllreduce reference(count, ranks, code, oracle_op, topk.value_or(oracle::TopK()));
        reference.call = call;
        play(script, reference, ranks);
    } else {
        script.config.algorithm = ONEBIT_ALGORITHM_TWO_LEVEL;
        oracle::CodedTwoLevel reference(count, ranks / places, places, code, oracle_op, topk.value_or(oracle::TopK()));
        play(script, reference, ranks);
    }
    return script;
}

void expect_errors(RankLog& log, Allreduce& reduce, const Errors& expected) {
    const Errors errors = reduce.errors();
    expect_bits(log, "the worker error", errors.worker, expected.worker);
    expect_bits(log, "the server error", errors.server, expected.server);
    ONEBIT_EXPECT(log, errors.begin == expected.begin || errors.server.empty());
}

// Where values plus error aren't finite, each rank says so, and begins again.
void follow_step(RankLog& log, Allreduce& reduce, const Outcome& expected, const std::vector<float>& input,
                 bool in_place, bool misaligned) {
    Buffer send(input.size(), misaligned), receive(input.size(), misaligned);
    Buffer& target = in_place ? send : receive;
    send.set(input);
    if (expected.finite) {
        ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), send.data(), target.data()));
        const std::vector<float> output = target.get();
        expect_bits(log, "the result", output, expected.result);
        ONEBIT_EXPECT(log, log.same_on_all(output.data(), output.size() * sizeof(float)));
    } else {
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "overflow",
                              onebit_allreduce_run(reduce.get(), send.data(), target.data()));
    }
    ONEBIT_EXPECT(log, in_place || same_bits(send.get(), input));
    ONEBIT_EXPECT(log, send.guards_intact() && receive.guards_intact());
    expect_errors(log, reduce, expected.errors[static_cast<std::size_t>(log.rank())]);
}

void follow(onebit_comm_t comm, RankLog& log, const Script& script, onebit_algorithm_t form, std::size_t steps) {
    onebit_allreduce_config_t config = script.config;
    config.algorithm = form;
    Allreduce reduce(comm, config, log);
    ONEBIT_EXPECT(log, form != ONEBIT_ALGORITHM_TWO_LEVEL || reduce.info().algorithm == form);
    if (!script.mask.empty()) ONEBIT_EXPECT_OK(log, onebit_allreduce_set_mask(reduce.get(), script.mask.data()));
    for (std::size_t step = 0; step < std::min(steps, script.outcomes.size()); ++step) {
        log.context(script.name + ", form " + std::to_string(config.algorithm) + ", step " + std::to_string(step));
        const std::vector<float>& input = (*script.inputs)[step][static_cast<std::size_t>(log.rank())];
        follow_step(log, reduce, script.outcomes[step], input, step % 2 == 1, step % 4 >= 2);
    }
}

// All steps in the scripts' own form, and the first six in others.
void follow_all(int n, const std::vector<Script>& scripts, const std::vector<onebit_algorithm_t>& forms) {
    const Variable piece("ONEBIT_PIECE", "4096"); // so that there are several
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        for (const Script& script : scripts) {
            follow(comm, log, script, script.config.algorithm, script.outcomes.size());
            for (const onebit_algorithm_t form : forms) follow(comm, log, script, form, 6);
        }
    });
}

// Bytes that a rank sends of messages, straight to each.
std::uint64_t message_bytes(Code code, std::uint64_t count, int ranks, int rank) {
    std::uint64_t words = 0;
    const std::vector<oracle::Range> chunks = oracle::partition(count, ranks);
    for (int j = 0; j < ranks; ++j) {
        const std::uint64_t length = oracle::message_words(code, chunks[static_cast<std::size_t>(j)].count);
        words += j == rank ? length * static_cast<std::uint64_t>(ranks - 1) : length;
    }
    return 4 * words;
}

} // namespace

TEST_CASE("all codes have the oracle's bits at odd counts", "[allreduce][codes]") {
    const int n = GENERATE(from_range(rank_counts()));
    for (const std::uint64_t count :
         {static_cast<std::uint64_t>(n), std::uint64_t{31}, std::uint64_t{33}, std::uint64_t{255}, std::uint64_t{257},
          std::uint64_t{1009}, std::uint64_t{4095}, std::uint64_t{4097}}) {
        const Inputs inputs = make_inputs(Kind::gaussian, count, n, 20);
        std::vector<Script> scripts;
        for (const Code code : all_codes) scripts.push_back(write_script(inputs, code));
        follow_all(n, scripts, other_forms);
    }
}

TEST_CASE("all codes have the oracle's bits for sums", "[allreduce][codes][sum]") {
    const int n = GENERATE(from_range(rank_counts()));
    for (const std::uint64_t count : {33U, 257U, 4099U}) {
        const Inputs inputs = make_inputs(Kind::heavy_tailed, count, n, 20);
        std::vector<Script> scripts;
        for (const Code code : all_codes) scripts.push_back(write_script(inputs, code, ONEBIT_OP_SUM));
        follow_all(n, scripts, other_forms);
    }
}

TEST_CASE("all codes have the oracle's bits over many blocks", "[allreduce][codes]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Inputs inputs = make_inputs(Kind::heavy_tailed, 20011, n, 6);
    std::vector<Script> scripts;
    for (const Code code : all_codes) scripts.push_back(write_script(inputs, code));
    follow_all(n, scripts, other_forms);
    // With several threads, and where values are checked as they are encoded.
    const Variable second_error("ONEBIT_SECOND_ERROR", "1");
    for (Script& script : scripts) script.config.threads = 3;
    follow_all(n, scripts, {ONEBIT_ALGORITHM_PIPELINED});
}

TEST_CASE("all codes have the oracle's bits in 50 steps", "[allreduce][codes]") {
    const int n = GENERATE(from_range(rank_counts()));
    for (const Kind kind : {Kind::gaussian, Kind::heavy_tailed, Kind::zeros, Kind::tiny, Kind::huge}) {
        const Inputs inputs = make_inputs(kind, 1009, n, kind == Kind::gaussian ? 50 : 20);
        std::vector<Script> scripts;
        for (const Code code : all_codes) scripts.push_back(write_script(inputs, code));
        for (Script& script : scripts) script.name += std::string(" ") + name_of(kind);
        follow_all(n, scripts, {});
    }
}

TEST_CASE("all codes have the oracle's bits under a mask", "[allreduce][codes][mask]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Inputs inputs = make_inputs(Kind::gaussian, 9001, n, 6), few = make_inputs(Kind::gaussian, 200, n, 3);
    std::vector<Script> scripts;
    for (const Code code : all_codes) {
        for (const onebit_op_t op : all_ops) scripts.push_back(write_script(inputs, code, op, random_mask(9001)));
        scripts.push_back(write_script(few, code, ONEBIT_OP_AVERAGE, Mask(7, 0)));
    }
    follow_all(n, scripts, other_forms);
}

TEST_CASE("top-k and random-k have the oracle's bits, however many are kept, in 8 bits or 2",
          "[allreduce][codes][sparse]") {
    const Code code = GENERATE(Code::topk, Code::randomk);
    const int n = GENERATE(from_range(rank_counts()));
    const Inputs inputs = make_inputs(Kind::heavy_tailed, 20011, n, 6), few = make_inputs(Kind::gaussian, 130, n, 20),
                 magnitudes = make_inputs(n, magnitude_turns, [&](int rank, std::uint64_t step) {
                     return make_magnitudes(1300, 3, rank, step);
                 });
    std::vector<Script> scripts;
    for (const oracle::TopK topk : {oracle::TopK{1, 8}, {127, 8}, {128, 2}, {64, 2}, {3, 2}}) {
        for (const Inputs* const values : {&inputs, &few, &magnitudes}) {
            for (const onebit_op_t op : all_ops) scripts.push_back(write_script(*values, code, op, {}, 1, topk));
        }
        scripts.push_back(write_script(inputs, code, ONEBIT_OP_AVERAGE, random_mask(20011), 1, topk));
    }
    follow_all(n, scripts, other_forms);
    const Variable second_error("ONEBIT_SECOND_ERROR", "1");
    for (Script& script : scripts) script.config.threads = 3;
    follow_all(n, scripts, {ONEBIT_ALGORITHM_PIPELINED});
}

TEST_CASE("all codes have the oracle's bits at all magnitudes, and fail where it does",
          "[allreduce][codes][magnitudes]") {
    const int n = GENERATE(from_range(rank_counts()));
    // The largest floats of both signs for a while; then all magnitudes in turn.
    const Inputs inputs = make_inputs(n, 3 * magnitude_turns, [&](int rank, std::uint64_t step) {
        return make_magnitudes(1300, 0, rank, step < magnitude_turns ? 2 : step);
    });
    std::vector<Script> scripts;
    for (const Code code : all_codes) {
        for (const onebit_op_t op : all_ops) scripts.push_back(write_script(inputs, code, op));
        scripts.push_back(write_script(inputs, code, ONEBIT_OP_AVERAGE, random_mask(1300)));
        scripts.push_back(write_script(inputs, code, ONEBIT_OP_AVERAGE, mask_of_beginnings(1300)));
    }
    follow_all(n, scripts, other_forms);
    const Variable second_error("ONEBIT_SECOND_ERROR", "1");
    follow_all(n, scripts, {ONEBIT_ALGORITHM_PIPELINED});
}

TEST_CASE("tiny magnitudes have the oracle's bits under a mask", "[allreduce][codes][mask][magnitudes]") {
    const int n = GENERATE(from_range(rank_counts()));
    // About as large as the smallest normal numbers, among zeros.
    const Inputs inputs = make_inputs(n, 20, [](int rank, std::uint64_t step) {
        Random random(21, rank, step);
        std::vector<float> values(700);
        for (float& value : values)
            value = random.uniform() < 0.3 ? 0.0F : value_of_magnitude(random, -127, -116, true);
        return values;
    });
    std::vector<Script> scripts;
    for (const Code code : all_codes) {
        scripts.push_back(write_script(inputs, code));
        scripts.push_back(write_script(inputs, code, ONEBIT_OP_AVERAGE, random_mask(700)));
    }
    follow_all(n, scripts, {});
}

TEST_CASE("a saved state of a code goes on with the oracle's bits", "[allreduce][codes][state]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Inputs inputs = make_inputs(Kind::gaussian, 5001, n, 6);
    const Inputs first(inputs.begin(), inputs.begin() + 1);
    std::vector<Script> scripts, again; // a reset forgets the error alone: the calls go on
    for (const Code code : all_codes) {
        scripts.push_back(write_script(inputs, code));
        again.push_back(write_script(first, code, ONEBIT_OP_AVERAGE, {}, 1, {}, 3));
    }
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const auto rank = static_cast<std::size_t>(log.rank());
        for (std::size_t i = 0; i < scripts.size(); ++i) {
            const Script& script = scripts[i];
            log.context(script.name);
            Allreduce before(comm, script.config, log), after(comm, script.config, log);
            for (std::size_t step = 0; step < 3; ++step) before.run(inputs[step][rank]);
            const Bytes state = before.packed();
            ONEBIT_EXPECT_OK(log, onebit_allreduce_unpack_state(after.get(), state.data(), state.size()));
            expect_errors(log, after, script.outcomes[2].errors[rank]);
            for (std::size_t step = 3; step < 6; ++step)
                follow_step(log, after, script.outcomes[step], inputs[step][rank], false, false);
            ONEBIT_EXPECT_OK(log, onebit_allreduce_reset(before.get()));
            follow_step(log, before, again[i].outcomes[0], inputs[0][rank], true, false);
        }
    });
}

TEST_CASE("messages of all codes have the length that the page says", "[allreduce][codes]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const Code code : all_codes) {
            for (const std::uint64_t count : {33U, 257U, 4097U, 40003U}) {
                log.context(std::string(oracle::name_of(code)) + " " + std::to_string(count));
                onebit_allreduce_config_t config = flat_config(count);
                config.codec = static_cast<onebit_codec_t>(static_cast<int>(code));
                config.check = ONEBIT_CHECK_NONE; // no tickets
                Allreduce reduce(comm, config, log);
                reduce.run_steps(22, 0, 1);
                ONEBIT_EXPECT(log, reduce.info().last_bytes_sent == message_bytes(code, count, log.size(), log.rank()));
            }
        }
    });
}

TEST_CASE("all codes have the oracle's bits on two levels", "[allreduce][codes][two_level][long]") {
    struct Nodes {
        int ranks, places;
        const char* size;
    };
    for (const Nodes& nodes : {Nodes{4, 2, "2"}, Nodes{6, 3, "3"}, Nodes{6, 2, "2"}}) {
        if (!can_have_ranks(nodes.ranks) || (is_sanitized() && nodes.ranks != 4)) continue;
        std::vector<Script> scripts;
        std::vector<Inputs> inputs;
        for (const std::uint64_t count : {6U, 33U, 257U, 5001U})
            inputs.push_back(make_inputs(Kind::heavy_tailed, count, nodes.ranks, 6));
        for (const std::uint64_t seed : {1U, 2U}) {
            inputs.push_back(make_inputs(nodes.ranks, magnitude_turns, [=](int rank, std::uint64_t step) {
                return make_magnitudes(900, seed, rank, step);
            }));
        }
        for (const Inputs& values : inputs) {
            const std::uint64_t count = values[0][0].size();
            for (const Code code : all_codes) {
                for (const onebit_op_t op : all_ops)
                    scripts.push_back(write_script(values, code, op, {}, nodes.places));
                scripts.push_back(write_script(values, code, ONEBIT_OP_AVERAGE, random_mask(count), nodes.places));
                scripts.push_back(
                    write_script(values, code, ONEBIT_OP_AVERAGE, mask_of_beginnings(count), nodes.places));
            }
        }
        const Variable node_size("ONEBIT_NODE_SIZE", nodes.size);
        follow_all(nodes.ranks, scripts, {});
    }
}
