// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/nodes.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <string>

#include "core/file.hpp"
#include "core/hash.hpp"

namespace onebit {

std::uint64_t host_identity(const char* name) {
    // The boot id changes with each start of a machine. A stream would hide lack of memory, and give another identity.
    const Descriptor boot(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
    std::array<char, 64> id{};
    const ssize_t length = read(boot.get(), id.data(), id.size() - 1);
    std::string identity(id.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
    identity = identity.substr(0, identity.find('\n')).append("@").append(name);
    return hash_bytes(identity.data(), identity.size());
}

std::uint64_t host_identity() {
    std::array<char, 256> name{};
    if (gethostname(name.data(), name.size() - 1) != 0) name[0] = '\0';
    return host_identity(name.data());
}

} // namespace onebit
