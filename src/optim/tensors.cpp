// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/tensors.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "collectives/operation/memory_backend.hpp"
#include "core/structs.hpp"

namespace onebit {
namespace {

/// Memory that a tensor names.
struct Extent {
    std::uintptr_t begin;
    std::uintptr_t end;
    const Tensor* tensor;
    const char* member;
};

Status check_type(const Tensor& tensor, const char* member, onebit_datatype_t type) {
    if (type == ONEBIT_FLOAT32 || type == ONEBIT_FLOAT16 || type == ONEBIT_BFLOAT16) return {};
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                         "%s: %s: %d is none of ONEBIT_FLOAT32, ONEBIT_FLOAT16 and ONEBIT_BFLOAT16",
                         tensor.name.c_str(), member, static_cast<int>(type));
}

Status check_tensor(const Tensor& tensor, std::size_t num_groups, std::size_t elements_before) {
    const char* const name = tensor.name.c_str();
    if (tensor.count == 0 || tensor.count > SIZE_MAX / 64 - elements_before) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s: count is %zu", name, tensor.count);
    }
    if (tensor.group >= num_groups) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s: group is %zu, but there are %zu", name, tensor.group,
                             num_groups);
    }
    if (tensor.parameters == nullptr) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s: parameters is NULL", name);
    }
    ONEBIT_RETURN_IF_ERROR(check_type(tensor, "gradient_type", tensor.gradient_type));
    ONEBIT_RETURN_IF_ERROR(check_type(tensor, "copy_type", tensor.copy_type));
    ONEBIT_RETURN_IF_ERROR(check_alignment(tensor, "parameters", tensor.parameters, ONEBIT_FLOAT32));
    ONEBIT_RETURN_IF_ERROR(check_alignment(tensor, "gradients", tensor.gradients, tensor.gradient_type));
    return check_alignment(tensor, "copy", tensor.copy, tensor.copy_type);
}

} // namespace

/// No two extents may share a byte: no tensor may be registered twice, or be a view of another.
Status check_disjoint(const std::vector<Tensor>& tensors) {
    std::vector<Extent> extents;
    for (const Tensor& tensor : tensors) {
        const auto add = [&](const void* pointer, const char* member, onebit_datatype_t type) {
            const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
            if (pointer != nullptr) extents.push_back({begin, begin + tensor.count * bytes_of(type), &tensor, member});
        };
        add(tensor.parameters, "parameters", ONEBIT_FLOAT32);
        add(tensor.gradients, "gradients", tensor.gradient_type);
        add(tensor.copy, "copy", tensor.copy_type);
    }
    std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
    for (std::size_t i = 1; i < extents.size(); ++i) {
        const Extent& first = extents[i - 1];
        const Extent& second = extents[i];
        if (second.begin >= first.end) continue;
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "the %s of %s and the %s of %s overlap", first.member,
                             first.tensor->name.c_str(), second.member, second.tensor->name.c_str());
    }
    return {};
}

Status check_alignment(const Tensor& tensor, const char* member, const void* pointer, onebit_datatype_t type) {
    if (reinterpret_cast<std::uintptr_t>(pointer) % bytes_of(type) == 0) return {};
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s: %s = %p is not aligned to %zu bytes", tensor.name.c_str(),
                         member, pointer, bytes_of(type));
}

Status check_place(const Tensor& tensor, const char* member, const void* pointer, const MemoryBackend& backend) {
    if (pointer == nullptr) return {};
    return backend.check_buffer(pointer, (tensor.name + ": " + member).c_str());
}

Status check_place(const Tensor& tensor, const MemoryBackend& backend) {
    ONEBIT_RETURN_IF_ERROR(check_place(tensor, "parameters", tensor.parameters, backend));
    ONEBIT_RETURN_IF_ERROR(check_place(tensor, "gradients", tensor.gradients, backend));
    return check_place(tensor, "copy", tensor.copy, backend);
}

Status make_tensors(const onebit_tensor_t* tensors, std::size_t num_tensors, std::size_t num_groups,
                    std::vector<Tensor>* made) {
    if (tensors == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "tensors is NULL");
    if (num_tensors == 0) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "num_tensors is 0");
    std::vector<Tensor> list;
    list.reserve(num_tensors);
    std::size_t elements = 0;
    for (std::size_t i = 0; i < num_tensors; ++i) {
        onebit_tensor_t from;
        std::string name = "tensors[" + std::to_string(i) + "]";
        ONEBIT_RETURN_IF_ERROR(read_element(name.c_str(), tensors, i, &from));
        if (from.name != nullptr) name += std::string(" '") + from.name + "'";
        list.push_back({std::move(name), i, from.group, from.count, elements, from.parameters, from.gradients,
                        from.gradient_type, from.copy_type, from.copy});
        const Tensor& tensor = list.back();
        ONEBIT_RETURN_IF_ERROR(check_tensor(tensor, num_groups, elements));
        elements += tensor.count;
    }
    ONEBIT_RETURN_IF_ERROR(check_disjoint(list));
    *made = std::move(list);
    return {};
}

const float* Tensor::read_gradients(std::size_t begin, std::size_t length, const NumericKernels& kernels,
                                    float* scratch) const {
    alignas(64) static constexpr float kNone[kBlockElements] = {};
    if (gradients == nullptr) return kNone;
    if (gradient_type == ONEBIT_FLOAT32) return static_cast<const float*>(gradients) + begin;
    const Elements elements(gradient_type, kernels);
    elements.widen(elements.at(gradients, begin), length, Stores::kCached, scratch);
    return scratch;
}

void Tensor::write_copy(std::size_t begin, std::size_t length, const NumericKernels& kernels) const {
    if (copy == nullptr) return;
    if (copy_type == ONEBIT_FLOAT32) {
        std::memcpy(static_cast<float*>(copy) + begin, parameters + begin, length * sizeof(float));
        return;
    }
    std::uint16_t* const to = static_cast<std::uint16_t*>(copy) + begin;
    const auto narrow = copy_type == ONEBIT_FLOAT16 ? kernels.narrow_float16 : kernels.narrow_bfloat16;
    narrow(parameters + begin, length, to);
}

// ----------------------------------------------------------------------------------------------------- Layout ----

Layout::Layout(std::vector<const Tensor*> tensors) : tensors_(std::move(tensors)) {
    for (const Tensor* tensor : tensors_) count_ += tensor->count;
}

void Layout::cut(std::span<const Chunk> chunks) {
    std::size_t blocks = 0;
    for (const Chunk& chunk : chunks) {
        first_block_.push_back(blocks);
        blocks += chunk.blocks();
        for (std::size_t block = 0; block < chunk.blocks(); ++block) cut({chunk, block});
    }
    first_segment_.push_back(segments_.size());
    tensor_segment_.push_back(segments_.size());
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        for (std::size_t s = tensor_segment_[i]; s < tensor_segment_[i + 1]; s += kSketchSegments) runs_.push_back(s);
    }
    runs_.push_back(segments_.size());
}

/// Appends the segments of the next block.
void Layout::cut(const Block& block) {
    first_segment_.push_back(segments_.size());
    std::size_t offset = block.begin();
    const std::size_t end = offset + block.count();
    while (offset < end) {
        // Goes on where the last segment ended.
        const bool first = segments_.empty();
        const Segment last = first ? Segment() : segments_.back();
        const bool same_tensor = !first && last.begin + last.count < last.tensor->count;
        const Tensor* const tensor = same_tensor ? last.tensor : tensors_[tensor_segment_.size()];
        if (!same_tensor) tensor_segment_.push_back(segments_.size());
        const std::size_t begin = same_tensor ? last.begin + last.count : 0;
        const std::size_t count = std::min(end - offset, tensor->count - begin);
        segments_.push_back({tensor, segments_.size(), begin, offset, count});
        offset += count;
    }
}

} // namespace onebit
