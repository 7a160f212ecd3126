// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#include "text.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <utility>

namespace bert {
namespace {

constexpr int kLetters = 26;
constexpr Token kFirstSpecial = 33; // '!', the first printable character of ASCII
constexpr Token kSpecials = 127 - kFirstSpecial;
constexpr Token kInitials = 2, kContinuations = kInitials + kLetters, kCharacters = kContinuations + kLetters;
constexpr Token kWords = kCharacters + kSpecials;

bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Calls word(text) for each run of letters, in lower case, and other(c) for every other c but white space.
template <class Word, class Other>
void split(std::string_view text, Word word, Other other) {
    std::string letters;
    auto flush = [&] {
        if (!letters.empty()) word(letters);
        letters.clear();
    };
    for (const char c : text) {
        if (is_letter(c)) {
            letters.push_back(static_cast<char>(c | 0x20));
        } else {
            flush();
            if (!std::isspace(static_cast<unsigned char>(c))) other(c);
        }
    }
    flush();
}

} // namespace

std::string read_text(const std::string& path, MPI_Comm comm) {
    int rank;
    MPI_Comm_rank(comm, &rank);
    std::string text;
    if (rank == 0) {
        std::ifstream file(path, std::ios::binary);
        if (!file) throw std::runtime_error("cannot open the text \"" + path + "\": " + std::strerror(errno));
        text.assign(std::istreambuf_iterator<char>(file), {});
        if (file.bad()) throw std::runtime_error("cannot read the text \"" + path + "\"");
        text.resize(std::min<std::size_t>(text.size(), INT_MAX)); // an MPI count is an int, and this is plenty
    }
    int bytes = static_cast<int>(text.size());
    MPI_Bcast(&bytes, 1, MPI_INT, 0, comm);
    text.resize(static_cast<std::size_t>(bytes));
    MPI_Bcast(text.data(), bytes, MPI_BYTE, 0, comm);
    return text;
}

std::size_t held_out_begin(std::string_view text) {
    std::size_t begin = text.size() - text.size() / 20;
    while (begin < text.size() && is_letter(text[begin])) ++begin;
    return begin;
}

Vocabulary::Vocabulary(std::string_view text, std::size_t size) {
    std::map<std::string, std::size_t> counts;
    split(
        text, [&](const std::string& word) { ++counts[word]; }, [](char) {});
    std::vector<std::pair<std::string, std::size_t>> ordered(counts.begin(), counts.end());
    // Words of the same frequency stay in the order of the alphabet: the same vocabulary everywhere.
    std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    size_ = kWords;
    for (const auto& [word, count] : ordered) {
        if (size_ >= size) break;
        words_.emplace(word, static_cast<Token>(size_++));
    }
}

std::vector<Token> Vocabulary::encode(std::string_view text) const {
    std::vector<Token> tokens;
    auto word = [&](const std::string& letters) {
        if (const auto found = words_.find(letters); found != words_.end()) {
            tokens.push_back(found->second);
            return;
        }
        for (std::size_t i = 0; i < letters.size(); ++i) {
            tokens.push_back((i == 0 ? kInitials : kContinuations) + (letters[i] - 'a'));
        }
    };
    auto other = [&](char c) {
        const bool printable = c >= kFirstSpecial && c < 127;
        tokens.push_back(printable ? kCharacters + (c - kFirstSpecial) : kUnknown);
    };
    split(text, word, other);
    return tokens;
}

} // namespace bert
