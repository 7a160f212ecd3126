// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The reference that the library is tested against. One object simulates all ranks of a compressed allreduce in double
// precision, with the simplest possible loops. The optimizers are in optimizers.hpp. The reference includes no code of
// the library, so it can't repeat the library's mistakes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace oracle {

using Vector = std::vector<double>;
using PerRank = std::vector<Vector>; // [rank][element]
using Signs = std::vector<int>;      // +1 or -1 for each element

// `followed`: not the sign code. A call sends the values that follow from the errors given to follow().
enum class Scale { l2, l1, followed };
enum class Group { block, tensor };
enum class Op { average, sum };

constexpr std::uint64_t word_elements = 32;
constexpr std::uint64_t block_elements = 4096;

struct Range {
    std::uint64_t begin;
    std::uint64_t count;
    std::uint64_t end() const { return begin + count; }
};

// Rank j's chunk of `count` elements: whole 32-element words, the first ranks one word more, the last word clipped.
std::vector<Range> partition(std::uint64_t count, int ranks);

// A range cut into blocks of 4096 elements counted from its own start; the last may be short, none is empty.
std::vector<Range> blocks_of(Range range);

Vector part_of(const Vector& whole, Range range);

// +1 for x >= 0, both zeros included, else -1.
int sign_of(double x);

// The first element whose given sign differs from c's although |c| exceeds the tolerance there; -1 if there is none.
// A test may so take the library's signs: they may differ from the oracle's only where c is within rounding of zero.
std::int64_t first_implausible_sign(const Signs& given, const Vector& c, const Vector& tolerance);

// The flat compressed allreduce of all ranks. The data is public: tests read and set it.
class FlatAllreduce {
  public:
    FlatAllreduce(std::uint64_t count, int ranks, Scale scale, Group group, Op op = Op::average);

    // Elements outside the mask are exactly zero from now on: value, error and result; they count in no scale.
    void set_mask(const std::vector<bool>& mask);

    // Both errors are zero from now on.
    void reset();

    // One call with inputs[rank][element]. Signs that are given (not empty) are used instead of the computed ones.
    void step(const PerRank& inputs);
    void step(const PerRank& inputs, const std::vector<Signs>& given_worker, const Signs& given_server);

    // The next step takes the library's own signs, derived from the errors that its step has left: c - s is below c,
    // c + s above. The errors stay the oracle's own. Only signs near zero, which depend on rounding, are taken.
    void follow(const PerRank& worker_errors_left, const Vector& server_errors_left);

    std::uint64_t count() const { return count_; }
    int ranks() const { return ranks_; }
    // The divisor of the sum over the ranks.
    int divisor() const { return op_ == Op::sum ? 1 : ranks_; }
    const std::vector<Range>& chunks() const { return chunks_; }
    bool takes_part(std::uint64_t i) const { return mask_.empty() || mask_[i]; }

    // The error state; tests may overwrite it (teacher forcing). Chunk j of server_error belongs to rank j.
    PerRank worker_error;
    Vector server_error;

    // Of the last step: the compensated values, the signs sent for them, and each element's scale. For followed codes:
    // the largest magnitude of the element's 256.
    PerRank worker_c, worker_scale;
    std::vector<Signs> worker_signs;
    Vector server_c, server_scale;
    Signs server_signs;
    Vector result;

  private:
    double scale_of(const Vector& c, const std::vector<Range>& ranges) const;
    std::vector<std::vector<Range>> worker_groups() const;
    std::vector<std::vector<Range>> server_groups() const;
    void compress(const std::vector<std::vector<Range>>& groups, const Vector& c, const Signs& signs, Vector& scale,
                  Vector& value, Vector& error) const;
    void take_over(const Vector& c, const Vector& left, Vector& scale, Vector& value, Vector& error) const;

    std::uint64_t count_;
    int ranks_;
    Scale scale_;
    Group group_;
    Op op_;
    std::vector<Range> chunks_;
    std::vector<bool> mask_;
    PerRank worker_left_; // to be followed; empty: no following
    Vector server_left_;
};

// The same on two levels. Rank r is in place r % places of node r / places. Each place has a shard of the buffer. The
// nodes' exact averages of a shard go through the shard's own flat allreduce. One place is the same as flat.
class TwoLevelAllreduce {
  public:
    TwoLevelAllreduce(std::uint64_t count, int nodes, int places, Scale scale, Group group);

    void set_mask(const std::vector<bool>& mask);
    void reset();
    void step(const PerRank& inputs);
    // Like FlatAllreduce::follow, for the whole buffer.
    void follow(const PerRank& worker_errors_left, const Vector& server_errors_left);

    std::uint64_t count() const { return result.size(); }
    int ranks() const { return nodes_ * places_; }
    bool takes_part(std::uint64_t i) const;

    // One rank's data. Errors are for the whole buffer: zero outside the rank's shard and chunk.
    Range shard(int rank) const { return shards_[place_of(rank)]; }
    Range chunk(int rank) const;
    Vector worker_error(int rank) const;
    Vector server_error(int rank) const;

    // By place. A level's ranks are the nodes, its elements those of the shard. Tests may read and set all of it.
    std::vector<FlatAllreduce> levels;
    const std::vector<Range>& shards() const { return shards_; }

    Vector result; // of the last step

  private:
    std::size_t place_of(int rank) const { return static_cast<std::size_t>(rank % places_); }
    std::size_t node_of(int rank) const { return static_cast<std::size_t>(rank / places_); }

    int nodes_, places_;
    std::vector<Range> shards_;
};

} // namespace oracle
