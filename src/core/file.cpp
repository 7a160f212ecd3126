// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "core/file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>

#include "core/hash.hpp"

namespace onebit {

void (*before_file_change)(const char* what) = nullptr;

namespace {

void about_to(const char* what) {
    if (before_file_change != nullptr) before_file_change(what);
}

Status io_error(const char* verb, const std::string& name) {
    const char* const reason = std::strerror(errno);
    return Status::error(ONEBIT_ERROR_IO, "can't %s %s: %s", verb, shown(name).c_str(), reason);
}

Status not_regular(const char* verb, const std::string& name) {
    return Status::error(ONEBIT_ERROR_IO, "can't %s %s: not a regular file", verb, shown(name).c_str());
}

std::string folder_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

std::string base_of(const std::string& path) {
    return path.substr(path.rfind('/') + 1); // npos + 1: from the beginning
}

std::string in_hex(std::uint64_t number) {
    char text[17];
    std::snprintf(text, sizeof(text), "%016" PRIx64, number);
    return text;
}

std::string hash_of(const std::string& name) {
    return in_hex(hash_bytes(name.data(), name.size()));
}

/// The beginning of the names of unfinished files that are to become this one; no longer than any system's names.
std::string unfinished(const std::string& name) {
    return ".onebit-" + hash_of(name) + "-";
}

/// A folder that can't be read is opened only for the names in it.
Descriptor open_folder(const std::string& folder) {
    Descriptor opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (opened.is_open() || errno != EACCES) return opened;
    return Descriptor(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
}

} // namespace

std::string shown(const std::string& path, std::size_t most) {
    if (path.size() <= most) return path;
    const std::size_t front = (most - 3) / 3; // files of one kind differ at the end
    std::string text = path.substr(0, front);
    text.append("...").append(path, path.size() - (most - 3 - front));
    return text;
}

bool file_exists(const std::string& name) {
    struct stat information {};
    return lstat(name.c_str(), &information) == 0;
}

std::string name_beside(const std::string& path, const std::string& suffix) {
    const std::string folder = folder_of(path);
    const std::string base = base_of(path);
    const long known = pathconf(folder.c_str(), _PC_NAME_MAX);
    const std::size_t most = known > 0 ? static_cast<std::size_t>(known) : 255;
    const std::string beside = path.substr(0, path.size() - base.size());
    if (base.size() + suffix.size() <= most) return beside + base + suffix;
    const std::string end = std::string("~").append(hash_of(base)).append(suffix);
    return beside + base.substr(0, most - std::min(most, end.size())) + end;
}

Descriptor::~Descriptor() {
    if (descriptor_ >= 0) close(descriptor_);
}

// --------------------------------------------------------------------------------------------------- reading ----

Status InputFile::open(const std::string& name) {
    name_ = name;
    file_ = Descriptor(
        ::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)); // a FIFO's writer may never come
    struct stat information {};
    // A socket can't be opened at all, and the system's message for that is no help.
    if (!file_.is_open() && errno == ENXIO) return not_regular("read", name);
    if (!file_.is_open() || fstat(file_.get(), &information) != 0) return io_error("read", name);
    if (!S_ISREG(information.st_mode)) {
        file_ = Descriptor();
        return not_regular("read", name);
    }
    size_ = static_cast<std::uint64_t>(information.st_size);
    return {};
}

Status InputFile::read(std::size_t most, std::vector<std::byte>* bytes) const {
    bytes->resize(std::min<std::uint64_t>(most, size_));
    std::size_t filled = 0;
    while (filled < bytes->size()) {
        const ssize_t got =
            pread(file_.get(), bytes->data() + filled, bytes->size() - filled, static_cast<off_t>(filled));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return io_error("read", name_);
        if (got == 0) break; // it shrank meanwhile: the caller sees that it is truncated
        filled += static_cast<std::size_t>(got);
    }
    bytes->resize(filled);
    return {};
}

Status read_file(const std::string& name, std::size_t most, std::vector<std::byte>* bytes) {
    InputFile file;
    ONEBIT_RETURN_IF_ERROR(file.open(name));
    return file.read(most, bytes);
}

// --------------------------------------------------------------------------------------------------- writing ----

ReplacedFile::ReplacedFile(const std::string& name, unsigned mode)
    : path_(name), name_(base_of(name)), previous_(base_of(previous_name(name))), mode_(mode) {}

Status ReplacedFile::create() {
    folder_ = open_folder(folder_of(path_));
    if (!folder_.is_open()) return io_error("create", path_);
    remove_leftovers();
    std::uint64_t random = 0;
    if (getrandom(&random, sizeof(random), 0) != sizeof(random)) return io_error("draw a name for", path_);
    new_name_ = unfinished(name_) + in_hex(random);
    return {};
}

/// Their writers are dead: this file's writer has made sure that nobody else writes it.
void ReplacedFile::remove_leftovers() const {
    const int again = openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); // closedir closes what it reads
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(again < 0 ? nullptr : fdopendir(again), closedir);
    if (folder == nullptr) return;
    const std::string beginning = unfinished(name_);
    while (const dirent* const entry = readdir(folder.get())) {
        if (std::strncmp(entry->d_name, beginning.c_str(), beginning.size()) != 0) continue;
        about_to("remove a leftover");
        unlinkat(folder_.get(), entry->d_name, 0);
    }
}

Status ReplacedFile::write(std::span<const std::byte> bytes) {
    ONEBIT_RETURN_IF_ERROR(create());
    about_to("create");
    const Descriptor file(openat(folder_.get(), new_name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                                 static_cast<mode_t>(mode_)));
    if (!file.is_open()) return io_error("create", path_);
    step_ = Step::kWritten;
    while (!bytes.empty()) {
        about_to("write");
        const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return io_error("write", path_);
        bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    about_to("sync");
    return fsync(file.get()) == 0 ? Status() : io_error("write", path_);
}

Status ReplacedFile::replace(bool previous_stays) {
    struct stat information {};
    const bool is_there = fstatat(folder_.get(), name_.c_str(), &information, AT_SYMLINK_NOFOLLOW) == 0;
    if (is_there && !S_ISREG(information.st_mode)) return not_regular("replace", path_);
    had_earlier_ = previous_stays || is_there;
    if (is_there && !previous_stays) {
        about_to("move away");
        if (renameat(folder_.get(), name_.c_str(), folder_.get(), previous_.c_str()) != 0) {
            had_earlier_ = false; // where one would go back to
            return io_error("replace", path_);
        }
    }
    step_ = Step::kMovedAway;
    about_to("replace");
    if (renameat(folder_.get(), new_name_.c_str(), folder_.get(), name_.c_str()) != 0) {
        return io_error("replace", path_);
    }
    step_ = Step::kReplaced;
    about_to("sync the folder");
    fsync(folder_.get()); // best effort: not every file system can
    return {};
}

void ReplacedFile::keep() {
    step_ = Step::kKept;
    if (!had_earlier_) return;
    about_to("remove the earlier one");
    unlinkat(folder_.get(), previous_.c_str(), 0);
}

Status ReplacedFile::replace_for_good() {
    ONEBIT_RETURN_IF_ERROR(replace(true));
    step_ = Step::kKept;
    return {};
}

void ReplacedFile::leave() {
    step_ = Step::kKept;
}

ReplacedFile::~ReplacedFile() {
    if (step_ == Step::kNothing || step_ == Step::kKept) return;
    about_to("undo");
    if (step_ != Step::kReplaced) unlinkat(folder_.get(), new_name_.c_str(), 0);
    if (step_ == Step::kWritten) return;
    if (had_earlier_) {
        about_to("move back");
        renameat(folder_.get(), previous_.c_str(), folder_.get(), name_.c_str());
    } else if (step_ == Step::kReplaced) {
        unlinkat(folder_.get(), name_.c_str(), 0);
    }
}

} // namespace onebit
