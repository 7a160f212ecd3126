// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/saved_state.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>

#include "core/file.hpp"
#include "core/hash.hpp"

namespace onebit {
namespace {

constexpr std::array<char, 8> kMagic = {'O', 'N', 'E', 'B', 'I', 'T', 'O', 'P'};
constexpr std::uint32_t kVersion = 2;

/// The head of a file; little-endian, no padding. Behind it: the numbers, the rows of the arrays, the pieces' values
/// (up to here: head_bytes), the values of the rank's own arrays.
struct Header {
    SaveHead head;
    std::uint32_t arrays;
    std::uint32_t reserved; ///< 0
    std::uint64_t numbers;
    Identity identity;
    std::uint64_t head_bytes;
    std::uint64_t all_bytes;
    std::uint64_t head_checksum; ///< over the head, with this member 0
    std::uint64_t tail_checksum; ///< over what follows it
};
static_assert(sizeof(Header) == 104);

std::uint64_t head_checksum(Header header, std::span<const std::byte> behind_it) {
    header.head_checksum = hash_bytes(behind_it.data(), behind_it.size());
    return hash_bytes(&header, sizeof(header));
}

Status bad(const std::string& file, const char* what) {
    return Status::error(ONEBIT_ERROR_BAD_STATE, "%s: %s", shown(file).c_str(), what);
}

SaveHead wanted_head(std::uint32_t rank, std::uint32_t ranks) {
    return {kMagic, kVersion, rank, ranks, 0, 0};
}

/// A file of a save, and what it must have in it.
struct OpenFile {
    InputFile file;
    Header header{};
    std::vector<ArrayRow> rows;
};

/// Whether a file of this header may be loaded into the optimizer, before anything of its size is allocated.
Status check_header(const Header& header, const ExpectedFile& expected) {
    const auto differs = [](const char* what, std::uint64_t saved, std::uint64_t own) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "the saved optimizer has %s %llu, this one %llu", what,
                             static_cast<unsigned long long>(saved), static_cast<unsigned long long>(own));
    };
    const Identity& its = header.identity;
    const Identity& own = expected.identity;
    if (its.kind != own.kind) return differs("kind", its.kind, own.kind);
    if (its.count != own.count) return differs("elements", its.count, own.count);
    if (its.shape != own.shape) {
        return Status::error(ONEBIT_ERROR_BAD_STATE,
                             "the saved optimizer has tensors of other counts, in other groups or in other buckets");
    }
    if ((its.frozen == 1 || its.frozen == 2) && its.frozen != expected.frozen_as) {
        return Status::error(ONEBIT_ERROR_BAD_STATE,
                             "the saved optimizer is frozen and compresses %s: config.compressed must say so, too",
                             its.frozen == 1 ? "momenta" : "updates");
    }
    if (header.numbers < expected.least_numbers || header.numbers > expected.most_numbers) {
        return differs("another set of numbers:", header.numbers, expected.least_numbers);
    }
    if (its.frozen > 2 || header.reserved != 0 || header.head.save == 0) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "impossible: frozen %u, reserved word %u, save %llu", its.frozen,
                             header.reserved, static_cast<unsigned long long>(header.head.save));
    }
    return {};
}

/// Bytes of a file, and of its head, with these arrays.
struct Sizes {
    std::uint64_t head = sizeof(Header);
    std::uint64_t all = 0;

    Sizes(std::uint64_t numbers, const std::vector<ArrayRow>& rows) {
        head += numbers * sizeof(std::uint64_t) + rows.size() * sizeof(ArrayRow);
        all = head;
        for (const ArrayRow& row : rows) {
            all += row.count * sizeof(float);
            if (row.ownership == Ownership::kPieces) head = all; // these come first
        }
    }
};

/// Reads the header, and makes sure that the file is as long as it must be.
Status open_file(const std::string& name, std::uint32_t rank, std::uint32_t ranks, const ExpectedFile& expected,
                 OpenFile* open) {
    ONEBIT_RETURN_IF_ERROR(open->file.open(name));
    std::vector<std::byte> bytes;
    ONEBIT_RETURN_IF_ERROR(open->file.read(sizeof(Header), &bytes));
    if (bytes.size() < sizeof(Header)) return bad(name, "truncated: not even a header");
    Header& header = open->header;
    std::memcpy(&header, bytes.data(), sizeof(Header));
    Status fits = check_head(header.head, wanted_head(rank, ranks));
    if (fits.ok()) fits = check_header(header, expected);
    if (!fits.ok()) return bad(name, fits.message().c_str());
    open->rows = expected.rows(header.identity.frozen != 0, rank, ranks);
    const Sizes sizes(header.numbers, open->rows);
    if (open->file.size() != sizes.all) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "%s: %s: %llu bytes where %llu are needed", shown(name).c_str(),
                             open->file.size() < sizes.all ? "truncated" : "too long",
                             static_cast<unsigned long long>(open->file.size()),
                             static_cast<unsigned long long>(sizes.all));
    }
    if (header.head_bytes != sizes.head || header.all_bytes != sizes.all || header.arrays != open->rows.size()) {
        return bad(name, "impossible: its header contradicts its length");
    }
    return {};
}

/// Reads the rest of a file; the rank's own arrays only if they are wanted.
Status read_saved(const OpenFile& open, bool own_arrays, SavedOptimizer* saved) {
    const Header& header = open.header;
    const std::string& name = open.file.name();
    std::vector<std::byte> bytes;
    const std::size_t wanted = own_arrays ? header.all_bytes : header.head_bytes;
    ONEBIT_RETURN_IF_ERROR(open.file.read(wanted, &bytes));
    if (bytes.size() != wanted) return bad(name, "truncated");
    const std::span<const std::byte> all(bytes);
    const auto head = all.subspan(sizeof(Header), header.head_bytes - sizeof(Header));
    const auto tail = all.subspan(header.head_bytes);
    if (head_checksum(header, head) != header.head_checksum ||
        (own_arrays && hash_bytes(tail.data(), tail.size()) != header.tail_checksum)) {
        return bad(name, "corrupt: its checksum is wrong");
    }
    const std::byte* from = head.data(); // as long as it must be: open_file
    const auto take = [&from](void* to, std::size_t size) {
        if (size > 0) std::memcpy(to, from, size);
        from += size;
    };
    saved->numbers.resize(header.numbers);
    take(saved->numbers.data(), header.numbers * sizeof(std::uint64_t));
    std::vector<ArrayRow> rows(open.rows.size());
    take(rows.data(), rows.size() * sizeof(ArrayRow));
    if (rows != open.rows) return bad(name, "impossible: it has other arrays");
    for (const ArrayRow& row : rows) {
        if (row.ownership != Ownership::kPieces && !own_arrays) continue;
        saved->arrays.push_back({row, std::vector<float>(row.count)});
        take(saved->arrays.back().values.data(), row.count * sizeof(float));
    }
    saved->identity = header.identity;
    saved->rank = header.head.rank;
    saved->ranks = header.head.ranks;
    return {};
}

/// How much of `saved`'s own array `rank` of `ranks` takes over: see Ownership.
double weight(Ownership ownership, const SavedOptimizer& saved, int rank, int ranks) {
    const auto old_rank = static_cast<double>(saved.rank);
    const auto old_ranks = static_cast<double>(saved.ranks);
    if (saved.ranks == static_cast<std::uint32_t>(ranks)) return saved.rank == static_cast<std::uint32_t>(rank) ? 1 : 0;
    if (ownership == Ownership::kMeans) return 1 / old_ranks;
    // Old and new ranks as equal parts of one line: the share of the new one that the old one covers. In units of
    // 1 / (ranks * old_ranks), so that no rounding gives a neighbour a share.
    const double begin = std::max(rank * old_ranks, old_rank * ranks);
    const double end = std::min((rank + 1) * old_ranks, (old_rank + 1) * ranks);
    return std::max(0.0, end - begin) / old_ranks;
}

using ArrayKey = std::pair<ArrayName, std::uint32_t>;

/// Puts whole arrays together from the files of a save, one after the other.
class Assembly {
  public:
    Assembly(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

    void add(const SavedOptimizer& saved) {
        for (const SavedArray& array : saved.arrays) {
            const ArrayRow& row = array.row;
            const ArrayKey key(row.name, row.bucket);
            AlignedBuffer<float>& whole = arrays_.try_emplace(key, row.length).first->second;
            const bool pieces = row.ownership == Ownership::kPieces;
            const double share = pieces ? 1 : weight(row.ownership, saved, rank_, ranks_);
            if (array.values.empty()) continue;
            if (share == 1) {
                std::memcpy(whole.data() + row.begin, array.values.data(), array.values.size() * sizeof(float));
            } else if (share > 0) {
                add_share(key, share, array);
            }
        }
    }

    /// The pieces of all ranks make a whole: each file has what its rank must have.
    std::map<ArrayKey, AlignedBuffer<float>> finish() {
        for (const auto& [key, sum] : sums_) {
            std::ranges::transform(sum, arrays_.at(key).data(), [](double x) { return static_cast<float>(x); });
        }
        return std::move(arrays_);
    }

  private:
    /// In double, so that the mean of equal floats is that float.
    void add_share(const ArrayKey& key, double share, const SavedArray& array) {
        std::vector<double>& sum = sums_[key];
        sum.resize(array.row.length);
        for (std::size_t i = 0; i < array.values.size(); ++i) sum[array.row.begin + i] += share * array.values[i];
    }

    int rank_;
    int ranks_;
    std::map<ArrayKey, AlignedBuffer<float>> arrays_;
    std::map<ArrayKey, std::vector<double>> sums_;
};

/// Whether rank 0 of so many has a file in one of its places.
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

/// Which saves all ranks' files are of, and from that which is to be loaded. A rank whose file is of none in either
/// place has the flaw of the first.
Status choose_save(const std::string& prefix, const ExpectedFile& expected, LoadedOptimizer* loaded) {
    const int ranks = loaded->saved_ranks;
    loaded->places.resize(static_cast<std::size_t>(ranks));
    std::vector<Status> flaws(loaded->places.size());
    for (std::size_t p = 0; p < kPlaces; ++p) {
        for (int r = 0; r < ranks; ++r) {
            OpenFile file;
            const Status opened = open_file(saved_file_name(prefix, r, ranks, p), static_cast<std::uint32_t>(r),
                                            static_cast<std::uint32_t>(ranks), expected, &file);
            const auto rank = static_cast<std::size_t>(r);
            if (opened.ok()) {
                loaded->places[rank][p] = {file.header.head.save, file.header.head.sequence};
                flaws[rank] = {};
            } else if (p == 0) {
                flaws[rank] = opened;
            }
        }
        const SaveMark& first = loaded->places[0][0];
        const bool same = std::ranges::all_of(loaded->places, [&](const Places& other) { return other[0] == first; });
        if (same && first.save != 0) break; // as nearly always: the other places are of no interest
    }
    for (const Status& flaw : flaws) ONEBIT_RETURN_IF_ERROR(flaw);
    const std::optional<SaveMark> newest = newest_complete(loaded->places);
    for (std::size_t r = 1; !newest && r < loaded->places.size(); ++r) {
        ONEBIT_RETURN_IF_ERROR(of_two_saves(prefix, loaded->places, r));
    }
    if (!newest) return bad(prefix, "no save of which every rank has its file");
    loaded->mark = *newest;
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

std::vector<std::byte> SavedOptimizer::pack(const SaveMark& mark) const {
    std::vector<ArrayRow> rows;
    for (const SavedArray& array : arrays) rows.push_back(array.row);
    const Sizes sizes(numbers.size(), rows);
    std::vector<std::byte> bytes(sizes.all);
    std::byte* to = bytes.data() + sizeof(Header);
    const auto put = [&to](const void* from, std::size_t size) {
        if (size > 0) std::memcpy(to, from, size);
        to += size;
    };
    put(numbers.data(), numbers.size() * sizeof(std::uint64_t));
    put(rows.data(), rows.size() * sizeof(ArrayRow));
    for (const SavedArray& array : arrays) put(array.values.data(), array.values.size() * sizeof(float));

    Header header = {wanted_head(rank, ranks),
                     static_cast<std::uint32_t>(rows.size()),
                     0,
                     numbers.size(),
                     identity,
                     sizes.head,
                     sizes.all,
                     0,
                     0};
    header.head.save = mark.save;
    header.head.sequence = mark.sequence;
    const std::span<const std::byte> all(bytes);
    header.tail_checksum = hash_bytes(bytes.data() + sizes.head, sizes.all - sizes.head);
    header.head_checksum = head_checksum(header, all.subspan(sizeof(Header), sizes.head - sizeof(Header)));
    std::memcpy(bytes.data(), &header, sizeof(header));
    return bytes;
}

Status load_optimizer(const std::string& prefix, int rank, int ranks, const ExpectedFile& expected,
                      LoadedOptimizer* loaded) {
    loaded->prefix = prefix;
    ONEBIT_RETURN_IF_ERROR(find_save(prefix, ranks, &loaded->saved_ranks));
    ONEBIT_RETURN_IF_ERROR(choose_save(prefix, expected, loaded));
    Assembly assembly(rank, ranks);
    for (int r = 0; r < loaded->saved_ranks; ++r) {
        const Places& places = loaded->places[static_cast<std::size_t>(r)];
        const std::string name = saved_file_name(prefix, r, loaded->saved_ranks, place_of(loaded->mark, places));
        OpenFile file;
        ONEBIT_RETURN_IF_ERROR(open_file(name, static_cast<std::uint32_t>(r),
                                         static_cast<std::uint32_t>(loaded->saved_ranks), expected, &file));
        if (file.header.head.save != loaded->mark.save) return bad(name, "another save has replaced it meanwhile");
        const bool own_arrays = loaded->saved_ranks != ranks || r == rank;
        SavedOptimizer saved;
        ONEBIT_RETURN_IF_ERROR(read_saved(file, own_arrays, &saved));
        if (r == 0) {
            loaded->identity = saved.identity;
            loaded->numbers = saved.numbers;
        } else if (saved.numbers != loaded->numbers || saved.identity != loaded->identity) {
            return bad(name, "impossible: it contradicts the file of rank 0");
        }
        assembly.add(saved);
    }
    loaded->arrays = assembly.finish();
    return {};
}

} // namespace onebit
