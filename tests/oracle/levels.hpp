// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The reference for an allreduce on levels (docs/WIRE_FORMAT.md, "Levels"). One object simulates all ranks, with the
// references of the two halves. Results and errors may be compared bit for bit. It includes no code of the library.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "oracle/shards.hpp"

namespace oracle {

// One level below the last: its groups of ranks, and the coding of values there; no coding: exact.
struct Level {
    std::vector<int> colors; // by rank
    std::optional<Coding> coding;
};

class Levels {
  public:
    Levels(std::uint64_t count, int ranks, std::vector<Level> levels, Coding across, Op op = Op::average);

    // One call with inputs[rank][element].
    const Floats& step(const FloatsPerRank& inputs);

    // The range of the whole buffer that a rank brings to a level; level levels.size() is the last one.
    Range part(std::size_t level, int rank) const { return ranks_[static_cast<std::size_t>(rank)].parts[level]; }
    // The worker error of that range; zeros for an exact level.
    Floats error(std::size_t level, int rank) const;
    // The range that a rank serves on the last level, and the error of that range.
    Range served(int rank) const;
    Floats server_error(int rank) const;

    Floats result;

  private:
    // The ranks that exchange with each other on a level, and their operations.
    struct Exchange {
        std::vector<int> members;
        std::optional<ReduceScatter> reduce;
        std::optional<AllGather> gather; // on the last level
    };
    struct Rank {
        std::vector<Range> parts;           // by level
        std::vector<std::string> exchanges; // by level: its exchange's name
        std::vector<std::size_t> places;    // by level: the rank's place there
    };

    void make_level(std::size_t level, const std::vector<int>* colors, const std::optional<Coding>& coding, Op op);

    std::uint64_t count_;
    Op op_;
    std::vector<Rank> ranks_;
    std::vector<std::map<std::string, Exchange>> exchanges_; // by level
};

} // namespace oracle
