// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "core/copy_bytes.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// Hops one after the other: copies into the data to be sent, then its messages. At the end, copies out of the received
/// data. Data received on one hop may be sent on the next. A later hop begins only inside test().
class HoppingExchange final : public Exchange {
  public:
    struct Copy {
        const void* from;
        void* to;
        std::size_t bytes;
    };
    struct Hop {
        std::vector<Copy> copies;
        std::unique_ptr<Exchange> messages;
    };

    void add_hop(Hop hop) { hops_.push_back(std::move(hop)); }
    void set_last_copies(std::vector<Copy> copies) { last_copies_ = std::move(copies); }

    Status start() override {
        current_ = 0;
        return start_hop();
    }

    Status test(bool* done) override {
        *done = false;
        while (current_ < hops_.size()) {
            bool arrived = false;
            ONEBIT_RETURN_IF_ERROR(hops_[current_].messages->test(&arrived));
            if (!arrived) return {};
            if (++current_ == hops_.size()) {
                make(last_copies_);
            } else {
                ONEBIT_RETURN_IF_ERROR(start_hop());
            }
        }
        *done = true;
        return {};
    }

  private:
    Status start_hop() {
        if (current_ == hops_.size()) return {}; // one rank: there are none
        make(hops_[current_].copies);
        return hops_[current_].messages->start();
    }

    static void make(const std::vector<Copy>& copies) {
        for (const Copy& copy : copies) copy_bytes(copy.to, copy.from, copy.bytes);
    }

    std::vector<Hop> hops_;
    std::vector<Copy> last_copies_;
    std::size_t current_ = 0;
};

} // namespace onebit
