// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "support/ranks.hpp"

namespace onebit_test {

namespace fs = std::filesystem;

// Files that need not outlive a crash of the machine: in memory if possible, because saves wait for their disk.
inline fs::path scratch_path() {
    std::error_code none;
    return fs::is_directory("/dev/shm", none) ? fs::path("/dev/shm") : fs::temp_directory_path();
}

// A directory that all ranks of one test share; rank 0 makes it and removes it.
class SharedDirectory {
  public:
    explicit SharedDirectory(RankLog& log) : log_(log) {
        std::string name = (scratch_path() / "onebit-test-XXXXXX").string();
        if (log_.rank() == 0) ONEBIT_EXPECT(log_, mkdtemp(name.data()) != nullptr);
        const Bytes first = log_.gather_bytes(name.data(), name.size()).front();
        path_ = std::string(first.begin(), first.end());
    }
    ~SharedDirectory() {
        log_.barrier();
        std::error_code ignored;
        if (log_.rank() == 0) fs::remove_all(path_, ignored);
    }
    SharedDirectory(const SharedDirectory&) = delete;
    SharedDirectory& operator=(const SharedDirectory&) = delete;

    std::string prefix(const std::string& name) const { return (path_ / name).string(); }
    fs::path file(const std::string& name, int rank) const {
        return path_ / (name + "." + std::to_string(rank) + "-of-" + std::to_string(log_.size()) + ".onebit");
    }
    std::vector<std::string> listing() const {
        std::vector<std::string> names;
        for (const auto& entry : fs::directory_iterator(path_)) names.push_back(entry.path().filename().string());
        std::sort(names.begin(), names.end());
        return names;
    }

  private:
    RankLog& log_;
    fs::path path_;
};

} // namespace onebit_test
