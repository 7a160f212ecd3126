// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "collectives/call/algorithm.hpp"
#include "collectives/communicator/node_groups.hpp"
#include "core/config.hpp"
#include "numeric/arithmetic.hpp"
#include "numeric/elements.hpp"
#include "numeric/search.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// Where the values of a handle lie, and what works on them there: all that a handle needs from a kind of memory.
class MemoryBackend {
  public:
    virtual ~MemoryBackend() = default;

    virtual Memory& memory() const { return host_memory(); }
    /// UNSUPPORTED while no call may begin: while a GPU's stream is captured. Says so before anything is touched.
    virtual Status check_ready() const { return {}; }
    /// INVALID_ARGUMENT, naming the buffer, unless the caller's buffer begins in this memory.
    virtual Status check_buffer(const void* buffer, const char* name) const = 0;
    /// Turns the communicator's channel, `*channel`, into one whose messages may lie here. Local. UNSUPPORTED where
    /// that is impossible the way that the environment asks for.
    virtual Status reach(const Environment& environment, std::unique_ptr<Transport>* channel) const = 0;
    virtual std::unique_ptr<Arithmetic> make_arithmetic(unsigned threads) const = 0;
    virtual std::unique_ptr<Search> make_search(const Elements& elements) const = 0;
    /// The exact average over the channel's ranks, which are on these nodes. It alone uses the channel's tags from
    /// `tag` on. Local.
    virtual Status make_dense(Transport& channel, const NodeGroups& nodes, const Elements& elements, std::size_t count,
                              unsigned threads, int tag, std::unique_ptr<Algorithm>* dense) const = 0;
    /// Waits for all work on this memory that the backend was given, where work may go on after a call.
    virtual Status settle() const { return {}; }

    /// Called before and after a thread uses what was made here. A GPU must be the current one.
    virtual void enter() const {}
    virtual void leave() const {}
};

/// While an Entered exists, this thread may use what a backend has made.
class Entered {
  public:
    explicit Entered(std::shared_ptr<const MemoryBackend> backend) : backend_(std::move(backend)) { backend_->enter(); }
    ~Entered() { backend_->leave(); }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;

  private:
    std::shared_ptr<const MemoryBackend> backend_;
};

/// The host's memory, or a GPU's with its work in `stream`, a cudaStream_t. Local. UNSUPPORTED where this build, or
/// this machine, has no GPU.
Status make_memory_backend(onebit_memory_t memory, void* stream, std::shared_ptr<const MemoryBackend>* backend);

// For GPUs, defined in cuda/cuda_memory_backend.cpp, or in cuda/no_cuda.cpp where there is no CUDA.

Status make_cuda_backend(void* stream, std::shared_ptr<const MemoryBackend>* backend);
/// Whether this program uses CUDA at all, so that addresses may be of a GPU's memory.
bool has_cuda_addresses();
/// Whether an address is in a GPU's memory that the processor can't reach.
bool is_on_device(const void* address);

} // namespace onebit
