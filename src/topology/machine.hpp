// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/status.hpp"

namespace onebit {

/// What lies between two devices of a machine, nearest first; the names are those of nvidia-smi's topology matrix.
enum class Path {
    kSelf, ///< they are one device
    kPix,  ///< one PCIe switch
    kPxb,  ///< several PCIe switches, but not the processor
    kPhb,  ///< a PCIe host bridge: the processor
    kNode, ///< two host bridges of one socket
    kSys   ///< the link between sockets
};
const char* path_name(Path path);

/// What the choice of transports depends on in a machine: sockets, GPUs, NICs, and what lies between them. Plain data.
struct Machine {
    static constexpr int kNoSocket = -1; ///< near none, or it is unknown near which

    struct Socket {
        std::size_t cores = 0;
    };
    struct Gpu {
        std::string name;   ///< as the PCI device says, or "GPU"
        std::string bus_id; ///< PCI domain, bus, device and function: "0000:12:00.0"
        int socket = kNoSocket;
    };
    struct Nic {
        std::string name; ///< the operating system's: "mlx5_0", or "eth0" where there is no better one
        std::string bus_id;
        bool rdma = false; ///< InfiniBand or RoCE: a GPU's memory may be sent without passing through the host's
        bool up = true;    ///< false where all ports are known to be down
        int socket = kNoSocket;
    };

    std::string host;
    std::vector<Socket> sockets;
    std::vector<Gpu> gpus; ///< in the order of their bus ids, as CUDA_DEVICE_ORDER=PCI_BUS_ID counts them
    std::vector<Nic> nics;
    std::vector<std::vector<Path>> gpu_to_gpu;      ///< a row for each GPU
    std::vector<std::vector<Path>> gpu_to_nic;      ///< likewise
    std::vector<std::vector<std::uint64_t>> nvlink; ///< MB/s between two GPUs; 0: none, or hwloc doesn't know
};

/// Reads this machine by hwloc, or with `xml` (not NULL, not empty) another machine's dump, as lstopo writes it. Local;
/// takes tens of milliseconds. INVALID_ARGUMENT for a file that is missing, no such dump or of a newer hwloc, TRANSPORT
/// where hwloc can't read this machine, UNSUPPORTED where hwloc can't be loaded (hwloc_calls.hpp). A dump may be
/// anything; if hwloc crashes on it, the process ends.
Status read_machine(const char* xml, Machine* machine);

/// The machine as a small tree, and the devices' matrix where there are GPUs. Ends with a line feed.
std::string describe(const Machine& machine);

} // namespace onebit
