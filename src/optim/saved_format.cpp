// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/saved_format.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/copy_bytes.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"
#include "numeric/mean.hpp"
#include "optim/settings.hpp"

namespace onebit {
namespace {

constexpr std::array<char, 8> kMagic = {'O', 'N', 'E', 'B', 'I', 'T', 'O', 'P'};
constexpr std::uint32_t kVersion = 2;
/// More than any training has.
constexpr std::uint32_t kMostRanks = 1U << 20;

std::uint64_t head_checksum(SavedHeader header, std::span<const std::byte> behind_it) {
    header.head_checksum = hash_bytes(behind_it.data(), behind_it.size());
    return hash_bytes(&header, sizeof(header));
}

SaveHead wanted_head(std::uint32_t rank, std::uint32_t ranks) {
    return {kMagic, kVersion, rank, ranks, 0, 0};
}

/// Whether a save with this header may be loaded into the optimizer; called before memory of its size is allocated.
Status check_header(const SavedHeader& header, const ExpectedFile& expected) {
    const auto differs = [](const char* what, std::uint64_t saved, std::uint64_t own) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "the saved optimizer has %s %llu, this one %llu", what,
                             static_cast<unsigned long long>(saved), static_cast<unsigned long long>(own));
    };
    const Identity& its = header.identity;
    const Identity& own = expected.identity;
    if (its.kind != own.kind) return differs("kind", its.kind, own.kind);
    if (its.count != own.count) return differs("elements", its.count, own.count);
    if (its.shape != own.shape) {
        return Status::error(ONEBIT_ERROR_BAD_STATE,
                             "the saved optimizer has tensors of other counts, in other groups or in other buckets");
    }
    if (is_frozen(its.stage) && its.stage != expected.frozen_as) {
        return Status::error(ONEBIT_ERROR_BAD_STATE,
                             "the saved optimizer is frozen and compresses %s: config.compressed must say so, too",
                             its.stage == SavedStage::kMomenta ? "momenta" : "updates");
    }
    if (header.numbers < expected.least_numbers || header.numbers > expected.most_numbers) {
        return differs("another set of numbers:", header.numbers, expected.least_numbers);
    }
    const bool freezes = onebit::freezes(static_cast<onebit_optimizer_kind_t>(its.kind));
    if (its.stage > (freezes ? SavedStage::kUpdates : SavedStage::kGradients) || header.head.save == 0) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "impossible: stage %u, save %llu",
                             static_cast<unsigned>(its.stage), static_cast<unsigned long long>(header.head.save));
    }
    return {};
}

Status read_header(SavedPart* part) {
    std::vector<std::byte> room;
    std::span<const std::byte> bytes;
    ONEBIT_RETURN_IF_ERROR(part->bytes->read(sizeof(SavedHeader), &room, &bytes));
    if (bytes.size() < sizeof(SavedHeader)) return bad_saved(part->bytes->name(), "truncated: not even a header");
    std::memcpy(&part->header, bytes.data(), sizeof(SavedHeader));
    return {};
}

/// Called once the header is read.
Status check_part(std::uint32_t rank, std::uint32_t ranks, const ExpectedFile& expected, SavedPart* part) {
    const SavedHeader& header = part->header;
    const std::string& name = part->bytes->name();
    Status fits = check_head(header.head, wanted_head(rank, ranks));
    if (fits.ok()) fits = check_header(header, expected);
    if (fits.ok() && !Seat::from_word(header.seat, ranks, &part->seat)) {
        fits = Status::error(ONEBIT_ERROR_BAD_STATE, "impossible: seat %u of %u ranks", header.seat, ranks);
    }
    if (!fits.ok()) return bad_saved(name, fits.message().c_str());
    part->rows = expected.rows(header.identity.stage, rank, ranks, part->seat);
    const SavedSizes sizes(header.numbers, part->rows);
    const std::uint64_t size = part->bytes->size();
    if (size != sizes.all) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "%s: %s: %llu bytes where %llu are needed", shown(name).c_str(),
                             size < sizes.all ? "truncated" : "too long", static_cast<unsigned long long>(size),
                             static_cast<unsigned long long>(sizes.all));
    }
    if (header.head_bytes != sizes.head || header.all_bytes != sizes.all || header.arrays != part->rows.size()) {
        return bad_saved(name, "impossible: its header contradicts its length");
    }
    return {};
}

/// Reads all bytes, or those of the head, if their checksums are right.
Status read_checked(const SavedPart& part, bool own_arrays, std::vector<std::byte>* room,
                    std::span<const std::byte>* all) {
    const SavedHeader& header = part.header;
    const std::string& name = part.bytes->name();
    const std::size_t wanted = own_arrays ? header.all_bytes : header.head_bytes;
    ONEBIT_RETURN_IF_ERROR(part.bytes->read(wanted, room, all));
    if (all->size() != wanted) return bad_saved(name, "truncated");
    const auto head = all->subspan(sizeof(SavedHeader), header.head_bytes - sizeof(SavedHeader));
    const auto tail = all->subspan(header.head_bytes);
    if (head_checksum(header, head) != header.head_checksum ||
        (own_arrays && hash_bytes(tail.data(), tail.size()) != header.tail_checksum)) {
        return bad_saved(name, "corrupt: its checksum is wrong");
    }
    return {};
}

/// One of `of` owners, counted from 0.
struct Owner {
    std::uint32_t number;
    std::uint32_t of;
};

/// Old owners of an error are equal parts of a line, and so are new owners: the share of the new part that the old part
/// covers. In units of 1 / (now.of * old.of), so that no rounding gives a neighbour a share.
double spread(const Owner& old, const Owner& now) {
    const std::uint64_t begin = std::max(std::uint64_t{now.number} * old.of, std::uint64_t{old.number} * now.of);
    const std::uint64_t end =
        std::min((std::uint64_t{now.number} + 1) * old.of, (std::uint64_t{old.number} + 1) * now.of);
    return end > begin ? static_cast<double>(end - begin) / old.of : 0;
}

/// The owner among the ranks with an error of the same shard.
Owner among_nodes(const Seat& seat, std::uint32_t ranks) {
    return {seat.node, ranks / seat.places};
}

} // namespace

SavedSizes::SavedSizes(std::uint64_t numbers, const std::vector<ArrayRow>& rows) {
    head += numbers * sizeof(std::uint64_t) + rows.size() * sizeof(ArrayRow);
    all = head;
    for (const ArrayRow& row : rows) {
        all += row.count * sizeof(float);
        if (row.ownership == Ownership::kPieces) head = all; // these come first
    }
}

Status bad_saved(const std::string& name, const char* what) {
    return Status::error(ONEBIT_ERROR_BAD_STATE, "%s: %s", shown(name).c_str(), what);
}

Status open_saved(std::uint32_t rank, std::uint32_t ranks, const ExpectedFile& expected, SavedPart* part) {
    ONEBIT_RETURN_IF_ERROR(read_header(part));
    return check_part(rank, ranks, expected, part);
}

Status open_saved(const ExpectedFile& expected, SavedPart* part) {
    ONEBIT_RETURN_IF_ERROR(read_header(part));
    const SaveHead& head = part->header.head;
    if (head.magic == kMagic && (head.rank >= head.ranks || head.ranks > kMostRanks)) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "%s: impossible: of rank %u of %u",
                             shown(part->bytes->name()).c_str(), head.rank, head.ranks);
    }
    return check_part(head.rank, head.ranks, expected, part);
}

Status check_checksums(const SavedPart& part) {
    std::vector<std::byte> room;
    std::span<const std::byte> all;
    return read_checked(part, true, &room, &all);
}

Status read_saved(const SavedPart& part, bool own_arrays, SavedOptimizer* saved) {
    const SavedHeader& header = part.header;
    const std::string& name = part.bytes->name();
    std::vector<std::byte> room;
    std::span<const std::byte> all;
    ONEBIT_RETURN_IF_ERROR(read_checked(part, own_arrays, &room, &all));
    const std::byte* from = all.data() + sizeof(SavedHeader); // as long as it must be: check_part
    const auto take = [&from](void* to, std::size_t size) {
        copy_bytes(to, from, size);
        from += size;
    };
    saved->numbers.resize(header.numbers);
    take(saved->numbers.data(), header.numbers * sizeof(std::uint64_t));
    std::vector<ArrayRow> rows(part.rows.size());
    take(rows.data(), rows.size() * sizeof(ArrayRow));
    if (rows != part.rows) return bad_saved(name, "impossible: it has other arrays");
    for (const ArrayRow& row : rows) {
        if (row.ownership != Ownership::kPieces && !own_arrays) continue;
        saved->arrays.push_back({row, std::vector<float>(row.count)});
        take(saved->arrays.back().values.data(), row.count * sizeof(float));
    }
    saved->identity = header.identity;
    saved->rank = header.head.rank;
    saved->ranks = header.head.ranks;
    saved->seat = part.seat;
    return {};
}

// ------------------------------------------------------------------------------------------------------- pack ----

std::size_t SavedOptimizer::bytes() const {
    std::vector<ArrayRow> rows;
    for (const SavedArray& array : arrays) rows.push_back(array.row);
    return SavedSizes(numbers.size(), rows).all;
}

void SavedOptimizer::pack(const SaveMark& mark, std::byte* bytes) const {
    std::vector<ArrayRow> rows;
    for (const SavedArray& array : arrays) rows.push_back(array.row);
    const SavedSizes sizes(numbers.size(), rows);
    std::byte* to = bytes + sizeof(SavedHeader);
    const auto put = [&to](const void* from, std::size_t size) {
        copy_bytes(to, from, size);
        to += size;
    };
    put(numbers.data(), numbers.size() * sizeof(std::uint64_t));
    put(rows.data(), rows.size() * sizeof(ArrayRow));
    for (const SavedArray& array : arrays) put(array.values.data(), array.values.size() * sizeof(float));

    SavedHeader header = {wanted_head(rank, ranks),
                          static_cast<std::uint32_t>(rows.size()),
                          seat.word(),
                          numbers.size(),
                          identity,
                          sizes.head,
                          sizes.all,
                          0,
                          0};
    header.head.save = mark.save;
    header.head.sequence = mark.sequence;
    header.tail_checksum = hash_bytes(bytes + sizes.head, sizes.all - sizes.head);
    header.head_checksum = head_checksum(header, {bytes + sizeof(SavedHeader), sizes.head - sizeof(SavedHeader)});
    std::memcpy(bytes, &header, sizeof(header));
}

// --------------------------------------------------------------------------------------------------- assembly ----

Status Assembly::add(const SavedPart& part, bool own_arrays, LoadedOptimizer* loaded) {
    SavedOptimizer saved;
    ONEBIT_RETURN_IF_ERROR(read_saved(part, own_arrays, &saved));
    if (!has_first_) {
        loaded->identity = saved.identity;
        loaded->numbers = saved.numbers;
        has_first_ = true;
    } else if (saved.numbers != loaded->numbers || saved.identity != loaded->identity) {
        return bad_saved(part.bytes->name(), "impossible: it contradicts what another rank has saved");
    }
    add(saved);
    return {};
}

void Assembly::add(const SavedOptimizer& saved) {
    for (const SavedArray& array : saved.arrays) {
        if (array.row.ownership == Ownership::kSpread && !same_seats_) {
            add_error(saved, array);
        } else {
            add_own(saved, array);
        }
    }
}

/// An array that is one for all ranks, or a rank's own again, or the mean of all ranks' own.
void Assembly::add_own(const SavedOptimizer& saved, const SavedArray& array) {
    const bool as_many = saved.ranks == static_cast<std::uint32_t>(expected_.ranks);
    const bool is_own = as_many && saved.rank == static_cast<std::uint32_t>(expected_.rank);
    if (array.row.ownership == Ownership::kPieces || is_own) {
        copy(array.row.name, array);
    } else {
        add_share(array.row.name, as_many ? 0 : 1.0 / saved.ranks, array);
    }
}

/// An error that other owners go on with. Its mean over its owners, ranks or on two levels nodes, stays the same.
void Assembly::add_error(const SavedOptimizer& saved, const SavedArray& array) {
    const bool of_shard = array.row.name == ArrayName::kShardError;
    const Owner old = of_shard ? among_nodes(saved.seat, saved.ranks) : Owner{saved.rank, saved.ranks};
    const auto ranks = static_cast<std::uint32_t>(expected_.ranks);
    const double share = spread(old, {static_cast<std::uint32_t>(expected_.rank), ranks});
    if (share == 1 && !saved.seat.on_two_levels()) {
        copy(ArrayName::kWorkerError, array); // all there is of it
    } else {
        add_share(ArrayName::kWorkerError, share, array);
    }
    if (!own_seat().on_two_levels()) return;
    add_share(ArrayName::kShardError, spread(old, among_nodes(own_seat(), ranks)), array);
}

AlignedBuffer<float>& Assembly::whole(ArrayName name, const SavedArray& array) {
    return arrays_.try_emplace({name, array.row.bucket}, array.row.length).first->second;
}

void Assembly::copy(ArrayName name, const SavedArray& array) {
    float* const to = whole(name, array).data() + array.row.begin;
    copy_bytes(to, array.values.data(), array.values.size() * sizeof(float));
}

/// In double, so that the mean of equal floats is that float.
void Assembly::add_share(ArrayName name, double share, const SavedArray& array) {
    (void)whole(name, array);
    if (share == 0) return;
    std::vector<double>& sum = sums_[{name, array.row.bucket}];
    sum.resize(array.row.length);
    for (std::size_t i = 0; i < array.values.size(); ++i) sum[array.row.begin + i] += share * array.values[i];
}

void Assembly::finish(LoadedOptimizer* loaded) {
    for (const auto& [key, sum] : sums_) {
        std::ranges::transform(sum, arrays_.at(key).data(), nearest_finite);
    }
    loaded->arrays = std::move(arrays_);
}

} // namespace onebit
