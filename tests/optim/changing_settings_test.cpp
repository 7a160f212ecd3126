// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Settings of groups, clipping and addresses that change between steps.
#include <cfloat>
#include <limits>

#include "support/beside_oracle.hpp"

using namespace onebit_test;

namespace {

const onebit_status_t bad = ONEBIT_ERROR_INVALID_ARGUMENT;

const Sizes& sizes() {
    static const Sizes all = {33, 7, 50, 1, 64, 13, 71};
    return all;
}

// Three groups, the last of which is never compressed.
Setup changing_setup(onebit_optimizer_kind_t kind) {
    onebit_param_group_t first = ONEBIT_PARAM_GROUP_INIT(0.01), second = ONEBIT_PARAM_GROUP_INIT(0.03);
    onebit_param_group_t dense = ONEBIT_PARAM_GROUP_INIT(0.005);
    second.beta2 = 0.99;
    dense.no_compress = 1;
    return {quick_config(kind), sizes(), {first, second, dense}, {0, 2, 1, 0, 0, 2, 1}};
}

const Gradient& changing_gradient() {
    static const Gradient gradient = gaussian_gradient(total(sizes()), 1);
    return gradient;
}

// Changes settings of both; settings that a freeze has fixed stay.
void change(BesideOracle& both, Setup& setup, std::size_t g, std::uint64_t t, RankLog& log) {
    onebit_param_group_t& group = setup.groups[g];
    const double x = double(t) / 20;
    group.lr *= 0.9;
    group.beta1 = 0.7 + 0.2 * x;
    group.weight_decay = 0.1 * x;
    const bool fixed = both.training.info().frozen != 0 && group.no_compress == 0;
    if (!fixed) group.beta2 = 0.95 + 0.04 * x;
    if (!fixed) group.eps = 1e-6 * (1 + x);
    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_group(both.training.get(), g, &group));
    both.reference->model.groups[g] = settings_of(group);
}

// In the order of registration, with a training's gradients beside it.
std::vector<const void*> addresses_of(const Training& training) {
    std::vector<const void*> all;
    for (std::size_t k = 0; k < sizes().size(); ++k) all.push_back(training.gradients(k));
    return all;
}

} // namespace

TEST_CASE("a group's settings change between steps as the oracle's do", "[optimizer][settings][groups]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            for (const onebit_compressed_t compressed : ways_to_compress(kind)) {
                log.context(name_of(kind) + ", way " + std::to_string(compressed));
                Setup setup = changing_setup(kind);
                setup.config.compressed = compressed;
                BesideOracle both(comm, setup, log);
                for (std::uint64_t t = 1; t <= 16; ++t) {
                    both.step(changing_gradient(), t);
                    change(both, setup, t % 3, t, log);
                }
            }
        }
    });
}

TEST_CASE("a rule of the freeze begins anew with another beta2", "[optimizer][settings][freeze]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : freezing_kinds()) {
            log.context(name_of(kind));
            onebit_optimizer_config_t config = optimizer_config(kind);
            config.freeze_step = ONEBIT_FREEZE_PAPER;
            config.beta2 = 0.9; // the rule looks back 10 steps
            Training training(comm, config, sizes(), log);
            const Gradient same = [](int, std::uint64_t) { return std::vector<float>(total(sizes()), 1.0F); };
            training.steps(same, 1, 5);
            onebit_param_group_t group = ONEBIT_PARAM_GROUP_INIT(0.01);
            group.beta2 = 0.5; // 2 steps
            ONEBIT_EXPECT_OK(log, onebit_optimizer_set_group(training.get(), 0, &group));
            ONEBIT_EXPECT(log, training.info().frozen == 0);
            training.steps(same, 6, 15);
            ONEBIT_EXPECT(log, training.info().frozen == 1);
        }
    });
}

TEST_CASE("settings of a group that can't be, or can't change", "[optimizer][settings][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const double nan = std::numeric_limits<double>::quiet_NaN();
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            const Setup setup = changing_setup(kind);
            Training training(comm, setup, log), twin(comm, setup, log);
            const onebit_optimizer_t handle = training.get();
            for (std::uint64_t t = 1; t <= 8; ++t) {
                log.context(name_of(kind) + ", step " + std::to_string(t));
                training.steps(changing_gradient(), t, t);
                twin.steps(changing_gradient(), t, t);
                const auto refused = [&](const std::string& needles, std::size_t g, auto member, auto value) {
                    onebit_param_group_t group = setup.groups[g];
                    group.*member = value;
                    ONEBIT_EXPECT_FAILURE(log, bad, needles, onebit_optimizer_set_group(handle, g, &group));
                };
                for (const double wrong : {-1.0, nan, 1e50})
                    refused("settings.lr", 0, &onebit_param_group_t::lr, wrong);
                for (const double wrong : {-0.1, 1.0, nan}) {
                    refused("settings.beta1", 1, &onebit_param_group_t::beta1, wrong);
                    refused("settings.beta2", 1, &onebit_param_group_t::beta2, wrong);
                }
                for (const double wrong : {0.0, -1.0, nan, 1e-50})
                    refused("settings.eps", 2, &onebit_param_group_t::eps, wrong);
                refused("settings.weight_decay", 0, &onebit_param_group_t::weight_decay, -1.0);
                refused("no_compress;created", 0, &onebit_param_group_t::no_compress, 1);
                refused("no_compress;created", 2, &onebit_param_group_t::no_compress, 0);
                refused("no_compress", 2, &onebit_param_group_t::no_compress, 2);
                refused("size", 0, &onebit_param_group_t::size, std::size_t{8});
                refused("version", 0, &onebit_param_group_t::version, 9u);
                if (training.info().frozen != 0) {
                    refused("settings.eps;frozen;step 6", 0, &onebit_param_group_t::eps, 1e-7);
                    refused("settings.beta2;frozen;step 6", 1, &onebit_param_group_t::beta2, 0.9);
                }
                ONEBIT_EXPECT_FAILURE(log, bad, "group: 3;there are 3",
                                      onebit_optimizer_set_group(handle, 3, &setup.groups[0]));
                ONEBIT_EXPECT_FAILURE(log, bad, "settings is NULL", onebit_optimizer_set_group(handle, 0, nullptr));
                for (std::size_t g = 0; g < 3; ++g) // as it is
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_group(handle, g, &setup.groups[g]));
                ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
            }
            if (log.size() == 1) continue;
            onebit_param_group_t group = setup.groups[0];
            if (log.last_rank()) group.beta1 = 0.5;
            ONEBIT_EXPECT_OK(log, onebit_optimizer_set_group(handle, 0, &group));
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "rank;setting", onebit_optimizer_step(handle));
            ONEBIT_EXPECT_OK(log, onebit_optimizer_set_group(handle, 0, &setup.groups[0]));
            training.steps(changing_gradient(), 9, 9);
            twin.steps(changing_gradient(), 9, 9);
            ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
        }
    });
}

TEST_CASE("clipping changes between steps as the oracle's does", "[optimizer][settings][clipping]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            for (const std::uint64_t bucket_size : {0, 64}) {
                log.context(name_of(kind) + ", bucket size " + std::to_string(bucket_size));
                Setup setup = changing_setup(kind);
                setup.config.max_grad_norm = FLT_MAX; // measured, and never clipped
                setup.config.bucket_size = bucket_size;
                BesideOracle both(comm, setup, log);
                for (std::uint64_t t = 1; t <= 16; ++t) {
                    const double most = t % 4 == 0 ? 0 : t % 4 == 1 ? double{FLT_MAX} : 3.0 * double(t);
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_max_grad_norm(both.training.get(), most));
                    both.reference->model.max_grad_norm = most;
                    both.step(changing_gradient(), t);
                }
                for (const double wrong : {-1.0, std::numeric_limits<double>::quiet_NaN(), 1e50})
                    ONEBIT_EXPECT_FAILURE(log, bad, "max_grad_norm",
                                          onebit_optimizer_set_max_grad_norm(both.training.get(), wrong));
                if (log.size() == 1) continue;
                ONEBIT_EXPECT_OK(log, onebit_optimizer_set_max_grad_norm(both.training.get(), log.last_rank() ? 1 : 2));
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "rank;setting",
                                      onebit_optimizer_step(both.training.get()));
            }
            Training without(comm, changing_setup(kind), log);
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_UNSUPPORTED, "max_grad_norm;created",
                                  onebit_optimizer_set_max_grad_norm(without.get(), 1));
            ONEBIT_EXPECT_OK(log, onebit_optimizer_set_max_grad_norm(without.get(), 0));
        }
    });
}

TEST_CASE("parameters and gradients may move between steps", "[optimizer][settings]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            Setup setup = changing_setup(kind);
            setup.copies = true;
            setup.copy_type = ONEBIT_BFLOAT16;
            Training training(comm, setup, log), twin(comm, setup, log), lender(comm, setup, log);
            std::vector<std::vector<float>> moved;
            std::vector<float> all = training.parameters();
            auto from = all.begin();
            for (const std::size_t size : sizes()) {
                moved.emplace_back(from, from + static_cast<std::ptrdiff_t>(size));
                from += static_cast<std::ptrdiff_t>(size);
            }
            const std::vector<float> before = training.parameters();
            for (std::uint64_t t = 1; t <= 14; ++t) {
                log.context(name_of(kind) + ", step " + std::to_string(t));
                const bool away = t > 1;
                if (t == 2) {
                    all = training.parameters();
                    from = all.begin();
                    for (std::size_t k = 0; k < sizes().size(); ++k) {
                        std::copy_n(from, sizes()[k], moved[k].begin());
                        from += static_cast<std::ptrdiff_t>(sizes()[k]);
                        ONEBIT_EXPECT_OK(log, onebit_optimizer_set_parameters(training.get(), k, moved[k].data()));
                    }
                }
                Training& owner = t % 2 == 0 ? lender : training; // of the gradients
                owner.set_gradients(changing_gradient()(log.rank(), t));
                const std::vector<const void*> addresses = addresses_of(owner);
                ONEBIT_EXPECT_OK(
                    log, onebit_optimizer_set_all_gradients(training.get(), addresses.data(), addresses.size()));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_step(training.get()));
                twin.steps(changing_gradient(), t, t);
                std::vector<float> now;
                for (const std::vector<float>& part : moved) now.insert(now.end(), part.begin(), part.end());
                ONEBIT_EXPECT(log, same_bits(away ? now : training.parameters(), twin.parameters()));
                if (away) ONEBIT_EXPECT(log, same_bits(training.parameters(), all)); // where they were nothing changes
                ONEBIT_EXPECT(log, training.copies() == twin.copies());
            }
        }
    });
}

TEST_CASE("addresses that can't be", "[optimizer][settings][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Training training(comm, changing_setup(ONEBIT_OPTIMIZER_ONEBIT_ADAM), log);
        Training twin(comm, changing_setup(ONEBIT_OPTIMIZER_ONEBIT_ADAM), log);
        const onebit_optimizer_t handle = training.get();
        std::vector<float> room(101);
        char* const odd = reinterpret_cast<char*>(room.data()) + 1;
        ONEBIT_EXPECT_FAILURE(log, bad, "tensors[2];parameters is NULL",
                              onebit_optimizer_set_parameters(handle, 2, nullptr));
        ONEBIT_EXPECT_FAILURE(log, bad, "tensors[2];align",
                              onebit_optimizer_set_parameters(handle, 2, reinterpret_cast<float*>(odd)));
        ONEBIT_EXPECT_FAILURE(log, bad, "tensor: 7;there are 7",
                              onebit_optimizer_set_parameters(handle, 7, room.data()));
        auto* const gradients = static_cast<float*>(const_cast<void*>(training.gradients(4)));
        ONEBIT_EXPECT_FAILURE(log, bad, "parameters of tensors[2];gradients of tensors[4];overlap",
                              onebit_optimizer_set_parameters(handle, 2, gradients + 3));
        std::vector<const void*> addresses = addresses_of(training);
        ONEBIT_EXPECT_FAILURE(log, bad, "gradients is NULL", onebit_optimizer_set_all_gradients(handle, nullptr, 7));
        for (const std::size_t wrong : {0, 6, 8})
            ONEBIT_EXPECT_FAILURE(log, bad, "num_tensors: " + std::to_string(wrong) + ";there are 7",
                                  onebit_optimizer_set_all_gradients(handle, addresses.data(), wrong));
        const std::vector<const void*> sound = addresses;
        addresses[0] = room.data();
        addresses[5] = odd;
        ONEBIT_EXPECT_FAILURE(log, bad, "tensors[5];align",
                              onebit_optimizer_set_all_gradients(handle, addresses.data(), 7));
        training.steps(changing_gradient(), 1, 3);
        twin.steps(changing_gradient(), 1, 3);
        ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
        addresses = sound;
        addresses[5] = nullptr; // none: a step fails until it has some
        ONEBIT_EXPECT_OK(log, onebit_optimizer_set_all_gradients(handle, addresses.data(), 7));
        ONEBIT_EXPECT_FAILURE(log, bad, "tensors[5];no gradients", onebit_optimizer_step(handle));
        ONEBIT_EXPECT_OK(log, onebit_optimizer_set_all_gradients(handle, sound.data(), 7));
        training.steps(changing_gradient(), 4, 9);
        twin.steps(changing_gradient(), 4, 9);
        ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(twin)));
    });
}
