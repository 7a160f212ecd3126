// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/machine.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "core/file.hpp"
#include "topology/hwloc_calls.hpp"

namespace onebit {
namespace {

constexpr unsigned kNvidia = 0x10de;
constexpr unsigned kDisplayController = 0x03; // the upper byte of a PCI class

/// A topology of hwloc's, and the inline functions of hwloc that are used here, by the table of its functions.
class Topology {
  public:
    Topology() = default;
    Topology(const HwlocCalls& calls, hwloc_topology_t made) : calls_(&calls), made_(made, calls.topology_destroy) {}

    const HwlocCalls& calls() const { return *calls_; }
    hwloc_topology_t get() const { return made_.get(); }

    std::vector<hwloc_obj_t> all(hwloc_obj_type_t type) const {
        std::vector<hwloc_obj_t> objects;
        const int depth = calls_->type_depth(get(), type);
        if (depth == HWLOC_TYPE_DEPTH_UNKNOWN || depth == HWLOC_TYPE_DEPTH_MULTIPLE) return objects;
        const unsigned count = calls_->count_by_depth(get(), depth);
        for (unsigned i = 0; i < count; ++i) objects.push_back(calls_->object_by_depth(get(), depth, i));
        return objects;
    }

    std::size_t cores_inside(hwloc_const_cpuset_t set) const {
        const std::vector<hwloc_obj_t> cores = all(HWLOC_OBJ_CORE);
        return static_cast<std::size_t>(std::count_if(cores.begin(), cores.end(), [&](hwloc_obj_t core) {
            return calls_->is_included(core->cpuset, set) != 0 && calls_->is_zero(core->cpuset) == 0;
        }));
    }

  private:
    const HwlocCalls* calls_ = nullptr;
    std::unique_ptr<hwloc_topology, void (*)(hwloc_topology_t)> made_{nullptr, nullptr};
};

/// The major version of the hwloc that wrote a dump; 1 where the dump doesn't say. Older ones than ours can be read.
Status check_dump(const char* xml) {
    constexpr std::size_t kHead = 4096; // the version is in the first element
    std::vector<std::byte> bytes;
    Status read = read_file(xml, kHead, &bytes); // hwloc would wait for a FIFO's writer
    if (!read.ok()) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s", read.message().c_str());
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::size_t element = text.find("<topology");
    const std::size_t end = text.find('>', std::min(element, text.size()));
    const std::size_t version = text.find("version=\"", std::min(element, text.size()));
    if (version >= end) return {};
    const int major = std::atoi(text.c_str() + version + std::strlen("version=\""));
    constexpr int kOwn = HWLOC_API_VERSION >> 16;
    if (major <= kOwn) return {};
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s: this file is of hwloc %d, this onebit_info reads hwloc %d",
                         shown(xml).c_str(), major, kOwn);
}

Status load(const HwlocCalls& calls, const char* xml, Topology* loaded) {
    hwloc_topology_t made = nullptr;
    if (calls.topology_init(&made) != 0) {
        return Status::error(ONEBIT_ERROR_OUT_OF_MEMORY, "hwloc has no memory for a topology");
    }
    Topology topology(calls, made);
    calls.set_io_types_filter(made, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    // Else a process that may use only one socket would see the other socket's devices near none.
    calls.set_flags(made, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    const bool dump = xml != nullptr && *xml != '\0';
    if (dump) ONEBIT_RETURN_IF_ERROR(check_dump(xml));
    errno = 0;
    if (dump && calls.set_xml(made, xml) != 0) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s: hwloc can't read this as its XML (%s)",
                             shown(xml).c_str(), std::strerror(errno));
    }
    if (calls.load(made) != 0) {
        if (dump)
            return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s: the topology in it is damaged",
                                 shown(xml).c_str());
        return Status::error(ONEBIT_ERROR_TRANSPORT, "hwloc can't read this machine: %s", std::strerror(errno));
    }
    *loaded = std::move(topology);
    return {};
}

/// A dump's text, for people's terminals: question marks replace control characters.
std::string printable(const char* text, const char* otherwise) {
    std::string words = text == nullptr || *text == '\0' ? otherwise : text;
    std::ranges::replace_if(
        words, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
    return words;
}

std::string bus_id(const hwloc_obj_attr_u::hwloc_pcidev_attr_s& pci) {
    char text[32];
    std::snprintf(text, sizeof(text), "%04x:%02x:%02x.%01x", static_cast<unsigned>(pci.domain), pci.bus, pci.dev,
                  pci.func);
    return text;
}

/// An enumerator as a number: a dump may have one that hwloc's type does not.
template <typename Enum>
unsigned number_of(const Enum& value) {
    unsigned number = 0;
    static_assert(sizeof(number) == sizeof(value));
    std::memcpy(&number, &value, sizeof(number));
    return number;
}

/// The PCI device that a device of the operating system belongs to; NULL if none.
hwloc_obj_t pci_of(hwloc_obj_t object) {
    while (object != nullptr && object->type != HWLOC_OBJ_PCI_DEVICE) object = object->parent;
    return object;
}

int socket_of(const Topology& topology, hwloc_obj_t object) {
    if (topology.all(HWLOC_OBJ_PACKAGE).size() == 1) return 0;
    hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology.get(), object);
    while (near != nullptr && near->type != HWLOC_OBJ_PACKAGE) near = near->parent;
    return near == nullptr ? Machine::kNoSocket : static_cast<int>(near->logical_index);
}

/// The objects from a device up to the machine.
std::vector<hwloc_obj_t> way_up(hwloc_obj_t device) {
    std::vector<hwloc_obj_t> way;
    for (hwloc_obj_t at = device; at != nullptr; at = at->parent) way.push_back(at);
    return way;
}

/// Ports of a switch are bridges themselves: two devices of one switch meet in a bridge with at most one below it on
/// each side.
Path path_between(const Topology& topology, hwloc_obj_t a, hwloc_obj_t b) {
    if (a == b) return Path::kSelf;
    const std::vector<hwloc_obj_t> from_a = way_up(a);
    const std::vector<hwloc_obj_t> from_b = way_up(b);
    for (std::size_t i = 0; i < from_a.size(); ++i) {
        const auto met = std::find(from_b.begin(), from_b.end(), from_a[i]);
        if (met == from_b.end()) continue;
        const hwloc_obj_t common = *met;
        if (common->type == HWLOC_OBJ_BRIDGE) {
            if (common->attr == nullptr || number_of(common->attr->bridge.upstream_type) == HWLOC_OBJ_BRIDGE_HOST)
                return Path::kPhb;
            const auto j = static_cast<std::size_t>(met - from_b.begin());
            return std::max(i, j) <= 2 ? Path::kPix : Path::kPxb;
        }
        return socket_of(topology, common) == Machine::kNoSocket ? Path::kSys : Path::kNode;
    }
    return Path::kSys;
}

/// Devices in the order of their bus ids, with hwloc's objects beside them.
template <typename Device>
struct Found {
    std::vector<std::pair<hwloc_obj_t, Device>> devices;

    void sort() {
        std::sort(devices.begin(), devices.end(),
                  [](const auto& a, const auto& b) { return a.second.bus_id < b.second.bus_id; });
    }
    std::vector<Device> plain() const {
        std::vector<Device> all;
        for (const auto& [object, device] : devices) all.push_back(device);
        return all;
    }
};

Found<Machine::Gpu> find_gpus(const Topology& topology) {
    Found<Machine::Gpu> found;
    for (const hwloc_obj_t pci : topology.all(HWLOC_OBJ_PCI_DEVICE)) {
        if (pci->attr == nullptr) continue;
        const hwloc_obj_attr_u::hwloc_pcidev_attr_s& attributes = pci->attr->pcidev;
        if (attributes.vendor_id != kNvidia || attributes.class_id >> 8 != kDisplayController) continue;
        const char* name = hwloc_obj_get_info_by_name(pci, "PCIDevice");
        found.devices.push_back({pci, {printable(name, "GPU"), bus_id(attributes), socket_of(topology, pci)}});
    }
    found.sort();
    return found;
}

/// Whether some port is active (4, says InfiniBand), or nothing is known of its ports.
bool is_up(hwloc_obj_t rdma_device) {
    bool known = false;
    for (unsigned port = 1;; ++port) {
        const std::string name = "Port" + std::to_string(port) + "State";
        const char* state = hwloc_obj_get_info_by_name(rdma_device, name.c_str());
        if (state == nullptr) return !known;
        if (std::strcmp(state, "4") == 0) return true;
        known = true;
    }
}

/// One for each PCI device that has a network interface, whatever number of names the operating system has for it.
Found<Machine::Nic> find_nics(const Topology& topology) {
    Found<Machine::Nic> found;
    for (const hwloc_obj_t os : topology.all(HWLOC_OBJ_OS_DEVICE)) {
        if (os->attr == nullptr) continue;
        const unsigned type = number_of(os->attr->osdev.type);
        const bool rdma = type == HWLOC_OBJ_OSDEV_OPENFABRICS;
        if (!rdma && type != HWLOC_OBJ_OSDEV_NETWORK) continue;
        const hwloc_obj_t pci = pci_of(os);
        if (pci == nullptr || pci->attr == nullptr) continue;
        auto known = std::find_if(found.devices.begin(), found.devices.end(),
                                  [&](const auto& device) { return device.first == pci; });
        if (known == found.devices.end()) {
            found.devices.push_back({pci, {"", bus_id(pci->attr->pcidev), false, true, socket_of(topology, pci)}});
            known = found.devices.end() - 1;
        }
        Machine::Nic& nic = known->second;
        if (nic.name.empty() || rdma) nic.name = printable(os->name, "NIC");
        if (rdma) {
            nic.up = is_up(os) || (nic.rdma && nic.up);
            nic.rdma = true;
        }
    }
    found.sort();
    return found;
}

template <typename Device>
std::vector<std::vector<Path>> paths(const Topology& topology, const Found<Machine::Gpu>& from,
                                     const Found<Device>& to) {
    std::vector<std::vector<Path>> rows;
    for (const auto& [a, gpu] : from.devices) {
        rows.emplace_back();
        for (const auto& [b, device] : to.devices) rows.back().push_back(path_between(topology, a, b));
    }
    return rows;
}

/// Known where hwloc, or a dump's hwloc, was built with NVML. Two GPUs that are linked only to switches have between
/// them the lesser of their bandwidths to all switches.
std::vector<std::vector<std::uint64_t>> find_nvlink(const Topology& topology, const Found<Machine::Gpu>& gpus) {
    const std::size_t n = gpus.devices.size();
    std::vector<std::vector<std::uint64_t>> rates(n, std::vector<std::uint64_t>(n, 0));
    hwloc_distances_s* found = nullptr;
    unsigned count = 1;
    if (topology.calls().distances_by_name(topology.get(), "NVLinkBandwidth", &count, &found, 0) != 0 || count == 0)
        return rates;
    const auto index_of = [&](hwloc_obj_t object) {
        const auto gpu = std::find_if(gpus.devices.begin(), gpus.devices.end(),
                                      [&](const auto& device) { return device.first == pci_of(object); });
        return static_cast<std::size_t>(gpu - gpus.devices.begin());
    };
    std::vector<std::uint64_t> to_switches(n, 0);
    for (unsigned i = 0; i < found->nbobjs; ++i) {
        const std::size_t a = index_of(found->objs[i]);
        for (unsigned j = 0; a < n && j < found->nbobjs; ++j) {
            const std::uint64_t rate = found->values[i * found->nbobjs + j];
            const std::size_t b = index_of(found->objs[j]);
            if (found->objs[j] == nullptr) continue;
            const char* const kind = found->objs[j]->subtype;
            if (b < n) {
                rates[a][b] = a == b ? 0 : rate;
            } else if (kind != nullptr && std::strcmp(kind, "NVSwitch") == 0) {
                to_switches[a] += rate;
            }
        }
    }
    topology.calls().release_distances(topology.get(), found);
    for (std::size_t a = 0; a < n; ++a) {
        for (std::size_t b = 0; b < n; ++b) {
            if (a != b && rates[a][b] == 0) rates[a][b] = std::min(to_switches[a], to_switches[b]);
        }
    }
    return rates;
}

} // namespace

Status read_machine(const char* xml, Machine* machine) {
    const HwlocCalls* hwloc = nullptr;
    ONEBIT_RETURN_IF_ERROR(find_hwloc(&hwloc));
    Topology topology;
    ONEBIT_RETURN_IF_ERROR(load(*hwloc, xml, &topology));
    Machine read;
    constexpr int kRootDepth = 0;
    const char* host = hwloc_obj_get_info_by_name(hwloc->object_by_depth(topology.get(), kRootDepth, 0), "HostName");
    read.host = printable(host, "this machine");
    for (const hwloc_obj_t socket : topology.all(HWLOC_OBJ_PACKAGE)) {
        read.sockets.push_back({socket->cpuset == nullptr ? 0 : topology.cores_inside(socket->cpuset)});
    }
    const Found<Machine::Gpu> gpus = find_gpus(topology);
    const Found<Machine::Nic> nics = find_nics(topology);
    read.gpus = gpus.plain();
    read.nics = nics.plain();
    read.gpu_to_gpu = paths(topology, gpus, gpus);
    read.gpu_to_nic = paths(topology, gpus, nics);
    read.nvlink = find_nvlink(topology, gpus);
    *machine = std::move(read);
    return {};
}

} // namespace onebit
