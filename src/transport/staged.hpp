// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "core/cuda/device.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// A transport whose messages may lie in a GPU's memory, in order with a stream: a message is sent with what earlier
/// work has put there, and later work sees what has been received. Nothing waits for the device: an exchange whose bits
/// aren't there yet has simply not begun. Made of a transport that reaches the host's memory alone: then messages stop
/// over in pinned memory, which for bits is 1/32 of the data on its way through PCIe; or `direct`, of one that
/// reaches_devices(), which knows nothing of streams.
std::unique_ptr<Transport> make_staged_transport(std::unique_ptr<Transport> inner, cuda::Stream stream,
                                                 bool direct = false);

} // namespace onebit
