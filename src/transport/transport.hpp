// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/abort_switch.hpp"
#include "core/status.hpp"
#include "core/wait.hpp"

namespace onebit {

class TagSpace;

/// One message of an exchange: `bytes` at `data`, to or from `peer`.
struct Part {
    int peer = 0;
    void* data = nullptr;
    std::size_t bytes = 0;
    bool on_device = false; ///< in a GPU's memory: UNSUPPORTED unless the transport reaches_devices()
    std::size_t pitch = 0;  ///< in an array's row: bytes from there to the same place in the next row; else 0
};

/// A fixed pattern of messages, planned once and started many times; at most one start is in flight. Ranks plan
/// matching patterns: each send has a receive of the same size, tag and order. The buffers must outlive the exchange.
class Exchange {
  public:
    virtual ~Exchange() = default;
    /// Posts all messages; does not block.
    virtual Status start() = 0;
    /// Sets *done once all have been sent and received; makes progress, does not block.
    virtual Status test(bool* done) = 0;
};

/// Exchanges of equally long messages between all ranks. The messages are `rows` that lie one behind the other, one for
/// each rank. This rank's own row is copied, too.
enum class Pattern {
    kAllToAll, ///< row j of the sent rows goes to rank j, which receives it as the sender's row
    kAllGather ///< one row is sent to all ranks, which receive it as the sender's row; it may lie there already
};

/// A dense sum over the ranks, planned for a number of floats; at most one start is in flight.
class Sum {
  public:
    virtual ~Sum() = default;
    /// output = sum over the ranks of input; in place where they are the same.
    virtual Status start(const float* input, float* output) = 0;
    virtual Status test(bool* done) = 0;
};

/// Memory that the ranks of one node see directly: equally many bytes for each rank, aligned to 64, zeroes at first.
/// Its users tell each other who wrote what, through atomics in the memory. Each rank lets go of the memory by itself.
class SharedMemory {
  public:
    virtual ~SharedMemory() = default;
    virtual std::byte* of(int rank) = 0;
};

/// The number of tags of most channels.
inline constexpr int kFewTags = 128;
/// The number of tags of a channel between some of the ranks.
inline constexpr int kSplitTags = 64;
/// How often a channel can be split at most. A communicator's first channel has no such limit.
inline constexpr int kMostSplits = 3;
/// The number of tags that a channel with `tags` tags takes, so that it can be split.
constexpr int tags_with_splits(int tags) {
    return tags + kMostSplits * kSplitTags;
}

/// Ranks and the way bytes travel between them. The only arithmetic is NCCL's dense sum. One object is one channel:
/// messages of different channels never meet. Used by one thread at a time.
class Transport {
  public:
    virtual ~Transport() = default;

    virtual const char* name() const = 0;
    virtual int rank() const = 0;
    virtual int size() const = 0;
    /// Whether messages may lie in a GPU's memory.
    virtual bool reaches_devices() const { return false; }
    /// Whether exchanges are work in a GPU's stream(). Then they are done as soon as they are in the stream: work that
    /// uses their bytes comes later in it. All ranks must start them in the same order.
    virtual bool is_stream_ordered() const { return false; }
    /// Whether the exchanges of its split_nodes() channels are, even if its own are not.
    virtual bool has_stream_ordered_nodes() const { return is_stream_ordered(); }
    /// The cudaStream_t of all work on a GPU's values, where there is only one.
    virtual std::optional<void*> stream() const { return {}; }

    /// Ends everything in flight on the communicator that this channel belongs to. Its channels share the switch.
    virtual std::shared_ptr<AbortSwitch> abort_switch() const = 0;
    /// The space that the tags of the communicator's channels are taken from; NULL where channels need no tags.
    virtual TagSpace* tag_space() { return nullptr; }
    /// The same number on all ranks that can share memory; another number on other ranks.
    virtual std::uint64_t node_identity() const = 0;

    // ---- collective: all ranks make the same channels, in the same order. NCCL blocks, no other transport does ----

    /// A new channel between the same ranks. The tags of its exchanges are less than `tags`.
    virtual Status duplicate(int tags, std::unique_ptr<Transport>* channel) = 0;
    /// A new channel between the ranks of this rank's color, in the same order. `color_of_rank` is the same on every
    /// rank. Tags are less than kSplitTags. UNSUPPORTED after kMostSplits times.
    virtual Status split(const std::vector<int>& color_of_rank, std::unique_ptr<Transport>* channel) = 0;
    /// The first channel of a part of the ranks, with an abort switch and channels of its own. `members`: the ranks of
    /// this rank's part, this rank among them, in the order of their new ranks. Empty: this rank is in no part, and
    /// gets no channel. UNSUPPORTED on every rank where there are no parts. Only for a communicator's own channel.
    virtual Status make_group(const std::vector<int>& /*members*/, std::unique_ptr<Transport>* /*channel*/) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED, "%s: a communicator over it can't be split", name());
    }
    /// The same as split() where the colors are nodes, for values in a GPU's memory. The channel uses the quickest way
    /// inside a node.
    virtual Status split_nodes(const std::vector<int>& node_of_rank, std::unique_ptr<Transport>* channel) {
        return split(node_of_rank, channel);
    }
    /// Only where all ranks are on one node. `bytes` is the same on every rank. plan_memory() has made `*memory`.
    /// Blocks, but no longer than `patience` allows.
    virtual Status share_memory(std::size_t bytes, const Patience& patience, std::unique_ptr<SharedMemory>* memory) = 0;

    // ---- local ----

    /// Makes what share_memory() needs on this rank. All ranks must have it before any of them calls share_memory(),
    /// where the others could only wait for a rank that can't begin. By default: what share_node_memory() needs.
    virtual Status plan_memory(std::unique_ptr<SharedMemory>* memory);
    /// Parts of zero bytes are left out. `tag`: distinguishes the exchanges of one channel.
    virtual Status plan_exchange(std::vector<Part> sends, std::vector<Part> receives, int tag,
                                 std::unique_ptr<Exchange>* exchange) = 0;
    /// A sum of the transport's own, in a GPU's memory. UNSUPPORTED where there is none, as over messages.
    virtual Status plan_sum(std::size_t /*count*/, std::unique_ptr<Sum>* /*sum*/) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED, "%s has no sum of its own", name());
    }

    /// Whether there is a call for the whole of such an exchange, in a GPU's memory. The same on every rank.
    virtual bool has_native(Pattern /*pattern*/) const { return false; }
    /// An exchange by that call, of rows of `row_bytes` bytes. Either all ranks plan it or none does: one rank's
    /// messages would never meet the other ranks' calls. So the decision must depend only on what all ranks know alike.
    virtual Status plan_native(Pattern /*pattern*/, const void* /*from*/, void* /*to*/, std::size_t /*row_bytes*/,
                               std::unique_ptr<Exchange>* /*exchange*/) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED, "%s has no such call", name());
    }

    /// Makes progress with all messages of this rank, not only this channel's. Called over and over by code that waits
    /// for a peer, but not for a message: the peer may wait for a message of this rank.
    virtual Status progress() { return {}; }

    /// Bytes that this rank has sent to others through this channel. A dense sum counts as what a ring would send.
    virtual std::uint64_t bytes_sent() const { return bytes_sent_; }

    /// The operations in flight will never be finished. Lets go of whatever they hold, for example a GPU's stream,
    /// which would wait for the other ranks for ever. Where messages can, tells the other ranks why: their operations
    /// on this channel fail with `why`. The channel is of no use afterwards.
    virtual void give_up(const Status& why) = 0;
    /// Ranks that have not given this channel up by now, as far as is known. Local.
    virtual std::vector<int> silent_ranks() { return {}; }

  protected:
    /// For transports that reach the host's memory alone.
    static Status check_on_host(const std::vector<Part>& sends, const std::vector<Part>& receives) {
        const auto on_host = [](const Part& part) { return !part.on_device; };
        if (std::all_of(sends.begin(), sends.end(), on_host) && std::all_of(receives.begin(), receives.end(), on_host))
            return {};
        return Status::error(ONEBIT_ERROR_UNSUPPORTED, "messages in a GPU's memory need a transport that can reach it");
    }
    /// Leaves out empty parts, as every transport does first.
    static void drop_empty(std::vector<Part>& sends, std::vector<Part>& receives) {
        const auto is_empty = [](const Part& part) { return part.bytes == 0; };
        std::erase_if(sends, is_empty);
        std::erase_if(receives, is_empty);
    }

    /// The operations add what they send.
    std::uint64_t bytes_sent_ = 0;
};

/// The bytes that each rank sends in a ring allreduce of `bytes` bytes: 2 (n - 1) / n of them.
inline std::uint64_t ring_bytes(std::size_t bytes, int ranks) {
    const auto n = static_cast<std::uint64_t>(ranks);
    return 2 * (n - 1) * bytes / n;
}

} // namespace onebit
