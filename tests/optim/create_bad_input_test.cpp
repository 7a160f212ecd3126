// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Impossible optimizers: the same status and a message that names the cause on every rank, no handle, and no hang.
#include <limits>

#include "support/training.hpp"

using namespace onebit_test;

namespace {

constexpr onebit_status_t bad = ONEBIT_ERROR_INVALID_ARGUMENT;

// The arguments of a creation, which tests make invalid: two tensors with copies, far apart, in two groups.
struct Arguments {
    Arguments() {
        for (onebit_tensor_t& tensor : tensors) tensor.copy_type = ONEBIT_FLOAT16;
        tensors[0].copy = storage.data() + 512;
        tensors[1].copy = storage.data() + 640;
        tensors[1].group = 1;
        config.groups = groups.data();
        config.num_groups = groups.size();
    }
    Arguments(const Arguments&) = delete;
    Arguments& operator=(const Arguments&) = delete;

    void kind(onebit_optimizer_kind_t kind) {
        config.kind = kind;
        if (!freezes(kind)) config.freeze_step = ONEBIT_FREEZE_NEVER;
    }
    void without_groups() {
        config.groups = nullptr;
        config.num_groups = 0;
        tensors[1].group = 0;
    }
    template <class T>
    T* past(std::size_t element, std::size_t bytes) { // this many bytes past an element of the storage
        return reinterpret_cast<T*>(reinterpret_cast<char*>(storage.data() + element) + bytes);
    }

    std::vector<float> storage = std::vector<float>(1024, 0.5f);
    onebit_optimizer_config_t config = optimizer_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM);
    std::vector<onebit_param_group_t> groups = std::vector<onebit_param_group_t>(2, ONEBIT_PARAM_GROUP_INIT(0.01));
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
    ONEBIT_EXPECT_OK(log, onebit_optimizer_destroy(handle)); // if there is a handle nevertheless
}

void expect_created(onebit_comm_t comm, RankLog& log, const std::string& what, const Spoil& change) {
    log.context(what);
    Arguments arguments;
    change(arguments);
    onebit_optimizer_t handle = nullptr;
    ONEBIT_EXPECT_OK(log, onebit_optimizer_create(comm, &arguments.config, arguments.tensors.data(),
                                                  arguments.tensors.size(), &handle));
    ONEBIT_EXPECT_OK(log, onebit_optimizer_step(handle));
    ONEBIT_EXPECT_OK(log, onebit_optimizer_destroy(handle));
}

// Bad on all ranks, and bad on one rank alone, which the message then names.
void expect_all_fail(onebit_comm_t comm, RankLog& log, const std::vector<BadCreation>& cases) {
    const std::string who = ";rank " + std::to_string(log.size() - 1);
    for (const BadCreation& each : cases) {
        expect_create_fails(comm, log, bad, each.needles, true, each.spoil);
        expect_create_fails(comm, log, bad, each.needles + who, log.last_rank(), each.spoil);
    }
    expect_created(comm, log, "afterwards", [](Arguments&) {});
}

const double nan_ = std::numeric_limits<double>::quiet_NaN();
const double infinity = std::numeric_limits<double>::infinity();

// Settings of a group, or of the config if there are no groups.
struct BadSetting {
    const char* name;
    double onebit_param_group_t::*in_group;
    double onebit_optimizer_config_t::*in_config;
    std::vector<double> values;
};

const std::vector<BadSetting>& bad_settings() {
    using Group = onebit_param_group_t;
    using Config = onebit_optimizer_config_t;
    static const std::vector<BadSetting> settings = {
        {"lr", &Group::lr, &Config::lr, {-1e-3, nan_, infinity, 1e50}},
        {"beta1", &Group::beta1, &Config::beta1, {1, -0.1, 1.5, nan_}},
        {"beta2", &Group::beta2, &Config::beta2, {1, -0.1, 1.5, nan_}},
        {"eps", &Group::eps, &Config::eps, {0, -1e-8, 1e-50, nan_}}, // 1e-50 is no float
        {"weight_decay", &Group::weight_decay, &Config::weight_decay, {-0.5, nan_, infinity}},
    };
    return settings;
}

} // namespace

TEST_CASE("optimizer creation: bad settings", "[optimizer][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        std::vector<BadCreation> cases;
        for (const BadSetting& setting : bad_settings()) {
            for (double value : setting.values) {
                cases.push_back({setting.name, [=](Arguments& a) {
                                     a.without_groups();
                                     a.config.*setting.in_config = value;
                                 }});
                cases.push_back({setting.name, [=](Arguments& a) { a.groups[1].*setting.in_group = value; }});
            }
        }
        expect_all_fail(comm, log, cases);
    });
}

TEST_CASE("optimizer creation: bad config", "[optimizer][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    const std::vector<BadCreation> cases = {
        {"size", [](Arguments& a) { a.config.size = 8; }},
        {"version", [](Arguments& a) { a.config.version = 9; }},
        {"kind", [](Arguments& a) { a.kind(static_cast<onebit_optimizer_kind_t>(5)); }},
        {"kind", [](Arguments& a) { a.kind(static_cast<onebit_optimizer_kind_t>(-1)); }},
        {"bias_correction", [](Arguments& a) { a.config.bias_correction = 2; }},
        {"scale", [](Arguments& a) { a.config.scale = static_cast<onebit_scale_t>(5); }},
        {"config.group", [](Arguments& a) { a.config.group = static_cast<onebit_group_t>(5); }},
        {"max_grad_norm", [](Arguments& a) { a.config.max_grad_norm = -1; }},
        {"max_grad_norm", [](Arguments& a) { a.config.max_grad_norm = nan_; }},
        {"config.freeze_window", [](Arguments& a) { a.config.freeze_window = 1000001; }},
        {"config.freeze_band", [](Arguments& a) { a.config.freeze_band = -0.5; }},
        {"config.compressed", [](Arguments& a) { a.config.compressed = static_cast<onebit_compressed_t>(2); }},
        {"config.freeze_band", [](Arguments& a) { a.config.freeze_band = 1; }},
        {"config.algorithm", [](Arguments& a) { a.config.algorithm = ONEBIT_ALGORITHM_DENSE; }},
        {"config.algorithm", [](Arguments& a) { a.config.algorithm = static_cast<onebit_algorithm_t>(7); }},
        {"config.algorithm", [](Arguments& a) { a.config.algorithm = static_cast<onebit_algorithm_t>(-1); }},
        {"config.codec", [](Arguments& a) { a.config.codec = static_cast<onebit_codec_t>(1000); }},
        {"config.codec", [](Arguments& a) { a.config.codec = static_cast<onebit_codec_t>(-1); }},
        {"config.scale;ONEBIT_CODEC_SIGN", // which alone has one
         [](Arguments& a) {
             a.config.codec = ONEBIT_CODEC_INT8;
             a.config.scale = ONEBIT_SCALE_L1;
         }},
        {"config.group;ONEBIT_CODEC_SIGN",
         [](Arguments& a) {
             a.config.codec = ONEBIT_CODEC_FP4;
             a.config.group = ONEBIT_GROUP_TENSOR;
         }},
        {"config.error_type", [](Arguments& a) { a.config.error_type = ONEBIT_FLOAT16; }},
        {"config.error_type", [](Arguments& a) { a.config.error_type = static_cast<onebit_datatype_t>(4); }},
        {"config.kept;ONEBIT_CODEC_TOPK", [](Arguments& a) { a.config.kept = 64; }},
        {"config.value_bits;ONEBIT_CODEC_TOPK", [](Arguments& a) { a.config.value_bits = 8; }},
        {"config.kept;128",
         [](Arguments& a) {
             a.config.codec = ONEBIT_CODEC_TOPK;
             a.config.kept = 129;
         }},
        {"config.value_bits",
         [](Arguments& a) {
             a.config.codec = ONEBIT_CODEC_TOPK;
             a.config.value_bits = 4;
         }},
        {"config.algorithm;exactly", // of a kind that compresses, with this codec
         [](Arguments& a) {
             a.kind(ONEBIT_OPTIMIZER_ADAM);
             a.config.codec = ONEBIT_CODEC_INT8;
             a.config.algorithm = ONEBIT_ALGORITHM_DENSE;
         }},
        {"config.freeze_step", // doesn't freeze all the same
         [](Arguments& a) {
             a.config.kind = ONEBIT_OPTIMIZER_ADAM;
             a.config.codec = ONEBIT_CODEC_INT8;
             a.config.freeze_step = 7;
         }},
        {"config.freeze_band", [](Arguments& a) { a.config.freeze_band = nan_; }},
        {"config.freeze_step", // of a kind that doesn't freeze
         [](Arguments& a) {
             a.config.kind = ONEBIT_OPTIMIZER_LAMB;
             a.config.freeze_step = 7;
         }},
        {"config.follow_interval", // likewise
         [](Arguments& a) {
             a.config.kind = ONEBIT_OPTIMIZER_ADAM;
             a.config.freeze_step = ONEBIT_FREEZE_AUTO;
             a.config.follow_interval = 64;
         }},
        {"config.thaw_ratio", [](Arguments& a) { a.config.thaw_ratio = 1; }},
        {"config.thaw_ratio", [](Arguments& a) { a.config.thaw_ratio = -2; }},
        {"config.thaw_ratio", [](Arguments& a) { a.config.thaw_ratio = nan_; }},
        {"config.thaw_ratio", [](Arguments& a) { a.config.thaw_ratio = HUGE_VAL; }},
        {"groups", [](Arguments& a) { a.config.groups = nullptr; }}, // but num_groups 2
        {"groups", [](Arguments& a) { a.config.num_groups = 0; }},   // but not NULL
        {"group;size", [](Arguments& a) { a.groups[0].size = 4; }},
        {"group;version", [](Arguments& a) { a.groups[1].version = 0; }},
        {"no_compress", [](Arguments& a) { a.groups[1].no_compress = 2; }},
        {"config.memory", [](Arguments& a) { a.config.memory = static_cast<onebit_memory_t>(2); }},
        {"config.stream;config.memory", [](Arguments& a) { a.config.stream = &a; }},
    };
    const std::vector<BadCreation> lamb_cases = {
        {"trust", [](Arguments& a) { a.config.min_trust = 20; }}, // above max_trust
        {"min_trust", [](Arguments& a) { a.config.min_trust = -0.1; }},
        {"min_trust", [](Arguments& a) { a.config.min_trust = nan_; }},
        {"max_trust", [](Arguments& a) { a.config.max_trust = nan_; }},
        {"trust_beta", [](Arguments& a) { a.config.trust_beta = 1; }},
        {"trust_beta", [](Arguments& a) { a.config.trust_beta = -0.1; }},
        {"trust_beta", [](Arguments& a) { a.config.trust_beta = nan_; }},
        {"momentum_scaling", [](Arguments& a) { a.config.momentum_scaling = 2; }},
    };
    const std::vector<BadCreation> zero_one_cases = {
        {"variance_updates", [](Arguments& a) { a.config.variance_updates = 0; }},
        {"local_step_scaler", [](Arguments& a) { a.config.local_step_scaler = 0; }},
        {"local_steps", [](Arguments& a) { a.config.local_steps = 0; }},
    };
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const auto with_kind = [](std::vector<BadCreation> all, onebit_optimizer_kind_t kind) {
            for (BadCreation& each : all)
                each.spoil = [kind, inner = each.spoil](Arguments& a) {
                    a.kind(kind);
                    inner(a);
                };
            return all;
        };
        expect_all_fail(comm, log, cases);
        expect_all_fail(comm, log, with_kind(lamb_cases, ONEBIT_OPTIMIZER_ONEBIT_LAMB));
        expect_all_fail(comm, log, with_kind(zero_one_cases, ONEBIT_OPTIMIZER_ZERO_ONE_ADAM));
    });
}

TEST_CASE("optimizer creation: a GPU where there is none is unsupported", "[optimizer][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Arguments arguments;
        arguments.config.memory = ONEBIT_MEMORY_CUDA;
        onebit_optimizer_t handle = nullptr;
        const onebit_status_t status = onebit_optimizer_create(comm, &arguments.config, arguments.tensors.data(),
                                                               arguments.tensors.size(), &handle);
        ONEBIT_EXPECT(log, handle == nullptr);
        if (status == ONEBIT_ERROR_INVALID_ARGUMENT) return; // there is one, but not with these tensors
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_UNSUPPORTED, "cuda;rank 0;driver|device|built without", status);
    });
}

TEST_CASE("optimizer creation: bad tensors", "[optimizer][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    const std::vector<BadCreation> cases = {
        {"tensor", [](Arguments& a) { a.tensors.clear(); }},
        {"tensor;size", [](Arguments& a) { a.tensors[0].size = 12; }},
        {"tensor;version", [](Arguments& a) { a.tensors[1].version = 0; }},
        {"tensor;count", [](Arguments& a) { a.tensors[1].count = 0; }},
        {"tensor;group", [](Arguments& a) { a.tensors[1].group = 2; }},
        {"tensor;group",
         [](Arguments& a) { // any but 0 where there are none
             a.without_groups();
             a.tensors[1].group = 1;
         }},
        {"parameters;null", [](Arguments& a) { a.tensors[0].parameters = nullptr; }},
        {"parameters;align", [](Arguments& a) { a.tensors[1].parameters = a.past<float>(256, 2); }},
        {"gradients;align", [](Arguments& a) { a.tensors[1].gradients = a.past<void>(384, 1); }},
        {"gradients;align",
         [](Arguments& a) {
             a.tensors[1].gradient_type = ONEBIT_BFLOAT16;
             a.tensors[1].gradients = a.past<void>(384, 1);
         }},
        {"copy;align", [](Arguments& a) { a.tensors[0].copy = a.past<void>(512, 1); }},
        {"copy;align",
         [](Arguments& a) {
             a.tensors[0].copy_type = ONEBIT_FLOAT32;
             a.tensors[0].copy = a.past<void>(512, 2);
         }},
        {"gradient;type", [](Arguments& a) { a.tensors[0].gradient_type = static_cast<onebit_datatype_t>(4); }},
        {"gradient;type", [](Arguments& a) { a.tensors[0].gradient_type = ONEBIT_INT8; }},
        {"copy;type", [](Arguments& a) { a.tensors[1].copy_type = static_cast<onebit_datatype_t>(-1); }},
        {"weights",
         [](Arguments& a) { // the tensor's name helps to find it
             a.tensors[1].name = "weights";
             a.tensors[1].parameters = nullptr;
         }},
    };
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) { expect_all_fail(comm, log, cases); });
}

TEST_CASE("optimizer creation: tensors that overlap", "[optimizer][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    const std::vector<BadCreation> cases = {
        {"overlap;tensor", [](Arguments& a) { a.tensors.push_back(a.tensors[0]); }}, // registered twice
        {"overlap;tensor", [](Arguments& a) { a.tensors[1].parameters = a.tensors[0].parameters; }},
        {"overlap;tensor", [](Arguments& a) { a.tensors[1].parameters = a.tensors[0].parameters + 39; }},
        {"overlap;tensor", [](Arguments& a) { a.tensors[1].gradients = a.tensors[0].gradients; }},
        {"overlap;tensor", [](Arguments& a) { a.tensors[0].gradients = a.tensors[0].parameters; }},
        {"overlap;tensor", [](Arguments& a) { a.tensors[0].gradients = a.tensors[1].parameters + 60; }},
        {"overlap;tensor", [](Arguments& a) { a.tensors[0].copy = a.tensors[1].copy; }},
        {"overlap;tensor", [](Arguments& a) { a.tensors[0].copy = a.tensors[0].parameters; }},
        {"overlap;tensor", [](Arguments& a) { a.tensors[1].copy = a.past<void>(128, 4 * 40 - 2); }}, // 0's gradients
    };
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        expect_all_fail(comm, log, cases);
        expect_created(comm, log, "side by side", [](Arguments& a) {
            onebit_tensor_t &first = a.tensors[0], &second = a.tensors[1];
            first.gradients = first.parameters + 40;
            second.parameters = first.parameters + 80;
            second.gradients = second.parameters + 61;
            first.copy = second.parameters + 122;
            second.copy = second.parameters + 142; // 40 copies of two bytes
        });
    });
}

TEST_CASE("optimizer creation: NULL arguments", "[optimizer][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Arguments good;
        onebit_optimizer_t handle = nullptr;
        const bool mine = log.last_rank();
        const std::string who = ";rank " + std::to_string(log.size() - 1);
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
    });
}

TEST_CASE("optimizer creation: fewer elements than ranks", "[optimizer][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    if (n < 2) { // needs two ranks
        SUCCEED();
        return;
    }
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            expect_create_fails(comm, log, bad, "count|elements", true, [kind](Arguments& a) {
                a.kind(kind);
                a.tensors.resize(1);
                a.tensors[0].count = 1;
            });
        }
        for (onebit_optimizer_kind_t kind : freezing_kinds()) {
            expect_create_fails(comm, log, bad, "count|elements", true, [kind](Arguments& a) { // too few to compress
                a.kind(kind);
                a.tensors[0].count = 1;
                a.groups[1].no_compress = 1;
            });
        }
    });
}

TEST_CASE("optimizer creation: ranks that disagree", "[optimizer][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    if (n < 2) { // needs two ranks
        SUCCEED();
        return;
    }
    const std::vector<BadCreation> cases = {
        {"tensor", [](Arguments& a) { a.tensors.pop_back(); }},
        {"tensor|count", [](Arguments& a) { a.tensors[0].count = 41; }},
        {"tensor|count", // the same in all, split differently
         [](Arguments& a) {
             a.tensors[0].count = 61;
             a.tensors[1].count = 40;
         }},
        {"tensor|group", [](Arguments& a) { a.tensors[1].group = 0; }},
        {"type", [](Arguments& a) { a.tensors[0].gradient_type = ONEBIT_BFLOAT16; }},
        {"kind", [](Arguments& a) { a.kind(ONEBIT_OPTIMIZER_ADAM); }},
        {"group",
         [](Arguments& a) {
             a.groups.push_back(a.groups[0]);
             a.config.groups = a.groups.data();
             a.config.num_groups = 3;
         }},
        {"group", [](Arguments& a) { a.without_groups(); }},
        {"lr", [](Arguments& a) { a.groups[0].lr = 0.02; }},
        {"beta1", [](Arguments& a) { a.groups[1].beta1 = 0.8; }},
        {"beta2", [](Arguments& a) { a.groups[0].beta2 = 0.99; }},
        {"eps", [](Arguments& a) { a.groups[1].eps = 1e-7; }},
        {"weight_decay", [](Arguments& a) { a.groups[0].weight_decay = 0.1; }},
        {"no_compress", [](Arguments& a) { a.groups[1].no_compress = 1; }},
        {"bias_correction", [](Arguments& a) { a.config.bias_correction = 0; }},
        {"max_grad_norm", [](Arguments& a) { a.config.max_grad_norm = 1; }},
        {"freeze_step", [](Arguments& a) { a.config.freeze_step = 7; }},
        {"lr_warmup_steps", [](Arguments& a) { a.config.lr_warmup_steps = 7; }},
        {"freeze_window", [](Arguments& a) { a.config.freeze_window = 7; }},
        {"freeze_band", [](Arguments& a) { a.config.freeze_band = 0.5; }},
        {"config.compressed", [](Arguments& a) { a.config.compressed = ONEBIT_COMPRESSED_MOMENTA; }},
        {"config.follow_interval", [](Arguments& a) { a.config.follow_interval = ONEBIT_FOLLOW_NEVER; }},
        {"config.thaw_ratio", [](Arguments& a) { a.config.thaw_ratio = 9; }},
        {"scale", [](Arguments& a) { a.config.scale = ONEBIT_SCALE_L1; }},
        {"config.group", [](Arguments& a) { a.config.group = ONEBIT_GROUP_BUFFER; }},
        {"config.group", [](Arguments& a) { a.config.group = ONEBIT_GROUP_TENSOR; }},
        {"config.algorithm", [](Arguments& a) { a.config.algorithm = ONEBIT_ALGORITHM_TWO_LEVEL; }},
        {"config.algorithm", [](Arguments& a) { a.config.algorithm = ONEBIT_ALGORITHM_BRUCK; }},
        {"config.codec", [](Arguments& a) { a.config.codec = ONEBIT_CODEC_INT4; }},
    };
    const std::vector<std::pair<onebit_optimizer_kind_t, BadCreation>> own_cases = {
        {ONEBIT_OPTIMIZER_ADAM, {"config.codec", [](Arguments& a) { a.config.codec = ONEBIT_CODEC_INT8; }}},
        {ONEBIT_OPTIMIZER_LAMB, {"min_trust", [](Arguments& a) { a.config.min_trust = 0.1; }}},
        {ONEBIT_OPTIMIZER_ONEBIT_LAMB, {"max_trust", [](Arguments& a) { a.config.max_trust = 1; }}},
        {ONEBIT_OPTIMIZER_ONEBIT_LAMB, {"trust_beta", [](Arguments& a) { a.config.trust_beta = 0.5; }}},
        {ONEBIT_OPTIMIZER_ONEBIT_LAMB, {"momentum_scaling", [](Arguments& a) { a.config.momentum_scaling = 0; }}},
        {ONEBIT_OPTIMIZER_ZERO_ONE_ADAM, {"variance_updates", [](Arguments& a) { a.config.variance_updates = 7; }}},
        {ONEBIT_OPTIMIZER_ZERO_ONE_ADAM, {"local_step_scaler", [](Arguments& a) { a.config.local_step_scaler = 7; }}},
        {ONEBIT_OPTIMIZER_ZERO_ONE_ADAM, {"local_steps", [](Arguments& a) { a.config.local_steps = 7; }}},
    };
    const std::vector<BadCreation> topk_cases = {
        {"config.kept", [](Arguments& a) { a.config.kept = 9; }},
        {"config.value_bits", [](Arguments& a) { a.config.value_bits = 2; }},
        {"config.error_type", [](Arguments& a) { a.config.error_type = ONEBIT_BFLOAT16; }},
    };
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const auto needles = [](const BadCreation& each) { return std::string(each.needles) + ";rank"; };
        for (int odd_one : {0, log.size() - 1}) {
            const bool odd = log.rank() == odd_one;
            for (const BadCreation& each : cases)
                expect_create_fails(comm, log, ONEBIT_ERROR_MISMATCH, needles(each), odd, each.spoil);
            for (const auto& own : own_cases)
                expect_create_fails(comm, log, ONEBIT_ERROR_MISMATCH, needles(own.second), true, [&](Arguments& a) {
                    a.kind(own.first);
                    if (odd) own.second.spoil(a);
                });
            for (const BadCreation& each : topk_cases)
                expect_create_fails(comm, log, ONEBIT_ERROR_MISMATCH, needles(each), true, [&](Arguments& a) {
                    a.config.codec = ONEBIT_CODEC_TOPK;
                    if (odd) each.spoil(a);
                });
        }
    });
}

TEST_CASE("optimizer creation: what is each rank's own business", "[optimizer]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        expect_created(comm, log, "threads, copies, names", [&](Arguments& a) {
            if (!log.last_rank()) return;
            a.config.threads = 2;
            a.tensors[0].copy = nullptr;
            a.tensors[1].copy_type = ONEBIT_BFLOAT16;
            a.tensors[1].name = "mine";
        });
    });
}
