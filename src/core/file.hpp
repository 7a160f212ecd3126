// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/status.hpp"

namespace onebit {

/// Whole files, on disk when the call returns. IO with the file's name and the system's reason where one fails.
Status write_file(const std::string& name, std::span<const std::byte> bytes);
Status read_file(const std::string& name, std::vector<std::byte>* bytes);

/// Gives `temporary` the name `name`, replacing what had it, in one step that a crash can't halve.
Status replace_file(const std::string& temporary, const std::string& name);

} // namespace onebit
