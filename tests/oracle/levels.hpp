// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The reference for an allreduce on levels (docs/WIRE_FORMAT.md, "Levels"): all ranks simulated in one object, from the
// references of its halves. Results and errors may be compared bit for bit. It includes nothing of the library.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "oracle/shards.hpp"

namespace oracle {

// One level below the last: who is in a group, and how values travel there; none: exactly.
struct Level {
    std::vector<int> colors; // by rank
    std::optional<Coding> coding;
};

class Levels {
  public:
    Levels(std::uint64_t count, int ranks, std::vector<Level> levels, Coding across, Op op = Op::average);

    // One call with inputs[rank][element].
    const Floats& step(const FloatsPerRank& inputs);

    // What a rank brings to a level, of the whole buffer; level levels.size() is the last one.
    Range part(std::size_t level, int rank) const { return ranks_[static_cast<std::size_t>(rank)].parts[level]; }
    // The worker error of that; zeros of an exact level.
    Floats error(std::size_t level, int rank) const;
    // What it serves on the last level, and the error of that.
    Range served(int rank) const;
    Floats server_error(int rank) const;

    Floats result;

  private:
    // The ranks that exchange with each other on a level, and what they do.
    struct Exchange {
        std::vector<int> members;
        std::optional<ReduceScatter> reduce;
        std::optional<AllGather> gather; // on the last level
    };
    struct Rank {
        std::vector<Range> parts;           // by level
        std::vector<std::string> exchanges; // by level: its exchange's name
        std::vector<std::size_t> places;    // by level: its own there
    };

    void make_level(std::size_t level, const std::vector<int>* colors, const std::optional<Coding>& coding, Op op);

    std::uint64_t count_;
    Op op_;
    std::vector<Rank> ranks_;
    std::vector<std::map<std::string, Exchange>> exchanges_; // by level
};

} // namespace oracle
