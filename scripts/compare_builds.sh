#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# Compares how long allreduces of two builds of the library take, in one process. Detects a difference of 1 %; two
# programs that take turns detect one of 10 %.

set -euo pipefail

usage() {
    cat <<'END'
usage: scripts/compare_builds.sh OLD NEW [BYTES...]

OLD and NEW are source trees with a finished build/release for Open MPI; their SONAMEs may be equal. Two ranks average
BYTES (default: 8 to 65536) in turns of many calls. Prints medians and their ratio.
END
}

# TREE NAME: compiles the shim of a tree. Its libraries are copied and renamed, so that both trees' can be loaded.
shim() {
    local -r tree=$1 name=$2 folder=$work/$2
    local library
    mkdir "$folder"
    for library in onebit onebit_openmpi; do
        [[ -e $tree/build/release/lib$library.so ]] || continue
        cp -L "$tree/build/release/lib$library.so" "$folder/lib$library.$name.so"
        patchelf --set-soname "lib$library.$name.so" "$folder/lib$library.$name.so"
    done
    local -a libraries=("$folder"/libonebit*.so)
    if [[ -e $folder/libonebit_openmpi.$name.so ]]; then
        local needed
        needed=$(patchelf --print-needed "$folder/libonebit_openmpi.$name.so" | grep '^libonebit\.')
        patchelf --replace-needed "$needed" "libonebit.$name.so" --set-rpath "$folder" "$folder/libonebit_openmpi.$name.so"
    fi
    mpicc.openmpi -O2 -shared -fPIC -I"$tree/include" \
        "$here/bench/compare_builds_shim.c" -o "$work/$name.so" "${libraries[@]}" -Wl,-rpath,"$folder"
}

main() {
    if [[ ${1:-} == -h || ${1:-} == --help ]]; then
        usage
        exit 0
    fi
    if (($# < 2)); then
        usage >&2
        exit 1
    fi
    if ! command -v patchelf >/dev/null; then
        echo "compare_builds.sh: patchelf is missing: apt-get install patchelf" >&2
        exit 1
    fi
    here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    shim "$(realpath "$1")" old
    shim "$(realpath "$2")" new
    shift 2
    if (($# == 0)); then set -- 8 32 128 512 1024 2048 4096 8192 16384 32768 65536; fi
    mpicc.openmpi -O2 "$here/bench/compare_builds.c" -o "$work/compare_builds" -ldl
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi -n 2 --bind-to core "$work/compare_builds" "$work/old.so" "$work/new.so" 400 "$@"
}

main "$@"
