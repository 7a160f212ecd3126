// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/state.hpp"

#include <array>
#include <cstring>
#include <memory>
#include <string>
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
    std::uint64_t worker_begin; ///< the part of the worker error that this rank has: all, or its shard
    std::uint64_t worker_count; ///< 0 where nothing is ever compressed
    std::uint64_t server_begin;
    std::uint64_t server_count;
    std::uint64_t calls;     ///< that led to this state: the files of one save have the same
    std::uint64_t mask_hash; ///< of the mask that was in force; 0 without one
    std::uint64_t checksum;  ///< checksum_of
};
static_assert(sizeof(Header) == 96);

Header header_of(const Allreduce& allreduce) {
    const Plan& plan = allreduce.plan();
    const Chunk worker = allreduce.worker_part();
    const Chunk server = allreduce.server_chunk();
    return {kMagic,
            kStateVersion,
            static_cast<std::uint32_t>(plan.codec),
            static_cast<std::uint32_t>(plan.scale),
            static_cast<std::uint32_t>(plan.group),
            static_cast<std::uint32_t>(allreduce.channel().rank()),
            static_cast<std::uint32_t>(allreduce.channel().size()),
            plan.count,
            worker.begin,
            worker.count,
            server.begin,
            server.count,
            allreduce.calls(),
            allreduce.mask_hash(),
            0};
}

/// Over the floats and the header before it: the hash of a header that has the floats' hash in the checksum's place.
std::uint64_t checksum_of(Header header, const std::vector<float>& errors) {
    header.checksum = hash_bytes(errors.data(), errors.size() * sizeof(float));
    return hash_bytes(&header, sizeof(header));
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
    if (saved.worker_begin != own.worker_begin) return differs("worker begin", saved.worker_begin, own.worker_begin);
    if (saved.worker_count != own.worker_count) return differs("worker count", saved.worker_count, own.worker_count);
    if (saved.mask_hash != own.mask_hash) return differs("mask (hash)", saved.mask_hash, own.mask_hash);
    if (saved.server_begin != own.server_begin) return differs("server begin", saved.server_begin, own.server_begin);
    if (saved.server_count != own.server_count) return differs("server count", saved.server_count, own.server_count);
    return {};
}

/// Makes sure that the bytes are a whole state of this handle, and copies its parts out.
Status parse(const Allreduce& allreduce, const void* buffer, std::size_t bytes, Header* header,
             std::vector<float>* errors) {
    if (bytes < sizeof(Header)) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "the saved state is truncated: %zu bytes, not even a header",
                             bytes);
    }
    std::memcpy(header, buffer, sizeof(Header));
    ONEBIT_RETURN_IF_ERROR(compare(*header, header_of(allreduce)));
    if (bytes != state_size(allreduce)) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "the saved state is %s: %zu bytes where %zu are needed",
                             bytes < state_size(allreduce) ? "truncated" : "too long", bytes, state_size(allreduce));
    }
    errors->resize((bytes - sizeof(Header)) / sizeof(float));
    std::memcpy(errors->data(), static_cast<const std::byte*>(buffer) + sizeof(Header), bytes - sizeof(Header));
    if (checksum_of(*header, *errors) != header->checksum) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "the saved state is corrupt: its checksum is wrong");
    }
    return {};
}

/// The second half of loading, once each rank knows what it has. Collective.
Status agree_and_set(Allreduce& allreduce, const Status& own, const Header& header, const std::vector<float>& errors) {
    ONEBIT_RETURN_IF_ERROR(
        allreduce.agree_now(own, 0, header.calls, {"", "when the state was saved (number of calls before)"}));
    if (errors.empty()) return {};
    return allreduce.set_state(errors.data(), errors.data() + allreduce.worker_part().count, header.calls);
}

} // namespace

std::size_t state_size(const Allreduce& allreduce) {
    return sizeof(Header) + (allreduce.worker_part().count + allreduce.server_chunk().count) * sizeof(float);
}

Status pack_state(Allreduce& allreduce, void* buffer, std::size_t bytes) {
    ONEBIT_RETURN_IF_ERROR(allreduce.check_idle());
    if (buffer == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "buffer is NULL");
    if (bytes < state_size(allreduce)) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "bytes: %zu, but the state has %zu", bytes,
                             state_size(allreduce));
    }
    std::vector<float> errors((state_size(allreduce) - sizeof(Header)) / sizeof(float)); // `buffer` may be misaligned
    if (!errors.empty()) {
        allreduce.get_state(errors.data(), errors.data() + allreduce.worker_part().count);
    }
    Header header = header_of(allreduce);
    header.checksum = checksum_of(header, errors);
    std::memcpy(buffer, &header, sizeof(header));
    std::memcpy(static_cast<std::byte*>(buffer) + sizeof(header), errors.data(), errors.size() * sizeof(float));
    return {};
}

Status unpack_state(Allreduce& allreduce, const void* buffer, std::size_t bytes) {
    ONEBIT_RETURN_IF_ERROR(allreduce.check_idle());
    Header header{};
    std::vector<float> errors;
    const Status own = catch_exceptions([&] {
        if (buffer == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "buffer is NULL");
        return parse(allreduce, buffer, bytes, &header, &errors);
    });
    return agree_and_set(allreduce, own, header, errors);
}

Status load_state(Allreduce& allreduce, const char* prefix) {
    ONEBIT_RETURN_IF_ERROR(allreduce.check_idle());
    Header header{};
    std::vector<float> errors;
    const Status own = catch_exceptions([&] {
        ONEBIT_RETURN_IF_ERROR(check_prefix(prefix));
        const std::string name = saved_file_name(prefix, allreduce.channel().rank(), allreduce.channel().size());
        std::vector<std::byte> bytes;
        ONEBIT_RETURN_IF_ERROR(read_file(name, state_size(allreduce) + 1, &bytes)); // + 1: enough to see it is too long
        const Status whole = parse(allreduce, bytes.data(), bytes.size(), &header, &errors);
        return whole.ok() ? whole : Status::error(whole.code(), "%s: %s", name.c_str(), whole.message().c_str());
    });
    return agree_and_set(allreduce, own, header, errors);
}

Status save_state(Allreduce& allreduce, const char* prefix) {
    return save_file(allreduce, prefix, [&](std::vector<std::byte>* bytes) {
        bytes->resize(state_size(allreduce));
        return pack_state(allreduce, bytes->data(), bytes->size());
    });
}

// ------------------------------------------------------------------------------------- any saved state's files ----

Status check_prefix(const char* prefix) {
    if (prefix == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "prefix is NULL");
    if (*prefix == '\0') return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "prefix is empty");
    return {};
}

std::string saved_file_name(const std::string& prefix, int rank, int ranks) {
    return prefix + "." + std::to_string(rank) + "-of-" + std::to_string(ranks) + ".onebit";
}

Status save_file(Allreduce& allreduce, const char* prefix, const std::function<Status(std::vector<std::byte>*)>& pack) {
    ONEBIT_RETURN_IF_ERROR(allreduce.check_idle());
    std::unique_ptr<ReplacedFile> file;
    const Status written = catch_exceptions([&] {
        ONEBIT_RETURN_IF_ERROR(check_prefix(prefix));
        std::vector<std::byte> bytes;
        ONEBIT_RETURN_IF_ERROR(pack(&bytes));
        file = std::make_unique<ReplacedFile>(
            saved_file_name(prefix, allreduce.channel().rank(), allreduce.channel().size()));
        return file->write(bytes);
    });
    Status saved = allreduce.agree_now(written);
    if (saved.ok()) saved = allreduce.agree_now(file->replace()); // if any rank could not, every rank goes back
    if (saved.ok()) file->keep();
    file.reset(); // undoes what was not kept
    ONEBIT_RETURN_IF_ERROR(allreduce.check_idle());
    const Status settled = allreduce.agree_now(Status()); // no rank returns before all files are as they will stay
    return saved.ok() ? settled : saved;
}

} // namespace onebit
