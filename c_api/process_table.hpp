// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace onebit {

/// What this process has given out, by what the caller knows it by. A child made by fork begins with an empty table:
/// what its parent has is the parent's, with threads, messages and MPI that the child doesn't have. It is never touched
/// in the child, and known as the parent's.
///
/// `Tag` tells tables of the same types from each other; there is one of each, which lasts as long as the process.
template <typename Tag, typename Key, typename Value>
class ProcessTable {
    using Map = std::map<Key, std::shared_ptr<Value>>;

  public:
    /// All the memory that an entry needs here: who makes something together with others takes it before, for
    /// afterwards nothing may fail.
    using Place = typename Map::node_type;
    static Place make_place() {
        (void)instance(); // which takes memory once
        Map one;
        one.emplace(Key(), nullptr);
        return one.extract(one.begin());
    }

    static ProcessTable& instance() {
        static ProcessTable& table = *new ProcessTable; // for good: a thread may be in a call when the process ends
        return table;
    }

    void add(Key key, std::shared_ptr<Value> value, Place place) noexcept {
        place.key() = key;
        place.mapped() = std::move(value);
        const std::lock_guard lock(mutex_);
        own_.insert(std::move(place));
    }

    /// NULL where there is none. Sharing keeps it alive while a call uses it.
    std::shared_ptr<Value> find(Key key) {
        std::shared_ptr<Value> value;
        look_up(key, [&](const std::shared_ptr<Value>& found) { value = found; });
        return value;
    }

    /// Calls look(what is there), if anything is, while nobody else is in the table: quicker than to share it.
    template <typename Look>
    void look_up(Key key, const Look& look) {
        const std::lock_guard lock(mutex_);
        const auto found = own_.find(key);
        if (found != own_.end()) look(found->second);
    }

    /// What was there, or NULL.
    std::shared_ptr<Value> remove(Key key) {
        const std::lock_guard lock(mutex_);
        auto node = own_.extract(key);
        return node.empty() ? nullptr : std::move(node.mapped());
    }

    /// Whether a process that this one is a child of has given it out.
    bool is_parents(Key key) {
        const std::lock_guard lock(mutex_);
        return parents_.contains(key);
    }

  private:
    /// Nobody is in the table while a process forks: the child would find it locked for ever.
    ProcessTable() {
        const int failed = pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                                          [] {
                                              instance().parents_.merge(instance().own_);
                                              instance().mutex_.unlock();
                                          });
        if (failed != 0) throw std::bad_alloc(); // ENOMEM is all that it knows
    }

    std::mutex mutex_;
    Map own_;
    Map parents_;
};

} // namespace onebit
