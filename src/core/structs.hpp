// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/status.hpp"

// Callers' structs. They may be of an earlier or a later release than this library. Each begins with its size and
// version and grows at its end alone (CONTRIBUTING.md, "The ABI").

namespace onebit {

/// sizeof(Struct) in releases whose last member is `member`.
#define ONEBIT_SIZE_THROUGH(Struct, member) \
    ((offsetof(Struct, member) + sizeof(Struct::member) + alignof(Struct) - 1) / alignof(Struct) * alignof(Struct))

/// The defaults of a public struct, and the sizes that releases gave it, oldest first. After appending a member, name
/// it here as the last one of the coming release.
template <typename Struct>
struct Releases;
template <>
struct Releases<onebit_comm_info_t> {
    static constexpr onebit_comm_info_t kDefaults = ONEBIT_COMM_INFO_INIT;
    static constexpr std::array kSizes = {ONEBIT_SIZE_THROUGH(onebit_comm_info_t, reason)}; // 0.1
};
template <>
struct Releases<onebit_bootstrap_t> {
    static constexpr onebit_bootstrap_t kDefaults = ONEBIT_BOOTSTRAP_INIT(0, 1, nullptr, nullptr);
    static constexpr std::array kSizes = {ONEBIT_SIZE_THROUGH(onebit_bootstrap_t, timeout)}; // the coming one
};
template <>
struct Releases<onebit_allreduce_config_t> {
    static constexpr onebit_allreduce_config_t kDefaults = ONEBIT_ALLREDUCE_CONFIG_INIT(0);
    static constexpr std::array kSizes = {
        ONEBIT_SIZE_THROUGH(onebit_allreduce_config_t, stream),  // 0.1
        ONEBIT_SIZE_THROUGH(onebit_allreduce_config_t, levels)}; // NOLINT(bugprone-sizeof-expression): a pointer
};
template <>
struct Releases<onebit_level_t> {
    static constexpr onebit_level_t kDefaults = ONEBIT_LEVEL_INIT(0);
    static constexpr std::array kSizes = {ONEBIT_SIZE_THROUGH(onebit_level_t, reserved)}; // the coming one
};
template <>
struct Releases<onebit_level_info_t> {
    static constexpr onebit_level_info_t kDefaults = ONEBIT_LEVEL_INFO_INIT;
    static constexpr std::array kSizes = {ONEBIT_SIZE_THROUGH(onebit_level_info_t, codec)}; // the coming one
};
template <>
struct Releases<onebit_allreduce_info_t> {
    static constexpr onebit_allreduce_info_t kDefaults = ONEBIT_ALLREDUCE_INFO_INIT;
    static constexpr std::array kSizes = {ONEBIT_SIZE_THROUGH(onebit_allreduce_info_t, reason)}; // 0.1
};
template <>
struct Releases<onebit_shard_config_t> {
    static constexpr onebit_shard_config_t kDefaults = ONEBIT_SHARD_CONFIG_INIT(0);
    static constexpr std::array kSizes = {ONEBIT_SIZE_THROUGH(onebit_shard_config_t, rounding)}; // the coming one
};
template <>
struct Releases<onebit_shard_info_t> {
    static constexpr onebit_shard_info_t kDefaults = ONEBIT_SHARD_INFO_INIT;
    static constexpr std::array kSizes = {ONEBIT_SIZE_THROUGH(onebit_shard_info_t, reason)}; // the coming one
};
template <>
struct Releases<onebit_tensor_t> {
    static constexpr onebit_tensor_t kDefaults = ONEBIT_TENSOR_INIT(nullptr, nullptr, 0);
    static constexpr std::array kSizes = {ONEBIT_SIZE_THROUGH(onebit_tensor_t, name)}; // 0.1
};
template <>
struct Releases<onebit_param_group_t> {
    static constexpr onebit_param_group_t kDefaults = ONEBIT_PARAM_GROUP_INIT(0);
    static constexpr std::array kSizes = {ONEBIT_SIZE_THROUGH(onebit_param_group_t, weight_decay)}; // 0.1
};
template <>
struct Releases<onebit_optimizer_config_t> {
    static constexpr onebit_optimizer_config_t kDefaults = ONEBIT_OPTIMIZER_CONFIG_INIT(ONEBIT_OPTIMIZER_ADAM, 0);
    static constexpr std::array kSizes = {ONEBIT_SIZE_THROUGH(onebit_optimizer_config_t, stream),      // 0.1
                                          ONEBIT_SIZE_THROUGH(onebit_optimizer_config_t, algorithm),   // tests/abi/0.1
                                          ONEBIT_SIZE_THROUGH(onebit_optimizer_config_t, num_levels)}; // the coming one
};
template <>
struct Releases<onebit_optimizer_info_t> {
    static constexpr onebit_optimizer_info_t kDefaults = ONEBIT_OPTIMIZER_INFO_INIT;
    static constexpr std::array kSizes = {ONEBIT_SIZE_THROUGH(onebit_optimizer_info_t, grad_norm),   // 0.1
                                          ONEBIT_SIZE_THROUGH(onebit_optimizer_info_t, step_tensor), // tests/abi/0.1
                                          ONEBIT_SIZE_THROUGH(onebit_optimizer_info_t, reason)};     // the coming one
};

/// What every public struct begins with.
struct StructHead {
    std::size_t size;
    std::uint32_t version;
};

/// INVALID_ARGUMENT unless a struct of this size and version is of some release, or could be of a coming one. `sizes`:
/// as in Releases.
Status check_struct(const char* name, StructHead head, std::uint32_t version, std::span<const std::size_t> sizes);

/// UNSUPPORTED if any byte behind the `known` ones is not zero: a setting that this library doesn't know.
Status check_rest(const char* name, const void* caller, std::size_t size, std::size_t known);

/// UNSUPPORTED unless a config's reserved member is 0.
Status check_reserved(const char* member, std::uint32_t reserved);

template <typename Struct>
Status check_struct(const char* name, StructHead head) {
    using R = Releases<Struct>;
    static_assert(R::kSizes.back() == sizeof(Struct), "the last member of the coming release is another one");
    static_assert(offsetof(Struct, size) == offsetof(StructHead, size), "see StructHead");
    static_assert(offsetof(Struct, version) == offsetof(StructHead, version), "see StructHead");
    return check_struct(name, head, R::kDefaults.version, R::kSizes);
}

inline StructHead head_of(const void* caller) {
    StructHead head;
    std::memcpy(&head, caller, offsetof(StructHead, version) + sizeof(head.version)); // maybe misaligned
    return head;
}

/// Copies a caller's struct; missing members have their defaults. INVALID_ARGUMENT or UNSUPPORTED with the struct's
/// name.
template <typename Struct>
Status read_struct(const char* name, const void* caller, Struct* read) {
    const StructHead head = head_of(caller);
    ONEBIT_RETURN_IF_ERROR(check_struct<Struct>(name, head));
    ONEBIT_RETURN_IF_ERROR(check_rest(name, caller, head.size, sizeof(Struct)));
    *read = Releases<Struct>::kDefaults;
    std::memcpy(static_cast<void*>(read), caller, std::min(head.size, sizeof(Struct)));
    read->size = sizeof(Struct);
    return {};
}

/// The same for an element of an array. All elements have the first one's size.
template <typename Struct>
Status read_element(const char* name, const Struct* array, std::size_t i, Struct* read) {
    const std::size_t stride = head_of(array).size;
    if (i == 0) return read_struct(name, array, read);
    const void* const element = reinterpret_cast<const char*>(array) + i * stride;
    if (head_of(element).size != stride) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "%s: size is %zu, but the array's first element has size %zu, as all must", name,
                             head_of(element).size, stride);
    }
    return read_struct(name, element, read);
}

/// Writes what fits into a caller's struct of `size` bytes, and zeros to what this library doesn't know.
template <typename Struct>
void write_struct(Struct written, std::size_t size, Struct* caller) {
    written.size = size;
    const std::size_t known = std::min(size, sizeof(Struct));
    std::memcpy(static_cast<void*>(caller), &written, known);
    std::memset(reinterpret_cast<char*>(caller) + known, 0, size - known);
}

} // namespace onebit
