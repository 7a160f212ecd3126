// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "collectives/operation/collective.hpp"
#include "core/status.hpp"

namespace onebit {

/// Saving and loading of a collective's error state; docs/WIRE_FORMAT.md, "Saved state", has the layout. All of these
/// need an idle handle; onebit.h says which are collective.

/// Bytes of this rank's saved state.
std::size_t state_size(const Collective& collective);

/// Local. `bytes` at least state_size.
Status pack_state(Collective& collective, void* buffer, std::size_t bytes);

/// Collective. Nothing changes on any rank unless every rank's bytes are whole and fit its handle.
Status unpack_state(Collective& collective, const void* buffer, std::size_t bytes);

/// Collective: one file per rank, prefix.RANK-of-SIZE.onebit.
Status save_state(Collective& collective, const char* prefix);
Status load_state(Collective& collective, const char* prefix);

} // namespace onebit
