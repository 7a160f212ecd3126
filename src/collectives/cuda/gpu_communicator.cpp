// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/cuda/gpu_communicator.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "collectives/cuda/bootstrap.hpp"
#include "topology/transports.hpp"
#include "transport/nodes.hpp"
#include "transport/per_level.hpp"

namespace onebit {
namespace {

/// How far NCCL is used: all ranks take the least of their choices.
enum Reach : std::uint32_t { kNowhere, kInNode, kEverywhere };

struct Choice {
    Reach reach = kNowhere;
    std::string reason;
};

/// A rank's choice on its way to the others.
struct GpuVote {
    std::uint32_t forced; ///< GpuTransport
    std::uint32_t reach;
    std::uint64_t host;
    std::array<char, 24> gpu; ///< by its bus id
    std::array<char, 256> reason;
};

template <std::size_t kSize>
void put_text(const std::string& text, std::array<char, kSize>* place) {
    std::snprintf(place->data(), place->size(), "%s", text.c_str());
}

/// What the environment asks for, if it can be had here.
Choice choose_forced(const GpuRank& here, const NodeGroups& groups) {
    const GpuTransport forced = here.forced;
    if (forced != GpuTransport::kBase && !here.nccl_status.ok()) return {kNowhere, here.nccl_status.message()};
    const std::string reason = std::string("forced by ONEBIT_GPU_TRANSPORT=") + gpu_transport_name(forced);
    if (forced == GpuTransport::kNccl) return {kEverywhere, reason};
    if (forced == GpuTransport::kBase) return {kNowhere, reason};
    const char* const objection = groups.objection();
    return objection == nullptr ? Choice{kInNode, reason} : Choice{kNowhere, objection};
}

/// What this rank's machine suggests.
Choice choose_by_machine(const GpuRank& here, const NodeGroups& groups, std::size_t rank) {
    for (const Status& status : {here.nccl_status, here.machine_status}) {
        if (!status.ok()) return {kNowhere, status.message()};
    }
    const auto neighbours =
        std::count(groups.node_of_rank.begin(), groups.node_of_rank.end(), groups.node_of_rank[rank]);
    Surroundings with;
    with.nodes = groups.nodes;
    with.ranks_per_node = static_cast<std::size_t>(neighbours);
    with.device_memory = true;
    with.cuda.usable = with.nccl.usable = true;
    const TransportChoice advice = choose_transports(here.machine, with);
    switch (advice.transports) {
        case Transports::kMpi:
            return {kNowhere, advice.reason};
        case Transports::kNccl:
            return {kEverywhere, advice.reason};
        case Transports::kNcclInsideMpiAcross:
            break;
    }
    const char* const objection = groups.objection();
    if (objection == nullptr) return {kInNode, advice.reason};
    return {kNowhere, advice.reason + "; no two levels, for " + objection};
}

Status vote(const Communicator& base, const GpuRank& here, cuda::Stream stream, GpuVote* mine) {
    int device = 0;
    std::string bus_id;
    ONEBIT_RETURN_IF_ERROR(cuda::check_same_in_all_threads(stream));
    ONEBIT_RETURN_IF_ERROR(cuda::device_of(stream, &device));
    ONEBIT_RETURN_IF_ERROR(cuda::bus_id_of(device, &bus_id));
    const Choice choice = here.forced == GpuTransport::kAuto
                              ? choose_by_machine(here, base.groups(), static_cast<std::size_t>(base.rank()))
                              : choose_forced(here, base.groups());
    mine->forced = static_cast<std::uint32_t>(here.forced);
    mine->reach = choice.reach;
    const std::string& id = base.environment().nccl_host;
    mine->host = id.empty() ? host_identity() : host_identity(id.c_str());
    put_text(bus_id, &mine->gpu);
    put_text(choice.reason, &mine->reason);
    return {};
}

/// Two ranks on one GPU, in words; empty where there are none.
std::string shared_gpu(const std::vector<GpuVote>& votes) {
    for (std::size_t r = 1; r < votes.size(); ++r) {
        for (std::size_t s = 0; s < r; ++s) {
            if (votes[s].host != votes[r].host || votes[s].gpu != votes[r].gpu) continue;
            return "NCCL wants a GPU for each rank: ranks " + std::to_string(s) + " and " + std::to_string(r) +
                   " share " + votes[r].gpu.data();
        }
    }
    return "";
}

/// The result of all votes, the same on every rank.
Status count(const std::vector<GpuVote>& votes, Choice* choice) {
    const auto forced = static_cast<GpuTransport>(votes[0].forced);
    const auto other = std::ranges::find_if(votes, [&](const GpuVote& v) { return v.forced != votes[0].forced; });
    if (other != votes.end()) {
        return Status::error(ONEBIT_ERROR_MISMATCH, "ONEBIT_GPU_TRANSPORT differs: rank 0 has %s, rank %zu has %s",
                             gpu_transport_name(forced), static_cast<std::size_t>(other - votes.begin()),
                             gpu_transport_name(static_cast<GpuTransport>(other->forced)));
    }
    const auto least = std::ranges::min_element(votes, {}, &GpuVote::reach); // the first of them
    const bool unanimous = std::ranges::all_of(votes, [&](const GpuVote& v) { return v.reach == least->reach; });
    choice->reach = static_cast<Reach>(least->reach);
    choice->reason =
        (unanimous ? "" : "rank " + std::to_string(least - votes.begin()) + ": ") + std::string(least->reason.data());
    if (const std::string shared = shared_gpu(votes); choice->reach != kNowhere && !shared.empty()) {
        *choice = {kNowhere, shared};
    }
    const bool wants_nccl = forced == GpuTransport::kNccl || forced == GpuTransport::kNcclInNode;
    if (wants_nccl && choice->reach == kNowhere) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED, "environment: ONEBIT_GPU_TRANSPORT=%s: %s",
                             gpu_transport_name(forced), choice->reason.c_str());
    }
    return {};
}

Status make_transport(Communicator& base, const NcclApi* nccl, Reach reach, cuda::Stream stream,
                      std::unique_ptr<Transport>* transport) {
    if (reach == kEverywhere) return bootstrap_nccl(nccl, base, {}, stream, transport);
    if (reach == kInNode) return bootstrap_nccl_in_nodes(*nccl, base, stream, transport);
    std::unique_ptr<Transport> channel;
    ONEBIT_RETURN_IF_ERROR(base.open_part(&channel));
    *transport = make_per_level_transport(std::move(channel), base.groups().node_of_rank, nullptr, stream);
    return {};
}

} // namespace

Status make_gpu_communicator(Communicator& base, const GpuRank& here, const Status& own, cuda::Stream stream,
                             std::unique_ptr<Communicator>* communicator) {
    GpuVote mine{};
    std::vector<GpuVote> votes;
    const Status voted = catch_exceptions([&] {
        votes.resize(static_cast<std::size_t>(base.size()));
        return own.ok() ? vote(base, here, stream, &mine) : own;
    });
    ONEBIT_RETURN_IF_ERROR(base.agree_and_gather(voted, &mine, sizeof(mine), votes.data()));
    Choice choice;
    Status counted; // the same on every rank; but one may have no memory to count
    ONEBIT_RETURN_IF_ERROR(base.agree(catch_exceptions([&] {
        counted = count(votes, &choice);
        return Status();
    })));
    ONEBIT_RETURN_IF_ERROR(counted);
    std::unique_ptr<Transport> transport;
    ONEBIT_RETURN_IF_ERROR(make_transport(base, here.nccl, choice.reach, stream, &transport));
    std::unique_ptr<Communicator> made;
    ONEBIT_RETURN_IF_ERROR(Communicator::create(std::move(transport), {}, &made));
    made->log().write(ONEBIT_LOG_INFO, "GPUs of %d ranks on %zu nodes: %s, because %s", made->size(),
                      made->groups().nodes, made->transport().name(), choice.reason.c_str());
    made->set_reason(std::move(choice.reason));
    *communicator = std::move(made);
    return {};
}

} // namespace onebit
