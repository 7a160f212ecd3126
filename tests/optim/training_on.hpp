// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// A training whose tensors lie in a GPU's memory or in the host's. Tensors have any type. Addresses are aligned for one
// element and for nothing larger.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compress/device_memory.hpp"
#include "support/directory.hpp"
#include "support/files.hpp"
#include "support/training.hpp"

namespace onebit_test {

inline constexpr onebit_memory_t kHost = ONEBIT_MEMORY_HOST;
inline constexpr onebit_memory_t kGpu = ONEBIT_MEMORY_CUDA;

// A tensor's array, with guards around it.
class Words {
  public:
    Words(onebit_memory_t memory, std::size_t words) : host_(words + 2 * kGuards, kGuard) {
        if (memory == ONEBIT_MEMORY_CUDA) gpu_ = std::make_unique<onebit::DeviceArray<float>>(host_);
    }
    float* data() { return (gpu_ == nullptr ? host_.data() : gpu_->data()) + kGuards; }
    void set(const Bytes& bytes) {
        std::memcpy(host_.data() + kGuards, bytes.data(), bytes.size());
        if (gpu_ != nullptr) gpu_->set(host_);
    }
    Bytes get(std::size_t bytes) const {
        const std::vector<float> all = gpu_ == nullptr ? host_ : gpu_->get();
        const auto* const first = reinterpret_cast<const unsigned char*>(all.data() + kGuards);
        return {first, first + bytes};
    }
    bool guards_intact() const {
        const std::vector<float> all = gpu_ == nullptr ? host_ : gpu_->get();
        const auto is_guard = [](float x) { return x == kGuard; };
        return std::all_of(all.begin(), all.begin() + kGuards, is_guard) &&
               std::all_of(all.end() - kGuards, all.end(), is_guard);
    }

  private:
    static constexpr int kGuards = 3;
    static constexpr float kGuard = -12345.5f;
    std::vector<float> host_;
    std::unique_ptr<onebit::DeviceArray<float>> gpu_;
};

struct TensorKind {
    std::size_t count;
    std::uint32_t group = 0;
    onebit_datatype_t gradient_type = ONEBIT_FLOAT32;
    bool has_copy = false;
    onebit_datatype_t copy_type = ONEBIT_FLOAT32;
};

struct Model {
    onebit_optimizer_config_t config;
    std::vector<TensorKind> tensors;
    std::vector<onebit_param_group_t> groups = {};
    std::size_t count() const {
        std::size_t sum = 0;
        for (const TensorKind& tensor : tensors) sum += tensor.count;
        return sum;
    }
};

class TrainingOn {
  public:
    TrainingOn(onebit_memory_t memory, onebit_comm_t comm, const Model& model, RankLog& log)
        : TrainingOn(memory, comm, model, initial_parameters(model.count()), log) {}
    TrainingOn(onebit_memory_t memory, onebit_comm_t comm, const Model& model, const std::vector<float>& start,
               RankLog& log)
        : log_(log), memory_(memory), model_(model) {
        std::size_t offset = 0;
        std::vector<onebit_tensor_t> tensors;
        for (const TensorKind& kind : model.tensors) {
            parameters_.emplace_back(memory, kind.count);
            gradients_.emplace_back(memory, (kind.count * bytes_of(kind.gradient_type) + 3) / 4);
            copies_.emplace_back(memory, (kind.count * bytes_of(kind.copy_type) + 3) / 4);
            parameters_.back().set(converted(slice(start, offset, kind.count), ONEBIT_FLOAT32));
            onebit_tensor_t tensor =
                ONEBIT_TENSOR_INIT(parameters_.back().data(), gradients_.back().data(), kind.count);
            tensor.gradient_type = kind.gradient_type;
            tensor.group = kind.group;
            tensor.name = "weights";
            if (kind.has_copy) {
                tensor.copy = copies_.back().data();
                tensor.copy_type = kind.copy_type;
            }
            tensors.push_back(tensor);
            offset += kind.count;
        }
        onebit_optimizer_config_t config = model.config;
        config.memory = memory;
        if (!model.groups.empty()) {
            config.groups = model.groups.data();
            config.num_groups = model.groups.size();
        }
        ONEBIT_EXPECT_OK(log_, onebit_optimizer_create(comm, &config, tensors.data(), tensors.size(), &handle_));
    }
    ~TrainingOn() {
        for (std::size_t k = 0; k < parameters_.size(); ++k) {
            ONEBIT_EXPECT(log_, parameters_[k].guards_intact() && gradients_[k].guards_intact());
            ONEBIT_EXPECT(log_, copies_[k].guards_intact());
        }
        ONEBIT_EXPECT_OK(log_, onebit_optimizer_destroy(handle_));
    }
    TrainingOn(const TrainingOn&) = delete;
    TrainingOn& operator=(const TrainingOn&) = delete;

    onebit_optimizer_t get() const { return handle_; }
    const Model& model() const { return model_; }

    void set_gradients(const std::vector<float>& flat) {
        std::size_t offset = 0;
        for (std::size_t k = 0; k < gradients_.size(); ++k) {
            gradients_[k].set(converted(slice(flat, offset, model_.tensors[k].count), model_.tensors[k].gradient_type));
            offset += model_.tensors[k].count;
        }
    }
    bool step(const std::vector<float>& flat) {
        set_gradients(flat);
        return ONEBIT_EXPECT_OK(log_, onebit_optimizer_step(handle_));
    }
    // The gradients of one tensor are elsewhere from now on.
    void move_gradients(std::size_t tensor) {
        const TensorKind& kind = model_.tensors[tensor];
        Words elsewhere(memory_, (kind.count * bytes_of(kind.gradient_type) + 3) / 4);
        std::swap(gradients_[tensor], elsewhere);
        ONEBIT_EXPECT_OK(log_, onebit_optimizer_set_gradients(handle_, tensor, gradients_[tensor].data()));
    }
    Bytes parameters() const {
        Bytes all;
        for (std::size_t k = 0; k < parameters_.size(); ++k) {
            const Bytes part = parameters_[k].get(model_.tensors[k].count * sizeof(float));
            all.insert(all.end(), part.begin(), part.end());
        }
        return all;
    }
    std::vector<float> parameter_values() const {
        const Bytes bytes = parameters();
        std::vector<float> values(bytes.size() / sizeof(float));
        std::memcpy(values.data(), bytes.data(), bytes.size());
        return values;
    }
    Bytes copies() const {
        Bytes all;
        for (std::size_t k = 0; k < copies_.size(); ++k) {
            const Bytes part = copies_[k].get(model_.tensors[k].count * bytes_of(model_.tensors[k].copy_type));
            all.insert(all.end(), part.begin(), part.end());
        }
        return all;
    }
    OptimizerErrors errors() {
        OptimizerErrors errors{std::vector<float>(model_.count(), NAN), std::vector<float>(model_.count(), NAN)};
        ONEBIT_EXPECT_OK(log_, onebit_optimizer_get_error(handle_, errors.worker.data(), errors.server.data()));
        return errors;
    }
    onebit_optimizer_info_t info() {
        onebit_optimizer_info_t info = ONEBIT_OPTIMIZER_INFO_INIT;
        ONEBIT_EXPECT_OK(log_, onebit_optimizer_get_info(handle_, &info));
        return info;
    }

  private:
    static std::vector<float> slice(const std::vector<float>& all, std::size_t first, std::size_t count) {
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
        return {begin, begin + static_cast<std::ptrdiff_t>(count)};
    }

    RankLog& log_;
    onebit_memory_t memory_;
    Model model_;
    std::vector<Words> parameters_, gradients_, copies_;
    onebit_optimizer_t handle_ = nullptr;
};

// Whether two trainings agree, to the bit, in all that a test can see. Their tensors may lie anywhere.
inline bool same_training(TrainingOn& a, TrainingOn& b) {
    const onebit_optimizer_info_t x = a.info(), y = b.info();
    return a.parameters() == b.parameters() && a.copies() == b.copies() && a.errors().same_as(b.errors()) &&
           x.frozen == y.frozen && x.steps == y.steps && x.skipped == y.skipped && x.freeze_step == y.freeze_step &&
           x.masked == y.masked && x.exact_rounds == y.exact_rounds && x.compressed_rounds == y.compressed_rounds &&
           x.grad_norm == y.grad_norm && x.step_ratio == y.step_ratio && x.step_tensor == y.step_tensor;
}

// ---- what is trained ----

// One tensor.
inline Model one_tensor(onebit_optimizer_config_t config) {
    return {config, {{9001}}};
}

// Odd sizes, all types of gradients and copies; clipped.
inline Model all_types(onebit_optimizer_config_t config) {
    config.max_grad_norm = 40;
    return {config,
            {{5000, 0, ONEBIT_FLOAT16, true, ONEBIT_BFLOAT16},
             {1},
             {33, 0, ONEBIT_BFLOAT16, true, ONEBIT_FLOAT32},
             {4095, 0, ONEBIT_FLOAT32, true, ONEBIT_FLOAT16},
             {2, 0, ONEBIT_FLOAT16}}};
}

// Groups that differ in everything, one of which is never compressed.
inline Model three_groups(onebit_optimizer_config_t config) {
    Model model{config, {{4100, 0}, {77, 2}, {31, 1, ONEBIT_FLOAT16}, {4097, 1}, {63, 0, ONEBIT_FLOAT32, true}}};
    model.groups.assign(3, ONEBIT_PARAM_GROUP_INIT(0.01));
    model.groups[0].weight_decay = 0.1;
    model.groups[1].lr = 0.03;
    model.groups[1].beta1 = 0.8;
    model.groups[1].beta2 = 0.99;
    model.groups[1].eps = 1e-6;
    model.groups[2].no_compress = 1;
    return model;
}

inline std::vector<Model> all_models(const onebit_optimizer_config_t& config) {
    return {one_tensor(config), all_types(config), three_groups(config)};
}

// With a scale for each block or for the buffer, and of updates or momenta.
inline std::vector<Model> all_models_and_exchanges(onebit_optimizer_config_t config) {
    std::vector<Model> models;
    for (const auto& [group, compressed] : {std::pair{ONEBIT_GROUP_BLOCK, ONEBIT_COMPRESSED_UPDATES},
                                            {ONEBIT_GROUP_BUFFER, ONEBIT_COMPRESSED_UPDATES},
                                            {ONEBIT_GROUP_BLOCK, ONEBIT_COMPRESSED_MOMENTA}}) {
        config.group = group;
        config.compressed = compressed;
        for (Model& model : all_models(config)) models.push_back(std::move(model));
    }
    return models;
}

// Some elements have no gradient, and so no variance, before step 9: they are masked at the freeze.
inline Gradient with_zeros(std::size_t count, std::uint64_t seed) {
    return beginning_late(gaussian_gradient(count, seed), 40, 90, 9);
}

// In eighths: their sum over any number of ranks is exact in any order.
inline Gradient in_eighths(Gradient inner) {
    return [inner = std::move(inner)](int rank, std::uint64_t t) {
        std::vector<float> values = inner(rank, t);
        for (float& value : values) value = std::round(value * 8) / 8;
        return values;
    };
}

// ---- saves ----

/// The saved file without the bytes that differ between saves: the save's numbers (bytes 20 to 31), and the checksum
/// that covers these numbers (88 to 95).
inline Bytes saved(TrainingOn& training, RankLog& log, const SharedDirectory& directory, const std::string& name) {
    ONEBIT_EXPECT_OK(log, onebit_optimizer_save(training.get(), directory.prefix(name).c_str()));
    Bytes bytes = read_file(directory.file(name, log.rank()));
    for (const auto& [first, end] : {std::pair(20, 32), std::pair(88, 96)}) {
        for (int i = first; i < end && i < static_cast<int>(bytes.size()); ++i) bytes[static_cast<std::size_t>(i)] = 0;
    }
    return bytes;
}

inline void load(TrainingOn& training, RankLog& log, const SharedDirectory& directory, const std::string& name) {
    ONEBIT_EXPECT_OK(log, onebit_optimizer_load(training.get(), directory.prefix(name).c_str()));
}

} // namespace onebit_test
