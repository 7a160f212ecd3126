// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "core/structs.hpp"

namespace onebit {
namespace {

/// More than any struct will have. A size that was never set is likely to be larger.
constexpr std::size_t kMostBytes = 4096;

} // namespace

Status check_struct(const char* name, StructHead head, std::uint32_t version, std::span<const std::size_t> sizes) {
    const std::size_t now = sizes.back();
    const bool of_a_release = std::ranges::find(sizes, head.size) != sizes.end();
    if (!of_a_release && (head.size < now || head.size > kMostBytes)) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "%s: size is %zu, which no version of onebit has given it; in version %s it is %zu (use "
                             "the _INIT macro or the _init function)",
                             name, head.size, onebit_version(), now);
    }
    if (head.version != version) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "%s: version is %u, but must be %u (use the _INIT macro or the _init function)", name,
                             head.version, version);
    }
    return {};
}

Status check_reserved(const char* member, std::uint32_t reserved) {
    if (reserved == 0) return {};
    return Status::error(ONEBIT_ERROR_UNSUPPORTED, "%s: %u is not 0: it needs a later version", member, reserved);
}

Status check_rest(const char* name, const void* caller, std::size_t size, std::size_t known) {
    const auto* const bytes = static_cast<const unsigned char*>(caller);
    for (std::size_t i = known; i < size; ++i) {
        if (bytes[i] == 0) continue;
        return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                             "%s: byte %zu is set, which this library, onebit %s, doesn't know: its struct has %zu "
                             "bytes, the caller's %zu. What it stands for needs the version that the program was "
                             "compiled for, or a later one",
                             name, i, onebit_version(), known, size);
    }
    return {};
}

} // namespace onebit
