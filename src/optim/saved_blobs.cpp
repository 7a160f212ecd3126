// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/saved_blobs.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "core/hash.hpp"

namespace onebit {
namespace {

/// Bytes in memory. Where they are only a head that another rank has told, `size` is still that of the whole blob.
class BytesInMemory final : public SavedBytes {
  public:
    BytesInMemory(std::string name, std::span<const std::byte> bytes, std::uint64_t size)
        : name_(std::move(name)), bytes_(bytes), size_(size) {}
    const std::string& name() const override { return name_; }
    std::uint64_t size() const override { return size_; }
    Status read(std::size_t most, std::vector<std::byte>*, std::span<const std::byte>* bytes) const override {
        *bytes = bytes_.first(std::min(most, bytes_.size()));
        return {};
    }

  private:
    std::string name_;
    std::span<const std::byte> bytes_;
    std::uint64_t size_;
};

/// Reads the first of the numbers, whose checksum has been checked.
Status read_steps(const SavedPart& part, std::uint64_t* steps) {
    std::vector<std::byte> room;
    std::span<const std::byte> bytes;
    ONEBIT_RETURN_IF_ERROR(part.bytes->read(sizeof(SavedHeader) + sizeof(*steps), &room, &bytes));
    std::memcpy(steps, bytes.data() + sizeof(SavedHeader), sizeof(*steps));
    return {};
}

SaveMark mark_of(const SavedPart& part) {
    return {part.header.head.save, part.header.head.sequence};
}

} // namespace

Status SavedBlobs::open(const void* const* blobs, const std::uint64_t* bytes, std::size_t num_blobs,
                        const ExpectedFile& expected) {
    rank_ = expected.rank;
    if (num_blobs == 0) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "num_blobs is 0");
    if (blobs == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "blobs is NULL");
    if (bytes == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "bytes is NULL");
    for (std::size_t i = 0; i < num_blobs; ++i) {
        if (blobs[i] == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "blobs[%zu] is NULL", i);
        SavedPart part;
        const std::span<const std::byte> blob(static_cast<const std::byte*>(blobs[i]), bytes[i]);
        part.bytes = std::make_unique<BytesInMemory>("blobs[" + std::to_string(i) + "]", blob, blob.size());
        ONEBIT_RETURN_IF_ERROR(open_saved(expected, &part));
        ONEBIT_RETURN_IF_ERROR(check_checksums(part));
        ONEBIT_RETURN_IF_ERROR(add(std::move(part)));
    }
    same_seats_ = saved_ranks_ == expected.ranks && std::ranges::all_of(parts_, [&](const auto& part) {
                      return part.second.seat == expected.seats[static_cast<std::size_t>(part.first)];
                  });
    return check_complete(expected.ranks);
}

std::uint64_t SavedBlobs::identity_hash() const {
    if (parts_.empty()) return 0;
    const SavedHeader& header = parts_.begin()->second.header;
    const Identity& its = header.identity;
    const std::uint64_t all[] = {mark_.save, mark_.sequence, its.kind,       static_cast<std::uint64_t>(its.stage),
                                 its.count,  its.shape,      header.numbers, same_seats_ ? 1U : 0U};
    return hash_bytes(all, sizeof(all));
}

Status SavedBlobs::add(SavedPart part) {
    if (parts_.empty()) {
        saved_ranks_ = static_cast<int>(part.header.head.ranks);
        mark_ = mark_of(part);
        ONEBIT_RETURN_IF_ERROR(read_steps(part, &steps_));
    }
    ONEBIT_RETURN_IF_ERROR(compare(part));
    const auto rank = static_cast<int>(part.header.head.rank);
    const auto found = parts_.find(rank);
    if (found != parts_.end()) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s and %s are both of rank %d",
                             found->second.bytes->name().c_str(), part.bytes->name().c_str(), rank);
    }
    parts_.emplace(rank, std::move(part));
    return {};
}

/// Compares with the first blob.
Status SavedBlobs::compare(const SavedPart& part) const {
    const char* const name = part.bytes->name().c_str();
    const auto ranks = static_cast<int>(part.header.head.ranks);
    if (ranks != saved_ranks_) {
        return Status::error(ONEBIT_ERROR_MISMATCH, "%s is of a state of %d ranks, blobs[0] of one of %d", name, ranks,
                             saved_ranks_);
    }
    if (mark_of(part) == mark_) return {};
    std::uint64_t steps = 0;
    ONEBIT_RETURN_IF_ERROR(read_steps(part, &steps));
    if (steps == steps_) {
        return Status::error(ONEBIT_ERROR_MISMATCH, "%s and blobs[0] are of two states, both after %llu steps", name,
                             static_cast<unsigned long long>(steps));
    }
    return Status::error(ONEBIT_ERROR_MISMATCH, "%s was packed after %llu steps, blobs[0] after %llu", name,
                         static_cast<unsigned long long>(steps), static_cast<unsigned long long>(steps_));
}

Status SavedBlobs::check_complete(int ranks) const {
    if (same_seats_) {
        if (parts_.contains(rank_)) return {};
        return Status::error(ONEBIT_ERROR_BAD_STATE, "no blob of rank %d of %d, but of rank %d", rank_, ranks,
                             parts_.begin()->first);
    }
    for (int r = 0; r < saved_ranks_; ++r) {
        if (parts_.contains(r)) continue;
        return Status::error(
            ONEBIT_ERROR_BAD_STATE, "no blob of rank %d: a state of %d ranks%s needs all blobs on each of %d ranks", r,
            saved_ranks_, saved_ranks_ == ranks ? ", which exchanged otherwise or on other nodes," : "", ranks);
    }
    return {};
}

std::vector<std::size_t> SavedBlobs::head_sizes(const ExpectedFile& expected) const {
    const SavedHeader& own = parts_.at(rank_).header;
    std::vector<std::size_t> sizes;
    for (std::uint32_t r = 0; r < own.head.ranks; ++r) {
        sizes.push_back(
            SavedSizes(own.numbers, expected.rows(own.identity.stage, r, own.head.ranks, expected.seats[r])).head);
    }
    return sizes;
}

Status SavedBlobs::copy_own_head(std::span<std::byte> head) const {
    std::vector<std::byte> room;
    std::span<const std::byte> bytes;
    ONEBIT_RETURN_IF_ERROR(parts_.at(rank_).bytes->read(head.size(), &room, &bytes));
    std::memcpy(head.data(), bytes.data(), bytes.size());
    return {};
}

Status SavedBlobs::assemble(const ExpectedFile& expected, const HeadOf& head_of, LoadedOptimizer* loaded) const {
    loaded->saved_ranks = saved_ranks_;
    loaded->mark = mark_;
    Assembly assembly(expected, same_seats_);
    for (int r = 0; r < saved_ranks_; ++r) {
        if (!needs_heads() || r == rank_) {
            ONEBIT_RETURN_IF_ERROR(assembly.add(parts_.at(r), true, loaded));
            continue;
        }
        const std::span<const std::byte> head = head_of(static_cast<std::size_t>(r));
        SavedHeader header{};
        std::memcpy(&header, head.data(), sizeof(header));
        SavedPart part;
        part.bytes = std::make_unique<BytesInMemory>("the state of rank " + std::to_string(r), head, header.all_bytes);
        ONEBIT_RETURN_IF_ERROR(
            open_saved(static_cast<std::uint32_t>(r), static_cast<std::uint32_t>(saved_ranks_), expected, &part));
        ONEBIT_RETURN_IF_ERROR(assembly.add(part, false, loaded));
    }
    assembly.finish(loaded);
    return {};
}

} // namespace onebit
