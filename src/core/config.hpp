// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "core/status.hpp"

namespace onebit {

/// How messages in a GPU's memory get to other ranks.
enum class GpuPath {
    kAuto,   ///< as the transport can
    kStaged, ///< through pinned memory of the host
    kDirect, ///< the transport reaches it
};

/// What carries a GPU's values between ranks.
enum class GpuTransport {
    kAuto,       ///< as the topology suggests
    kNccl,       ///< NCCL throughout
    kNcclInNode, ///< NCCL inside a node, the base transport between nodes
    kBase,       ///< the base transport alone
};
/// "auto", "nccl", "nccl_in_node", "base".
const char* gpu_transport_name(GpuTransport transport);

/// The environment variables that onebit knows, read only when a communicator is created. README.md, "Environment",
/// describes each; `config.cpp` has one row for each.
struct Environment {
    std::string kernels; ///< ONEBIT_KERNELS: name of the kernels to use; "" = the best this machine has
    onebit_algorithm_t algorithm = ONEBIT_ALGORITHM_AUTO; ///< ONEBIT_ALGORITHM: what AUTO becomes; AUTO: not forced
    GpuPath gpu_path = GpuPath::kAuto;                    ///< ONEBIT_GPU_PATH: how messages leave a GPU's memory
    GpuTransport gpu_transport = GpuTransport::kAuto;     ///< ONEBIT_GPU_TRANSPORT: of onebit_comm_create_gpu
    std::string nccl_host;        ///< NCCL_HOSTID: NCCL tells hosts apart by it; "": by their names
    std::uint64_t piece = 262144; ///< ONEBIT_PIECE: elements of a pipelined chunk that travel together
    std::uint64_t second_error = std::uint64_t{1} << 22; ///< ONEBIT_SECOND_ERROR: elements from which on there is one
    unsigned node_size = 0;     ///< ONEBIT_NODE_SIZE: ranks that count as one node; 0: those that share memory
    unsigned radix = 0;         ///< ONEBIT_RADIX: of Bruck's algorithm; 0: the one estimated to be quickest
    std::string tuning;         ///< ONEBIT_TUNING: rank 0's tuning table; "" = none
    bool measure = true;        ///< ONEBIT_MEASURE: 0 = AUTO goes by the estimate where there is no table
    bool deterministic = false; ///< ONEBIT_DETERMINISTIC: 1 = AUTO uses nothing that was measured while it ran
    unsigned threads = 1;       ///< ONEBIT_THREADS: threads where a config says 0
    double timeout = 600;       ///< ONEBIT_TIMEOUT: seconds without an answer from a peer; 0 = wait for ever
    std::string interface;      ///< ONEBIT_INTERFACE: network interface of ranks without MPI; "": a rule chooses
    bool tcp_only = false;      ///< ONEBIT_TCP_ONLY: 1 = ranks without MPI use TCP inside a node, too
    bool log = false;           ///< ONEBIT_LOG: 1 = rank 0 writes each choice and its reason to stderr

    using Texts = std::map<std::string, std::string>;
    Texts texts; ///< of the variables that are set, by name
};

/// Reads the environment into a new one. INVALID_ARGUMENT with the variable's name where a value is impossible.
Status read_environment(Environment* environment);

/// As if the variable had been `text` when the environment was read; "": not set. INVALID_ARGUMENT as above, and where
/// there is no such variable; UNSUPPORTED for one that only a communicator's creation uses. On these errors nothing
/// changes.
Status change_environment(const char* name, const char* text, Environment* environment);

/// ONEBIT_TIMEOUT; its default where it has an impossible value, which all ranks hear of later. Needs no memory.
double timeout_of_environment();

/// One more than the last onebit_algorithm_t.
inline constexpr std::size_t kAlgorithms = ONEBIT_ALGORITHM_LEVELS + 1;
/// Likewise for the codecs whose messages any collective sends: all but ONEBIT_CODEC_POWERSGD.
inline constexpr std::size_t kCodecs = ONEBIT_CODEC_RANDOMK + 1;
inline constexpr std::size_t kMemories = ONEBIT_MEMORY_CUDA + 1;
/// "auto", "dense", "flat", "pipelined", "two_level", "bruck", "ring", "levels".
const char* algorithm_name(onebit_algorithm_t algorithm);

} // namespace onebit
