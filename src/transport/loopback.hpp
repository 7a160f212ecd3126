// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "transport/transport.hpp"

namespace onebit {

/// Transports whose ranks are threads of this process; element r of the result is rank r's.
std::vector<std::unique_ptr<Transport>> make_loopback_transports(int ranks);

} // namespace onebit
