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

/// A running mean (a momentum) of the values sent before: keep * last message + take * (factor * inputs), or with
/// weights keep * last message + take * clamp(weights * (factor * inputs), +-bound). The momentum needs no memory of
/// its own.
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

/// The values of a block to encode: `data`; or the blend of `data`, or the mean, that the host's codec computes; or the
/// values that a GPU's encoder reads by itself, for this block and all other blocks that a verb is given.
struct BlockValues {
    const float* data = nullptr;
    std::optional<Blend> blend = std::nullopt;
    std::optional<Mean> mean = std::nullopt;
    const cuda::SliceEncoder* encoder = nullptr;
};

/// Where the values of a buffer to encode come from. Encoders ask once per block, from several threads at once. So
/// values computed on the way to the encoder stay in the cache and cost no pass over memory.
class ValueSource {
  public:
    virtual ~ValueSource() = default;
    /// The block's values: their address, or `scratch` (kBlockElements floats, aligned) after they were written there.
    /// `scratch` may also hold the list of a mean's parts.
    virtual BlockValues read(const Block& block, float* scratch) const = 0;

    // Where several ranks encode as one, each rank gives its share, and one rank encodes of_mean() of the shares' mean.

    /// The address of this rank's share of a block: where the share lies, or `scratch`. No blend, no mean.
    virtual const float* read_share(const Block& block, float* scratch) const { return read(block, scratch).data; }
    /// The values to encode, made from the mean of the shares. They may overwrite the mean.
    virtual BlockValues of_mean(const Block& /*block*/, float* mean) const { return {mean}; }
};

/// Elements that are decoded at a time: few enough to be still in the innermost cache when they are used.
inline constexpr std::size_t kTileElements = 1024;

/// Where decoded values go. Several threads use it at once. A block comes in tiles.
class ValueSink {
  public:
    virtual ~ValueSink() = default;
    /// Where the values [begin, begin + count) of the whole buffer are to be written: their place, or `scratch`.
    virtual float* place(std::size_t begin, float* scratch) const = 0;
    virtual Stores stores() const { return Stores::kCached; }
    /// Called after the values are written.
    virtual void written(const Block& block, std::size_t begin, std::size_t count, const float* values) const = 0;
    /// Whether any written value was too large for its destination.
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
    /// `first`: as in ArraySource.
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
/// or the server error (the rank's own chunk). A collective owns it; only the codec that made it understands it.
class Feedback {
  public:
    virtual ~Feedback() = default;

    /// Forgets the error.
    virtual void reset() = 0;
    /// Copies the error out and in; as many elements as the chunks have.
    virtual void get_error(float* error) const = 0;
    virtual void set_error(const float* error) = 0;
    /// From now on, only elements whose bit is 1 take part (empty: all). Zeroes the error of the other elements. The
    /// words cover the whole buffer and are not copied.
    virtual void set_mask(std::span<const std::uint32_t> mask) = 0;

    virtual std::size_t state_bytes() const = 0;
    virtual std::size_t workspace_bytes() const = 0;

    /// The seeds of the random numbers that a code may draw.
    struct Draw {
        std::uint64_t call = 0;   ///< the number of the call that encodes next, the same on every rank
        std::uint32_t stream = 0; ///< a different one for each encoder of each rank
    };
    const Draw& draw() const { return draw_; }
    void set_call(std::uint64_t number) { draw_.call = number; }
    void set_stream(std::uint32_t stream) { draw_.stream = stream; }

  private:
    Draw draw_;
};

/// How to fill `after`: where it has a buffer of its own, the quicker way for its size.
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
    const std::uint32_t* last = nullptr; ///< the message that blends refer to; may be the one that is written,
                                         ///< because a block is read before any of its words is written
    std::uint32_t* message = nullptr;
};

/// A slice to read from its chunk's message.
struct EncodedSlice {
    Slice slice;
    const std::uint32_t* message = nullptr;
};

/// A span of one element. A temporary element lives as long as the call that the span is made for.
template <typename T>
std::span<const T> only(const T& one) {
    return {&one, 1};
}

/// Turns values into messages of a fixed size and back, carrying the error in a Feedback. A message is an array of
/// 32-bit words and stands for one chunk. All verbs work on slices, so that an algorithm can serve the network between
/// two slices. The slices of one message may come in any order, each once.
class Codec {
  public:
    virtual ~Codec() = default;

    virtual const char* kernels() const = 0;
    /// Where values, messages, masks and errors lie. Sources and sinks must have their values there.
    virtual Memory& memory() const { return host_memory(); }
    /// The failure of a verb, if any: verbs themselves return no status. A GPU may fail.
    virtual Status failure() const { return {}; }
    virtual std::size_t message_words(const Chunk& chunk) const = 0;
    /// The same, plus the words left free before a message that follows, so that each message begins where copying is
    /// quickest.
    virtual std::size_t row_words(const Chunk& chunk) const { return message_words(chunk); }
    /// The words of the message that stand for a slice. The words of consecutive slices follow each other without gaps.
    virtual WordRange words_of(const Slice& slice) const = 0;
    /// Whether the codec encodes blends. If not, its callers compute blends before they encode.
    virtual bool takes_blends() const { return false; }
    /// The words after the last slice, known only when the message is sealed. Before that, nothing can be averaged or
    /// decoded. May be empty.
    virtual WordRange trailer_of(const Chunk& chunk) const = 0;
    virtual std::unique_ptr<Feedback> make_feedback(std::span<const Chunk> chunks) const = 0;

    /// How many blocks a verb is given at a time by an algorithm that must serve the network in between. A GPU's verbs
    /// return at once, and each costs a launch.
    virtual std::size_t blocks_at_once() const { return SliceCursor::kSliceBlocks; }
    static constexpr std::size_t kUnlimited = SIZE_MAX;

    // An encoder reads the error from `before` and leaves the new error in `after`. Both have the same chunks and mask.
    // They are the same object, or two objects where the call may still be called off.

    /// Worker: encodes values + error into the messages.
    virtual void encode(const ValueSource& values, const Feedback& before, Feedback& after,
                        std::span<const SliceToEncode> slices) const = 0;

    /// Server: adds up what one message per rank stands for, times `share`, in rank order. Then adds the error and
    /// encodes the sum.
    virtual void average_encode(std::span<const std::uint32_t* const> messages, float share, const Feedback& before,
                                Feedback& after, const Slice& slice, std::uint32_t* message) const = 0;

    /// The same average as values, neither corrected nor encoded, for a rank that doesn't pass it on. Only in the
    /// host's memory; a GPU's codec fails.
    virtual void average(std::span<const std::uint32_t* const> messages, float share, const Slice& slice,
                         const ValueSink& values) const = 0;

    /// False if a slice that encode has just written to `after` and `message` held a NaN or an infinity, or if its
    /// error has overflowed. Only on the host, and without a mask.
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

    /// The number of the first slice whose part of its message says infinity or NaN, because the sender's error has
    /// overflowed; slices.size() if there is none. A GPU's codec only starts the search, and returns slices.size().
    virtual std::size_t first_overflowed(std::span<const EncodedSlice> slices) const = 0;
    /// True once the result is known of all searches that first_overflowed has started since this was last true:
    /// *element belongs to the first block that overflowed, or is kNoElement. False: call again.
    virtual bool find_overflow(std::size_t* element) const {
        *element = kNoElement;
        return true;
    }
    static constexpr std::size_t kNoElement = SIZE_MAX;
};

/// Bits of an element in a message, including its share of a scale, with the codec's default settings. For estimates of
/// costs.
double bits_per_element(onebit_codec_t codec);
/// The error of one call of two ranks, over the norm of the exact average, of Gaussian values (docs/CODECS.md, "Speed
/// and error"); also with the default settings.
double error_of_call(onebit_codec_t codec);
/// "ONEBIT_CODEC_INT8".
const char* name_of(onebit_codec_t codec);

/// Settings of ONEBIT_CODEC_TOPK and ONEBIT_CODEC_RANDOMK; 0: the default.
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
    onebit_datatype_t error_type = ONEBIT_FLOAT32; ///< of the error that is kept: or BFLOAT16, or INT8
    onebit_rounding_t rounding = ONEBIT_ROUNDING_NEAREST;
};

/// Whether there is such a codec (registry.cpp). INVALID_ARGUMENT where it is unknown, or has no such settings.
/// UNSUPPORTED, naming the codecs that can, where this codec can't work in that memory. Kernels, threads and stream are
/// not checked.
Status check_codec(const CodecConfig& config);

/// The codec's settings in a caller's config: that of a collective, a level or an optimizer.
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

/// Makes the codec. Errors as of check_codec; also INVALID_ARGUMENT where the kernels are unknown.
Status make_codec(const CodecConfig& config, std::unique_ptr<Codec>* codec);

} // namespace onebit
