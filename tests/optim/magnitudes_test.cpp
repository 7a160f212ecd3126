// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Parameters, gradients and settings of all magnitudes of a float. After a step that succeeds all values are finite,
// and the same on all ranks. A step that is refused leaves parameters and copies unchanged. On the host, and on a GPU,
// which gives the host's bits.
#include "support/magnitudes.hpp"

#include "optim/training_on.hpp"
#include "support/forge.hpp"

using namespace onebit_test;

namespace {

template <typename T, std::size_t n>
T one_of(Random& random, const T (&values)[n]) {
    return values[random.next() % n];
}

constexpr double kRates[] = {0, 1e-30, 1e-8, 1e-3, 1, 1e10, 1e30, 3e38};
constexpr onebit_datatype_t kTypes[] = {ONEBIT_FLOAT32, ONEBIT_FLOAT16, ONEBIT_BFLOAT16};

// Drawn alike on all ranks: any settings that a caller may choose.
Model draw_model(onebit_optimizer_kind_t kind, Random& random) {
    static constexpr double kDecays[] = {0, 0, 0.01, 10, 1e38};
    static constexpr double kEps[] = {1e-8, 1e-8, 1e-30, 2e-38, 1, 1e38, 3.4e38};
    static constexpr double kBetas1[] = {0.9, 0.9, 0, 0.5, 0.9999999};
    static constexpr double kBetas2[] = {0.999, 0.999, 0, 0.9, 0.9999999};
    static constexpr double kNorms[] = {0, 0, 1, 1e-30, 1e30};
    static constexpr double kMostTrust[] = {10, 10, 0.02, 3e38};
    static constexpr double kLeastTrust[] = {0, 0.01};
    Model model{quick_config(kind, one_of(random, kRates)), {}};
    model.config.bias_correction = static_cast<int>(random.next() % 2);
    model.config.momentum_scaling = static_cast<int>(random.next() % 2);
    model.config.weight_decay = one_of(random, kDecays);
    model.config.eps = one_of(random, kEps);
    model.config.beta1 = one_of(random, kBetas1);
    model.config.beta2 = one_of(random, kBetas2);
    model.config.max_grad_norm = one_of(random, kNorms);
    model.config.max_trust = one_of(random, kMostTrust);
    model.config.min_trust = one_of(random, kLeastTrust);
    model.config.group = random.next() % 2 == 0 ? ONEBIT_GROUP_BLOCK : ONEBIT_GROUP_BUFFER;
    model.config.scale = random.next() % 2 == 0 ? ONEBIT_SCALE_L2 : ONEBIT_SCALE_L1;
    model.config.bucket_size = random.next() % 4 == 0 ? 1 : 0; // one bucket, begun early
    for (const std::size_t count : {std::size_t{33}, std::size_t{1}, std::size_t{70}, std::size_t{31}}) {
        model.tensors.push_back({count, static_cast<std::uint32_t>(random.next() % 2), one_of(random, kTypes),
                                 random.next() % 4 != 0, one_of(random, kTypes)});
    }
    if (random.next() % 8 == 0) model.tensors[2].count = 4133; // more than a block
    model.tensors[0].group = 0;                                // each group has more elements than ranks
    model.tensors[3].group = 1;
    model.groups.assign(2, ONEBIT_PARAM_GROUP_INIT(model.config.lr));
    for (onebit_param_group_t& group : model.groups) {
        group.beta1 = model.config.beta1;
        group.beta2 = model.config.beta2;
        group.eps = model.config.eps;
        group.weight_decay = model.config.weight_decay;
    }
    model.groups[1].weight_decay = one_of(random, kDecays);
    model.groups[1].no_compress = random.next() % 2 == 0 ? 1 : 0;
    return model;
}

// For the host's memory, which has codecs besides the sign.
void draw_codec(Model& model, std::uint64_t seed) {
    Random random(seed, -2, 1000 + static_cast<std::uint64_t>(model.config.kind));
    const std::vector<Mode>& modes = every_mode();
    const Mode& mode = modes[random.next() % modes.size()];
    if (mode.codec == ONEBIT_CODEC_SIGN) return;
    model.config.codec = mode.codec;
    model.config.scale = mode.scale;
    model.config.group = mode.group;
}

// Each tensor's own kind of magnitudes, up to 2^most.
std::vector<float> draw_values(const Model& model, Random& random, int most) {
    std::vector<float> values;
    for (const TensorKind& tensor : model.tensors) {
        const std::uint64_t turn = random.next() % 8;
        const int middle = -140 + static_cast<int>(random.next() % static_cast<std::uint64_t>(140 + most));
        for (std::size_t i = 0; i < tensor.count; ++i) {
            float value = 0;
            if (turn == 0) value = value_of_magnitude(random, -149, most, true);
            if (turn == 1) value = value_of_magnitude(random, most - 1, most, false);
            if (turn == 2) value = value_of_magnitude(random, most - 1, most, true);
            if (turn == 3) value = value_of_magnitude(random, -149, -118, true);
            if (turn == 4) value = static_cast<float>(random.gaussian());
            if (turn == 5) value = value_of_magnitude(random, middle - 2, middle, true);
            if (turn == 6 && random.uniform() < 0.3) value = value_of_magnitude(random, -149, most, true);
            values.push_back(value);
        }
    }
    return values;
}

// A rank's gradients in this step: of a size that a step accepts, or in some steps of any size.
std::vector<float> draw_gradients(const Model& model, double scale, std::uint64_t seed, int rank, std::uint64_t step) {
    Random of_all(seed, -1, step);
    const bool any = of_all.next() % 8 == 0;
    const int most_exponent = of_all.next() % 4 == 0 ? 64 : 61; // what a step takes depends on beta2, too
    Random random(seed, rank, step);
    std::vector<float> values = draw_values(model, random, any ? 128 : most_exponent);
    std::size_t at = 0;
    for (const TensorKind& tensor : model.tensors) {
        const double most = tensor.gradient_type == ONEBIT_FLOAT16 ? 65504
                            : any                                  ? 3.3e38
                                                                   : 5e37; // a sum of ranks is one
        for (std::size_t i = 0; i < tensor.count; ++i, ++at) {
            const double value = any ? values[at] : values[at] * scale;
            values[at] = static_cast<float>(std::clamp(value, -most, most));
        }
    }
    return values;
}

bool copies_finite(const TrainingOn& training) {
    const Bytes all = training.copies();
    std::size_t at = 0;
    for (const TensorKind& tensor : training.model().tensors) {
        const std::size_t bytes = tensor.count * bytes_of(tensor.copy_type);
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(at);
        const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
        if (tensor.has_copy && !all_finite(as_floats(Bytes(begin, end), tensor.copy_type))) return false;
        at += bytes;
    }
    return true;
}

// A save's arrays, except the mask, whose words are no floats.
bool saved_floats_finite(const Bytes& file) {
    constexpr std::uint32_t kMask = 7;
    std::size_t at = values_at(file);
    for (std::uint32_t a = 0; a < get<std::uint32_t>(file, kArraysAt); ++a) {
        const std::size_t row = rows_at(file) + kRowBytes * a;
        const std::uint64_t bytes = 4 * get<std::uint64_t>(file, row + 32);
        const auto begin = file.begin() + static_cast<std::ptrdiff_t>(at);
        const Bytes array(begin, begin + static_cast<std::ptrdiff_t>(bytes));
        if (get<std::uint32_t>(file, row) != kMask && !all_finite(as_floats(array, ONEBIT_FLOAT32))) return false;
        at += bytes;
    }
    return at == file.size();
}

void expect_finite(TrainingOn& training, RankLog& log, bool ranks_have_met) {
    const std::vector<float> parameters = training.parameter_values();
    const OptimizerErrors errors = training.errors();
    ONEBIT_EXPECT(log, all_finite(parameters));
    ONEBIT_EXPECT(log, copies_finite(training));
    ONEBIT_EXPECT(log, all_finite(errors.worker) && all_finite(errors.server));
    ONEBIT_EXPECT(log, std::isfinite(training.info().grad_norm));
    const bool same = log.same_on_all(parameters.data(), parameters.size() * sizeof(float));
    ONEBIT_EXPECT(log, same || !ranks_have_met);
}

// Returns what the step does.
onebit_status_t expect_step(TrainingOn& training, RankLog& log, const std::vector<float>& gradients) {
    const Bytes parameters = training.parameters(), copies = training.copies();
    const std::uint64_t rounds = training.info().exact_rounds + training.info().compressed_rounds;
    training.set_gradients(gradients);
    const onebit_status_t status = onebit_optimizer_step(training.get());
    ONEBIT_EXPECT(log, log.same_on_all(&status, sizeof status));
    ONEBIT_EXPECT(log, status == ONEBIT_SUCCESS || status == ONEBIT_ERROR_NONFINITE);
    const bool round = training.info().exact_rounds + training.info().compressed_rounds > rounds;
    if (status == ONEBIT_SUCCESS) {
        expect_finite(training, log, round);
    } else {
        ONEBIT_EXPECT(log, training.parameters() == parameters && training.copies() == copies);
    }
    return status;
}

// The saved state is finite, and training goes on from it elsewhere.
void expect_saved(TrainingOn& training, TrainingOn& other, RankLog& log, const SharedDirectory& directory) {
    const Bytes file = saved(training, log, directory, "state");
    ONEBIT_EXPECT(log, saved_floats_finite(file));
    load(other, log, directory, "state");
    ONEBIT_EXPECT(log, training.parameters() == other.parameters());
}

void train(onebit_comm_t comm, RankLog& log, onebit_optimizer_kind_t kind, std::uint64_t seed, bool on_gpu,
           std::uint64_t* succeeded) {
    static constexpr double kScales[] = {1, 1, 1024, 1e-30, 1e30};
    Random random(seed, -1, 1000 + static_cast<std::uint64_t>(kind));
    Model model = draw_model(kind, random);
    if (!on_gpu) draw_codec(model, seed);
    const double scale = one_of(random, kScales);
    const std::vector<float> start = draw_values(model, random, 128);
    SharedDirectory directory(log);
    TrainingOn host(kHost, comm, model, start, log);
    TrainingOn gpu(on_gpu ? kGpu : kHost, comm, model, start, log);
    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(host.get(), scale));
    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(gpu.get(), scale));
    for (std::uint64_t t = 1; t <= 18; ++t) {
        log.context(name_of(kind) + ", seed " + std::to_string(seed) + ", step " + std::to_string(t));
        const std::vector<float> gradients = draw_gradients(model, scale, seed, log.rank(), t);
        if (random.next() % 4 == 0) {
            const double lr = one_of(random, kRates);
            ONEBIT_EXPECT_OK(log, onebit_optimizer_set_lr(host.get(), lr));
            ONEBIT_EXPECT_OK(log, onebit_optimizer_set_lr(gpu.get(), lr));
        }
        const onebit_status_t status = expect_step(host, log, gradients);
        *succeeded += status == ONEBIT_SUCCESS ? 1 : 0;
        if (on_gpu) {
            const onebit_status_t there = expect_step(gpu, log, gradients);
            const bool alike = there == status && same_training(host, gpu);
            ONEBIT_EXPECT(log, alike || log.size() > 2); // sums of more ranks may have another order
        } else if (t % 5 == 2) {
            expect_saved(host, gpu, log, directory);
        }
    }
    if (on_gpu) ONEBIT_EXPECT(log, saved_floats_finite(saved(gpu, log, directory, "gpu")));
}

void train_all(int ranks, std::uint64_t first_seed, std::uint64_t seeds, bool on_gpu) {
    run_ranks(ranks, [&](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : all_kinds()) {
            std::uint64_t succeeded = 0;
            for (std::uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
                train(comm, log, kind, seed, on_gpu, &succeeded);
            }
            log.context(name_of(kind));
            ONEBIT_EXPECT(log, succeeded > 8 * seeds); // else little was looked at
        }
    });
}

} // namespace

TEST_CASE("whatever the magnitudes, a step that succeeds leaves all finite", "[cuda][optimizers][magnitudes][long]") {
    train_all(GENERATE(from_range(rank_counts())), 1, 40, false);
}

TEST_CASE("whatever the magnitudes, a GPU gives the host's bits, all finite", "[cuda][optimizers][magnitudes]") {
    train_all(GENERATE(from_range(rank_counts())), 1001, 8, true);
}

// Run by hand: a search for cases that the other tests may have missed.
TEST_CASE("whatever the magnitudes, in many trainings", "[.][many-magnitudes]") {
    train_all(GENERATE(from_range(rank_counts())), 10001, 400, false);
    train_all(GENERATE(from_range(rank_counts())), 20001, 40, true);
}
