// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// What the optimizer tests share: all kinds, gradients to train on, and an optimizer with the tensors it works on.
#pragma once

#include <algorithm>
#include <functional>

#include "support/half.hpp"
#include "support/handles.hpp"

namespace onebit_test {

using Sizes = std::vector<std::size_t>;
using Gradient = std::function<std::vector<float>(int rank, std::uint64_t step)>; // all tensors, one after another

inline std::size_t total(const Sizes& sizes) {
    std::size_t sum = 0;
    for (std::size_t size : sizes) sum += size;
    return sum;
}

inline const std::vector<onebit_optimizer_kind_t>& all_kinds() {
    static const std::vector<onebit_optimizer_kind_t> kinds = {ONEBIT_OPTIMIZER_ADAM, ONEBIT_OPTIMIZER_ONEBIT_ADAM,
                                                               ONEBIT_OPTIMIZER_LAMB, ONEBIT_OPTIMIZER_ONEBIT_LAMB,
                                                               ONEBIT_OPTIMIZER_ZERO_ONE_ADAM};
    return kinds;
}
inline const std::vector<onebit_optimizer_kind_t>& freezing_kinds() {
    static const std::vector<onebit_optimizer_kind_t> kinds = {
        ONEBIT_OPTIMIZER_ONEBIT_ADAM, ONEBIT_OPTIMIZER_ONEBIT_LAMB, ONEBIT_OPTIMIZER_ZERO_ONE_ADAM};
    return kinds;
}
inline std::string name_of(onebit_optimizer_kind_t kind) {
    const char* const names[] = {"Adam", "1-bit Adam", "LAMB", "1-bit LAMB", "0/1 Adam"};
    return names[static_cast<int>(kind)];
}
inline bool freezes(onebit_optimizer_kind_t kind) {
    return kind != ONEBIT_OPTIMIZER_ADAM && kind != ONEBIT_OPTIMIZER_LAMB;
}

// The quantities that the kind can compress.
inline std::vector<onebit_compressed_t> ways_to_compress(onebit_optimizer_kind_t kind) {
    if (!freezes(kind)) return {ONEBIT_COMPRESSED_UPDATES};
    return {ONEBIT_COMPRESSED_UPDATES, ONEBIT_COMPRESSED_MOMENTA};
}

// Three that differ, the last of which is never compressed.
inline std::vector<onebit_param_group_t> three_groups() {
    onebit_param_group_t first = ONEBIT_PARAM_GROUP_INIT(0.01), second = ONEBIT_PARAM_GROUP_INIT(0.03);
    onebit_param_group_t dense = ONEBIT_PARAM_GROUP_INIT(0.005);
    first.weight_decay = 0.1;
    second.beta1 = 0.8;
    second.beta2 = 0.99;
    second.eps = 1e-3;
    dense.no_compress = 1;
    return {first, second, dense};
}

inline onebit_optimizer_config_t optimizer_config(onebit_optimizer_kind_t kind, double lr = 0.01) {
    onebit_optimizer_config_t config = ONEBIT_OPTIMIZER_CONFIG_INIT(kind, lr);
    config.freeze_step = ONEBIT_FREEZE_NEVER;
    return config;
}

// The kind's stages within a few steps. It freezes after step 6. 0/1 Adam averages exactly at 1, 2, 4 and 6, in its
// compressed rounds at 3 and 5. Later rounds: at 7, 8 and 9, at each second step from 10, at each fourth from 13.
inline onebit_optimizer_config_t quick_config(onebit_optimizer_kind_t kind, double lr = 0.01) {
    onebit_optimizer_config_t config = optimizer_config(kind, lr);
    if (freezes(kind)) config.freeze_step = 6;
    config.variance_updates = 2;
    config.local_step_scaler = 3;
    config.local_steps = 4;
    return config;
}

inline std::vector<float> initial_parameters(std::size_t count) {
    return make_data(Kind::gaussian, count, 1000, 0, 0);
}

// Gaussian around one value for each element, which all ranks and steps share. The magnitude differs a hundredfold
// along the elements.
inline Gradient gaussian_gradient(std::size_t count, std::uint64_t seed) {
    const std::vector<float> shared = make_data(Kind::gaussian, count, seed, 999, 0);
    return [count, seed, shared](int rank, std::uint64_t step) {
        std::vector<float> gradient = make_data(Kind::gaussian, count, seed, rank, step);
        for (std::size_t i = 0; i < count; ++i)
            gradient[i] =
                (gradient[i] + 0.5f * shared[i]) * (i / 40 % 3 == 0 ? 0.1f : (i / 40 % 3 == 1 ? 1.0f : 10.0f));
        return gradient;
    };
}

// The same, but elements [first, end) have no gradient before step `begins`.
inline Gradient beginning_late(Gradient inner, std::size_t first, std::size_t end, std::uint64_t begins) {
    return [=, inner = std::move(inner)](int rank, std::uint64_t step) {
        std::vector<float> gradient = inner(rank, step);
        if (step < begins) std::fill_n(gradient.begin() + static_cast<std::ptrdiff_t>(first), end - first, 0.0F);
        return gradient;
    };
}

// Everything that an optimizer is created from.
struct Setup {
    onebit_optimizer_config_t config;
    Sizes sizes;
    std::vector<onebit_param_group_t> groups = {}; // empty: the config's own settings
    std::vector<std::uint32_t> group_of = {};      // each tensor's; empty: 0
    onebit_datatype_t gradient_type = ONEBIT_FLOAT32;
    bool copies = false;
    onebit_datatype_t copy_type = ONEBIT_FLOAT32;
    int places = 1; // ranks on each node, as ONEBIT_NODE_SIZE makes nodes: for the oracle of two levels
};

struct OptimizerErrors {
    std::vector<float> worker, server;
    bool same_as(const OptimizerErrors& other) const {
        return same_bits(worker, other.worker) && same_bits(server, other.server);
    }
};

// The tensors and the optimizer of one rank.
class Training {
  public:
    Training(onebit_comm_t comm, const onebit_optimizer_config_t& config, const Sizes& sizes, RankLog& log)
        : Training(comm, Setup{config, sizes}, log) {}
    Training(onebit_comm_t comm, const Setup& setup, RankLog& log)
        : Training(comm, setup, initial_parameters(total(setup.sizes)), log) {}
    Training(onebit_comm_t comm, const Setup& setup, const std::vector<float>& start, RankLog& log)
        : Training(comm, setup, start, log, nullptr) {}
    // An optimizer whose creation may fail: get() is NULL then.
    Training(onebit_comm_t comm, const Setup& setup, RankLog& log, onebit_status_t* made)
        : Training(comm, setup, initial_parameters(total(setup.sizes)), log, made) {}
    ~Training() { ONEBIT_EXPECT_OK(log_, onebit_optimizer_destroy(handle_)); }
    Training(const Training&) = delete;
    Training& operator=(const Training&) = delete;

    onebit_optimizer_t get() const { return handle_; }
    std::size_t count() const { return total(setup_.sizes); }
    const void* gradients(std::size_t tensor) const { return gradients_[tensor].data(); }

    void set_gradients(const std::vector<float>& flat) {
        auto from = flat.begin();
        for (std::size_t k = 0; k < gradients_.size(); ++k) {
            const auto end = from + static_cast<std::ptrdiff_t>(setup_.sizes[k]);
            const Bytes bytes = converted({from, end}, setup_.gradient_type);
            std::memcpy(gradients_[k].data(), bytes.data(), bytes.size());
            from = end;
        }
    }
    void step(const std::vector<float>& flat) {
        set_gradients(flat);
        ONEBIT_EXPECT_OK(log_, onebit_optimizer_step(handle_));
    }
    // Steps first, first + 1, ... last.
    void steps(const Gradient& gradient, std::uint64_t first, std::uint64_t last) {
        for (std::uint64_t t = first; t <= last; ++t) step(gradient(log_.rank(), t));
    }
    std::vector<float> parameters() const {
        std::vector<float> flat;
        for (const std::vector<float>& part : parameters_) flat.insert(flat.end(), part.begin(), part.end());
        return flat;
    }
    Bytes copies() const {
        Bytes flat;
        for (std::size_t k = 0; k < copies_.size(); ++k) {
            const auto* const bytes = reinterpret_cast<const unsigned char*>(copies_[k].data());
            flat.insert(flat.end(), bytes, bytes + setup_.sizes[k] * bytes_of(setup_.copy_type));
        }
        return flat;
    }
    bool parameters_same_on_all() const {
        const std::vector<float> flat = parameters();
        return log_.same_on_all(flat.data(), flat.size() * sizeof(float));
    }
    OptimizerErrors errors() {
        OptimizerErrors errors{std::vector<float>(count(), NAN), std::vector<float>(count(), NAN)};
        ONEBIT_EXPECT_OK(log_, onebit_optimizer_get_error(handle_, errors.worker.data(), errors.server.data()));
        return errors;
    }
    onebit_optimizer_info_t info() {
        onebit_optimizer_info_t info = ONEBIT_OPTIMIZER_INFO_INIT;
        ONEBIT_EXPECT_OK(log_, onebit_optimizer_get_info(handle_, &info));
        return info;
    }

  private:
    // `made`: NULL if creation must succeed.
    Training(onebit_comm_t comm, const Setup& setup, const std::vector<float>& start, RankLog& log,
             onebit_status_t* made)
        : log_(log), setup_(setup) {
        auto from = start.begin();
        for (std::size_t size : setup.sizes) {
            const std::size_t words = (size * bytes_of(setup.gradient_type) + 3) / 4; // floats for their alignment
            parameters_.emplace_back(from, from + static_cast<std::ptrdiff_t>(size));
            gradients_.emplace_back(words, 0.0f);
            copies_.emplace_back((size * bytes_of(setup.copy_type) + 3) / 4, untouched_);
            from += static_cast<std::ptrdiff_t>(size);
        }
        const std::vector<onebit_tensor_t> tensors = this->tensors(); // read, not kept
        onebit_optimizer_config_t config = setup.config;
        if (!setup.groups.empty()) {
            config.groups = setup.groups.data();
            config.num_groups = setup.groups.size();
        }
        const onebit_status_t status = onebit_optimizer_create(comm, &config, tensors.data(), tensors.size(), &handle_);
        if (made == nullptr) {
            ONEBIT_EXPECT_OK(log_, status);
        } else {
            *made = status;
        }
    }

    std::vector<onebit_tensor_t> tensors() {
        std::vector<onebit_tensor_t> tensors;
        for (std::size_t k = 0; k < setup_.sizes.size(); ++k) {
            onebit_tensor_t tensor = ONEBIT_TENSOR_INIT(parameters_[k].data(), gradients_[k].data(), setup_.sizes[k]);
            tensor.gradient_type = setup_.gradient_type;
            if (!setup_.group_of.empty()) tensor.group = setup_.group_of[k];
            if (setup_.copies) {
                tensor.copy = copies_[k].data();
                tensor.copy_type = setup_.copy_type;
            }
            tensors.push_back(tensor);
        }
        return tensors;
    }

    static constexpr float untouched_ = -12345.5f;
    RankLog& log_;
    Setup setup_;
    std::vector<std::vector<float>> parameters_, gradients_, copies_;
    onebit_optimizer_t handle_ = nullptr;
};

// Everything that a test can see of a training. A call that fails must change nothing in it.
struct Snapshot {
    explicit Snapshot(Training& training)
        : parameters(training.parameters()),
          copies(training.copies()),
          errors(training.errors()),
          info(training.info()) {}
    // Except the bytes sent, which grow with any agreement, and the steps skipped.
    bool same_as(const Snapshot& other) const {
        const onebit_optimizer_info_t &a = info, &b = other.info;
        return same_bits(parameters, other.parameters) && copies == other.copies && errors.same_as(other.errors) &&
               a.frozen == b.frozen && a.steps == b.steps && a.freeze_step == b.freeze_step && a.masked == b.masked &&
               a.exact_rounds == b.exact_rounds && a.compressed_rounds == b.compressed_rounds &&
               a.grad_norm == b.grad_norm;
    }

    std::vector<float> parameters;
    Bytes copies;
    OptimizerErrors errors;
    onebit_optimizer_info_t info;
};

} // namespace onebit_test
