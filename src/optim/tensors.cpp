// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/tensors.hpp"

#include <cmath>
#include <cstring>

namespace onebit {
namespace {

std::string name_of(const onebit_tensor_t& tensor, std::size_t index) {
    std::string name = "tensors[" + std::to_string(index) + "]";
    if (tensor.name != nullptr) name += std::string(" '") + tensor.name + "'";
    return name;
}

Status check_pointer(const void* pointer, const std::string& tensor, const char* member) {
    if (pointer == nullptr) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s: %s is NULL", tensor.c_str(), member);
    }
    if (reinterpret_cast<std::uintptr_t>(pointer) % alignof(float) != 0) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s: %s = %p is not aligned to %zu bytes", tensor.c_str(),
                             member, pointer, alignof(float));
    }
    return {};
}

} // namespace

Status TensorSet::create(const onebit_tensor_t* tensors, std::size_t num_tensors, TensorSet* set) {
    if (tensors == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "tensors is NULL");
    if (num_tensors == 0) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "num_tensors is 0");
    for (std::size_t i = 0; i < num_tensors; ++i) {
        const onebit_tensor_t& tensor = tensors[i];
        const std::string name = "tensors[" + std::to_string(i) + "]";
        ONEBIT_RETURN_IF_ERROR(check_struct(name.c_str(), tensor, ONEBIT_TENSOR_VERSION));
        if (tensor.count == 0 || tensor.count > SIZE_MAX / 64 - set->count_) {
            return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s: count is %llu", name_of(tensor, i).c_str(),
                                 static_cast<unsigned long long>(tensor.count));
        }
        ONEBIT_RETURN_IF_ERROR(check_pointer(tensor.parameters, name_of(tensor, i), "parameters"));
        ONEBIT_RETURN_IF_ERROR(check_pointer(tensor.gradients, name_of(tensor, i), "gradients"));
        set->tensors_.push_back({name_of(tensor, i), tensor.parameters, tensor.gradients, tensor.count, set->count_});
        set->count_ += tensor.count;
    }
    return {};
}

Status TensorSet::check_gradients() const {
    for (const Tensor& tensor : tensors_) {
        for (std::size_t i = 0; i < tensor.count; ++i) {
            if (std::isfinite(tensor.gradients[i])) continue;
            return Status::error(ONEBIT_ERROR_NONFINITE, "%s: gradients[%zu] is %g", tensor.name.c_str(), i,
                                 static_cast<double>(tensor.gradients[i]));
        }
    }
    return {};
}

void TensorSet::gather_gradients(float* fused, unsigned threads) const {
    for_each_block(threads, [fused](const Tensor& tensor, std::size_t begin, std::size_t length) {
        std::memcpy(fused + tensor.offset + begin, tensor.gradients + begin, length * sizeof(float));
    });
}

} // namespace onebit
