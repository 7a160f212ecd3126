#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# usage: netlab_test.sh NETLAB openmpi|mpich PROGRAM
# PROGRAM: an MPI program that any number of ranks can run and that sends something.
# Exit status 77: can't be tried here.

set -uo pipefail

readonly netlab=$1 mpi=$2 program=$3
readonly lab=test-$$ other=other-$$
# What netlab says where rights, tools or kernel modules are missing. Whatever else goes wrong is a failure.
readonly lacking="netlab: (needs root|there is no '(ip|tc)'|cannot [a-z ]+ \((needs CAP_|kernel module ))"
work=$(mktemp -d)
readonly work
# shellcheck source=tests/tools/expect.sh
source "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

make_lab() {
    local said status=0
    said=$(timeout 60 "$netlab" up --name "$lab" --hosts 2 --rate 100mbit --ranks-per-host 2 2>&1) || status=$?
    if ((status == 0)); then
        echo "$said"
    elif [[ $said =~ $lacking ]]; then
        echo "not tried: $said"
        exit 77
    else
        echo "FAILED: no lab could be made ($status): $said" >&2
        exit 1
    fi
}

stub() { # TOOL: makes $work/TOOL, to be put first in the PATH, where TOOL is the script that comes on stdin
    mkdir -p "$work/$1"
    { echo '#!/bin/bash'; cat; } >"$work/$1/$1"
    chmod +x "$work/$1/$1"
}

namespace_ids() { stat -Lc %i /run/netns/netlab-"$1"-*; }

nothing_left() { # LAB NAMESPACE-ID...
    local name=$1 id
    shift
    ! ip netns list | grep -q "^netlab-$name-" || fail "namespaces are left: $(ip netns list)"
    [[ ! -e /run/netlab/$name ]] || fail "/run/netlab/$name is left"
    # Bridge and veth pairs live as long as a process keeps their namespace.
    for id in "$@"; do
        [[ -z $(find /proc/[0-9]*/ns/net -lname "net:\[$id\]" 2>/dev/null) ]] || fail "processes of '$name' are left"
    done
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
    expect fails "4 hosts can't be so many" "$netlab" up --name "$other" --hosts 4 --rate 1gbit --sites 3 --between 1mbit
    expect fails "sites '5'" "$netlab" up --name "$other" --hosts 4 --rate 1gbit --sites 5 --between 1mbit
    expect fails 'between : give' "$netlab" up --name "$other" --hosts 4 --rate 1gbit --sites 2
    expect fails "between '1mbit': there is one site" "$netlab" up --name "$other" --hosts 4 --rate 1gbit --between 1mbit
    expect fails "name '../x'" "$netlab" up --name ../x --hosts 2 --rate 1gbit
    expect fails "unknown option '--host'" "$netlab" up --host 2
    expect fails 'no lab .nowhere. is up.*but:.*'"$lab" "$netlab" run --name nowhere --mpi "$mpi" -- true
    expect fails 'no program' "$netlab" run --name "$lab" --mpi "$mpi"
    expect fails "mpi 'lam'" "$netlab" run --name "$lab" --mpi lam -- true
    expect fails "n '5'.*1 to 4" "$netlab" run --name "$lab" --mpi "$mpi" -n 5 -- true
    expect fails 'is up already' "$netlab" up --name "$lab" --hosts 2 --rate 1gbit
    expect fails 'needs root' setpriv --reuid 65534 --clear-groups "$netlab" up --hosts 2 --rate 1gbit
    expect fails 'no lab .nowhere. is up' "$netlab" down --name nowhere
    expect fails "name ''" "$netlab" down --name ''
    expect fails "name '../$lab'" "$netlab" down --name "../$lab"
}

# These end in the message that says what is missing, for which a test is skipped, and leave nothing behind.
something_missing() {
    mkdir "$work/few"
    ln -s "$(type -P bash)" "$(type -P ip)" "$work/few"
    local -a up=("$netlab" up --name "$other" --hosts 2 --rate 1gbit)
    expect fails "$lacking" env PATH="$work/few" "${up[@]}"
    expect fails "there is no 'tc'; install iproute2" env PATH="$work/few" "${up[@]}"
    expect fails "$lacking" setpriv --bounding-set -sys_admin --inh-caps -sys_admin "${up[@]}"
    expect fails "$lacking" setpriv --bounding-set -net_admin --inh-caps -net_admin "${up[@]}"
    nothing_left "$other"
}

# Any other failure is none to skip a test for. It too leaves nothing behind.
something_broken() {
    stub chmod <<<'echo no such luck >&2; exit 1'
    local said status=0
    said=$(PATH=$work/chmod:$PATH timeout 60 "$netlab" up --name "$other" --hosts 1 --rate 1gbit 2>&1) || status=$?
    [[ $status != 0 && $said == *'no such luck'* && ! $said =~ $lacking ]] || fail "ended with $status, said: $said"
    nothing_left "$other"
}

half_left() { # a part of the lab
    expect 0 "lab '$other': half made.*lab '$lab': 2 hosts" bash -c "'$netlab' status | sort"
    expect fails "lab '$other': half made" "$netlab" status --name "$other"
    expect fails "lab '$other': half made" "$netlab" run --name "$other" --mpi "$mpi" -- true
    expect fails 'netlab down removes it' "$netlab" up --name "$other" --hosts 2 --rate 1gbit
}

up_killed() {
    local tool bystanders ids
    bystanders=$(ip -o link | wc -l)
    # Killed while the first host is made, and while the limit is checked: then senders stay behind.
    for tool in tc sleep; do
        # The process group is the one that timeout makes; by then the senders have left it.
        stub "$tool" <<'END_OF_STUB'
PATH=${PATH#*:} sleep 0.2
kill -KILL 0
END_OF_STUB
        { PATH=$work/$tool:$PATH timeout 60 "$netlab" up --name "$other" --hosts 2 --rate 1gbit; } >/dev/null 2>&1
        (($? == 137)) || fail "up was not killed at '$tool'"
        mapfile -t ids < <(namespace_ids "$other")
        ((${#ids[@]} > 1)) || fail "up was killed at '$tool' before it made anything"
        [[ $tool != sleep || -n $(ip netns pids "netlab-$other-host2") ]] || fail "no sender stayed behind"
        half_left
        expect 0 '' "$netlab" down --name "$other"
        nothing_left "$other" "${ids[@]}"
    done
    (($(ip -o link | wc -l) == bystanders)) || fail "network interfaces are left: $(ip -o link)"
}

# Killed once some namespaces are gone, or all: what is left counts as no lab, and goes with the next down.
down_killed() {
    local after ids
    for after in 1 3; do
        expect 0 '' "$netlab" up --name "$other" --hosts 2 --rate 100mbit
        mapfile -t ids < <(namespace_ids "$other")
        stub ip <<'END_OF_STUB'
PATH=${PATH#*:} ip "$@" || exit
[[ "$1 $2" == 'netns del' ]] || exit 0
echo >>"$0.gone"
(($(wc -l <"$0.gone") < AFTER)) || kill -KILL 0
END_OF_STUB
        { AFTER=$after PATH=$work/ip:$PATH timeout 60 "$netlab" down --name "$other"; } >/dev/null 2>&1
        (($? == 137)) || fail "down was not killed at namespace $after"
        (($(ip netns list | grep -c "^netlab-$other-") == 3 - after)) || fail "left: $(ip netns list)"
        rm "$work/ip/ip.gone"
        half_left
        expect 0 '' "$netlab" down --name "$other"
        nothing_left "$other" "${ids[@]}"
    done
}

# Neither finds a lab of that name; one of them claims it. The other one must not touch it.
two_at_once() {
    stub mkdir <<'END_OF_STUB'
echo >>"$0.calls"
for _ in {1..500}; do
    (($(wc -l <"$0.calls") < 2)) || break
    sleep 0.01
done
PATH=${PATH#*:} exec mkdir "$@"
END_OF_STUB
    local -a up=("$netlab" up --name "$other" --hosts 2 --rate 100mbit)
    local first second succeeded=0
    PATH=$work/mkdir:$PATH timeout 60 "${up[@]}" >"$work/first" 2>&1 &
    first=$!
    PATH=$work/mkdir:$PATH timeout 60 "${up[@]}" >"$work/second" 2>&1 &
    second=$!
    if wait "$first"; then succeeded=$((succeeded + 1)); fi
    if wait "$second"; then succeeded=$((succeeded + 1)); fi
    ((succeeded == 1)) || fail "$succeeded of two made the lab: $(cat "$work/first" "$work/second")"
    grep -q 'is being made by someone else' "$work/first" "$work/second" || fail "$(cat "$work/first" "$work/second")"
    expect 0 "lab '$other': 2 hosts, 100mbit" "$netlab" status --name "$other"
}

# An end of a limit is a namespace and its device.
ends_of() { # HOST: sets own, switch
    own=("netlab-$other-host$1" eth0)
    switch=("netlab-$other-switch" "host$1")
}

lift() { tc -n "$1" qdisc del dev "$2" root || fail "no limit to be lifted at $*"; }
limit() { tc -n "$1" qdisc add dev "$2" root tbf rate "$3" burst 131072 latency 20ms; }

# `measured` is `check` with a tc that shows a limit everywhere.
readonly -a check=("$netlab" check --name "$other") measured=(env PATH="$work/tc:$PATH" "$netlab" check --name "$other")
trusting_tc() { stub tc <<<"echo 'qdisc tbf 8001: root refcnt 2 rate 100Mbit burst 128Kb lat 20ms '"; }

# In the lab of two_at_once: without the hosts' own ends of the limit, the switch's ends still hold back what arrives.
limit_lifted() {
    local number
    local -a own switch
    for number in 1 2; do
        ends_of "$number"
        lift "${own[@]}"
    done
    trusting_tc
    expect fails 'the limit does not hold: [0-9]+ bit/s' "${measured[@]}"
    expect fails 'host 1 .* sent .* the limit does not hold' "$netlab" run --name "$other" --mpi "$mpi" -n 1 -- \
        python3 -c 'import socket
to_neighbour = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(3000): to_neighbour.sendto(bytes(60000), ("10.77.0.2", 9))'
    expect 0 '' "$netlab" down --name "$other"
    nothing_left "$other"
}

# At one end of a host of three: found both by what tc shows and by measuring.
limit_lifted_at_one_end() {
    local number
    local -a own switch
    trusting_tc
    expect 0 '' "$netlab" up --name "$other" --hosts 3 --rate 100mbit
    for number in 1 2 3; do
        ends_of "$number"
        lift "${own[@]}"
        expect fails "host $number's own end has .*the limit does not hold" "${check[@]}"
        expect fails 'the limit does not hold: [0-9]+ bit/s' "${measured[@]}"
        limit "${own[@]}" 100mbit
        lift "${switch[@]}"
        expect fails "the switch's end of host $number has .*the limit does not hold" "${check[@]}"
        expect fails 'the limit does not hold: [0-9]+ bit/s' "${measured[@]}"
        limit "${switch[@]}" 200mbit
        expect fails "the switch's end of host $number has .*200Mbit.*the limit does not hold" "${check[@]}"
        lift "${switch[@]}"
        limit "${switch[@]}" 100mbit
    done
    expect 0 'of 100 Mbit' "${check[@]}"
    expect 0 '' "$netlab" down --name "$other"
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

# Hosts of one site reach each other at their own rate, those of two at that between sites.
sites() {
    expect 0 'in 2 sites with 50mbit between' \
        "$netlab" up --name "$other" --hosts 4 --rate 400mbit --sites 2 --between 50mbit
    expect 0 'in 2 sites with 50mbit between' "$netlab" status --name "$other"
    expect 0 'measured between neighbours' "$netlab" check --name "$other"
    tc -n "netlab-$other-switch" qdisc del dev up2 root
    expect fails 'the way to site 2.*does not hold' "$netlab" check --name "$other"
    expect 0 '' "$netlab" down --name "$other"
    nothing_left "$other"
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
    local started ids
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
    mapfile -t ids < <(namespace_ids "$lab")
    expect 0 '' "$netlab" down --name "$lab"
    ! pgrep -f 'sleep 1000' >/dev/null || fail "processes are left: $(pgrep -af 'sleep 1000')"
    nothing_left "$lab" "${ids[@]}"
}

clean_up() {
    "$netlab" down --name "$lab" >/dev/null 2>&1
    "$netlab" down --name "$other" >/dev/null 2>&1
    rm -rf "$work"
}

trap clean_up EXIT
make_lab
bad_input
something_missing
something_broken
up_killed
down_killed
two_at_once
limit_lifted
limit_lifted_at_one_end
running
side_by_side
sites
crash
if ((failures > 0)); then
    echo "$failures expectations failed" >&2
    exit 1
fi
echo "all expectations held"
