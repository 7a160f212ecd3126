// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/hwloc_calls.hpp"

#include "core/shared_library.hpp"

namespace onebit {
namespace {

constexpr const char* kLibrary = "libhwloc.so.15"; // the library of hwloc 2
static_assert(HWLOC_API_VERSION >> 16 == 2);

} // namespace

// The library's symbols stay private, because the program may have another hwloc. So hwloc can't take its plugins,
// unless the program itself has loaded hwloc globally. Sockets, PCI devices and NICs need no plugins.
Status load_hwloc(const char* library, HwlocCalls* calls) {
    SharedLibrary hwloc(library);
    HwlocCalls found;
    hwloc.required("hwloc_get_api_version", &found.get_api_version);
    ONEBIT_RETURN_IF_ERROR(hwloc.check("hwloc"));
    if (const unsigned major = found.get_api_version() >> 16; major != HWLOC_API_VERSION >> 16) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED, "hwloc: %s is of hwloc %u; hwloc %d wanted", library, major,
                             HWLOC_API_VERSION >> 16);
    }
    hwloc.required("hwloc_topology_init", &found.topology_init);
    hwloc.required("hwloc_topology_destroy", &found.topology_destroy);
    hwloc.required("hwloc_topology_set_io_types_filter", &found.set_io_types_filter);
    hwloc.required("hwloc_topology_set_flags", &found.set_flags);
    hwloc.required("hwloc_topology_set_xml", &found.set_xml);
    hwloc.required("hwloc_topology_load", &found.load);
    hwloc.required("hwloc_get_type_depth", &found.type_depth);
    hwloc.required("hwloc_get_nbobjs_by_depth", &found.count_by_depth);
    hwloc.required("hwloc_get_obj_by_depth", &found.object_by_depth);
    hwloc.required("hwloc_bitmap_isincluded", &found.is_included);
    hwloc.required("hwloc_bitmap_iszero", &found.is_zero);
    hwloc.required("hwloc_distances_get_by_name", &found.distances_by_name);
    hwloc.required("hwloc_distances_release", &found.release_distances);
    ONEBIT_RETURN_IF_ERROR(hwloc.check("hwloc"));
    hwloc.keep_open(); // topologies may be in use until the process ends
    *calls = found;
    return {};
}

Status find_hwloc(const HwlocCalls** calls) {
    struct Loaded {
        HwlocCalls calls;
        Status status = load_hwloc(kLibrary, &calls);
    };
    static const Loaded kLoaded;
    *calls = &kLoaded.calls;
    return kLoaded.status;
}

} // namespace onebit
