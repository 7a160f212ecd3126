#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# Runs the commands of docs/tutorials/slurm.md on a Slurm with one machine, which only this script uses.

set -euo pipefail

usage() {
    cat <<'END'
usage: scripts/slurm_check.sh [BUILD]

Needs root. Installs Slurm where it is missing (Debian), starts its daemons with a configuration in a new folder, runs the
tutorial's programs with an installation of BUILD (default: build/release), and ends the daemons.
END
}

# FOLDER: where the daemons' configuration and state are.
configure() {
    local -r folder=$1 host=$(hostname -s) port=$((20000 + RANDOM % 10000 * 2))
    mkdir "$folder/state" "$folder/spool"
    head -c 1024 /dev/urandom >"$folder/munge.key"
    chmod 400 "$folder/munge.key"
    cat >"$folder/slurm.conf" <<END
ClusterName=check
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
SlurmctldPort=$port
SlurmdPort=$((port + 1))
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SwitchType=switch/none
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
    local version=v1
    if [[ $(stat --file-system --format %T /sys/fs/cgroup) == cgroup2fs ]]; then version=v2; fi
    printf 'CgroupPlugin=cgroup/%s\nIgnoreSystemd=yes\n' "$version" >"$folder/cgroup.conf"
}

# FOLDER: returns once the machine takes jobs.
start() {
    local -r folder=$1
    munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" --pid-file="$folder/munged.pid" \
        --log-file="$folder/munged.log" --seed-file="$folder/munge.seed" 2>/dev/null # warns of root's folder
    slurmctld
    slurmd
    local i
    for ((i = 0; i < 60; i++)); do
        if [[ $(sinfo --noheader --format %T 2>/dev/null) == idle ]]; then return; fi
        sleep 0.5
    done
    tail -n 20 "$folder"/*.log >&2
    echo "slurm_check.sh: the machine takes no jobs: the daemons' logs are above" >&2
    return 1
}

stop() {
    local file pid i
    scancel --user=root 2>/dev/null || true
    for ((i = 0; i < 20; i++)); do
        if [[ -z $(squeue --noheader 2>/dev/null) ]]; then break; fi
        sleep 1
    done
    for file in "$work"/{slurmctld,slurmd,munged}.pid; do
        [[ -e $file ]] || continue
        pid=$(<"$file")
        kill "$pid" 2>/dev/null || true
        timeout 20 tail --pid="$pid" -f /dev/null || kill -KILL "$pid" 2>/dev/null || true
    done
    rm -rf "$work"
}

main() {
    if [[ ${1:-} == -h || ${1:-} == --help ]]; then
        usage
        exit 0
    fi
    cd "$(dirname "${BASH_SOURCE[0]}")/.."
    local -r build=${1:-build/release}
    scripts/packages.sh slurm openmpi python
    work=$(mktemp -d)
    chmod 755 "$work"
    trap stop EXIT
    configure "$work"
    export SLURM_CONF=$work/slurm.conf
    start "$work"
    cmake --install "$build" --prefix "$work/installed" >/dev/null
    ONEBIT_LIBRARY=$work/installed/lib/libonebit.so PYTHONPATH=$PWD/python PYTHONDONTWRITEBYTECODE=1 \
        /usr/bin/python3 docs/tutorials/run.py docs/tutorials/slurm.md --prefix "$work/installed"
    echo "==> docs/tutorials/slurm.md does what it says"
}

main "$@"
