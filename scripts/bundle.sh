#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# Makes a folder that can be carried to a machine with a GPU and no packages: the GPU tests and benchmarks, the Python
# package, and the libraries that they need.

set -euo pipefail

usage() {
    cat <<'END'
usage: scripts/bundle.sh [FOLDER]

Builds the GPU programs (needs nvcc) and puts them into FOLDER (default: build/bundle), with the shared libraries that
they need, except the C library. FOLDER/gpu_check.sh runs all of them. If this machine has NCCL, it is added, too, with
only its code for Hopper (sm_90).
END
}

programs=(tests/onebit_{cuda_tests,nccl_processes} bench/cuda_{kernel,passes,allreduce}_benchmark tools/onebit_info)
most_mib=60

# Leaves out the C library and the driver's library, which the other machine has.
libraries_of() {
    ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
        grep -Ev '/(libc|libm|libdl|librt|libpthread|libcuda|ld-linux[^/]*)\.so'
}

# Prints where this machine has NCCL, or nothing.
find_nccl() {
    local place
    for place in "$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p | awk '/libnccl.so.2 / {print $NF; exit}')" \
        "$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")/../lib/libnccl.so.2"; do
        if [[ -e $place ]]; then
            echo "$place"
            return
        fi
    done
}

main() {
    local program size nccl
    if [[ ${1:-} == -h || ${1:-} == --help ]]; then
        usage
        exit 0
    fi
    local folder=${1:-build/bundle}
    if [[ -e $folder && ! -e $folder/gpu_check.sh ]]; then
        echo "bundle.sh: $folder is there already, and is no bundle" >&2
        exit 1
    fi
    rm -rf "$folder"
    mkdir -p "$folder/bin" "$folder/lib"
    folder=$(cd "$folder" && pwd)
    cd "$(dirname "${BASH_SOURCE[0]}")/.."
    # shellcheck source=scripts/quietly.sh
    source scripts/quietly.sh

    scripts/packages.sh build openmpi test bench
    quietly cmake --preset release -DONEBIT_CUDA=ON
    quietly cmake --build --preset release --target onebit "${programs[@]##*/}"
    for program in "${programs[@]}"; do
        cp "build/release/$program" "$folder/bin/"
    done
    libraries_of "$folder"/bin/* | xargs -I {} cp -L {} "$folder/lib/"
    strip "$folder"/bin/*
    mkdir "$folder/python"
    cp -r python/onebit python/tests "$folder/python/"
    find "$folder/python" -name '__pycache__' -prune -exec rm -r {} +
    cp -L build/release/libonebit.so.?.? "$folder/lib/"
    strip "$folder"/lib/libonebit.so.*
    cp scripts/{gpu_check.sh,gpu_targets.py,torch_fused_adam.py,deepspeed_allreduce.py} "$folder/"
    nccl=$(find_nccl)
    if [[ -n $nccl ]]; then
        scripts/slim_library.py "$nccl" 90 "$folder/lib/libnccl.so.2.gz"
    else
        echo "bundle.sh: this machine has no NCCL to take along"
    fi
    size=$(du -sm "$folder" | cut -f 1)
    if ((size > most_mib)); then
        echo "bundle.sh: $folder has $size MiB, more than $most_mib" >&2
        exit 1
    fi
    echo "$folder: $size MiB; carry it to a machine with a GPU, and run gpu_check.sh there"
}

main "$@"
