// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "core/structs.hpp"

#include <string>
#include <type_traits>
#include <vector>

#include "support/catch2.hpp"

namespace {

/// A struct that has grown in two releases since its first.
struct Grown {
    std::size_t size;
    std::uint32_t version;
    std::uint32_t first;
    std::uint64_t second;
    std::uint32_t third[2];
};

} // namespace

namespace onebit {

template <>
struct Releases<Grown> {
    static constexpr Grown kDefaults = {sizeof(Grown), 1, 11, 22, {33, 34}};
    static constexpr std::array kSizes = {ONEBIT_SIZE_THROUGH(Grown, first), ONEBIT_SIZE_THROUGH(Grown, second),
                                          ONEBIT_SIZE_THROUGH(Grown, third)};
};

namespace {

/// The struct of a program that was compiled for another release, between bytes that must not change.
class Caller {
  public:
    explicit Caller(std::size_t size, unsigned char fill = 0) : bytes_(size + 2 * kGuard, kGuardByte), size_(size) {
        std::memset(data(), fill, size);
        const std::uint32_t version = 1;
        std::memcpy(data(), &size, sizeof size);
        std::memcpy(data() + sizeof size, &version, sizeof version);
    }
    unsigned char* data() { return bytes_.data() + kGuard; }
    Grown* get() { return reinterpret_cast<Grown*>(data()); }
    bool guards_intact() const {
        for (std::size_t i = 0; i < bytes_.size(); ++i) {
            if ((i < kGuard || i >= kGuard + size_) && bytes_[i] != kGuardByte) return false;
        }
        return true;
    }

  private:
    static constexpr std::size_t kGuard = 64;
    static constexpr unsigned char kGuardByte = 0xa5;
    std::vector<unsigned char> bytes_;
    std::size_t size_;
};

TEST_CASE("a struct of each release is taken over, what it lacks by its defaults", "[structs]") {
    for (const std::size_t size : Releases<Grown>::kSizes) {
        CAPTURE(size);
        Caller caller(size, 0x01);
        Grown read;
        REQUIRE(read_struct("config", caller.data(), &read).ok());
        CHECK(read.size == sizeof(Grown));
        CHECK(read.first == 0x01010101);
        CHECK(read.second == (size < 24 ? 22 : 0x0101010101010101));
        CHECK(read.third[1] == (size < 32 ? 34 : 0x01010101));
    }
}

TEST_CASE("no other size is taken, and no other version", "[structs]") {
    for (const std::size_t size : {0UL, 1UL, 12UL, 15UL, 17UL, 23UL, 25UL, 31UL, 4097UL, SIZE_MAX}) {
        CAPTURE(size);
        Caller caller(sizeof(Grown));
        std::memcpy(caller.data(), &size, sizeof size);
        Grown read;
        const Status status = read_struct("config", caller.data(), &read);
        CHECK(status.code() == ONEBIT_ERROR_INVALID_ARGUMENT);
        CHECK_THAT(status.message(), StartsWith("config: size is " + std::to_string(size)));
    }
    Caller caller(sizeof(Grown));
    caller.data()[sizeof(std::size_t)] = 2;
    Grown read;
    const Status status = read_struct("config", caller.data(), &read);
    CHECK(status.code() == ONEBIT_ERROR_INVALID_ARGUMENT);
    CHECK_THAT(status.message(), StartsWith("config: version is 2"));
}

TEST_CASE("a later release's struct is taken if what it adds is zero", "[structs]") {
    for (const std::size_t more : {1UL, 4UL, 8UL, 72UL, 4096 - sizeof(Grown)}) {
        const std::size_t size = sizeof(Grown) + more;
        CAPTURE(size);
        Caller caller(size, 0x01);
        std::memset(caller.data() + sizeof(Grown), 0, more);
        Grown read;
        REQUIRE(read_struct("config", caller.data(), &read).ok());
        CHECK(read.size == sizeof(Grown));
        CHECK(read.third[1] == 0x01010101);
        for (const std::size_t at : {sizeof(Grown), size - 1}) {
            Caller spoiled(size);
            spoiled.data()[at] = 0x80;
            const Status status = read_struct("config", spoiled.data(), &read);
            CHECK(status.code() == ONEBIT_ERROR_UNSUPPORTED);
            CHECK_THAT(status.message(), ContainsSubstring("byte " + std::to_string(at)) &&
                                             ContainsSubstring(std::string("onebit ") + onebit_version()));
        }
    }
}

TEST_CASE("what is written ends with the caller's struct, and what it alone knows is zero", "[structs]") {
    for (const std::size_t size : {16UL, 24UL, 32UL, 33UL, 40UL, 400UL}) {
        CAPTURE(size);
        Caller caller(size, 0x77);
        write_struct(Releases<Grown>::kDefaults, size, caller.get());
        CHECK(caller.guards_intact());
        CHECK(head_of(caller.data()).size == size);
        Caller expected(size);
        const Grown& defaults = Releases<Grown>::kDefaults;
        std::memcpy(expected.data() + 8, reinterpret_cast<const char*>(&defaults) + 8,
                    std::min(size, sizeof(Grown)) - 8);
        CHECK(std::memcmp(caller.data(), expected.data(), size) == 0);
    }
}

TEST_CASE("an array's elements are as far apart as the first says, and all alike", "[structs]") {
    for (const std::size_t size : {16UL, 24UL, 32UL, 36UL, 40UL}) { // one of them leaves elements misaligned
        CAPTURE(size);
        std::vector<unsigned char> array;
        for (std::uint32_t i = 0; i < 5; ++i) {
            Caller element(size);
            const std::uint32_t value = 100 + i;
            std::memcpy(element.data() + offsetof(Grown, first), &value, sizeof value);
            array.insert(array.end(), element.data(), element.data() + size);
        }
        const auto* const first = reinterpret_cast<const Grown*>(array.data());
        Grown read;
        for (std::size_t i = 0; i < 5; ++i) {
            REQUIRE(read_element("tensors[i]", first, i, &read).ok());
            CHECK(read.first == 100 + i);
            CHECK(read.second == (size < 24 ? 22 : 0));
        }
        const std::size_t other = size == 16 ? 24 : 16; // a good size, but not here
        std::memcpy(array.data() + 3 * size, &other, sizeof other);
        const Status status = read_element("tensors[3]", first, 3, &read);
        CHECK(status.code() == ONEBIT_ERROR_INVALID_ARGUMENT);
        CHECK_THAT(status.message(), StartsWith("tensors[3]: size is " + std::to_string(other)));
    }
}

/// Structs have no padding: a later release would read a member there from programs that never set the member.
template <typename Struct, typename... Members>
constexpr bool is_full(Members Struct::*...) {
    return sizeof(Struct) == (sizeof(Members) + ...);
}

TEST_CASE("public structs have no padding, and the sizes that releases gave them", "[structs]") {
    if (sizeof(void*) != 8) return;
    CHECK(std::has_unique_object_representations_v<onebit_comm_info_t>);
    CHECK(std::has_unique_object_representations_v<onebit_allreduce_config_t>);
    CHECK(std::has_unique_object_representations_v<onebit_allreduce_info_t>);
    CHECK(std::has_unique_object_representations_v<onebit_shard_config_t>);
    CHECK(std::has_unique_object_representations_v<onebit_shard_info_t>);
    CHECK(std::has_unique_object_representations_v<onebit_tensor_t>);
    using Group = onebit_param_group_t;
    CHECK(is_full(&Group::size, &Group::version, &Group::no_compress, &Group::lr, &Group::beta1, &Group::beta2,
                  &Group::eps, &Group::weight_decay));
    using Config = onebit_optimizer_config_t;
    CHECK(is_full(&Config::size, &Config::version, &Config::kind, &Config::lr, &Config::beta1, &Config::beta2,
                  &Config::eps, &Config::weight_decay, &Config::groups, &Config::num_groups, &Config::bias_correction,
                  &Config::threads, &Config::max_grad_norm, &Config::freeze_step, &Config::lr_warmup_steps,
                  &Config::scale, &Config::group, &Config::min_trust, &Config::max_trust, &Config::trust_beta,
                  &Config::momentum_scaling, &Config::memory, &Config::variance_updates, &Config::local_step_scaler,
                  &Config::local_steps, &Config::bucket_size, &Config::stream, &Config::freeze_window,
                  &Config::freeze_band, &Config::compressed, &Config::follow_interval, &Config::thaw_ratio,
                  &Config::missing_gradients, &Config::algorithm, &Config::codec, &Config::kept, &Config::value_bits,
                  &Config::error_type, &Config::levels, &Config::num_levels));
    using Info = onebit_optimizer_info_t;
    CHECK(is_full(&Info::size, &Info::version, &Info::frozen, &Info::steps, &Info::skipped, &Info::freeze_step,
                  &Info::count, &Info::masked, &Info::exact_rounds, &Info::compressed_rounds, &Info::warmup_bytes_sent,
                  &Info::compressed_bytes_sent, &Info::state_bytes, &Info::grad_norm, &Info::cancelled,
                  &Info::freeze_wait, &Info::freeze_tensor, &Info::freeze_ratio, &Info::thaws, &Info::variance_ratio,
                  &Info::variance_tensor, &Info::step_ratio, &Info::step_tensor, &Info::algorithm, &Info::reason));

    // A release's numbers never change.
    CHECK(Releases<onebit_comm_info_t>::kSizes[0] == 336);
    CHECK(Releases<onebit_allreduce_config_t>::kSizes[0] == 64);
    CHECK(Releases<onebit_allreduce_info_t>::kSizes[0] == 376);
    CHECK(Releases<onebit_tensor_t>::kSizes[0] == 64);
    CHECK(Releases<onebit_param_group_t>::kSizes[0] == 56);
    CHECK(Releases<onebit_optimizer_config_t>::kSizes[0] == 184);
    CHECK(Releases<onebit_optimizer_info_t>::kSizes[0] == 104);
}

} // namespace
} // namespace onebit
