// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/saved_state.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>

#include "core/file.hpp"
#include "optim/saved_format.hpp"

namespace onebit {
namespace {

class FileBytes final : public SavedBytes {
  public:
    Status open(const std::string& name) { return file_.open(name); }
    const std::string& name() const override { return file_.name(); }
    std::uint64_t size() const override { return file_.size(); }
    Status read(std::size_t most, std::vector<std::byte>* room, std::span<const std::byte>* bytes) const override {
        ONEBIT_RETURN_IF_ERROR(file_.read(most, room));
        *bytes = *room;
        return {};
    }

  private:
    InputFile file_;
};

Status open_file(const std::string& name, int rank, int ranks, const ExpectedFile& expected, SavedPart* part) {
    auto file = std::make_unique<FileBytes>();
    ONEBIT_RETURN_IF_ERROR(file->open(name));
    part->bytes = std::move(file);
    return open_saved(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks), expected, part);
}

/// Whether rank 0 of `ranks` has a file in one of its places.
bool has_file(const std::string& prefix, int ranks) {
    for (std::size_t p = 0; p < kPlaces; ++p) {
        if (file_exists(saved_file_name(prefix, 0, ranks, p))) return true;
    }
    return false;
}

/// The number of ranks of the save to be loaded.
Status find_save(const std::string& prefix, int ranks, int* saved_ranks) {
    namespace fs = std::filesystem;
    *saved_ranks = ranks;
    if (has_file(prefix, ranks)) return {};
    const fs::path path(prefix);
    std::set<int> sizes;
    std::error_code failed;
    for (fs::directory_iterator entry(path.has_parent_path() ? path.parent_path() : ".", failed), end;
         !failed && entry != end; entry.increment(failed)) {
        const std::string name = entry->path().filename().string();
        const std::string start = path.filename().string() + ".0-of-";
        if (name.rfind(start, 0) != 0) continue;
        const int size = std::atoi(name.c_str() + start.size());
        if (size > 0 && size <= 1 << 20 && has_file(prefix, size)) sizes.insert(size);
    }
    if (sizes.empty()) {
        return Status::error(ONEBIT_ERROR_IO, "can't read %s: no such file",
                             shown(saved_file_name(prefix, 0, ranks)).c_str());
    }
    if (sizes.size() > 1) {
        std::string list;
        for (const int size : sizes) list.append(" ").append(std::to_string(size));
        return Status::error(ONEBIT_ERROR_BAD_STATE, "%s: no save of %d ranks, but of several other numbers:%s",
                             shown(prefix).c_str(), ranks, list.c_str());
    }
    *saved_ranks = *sizes.begin();
    return {};
}

/// Finds which saves all ranks' files are of, the save to load, and the seats of the ranks that saved it. For a rank
/// without a usable file in either place, the flaw is that of the first place.
Status choose_save(const std::string& prefix, const ExpectedFile& expected, LoadedOptimizer* loaded,
                   std::vector<Seat>* seats) {
    const int ranks = loaded->saved_ranks;
    loaded->places.resize(static_cast<std::size_t>(ranks));
    std::vector<std::array<Seat, kPlaces>> seats_by_place(loaded->places.size());
    std::vector<Status> flaws(loaded->places.size());
    for (std::size_t p = 0; p < kPlaces; ++p) {
        for (int r = 0; r < ranks; ++r) {
            SavedPart file;
            const Status opened = open_file(saved_file_name(prefix, r, ranks, p), r, ranks, expected, &file);
            const auto rank = static_cast<std::size_t>(r);
            if (opened.ok()) {
                loaded->places[rank][p] = {file.header.head.save, file.header.head.sequence};
                seats_by_place[rank][p] = file.seat;
                flaws[rank] = {};
            } else if (p == 0) {
                flaws[rank] = opened;
            }
        }
        const SaveMark& first = loaded->places[0][0];
        const bool same = std::ranges::all_of(loaded->places, [&](const Places& other) { return other[0] == first; });
        if (same && first.save != 0) break; // the usual case: the other places don't matter
    }
    for (const Status& flaw : flaws) ONEBIT_RETURN_IF_ERROR(flaw);
    const std::optional<SaveMark> newest = newest_complete(loaded->places);
    for (std::size_t r = 1; !newest && r < loaded->places.size(); ++r) {
        ONEBIT_RETURN_IF_ERROR(of_two_saves(prefix, loaded->places, r));
    }
    if (!newest) return bad_saved(prefix, "no save of which every rank has its file");
    loaded->mark = *newest;
    for (std::size_t r = 0; r < loaded->places.size(); ++r) {
        seats->push_back(seats_by_place[r][place_of(*newest, loaded->places[r])]);
    }
    return {};
}

} // namespace

void NumberVisitor::visit(double& number) {
    auto bits = std::bit_cast<std::uint64_t>(number);
    visit(bits);
    number = std::bit_cast<double>(bits);
}

void NumberVisitor::visit(std::vector<double>& numbers) {
    const std::uint64_t count = visit_count(numbers.size());
    if (count != numbers.size()) forget(numbers);
    for (std::uint64_t i = 0; i < count; ++i) {
        double passed_over = 0;
        visit(count == numbers.size() ? numbers[i] : passed_over);
    }
}

Status load_optimizer(const std::string& prefix, const ExpectedFile& expected, LoadedOptimizer* loaded) {
    loaded->prefix = prefix;
    ONEBIT_RETURN_IF_ERROR(find_save(prefix, expected.ranks, &loaded->saved_ranks));
    std::vector<Seat> seats;
    ONEBIT_RETURN_IF_ERROR(choose_save(prefix, expected, loaded, &seats));
    const bool same_seats = seats == expected.seats;
    Assembly assembly(expected, same_seats);
    for (int r = 0; r < loaded->saved_ranks; ++r) {
        const Places& places = loaded->places[static_cast<std::size_t>(r)];
        const std::string name = saved_file_name(prefix, r, loaded->saved_ranks, place_of(loaded->mark, places));
        SavedPart file;
        ONEBIT_RETURN_IF_ERROR(open_file(name, r, loaded->saved_ranks, expected, &file));
        if (file.header.head.save != loaded->mark.save)
            return bad_saved(name, "another save has replaced it meanwhile");
        ONEBIT_RETURN_IF_ERROR(assembly.add(file, !same_seats || r == expected.rank, loaded));
    }
    assembly.finish(loaded);
    return {};
}

} // namespace onebit
