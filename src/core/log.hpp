// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

namespace onebit {

/// Where a rank's lines go: to the program's callback or, where there is none, to stderr if ONEBIT_LOG asks for it.
class Log {
  public:
    Log() = default;
    /// `speaks`: true only on rank 0. `to_stderr`: ONEBIT_LOG.
    Log(bool speaks, bool to_stderr) : speaks_(speaks), to_stderr_(to_stderr) {}

    /// One line, without its end.
    [[gnu::format(printf, 3, 4)]] void write(onebit_log_level_t level, const char* format, ...) const;

  private:
    bool speaks_ = false;
    bool to_stderr_ = false;
};

/// Sets this process's; NULL: none. May throw bad_alloc, and then changes nothing.
void set_log_callback(onebit_log_fn function, void* context);

} // namespace onebit
