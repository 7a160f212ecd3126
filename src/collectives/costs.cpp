// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/costs.hpp"

#include <algorithm>
#include <bit>

#include "collectives/halving_doubling.hpp"
#include "collectives/shared_allreduce.hpp"
#include "compress/codec.hpp"

namespace onebit {
namespace {

/// A way between two ranks.
struct Link {
    double round_us;    ///< one exchange with one peer
    double message_us;  ///< each further message of an exchange
    double us_per_byte; ///< what dense sums of middling size take for a byte
};

// Measured with bench/osu_onebit_allreduce -f (docs/ARCHITECTURE.md, "Choosing"): shared memory, and TCP at 10 Gbit/s.
constexpr Link kSharedMemory = {1.2, 0.5, 0.8e-3};
constexpr Link kNetwork = {20, 2, 1.5e-3};
/// A byte of float32 corrected, encoded, averaged and decoded, with its 32nd of a byte on the way.
constexpr double kCodecUsPerByte = 0.35e-3;
/// A byte of float32 summed up inside a node.
constexpr double kNodeUsPerByte = 0.25e-3;
/// The agreement and the exchanges' own cost, where they are not a dense sum's.
constexpr double kCompressedUs = 2;

/// A byte of a message copied out of one and into another.
constexpr double kCopyUsPerByte = 0.2e-3;

/// Sent of each byte of float32.
double sent_share(onebit_codec_t codec) {
    return bits_per_element(codec) / 32;
}

/// Two exchanges between `ranks` ranks, each of which sends a part of so many bytes to each other one, `sharing` ranks
/// on one link.
double exchange_us(double ranks, double sharing, double bytes, const Link& link) {
    return 2 * (link.round_us + (ranks - 2) * link.message_us) +
           2 * (ranks - 1) / ranks * sharing * bytes * link.us_per_byte;
}

/// The way between ranks that an estimate goes by, and how many of them share it.
const Link& link_of(const NodeGroups& groups) {
    return groups.nodes == 1 ? kSharedMemory : kNetwork;
}
double sharing_of(const NodeGroups& groups) {
    return groups.nodes == 1 ? 1 : static_cast<double>(std::max<std::size_t>(groups.places, 1));
}

/// The same two exchanges by Bruck's algorithm, which copies what it passes on.
double bruck_us(const NodeGroups& groups, std::size_t radix, double bytes) {
    const auto ranks = static_cast<double>(groups.node_of_rank.size());
    const BruckShape shape = bruck_shape(groups.node_of_rank.size(), radix);
    const auto hops = static_cast<double>(shape.hops);
    const double blocks = static_cast<double>(shape.all_to_all_blocks) + ranks - 1;
    const Link& link = link_of(groups);
    return 2 * (hops * link.round_us + (static_cast<double>(shape.messages) - hops) * link.message_us) +
           blocks / ranks * bytes * (sharing_of(groups) * link.us_per_byte + kCopyUsPerByte);
}

Costs::Row estimate_row(const NodeGroups& groups, onebit_memory_t memory, onebit_codec_t codec, std::uint64_t count) {
    const auto ranks = static_cast<double>(groups.node_of_rank.size());
    const auto nodes = static_cast<double>(groups.nodes);
    const auto places = static_cast<double>(std::max<std::size_t>(groups.places, 1));
    const double bytes = static_cast<double>(count) * sizeof(float);
    const double sent = bytes * sent_share(codec);
    const Link& link = link_of(groups);
    const double dense_rounds = std::bit_width(groups.node_of_rank.size() - 1); // recursive doubling

    const bool shares_sums = memory == ONEBIT_MEMORY_HOST && SharedAllreduce::suits(count, groups);

    Costs::Row row;
    row.count = count;
    row.microseconds[ONEBIT_ALGORITHM_DENSE] =
        dense_rounds * link.round_us +
        (shares_sums ? bytes * kNodeUsPerByte : 2 * (ranks - 1) / ranks * bytes * link.us_per_byte);
    row.microseconds[ONEBIT_ALGORITHM_PIPELINED] =
        kCompressedUs + exchange_us(ranks, sharing_of(groups), sent, link) + bytes * kCodecUsPerByte;
    if (groups.objection() == nullptr) {
        row.microseconds[ONEBIT_ALGORITHM_TWO_LEVEL] = kCompressedUs + 2 * kSharedMemory.round_us +
                                                       exchange_us(nodes, places, sent / places, link) +
                                                       bytes * (kNodeUsPerByte + kCodecUsPerByte / places);
    }
    if (suits_bruck(groups)) {
        row.microseconds[ONEBIT_ALGORITHM_BRUCK] =
            kCompressedUs + bruck_us(groups, Costs::best_radix(groups, codec, count), sent) + bytes * kCodecUsPerByte;
    }
    return row;
}

} // namespace

std::size_t Costs::best_radix(const NodeGroups& groups, onebit_codec_t codec, std::uint64_t count) {
    const double bytes = static_cast<double>(count) * sizeof(float) * sent_share(codec);
    const std::size_t ranks = groups.node_of_rank.size();
    std::size_t best = 2;
    for (std::size_t radix = 3; radix <= ranks; radix += 1 + radix / 8) { // all small ones, and some
        if (bruck_us(groups, radix, bytes) < bruck_us(groups, best, bytes)) best = radix;
    }
    return best;
}

Costs Costs::estimate(const NodeGroups& groups, onebit_memory_t memory, onebit_codec_t codec) {
    if (groups.node_of_rank.size() == 1) { // nothing to send, so nothing to gain
        Row alone;
        alone.count = 1;
        alone.microseconds[ONEBIT_ALGORITHM_DENSE] = 0;
        return Costs({alone});
    }
    // All of it is straight lines but for BRUCK's radix, which changes with the size.
    constexpr int kLargest = 30;
    std::vector<Row> rows;
    for (int bits = 0; bits <= kLargest; ++bits)
        rows.push_back(estimate_row(groups, memory, codec, std::uint64_t{1} << bits));
    return Costs(std::move(rows));
}

double Costs::microseconds(onebit_algorithm_t form, std::uint64_t count) const {
    const auto of = [form](const Row& row) { return row.microseconds[form]; };
    if (rows_.size() == 1 || count <= rows_.front().count) return of(rows_.front());
    // The row after, or the last one: from there on its line goes on.
    auto after =
        std::find_if(rows_.begin() + 1, rows_.end() - 1, [count](const Row& row) { return row.count >= count; });
    const Row& before = *(after - 1);
    if (of(before) == kNever) return kNever;
    const double way = static_cast<double>(count - before.count) / static_cast<double>(after->count - before.count);
    const double rise = of(*after) - of(before);
    return of(before) + way * (way > 1 ? std::max(rise, 0.0) : rise); // noise must not lead below zero
}

onebit_algorithm_t Costs::quickest(std::uint64_t count, std::span<const onebit_algorithm_t> forms) const {
    return *std::ranges::min_element(forms, {}, [&](onebit_algorithm_t form) { return microseconds(form, count); });
}

Costs Costs::for_elements(std::size_t bytes, const NodeGroups& groups) const {
    if (bytes == sizeof(float)) return *this;
    std::vector<Row> rows = rows_;
    for (Row& row : rows) {
        double& dense = row.microseconds[ONEBIT_ALGORITHM_DENSE];
        dense = microseconds(ONEBIT_ALGORITHM_DENSE, ceil_divide(row.count * bytes, sizeof(float)));
        const bool few = HalvingDoubling::suits(row.count, groups.node_of_rank.size());
        const double straight = row.microseconds[ONEBIT_ALGORITHM_PIPELINED];
        if (few && !SharedAllreduce::suits(row.count, groups) && straight != kNever) dense = std::max(dense, straight);
    }
    return Costs(std::move(rows));
}

const char* objection_to_two_levels(const NodeGroups& groups, onebit_memory_t memory, const Transport& transport) {
    if (memory != ONEBIT_MEMORY_HOST && !transport.has_stream_ordered_nodes()) {
        return "the values are in a GPU's memory, and NCCL doesn't carry them inside a node";
    }
    return groups.objection();
}

std::vector<onebit_algorithm_t> forms_for(const NodeGroups& groups, onebit_memory_t memory,
                                          const Transport& transport) {
    std::vector<onebit_algorithm_t> forms(kChosenForms.begin(), kChosenForms.end());
    if (objection_to_two_levels(groups, memory, transport) != nullptr) {
        std::erase(forms, ONEBIT_ALGORITHM_TWO_LEVEL);
    }
    if (memory != ONEBIT_MEMORY_HOST || !suits_bruck(groups)) std::erase(forms, ONEBIT_ALGORITHM_BRUCK);
    if (memory != ONEBIT_MEMORY_HOST || !suits_ring(groups)) std::erase(forms, ONEBIT_ALGORITHM_RING);
    return forms;
}

void KnownCosts::tune(Costs costs) {
    lasting_ = costs;
    tuned_ = true;
    set(std::move(costs), "tuned", UINT64_MAX);
}

void KnownCosts::set(Costs costs, std::string source, std::uint64_t known_to) {
    costs_ = std::move(costs);
    source_ = std::move(source);
    known_to_ = known_to;
}

void KnownCosts::keep_estimate(const std::string& why) {
    object(why);
    known_to_ = UINT64_MAX;
}

} // namespace onebit
