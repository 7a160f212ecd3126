#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# Installs the Debian packages that the named groups need, if any is missing. Prints nothing if all are installed.

set -euo pipefail

usage() {
    cat <<'END'
usage: scripts/packages.sh GROUP...

Installs the missing Debian packages of the named groups with apt:
  build    compiler, CMake and the libraries that onebit is built with
  openmpi  Open MPI
  mpich    MPICH
  test     for the tests
  bench    for the benchmarks
  simulation  for the benchmarks on simulated clusters
  clang    clang, the second compiler
  fuzz     clang with libFuzzer, for scripts/fuzz.sh
  style    for scripts/check_format.sh
  tidy     clang-tidy
  text     for the examples that train a language model
  python   for the tests of the Python package
  ccache   a compiler cache, for repeated builds
  deb      for scripts/deb.sh
  site     for scripts/site.sh
  slurm    for scripts/slurm_check.sh
  cross    for scripts/cross_aarch64.sh
  torch    for the language-model example with libtorch, and for drawing its curves
Run it as root, or as a user who may use sudo.
END
}

die() {
    echo "packages.sh: $*" >&2
    exit 1
}

packages_of() {
    case $1 in
        build) echo g++ cmake ninja-build pkg-config libhwy-dev libxxhash-dev libhwloc-dev nlohmann-json3-dev ;;
        openmpi) echo libopenmpi-dev openmpi-bin ;;
        mpich) echo libmpich-dev mpich ;;
        test) echo catch2 python3 iproute2 procps gfortran abigail-tools patch ;;
        bench) echo libbenchmark-dev libcli11-dev ;;
        simulation) echo libsimgrid-dev ;;
        clang) echo clang ;;
        fuzz) echo clang libclang-rt-14-dev llvm ;; # llvm-symbolizer: names the function that crashed
        style) echo clang-format ;;
        tidy) echo clang-tidy ;;
        text) echo bible-kjv bible-kjv-text libcli11-dev ;;
        # The BLAS variant that several threads may call at once, as the tests' ranks do.
        python) echo python3-torch python3-numpy python3-mpi4py python3-pytest python3-venv libopenblas0-pthread ;;
        # The BLAS variant without threads: each rank has one core.
        torch) echo libtorch-dev libopenblas0-serial libcli11-dev python3-matplotlib ;;
        ccache) echo ccache ;;
        deb) echo dpkg-dev debootstrap file python3 ;;
        slurm) echo slurm-wlm munge ;;
        site) echo doxygen python3-sphinx furo python3-breathe python3-myst-parser ;;
        cross) echo g++-aarch64-linux-gnu qemu-user-static ;;
        *) die "there is no group \"$1\" (see --help)" ;;
    esac
}

is_installed() {
    local status
    status=$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null) || return 1
    [[ $status == *installed && $status != *not-installed ]]
}

# Runs apt-get as root, quietly: its output is shown only if it fails.
apt() {
    local -a as_root=()
    local log
    if ((EUID != 0)); then as_root=(sudo); fi
    log=$(mktemp)
    if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" >"$log" 2>&1 </dev/null; then
        cat "$log" >&2
        rm -f "$log"
        die "\"apt-get $*\" failed: apt's messages are above"
    fi
    rm -f "$log"
}

main() {
    local group list package
    local -a missing=()
    if (($# == 0)); then
        usage >&2
        exit 1
    fi
    for group in "$@"; do
        if [[ $group == -h || $group == --help ]]; then
            usage
            exit 0
        fi
    done
    command -v dpkg-query >/dev/null || die "this is no Debian: install by other means what CONTRIBUTING.md lists"
    for group in "$@"; do
        list=$(packages_of "$group") # not inside "for": set -e would ignore a failure there
        for package in $list; do
            if ! is_installed "$package"; then missing+=("$package"); fi
        done
    done
    if ((${#missing[@]} == 0)); then return; fi
    if ((EUID != 0)) && ! command -v sudo >/dev/null; then
        die "to be installed: ${missing[*]}. Become root, or install sudo, and run this again"
    fi
    echo "Installing ${missing[*]}"
    apt update
    apt install --yes --no-install-recommends "${missing[@]}"
}

main "$@"
