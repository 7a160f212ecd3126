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
    std::size_t pitch = 0;  ///< where it lies in an array's row: bytes to the same place in the next one; else 0
};

/// A fixed pattern of messages, planned once and started many times; at most one start is in flight. Ranks plan
/// matching patterns: for every send a receive of the same size, tag and order. The buffers must outlive it.
class Exchange {
  public:
    virtual ~Exchange() = default;
    /// Posts all messages; does not block.
    virtual Status start() = 0;
    /// Sets *done once all have been sent and received; makes progress, does not block.
    virtual Status test(bool* done) = 0;
};

/// Exchanges of equally long messages between all ranks, `rows` that lie one behind the other, one for each rank. This
/// rank's own row is copied likewise.
enum class Pattern {
    kAllToAll, ///< row j of what is sent goes to rank j, which receives it as the row of this rank
    kAllGather ///< one row is sent to all, who receive it as the row of this rank; it may lie there already
};

/// A dense sum over the ranks, planned for a number of floats; at most one start is in flight.
class Sum {
  public:
    virtual ~Sum() = default;
    /// output = sum over the ranks of input; in place where they are the same.
    virtual Status start(const float* input, float* output) = 0;
    virtual Status test(bool* done) = 0;
};

/// Memory that the ranks of one node see directly: so many bytes of each, aligned to 64, zeroes at first. Who wrote
/// what is for its users to tell each other, through atomics in it. Each rank lets go of it by itself.
class SharedMemory {
  public:
    virtual ~SharedMemory() = default;
    virtual std::byte* of(int rank) = 0;
};

/// What most channels have of tags.
inline constexpr int kFewTags = 128;
/// And what those of some of the ranks have.
inline constexpr int kSplitTags = 64;
/// How often a channel can be split, but a communicator's first one, at most.
inline constexpr int kMostSplits = 3;
/// What a channel with so many tags takes, so that it can be split.
constexpr int tags_with_splits(int tags) {
    return tags + kMostSplits * kSplitTags;
}

/// Ranks and the way bytes travel between them; no arithmetic but NCCL's dense sum. One object is one channel: messages
/// of different channels never meet. Used by one thread at a time.
class Transport {
  public:
    virtual ~Transport() = default;

    virtual const char* name() const = 0;
    virtual int rank() const = 0;
    virtual int size() const = 0;
    /// Whether messages may lie in a GPU's memory.
    virtual bool reaches_devices() const { return false; }
    /// Whether exchanges are work in a GPU's stream(): done as soon as they are in it, whoever uses their bytes coming
    /// later in the stream; and to be started in the same order on all ranks.
    virtual bool is_stream_ordered() const { return false; }
    /// Whether those of its split_nodes() are, if not its own.
    virtual bool has_stream_ordered_nodes() const { return is_stream_ordered(); }
    /// The cudaStream_t of all work on a GPU's values, where there is but one.
    virtual std::optional<void*> stream() const { return {}; }

    /// What ends everything in flight on the communicator that this channel belongs to; its channels share it.
    virtual std::shared_ptr<AbortSwitch> abort_switch() const = 0;
    /// What the tags of the communicator's channels are taken from; NULL where channels need none.
    virtual TagSpace* tag_space() { return nullptr; }
    /// Ranks that can share memory have the same, other ranks another one.
    virtual std::uint64_t node_identity() const = 0;

    // ---- collective: all ranks make the same channels, in the same order. NCCL blocks, no other transport does ----

    /// A new channel between the same ranks. The tags of its exchanges are less than `tags`.
    virtual Status duplicate(int tags, std::unique_ptr<Transport>* channel) = 0;
    /// A new channel between the ranks of this rank's color, in the same order. The same colors on every rank. Tags are
    /// less than kSplitTags. UNSUPPORTED after kMostSplits times.
    virtual Status split(const std::vector<int>& color_of_rank, std::unique_ptr<Transport>* channel) = 0;
    /// The first channel of a part of the ranks, with an abort switch and channels of its own. `members`: the ranks of
    /// this rank's part, itself among them, in the order of their new ones; none: this rank is in no part, and gets
    /// nothing. UNSUPPORTED on every rank where there are no parts. For a communicator's own channel.
    virtual Status make_group(const std::vector<int>& /*members*/, std::unique_ptr<Transport>* /*channel*/) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED, "%s: a communicator over it can't be split", name());
    }
    /// The same as split() where the colors are nodes, for values in a GPU's memory: by the quickest way that a node
    /// has.
    virtual Status split_nodes(const std::vector<int>& node_of_rank, std::unique_ptr<Transport>* channel) {
        return split(node_of_rank, channel);
    }
    /// Only where all ranks are on one node. The same bytes on every rank. `*memory` is what plan_memory() has made.
    /// Blocks, no longer than `patience` has it.
    virtual Status share_memory(std::size_t bytes, const Patience& patience, std::unique_ptr<SharedMemory>* memory) = 0;

    // ---- local ----

    /// Makes what share_memory() needs on this rank. All ranks have it before one of them calls share_memory(): there
    /// the others could only wait for a rank that can't begin. By default what share_node_memory() needs.
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
    /// An exchange by that call, of rows of so many bytes. All ranks plan it, or none does: who decides must go by what
    /// all know alike, for what one of them sends as messages would never meet the others' calls.
    virtual Status plan_native(Pattern /*pattern*/, const void* /*from*/, void* /*to*/, std::size_t /*row_bytes*/,
                               std::unique_ptr<Exchange>* /*exchange*/) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED, "%s has no such call", name());
    }

    /// Moves on whatever this rank's messages, not only this channel's, wait for. For who waits for a peer, but not for
    /// a message, over and over: the peer may wait for one of this rank's.
    virtual Status progress() { return {}; }

    /// Bytes that this rank has sent to others through this channel. A dense sum counts as what a ring would send.
    virtual std::uint64_t bytes_sent() const { return bytes_sent_; }

    /// The operations in flight will never be finished. Lets go of whatever they hold, a GPU's stream say, which would
    /// wait for the others for ever; and tells the others why, where messages can: their operations on this channel
    /// fail with it. The channel is of no use afterwards.
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

    /// For the operations to count what they send.
    std::uint64_t bytes_sent_ = 0;
};

/// What each rank of a ring allreduce of so many bytes sends: twice its own share of all but one n-th.
inline std::uint64_t ring_bytes(std::size_t bytes, int ranks) {
    const auto n = static_cast<std::uint64_t>(ranks);
    return 2 * (n - 1) * bytes / n;
}

} // namespace onebit
