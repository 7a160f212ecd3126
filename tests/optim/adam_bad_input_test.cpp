// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The optimizer's bad inputs: one status and a message on every rank, nothing changed, nothing hanging.
#include <limits>

#include "support/training.hpp"

using namespace onebit_test;

namespace {

const Sizes& sizes() {
    static const Sizes both = {40, 61};
    return both;
}

std::vector<float> gradient_of(const RankLog& log, std::uint64_t step) {
    return make_data(Kind::gaussian, total(sizes()), 17, log.rank(), step);
}

// The arguments of a creation, to be spoilt.
struct Arguments {
    onebit_optimizer_config_t config = optimizer_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM);
    std::vector<float> storage = std::vector<float>(512, 0.5f);
    std::vector<onebit_tensor_t> tensors = {ONEBIT_TENSOR_INIT(storage.data(), storage.data() + 128, 40),
                                            ONEBIT_TENSOR_INIT(storage.data() + 256, storage.data() + 384, 61)};
};
using Spoil = std::function<void(Arguments&)>;

struct BadCreation {
    const char* needles;
    Spoil spoil;
};

void expect_create_fails(onebit_comm_t comm, RankLog& log, onebit_status_t status, const std::string& needles,
                         bool spoil_here, const Spoil& spoil) {
    log.context("needles " + needles);
    Arguments arguments;
    if (spoil_here) spoil(arguments);
    onebit_optimizer_t handle = reinterpret_cast<onebit_optimizer_t>(&arguments);
    ONEBIT_EXPECT_FAILURE(
        log, status, needles,
        onebit_optimizer_create(comm, &arguments.config, arguments.tensors.data(), arguments.tensors.size(), &handle));
    ONEBIT_EXPECT(log, handle == nullptr);
}

const std::vector<BadCreation>& bad_creations() {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double infinity = std::numeric_limits<double>::infinity();
    static const std::vector<BadCreation> cases = {
        {"size", [](Arguments& a) { a.config.size = 8; }},
        {"version", [](Arguments& a) { a.config.version = 9; }},
        {"kind", [](Arguments& a) { a.config.kind = static_cast<onebit_optimizer_kind_t>(2); }},
        {"lr", [](Arguments& a) { a.config.lr = -1e-3; }},
        {"lr", [nan](Arguments& a) { a.config.lr = nan; }},
        {"lr", [infinity](Arguments& a) { a.config.lr = infinity; }},
        {"beta1", [](Arguments& a) { a.config.beta1 = 1; }},
        {"beta1", [](Arguments& a) { a.config.beta1 = -0.1; }},
        {"beta2", [](Arguments& a) { a.config.beta2 = 1; }},
        {"beta2", [nan](Arguments& a) { a.config.beta2 = nan; }},
        {"eps", [](Arguments& a) { a.config.eps = 0; }},
        {"eps", [](Arguments& a) { a.config.eps = 1e-50; }}, // no float
        {"lr", [](Arguments& a) { a.config.lr = 1e50; }},
        {"eps", [nan](Arguments& a) { a.config.eps = nan; }},
        {"weight_decay", [](Arguments& a) { a.config.weight_decay = -0.5; }},
        {"weight_decay", [infinity](Arguments& a) { a.config.weight_decay = infinity; }},
        {"bias_correction", [](Arguments& a) { a.config.bias_correction = 2; }},
        {"scale", [](Arguments& a) { a.config.scale = static_cast<onebit_scale_t>(5); }},
        {"group", [](Arguments& a) { a.config.group = static_cast<onebit_group_t>(5); }},
        {"tensor", [](Arguments& a) { a.tensors.clear(); }},
        {"tensor;size", [](Arguments& a) { a.tensors[0].size = 12; }},
        {"tensor;version", [](Arguments& a) { a.tensors[1].version = 0; }},
        {"tensor;count", [](Arguments& a) { a.tensors[1].count = 0; }},
        {"parameters;null", [](Arguments& a) { a.tensors[0].parameters = nullptr; }},
        {"gradients;null", [](Arguments& a) { a.tensors[1].gradients = nullptr; }},
        {"parameters;align",
         [](Arguments& a) {
             a.tensors[1].parameters = reinterpret_cast<float*>(reinterpret_cast<char*>(a.storage.data()) + 2);
         }},
        {"gradients;align",
         [](Arguments& a) {
             a.tensors[1].gradients = reinterpret_cast<float*>(reinterpret_cast<char*>(a.storage.data()) + 1);
         }},
        {"weights",
         [](Arguments& a) { // the tensor's name helps to find it
             a.tensors[1].name = "weights";
             a.tensors[1].parameters = nullptr;
         }},
    };
    return cases;
}

void expect_works(onebit_comm_t comm, RankLog& log) {
    log.context("afterwards");
    Training training(comm, optimizer_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM), sizes(), log);
    training.step(gradient_of(log, 1));
    const std::vector<float> now = training.parameters();
    ONEBIT_EXPECT(log, log.same_on_all(now.data(), now.size() * sizeof(float)));
}

} // namespace

TEST_CASE("optimizer creation: bad settings and tensors, on all ranks and on one", "[optimizer][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const onebit_status_t bad = ONEBIT_ERROR_INVALID_ARGUMENT;
        const std::string who = ";rank " + std::to_string(log.size() - 1);
        for (const BadCreation& creation : bad_creations()) {
            expect_create_fails(comm, log, bad, creation.needles, true, creation.spoil);
            expect_create_fails(comm, log, bad, creation.needles + who, log.last_rank(), creation.spoil);
        }
        log.context("NULL arguments");
        Arguments good;
        onebit_optimizer_t handle = nullptr;
        const bool mine = log.last_rank();
        const onebit_tensor_t* tensors = good.tensors.data();
        ONEBIT_EXPECT_FAILURE(log, bad, "config" + who,
                              onebit_optimizer_create(comm, mine ? nullptr : &good.config, tensors, 2, &handle));
        ONEBIT_EXPECT_FAILURE(log, bad, "tensors" + who,
                              onebit_optimizer_create(comm, &good.config, mine ? nullptr : tensors, 2, &handle));
        ONEBIT_EXPECT_FAILURE(log, bad, "optimizer" + who,
                              onebit_optimizer_create(comm, &good.config, tensors, 2, mine ? nullptr : &handle));
        ONEBIT_EXPECT(log, handle == nullptr);
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_HANDLE,
                             onebit_optimizer_create(nullptr, &good.config, tensors, 2, &handle));
        expect_works(comm, log);
    });
}

TEST_CASE("optimizer creation: fewer elements than ranks, ranks that disagree", "[optimizer][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    if (n < 2) { // needs two ranks
        SUCCEED();
        return;
    }
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        expect_create_fails(comm, log, ONEBIT_ERROR_INVALID_ARGUMENT, "count|elements", true, [](Arguments& a) {
            a.tensors.resize(1);
            a.tensors[0].count = 1;
        });
        const std::vector<BadCreation> cases = {
            {"tensor", [](Arguments& a) { a.tensors.pop_back(); }},
            {"tensor|count", [](Arguments& a) { a.tensors[0].count = 41; }},
            {"tensor|count", // the same in all, split differently
             [](Arguments& a) {
                 a.tensors[0].count = 61;
                 a.tensors[1].count = 40;
             }},
            {"kind", [](Arguments& a) { a.config.kind = ONEBIT_OPTIMIZER_ADAM; }},
            {"lr", [](Arguments& a) { a.config.lr = 0.02; }},
            {"beta1", [](Arguments& a) { a.config.beta1 = 0.8; }},
            {"beta2", [](Arguments& a) { a.config.beta2 = 0.99; }},
            {"eps", [](Arguments& a) { a.config.eps = 1e-7; }},
            {"weight_decay", [](Arguments& a) { a.config.weight_decay = 0.1; }},
            {"bias_correction", [](Arguments& a) { a.config.bias_correction = 0; }},
            {"freeze_step", [](Arguments& a) { a.config.freeze_step = 7; }},
            {"lr_warmup_steps", [](Arguments& a) { a.config.lr_warmup_steps = 7; }},
            {"scale", [](Arguments& a) { a.config.scale = ONEBIT_SCALE_L1; }},
            {"group", [](Arguments& a) { a.config.group = ONEBIT_GROUP_TENSOR; }},
        };
        for (const BadCreation& creation : cases)
            for (int odd_one : {0, log.size() - 1})
                expect_create_fails(comm, log, ONEBIT_ERROR_MISMATCH, std::string(creation.needles) + ";rank",
                                    log.rank() == odd_one, creation.spoil);
        expect_works(comm, log);
    });
}

TEST_CASE("a rank's NaN gradient changes nothing, in either stage", "[optimizer][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const float infinity = std::numeric_limits<float>::infinity();
        for (onebit_optimizer_kind_t kind : {ONEBIT_OPTIMIZER_ADAM, ONEBIT_OPTIMIZER_ONEBIT_ADAM}) {
            onebit_optimizer_config_t config = optimizer_config(kind);
            if (kind == ONEBIT_OPTIMIZER_ONEBIT_ADAM) config.freeze_step = 3;
            config.weight_decay = 0.1;
            Training training(comm, config, sizes(), log), twin(comm, config, sizes(), log);
            for (std::uint64_t t = 1; t <= 8; ++t) {
                const std::vector<float> before = training.parameters();
                for (float value : {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity}) {
                    for (std::size_t place : {std::size_t{0}, std::size_t{57}, total(sizes()) - 1}) {
                        const int faulty = static_cast<int>(t) % log.size();
                        log.context("step " + std::to_string(t) + ", place " + std::to_string(place));
                        std::vector<float> gradient = gradient_of(log, 1000 + t);
                        if (log.rank() == faulty) gradient[place] = value;
                        training.set_gradients(gradient);
                        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "nan|inf;rank " + std::to_string(faulty),
                                              onebit_optimizer_step(training.get()));
                        ONEBIT_EXPECT(log, same_bits(training.parameters(), before));
                        ONEBIT_EXPECT(log, training.info().steps == t - 1);
                    }
                }
                training.step(gradient_of(log, t));
                twin.step(gradient_of(log, t));
                ONEBIT_EXPECT(log, same_bits(training.parameters(), twin.parameters()));
                ONEBIT_EXPECT(log, training.info().freeze_step == twin.info().freeze_step);
            }
        }
    });
}

TEST_CASE("ranks whose learning rate or stage differ", "[optimizer][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    if (n < 2) { // needs two ranks
        SUCCEED();
        return;
    }
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const onebit_optimizer_config_t config = optimizer_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM);
        Training training(comm, config, sizes(), log), twin(comm, config, sizes(), log);
        training.step(gradient_of(log, 1));
        twin.step(gradient_of(log, 1));
        const std::vector<float> before = training.parameters();
        training.set_gradients(gradient_of(log, 2));
        ONEBIT_EXPECT_OK(log, onebit_optimizer_set_lr(training.get(), log.last_rank() ? 0.02 : 0.01));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "rank;lr|learning rate",
                              onebit_optimizer_step(training.get()));
        ONEBIT_EXPECT(log, same_bits(training.parameters(), before));
        ONEBIT_EXPECT_OK(log, onebit_optimizer_set_lr(training.get(), 0.01));
        if (log.rank() == 0) ONEBIT_EXPECT_OK(log, onebit_optimizer_freeze(training.get()));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "rank;stage|froze|freeze",
                              onebit_optimizer_step(training.get()));
        ONEBIT_EXPECT(log, same_bits(training.parameters(), before));
        // The other ranks catch up, and it goes on as if nothing had been.
        if (log.rank() != 0) ONEBIT_EXPECT_OK(log, onebit_optimizer_freeze(training.get()));
        ONEBIT_EXPECT_OK(log, onebit_optimizer_freeze(twin.get()));
        for (std::uint64_t t = 2; t <= 5; ++t) {
            training.step(gradient_of(log, t));
            twin.step(gradient_of(log, t));
            ONEBIT_EXPECT(log, same_bits(training.parameters(), twin.parameters()));
        }
    });
}

TEST_CASE("freezing too early, twice, or Adam", "[optimizer][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const onebit_status_t bad = ONEBIT_ERROR_INVALID_ARGUMENT;
        Training adam(comm, optimizer_config(ONEBIT_OPTIMIZER_ADAM), sizes(), log);
        adam.step(gradient_of(log, 1));
        ONEBIT_EXPECT_FAILURE(log, bad, "adam", onebit_optimizer_freeze(adam.get()));
        ONEBIT_EXPECT(log, adam.info().frozen == 0);
        adam.step(gradient_of(log, 2));
        ONEBIT_EXPECT(log, adam.info().compressed_bytes_sent == 0);

        Training onebit(comm, optimizer_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM), sizes(), log);
        ONEBIT_EXPECT_FAILURE(log, bad, "step", onebit_optimizer_freeze(onebit.get()));
        ONEBIT_EXPECT(log, onebit.info().frozen == 0);
        onebit.step(gradient_of(log, 1));
        ONEBIT_EXPECT_OK(log, onebit_optimizer_freeze(onebit.get()));
        ONEBIT_EXPECT(log, onebit.info().frozen == 1 && onebit.info().freeze_step == 1);
        ONEBIT_EXPECT_FAILURE(log, bad, "already", onebit_optimizer_freeze(onebit.get()));
        onebit.step(gradient_of(log, 2));
        ONEBIT_EXPECT(log, onebit.info().freeze_step == 1);

        for (double lr : {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
            ONEBIT_EXPECT_FAILURE(log, bad, "lr", onebit_optimizer_set_lr(onebit.get(), lr));
        onebit_optimizer_info_t info = ONEBIT_OPTIMIZER_INFO_INIT;
        info.version = 5;
        ONEBIT_EXPECT_FAILURE(log, bad, "version", onebit_optimizer_get_info(onebit.get(), &info));
        ONEBIT_EXPECT_FAILURE(log, bad, "info", onebit_optimizer_get_info(onebit.get(), nullptr));
        onebit.step(gradient_of(log, 3)); // with the old learning rate
    });
}

TEST_CASE("optimizer handles that are none", "[optimizer][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Arguments arguments;
        onebit_optimizer_t destroyed = nullptr;
        ONEBIT_EXPECT_OK(log,
                         onebit_optimizer_create(comm, &arguments.config, arguments.tensors.data(), 2, &destroyed));
        ONEBIT_EXPECT_OK(log, onebit_optimizer_destroy(destroyed));
        Allreduce allreduce(comm, flat_config(100), log);
        Training real(comm, arguments.config, sizes(), log);
        const std::vector<onebit_optimizer_t> none = {nullptr, destroyed, reinterpret_cast<onebit_optimizer_t>(comm),
                                                      reinterpret_cast<onebit_optimizer_t>(allreduce.get()),
                                                      reinterpret_cast<onebit_optimizer_t>(&arguments)};
        const onebit_status_t expected = ONEBIT_ERROR_INVALID_HANDLE;
        onebit_optimizer_info_t info = ONEBIT_OPTIMIZER_INFO_INIT;
        for (onebit_optimizer_t handle : none) {
            ONEBIT_EXPECT_STATUS(log, expected, onebit_optimizer_step(handle));
            ONEBIT_EXPECT_STATUS(log, expected, onebit_optimizer_set_lr(handle, 0.1));
            ONEBIT_EXPECT_STATUS(log, expected, onebit_optimizer_freeze(handle));
            ONEBIT_EXPECT_STATUS(log, expected, onebit_optimizer_get_info(handle, &info));
            if (handle != nullptr) ONEBIT_EXPECT_STATUS(log, expected, onebit_optimizer_destroy(handle));
        }
        ONEBIT_EXPECT_OK(log, onebit_optimizer_destroy(nullptr));
        real.step(gradient_of(log, 1));
    });
}
