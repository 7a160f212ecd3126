// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Each instruction set of this machine gives the same bits. The environment chooses it when a communicator is created.
// So these tests run in one process alone: all MPI processes would have to change their environment at the same moment.
#include "support/kernels.hpp"
#include "support/training.hpp"

using namespace onebit_test;

namespace {

constexpr int ranks = 3;

void append(Bytes& to, const void* data, std::size_t bytes) {
    const auto* const first = static_cast<const unsigned char*>(data);
    to.insert(to.end(), first, first + bytes);
}

// Everything that can be seen of a training, after each step.
Bytes history(Training& training, const std::vector<std::vector<float>>& gradients) {
    Bytes seen;
    for (const std::vector<float>& values : gradients) {
        training.step(values);
        const Snapshot now(training);
        append(seen, now.parameters.data(), now.parameters.size() * sizeof(float));
        append(seen, now.copies.data(), now.copies.size());
        append(seen, now.errors.worker.data(), now.errors.worker.size() * sizeof(float));
        append(seen, now.errors.server.data(), now.errors.server.size() * sizeof(float));
        append(seen, &now.info.grad_norm, sizeof now.info.grad_norm);
    }
    return seen;
}

// By rank.
std::vector<Bytes> history_with(const char* kernels, const Setup& setup) {
    std::vector<Bytes> histories(ranks);
    const Variable chosen("ONEBIT_KERNELS", kernels);
    run_ranks(ranks, [&](onebit_comm_t comm, RankLog& log) {
        log.context(std::string(kernels) + ", " + name_of(setup.config.kind));
        const Gradient gradient = gaussian_gradient(total(setup.sizes), 1);
        std::vector<std::vector<float>> gradients;
        for (std::uint64_t t = 1; t <= 12; ++t) gradients.push_back(gradient(log.rank(), t));
        Training training(comm, setup, log);
        histories[static_cast<std::size_t>(log.rank())] = history(training, gradients);
        ONEBIT_EXPECT(log, training.info().steps == 12);
    });
    return histories;
}

} // namespace

TEST_CASE("every instruction set gives the same bits", "[optimizer][determinism]") {
    REQUIRE(available("reference"));
    const onebit_optimizer_kind_t kind = GENERATE(from_range(all_kinds()));
    const auto [type, compressed, codec] = GENERATE(table<onebit_datatype_t, onebit_compressed_t, onebit_codec_t>(
        {{ONEBIT_FLOAT32, ONEBIT_COMPRESSED_UPDATES, ONEBIT_CODEC_SIGN},
         {ONEBIT_FLOAT32, ONEBIT_COMPRESSED_MOMENTA, ONEBIT_CODEC_SIGN},
         {ONEBIT_FLOAT16, ONEBIT_COMPRESSED_UPDATES, ONEBIT_CODEC_SIGN},
         {ONEBIT_BFLOAT16, ONEBIT_COMPRESSED_UPDATES, ONEBIT_CODEC_SIGN},
         {ONEBIT_FLOAT32, ONEBIT_COMPRESSED_UPDATES, ONEBIT_CODEC_INT4},
         {ONEBIT_BFLOAT16, ONEBIT_COMPRESSED_MOMENTA, ONEBIT_CODEC_TERNARY}}));
    if (compressed == ONEBIT_COMPRESSED_MOMENTA && !freezes(kind)) return;
    Setup setup{quick_config(kind), {4097, 1, 2 * 4096 + 333, 15, 64}};
    setup.config.compressed = compressed;
    setup.config.codec = codec;
    setup.config.weight_decay = 0.01;
    setup.config.max_grad_norm = type == ONEBIT_BFLOAT16 ? 0 : 50;
    setup.config.bias_correction = type == ONEBIT_FLOAT16 ? 0 : 1;
    setup.groups.assign(2, ONEBIT_PARAM_GROUP_INIT(0.01));
    setup.groups[1].no_compress = 1;
    setup.group_of = {0, 0, 0, 1, 0};
    setup.gradient_type = type;
    setup.copies = true;
    setup.copy_type = type;
    const std::vector<Bytes> expected = history_with("reference", setup);
    for (const char* name : {"sse4", "avx2", "avx512", "neon"}) {
        if (!available(name)) continue;
        INFO(name << ", " << name_of(kind) << ", gradient type " << type << ", codec " << codec);
        CHECK((history_with(name, setup) == expected)); // in parentheses: else a megabyte of numbers is printed
    }
}
