// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/operation/saved_files.hpp"
#include "optim/saved_state.hpp"

namespace onebit {

// The bytes of a saved optimizer, wherever they lie: how they are read, checked and put together.

/// The head of a saved optimizer; little-endian, no padding. Behind it: the numbers, the rows of the arrays, the
/// pieces' values (up to here: head_bytes), the values of the rank's own arrays.
struct SavedHeader {
    SaveHead head;
    std::uint32_t arrays;
    std::uint32_t seat; ///< Seat::word
    std::uint64_t numbers;
    Identity identity;
    std::uint64_t head_bytes;
    std::uint64_t all_bytes;
    std::uint64_t head_checksum; ///< over the head, with this member 0
    std::uint64_t tail_checksum; ///< over what follows it
};
static_assert(sizeof(SavedHeader) == 104);

/// The sizes of a saved optimizer with these arrays, and of its head, in bytes.
struct SavedSizes {
    std::uint64_t head = sizeof(SavedHeader);
    std::uint64_t all = 0;

    SavedSizes(std::uint64_t numbers, const std::vector<ArrayRow>& rows);
};

/// Bytes that may be a saved optimizer: of a file, or of the program's memory.
class SavedBytes {
  public:
    virtual ~SavedBytes() = default;
    /// Their name in messages.
    virtual const std::string& name() const = 0;
    virtual std::uint64_t size() const = 0;
    /// The first `most` bytes, or all if there are fewer: in place, or in `room`.
    virtual Status read(std::size_t most, std::vector<std::byte>* room, std::span<const std::byte>* bytes) const = 0;
};

/// One rank's part of a save, whose header fits an optimizer.
struct SavedPart {
    std::unique_ptr<SavedBytes> bytes;
    SavedHeader header{};
    Seat seat;                  ///< from the header
    std::vector<ArrayRow> rows; ///< that the part must have
};

/// BAD_STATE with the bytes' name.
Status bad_saved(const std::string& name, const char* what);

/// Reads the header, and makes sure that the number of bytes is right. Allocates nothing of this size. `part->bytes` is
/// set already. The header must be of this rank and number of ranks.
Status open_saved(std::uint32_t rank, std::uint32_t ranks, const ExpectedFile& expected, SavedPart* part);
/// The header may be of any rank.
Status open_saved(const ExpectedFile& expected, SavedPart* part);

/// Makes sure that the checksums of all opened bytes are right.
Status check_checksums(const SavedPart& part);

/// Reads the rest, and checks its checksums; the rank's own arrays only if they are wanted.
Status read_saved(const SavedPart& part, bool own_arrays, SavedOptimizer* saved);

/// Puts the whole arrays of one rank together from the parts of a save, one after the other.
class Assembly {
  public:
    /// For the rank of `expected`, which must outlive it. `same_seats`: the same number of ranks saved, each in its
    /// present seat; then each rank gets its own arrays back, to the bit.
    Assembly(const ExpectedFile& expected, bool same_seats) : expected_(expected), same_seats_(same_seats) {}

    /// BAD_STATE where the part contradicts the first part. `loaded` gets identity and numbers from the first part.
    Status add(const SavedPart& part, bool own_arrays, LoadedOptimizer* loaded);
    /// The pieces of all ranks make whole arrays: each part has all that its rank must have.
    void finish(LoadedOptimizer* loaded);

  private:
    using Key = std::pair<ArrayName, std::uint32_t>;

    const Seat& own_seat() const { return expected_.seats[static_cast<std::size_t>(expected_.rank)]; }
    void add(const SavedOptimizer& saved);
    void add_own(const SavedOptimizer& saved, const SavedArray& array);
    void add_error(const SavedOptimizer& saved, const SavedArray& array);
    AlignedBuffer<float>& whole(ArrayName name, const SavedArray& array);
    void copy(ArrayName name, const SavedArray& array);
    void add_share(ArrayName name, double share, const SavedArray& array);

    const ExpectedFile& expected_;
    bool same_seats_;
    bool has_first_ = false;
    std::map<Key, AlignedBuffer<float>> arrays_;
    std::map<Key, std::vector<double>> sums_;
};

} // namespace onebit
