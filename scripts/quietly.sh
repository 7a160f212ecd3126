# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Sourced by the other scripts.

# Runs a command whose output is of interest only if it fails.
quietly() {
    local log
    log=$(mktemp)
    if ! "$@" >"$log" 2>&1; then
        tail -n 60 "$log" >&2
        echo "failed: $* (the whole output is in $log)" >&2
        return 1
    fi
    rm -f "$log"
}
