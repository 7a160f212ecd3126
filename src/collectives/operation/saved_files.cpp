// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/operation/saved_files.hpp"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "core/file_lock.hpp"

namespace onebit {
namespace {

/// How much of each of two file names fits into a message that travels.
constexpr std::size_t kShownOfTwo = 80;

Status draw_number(std::uint64_t* number) {
    *number = 0;
    while (*number == 0) {
        if (getrandom(number, sizeof(*number), 0) == sizeof(*number)) continue;
        return Status::error(ONEBIT_ERROR_IO, "can't draw a random number for the save: %s", std::strerror(errno));
    }
    return {};
}

/// Which save the file is of, as far as its first bytes tell. A load checks the rest.
SaveMark mark_of(const std::string& name, int rank, int ranks) {
    InputFile file;
    std::vector<std::byte> bytes;
    if (!file.open(name).ok() || !file.read(sizeof(SaveHead), &bytes).ok() || bytes.size() < sizeof(SaveHead))
        return {};
    SaveHead head{};
    std::memcpy(&head, bytes.data(), sizeof(head));
    const bool plausible = std::memcmp(head.magic.data(), "ONEBIT", 6) == 0 && head.rank == unsigned(rank) &&
                           head.ranks == unsigned(ranks) && head.sequence < kImpossibleSequence;
    return plausible ? SaveMark{head.save, head.sequence} : SaveMark{};
}

/// The new save's mark, and the place of the earlier save, to stay until the new one is whole. Collective; blocks.
Status begin_save(Collective& collective, const char* prefix, FileLock* lock, SaveMark* mark,
                  std::size_t* earlier_place) {
    const int rank = collective.channel().rank();
    const int ranks = collective.channel().size();
    std::uint64_t drawn = 0;
    Status own = check_prefix(prefix);
    if (own.ok() && rank == 0) {
        own = catch_exceptions([&] {
            ONEBIT_RETURN_IF_ERROR(draw_number(&drawn));
            return lock->take(lock_name(prefix));
        });
    }
    std::vector<Told> told;
    ONEBIT_RETURN_IF_ERROR(collective.gather_now(own, {0, drawn}, &told));
    mark->save = told[0].value;

    Places places;
    std::vector<Places> all;
    own = catch_exceptions([&] {
        for (std::size_t p = 0; p < kPlaces; ++p)
            places[p] = mark_of(saved_file_name(prefix, rank, ranks, p), rank, ranks);
        return Status();
    });
    ONEBIT_RETURN_IF_ERROR(gather_places(collective, own, places, &all));
    for (const Places& of_rank : all) {
        for (const SaveMark& there : of_rank) mark->sequence = std::max(mark->sequence, there.sequence + 1);
    }
    const std::optional<SaveMark> earlier = newest_complete(all);
    *earlier_place = earlier ? place_of(*earlier, places) : 0;
    return {};
}

} // namespace

Status check_prefix(const char* prefix) {
    if (prefix == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "prefix is NULL");
    if (*prefix == '\0') return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "prefix is empty");
    return {};
}

std::string saved_file_name(const std::string& prefix, int rank, int ranks) {
    return prefix + "." + std::to_string(rank) + "-of-" + std::to_string(ranks) + ".onebit";
}

std::string saved_file_name(const std::string& prefix, int rank, int ranks, std::size_t place) {
    const std::string name = saved_file_name(prefix, rank, ranks);
    return place == 0 ? name : ReplacedFile::previous_name(name);
}

Status check_head(const SaveHead& head, const SaveHead& wanted) {
    if (head.magic != wanted.magic) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "not a saved %s of onebit",
                             wanted.magic[6] == 'O' ? "optimizer" : "state");
    }
    if (head.version != wanted.version) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "format version %u, this library has %u", head.version,
                             wanted.version);
    }
    if (head.rank != wanted.rank || head.ranks != wanted.ranks) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "it is of rank %u of %u, not of rank %u of %u", head.rank,
                             head.ranks, wanted.rank, wanted.ranks);
    }
    if (head.sequence >= kImpossibleSequence) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "impossible: save number %u", head.sequence);
    }
    return {};
}

// ------------------------------------------------------------------------------------------ which save is whole ----

std::size_t place_of(const SaveMark& mark, const Places& places) {
    return static_cast<std::size_t>(std::ranges::find(places, mark) - places.begin());
}

std::optional<SaveMark> newest_complete(std::span<const Places> ranks) {
    std::optional<SaveMark> newest;
    for (const SaveMark& mark : ranks.front()) {
        const bool everywhere =
            std::ranges::all_of(ranks, [&](const Places& places) { return place_of(mark, places) < kPlaces; });
        if (mark.save == 0 || !everywhere) continue;
        if (!newest || mark.sequence > newest->sequence) newest = mark;
    }
    return newest;
}

Status of_two_saves(const std::string& prefix, std::span<const Places> ranks, std::size_t rank) {
    const auto mark = [&](std::size_t r) { return ranks[r][0].save != 0 ? ranks[r][0] : ranks[r][1]; };
    if (mark(rank) == mark(0)) return {};
    const auto name = [&](std::size_t r) {
        return shown(saved_file_name(prefix, static_cast<int>(r), static_cast<int>(ranks.size())), kShownOfTwo);
    };
    return Status::error(ONEBIT_ERROR_BAD_STATE, "%s is of another save than rank 0's file, %s", name(rank).c_str(),
                         name(0).c_str());
}

Status tell_of_recovery(const Collective& collective, const char* prefix, const SaveMark& found,
                        std::span<const Places> ranks) {
    const auto aside = static_cast<std::size_t>(
        std::ranges::count_if(ranks, [&](const Places& places) { return places[0] != found; }));
    if (aside == 0) return {};
    Status note;
    (void)catch_exceptions([&] { // all is loaded: without memory there is just no note
        note = Status::note(
            "%s: a save was interrupted; loaded the newest one that all ranks have, number %u (that of "
            "%zu of %zu ranks as %s)",
            shown(prefix).c_str(), found.sequence, aside, ranks.size(), "NAME.previous");
        return Status();
    });
    if (!note.message().empty()) collective.plan().log.write(ONEBIT_LOG_WARNING, "%s", note.message().c_str());
    return note;
}

// --------------------------------------------------------------------------------------------- among all ranks ----

/// Where all ranks have the same save under its own name, the other places are of no interest.
Status gather_places(Collective& collective, const Status& own, const Places& places, std::vector<Places>* all) {
    for (std::size_t p = 0; p < kPlaces; ++p) {
        std::vector<Told> told;
        const Status ready = catch_exceptions([&] {
            if (p == 0) ONEBIT_RETURN_IF_ERROR(own);
            all->resize(static_cast<std::size_t>(collective.channel().size()));
            return Status();
        });
        ONEBIT_RETURN_IF_ERROR(collective.gather_now(ready, {places[p].sequence, places[p].save}, &told));
        for (std::size_t r = 0; r < told.size(); ++r) (*all)[r][p] = {told[r].value, told[r].word};
        const SaveMark& first = all->front()[0];
        const bool same = std::ranges::all_of(*all, [&](const Places& other) { return other[0] == first; });
        if (same && first.save != 0) return {};
    }
    return {};
}

Status save_file(Collective& collective, const char* prefix,
                 const std::function<Status(const SaveMark&, std::vector<std::byte>*)>& pack) {
    ONEBIT_RETURN_IF_ERROR(collective.check_idle());
    SaveMark mark;
    std::size_t earlier_place = 0;
    FileLock lock; // rank 0 has it for all: no other save writes there before this one has ended on all ranks
    ONEBIT_RETURN_IF_ERROR(begin_save(collective, prefix, &lock, &mark, &earlier_place));
    std::unique_ptr<ReplacedFile> file;
    const Status written = catch_exceptions([&] {
        std::vector<std::byte> bytes;
        ONEBIT_RETURN_IF_ERROR(pack(mark, &bytes));
        file = std::make_unique<ReplacedFile>(
            saved_file_name(prefix, collective.channel().rank(), collective.channel().size()));
        return file->write(bytes);
    });
    Status saved = collective.agree_now(written);
    if (saved.ok()) {
        const Status replaced = catch_exceptions([&] { return file->replace(earlier_place > 0); });
        saved = collective.agree_now(replaced); // if any rank could not, every rank goes back
        if (saved.ok()) {
            file->keep();
        } else if (replaced.ok() && !collective.broken().ok()) {
            file->leave(); // other ranks may know of the success, and have no other file any more
        }
    }
    file.reset(); // undoes what was not kept
    ONEBIT_RETURN_IF_ERROR(collective.check_idle());
    Status settled = collective.agree_now(Status()); // no rank returns before all files are as they will stay,
    lock.release();
    if (settled.ok()) settled = collective.agree_now(Status()); // nor before it may load them
    return saved.ok() ? settled : saved;
}

} // namespace onebit
