// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/operation/state.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "collectives/operation/saved_files.hpp"
#include "core/file.hpp"
#include "core/file_lock.hpp"
#include "core/hash.hpp"

namespace onebit {
namespace {

constexpr std::array<char, 8> kMagic = {'O', 'N', 'E', 'B', 'I', 'T', 'S', 'T'};
constexpr std::uint32_t kStateVersion = 2;
/// No handle has been called so often.
constexpr std::uint64_t kImpossibleCalls = std::uint64_t{1} << 48;

/// The head of a saved state; little-endian, no padding. Behind it, as floats: worker errors of lower levels, the
/// worker error, the server error.
struct Header {
    SaveHead head;
    std::uint32_t codec;
    std::uint32_t scale;
    std::uint32_t group;
    std::uint32_t op; ///< of the server error
    std::uint64_t count;
    std::uint64_t worker_begin; ///< the part of the worker error that this rank has: all, or its shard
    std::uint64_t worker_count; ///< 0 where nothing is ever compressed
    std::uint64_t server_begin;
    std::uint64_t server_count;
    std::uint64_t calls;     ///< that led to this state: the states of one moment have the same
    std::uint64_t mask_hash; ///< of the mask that was in force, 0 without one; of shards, shapes or levels
    std::uint64_t checksum;  ///< checksum_of
};
static_assert(sizeof(Header) == 112);

Header header_of(const Collective& collective) {
    const Plan& plan = collective.plan();
    const Chunk worker = collective.worker_part();
    const Chunk server = collective.server_chunk();
    return {{kMagic, kStateVersion, static_cast<std::uint32_t>(collective.channel().rank()),
             static_cast<std::uint32_t>(collective.channel().size()), 0, 0},
            static_cast<std::uint32_t>(plan.codec),
            static_cast<std::uint32_t>(plan.scale),
            static_cast<std::uint32_t>(plan.group),
            static_cast<std::uint32_t>(plan.op),
            plan.count,
            worker.begin,
            worker.count,
            server.begin,
            server.count,
            collective.calls(),
            collective.mask_hash(),
            0};
}

/// Covers the floats and the header before it: the hash of a header with the floats' hash in the checksum's place.
std::uint64_t checksum_of(Header header, const std::vector<float>& errors) {
    header.checksum = hash_bytes(errors.data(), errors.size() * sizeof(float));
    return hash_bytes(&header, sizeof(header));
}

Status differs(const char* what, std::uint64_t saved, std::uint64_t own) {
    return Status::error(ONEBIT_ERROR_BAD_STATE, "the saved state has %s %llu, this handle %llu", what,
                         static_cast<unsigned long long>(saved), static_cast<unsigned long long>(own));
}

Status compare(const Header& saved, const Header& own) {
    ONEBIT_RETURN_IF_ERROR(check_head(saved.head, own.head));
    if (saved.count != own.count) return differs("count", saved.count, own.count);
    if (saved.codec != own.codec) return differs("codec", saved.codec, own.codec);
    if (saved.scale != own.scale) return differs("scale", saved.scale, own.scale);
    if (saved.group != own.group) return differs("group", saved.group, own.group);
    if (saved.op != own.op) return differs("op", saved.op, own.op);
    if (saved.worker_begin != own.worker_begin) return differs("worker begin", saved.worker_begin, own.worker_begin);
    if (saved.worker_count != own.worker_count) return differs("worker count", saved.worker_count, own.worker_count);
    if (saved.mask_hash != own.mask_hash)
        return differs("mask, shards, shapes or levels (hash)", saved.mask_hash, own.mask_hash);
    if (saved.server_begin != own.server_begin) return differs("server begin", saved.server_begin, own.server_begin);
    if (saved.server_count != own.server_count) return differs("server count", saved.server_count, own.server_count);
    if (saved.calls >= kImpossibleCalls) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "impossible: %llu calls",
                             static_cast<unsigned long long>(saved.calls));
    }
    return {};
}

/// Makes sure that the bytes begin with the head of a state of this handle, and are as many as that state has.
Status read_header(const Collective& collective, const void* buffer, std::uint64_t bytes, Header* header) {
    if (bytes < sizeof(Header)) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "the saved state is truncated: %llu bytes, not even a header",
                             static_cast<unsigned long long>(bytes));
    }
    std::memcpy(header, buffer, sizeof(Header));
    ONEBIT_RETURN_IF_ERROR(compare(*header, header_of(collective)));
    if (bytes != state_size(collective)) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "the saved state is %s: %llu bytes where %zu are needed",
                             bytes < state_size(collective) ? "truncated" : "too long",
                             static_cast<unsigned long long>(bytes), state_size(collective));
    }
    return {};
}

/// Makes sure that the bytes are a whole and possible state of this handle, and copies its parts out.
Status parse(const Collective& collective, const void* buffer, std::size_t bytes, Header* header,
             std::vector<float>* errors) {
    ONEBIT_RETURN_IF_ERROR(read_header(collective, buffer, bytes, header));
    errors->resize((bytes - sizeof(Header)) / sizeof(float));
    if (!errors->empty()) {
        std::memcpy(errors->data(), static_cast<const std::byte*>(buffer) + sizeof(Header), bytes - sizeof(Header));
    }
    if (checksum_of(*header, *errors) != header->checksum) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "the saved state is corrupt: its checksum is wrong");
    }
    const auto bad = std::ranges::find_if(*errors, [](float error) { return !std::isfinite(error); });
    if (bad != errors->end()) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "impossible: error %td of %zu is %g", bad - errors->begin(),
                             errors->size(), double{*bad});
    }
    return {};
}

/// Writes as many bytes as the state has, at any alignment.
Status pack(const Collective& collective, const SaveMark& mark, void* buffer) {
    std::vector<float> errors((state_size(collective) - sizeof(Header)) / sizeof(float));
    if (!errors.empty()) collective.get_state(errors.data());
    Header header = header_of(collective);
    header.head.save = mark.save;
    header.head.sequence = mark.sequence;
    header.checksum = checksum_of(header, errors);
    std::memcpy(buffer, &header, sizeof(header));
    if (!errors.empty()) {
        std::memcpy(static_cast<std::byte*>(buffer) + sizeof(header), errors.data(), errors.size() * sizeof(float));
    }
    return {};
}

/// The second half of loading, once each rank knows what it has. Collective.
Status agree_and_set(Collective& collective, const Status& own, const Header& header,
                     const std::vector<float>& errors) {
    ONEBIT_RETURN_IF_ERROR(collective.agree_now(
        own, static_cast<std::uint32_t>(header.head.save ^ (header.head.save >> 32)), header.calls,
        {"which save the state is of (a hash)", "when the state was saved (number of calls before)"}));
    return collective.set_state(errors.data(), header.calls);
}

/// One place where this rank's file may be.
struct Candidate {
    InputFile file;
    Status flaw; ///< why the file is none
    Header header{};

    SaveMark mark() const { return flaw.ok() ? SaveMark{header.head.save, header.head.sequence} : SaveMark{}; }
};

/// Adds the name of the file that has the flaw.
Status with_name(const std::string& name, const Status& flaw) {
    if (flaw.ok() || flaw.code() == ONEBIT_ERROR_IO) return flaw; // whose message has the name already
    return Status::error(flaw.code(), "%s: %s", shown(name).c_str(), flaw.message().c_str());
}

/// Reads only the head, and keeps a file open that fits.
Status look(const Collective& collective, const std::string& name, Candidate* candidate) {
    ONEBIT_RETURN_IF_ERROR(candidate->file.open(name));
    std::vector<std::byte> bytes;
    ONEBIT_RETURN_IF_ERROR(candidate->file.read(sizeof(Header), &bytes));
    bytes.resize(sizeof(Header)); // if the file is shorter, its size says so
    ONEBIT_RETURN_IF_ERROR(read_header(collective, bytes.data(), candidate->file.size(), &candidate->header));
    if (candidate->header.head.save == 0) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "the state is of no save: load it with unpack_state");
    }
    return {};
}

/// Reads all of the chosen file.
Status read_all(const Collective& collective, const Candidate& chosen, Header* header, std::vector<float>* errors) {
    std::vector<std::byte> bytes;
    ONEBIT_RETURN_IF_ERROR(chosen.file.read(state_size(collective), &bytes));
    return with_name(chosen.file.name(), parse(collective, bytes.data(), bytes.size(), header, errors));
}

} // namespace

std::size_t state_size(const Collective& collective) {
    return sizeof(Header) + collective.errors() * sizeof(float);
}

Status pack_state(Collective& collective, void* buffer, std::size_t bytes) {
    ONEBIT_RETURN_IF_ERROR(collective.check_idle());
    if (buffer == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "buffer is NULL");
    if (bytes < state_size(collective)) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "bytes: %zu, but the state has %zu", bytes,
                             state_size(collective));
    }
    return pack(collective, {}, buffer);
}

Status unpack_state(Collective& collective, const void* buffer, std::size_t bytes) {
    ONEBIT_RETURN_IF_ERROR(collective.check_idle());
    Header header{};
    std::vector<float> errors;
    const Status own = catch_exceptions([&] {
        if (buffer == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "buffer is NULL");
        return parse(collective, buffer, bytes, &header, &errors);
    });
    return agree_and_set(collective, own, header, errors);
}

Status load_state(Collective& collective, const char* prefix) {
    ONEBIT_RETURN_IF_ERROR(collective.check_idle());
    const int rank = collective.channel().rank();
    const int ranks = collective.channel().size();
    std::array<Candidate, kPlaces> candidates;
    Places places;
    Status own = catch_exceptions([&] {
        ONEBIT_RETURN_IF_ERROR(check_prefix(prefix));
        if (rank == 0) ONEBIT_RETURN_IF_ERROR(FileLock::check_free(lock_name(prefix)));
        for (std::size_t p = 0; p < kPlaces; ++p) {
            const std::string name = saved_file_name(prefix, rank, ranks, p);
            candidates[p].flaw = with_name(name, look(collective, name, &candidates[p]));
            places[p] = candidates[p].mark();
        }
        return candidates[1].flaw.ok() ? Status() : candidates[0].flaw;
    });
    std::vector<Places> all;
    ONEBIT_RETURN_IF_ERROR(gather_places(collective, own, places, &all));
    const std::optional<SaveMark> save = newest_complete(all);
    if (!save) {
        ONEBIT_RETURN_IF_ERROR(collective.agree_now(
            catch_exceptions([&] { return of_two_saves(prefix, all, static_cast<std::size_t>(rank)); })));
        return Status::error(ONEBIT_ERROR_BAD_STATE, "%s: no save of which every rank has its file", prefix);
    }

    Header header{};
    std::vector<float> errors;
    own = catch_exceptions([&] { return read_all(collective, candidates[place_of(*save, places)], &header, &errors); });
    ONEBIT_RETURN_IF_ERROR(agree_and_set(collective, own, header, errors));
    return tell_of_recovery(collective, prefix, *save, all);
}

Status save_state(Collective& collective, const char* prefix) {
    return save_file(collective, prefix, [&](const SaveMark& mark, std::vector<std::byte>* bytes) {
        bytes->resize(state_size(collective));
        return pack(collective, mark, bytes->data());
    });
}

} // namespace onebit
