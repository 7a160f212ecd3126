# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Sourced by the tests that are scripts. They go on after a failure; in the end `failures` says how many there were.

failures=0

fail() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}

expect() { # RIGHT STATUS or fails, PATTERN IN WHAT IT SAYS, COMMAND...
    local wanted=$1 pattern=$2 said status=0
    shift 2
    said=$(timeout 60 "$@" 2>&1) || status=$?
    if [[ $wanted == fails ]]; then
        ((status != 0 && status != 124)) || fail "'$*' ended with $status; it said: $said"
    else
        ((status == wanted)) || fail "'$*' ended with $status, not $wanted; it said: $said"
    fi
    [[ $said =~ $pattern ]] || fail "'$*' said '$said', nothing like '$pattern'"
}
