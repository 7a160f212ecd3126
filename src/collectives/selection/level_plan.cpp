// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/selection/level_plan.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/hash.hpp"
#include "core/structs.hpp"
#include "transport/nodes.hpp"

namespace onebit {
namespace {

Status invalid(std::size_t level, const char* member, std::uint64_t value, const char* why) {
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "config.levels[%zu].%s: %llu %s", level, member,
                         static_cast<unsigned long long>(value), why);
}

struct Member {
    const char* name;
    std::uint64_t value;
    std::uint64_t most;
};

std::vector<Member> codec_members(const onebit_level_t& level) {
    return {{"codec", static_cast<std::uint32_t>(level.codec), ONEBIT_CODEC_POWERSGD},
            {"scale", static_cast<std::uint32_t>(level.scale), ONEBIT_SCALE_L1},
            {"group", static_cast<std::uint32_t>(level.group), ONEBIT_GROUP_BUFFER},
            {"kept", level.kept, UINT32_MAX},
            {"value_bits", level.value_bits, UINT32_MAX},
            {"error_type", static_cast<std::uint32_t>(level.error_type), ONEBIT_INT8}};
}

Status check_level(std::size_t l, const onebit_level_t& level) {
    if (level.color < ONEBIT_LEVEL_NODE) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "config.levels[%zu].color: %d is neither ONEBIT_LEVEL_NODE nor 0 or more", l,
                             static_cast<int>(level.color));
    }
    if (level.compressed > 1) return invalid(l, "compressed", level.compressed, "is neither 0 nor 1");
    ONEBIT_RETURN_IF_ERROR(
        check_reserved(("config.levels[" + std::to_string(l) + "].reserved").c_str(), level.reserved));
    for (const Member& member : codec_members(level)) {
        if (member.value > member.most) return invalid(l, member.name, member.value, "is not one of its constants");
        if (member.value != 0 && level.compressed == 0) {
            return invalid(l, member.name, member.value, "is for levels whose `compressed` is 1");
        }
    }
    return {};
}

/// How many ranks each group has. INVALID_ARGUMENT unless all have the same number.
Status count_ranks(std::size_t level, const std::vector<int>& group_of_rank, std::size_t* ranks) {
    std::vector<std::size_t> counts(group_of_rank.size());
    for (const int group : group_of_rank) ++counts[static_cast<std::size_t>(group)];
    const auto count_of = [&](std::size_t rank) { return counts[static_cast<std::size_t>(group_of_rank[rank])]; };
    *ranks = count_of(0);
    for (std::size_t rank = 0; rank < group_of_rank.size(); ++rank) {
        if (count_of(rank) == *ranks) continue;
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "config.levels[%zu].color: the group of rank %zu has %zu ranks, that of rank 0 %zu", level,
                             rank, count_of(rank), *ranks);
    }
    return {};
}

/// Checks that each of the `inner` groups, of the level before, is in one of the `outer` groups.
Status check_nested(std::size_t level, const std::vector<int>& inner, const std::vector<int>& outer) {
    std::vector<std::size_t> first(inner.size(), inner.size()); // first rank of each inner group
    for (std::size_t rank = 0; rank < inner.size(); ++rank) {
        std::size_t& of_group = first[static_cast<std::size_t>(inner[rank])];
        if (of_group == inner.size()) of_group = rank;
        if (outer[rank] == outer[of_group]) continue;
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "config.levels[%zu].color: ranks %zu and %zu are in one group of config.levels[%zu], and "
                             "must be in one here",
                             level, of_group, rank, level - 1);
    }
    return {};
}

/// From every rank's colors, level by level: `place` is a rank's path through the levels so far.
Status find_exchanges(const NodeGroups& nodes, std::span<const std::int32_t> colors, LevelsPlan* plan) {
    const std::size_t ranks = nodes.node_of_rank.size();
    const std::size_t levels = plan->lower.size();
    std::vector<std::size_t> place(ranks, 0);
    std::vector<int> inner;
    for (std::size_t l = 0; l < levels; ++l) {
        std::vector<std::pair<bool, int>> keys;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            const std::int32_t color = colors[rank * levels + l];
            const bool by_node = color == ONEBIT_LEVEL_NODE;
            keys.emplace_back(by_node, by_node ? nodes.node_of_rank[rank] : color);
        }
        std::vector<int> groups = number_by_first_rank(keys);
        ONEBIT_RETURN_IF_ERROR(count_ranks(l, groups, &plan->group_ranks.emplace_back()));
        if (l > 0) ONEBIT_RETURN_IF_ERROR(check_nested(l, inner, groups));

        std::vector<std::pair<int, std::size_t>> in_place;
        for (std::size_t rank = 0; rank < ranks; ++rank) in_place.emplace_back(groups[rank], place[rank]);
        std::vector<int>& exchange_of_rank = plan->lower[l].exchange_of_rank;
        exchange_of_rank = number_by_first_rank(in_place);
        const std::size_t members = plan->group_ranks[l] / (l == 0 ? 1 : plan->group_ranks[l - 1]);
        std::vector<std::size_t> seen(ranks, 0); // by exchange
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            place[rank] = place[rank] * members + seen[static_cast<std::size_t>(exchange_of_rank[rank])]++;
        }
        inner = std::move(groups);
    }
    plan->across_of_rank = number_by_first_rank(place);
    return {};
}

} // namespace

std::string LevelsPlan::describe(std::size_t ranks, onebit_codec_t across) const {
    std::string text;
    std::size_t below = 1;
    for (std::size_t l = 0; l < lower.size(); ++l) {
        text += std::to_string(group_ranks[l] / below);
        text += lower[l].codec ? std::string(" by ") + name_of(lower[l].codec->codec) : std::string(" exactly");
        text += ", ";
        below = group_ranks[l];
    }
    return text + std::to_string(ranks / below) + " by " + name_of(across);
}

Status read_levels(const onebit_allreduce_config_t& config, std::vector<onebit_level_t>* levels) {
    if (config.num_levels > kMostLevels) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "config.num_levels: %u is more than %zu", config.num_levels,
                             kMostLevels);
    }
    if ((config.levels == nullptr) != (config.num_levels == 0)) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "config.levels is %s, but config.num_levels is %u",
                             config.levels == nullptr ? "NULL" : "not NULL", config.num_levels);
    }
    const bool wanted = config.num_levels > 0;
    if (wanted && config.algorithm != ONEBIT_ALGORITHM_AUTO && config.algorithm != ONEBIT_ALGORITHM_LEVELS) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "config.levels is for ONEBIT_ALGORITHM_LEVELS, and AUTO: leave it out with others");
    }
    if (!wanted && config.algorithm == ONEBIT_ALGORITHM_LEVELS) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "config.algorithm: ONEBIT_ALGORITHM_LEVELS needs config.levels, which says who is in a "
                             "group");
    }
    levels->resize(config.num_levels);
    for (std::size_t l = 0; l < levels->size(); ++l) {
        const std::string name = "config.levels[" + std::to_string(l) + "]";
        ONEBIT_RETURN_IF_ERROR(read_element(name.c_str(), config.levels, l, &(*levels)[l]));
        ONEBIT_RETURN_IF_ERROR(check_level(l, (*levels)[l]));
    }
    return {};
}

std::uint64_t hash_of(const std::vector<onebit_level_t>& levels) {
    std::vector<std::uint64_t> values;
    for (const onebit_level_t& level : levels) {
        values.push_back(level.compressed);
        for (const Member& member : codec_members(level)) values.push_back(member.value);
    }
    return values.empty() ? 0 : hash_bytes(values.data(), values.size() * sizeof(std::uint64_t));
}

Status check_levels(const onebit_allreduce_config_t& config, const std::vector<onebit_level_t>& levels) {
    if (levels.empty()) return {};
    if (config.memory != ONEBIT_MEMORY_HOST) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                             "config.levels: in ONEBIT_MEMORY_HOST alone; a GPU's values have "
                             "ONEBIT_ALGORITHM_TWO_LEVEL");
    }
    if (config.codec == ONEBIT_CODEC_POWERSGD) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                             "config.levels: not with ONEBIT_CODEC_POWERSGD, which sends no messages; all other codecs "
                             "can be used");
    }
    for (std::size_t l = 0; l < levels.size(); ++l) {
        if (levels[l].codec == ONEBIT_CODEC_POWERSGD) {
            return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                                 "config.levels[%zu].codec: ONEBIT_CODEC_POWERSGD is no level's, for it sends no "
                                 "messages; all other codecs can be",
                                 l);
        }
        const Status status = levels[l].compressed == 0 ? Status() : check_codec(codec_config_of(levels[l]));
        if (status.ok()) continue;
        std::string message = status.message(); // which speaks of the handle's own codec
        const std::string_view of_handle = "config.";
        if (message.starts_with(of_handle)) message.erase(0, of_handle.size());
        return Status::error(status.code(), "config.levels[%zu].%s", l, message.c_str());
    }
    return {};
}

Status plan_levels(Communicator& communicator, const std::vector<onebit_level_t>& levels, unsigned threads,
                   LevelsPlan* plan) {
    std::vector<std::int32_t> own;
    std::vector<std::int32_t> all;
    const Status ready = catch_exceptions([&] {
        for (const onebit_level_t& level : levels) own.push_back(level.color);
        all.resize(own.size() * static_cast<std::size_t>(communicator.size()));
        return Status();
    });
    ONEBIT_RETURN_IF_ERROR(
        communicator.agree_and_gather(ready, own.data(), own.size() * sizeof(std::int32_t), all.data()));
    return communicator.agree(catch_exceptions([&] {
        for (const onebit_level_t& level : levels) {
            std::optional<CodecConfig>& codec = plan->lower.emplace_back().codec;
            if (level.compressed == 0) continue;
            codec = codec_config_of(level);
            codec->threads = threads;
            codec->kernels = communicator.environment().kernels;
        }
        ONEBIT_RETURN_IF_ERROR(find_exchanges(communicator.groups(), all, plan));
        std::vector<std::uint64_t> parts; // not what errors are kept in, or how many elements a code keeps
        for (std::size_t l = 0; l < levels.size(); ++l) {
            const std::vector<int>& exchange_of_rank = plan->lower[l].exchange_of_rank;
            parts.push_back(hash_bytes(exchange_of_rank.data(), exchange_of_rank.size() * sizeof(int)));
            parts.push_back(levels[l].compressed);
            parts.push_back(static_cast<std::uint32_t>(levels[l].codec));
            parts.push_back(static_cast<std::uint32_t>(levels[l].scale));
            parts.push_back(static_cast<std::uint32_t>(levels[l].group));
        }
        plan->hash = hash_bytes(parts.data(), parts.size() * sizeof(std::uint64_t));
        return Status();
    }));
}

} // namespace onebit
