// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hwloc.h>

#include "core/status.hpp"

namespace onebit {

/// What we call of hwloc, so that libonebit loads and works where hwloc's library is missing. A build needs only
/// hwloc's header. Only those inline functions of hwloc may be used that don't call the library.
struct HwlocCalls {
    decltype(&hwloc_get_api_version) get_api_version = nullptr;
    decltype(&hwloc_topology_init) topology_init = nullptr;
    decltype(&hwloc_topology_destroy) topology_destroy = nullptr;
    decltype(&hwloc_topology_set_io_types_filter) set_io_types_filter = nullptr;
    decltype(&hwloc_topology_set_flags) set_flags = nullptr;
    decltype(&hwloc_topology_set_xml) set_xml = nullptr;
    decltype(&hwloc_topology_load) load = nullptr;
    decltype(&hwloc_get_type_depth) type_depth = nullptr;
    decltype(&hwloc_get_nbobjs_by_depth) count_by_depth = nullptr;
    decltype(&hwloc_get_obj_by_depth) object_by_depth = nullptr;
    decltype(&hwloc_bitmap_isincluded) is_included = nullptr;
    decltype(&hwloc_bitmap_iszero) is_zero = nullptr;
    decltype(&hwloc_distances_get_by_name) distances_by_name = nullptr;
    decltype(&hwloc_distances_release) release_distances = nullptr;
};

/// Fills the table from the library of that name, which stays loaded. UNSUPPORTED, with the reason in words, where it
/// can't be loaded, is of another ABI than the header or lacks a function.
Status load_hwloc(const char* library, HwlocCalls* calls);

/// The table of libhwloc.so.15, of the one that the process has already loaded, if any. Loaded once. From any thread.
Status find_hwloc(const HwlocCalls** calls);

} // namespace onebit
