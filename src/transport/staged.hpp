// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "core/cuda/device.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// A transport whose messages may lie in a GPU's memory, in order with a stream: a message is sent with what earlier
/// work has put there, and later work sees what has been received. Nothing waits for the device: an exchange whose bits
/// aren't there yet has simply not begun. If `inner` reaches the host's memory alone, messages are copied through
/// pinned memory: for bits, 1/32 of the data goes through PCIe. With `direct`, `inner` reaches_devices(), but knows
/// nothing of streams.
std::unique_ptr<Transport> make_staged_transport(std::unique_ptr<Transport> inner, cuda::Stream stream,
                                                 bool direct = false);

} // namespace onebit
