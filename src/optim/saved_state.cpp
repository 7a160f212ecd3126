// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/saved_state.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <set>

#include "collectives/state.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"

namespace onebit {
namespace {

constexpr std::array<char, 8> kMagic = {'O', 'N', 'E', 'B', 'I', 'T', 'O', 'P'};
constexpr std::uint32_t kVersion = 1;

/// The head of a file; little-endian, no padding. Behind it: the numbers, the rows of the arrays, the pieces' values
/// (up to here: head_bytes), the values of the rank's own arrays.
struct Header {
    std::array<char, 8> magic;
    std::uint32_t version;
    std::uint32_t rank;
    std::uint32_t ranks;
    std::uint32_t arrays;
    std::uint64_t numbers;
    Identity identity;
    std::uint64_t head_bytes;
    std::uint64_t all_bytes;
    std::uint64_t head_checksum; ///< over the head, with this member 0
    std::uint64_t tail_checksum; ///< over what follows it
};
static_assert(sizeof(Header) == 88);

struct ArrayRow {
    std::uint32_t name;
    std::uint32_t bucket;
    std::uint32_t ownership;
    std::uint32_t reserved;
    std::uint64_t length;
    std::uint64_t begin;
    std::uint64_t count;
};
static_assert(sizeof(ArrayRow) == 40);

std::uint64_t head_checksum(Header header, std::span<const std::byte> behind_it) {
    header.head_checksum = hash_bytes(behind_it.data(), behind_it.size());
    return hash_bytes(&header, sizeof(header));
}

/// Puts values one behind the other.
class Writer {
  public:
    explicit Writer(std::vector<std::byte>& bytes, std::size_t begin) : bytes_(bytes), end_(begin) {}

    template <typename T>
    void write(const T* data, std::size_t count) {
        if (count > 0) std::memcpy(bytes_.data() + end_, data, count * sizeof(T));
        end_ += count * sizeof(T);
    }
    std::size_t end() const { return end_; }

  private:
    std::vector<std::byte>& bytes_;
    std::size_t end_;
};

/// Takes values off the front of some bytes.
class Reader {
  public:
    explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

    template <typename T>
    bool read(T* to, std::size_t count) {
        if (count > bytes_.size() / sizeof(T)) return false;
        if (count > 0) std::memcpy(to, bytes_.data(), count * sizeof(T));
        bytes_ = bytes_.subspan(count * sizeof(T));
        return true;
    }
    std::size_t left() const { return bytes_.size(); }

  private:
    std::span<const std::byte> bytes_;
};

Status bad(const std::string& file, const char* what) {
    return Status::error(ONEBIT_ERROR_BAD_STATE, "%s: %s", file.c_str(), what);
}

/// The header of a file that is whole as far as can be seen without reading all of it.
Status read_header(const std::string& file, int rank, int ranks, Header* header) {
    std::vector<std::byte> bytes;
    ONEBIT_RETURN_IF_ERROR(read_file(file, sizeof(Header), &bytes));
    if (bytes.size() < sizeof(Header)) return bad(file, "truncated: not even a header");
    std::memcpy(header, bytes.data(), sizeof(Header));
    if (header->magic != kMagic) return bad(file, "not a saved optimizer of onebit");
    if (header->version != kVersion) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "%s: format version %u, this library has %u", file.c_str(),
                             header->version, kVersion);
    }
    if (header->rank != static_cast<std::uint32_t>(rank) || header->ranks != static_cast<std::uint32_t>(ranks)) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "%s: renamed: it is of rank %u of %u", file.c_str(), header->rank,
                             header->ranks);
    }
    std::error_code ignored;
    const auto size = std::filesystem::file_size(file, ignored);
    if (size != header->all_bytes) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "%s: %s: %llu bytes where %llu are needed", file.c_str(),
                             size < header->all_bytes ? "truncated" : "too long", static_cast<unsigned long long>(size),
                             static_cast<unsigned long long>(header->all_bytes));
    }
    return {};
}

/// Reads one file; the rank's own arrays only if they are wanted.
Status read_saved(const std::string& file, int rank, int ranks, bool own_arrays, SavedOptimizer* saved) {
    Header header{};
    ONEBIT_RETURN_IF_ERROR(read_header(file, rank, ranks, &header));
    std::vector<std::byte> bytes;
    ONEBIT_RETURN_IF_ERROR(read_file(file, own_arrays ? header.all_bytes : header.head_bytes, &bytes));
    const std::span<const std::byte> all(bytes);
    if (header.head_bytes < sizeof(Header) || bytes.size() < header.head_bytes) return bad(file, "truncated");
    const auto head = all.subspan(sizeof(Header), header.head_bytes - sizeof(Header));
    if (head_checksum(header, head) != header.head_checksum) return bad(file, "corrupt: its checksum is wrong");
    const auto tail = all.subspan(header.head_bytes);
    if (own_arrays && hash_bytes(tail.data(), tail.size()) != header.tail_checksum) {
        return bad(file, "corrupt: its checksum is wrong");
    }
    // The checksums are right: what follows can only fail if somebody made them so.
    const Status impossible = bad(file, "impossible contents");
    Reader reader(all.subspan(sizeof(Header)));
    if (header.numbers > reader.left() / sizeof(std::uint64_t)) return impossible;
    saved->numbers.resize(header.numbers);
    std::vector<ArrayRow> rows(std::min<std::size_t>(header.arrays, reader.left() / sizeof(ArrayRow)));
    if (!reader.read(saved->numbers.data(), header.numbers) || !reader.read(rows.data(), header.arrays)) {
        return impossible;
    }
    for (const ArrayRow& row : rows) {
        if (row.ownership != static_cast<std::uint32_t>(Ownership::kPieces) && !own_arrays) continue;
        if (row.count > reader.left() / sizeof(float) || row.length < row.count || row.begin > row.length - row.count ||
            row.length > header.identity.count) {
            return impossible;
        }
        saved->arrays.push_back({static_cast<ArrayName>(row.name), row.bucket, static_cast<Ownership>(row.ownership),
                                 row.length, row.begin, std::vector<float>(row.count)});
        if (!reader.read(saved->arrays.back().values.data(), row.count)) return impossible;
    }
    saved->identity = header.identity;
    saved->rank = header.rank;
    saved->ranks = header.ranks;
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
            const ArrayKey key(array.name, array.bucket);
            AlignedBuffer<float>& whole = arrays_.try_emplace(key, array.length).first->second;
            if (whole.size() != array.length) continue; // then it isn't covered
            covered_[key] += array.values.size();
            const bool pieces = array.ownership == Ownership::kPieces;
            const double share = pieces ? 1 : weight(array.ownership, saved, rank_, ranks_);
            if (array.values.empty()) continue;
            if (share == 1) {
                std::memcpy(whole.data() + array.begin, array.values.data(), array.values.size() * sizeof(float));
            } else if (share > 0) {
                add_share(key, share, array);
            }
        }
    }

    /// False if a piece was missing.
    bool finish(std::map<ArrayKey, AlignedBuffer<float>>* arrays) {
        for (const auto& [key, sum] : sums_) {
            std::ranges::transform(sum, arrays_.at(key).data(), [](double x) { return static_cast<float>(x); });
        }
        for (const auto& [key, array] : arrays_) {
            if (covered_[key] < array.size()) return false;
        }
        *arrays = std::move(arrays_);
        return true;
    }

  private:
    /// In double, so that the mean of equal floats is that float.
    void add_share(const ArrayKey& key, double share, const SavedArray& array) {
        std::vector<double>& sum = sums_[key];
        sum.resize(array.length);
        for (std::size_t i = 0; i < array.values.size(); ++i) sum[array.begin + i] += share * array.values[i];
    }

    int rank_;
    int ranks_;
    std::map<ArrayKey, AlignedBuffer<float>> arrays_;
    std::map<ArrayKey, std::vector<double>> sums_;
    std::map<ArrayKey, std::uint64_t> covered_;
};

/// The number of ranks of the save to be loaded.
Status find_save(const std::string& prefix, int ranks, int* saved_ranks) {
    namespace fs = std::filesystem;
    const auto exists = [](const std::string& name) {
        std::error_code ignored;
        return fs::exists(name, ignored);
    };
    *saved_ranks = ranks;
    const std::string own = saved_file_name(prefix, 0, ranks);
    if (exists(own)) return {};
    const fs::path path(prefix);
    std::set<int> sizes;
    std::error_code failed;
    for (fs::directory_iterator entry(path.has_parent_path() ? path.parent_path() : ".", failed), end;
         !failed && entry != end; entry.increment(failed)) {
        const std::string name = entry->path().filename().string();
        const std::string start = path.filename().string() + ".0-of-";
        if (name.rfind(start, 0) != 0) continue;
        const int size = std::atoi(name.c_str() + start.size());
        if (size > 0 && size <= 1 << 20 && name == fs::path(saved_file_name(prefix, 0, size)).filename().string()) {
            sizes.insert(size);
        }
    }
    if (sizes.empty()) return Status::error(ONEBIT_ERROR_IO, "can't read %s: no such file", own.c_str());
    if (sizes.size() > 1) {
        std::string list;
        for (const int size : sizes) list.append(" ").append(std::to_string(size));
        return Status::error(ONEBIT_ERROR_BAD_STATE, "%s: no save of %d ranks, but of several other numbers:%s",
                             prefix.c_str(), ranks, list.c_str());
    }
    *saved_ranks = *sizes.begin();
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
    for (std::uint64_t i = 0; i < count; ++i) {
        double passed_over = 0;
        visit(count == numbers.size() ? numbers[i] : passed_over);
    }
}

std::vector<std::byte> SavedOptimizer::pack() const {
    std::size_t all_bytes = sizeof(Header) + numbers.size() * sizeof(std::uint64_t) + arrays.size() * sizeof(ArrayRow);
    for (const SavedArray& array : arrays) all_bytes += array.values.size() * sizeof(float);
    std::vector<std::byte> bytes(all_bytes);
    Writer writer(bytes, sizeof(Header));
    writer.write(numbers.data(), numbers.size());
    for (const SavedArray& array : arrays) {
        const ArrayRow row = {static_cast<std::uint32_t>(array.name),
                              array.bucket,
                              static_cast<std::uint32_t>(array.ownership),
                              0,
                              array.length,
                              array.begin,
                              array.values.size()};
        writer.write(&row, 1);
    }
    std::size_t head_bytes = writer.end();
    for (const SavedArray& array : arrays) {
        writer.write(array.values.data(), array.values.size());
        if (array.ownership == Ownership::kPieces) head_bytes = writer.end();
    }
    Header header = {
        kMagic,     kVersion,  rank, ranks, static_cast<std::uint32_t>(arrays.size()), numbers.size(), identity,
        head_bytes, all_bytes, 0,    0};
    const std::span<const std::byte> all(bytes);
    header.tail_checksum = hash_bytes(bytes.data() + head_bytes, all_bytes - head_bytes);
    header.head_checksum = head_checksum(header, all.subspan(sizeof(Header), head_bytes - sizeof(Header)));
    std::memcpy(bytes.data(), &header, sizeof(header));
    return bytes;
}

Status load_optimizer(const std::string& prefix, int rank, int ranks, LoadedOptimizer* loaded) {
    ONEBIT_RETURN_IF_ERROR(find_save(prefix, ranks, &loaded->saved_ranks));
    Assembly assembly(rank, ranks);
    for (int r = 0; r < loaded->saved_ranks; ++r) {
        const std::string file = saved_file_name(prefix, r, loaded->saved_ranks);
        const bool own_arrays = loaded->saved_ranks != ranks || r == rank;
        SavedOptimizer saved;
        ONEBIT_RETURN_IF_ERROR(read_saved(file, r, loaded->saved_ranks, own_arrays, &saved));
        if (r == 0) {
            loaded->identity = saved.identity;
            loaded->numbers = saved.numbers;
        } else if (saved.numbers != loaded->numbers ||
                   std::memcmp(&saved.identity, &loaded->identity, sizeof(Identity)) != 0) {
            return Status::error(ONEBIT_ERROR_MISMATCH, "%s: saved at another time than the file of rank 0",
                                 file.c_str());
        }
        assembly.add(saved);
    }
    if (!assembly.finish(&loaded->arrays)) return bad(prefix, "the files don't make a whole");
    return {};
}

} // namespace onebit
