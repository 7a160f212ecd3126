// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/memory.hpp"
#include "core/partition.hpp"
#include "core/status.hpp"
#include "core/stores.hpp"

namespace onebit {

/// A running mean of what was sent before: keep * last message + take * (factor * inputs), or with weights keep * last
/// message + take * clamp(weights * (factor * inputs), +-bound). A momentum, that is, which then needs no memory of its
/// own.
struct Blend {
    float keep = 0;
    float take = 1;
    float factor = 1;
    const float* weights = nullptr; ///< of the block's elements; NULL: none
    float bound = 0;                ///< where there are weights
};

/// The mean of several ranks' values: (parts[0] + parts[1] + ...) * share, added in this order.
struct Mean {
    std::span<const float* const> parts;
    float share = 1;
};

namespace cuda {
class SliceEncoder;
}

/// The values of a block that is to be encoded: `data`, or what the host's codec makes of `data` where there is a
/// blend, or a mean; or what a GPU's encoder reads by itself, of this block and all others that a verb is given.
struct BlockValues {
    const float* data = nullptr;
    std::optional<Blend> blend = std::nullopt;
    std::optional<Mean> mean = std::nullopt;
    const cuda::SliceEncoder* encoder = nullptr;
};

/// Where the values of a buffer come from that is to be encoded. Asked for once per block, by several threads at once:
/// what is computed on the way to the encoder stays in the cache and costs no pass over memory.
class ValueSource {
  public:
    virtual ~ValueSource() = default;
    /// The block's values: where they lie, or `scratch` (kBlockElements floats, aligned) after they were put there; it
    /// may also hold the list of a mean's parts.
    virtual BlockValues read(const Block& block, float* scratch) const = 0;

    // Where several ranks encode as one: each gives its share, and one of them encodes what comes of the shares' mean.

    /// The address of this rank's share of a block: where it lies, or `scratch`. No blend, no mean.
    virtual const float* read_share(const Block& block, float* scratch) const { return read(block, scratch).data; }
    /// What is encoded, of the mean of the shares, in whose place it may put it.
    virtual BlockValues of_mean(const Block& /*block*/, float* mean) const { return {mean}; }
};

/// Elements that are decoded at a time: few enough to be still in the innermost cache when they are used.
inline constexpr std::size_t kTileElements = 1024;

/// Where decoded values go; likewise. A block comes in tiles.
class ValueSink {
  public:
    virtual ~ValueSink() = default;
    /// Where the values [begin, begin + count) of the whole buffer are to be written: their place, or `scratch`.
    virtual float* place(std::size_t begin, float* scratch) const = 0;
    virtual Stores stores() const { return Stores::kCached; }
    /// They are written.
    virtual void written(const Block& block, std::size_t begin, std::size_t count, const float* values) const = 0;
    /// Whether one of all that were written was too large for where it went.
    virtual bool overflowed() const { return false; }
};

/// A buffer that lies in memory.
class ArraySource final : public ValueSource {
  public:
    /// `first`: the element of the whole buffer that the first value is.
    explicit ArraySource(const float* values = nullptr, std::size_t first = 0) : values_(values), first_(first) {}
    BlockValues read(const Block& block, float*) const override { return {values_ + (block.begin() - first_)}; }

  private:
    const float* values_;
    std::size_t first_;
};

class ArraySink final : public ValueSink {
  public:
    /// Likewise.
    explicit ArraySink(float* values = nullptr, Stores stores = Stores::kCached, std::size_t first = 0)
        : values_(values), stores_(stores), first_(first) {}
    float* place(std::size_t begin, float*) const override { return values_ + (begin - first_); }
    Stores stores() const override { return stores_; }
    void written(const Block&, std::size_t, std::size_t, const float*) const override {}

  private:
    float* values_;
    Stores stores_;
    std::size_t first_;
};

/// What an encoder could not express so far, for some consecutive chunks of the buffer: the worker error (all chunks)
/// or the server error (the rank's own). Owned by a collective, understood only by the codec that made it.
class Feedback {
  public:
    virtual ~Feedback() = default;

    /// Forgets the error.
    virtual void reset() = 0;
    /// Copies the error out and in; as many elements as the chunks have.
    virtual void get_error(float* error) const = 0;
    virtual void set_error(const float* error) = 0;
    /// From now on only elements whose bit is 1 take part (empty: all); zeroes the others' error. The words cover the
    /// whole buffer and are not copied.
    virtual void set_mask(std::span<const std::uint32_t> mask) = 0;

    virtual std::size_t state_bytes() const = 0;
    virtual std::size_t workspace_bytes() const = 0;

    /// What a code may draw random numbers by.
    struct Draw {
        std::uint64_t call = 0;   ///< the number of the call that encodes next, the same on every rank
        std::uint32_t stream = 0; ///< another one for each encoder of the ranks
    };
    const Draw& draw() const { return draw_; }
    void set_call(std::uint64_t number) { draw_.call = number; }
    void set_stream(std::uint32_t stream) { draw_.stream = stream; }

  private:
    Draw draw_;
};

/// How to fill the error of an encoder that has a buffer of its own for it.
inline Stores stores_of(const Feedback& before, const Feedback& after) {
    return &before == &after ? Stores::kCached : stores_for(after.state_bytes());
}

/// Some consecutive words of a message.
struct WordRange {
    std::size_t begin = 0;
    std::size_t count = 0;
};

/// What is to be encoded, and where its chunk's message lies.
struct SliceToEncode {
    Slice slice;
    const std::uint32_t* last = nullptr; ///< the message that blends refer to; may be the one that is written, for a
                                         ///< block is read before any of its words is written
    std::uint32_t* message = nullptr;
};

/// What is to be read of its chunk's message.
struct EncodedSlice {
    Slice slice;
    const std::uint32_t* message = nullptr;
};

/// A span of one that lives as long as the call it is made for.
template <typename T>
std::span<const T> only(const T& one) {
    return {&one, 1};
}

/// Turns values into messages of a fixed size and back, carrying the error in a Feedback. A message is an array of
/// 32-bit words and stands for one chunk. All verbs work on slices, so that an algorithm can look after the network
/// between two of them; slices of one message may come in any order, each once.
class Codec {
  public:
    virtual ~Codec() = default;

    virtual const char* kernels() const = 0;
    /// Where values, messages, masks and errors lie; sources and sinks must have them there.
    virtual Memory& memory() const { return host_memory(); }
    /// What went wrong in a verb, none of which can tell, if anything did. A GPU may fail.
    virtual Status failure() const { return {}; }
    virtual std::size_t message_words(const Chunk& chunk) const = 0;
    /// The same and what is left free after it where another one follows: so much that each begins where copying is
    /// quickest.
    virtual std::size_t row_words(const Chunk& chunk) const { return message_words(chunk); }
    /// Where in the message what stands for a slice lies. Slices in order lie in order, without gaps.
    virtual WordRange words_of(const Slice& slice) const = 0;
    /// Whether it encodes blends; else what it is given has been put together before.
    virtual bool takes_blends() const { return false; }
    /// What follows after the last slice, known only when the message is sealed; until it is there nothing can be
    /// averaged or decoded. May be empty.
    virtual WordRange trailer_of(const Chunk& chunk) const = 0;
    virtual std::unique_ptr<Feedback> make_feedback(std::span<const Chunk> chunks) const = 0;

    /// How many blocks a verb is given at a time by those who must look after the network in between. A GPU's verbs
    /// return at once, and each costs a launch.
    virtual std::size_t blocks_at_once() const { return SliceCursor::kSliceBlocks; }
    static constexpr std::size_t kUnlimited = SIZE_MAX;

    // An encoder reads the error from `before` and leaves the new one in `after`, of the same chunks and mask: one and
    // the same, or two where the call may yet be called off.

    /// Worker: encodes values + error into the messages.
    virtual void encode(const ValueSource& values, const Feedback& before, Feedback& after,
                        std::span<const SliceToEncode> slices) const = 0;

    /// Server: adds up what one message per rank stands for, times `share`, in rank order, adds the error and encodes
    /// that.
    virtual void average_encode(std::span<const std::uint32_t* const> messages, float share, const Feedback& before,
                                Feedback& after, const Slice& slice, std::uint32_t* message) const = 0;

    /// The same average as values, neither corrected nor encoded: for who doesn't hand it on. Of the host's memory; a
    /// GPU's codec fails.
    virtual void average(std::span<const std::uint32_t* const> messages, float share, const Slice& slice,
                         const ValueSink& values) const = 0;

    /// False if a slice that encode has just left in `after` and `message` held a NaN or an infinity, or its error has
    /// overflowed; on the host, and without a mask.
    virtual bool encoded_finite(const Feedback&, const Slice&, const std::uint32_t*) const { return true; }

    /// Completes the messages of all the feedback's chunks once every slice is encoded: writes what is known only then
    /// (a scale that covers several slices).
    virtual void seal(Feedback& after, std::span<std::uint32_t* const> messages) const = 0;

    /// Expands messages. Elements outside the mask, whose words cover the whole buffer, become zero.
    virtual void decode(std::span<const EncodedSlice> slices, std::span<const std::uint32_t> mask,
                        const ValueSink& values) const = 0;
    /// The same for one block, into `values`, whose first element is the block's.
    virtual void decode_block(const std::uint32_t* message, const Block& block, std::span<const std::uint32_t> mask,
                              float* values) const = 0;

    /// The number of the first slice whose part of its message says infinity or NaN, for the sender's error has
    /// overflowed; slices.size() if there is none. A GPU's codec has yet to look, and says that.
    virtual std::size_t first_overflowed(std::span<const EncodedSlice> slices) const = 0;
    /// True once it is known what first_overflowed said too early, since this was last so: *element belongs to the
    /// first block that overflowed, or is kNoElement. Until then to be called again.
    virtual bool find_overflow(std::size_t* element) const {
        *element = kNoElement;
        return true;
    }
    static constexpr std::size_t kNoElement = SIZE_MAX;
};

/// Of an element in a message, its share of a scale included, with the codec's default settings: what costs are
/// estimated by.
double bits_per_element(onebit_codec_t codec);
/// What one call of two ranks leaves out, over the norm of the exact average, of Gaussian values (docs/CODECS.md,
/// "Speed and error"); likewise.
double error_of_call(onebit_codec_t codec);
/// "ONEBIT_CODEC_INT8".
const char* name_of(onebit_codec_t codec);

/// Of ONEBIT_CODEC_TOPK and ONEBIT_CODEC_RANDOMK; 0: the default.
struct SparseSettings {
    std::uint32_t kept = 0;       ///< elements of 4096
    std::uint32_t value_bits = 0; ///< of each
};

struct CodecConfig {
    onebit_codec_t codec = ONEBIT_CODEC_SIGN;
    onebit_scale_t scale = ONEBIT_SCALE_L2;
    onebit_group_t group = ONEBIT_GROUP_BLOCK;
    unsigned threads = 1;
    std::string kernels; ///< by name, where values are on the host; "": the best that this machine has
    onebit_memory_t memory = ONEBIT_MEMORY_HOST; ///< where values lie
    void* stream = nullptr;                      ///< a cudaStream_t, where they are on a GPU
    SparseSettings sparse = {};
    onebit_datatype_t error_type = ONEBIT_FLOAT32; ///< of what an encoder keeps: or BFLOAT16, or INT8
    onebit_rounding_t rounding = ONEBIT_ROUNDING_NEAREST;
};

/// Whether there is such a codec (registry.cpp). INVALID_ARGUMENT where it is unknown, or has no such settings.
/// UNSUPPORTED, naming the codecs that there are, where this one can't work in that memory. Kernels, threads and stream
/// are not looked at.
Status check_codec(const CodecConfig& config);

/// The settings of a codec in a caller's config, of whatever collective, level or optimizer.
template <typename Config>
CodecConfig codec_config_of(const Config& config) {
    CodecConfig codec;
    codec.codec = config.codec;
    codec.scale = config.scale;
    codec.group = config.group;
    if constexpr (requires { config.memory; }) codec.memory = config.memory; // levels are the host's
    codec.sparse = {config.kept, config.value_bits};
    codec.error_type = config.error_type;
    if constexpr (requires { config.rounding; }) codec.rounding = config.rounding; // optimizers and levels have none
    return codec;
}

/// Makes the codec. As check_codec; and INVALID_ARGUMENT where the kernels are unknown.
Status make_codec(const CodecConfig& config, std::unique_ptr<Codec>* codec);

} // namespace onebit
