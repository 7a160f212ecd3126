// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "core/cuda/device.hpp"
#include "transport/nccl_api.hpp"
#include "transport/transport.hpp"

namespace onebit {

// A transport of messages in a GPU's memory, in order with a stream. An exchange or a sum is done as soon as NCCL has
// put it into the stream, because work that uses the bytes comes later in the same stream. Messages in the host's
// memory (agreements, handshakes) are copied through the GPU's; an exchange with such messages is done when their bytes
// are in their place. Testing a finished operation again tells what has gone wrong since.
//
// What callers owe it:
// - NCCL and the stream carry out their work in the order in which they are given it. So all ranks must start the
//   exchanges and sums of a channel in the same order, and also those of all channels on one stream. Tags mean nothing
//   here. An order that depends on when a test says done isn't the same on all ranks. Channels that come from one
//   channel keep the order among themselves. Two transports that were made separately need a stream each.
// - The caller has no NCCL group open. (The device that is current doesn't matter.)
// - Sums, and what is planned as native, are of values in a GPU's memory.
// - When an exchange must not be waited for any longer: give_up(), or the stream stays stuck.
//
// The table of functions and the stream must outlive the channels. Destroying a channel is collective, and blocks until
// the stream has done all work of the channel. Exchanges and sums may outlive it, but can't be started any more.

/// The GPU of a stream, to be entered. INVALID_ARGUMENT where NCCL's work can't go into that stream. Both functions
/// below check this, but a rank that fails in them leaves the others to their timeouts. Local.
Status open_nccl_device(cuda::Stream stream, std::shared_ptr<const cuda::Device>* device);

/// On a communicator of its own, split off the user's; nothing else may be outstanding on the user's. Collective;
/// blocks: no longer than `timeout` seconds (0: for ever) if the user's is a nonblocking one. Splitting or duplicating
/// a channel waits for the stream, too. INVALID_ARGUMENT where the stream is of another GPU than the user's.
Status make_nccl_transport(const NcclApi& api, nccl::Comm users_comm, cuda::Stream stream, double timeout,
                           std::unique_ptr<Transport>* transport);

/// Between the ranks of `host`, on the stream's GPU. `host` carries NCCL's id to all ranks and isn't needed afterwards.
/// Collective; blocks.
Status bootstrap_nccl_transport(const NcclApi& api, Transport& host, cuda::Stream stream, double timeout,
                                std::unique_ptr<Transport>* transport);

} // namespace onebit
