#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# Runs all that onebit has for GPUs on this machine, and writes down what came out.

set -euo pipefail

usage() {
    cat <<'END'
usage: gpu_check.sh [FOLDER]

Runs the GPU tests and benchmarks, and writes what they print to FOLDER/gpu_check.txt, and their results, why a step was
skipped, their figures and whether these reach their targets to FOLDER/gpu_check.json (default: the current folder).
Where python3 has a PyTorch for GPUs, its fused Adam is timed, too, and with a DeepSpeed of at most 0.19.6 and CuPy the
compressed allreduce of that. Where the machine has no NCCL, the bundle's is taken (for Hopper alone), or python3's.
In a checkout it builds them first, with nvcc; in a bundle, which
scripts/bundle.sh makes for machines without packages, everything lies beside it.
Exit status: 0 all passed, 77 there is no GPU, else 1.
END
}

# Sets `programs` and `scripts`, folders that have them all.
find_programs() {
    local here
    here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
    if [[ -d $here/bin && -d $here/lib ]]; then
        libraries=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
        programs=$here/bin
        scripts=$here
    else
        "$here/bundle.sh" "$here/../build/bundle"
        exec "$here/../build/bundle/gpu_check.sh" "$folder"
    fi
}

# A program of onebit's, which alone goes with the bundle's libraries: PyTorch has others.
program() {
    LD_LIBRARY_PATH=$libraries "$programs/$1" "${@:2}"
}

# Whether all GPUs are what the bundle's NCCL has code for.
only_hopper() {
    local capabilities
    capabilities=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null) || return 1
    [[ -n $capabilities ]] && ! grep -qvx '9\.[0-9]' <<<"$capabilities"
}

# Adds the bundle's NCCL to `libraries`, or that of python3's packages, where the machine has none of its own.
find_nccl() {
    local place
    if [[ $(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null) == *libnccl.so.2* ]]; then return; fi
    while read -rd : place; do
        if [[ -e $place/libnccl.so.2 ]]; then return; fi
    done <<<"$libraries:"
    place=${libraries%%:*}/libnccl.so.2.gz
    if [[ -e $place ]] && only_hopper; then
        mkdir -p "$folder/nccl"
        gzip -dc "$place" | cp --sparse=always /dev/stdin "$folder/nccl/libnccl.so.2"
        libraries+=:$folder/nccl
        echo "NCCL of the bundle, unpacked into $folder/nccl"
        return
    fi
    if ! command -v python3 >/dev/null; then return; fi
    place=$(
        python3 - <<'END'
import pathlib, sys
places = (pathlib.Path(folder, "nvidia/nccl/lib") for folder in sys.path)
print(next((place for place in places if (place / "libnccl.so.2").exists()), ""))
END
    ) || return 0
    if [[ -z $place ]]; then return; fi
    libraries+=:$place
    echo "NCCL of python3's packages: $place"
}

# Text as JSON.
quoted() {
    printf '"%s"' "$(tr -d '\000-\037' <<<"$1" | sed 's/[\\"]/\\&/g')"
}

# Prints a step's name, runs it, and sets `result` to passed, skipped or failed. Adds to `table` and `steps` (JSON).
step() {
    local name=$1 code=0 reason='' log=$folder/step.txt
    shift
    echo "==> $name"
    "$@" 2>&1 | tee "$log" || code=${PIPESTATUS[0]}
    case $code in
        0) result=passed ;;
        77)
            result=skipped
            reason=$(sed -n '/skipped: /{s/.*skipped: //p;q}' "$log")
            ;;
        *) result=failed ;;
    esac
    rm -f "$log"
    echo "==> $name: $result"
    table+=("$(printf '%-60s %s' "$name" "$result${reason:+: $reason}")")
    steps+=${steps:+, }$(printf '{"name": %s, "result": "%s", "reason": %s}' \
        "$(quoted "$name")" "$result" "$(quoted "$reason")")
}

# A benchmark's step: what it writes as JSON comes into `figures`.
measure() {
    local file=$folder/figures.json
    rm -f "$file"
    step "$1" "${@:2}" --json "$file"
    figures=null
    if [[ -s $file ]]; then figures=$(<"$file"); fi
    rm -f "$file"
}

# The tests that need NCCL; skipped where not even one rank has it.
nccl_in_one_process() {
    local log=$folder/nccl.txt code=0
    program onebit_cuda_tests "[nccl]" | tee "$log" || code=${PIPESTATUS[0]}
    if ((code == 0)) && grep -q 'skipped: NCCL with 1 ranks' "$log"; then code=77; fi
    rm -f "$log"
    return "$code"
}

# Times a rival: SCRIPT, ONEBIT'S FIGURES (JSON), OPTIONS...
beside() {
    local script=$1 file=$folder/onebit.json code=0
    if [[ $2 == null ]]; then
        echo "skipped: there are no figures of onebit's"
        return 77
    elif ! command -v python3 >/dev/null; then
        echo "skipped: there is no python3"
        return 77
    fi
    echo "$2" >"$file"
    python3 "$scripts/$script" "$file" "${@:3}" || code=$?
    rm -f "$file"
    return "$code"
}

# Adds to FILE, and prints, what the figures of the largest size come to beside what they are to reach: name, value, bar,
# met; null where it was not measured.
add_targets() {
    if ! command -v python3 >/dev/null; then
        echo "targets: left out, for there is no python3"
        return
    fi
    python3 - "$1" <<'END'
import json, sys

def look_up(figures, *way):
    try:
        for name in way:
            figures = max(figures["sizes"], key=lambda size: size["elements"]) if name == "largest" else figures[name]
        return figures
    except (KeyError, TypeError, ValueError):
        return None

with open(sys.argv[1]) as file:
    report = json.load(file)
wanted = [
    ("encode, of a copy's bytes per second", ">=", 0.85, ("kernels", "largest", "cases", "encode", "of_copy")),
    ("decode, of a copy's bytes per second", ">=", 0.85, ("kernels", "largest", "cases", "decode", "of_copy")),
    ("1-bit Adam's passes, of the time of PyTorch's fused Adam", "<=", 1.0,
     ("torch", "largest", "onebit_over_torch", "1-bit Adam, several tensors")),
    ("an allreduce, times as quick as DeepSpeed's", ">=", 5,
     ("deepspeed", "largest", "times_deepspeed", "threads", "pipelined")),
    ("a look at a known address, nanoseconds", "<", 50, ("allreduce", "pointer_nanoseconds", "device")),
]
meets = {">=": lambda value, bar: value >= bar, "<=": lambda value, bar: value <= bar,
         "<": lambda value, bar: value < bar}
report["targets"] = []
for name, relation, bar, way in wanted:
    value = look_up(report, *way)
    met = None if value is None else meets[relation](value, bar)
    report["targets"].append({"name": name, "value": value, "bar": f"{relation} {bar}", "met": met})
    shown = "not measured" if value is None else f"{value:.3g}"
    print(f"{name:<60} {shown:>12} {relation:>2} {bar:<5} {'' if met is None else 'met' if met else 'MISSED'}")
with open(sys.argv[1], "w") as file:
    json.dump(report, file, indent=1)
    file.write("\n")
END
}

check_all() {
    local tests nccl kernels passes torch allreduce deepspeed figures file results=() table=() steps=''
    find_nccl
    step "The machine" program onebit_info
    step "Tests" program onebit_cuda_tests "~[nccl]"
    tests=$result
    results+=("$result")
    # There need not be an NCCL.
    step "NCCL in one process" nccl_in_one_process
    if [[ $result == failed ]]; then results+=("$result"); fi
    step "NCCL between processes" program onebit_nccl_processes
    nccl=$result
    if [[ $result == failed ]]; then results+=("$result"); fi
    measure "Kernels beside a copy from device to device" program cuda_kernel_benchmark
    kernels=$figures
    results+=("$result")
    measure "The optimizers' passes beside a copy from device to device" program cuda_passes_benchmark
    passes=$figures
    results+=("$result")
    measure "PyTorch's fused Adam beside onebit's steps" beside torch_fused_adam.py "$passes"
    torch=$figures
    if [[ $result == failed ]]; then results+=("$result"); fi # it need not be there
    measure "Allreduces between two ranks on one GPU" program cuda_allreduce_benchmark
    allreduce=$figures
    results+=("$result")
    measure "DeepSpeed's compressed allreduce beside onebit's" beside deepspeed_allreduce.py "$allreduce"
    deepspeed=$figures
    if [[ $result == failed ]]; then results+=("$result"); fi # likewise
    file=$folder/gpu_check.json
    printf '{"tests": "%s", "nccl": "%s", "steps": [%s], "kernels": %s, "passes": %s, "torch": %s, "allreduce": %s, ' \
        "$tests" "$nccl" "$steps" "$kernels" "$passes" "$torch" "$allreduce" >"$file"
    printf '"deepspeed": %s}\n' "$deepspeed" >>"$file"
    echo
    printf '%s\n' "${table[@]}"
    echo
    add_targets "$file"
    case "${results[*]}" in
        "passed passed passed passed") return 0 ;;
        "skipped skipped skipped skipped") return 77 ;;
        *) return 1 ;;
    esac
}

main() {
    local folder programs scripts libraries result
    if [[ ${1:-} == -h || ${1:-} == --help ]]; then
        usage
        exit 0
    fi
    folder=${1:-.}
    mkdir -p "$folder"
    folder=$(cd "$folder" && pwd)
    find_programs
    check_all 2>&1 | tee "$folder/gpu_check.txt"
}

main "$@"
