// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/transports.hpp"

#include <algorithm>
#include <optional>
#include <vector>

namespace onebit {
namespace {

/// A NIC that can send from a GPU's memory, and does so at full speed only up to a host bridge away.
bool serves(const Machine::Nic& nic, Path path) {
    return nic.rdma && nic.up && path <= Path::kPhb;
}

/// What lies between each GPU and the nearest such NIC; nothing where there is none.
std::vector<std::optional<Path>> nearest_nics(const Machine& machine) {
    std::vector<std::optional<Path>> nearest(machine.gpus.size());
    for (std::size_t g = 0; g < machine.gpus.size(); ++g) {
        for (std::size_t n = 0; n < machine.nics.size(); ++n) {
            const Path path = machine.gpu_to_nic[g][n];
            if (serves(machine.nics[n], path)) nearest[g] = std::min(nearest[g].value_or(path), path);
        }
    }
    return nearest;
}

/// What lies between the machine's GPUs, in words.
std::string between_gpus(const Machine& machine) {
    std::size_t linked = 0;
    Path farthest = Path::kSelf;
    for (std::size_t a = 0; a < machine.gpus.size(); ++a) {
        for (std::size_t b = 0; b < a; ++b) {
            linked += machine.nvlink[a][b] > 0 ? 1 : 0;
            farthest = std::max(farthest, machine.gpu_to_gpu[a][b]);
        }
    }
    const std::size_t pairs = machine.gpus.size() * (machine.gpus.size() - 1) / 2;
    if (pairs == 0) return "one GPU";
    if (linked == pairs) return "NVLink between all GPUs";
    const std::string far = path_name(farthest);
    return linked > 0 ? "NVLink between some GPUs, else at most " + far
                      : "at most " + far + " between GPUs, no NVLink known";
}

/// Why NCCL can't be used at all; empty if it can.
std::string objection_to_nccl(const Machine& machine, const Surroundings& with) {
    if (!with.device_memory) return "the buffers lie in host memory";
    if (machine.gpus.empty()) return "the machine has no NVIDIA GPU";
    if (!with.cuda.usable) return "CUDA: " + with.cuda.why_not;
    if (!with.nccl.usable) return "NCCL: " + with.nccl.why_not;
    if (with.ranks_per_node > machine.gpus.size()) {
        return "NCCL wants a GPU for each rank: " + std::to_string(with.ranks_per_node) + " ranks share " +
               std::to_string(machine.gpus.size());
    }
    return "";
}

} // namespace

const char* transports_name(Transports transports) {
    switch (transports) {
        case Transports::kMpi:
            return "MPI";
        case Transports::kNccl:
            return "NCCL";
        case Transports::kNcclInsideMpiAcross:
            return "NCCL inside a node, MPI between nodes";
    }
    return "?";
}

TransportChoice choose_transports(const Machine& machine, const Surroundings& with) {
    if (const std::string objection = objection_to_nccl(machine, with); !objection.empty()) {
        return {Transports::kMpi, objection};
    }
    if (with.nodes == 1) return {Transports::kNccl, "one node, " + between_gpus(machine)};
    const std::vector<std::optional<Path>> nics = nearest_nics(machine);
    const auto alone = std::find(nics.begin(), nics.end(), std::nullopt);
    if (alone == nics.end()) {
        const Path farthest = **std::max_element(nics.begin(), nics.end());
        return {Transports::kNccl, std::string("each GPU has an RDMA NIC at most ") + path_name(farthest) +
                                       " away, which sends from its memory"};
    }
    const std::string why =
        "GPU" + std::to_string(alone - nics.begin()) + " has no RDMA NIC that is up under its own host bridge";
    if (with.ranks_per_node == 1) {
        return {Transports::kMpi, why + ", and one rank per node leaves NCCL nothing to do inside"};
    }
    return {Transports::kNcclInsideMpiAcross, why + "; inside a node: " + between_gpus(machine)};
}

} // namespace onebit
