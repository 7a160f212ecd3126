#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# Builds the library for 64-bit ARM on another machine, and compares its results bit for bit with this machine's.

set -euo pipefail

usage() {
    cat <<'END'
usage: scripts/cross_aarch64.sh [--wheel]

Builds libonebit for aarch64 into build/aarch64, without MPI and CUDA, and for this machine into build/native. Runs one
program on both, aarch64 under qemu-user: averages and trainings must have the same bits with every kernel.

  --wheel  then makes the Python package's wheel for aarch64, too

Debian; installs the cross compiler and qemu (root or sudo). Headers for aarch64 come from apt into build/aarch64-sysroot,
and the system is not changed otherwise. Exit status 77: apt or, for the wheel, PyPI can't be reached.
END
}

skip() {
    echo "cross_aarch64.sh: $*" >&2
    exit 77
}

# Unpacks packages of the other architecture without installing them; apt gets its own lists for it.
get_sysroot() { # FOLDER
    local work=$1.unfinished package
    if [[ -d $1 ]]; then return; fi
    rm -rf "$work"
    mkdir -p "$work/apt/lists/partial" "$work/apt/archives/partial" "$work/packages"
    : >"$work/apt/status"
    local -a apt=(apt-get -qq -o "Dir::State::lists=$work/apt/lists" -o "Dir::State::status=$work/apt/status"
        -o "Dir::Cache::archives=$work/apt/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
        -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=)
    "${apt[@]}" update || skip "apt has no lists for arm64"
    (cd "$work/packages" && "${apt[@]}" download libhwy-dev libhwy1 libxxhash-dev libhwloc-dev nlohmann-json3-dev) ||
        skip "apt has not given the headers for arm64"
    for package in "$work"/packages/*.deb; do dpkg-deb --extract "$package" "$work/root"; done
    mv "$work/root" "$1"
    rm -rf "$work"
}

build() { # FOLDER CMAKE-OPTION...
    quietly cmake -S . -B "$1" -G Ninja -DCMAKE_BUILD_TYPE=Release -DONEBIT_MPI=each -DONEBIT_CUDA=OFF \
        -DONEBIT_TESTS=OFF -DONEBIT_BENCH=OFF -DONEBIT_EXAMPLES=OFF "${@:2}"
    quietly cmake --build "$1" --target onebit
}

# Writes the program's results with KERNELS to BUILD/bits.KERNELS.
bits() { # COMPILER BUILD KERNELS EMULATOR...
    "$1" -O1 -std=c11 -D_GNU_SOURCE -Iinclude tests/cross/bits.c -o "$2/bits" -L"$2" -lonebit -pthread \
        -Wl,-rpath,"$PWD/$2"
    ONEBIT_KERNELS=$3 "${@:4}" "$2/bits" >"$2/bits.$3"
}

main() {
    local wheel=false kernels
    case ${1:-} in
        -h | --help)
            usage
            exit 0
            ;;
        --wheel) wheel=true ;;
        "") ;;
        *) echo "cross_aarch64.sh: unknown option '$1' (--help)" >&2; exit 1 ;;
    esac
    cd "$(dirname "${BASH_SOURCE[0]}")/.."
    # shellcheck source=scripts/quietly.sh
    source scripts/quietly.sh
    scripts/packages.sh build cross || skip "no cross compiler"
    local -r emulator=(qemu-aarch64-static -L /usr/aarch64-linux-gnu)
    export ONEBIT_SYSROOT=$PWD/build/aarch64-sysroot
    get_sysroot "$ONEBIT_SYSROOT"
    echo "==> Building for this machine and for aarch64"
    build build/native
    build build/aarch64 --toolchain cmake/aarch64-linux-gnu.cmake
    python3 tests/c_api/check_library.py readelf build/aarch64/libonebit.so
    echo "==> Comparing the bits"
    bits gcc build/native reference
    for kernels in reference neon; do
        bits aarch64-linux-gnu-gcc build/aarch64 $kernels "${emulator[@]}"
        cmp build/native/bits.reference build/aarch64/bits.$kernels
        echo "    $kernels on aarch64, reference here: $(wc -l <build/aarch64/bits.$kernels) results are the same"
    done
    if [[ $wheel == true ]]; then
        # Python's build tools must build for aarch64; the objects in build/aarch64 are used again.
        _PYTHON_HOST_PLATFORM=linux-aarch64 scripts/wheel.sh --config-settings=build-dir=build/aarch64 \
            --config-settings=cmake.define.CMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64-linux-gnu.cmake" \
            --config-settings=cmake.define.ONEBIT_CUDA=OFF
    fi
}

main "$@"
