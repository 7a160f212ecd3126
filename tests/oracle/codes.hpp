// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The reference for the grouped codes and the codes of few elements (docs/WIRE_FORMAT.md). One object simulates all
// ranks of an allreduce, element by element. Unlike the sign's oracle, it uses the float operations of that page, in
// the page's order. So results, errors and messages may be compared bit for bit. It includes no code of the library.
#pragma once

#include "oracle/oracle.hpp"

namespace oracle {

using Floats = std::vector<float>;
using FloatsPerRank = std::vector<Floats>; // [rank][element]
using Words = std::vector<std::uint32_t>;

// The numbers are those of onebit_codec_t.
enum class Code {
    int8 = 1,
    int4 = 2,
    fp4 = 3,
    bfloat16 = 4,
    ternary = 5,
    topk = 6,
    float16 = 7,
    int2 = 8,
    means = 9,
    randomk = 10
};

constexpr Code all_codes[] = {Code::int8, Code::int4,    Code::fp4,  Code::bfloat16, Code::ternary,
                              Code::topk, Code::float16, Code::int2, Code::means,    Code::randomk};
constexpr const char* name_of(Code code) {
    constexpr const char* names[] = {"",     "int8",    "int4", "fp4",   "bfloat16", "ternary",
                                     "topk", "float16", "int2", "means", "randomk"};
    return names[static_cast<int>(code)];
}

// For topk and randomk: how many of 4096 elements are kept, and the bits of each element's code, 8 or 2.
struct TopK {
    std::uint64_t kept = 64;
    unsigned bits = 8;
};

// The type in which errors are stored.
enum class ErrorType { float32, bfloat16, int8 };

constexpr std::uint64_t group_elements = 256;

// The bits of one element's code in a message. Not for topk and randomk.
std::uint64_t bits_of(Code code);

// Float operations. A subnormal operand or a tiny result is the zero of its sign.
float plus(float a, float b);
float minus(float a, float b);
float times(float a, float b);
float divided(float a, float b);
float square_root(float a);
// The nearest float; a tiny one is the zero of its sign.
float rounded(double x);

// A group's scale; not finite if one of the elements isn't. topk and randomk are not supported here.
float scale_of(Code code, const Floats& group);
// The code of one element of a group with this scale, in the lowest bits.
std::uint32_t code_of(Code code, float c, float scale);
float value_of(Code code, std::uint32_t bits, float scale);

// The part of one chunk that is sent, and the part that is not.
struct Encoded {
    Words words;
    Floats error;
    bool finite = true; // all scales are
};
// `call`: the call's number, for randomk.
Encoded encode(Code code, const Floats& c, TopK topk = {}, std::uint64_t call = 0);
// The values of a message of `count` elements; NaN where the scale of a group (topk and randomk: of a block) is not
// finite.
Floats decode(Code code, const Words& words, std::uint64_t count, float share, TopK topk = {});
// Which of a message's elements are added up. Only topk and randomk leave elements out.
std::vector<bool> elements_sent(Code code, const Words& words, std::uint64_t count, TopK topk = {});

// The words of a message of so many elements.
std::uint64_t message_words(Code code, std::uint64_t count, TopK topk = {});

// The errors of a chunk, rounded to the type in which they are stored.
Floats kept(ErrorType type, Floats errors);

// `((x_0 + x_1) + ...) * (1/L)` of each element. An average that is not finite is computed in double.
Floats exact(const FloatsPerRank& inputs, Op op);

// The compressed allreduce on one level, in any form.
class CodedAllreduce {
  public:
    CodedAllreduce(std::uint64_t count, int ranks, Code code, Op op = Op::average, TopK topk = {});

    // Elements outside the mask are zero from now on: value, error and result.
    void set_mask(const std::vector<bool>& mask);
    // Both errors are zero from now on.
    void reset();
    // One call with inputs[rank][element]. Where a scale is not finite the call fails: no result, and errors of zero.
    const Floats& step(const FloatsPerRank& inputs);

    const std::vector<Range>& chunks() const { return chunks_; }
    Floats worker_error(int rank) const { return worker_errors[static_cast<std::size_t>(rank)]; }
    Range served(int rank) const { return chunks_[static_cast<std::size_t>(rank)]; }
    Floats server_error(int rank) const { return server_errors[static_cast<std::size_t>(rank)]; }

    // The number of the next call.
    std::uint64_t call = 0;
    // What errors are rounded to as soon as they are formed.
    ErrorType error_type = ErrorType::float32;

    // The error state; tests may overwrite it.
    FloatsPerRank worker_errors, server_errors; // [rank][element of the buffer], [rank][element of its chunk]

    // Of the last step.
    std::vector<std::vector<Words>> worker_messages; // [rank][chunk]
    std::vector<Words> server_messages;              // [chunk]
    Floats result;
    bool finite = true;

  private:
    bool takes_part(std::uint64_t i) const { return mask_.empty() || mask_[i]; }
    void clear_outside_mask();
    Words send(Range range, const Floats& values, float* error);

    std::uint64_t count_;
    Code code_;
    TopK topk_;
    float share_;
    std::vector<Range> chunks_;
    std::vector<bool> mask_;
};

// The compressed allreduce on two levels. Rank r has place r % places in node r / places.
class CodedTwoLevel {
  public:
    CodedTwoLevel(std::uint64_t count, int nodes, int places, Code code, Op op = Op::average, TopK topk = {});

    void set_mask(const std::vector<bool>& mask);
    void reset();
    // What errors are rounded to from now on.
    void set_error_type(ErrorType type);
    const Floats& step(const FloatsPerRank& inputs);

    // For the whole buffer: zero outside the rank's shard.
    Floats worker_error(int rank) const;
    Range served(int rank) const;
    Floats server_error(int rank) const;

    Floats result;
    bool finite = true;

  private:
    std::uint64_t count_;
    int nodes_, places_;
    Op op_;
    std::vector<Range> shards_;
    std::vector<CodedAllreduce> levels_; // [place]: between the nodes
};

} // namespace oracle
