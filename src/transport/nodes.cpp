// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/nodes.hpp"

#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

#include "core/hash.hpp"

namespace onebit {

std::uint64_t host_identity(const char* name) {
    std::string identity;
    std::ifstream boot("/proc/sys/kernel/random/boot_id"); // another after each start of a machine
    std::getline(boot, identity);
    identity.append("@").append(name);
    return hash_bytes(identity.data(), identity.size());
}

std::uint64_t host_identity() {
    std::array<char, 256> name{};
    if (gethostname(name.data(), name.size() - 1) != 0) name[0] = '\0';
    return host_identity(name.data());
}

} // namespace onebit
