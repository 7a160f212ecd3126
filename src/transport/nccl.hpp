// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "core/cuda/device.hpp"
#include "transport/nccl_api.hpp"
#include "transport/transport.hpp"

namespace onebit {

// A transport of messages in a GPU's memory, in order with a stream: an exchange, or a sum, is done as soon as NCCL has
// put it into the stream, for whoever uses the bytes comes later in the same stream. Messages in the host's memory
// (agreements, handshakes) stop over in the GPU's; an exchange with any of those is done when their bytes have come to
// their place. Asking a finished operation again tells what has gone wrong since.
//
// What callers owe it:
// - NCCL carries out what it is given in that order, and so does the stream. So all ranks must start the exchanges and
//   sums of a channel in the same order, and those of all channels on one stream too. Tags mean nothing here. An order
//   that hangs on when a test says done is none. Channels that come from one keep the order among themselves; two
//   transports that were made apart need a stream each.
// - No group of the caller's is open. (The device that is current doesn't matter.)
// - Sums, and what is planned as native, are of values in a GPU's memory.
// - An exchange that must not be waited for any longer: give_up(), or the stream stays stuck.
//
// Channels outlive neither the table of functions nor the stream. Destroying one is collective, and blocks until the
// stream has done all it was given through it; exchanges and sums may outlive it, but can't be started any more.

/// The GPU of a stream, to be entered. INVALID_ARGUMENT where NCCL's work can't go there: both functions below check
/// that, but a rank that fails in them leaves the others to their timeouts. Local.
Status open_nccl_device(cuda::Stream stream, std::shared_ptr<const cuda::Device>* device);

/// On a communicator of its own, split off the user's, which nothing else may be outstanding on. Collective; blocks:
/// for no longer than `timeout` seconds (0: for ever) if the user's is one that doesn't block. The stream is also
/// waited for where a channel is split or duplicated. INVALID_ARGUMENT where it is of another GPU than the user's.
Status make_nccl_transport(const NcclApi& api, nccl::Comm users_comm, cuda::Stream stream, double timeout,
                           std::unique_ptr<Transport>* transport);

/// Of the ranks of `host`, which carries NCCL's opening word to all and isn't needed afterwards, on the stream's GPU.
/// Collective; blocks.
Status bootstrap_nccl_transport(const NcclApi& api, Transport& host, cuda::Stream stream, double timeout,
                                std::unique_ptr<Transport>* transport);

} // namespace onebit
