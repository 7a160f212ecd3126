// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/state.hpp"

#include <array>
#include <cstdio>
#include <cstring>
#include <vector>

#include "core/file.hpp"
#include "core/hash.hpp"

namespace onebit {
namespace {

constexpr std::array<char, 8> kMagic = {'O', 'N', 'E', 'B', 'I', 'T', 'S', 'T'};
constexpr std::uint32_t kStateVersion = 1;

/// The head of a saved state; little-endian, no padding. Behind it: the worker error, then the server error, as floats.
struct Header {
    std::array<char, 8> magic;
    std::uint32_t version;
    std::uint32_t codec;
    std::uint32_t scale;
    std::uint32_t group;
    std::uint32_t rank;
    std::uint32_t ranks;
    std::uint64_t count;
    std::uint64_t worker_count; ///< count, or 0 where nothing is ever compressed
    std::uint64_t server_begin;
    std::uint64_t server_count;
    std::uint64_t payload_hash;
};
static_assert(sizeof(Header) == 72);

/// A handle that is dense for good has no error, and saves none.
std::size_t worker_count(const Allreduce& allreduce) {
    return allreduce.flat() == nullptr ? 0 : allreduce.plan().count;
}

Header header_of(const Allreduce& allreduce) {
    const Plan& plan = allreduce.plan();
    const Chunk chunk = allreduce.server_chunk();
    return {kMagic,
            kStateVersion,
            static_cast<std::uint32_t>(plan.codec),
            static_cast<std::uint32_t>(plan.scale),
            static_cast<std::uint32_t>(plan.group),
            static_cast<std::uint32_t>(allreduce.channel().rank()),
            static_cast<std::uint32_t>(allreduce.channel().size()),
            plan.count,
            worker_count(allreduce),
            chunk.begin,
            chunk.count,
            0};
}

Status differs(const char* what, std::uint64_t saved, std::uint64_t own) {
    return Status::error(ONEBIT_ERROR_BAD_STATE, "the saved state has %s %llu, this handle %llu", what,
                         static_cast<unsigned long long>(saved), static_cast<unsigned long long>(own));
}

Status compare(const Header& saved, const Header& own) {
    if (saved.magic != own.magic) return Status::error(ONEBIT_ERROR_BAD_STATE, "not a saved state of onebit");
    if (saved.version != own.version) return differs("format version", saved.version, own.version);
    if (saved.count != own.count) return differs("count", saved.count, own.count);
    if (saved.ranks != own.ranks) return differs("number of ranks", saved.ranks, own.ranks);
    if (saved.rank != own.rank) return differs("rank", saved.rank, own.rank);
    if (saved.codec != own.codec) return differs("codec", saved.codec, own.codec);
    if (saved.scale != own.scale) return differs("scale", saved.scale, own.scale);
    if (saved.group != own.group) return differs("group", saved.group, own.group);
    if (saved.worker_count != own.worker_count) return differs("worker count", saved.worker_count, own.worker_count);
    if (saved.server_begin != own.server_begin) return differs("server begin", saved.server_begin, own.server_begin);
    if (saved.server_count != own.server_count) return differs("server count", saved.server_count, own.server_count);
    return {};
}

/// What this rank can say about the bytes alone.
Status check_bytes(const Allreduce& allreduce, const void* buffer, std::size_t bytes) {
    Header header{};
    if (bytes < sizeof(header)) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "the saved state is truncated: %zu bytes, not even a header",
                             bytes);
    }
    std::memcpy(&header, buffer, sizeof(header));
    ONEBIT_RETURN_IF_ERROR(compare(header, header_of(allreduce)));
    if (bytes != state_size(allreduce)) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "the saved state is %s: %zu bytes where %zu are needed",
                             bytes < state_size(allreduce) ? "truncated" : "too long", bytes, state_size(allreduce));
    }
    const auto* payload = static_cast<const std::byte*>(buffer) + sizeof(header);
    if (hash_bytes(payload, bytes - sizeof(header)) != header.payload_hash) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "the saved state is corrupt: its checksum is wrong");
    }
    return {};
}

std::string file_name(const Allreduce& allreduce, const char* prefix) {
    char suffix[48];
    std::snprintf(suffix, sizeof(suffix), ".%d-of-%d.onebit", allreduce.channel().rank(), allreduce.channel().size());
    return std::string(prefix) + suffix;
}

Status check_prefix(const char* prefix) {
    if (prefix == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "prefix is NULL");
    if (*prefix == '\0') return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "prefix is empty");
    return {};
}

} // namespace

std::size_t state_size(const Allreduce& allreduce) {
    return sizeof(Header) + (worker_count(allreduce) + allreduce.server_chunk().count) * sizeof(float);
}

Status pack_state(const Allreduce& allreduce, void* buffer, std::size_t bytes) {
    ONEBIT_RETURN_IF_ERROR(allreduce.check_idle());
    if (buffer == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "buffer is NULL");
    if (bytes < state_size(allreduce)) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "bytes: %zu, but the state has %zu", bytes,
                             state_size(allreduce));
    }
    std::vector<float> errors((state_size(allreduce) - sizeof(Header)) /
                              sizeof(float)); // `buffer` may have any alignment
    if (!errors.empty()) {
        ONEBIT_RETURN_IF_ERROR(allreduce.get_error(errors.data(), errors.data() + worker_count(allreduce)));
    }

    Header header = header_of(allreduce);
    header.payload_hash = hash_bytes(errors.data(), errors.size() * sizeof(float));
    std::memcpy(buffer, &header, sizeof(header));
    std::memcpy(static_cast<std::byte*>(buffer) + sizeof(header), errors.data(), errors.size() * sizeof(float));
    return {};
}

Status unpack_state(Allreduce& allreduce, const void* buffer, std::size_t bytes) {
    ONEBIT_RETURN_IF_ERROR(allreduce.check_idle());
    std::vector<float> errors;
    const Status own = catch_exceptions([&] {
        if (buffer == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "buffer is NULL");
        ONEBIT_RETURN_IF_ERROR(check_bytes(allreduce, buffer, bytes));
        errors.resize((bytes - sizeof(Header)) / sizeof(float));
        std::memcpy(errors.data(), static_cast<const std::byte*>(buffer) + sizeof(Header),
                    errors.size() * sizeof(float));
        return Status();
    });
    ONEBIT_RETURN_IF_ERROR(allreduce.agree_now(own));
    if (errors.empty()) return {};
    allreduce.flat()->worker().set_error(errors.data());
    allreduce.flat()->server().set_error(errors.data() + worker_count(allreduce));
    return {};
}

Status save_state(Allreduce& allreduce, const char* prefix) {
    ONEBIT_RETURN_IF_ERROR(allreduce.check_idle());
    std::string name;
    std::string temporary;
    const Status written = catch_exceptions([&] {
        ONEBIT_RETURN_IF_ERROR(check_prefix(prefix));
        name = file_name(allreduce, prefix);
        temporary = name + ".tmp";
        std::vector<std::byte> bytes(state_size(allreduce));
        ONEBIT_RETURN_IF_ERROR(pack_state(allreduce, bytes.data(), bytes.size()));
        return write_file(temporary, bytes);
    });
    const Status all_written = allreduce.agree_now(written);
    if (!all_written.ok()) {
        if (!temporary.empty()) std::remove(temporary.c_str());
        return all_written;
    }
    return allreduce.agree_now(replace_file(temporary, name));
}

Status load_state(Allreduce& allreduce, const char* prefix) {
    ONEBIT_RETURN_IF_ERROR(allreduce.check_idle());
    std::vector<std::byte> bytes;
    const Status own = catch_exceptions([&] {
        ONEBIT_RETURN_IF_ERROR(check_prefix(prefix));
        const std::string name = file_name(allreduce, prefix);
        ONEBIT_RETURN_IF_ERROR(read_file(name, &bytes));
        const Status whole = check_bytes(allreduce, bytes.data(), bytes.size());
        return whole.ok() ? whole : Status::error(whole.code(), "%s: %s", name.c_str(), whole.message().c_str());
    });
    ONEBIT_RETURN_IF_ERROR(allreduce.agree_now(own));
    return unpack_state(allreduce, bytes.data(), bytes.size());
}

} // namespace onebit
