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

/// The objects that this process has given out, by the keys that the caller knows. A child made by fork begins with an
/// empty table. The parent's objects stay the parent's: they need threads, messages and MPI that the child doesn't
/// have. The child never touches these objects, and recognises them as the parent's.
///
/// `Tag` distinguishes tables of the same types. There is one table of each type, which lasts as long as the process.
template <typename Tag, typename Key, typename Value>
class ProcessTable {
    using Map = std::map<Key, std::shared_ptr<Value>>;

  public:
    /// All the memory that an entry needs here. A rank that makes an object together with other ranks takes this memory
    /// before: afterwards nothing may fail.
    using Place = typename Map::node_type;
    static Place make_place() {
        (void)instance(); // takes memory once
        Map one;
        one.emplace(Key(), nullptr);
        return one.extract(one.begin());
    }

    static ProcessTable& instance() {
        static ProcessTable& table = *new ProcessTable; // never freed: a thread may be in a call when the process ends
        return table;
    }

    void add(Key key, std::shared_ptr<Value> value, Place place) noexcept {
        place.key() = key;
        place.mapped() = std::move(value);
        const std::lock_guard lock(mutex_);
        own_.insert(std::move(place));
    }

    /// NULL if there is none. Sharing keeps the value alive while a call uses it.
    std::shared_ptr<Value> find(Key key) {
        std::shared_ptr<Value> value;
        look_up(key, [&](const std::shared_ptr<Value>& found) { value = found; });
        return value;
    }

    /// Calls look(value), if there is a value, while the table is locked: faster than sharing the value.
    template <typename Look>
    void look_up(Key key, const Look& look) {
        const std::lock_guard lock(mutex_);
        const auto found = own_.find(key);
        if (found != own_.end()) look(found->second);
    }

    /// Returns the removed value, or NULL.
    std::shared_ptr<Value> remove(Key key) {
        const std::lock_guard lock(mutex_);
        auto node = own_.extract(key);
        return node.empty() ? nullptr : std::move(node.mapped());
    }

    /// Whether a process that this one was forked from has given out the object.
    bool is_parents(Key key) {
        const std::lock_guard lock(mutex_);
        return parents_.contains(key);
    }

  private:
    /// No other thread is in the table while a process forks: the child would find the table locked for ever.
    ProcessTable() {
        const int failed = pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                                          [] {
                                              instance().parents_.merge(instance().own_);
                                              instance().mutex_.unlock();
                                          });
        if (failed != 0) throw std::bad_alloc(); // its only error is ENOMEM
    }

    std::mutex mutex_;
    Map own_;
    Map parents_;
};

} // namespace onebit
