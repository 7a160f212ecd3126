// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/addresses.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

namespace onebit {
namespace {

/// One line of the system's list.
struct Found {
    std::string interface;
    bool loopback = false;
    Address address;
};

/// False for an address that peers can't reach.
bool from_system(const sockaddr* system, Address* address) {
    if (system == nullptr) return false;
    address->family = system->sa_family;
    if (system->sa_family == AF_INET) {
        std::memcpy(address->bytes.data(), &reinterpret_cast<const sockaddr_in*>(system)->sin_addr, 4);
        return true;
    }
    if (system->sa_family != AF_INET6) return false;
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(system)->sin6_addr;
    std::memcpy(address->bytes.data(), &v6, 16);
    return !IN6_IS_ADDR_LINKLOCAL(&v6); // needs an interface's name on the peer's side
}

std::uint32_t prefix_of(const sockaddr* netmask) {
    Address mask;
    if (!from_system(netmask, &mask)) return 0;
    std::uint32_t bits = 0;
    for (const std::uint8_t byte : mask.bytes) bits += static_cast<std::uint32_t>(__builtin_popcount(byte));
    return bits;
}

/// Of interfaces that are up; IPv4 first.
std::vector<Found> list_addresses() {
    ifaddrs* all = nullptr;
    if (getifaddrs(&all) != 0) return {};
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, freeifaddrs);
    std::vector<Found> found;
    for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next) {
        constexpr unsigned kUp = IFF_UP | IFF_RUNNING;
        Found one = {i->ifa_name, (i->ifa_flags & IFF_LOOPBACK) != 0, {}};
        if ((i->ifa_flags & kUp) != kUp || !from_system(i->ifa_addr, &one.address)) continue;
        one.address.prefix = prefix_of(i->ifa_netmask);
        found.push_back(std::move(one));
    }
    std::stable_partition(found.begin(), found.end(), [](const Found& f) { return f.address.family == AF_INET; });
    return found;
}

/// Many hosts have the same ones, and other hosts can't reach them.
bool is_of_containers(const std::string& interface) {
    constexpr std::array kPrefixes = {"docker", "br-", "virbr", "veth", "cni", "flannel", "lxc", "podman"};
    return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                       [&](const char* prefix) { return interface.starts_with(prefix); });
}

std::string describe(const std::vector<Found>& found) {
    std::string text;
    for (const Found& f : found) text += (text.empty() ? "" : ", ") + f.interface + " (" + to_string(f.address) + ")";
    return text.empty() ? "none" : text;
}

} // namespace

bool Address::reaches(const Address& other) const {
    if (family != other.family) return false;
    for (std::uint32_t bit = 0; bit < prefix; bit += 8) {
        const unsigned left = std::min(prefix - bit, 8U);
        const auto mask = static_cast<std::uint8_t>(0xFF00U >> left);
        if (((bytes[bit / 8] ^ other.bytes[bit / 8]) & mask) != 0) return false;
    }
    return true;
}

std::string to_string(const Address& address) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (inet_ntop(address.family, address.bytes.data(), text.data(), text.size()) == nullptr) return "no address";
    if (address.port == 0) return text.data();
    std::array<char, INET6_ADDRSTRLEN + 10> with_port{};
    std::snprintf(with_port.data(), with_port.size(), address.family == AF_INET ? "%s:%u" : "[%s]:%u", text.data(),
                  static_cast<unsigned>(address.port));
    return with_port.data();
}

socklen_t to_system(const Address& address, sockaddr_storage* storage) {
    *storage = {};
    storage->ss_family = address.family;
    if (address.family == AF_INET) {
        auto& v4 = reinterpret_cast<sockaddr_in&>(*storage);
        v4.sin_port = htons(address.port);
        std::memcpy(&v4.sin_addr, address.bytes.data(), 4);
        return sizeof(v4);
    }
    auto& v6 = reinterpret_cast<sockaddr_in6&>(*storage);
    v6.sin6_port = htons(address.port);
    std::memcpy(&v6.sin6_addr, address.bytes.data(), 16);
    return sizeof(v6);
}

std::uint16_t port_of(const sockaddr_storage& storage) {
    return storage.ss_family == AF_INET ? ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port)
                                        : ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
}

Status find_own_addresses(const std::string& interface, std::vector<Address>* addresses) {
    const std::vector<Found> all = list_addresses();
    const auto keep = [&](const auto& wanted) {
        for (const Found& found : all) {
            if (wanted(found)) addresses->push_back(found.address);
        }
        return !addresses->empty();
    };
    if (!interface.empty()) {
        if (keep([&](const Found& f) { return f.interface == interface || to_string(f.address) == interface; })) {
            return {};
        }
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "interface '%s': this host has no such network interface or address that is up; it has %s",
                             interface.c_str(), describe(all).c_str());
    }
    if (keep([](const Found& f) { return !f.loopback && !is_of_containers(f.interface); })) return {};
    if (keep([](const Found& f) { return f.loopback; })) return {};
    return Status::error(ONEBIT_ERROR_TRANSPORT, "this host has no network interface that is up");
}

Address find_loopback() {
    for (const Found& found : list_addresses()) {
        if (found.loopback) return found.address;
    }
    return {};
}

Address choose_address(std::span<const Address> own, std::span<const std::vector<Address>> others) {
    for (const Address& candidate : own) {
        const bool reaches_all = std::all_of(others.begin(), others.end(), [&](const std::vector<Address>& host) {
            return std::any_of(host.begin(), host.end(), [&](const Address& a) { return candidate.reaches(a); });
        });
        if (reaches_all) return candidate;
    }
    return own.front();
}

} // namespace onebit
