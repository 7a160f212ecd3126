// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/selection/estimates.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <string>
#include <utility>

#include "collectives/sums/halving_doubling.hpp"
#include "collectives/sums/shared_allreduce.hpp"
#include "compress/codec.hpp"
#include "schedule/bruck.hpp"

namespace onebit {
namespace {

/// A way between two ranks.
struct Link {
    double round_us;    ///< one exchange with one peer
    double message_us;  ///< each further message of an exchange
    double us_per_byte; ///< what dense sums of medium size take for a byte
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

/// How much is sent for each byte of float32.
double sent_share(onebit_codec_t codec) {
    return bits_per_element(codec) / 32;
}

/// Two exchanges between `ranks` ranks: each rank sends a part of `bytes` bytes to each other rank, and `sharing` ranks
/// share a link.
double exchange_us(double ranks, double sharing, double bytes, const Link& link) {
    return 2 * (link.round_us + (ranks - 2) * link.message_us) +
           2 * (ranks - 1) / ranks * sharing * bytes * link.us_per_byte;
}

/// The way between ranks that an estimate uses, and how many ranks share it.
const Link& link_of(const NodeGroups& groups) {
    return groups.nodes == 1 ? kSharedMemory : kNetwork;
}
double sharing_of(const NodeGroups& groups) {
    return groups.nodes == 1 ? 1 : static_cast<double>(std::max<std::size_t>(groups.places, 1));
}

/// The same two exchanges by Bruck's algorithm, which copies what it passes on.
double bruck_exchange_us(const NodeGroups& groups, std::size_t radix, double bytes) {
    const auto ranks = static_cast<double>(groups.node_of_rank.size());
    const BruckShape shape = bruck_shape(groups.node_of_rank.size(), radix);
    const auto hops = static_cast<double>(shape.hops);
    const double blocks = static_cast<double>(shape.all_to_all_blocks) + ranks - 1;
    const Link& link = link_of(groups);
    return 2 * (hops * link.round_us + (static_cast<double>(shape.messages) - hops) * link.message_us) +
           blocks / ranks * bytes * (sharing_of(groups) * link.us_per_byte + kCopyUsPerByte);
}

// ---------------------------------------------------------------------------------------------- the forms' rows ----

/// A call.
struct Call {
    const NodeGroups& groups;
    onebit_memory_t memory;
    onebit_codec_t codec;
    std::uint64_t count;

    double ranks() const { return static_cast<double>(groups.node_of_rank.size()); }
    double bytes() const { return static_cast<double>(count) * sizeof(float); }
    double sent() const { return bytes() * sent_share(codec); }
};

double dense_us(const Call& call) {
    const Link& link = link_of(call.groups);
    const double rounds = std::bit_width(call.groups.node_of_rank.size() - 1); // recursive doubling
    const bool shares_sums = call.memory == ONEBIT_MEMORY_HOST && SharedAllreduce::suits(call.count, call.groups);
    return rounds * link.round_us + (shares_sums
                                         ? call.bytes() * kNodeUsPerByte
                                         : 2 * (call.ranks() - 1) / call.ranks() * call.bytes() * link.us_per_byte);
}

double pipelined_us(const Call& call) {
    return kCompressedUs + exchange_us(call.ranks(), sharing_of(call.groups), call.sent(), link_of(call.groups)) +
           call.bytes() * kCodecUsPerByte;
}

double two_level_us(const Call& call) {
    if (call.groups.objection() != nullptr) return Costs::kNever;
    const auto nodes = static_cast<double>(call.groups.nodes);
    const auto places = static_cast<double>(call.groups.places);
    return kCompressedUs + 2 * kSharedMemory.round_us +
           exchange_us(nodes, places, call.sent() / places, link_of(call.groups)) +
           call.bytes() * (kNodeUsPerByte + kCodecUsPerByte / places);
}

double bruck_us(const Call& call) {
    if (call.groups.node_of_rank.size() < kManyRanks) return Costs::kNever;
    const std::size_t radix = best_radix(call.groups, call.codec, call.count);
    return kCompressedUs + bruck_exchange_us(call.groups, radix, call.sent()) + call.bytes() * kCodecUsPerByte;
}

/// No estimate knows what the switches between nodes carry, so RING is taken only where a table says that it was
/// measured.
double ring_us(const Call& /*call*/) {
    return Costs::kNever;
}

const char* no_objection(const NodeGroups& /*groups*/, onebit_memory_t /*memory*/, const Transport& /*transport*/) {
    return nullptr;
}

/// A GPU's values have no memory that a node shares, but with NCCL a quick way to the node's other GPUs.
const char* objection_to_two_levels(const NodeGroups& groups, onebit_memory_t memory, const Transport& transport) {
    if (memory != ONEBIT_MEMORY_HOST && !transport.has_stream_ordered_nodes()) {
        return "the values are in a GPU's memory, and NCCL doesn't carry them inside a node";
    }
    return groups.objection();
}

constexpr const char* kNoPassingOn = "the processor can't pass on messages in a GPU's memory";

/// Between few ranks, messages that travel through other ranks save almost nothing.
const char* objection_to_bruck(const NodeGroups& groups, onebit_memory_t memory, const Transport& /*transport*/) {
    if (memory != ONEBIT_MEMORY_HOST) return kNoPassingOn;
    return groups.node_of_rank.size() >= kManyRanks ? nullptr : "the ranks are few";
}

/// Between few nodes there is only one switch.
const char* objection_to_ring(const NodeGroups& groups, onebit_memory_t memory, const Transport& /*transport*/) {
    if (memory != ONEBIT_MEMORY_HOST) return kNoPassingOn;
    return groups.nodes >= kManyRanks ? nullptr : "the nodes are few";
}

/// A form that AUTO chooses from.
struct FormRow {
    onebit_algorithm_t name;
    /// Why it would make no sense between some ranks, or is impossible for values in some memory; NULL: no objection.
    const char* (*objection)(const NodeGroups& groups, onebit_memory_t memory, const Transport& transport);
    /// The time of a call; kNever where it can't be told.
    double (*microseconds)(const Call& call);
};

constexpr std::array<FormRow, kChosenForms.size()> kForms = {{
    {ONEBIT_ALGORITHM_DENSE, no_objection, dense_us},
    {ONEBIT_ALGORITHM_PIPELINED, no_objection, pipelined_us},
    {ONEBIT_ALGORITHM_TWO_LEVEL, objection_to_two_levels, two_level_us},
    {ONEBIT_ALGORITHM_BRUCK, objection_to_bruck, bruck_us},
    {ONEBIT_ALGORITHM_RING, objection_to_ring, ring_us},
}};
static_assert(std::ranges::equal(kForms, kChosenForms, {}, &FormRow::name));

Costs::Row estimate_row(const Call& call) {
    Costs::Row row;
    row.count = call.count;
    for (const FormRow& form : kForms) row.microseconds[form.name] = form.microseconds(call);
    return row;
}

} // namespace

std::size_t best_radix(const NodeGroups& groups, onebit_codec_t codec, std::uint64_t count) {
    const double bytes = static_cast<double>(count) * sizeof(float) * sent_share(codec);
    const std::size_t ranks = groups.node_of_rank.size();
    std::size_t best = 2;
    for (std::size_t radix = 3; radix <= ranks; radix += 1 + radix / 8) { // all small ones, and some large ones
        if (bruck_exchange_us(groups, radix, bytes) < bruck_exchange_us(groups, best, bytes)) best = radix;
    }
    return best;
}

Costs estimate_costs(const NodeGroups& groups, onebit_memory_t memory, onebit_codec_t codec) {
    if (groups.node_of_rank.size() == 1) { // nothing to send, so nothing to gain
        Costs::Row alone;
        alone.count = 1;
        alone.microseconds[ONEBIT_ALGORITHM_DENSE] = 0;
        return Costs({alone});
    }
    // All costs are straight lines except BRUCK's, whose radix changes with the size.
    constexpr int kLargest = 30;
    std::vector<Costs::Row> rows;
    for (int bits = 0; bits <= kLargest; ++bits)
        rows.push_back(estimate_row({groups, memory, codec, std::uint64_t{1} << bits}));
    return Costs(std::move(rows));
}

Costs for_elements(const Costs& costs, std::size_t bytes, const NodeGroups& groups) {
    if (bytes == sizeof(float)) return costs;
    std::vector<Costs::Row> rows = costs.rows();
    for (Costs::Row& row : rows) {
        double& dense = row.microseconds[ONEBIT_ALGORITHM_DENSE];
        dense = costs.microseconds(ONEBIT_ALGORITHM_DENSE, ceil_divide(row.count * bytes, sizeof(float)));
        const bool few = HalvingDoubling::suits(row.count, groups.node_of_rank.size());
        const double straight = row.microseconds[ONEBIT_ALGORITHM_PIPELINED];
        if (few && !SharedAllreduce::suits(row.count, groups) && straight != Costs::kNever)
            dense = std::max(dense, straight);
    }
    return Costs(std::move(rows));
}

const char* objection_to(onebit_algorithm_t form, const NodeGroups& groups, onebit_memory_t memory,
                         const Transport& transport) {
    const auto* const row = std::ranges::find(kForms, form, &FormRow::name);
    return row == kForms.end() ? nullptr : row->objection(groups, memory, transport);
}

std::vector<onebit_algorithm_t> forms_for(const NodeGroups& groups, onebit_memory_t memory,
                                          const Transport& transport) {
    std::vector<onebit_algorithm_t> forms;
    for (const FormRow& form : kForms) {
        if (form.objection(groups, memory, transport) == nullptr) forms.push_back(form.name);
    }
    return forms;
}

Status know_costs(Communicator& communicator, onebit_memory_t memory, onebit_codec_t codec) {
    if (communicator.knows_costs(memory, codec)) return {}; // on every rank
    std::optional<KnownCosts> known;
    ONEBIT_RETURN_IF_ERROR(communicator.agree(catch_exceptions([&] {
        known.emplace(estimate_costs(communicator.groups(), memory, codec));
        if (communicator.measurable() && communicator.environment().measure) known->measure_later();
        const TuningTable& table = communicator.tuning_table();
        if (memory != ONEBIT_MEMORY_HOST || !table.costs[codec]) return Status();
        const std::string objection = table.objection(communicator.groups());
        objection.empty() ? known->tune(*table.costs[codec]) : known->object(objection);
        return Status();
    })));
    communicator.set_costs(memory, codec, std::move(*known));
    return {};
}

} // namespace onebit
