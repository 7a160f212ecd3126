// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/ranks.hpp"

namespace onebit_test {

// A part of a part of a part, with all ranks and so few tags that a dozen handles use them up, where ranks have tags.
// `levels`: fewer where `of` is itself a part.
class SmallPart {
  public:
    SmallPart(onebit_comm_t of, RankLog& log, int levels = 3) : log_(log) {
        for (int level = 0; level < levels; ++level) {
            onebit_comm_t part = nullptr;
            ONEBIT_EXPECT_OK(log_, onebit_comm_split(of, 0, log.rank(), &part));
            if (comm_ != nullptr) ONEBIT_EXPECT_OK(log_, onebit_comm_destroy(comm_));
            of = comm_ = part;
        }
    }
    ~SmallPart() { ONEBIT_EXPECT_OK(log_, onebit_comm_destroy(comm_)); }
    SmallPart(const SmallPart&) = delete;
    SmallPart& operator=(const SmallPart&) = delete;

    onebit_comm_t get() const { return comm_; }

  private:
    RankLog& log_;
    onebit_comm_t comm_ = nullptr;
};

} // namespace onebit_test
