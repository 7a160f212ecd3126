// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The text, cut into a part to train on and a tail to evaluate on, and turned into tokens.

#ifndef ONEBIT_EXAMPLES_BERT_TEXT_HPP
#define ONEBIT_EXAMPLES_BERT_TEXT_HPP

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace bert {

using Token = std::int64_t; // what torch indexes with

constexpr Token kUnknown = 0, kMask = 1;

// Rank 0 reads the file and sends it to all, so that only its host needs it. Collective. Throws if it can't be read.
std::string read_text(const std::string& path, MPI_Comm comm);

// Where the held-out tail begins: the first word of the last 5 %.
std::size_t held_out_begin(std::string_view text);

// The most frequent words of a text, in lower case, and letters to spell all other words with: "zebra" may become
// z ##e ##b ##r ##a. Digits and punctuation are tokens of their own.
class Vocabulary {
  public:
    // Has `size` tokens in all, fewer if the text has fewer words.
    Vocabulary(std::string_view text, std::size_t size);

    std::size_t size() const { return size_; }
    std::vector<Token> encode(std::string_view text) const;

  private:
    std::unordered_map<std::string, Token> words_;
    std::size_t size_;
};

} // namespace bert

#endif // ONEBIT_EXAMPLES_BERT_TEXT_HPP
