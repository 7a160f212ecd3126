// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The transport over NCCL, on an emulated one: where messages arrive, in which order, and the errors when they don't.

#include "transport/nccl.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "support/catch2.hpp"
#include "support/loopback_ranks.hpp"
#include "support/nccl_ranks.hpp"
#include "transport/nodes.hpp"

namespace onebit {
namespace {

using onebit_test::EmulatedNccl;
using onebit_test::run_nccl_ranks;
using Bytes = std::vector<std::byte>;

/// The tests' findings about a rank.
struct Outcome {
    Status status;
    std::vector<std::string> wrong; ///< what didn't arrive as it should have
    std::uint64_t bytes_sent = 0;
    std::uint64_t identity = 0;
    std::vector<float> sums;
};

void check_good(const std::vector<Outcome>& outcomes) {
    for (const Outcome& outcome : outcomes) {
        CHECK(outcome.status.message().empty());
        CHECK(outcome.wrong == std::vector<std::string>());
    }
}

template <typename Operation>
Status finish(Operation& operation) {
    for (const auto start = std::chrono::steady_clock::now();; std::this_thread::yield()) {
        bool done = false;
        ONEBIT_RETURN_IF_ERROR(operation.test(&done));
        if (done) return {};
        if (std::chrono::steady_clock::now() - start > std::chrono::seconds(60)) {
            return Status::error(ONEBIT_ERROR_TIMEOUT, "the test waits no longer");
        }
    }
}

cuda::DeviceMemory device_memory(nullptr);

/// A message's place, on the host or the GPU, where it begins at an odd address. A place on the GPU is written and read
/// in order with the stream.
class Place {
  public:
    Place(std::size_t bytes, bool on_device) : on_device_(on_device), host_(bytes + 3, cuda::pinned_memory()) {
        if (on_device) device_ = AlignedBuffer<std::byte>(bytes + 3, device_memory);
    }

    Part part(int peer) {
        std::byte* const data = on_device_ ? device_.data() : host_.data();
        return {peer, data + 3, host_.size() - 3, on_device_};
    }

    Status write(unsigned seed) {
        for (std::size_t i = 0; i < host_.size(); ++i) host_[i] = value(seed, i);
        return on_device_ ? cuda::copy_later(device_.data(), host_.data(), host_.size(), nullptr) : Status();
    }
    /// Clears the previous content of the place.
    Status clear() {
        host_.fill_zero();
        return on_device_ ? cuda::copy_later(device_.data(), host_.data(), host_.size(), nullptr) : Status();
    }
    Status read(unsigned seed, bool* right) {
        if (on_device_) {
            ONEBIT_RETURN_IF_ERROR(cuda::copy_later(host_.data(), device_.data(), host_.size(), nullptr));
            ONEBIT_RETURN_IF_ERROR(cuda::wait_for(nullptr));
        }
        *right = true;
        for (std::size_t i = 0; i < host_.size(); ++i) *right &= host_[i] == (i < 3 ? std::byte{} : value(seed, i));
        return {};
    }

  private:
    static std::byte value(unsigned seed, std::size_t i) {
        return static_cast<std::byte>(1 + (seed * 31 + i * 7 + i / 251) % 255);
    }

    bool on_device_;
    AlignedBuffer<std::byte> host_;
    AlignedBuffer<std::byte> device_;
};

enum class Where { kDevice, kHost, kBoth };

/// Several messages from each rank to each, itself included, of odd sizes, some of them empty.
class Everything {
  public:
    static constexpr int kMessages = 3;

    Everything(Transport& transport, Where where, unsigned seed) : rank_(transport.rank()), seed_(seed) {
        std::vector<Part> sends;
        std::vector<Part> receives;
        for (int peer = 0; peer < transport.size(); ++peer) {
            for (int k = 0; k < kMessages; ++k) {
                sends_.push_back({peer, k, Place(size_of(rank_, peer, k), is_on_device(where, rank_, k))});
                sends.push_back(sends_.back().place.part(peer));
                receives_.push_back({peer, k, Place(size_of(peer, rank_, k), is_on_device(where, peer + 1, k))});
                receives.push_back(receives_.back().place.part(peer));
                if (peer != rank_) bytes_ += sends.back().bytes;
            }
        }
        planned_ = transport.plan_exchange(std::move(sends), std::move(receives), 0, &exchange_);
    }

    Status start(unsigned round) {
        ONEBIT_RETURN_IF_ERROR(planned_);
        round_ = round;
        for (Message& message : sends_)
            ONEBIT_RETURN_IF_ERROR(message.place.write(seed(rank_, message.peer, message.k)));
        for (Message& message : receives_) ONEBIT_RETURN_IF_ERROR(message.place.clear());
        return exchange_->start();
    }

    Status finish(Outcome* outcome) {
        ONEBIT_RETURN_IF_ERROR(onebit::finish(*exchange_));
        for (Message& message : receives_) {
            bool right = false;
            ONEBIT_RETURN_IF_ERROR(message.place.read(seed(message.peer, rank_, message.k), &right));
            if (right || size_of(message.peer, rank_, message.k) == 0) continue;
            outcome->wrong.push_back("round " + std::to_string(round_) + ": message " + std::to_string(message.k) +
                                     " from rank " + std::to_string(message.peer) + " to " + std::to_string(rank_));
        }
        return {};
    }

    std::uint64_t bytes() const { return bytes_; }

  private:
    struct Message {
        int peer;
        int k;
        Place place;
    };

    /// Sender and receiver need not be alike.
    static bool is_on_device(Where where, int rank, int k) {
        return where == Where::kBoth ? (rank + k) % 2 == 0 : where == Where::kDevice;
    }
    static std::size_t size_of(int from, int to, int k) {
        return (from + to + k) % 5 == 4 ? 0 : static_cast<std::size_t>(1 + 613 * k + 97 * from + 11 * to);
    }
    unsigned seed(int from, int to, int k) const {
        return seed_ + 1000 * round_ + static_cast<unsigned>(100 * from + 10 * to + k);
    }

    int rank_;
    unsigned seed_;
    unsigned round_ = 0;
    std::uint64_t bytes_ = 0;
    std::vector<Message> sends_;
    std::vector<Message> receives_;
    std::unique_ptr<Exchange> exchange_;
    Status planned_;
};

// ---- what is to work ----

TEST_CASE("messages arrive, from and to a GPU's memory and the host's", "[nccl]") {
    for (const Where where : {Where::kDevice, Where::kHost, Where::kBoth}) {
        for (const int ranks : {1, 2, 3, 4}) {
            for (const int busy_looks : {0, 3}) {
                CAPTURE(where, ranks, busy_looks);
                EmulatedNccl nccl(busy_looks);
                const auto outcomes =
                    run_nccl_ranks<Outcome>(nccl, ranks, [&](std::unique_ptr<Transport> transport, Outcome* outcome) {
                        Everything everything(*transport, where, 5);
                        for (unsigned round = 0; round < 3; ++round) {
                            ONEBIT_RETURN_IF_ERROR(everything.start(round));
                            ONEBIT_RETURN_IF_ERROR(everything.finish(outcome));
                        }
                        outcome->bytes_sent = transport->bytes_sent();
                        if (outcome->bytes_sent != 3 * everything.bytes()) outcome->wrong.emplace_back("bytes_sent");
                        return Status();
                    });
                check_good(outcomes);
                CHECK((outcomes[0].bytes_sent > 0) == (ranks > 1));
            }
        }
    }
}

TEST_CASE("several operations in flight keep their order, whichever is asked for", "[nccl]") {
    EmulatedNccl nccl(5);
    check_good(run_nccl_ranks<Outcome>(nccl, 3, [](std::unique_ptr<Transport> transport, Outcome* outcome) {
        Everything first(*transport, Where::kDevice, 1);
        Everything second(*transport, Where::kHost, 2);
        Everything third(*transport, Where::kBoth, 3);
        std::unique_ptr<Exchange> nothing;
        ONEBIT_RETURN_IF_ERROR(transport->plan_exchange({}, {}, 0, &nothing));
        for (unsigned round = 0; round < 3; ++round) {
            ONEBIT_RETURN_IF_ERROR(first.start(round));
            ONEBIT_RETURN_IF_ERROR(nothing->start());
            // Ranks have different numbers of them waiting.
            if (transport->rank() == 0) ONEBIT_RETURN_IF_ERROR(first.finish(outcome));
            ONEBIT_RETURN_IF_ERROR(second.start(round));
            if (transport->rank() == 0) ONEBIT_RETURN_IF_ERROR(second.finish(outcome));
            ONEBIT_RETURN_IF_ERROR(third.start(round));
            ONEBIT_RETURN_IF_ERROR(third.finish(outcome));
            ONEBIT_RETURN_IF_ERROR(first.finish(outcome));
            ONEBIT_RETURN_IF_ERROR(finish(*nothing));
            ONEBIT_RETURN_IF_ERROR(second.finish(outcome));
        }
        return Status();
    }));
}

TEST_CASE("sums are those of all ranks, in place and not", "[nccl]") {
    constexpr std::size_t kCount = 1003;
    for (const int ranks : {1, 2, 4}) {
        EmulatedNccl nccl;
        const auto outcomes =
            run_nccl_ranks<Outcome>(nccl, ranks, [](std::unique_ptr<Transport> transport, Outcome* outcome) {
                AlignedBuffer<float> input(kCount, device_memory);
                AlignedBuffer<float> output(kCount, device_memory);
                std::vector<float> values(kCount);
                for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i) * (1 + transport->rank());
                input.copy_from(values.data());
                std::unique_ptr<Sum> sum;
                std::unique_ptr<Sum> none;
                ONEBIT_RETURN_IF_ERROR(transport->plan_sum(kCount, &sum));
                ONEBIT_RETURN_IF_ERROR(transport->plan_sum(0, &none));
                ONEBIT_RETURN_IF_ERROR(none->start(nullptr, nullptr));
                ONEBIT_RETURN_IF_ERROR(finish(*none));
                ONEBIT_RETURN_IF_ERROR(sum->start(input.data(), output.data()));
                ONEBIT_RETURN_IF_ERROR(finish(*sum));
                ONEBIT_RETURN_IF_ERROR(sum->start(output.data(), output.data()));
                ONEBIT_RETURN_IF_ERROR(finish(*sum));
                outcome->sums.resize(kCount);
                output.copy_to(outcome->sums.data());
                outcome->bytes_sent = transport->bytes_sent();
                return cuda::wait_for(nullptr);
            });
        check_good(outcomes);
        for (const Outcome& outcome : outcomes) {
            CHECK(outcome.bytes_sent == 2 * ring_bytes(kCount * sizeof(float), ranks));
            for (std::size_t i = 0; i < kCount; ++i) {
                REQUIRE(outcome.sums[i] == static_cast<float>(i) * static_cast<float>(ranks * ranks * (ranks + 1) / 2));
            }
        }
    }
}

TEST_CASE("channels of all ranks, and of some", "[nccl]") {
    for (const bool blocking : {true, false}) {
        EmulatedNccl nccl(20);
        check_good(run_nccl_ranks<Outcome>(
            nccl, 4,
            [](std::unique_ptr<Transport> transport, Outcome* outcome) {
                const int rank = transport->rank();
                Everything before(*transport, Where::kHost, 1);
                ONEBIT_RETURN_IF_ERROR(before.start(0)); // a split must wait for it
                std::unique_ptr<Transport> copy;
                std::unique_ptr<Transport> half;
                ONEBIT_RETURN_IF_ERROR(transport->duplicate(kFewTags, &copy));
                ONEBIT_RETURN_IF_ERROR(copy->split({1, 0, 1, 0}, &half));
                if (copy->rank() != rank || copy->size() != 4) outcome->wrong.emplace_back("the copy's ranks");
                if (half->rank() != rank / 2 || half->size() != 2) outcome->wrong.emplace_back("the half's ranks");
                Everything all(*copy, Where::kBoth, 2);
                Everything some(*half, Where::kBoth, 3);
                ONEBIT_RETURN_IF_ERROR(all.start(0));
                ONEBIT_RETURN_IF_ERROR(some.start(0));
                ONEBIT_RETURN_IF_ERROR(some.finish(outcome));
                ONEBIT_RETURN_IF_ERROR(all.finish(outcome));
                if (half->bytes_sent() != some.bytes()) outcome->wrong.emplace_back("bytes_sent");
                return before.finish(outcome);
            },
            blocking));
    }
}

TEST_CASE("ranks of another transport open one over NCCL, and find out who shares a host", "[nccl]") {
    const EmulatedNccl nccl;
    const auto outcomes =
        onebit_test::run_loopback_ranks<Outcome>(3, [](std::unique_ptr<Transport> host, Outcome* outcome) {
            std::unique_ptr<Transport> transport;
            ONEBIT_RETURN_IF_ERROR(
                bootstrap_nccl_transport(EmulatedNccl::api(), *host, nullptr, onebit_test::kNcclTimeout, &transport));
            if (transport->rank() != host->rank()) outcome->wrong.emplace_back("rank");
            outcome->identity = transport->node_identity();
            return Status();
        });
    check_good(outcomes);
    for (const Outcome& outcome : outcomes) CHECK(outcome.identity == outcomes[0].identity);
    CHECK(number_by_first_rank(std::vector<std::uint64_t>{7, 9, 7, 1, 9}) == std::vector<int>{0, 1, 0, 2, 1});
    CHECK(host_identity() == host_identity());
}

TEST_CASE("what is destroyed in flight disturbs nothing else", "[nccl]") {
    EmulatedNccl nccl(20);
    check_good(run_nccl_ranks<Outcome>(nccl, 2, [](std::unique_ptr<Transport> transport, Outcome* outcome) {
        Everything kept(*transport, Where::kBoth, 1);
        {
            Everything issued(*transport, Where::kDevice, 2);
            ONEBIT_RETURN_IF_ERROR(issued.start(0));
            Everything waiting(*transport, Where::kHost, 3);
            ONEBIT_RETURN_IF_ERROR(waiting.start(0));
            ONEBIT_RETURN_IF_ERROR(kept.start(0));
        }
        return kept.finish(outcome);
    }));
}

} // namespace
} // namespace onebit
