// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/status.hpp"

namespace onebit {

/// Reads a whole file, at most `most` bytes of it. IO with the file's name and the system's reason where that fails.
Status read_file(const std::string& name, std::size_t most, std::vector<std::byte>* bytes);

/// A file that is written anew beside its earlier contents, which stay until the new ones are wanted: write, replace,
/// keep. Whatever was not kept is undone by the destructor. A crash leaves the earlier contents under the file's own
/// name or, if it falls between replace and keep, under `name`.previous.
class ReplacedFile {
  public:
    explicit ReplacedFile(const std::string& name);
    ~ReplacedFile();
    ReplacedFile(const ReplacedFile&) = delete;
    ReplacedFile& operator=(const ReplacedFile&) = delete;

    /// Writes `name`.new; on disk when the call returns.
    Status write(std::span<const std::byte> bytes);
    /// Moves the earlier file, if there is one, to `name`.previous, and `name`.new to `name`. Doesn't throw.
    Status replace();
    /// Removes `name`.previous.
    void keep();

  private:
    enum class Step { kNothing, kWritten, kMovedAway, kReplaced, kKept };

    const std::string name_;
    const std::string new_name_;
    const std::string previous_name_;
    const std::string folder_;
    Step step_ = Step::kNothing;
    bool had_earlier_ = false;
};

} // namespace onebit
