// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/status.hpp"

namespace onebit {

/// An address of a host and, where a rank listens there, a port. In the form that ranks tell each other.
struct Address {
    std::uint16_t family = 0; ///< AF_INET or AF_INET6; 0: none
    std::uint16_t port = 0;   ///< in the host's byte order
    std::uint32_t prefix = 0; ///< bits that the hosts of its network have in common
    std::array<std::uint8_t, 16> bytes{};

    /// Whether the other one is of the same network.
    bool reaches(const Address& other) const;
};

/// "10.0.0.1", with a port "10.0.0.1:4711" or "[fd00::1]:4711".
std::string to_string(const Address& address);

/// Writes the system's form of it. Returns its length.
socklen_t to_system(const Address& address, sockaddr_storage* storage);
std::uint16_t port_of(const sockaddr_storage& storage);

/// Addresses at which peers may reach this host, in the system's order. `interface` names a network interface, or is
/// one of this host's addresses: only those. "": all except loopback and those of containers' bridges; loopback where
/// there are no others. INVALID_ARGUMENT where `interface` is none of this host's; the message lists the addresses.
/// TRANSPORT where no interface is up.
Status find_own_addresses(const std::string& interface, std::vector<Address>* addresses);
/// This host's loopback; family 0 where that is down.
Address find_loopback();

/// The address of `own` to listen at: the first that is in a network with each of `others`, the hosts' lists of
/// addresses; else the first.
Address choose_address(std::span<const Address> own, std::span<const std::vector<Address>> others);

} // namespace onebit
