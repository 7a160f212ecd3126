// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/status.hpp"

namespace onebit {

/// A path as a message shows it: whole, or without its middle, so that the rest of the message is not cut off.
std::string shown(const std::string& path, std::size_t most = 120);

/// Whether anything has this name. A symbolic link counts itself, not its target.
bool file_exists(const std::string& name);

/// `base` + `suffix` as the name of a file beside `path`'s own; where that is longer than names may be there, `base` is
/// cut, and a hash of it is added.
std::string name_beside(const std::string& path, const std::string& suffix);

/// A file descriptor that closes itself.
class Descriptor {
  public:
    explicit Descriptor(int descriptor = -1) : descriptor_(descriptor) {}
    ~Descriptor();
    Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(descriptor_, other.descriptor_);
        return *this;
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;

    bool is_open() const { return descriptor_ >= 0; }
    int get() const { return descriptor_; }

  private:
    int descriptor_;
};

/// A regular file that is open for reading.
class InputFile {
  public:
    /// IO with the file's name and the system's reason. Anything else of that name (a FIFO, a device, a folder) is
    /// refused at once.
    Status open(const std::string& name);
    bool is_open() const { return file_.is_open(); }
    const std::string& name() const { return name_; }
    std::uint64_t size() const { return size_; }
    /// Its first bytes, at most `most`; fewer where the file has been cut meanwhile.
    Status read(std::size_t most, std::vector<std::byte>* bytes) const;

  private:
    std::string name_;
    Descriptor file_;
    std::uint64_t size_ = 0;
};

/// Reads a whole file, at most `most` bytes of it. As InputFile.
Status read_file(const std::string& name, std::size_t most, std::vector<std::byte>* bytes);

/// A file that is written anew beside its earlier contents, which stay until the new ones are wanted: write, replace,
/// keep. The destructor undoes what was not kept. Until keep() is called, the earlier contents are always under the
/// file's own name or under previous_name().
///
/// The new contents are written to a new file of an unpredictable name, for the owner alone; no symbolic link is
/// followed. Files that dead writers of this file have left are removed.
class ReplacedFile {
  public:
    /// `mode`: of the new file, minus the process's umask.
    explicit ReplacedFile(const std::string& name, unsigned mode = 0600);
    ~ReplacedFile();
    ReplacedFile(const ReplacedFile&) = delete;
    ReplacedFile& operator=(const ReplacedFile&) = delete;

    static std::string previous_name(const std::string& name) { return name_beside(name, ".previous"); }

    /// On disk when the call returns, but not yet under the file's name.
    Status write(std::span<const std::byte> bytes);
    /// Moves the earlier file, if there is one, to previous_name(), and the new one to the file's name.
    /// `previous_stays`: the contents to go back to are those at previous_name() already. Throws where there is no
    /// memory for the message of an error.
    Status replace(bool previous_stays = false);
    /// Removes the earlier contents.
    void keep();
    /// All of it at once, if going back is not needed: previous_name() isn't used. Throws as replace() does.
    Status replace_for_good();
    /// Undoes nothing and removes nothing from now on: for a replaced file of which it is unknown whether it is wanted.
    void leave();

  private:
    enum class Step { kNothing, kWritten, kMovedAway, kReplaced, kKept };

    Status create();
    void remove_leftovers() const;

    const std::string path_; ///< for messages
    const std::string name_; ///< in its folder, like the names below
    const std::string previous_;
    std::string new_name_;
    const unsigned mode_;
    Descriptor folder_;
    Step step_ = Step::kNothing;
    bool had_earlier_ = false;
};

/// What tests call before each call that changes a file or a folder; NULL: nothing.
extern void (*before_file_change)(const char* what);

} // namespace onebit
