// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/forms/seat.hpp"
#include "collectives/operation/saved_files.hpp"
#include "core/aligned_buffer.hpp"
#include "core/status.hpp"

namespace onebit {

/// Reads or writes numbers in one fixed order, so that saving and loading are one piece of code.
class NumberVisitor {
  public:
    virtual ~NumberVisitor() = default;
    virtual void visit(std::uint64_t& number) = 0;
    /// How many numbers of a list were saved, if there are `own` here.
    virtual std::uint64_t visit_count(std::uint64_t own) = 0;
    /// Called where the saved list has another length.
    virtual void forget(std::vector<double>&) {}
    void visit(double& number);
    /// Visits the length of the list, then its numbers. A saved list of another length is skipped, and
    /// forget() is called.
    void visit(std::vector<double>& numbers);
};

/// BAD_STATE with the number of a loaded state, unless it is `possible` in a training.
Status check_state(bool possible, const char* what, std::uint64_t number);
Status check_state(bool possible, const char* what, double number);

/// The arrays that an optimizer saves; all have 4-byte elements.
enum class ArrayName : std::uint32_t {
    kParameters = 1,
    kMomentum = 2,
    kVariance = 3,
    kPrecondition = 4,
    kFreshVariance = 5,
    kAnchor = 6,
    kMask = 7,
    kWorkerError = 8,
    kServerError = 9,
    kShardError =
        10, ///< the worker error on two levels, where kWorkerError has the gradients that masked elements hold back
};

inline constexpr std::size_t kArrayNames = 11;

/// Which ranks have an array, and how other ranks than those that saved it load it.
enum class Ownership : std::uint32_t {
    kPieces = 0, ///< one array for all ranks; each saves a piece of it
    kMeans = 1,  ///< each rank's own; all get their mean
    kSpread = 2, ///< each rank's own; spread over the new ranks so that the mean over the ranks stays what it is
};

/// Which part of which array a file has; in the layout of the file.
struct ArrayRow {
    ArrayName name = ArrayName::kParameters;
    std::uint32_t bucket = 0;
    Ownership ownership = Ownership::kPieces;
    std::uint32_t reserved = 0;
    std::uint64_t length = 0; ///< of the whole
    std::uint64_t begin = 0;  ///< of the part saved here
    std::uint64_t count = 0;  ///< likewise
    bool operator==(const ArrayRow&) const = default;
};
static_assert(sizeof(ArrayRow) == 40);

struct SavedArray {
    ArrayRow row;
    std::vector<float> values;
};

/// The optimizer's stage, which determines the arrays it has; the file has these numbers.
enum class SavedStage : std::uint32_t {
    kExact = 0,    ///< not frozen; 0/1 Adam's compressed rounds included
    kMomenta = 1,  ///< frozen, and compresses momenta
    kUpdates = 2,  ///< frozen, and compresses updates
    kGradients = 3 ///< never freezes, and compresses gradients
};
constexpr bool is_frozen(SavedStage stage) {
    return stage == SavedStage::kMomenta || stage == SavedStage::kUpdates;
}

/// Tells whether a state fits an optimizer; the same in all files of a save.
struct Identity {
    std::uint32_t kind = 0;
    SavedStage stage = SavedStage::kExact;
    std::uint64_t count = 0;
    std::uint64_t shape = 0; ///< hash of the tensors' counts, groups and buckets
    bool operator==(const Identity&) const = default;
};

/// One rank's share of a save; docs/WIRE_FORMAT.md, "Saved optimizer", has the layout.
struct SavedOptimizer {
    Identity identity;
    std::uint32_t rank = 0;
    std::uint32_t ranks = 1;
    Seat seat;
    std::vector<std::uint64_t> numbers;
    std::vector<SavedArray> arrays; ///< pieces first

    std::size_t bytes() const;
    /// Writes bytes() bytes, at any alignment.
    void pack(const SaveMark& mark, std::byte* bytes) const;
};

/// What a file, or a blob, must be like to fit an optimizer. Its head is enough to check this.
struct ExpectedFile {
    Identity identity;                           ///< its stage: the file's
    SavedStage frozen_as = SavedStage::kMomenta; ///< the stage of a file that is frozen
    std::size_t least_numbers = 0;
    std::size_t most_numbers = 0;
    /// The arrays that rank `rank` of `ranks` saves.
    std::function<std::vector<ArrayRow>(SavedStage stage, std::uint32_t rank, std::uint32_t ranks, const Seat& seat)>
        rows;
    int rank = 0;            ///< the rank that is going to load it
    int ranks = 1;           ///< the number of ranks now
    std::vector<Seat> seats; ///< of these ranks
};

/// A save of any number of ranks as one rank of `ranks` sees it: whole arrays.
struct LoadedOptimizer {
    std::string prefix;
    int saved_ranks = 0;
    SaveMark mark;
    std::vector<Places> places; ///< of the ranks that saved
    Identity identity;
    std::vector<std::uint64_t> numbers;
    std::map<std::pair<ArrayName, std::uint32_t>, AlignedBuffer<float>> arrays; ///< by name and bucket
};

/// Finds and reads a save: of the same number of ranks if there is one, else of the only other number of ranks. Takes
/// the newest complete save. Checks a file's size before it allocates memory of that size. BAD_STATE, IO, with the
/// file's name. Local.
Status load_optimizer(const std::string& prefix, const ExpectedFile& expected, LoadedOptimizer* loaded);

} // namespace onebit
