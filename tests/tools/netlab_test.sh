#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# usage: netlab_test.sh NETLAB openmpi|mpich PROGRAM
# PROGRAM: an MPI program that any number of ranks can run and that sends something. Exit status 77: can't be tried here.

set -uo pipefail

readonly netlab=$1 mpi=$2 program=$3
readonly lab=test-$$ other=other-$$
failures=0

fail() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}

expect() { # RIGHT STATUS, PATTERN IN WHAT IT SAYS, COMMAND...
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

namespaces() { ip netns list | grep -cE "^netlab-($lab|$other)-"; }

can_be_tried() {
    if ((EUID != 0)) || ! command -v ip >/dev/null; then
        echo "not tried: needs root and iproute2"
        return 1
    fi
    local said
    if ! said=$("$netlab" up --name "$lab" --hosts 2 --rate 100mbit --ranks-per-host 2 2>&1); then
        echo "not tried: $said"
        return 1
    fi
    echo "$said"
}

bad_input() {
    expect fails 'usage' "$netlab"
    expect 0 'usage' "$netlab" --help
    expect fails "hosts ''" "$netlab" up --rate 1gbit
    expect fails "hosts '0'" "$netlab" up --hosts 0 --rate 1gbit
    expect fails "hosts '251'" "$netlab" up --hosts 251 --rate 1gbit
    expect fails "hosts 'two'" "$netlab" up --hosts two --rate 1gbit
    expect fails 'rate fast' "$netlab" up --hosts 2 --rate fast
    expect fails 'rate 0mbit' "$netlab" up --hosts 2 --rate 0mbit
    expect fails 'needs a value' "$netlab" up --hosts
    expect fails "name '../x'" "$netlab" up --name ../x --hosts 2 --rate 1gbit
    expect fails "unknown option '--host'" "$netlab" up --host 2
    expect fails 'no lab .nowhere. is up.*but:.*'"$lab" "$netlab" run --name nowhere --mpi "$mpi" -- true
    expect fails 'no program' "$netlab" run --name "$lab" --mpi "$mpi"
    expect fails "mpi 'lam'" "$netlab" run --name "$lab" --mpi lam -- true
    expect fails "n '5'.*1 to 4" "$netlab" run --name "$lab" --mpi "$mpi" -n 5 -- true
    expect fails 'is up already' "$netlab" up --name "$lab" --hosts 2 --rate 1gbit
    expect fails 'needs root' setpriv --reuid 65534 --clear-groups "$netlab" up --hosts 2 --rate 1gbit
    expect fails 'no lab .nowhere. is up' "$netlab" down --name nowhere
}

running() {
    expect 0 "$lab-host1.*$lab-host1.*$lab-host2.*$lab-host2" bash -c \
        "'$netlab' run --name $lab --mpi $mpi -- hostname | sort"
    expect fails '' "$netlab" run --name "$lab" --mpi "$mpi" -- false
    local counters
    counters=$(mktemp)
    # Two ranks are on the first host, the third is on the second one.
    expect 0 '' "$netlab" run --name "$lab" --mpi "$mpi" -n 3 --counters "$counters" -- "$program"
    python3 - "$counters" <<'END_OF_CHECK' || fail "counters: $(cat "$counters")"
import json, sys
counters = json.load(open(sys.argv[1]))
sent = [host["sent"] for host in counters["hosts"]]
assert len(sent) == 2 and min(sent) > 1000 and counters["seconds"] > 0, counters
END_OF_CHECK
    rm -f "$counters"
}

side_by_side() {
    expect 0 "$other.* is up: 3 hosts" "$netlab" up --name "$other" --hosts 3 --rate 1gbit
    expect 0 'of 1000 Mbit' "$netlab" check --name "$other"
    expect 0 "lab '$other': 3 hosts.*lab '$lab': 2 hosts" bash -c "'$netlab' status | sort"
    expect 0 '' "$netlab" down --name "$other"
    expect 0 "lab '$lab': 2 hosts, 100mbit" "$netlab" status --name "$lab"
}

start_sleepers() { # sets started
    "$netlab" run --name "$lab" --mpi "$mpi" -- sleep 1000 >/dev/null 2>&1 &
    started=$!
    for _ in {1..100}; do
        (($(pgrep -fc 'sleep 1000') < 4)) || return
        sleep 0.1
    done
    fail "the ranks did not start"
}

# A run that is told to end takes its ranks with it; what a killed one leaves behind goes with the lab.
crash() {
    local started
    start_sleepers
    kill -TERM "$started"
    wait "$started"
    for _ in {1..100}; do
        [[ -n $(ip netns pids "netlab-$lab-host1")$(ip netns pids "netlab-$lab-host2") ]] || break
        sleep 0.1
    done
    ! pgrep -f 'sleep 1000' >/dev/null || fail "ranks outlive their run: $(pgrep -af 'sleep 1000')"
    start_sleepers
    kill -KILL "$started"
    wait "$started" 2>/dev/null
    expect 0 '' "$netlab" down --name "$lab"
    (($(namespaces) == 0)) || fail "namespaces are left: $(ip netns list)"
    ! pgrep -f 'sleep 1000' >/dev/null || fail "processes are left: $(pgrep -af 'sleep 1000')"
    [[ ! -e /run/netlab/$lab ]] || fail "/run/netlab/$lab is left"
}

can_be_tried || exit 77
trap '"$netlab" down --name "$lab" >/dev/null 2>&1; "$netlab" down --name "$other" >/dev/null 2>&1' EXIT
bad_input
running
side_by_side
crash
if ((failures > 0)); then
    echo "$failures expectations failed" >&2
    exit 1
fi
echo "all expectations held"
