#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# Runs all GPU tests and benchmarks of onebit on this machine, and writes a report.

set -euo pipefail

usage() {
    cat <<'END'
usage: [GPU_CHECK_SECONDS=560] gpu_check.sh [FOLDER]

Runs the GPU tests and benchmarks. FOLDER (default: the current folder) gets two files:
  gpu_check.txt   the printed output
  gpu_check.json  the results, the reasons why steps were skipped or failed, the figures, and whether these reach their
                  targets; written before and after each step, so that a killed run leaves all results until then
Each step has a time limit; GPU_CHECK_SECONDS is the limit for all steps together. If a step fails or hangs, the next
steps still run. If python3 has a PyTorch for GPUs, its fused Adam is timed, too. If it also has CuPy and a DeepSpeed of
at most 0.19.6, DeepSpeed's compressed allreduce is timed. If the machine has no NCCL, that of python3's packages is
used, or on Hopper the bundle's. In a checkout the programs are built first, with nvcc; a bundle, which
scripts/bundle.sh makes for machines without packages, contains them.
Exit status: 0 all passed, 77 there is no GPU, else 1.
END
}

work=    # a folder that is removed at the end
visible='~[nccl]~[.]' # tests without NCCL that are not only run by hand
running= # while a command with a time limit runs: its process group

clean_up() {
    if [[ -n $running ]]; then kill -KILL -- "-$running" 2>/dev/null || true; fi
    rm -rf "$work"
}

# Sets `programs` and `scripts`, the folders of all programs and scripts.
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

# Runs a command, at most until `step_end`. Its child processes end with it, as they would keep the log open.
limited() {
    local code=0 left=$((step_end - SECONDS))
    timeout -k 5 "$((left > 0 ? left : 1))" "$@" &
    running=$!
    wait "$running" 2>/dev/null || code=$? # without bash's own messages on signals
    kill -KILL -- "-$running" 2>/dev/null || true
    running=
    return "$code"
}

# The same for a command that takes little time if it works.
briefly() {
    local step_end=$((SECONDS + 10))
    limited "$@"
}

# Runs a program of onebit. Only these use the bundle's libraries: PyTorch has its own.
program() {
    limited env LD_LIBRARY_PATH="$libraries" "$programs/$1" "${@:2}"
}

# Whether there is a python3 that works.
has_python() {
    if [[ -z $python ]]; then
        python=no
        if briefly python3 -c 'import json' &>/dev/null; then python=yes; fi
    fi
    [[ $python == yes ]]
}

# Prints a line of this script.
say() {
    printf '%s\n' "$*" | tee -a "$folder/gpu_check.txt"
}

# Whether the bundle's NCCL has code for all GPUs.
only_hopper() {
    local capabilities
    capabilities=$(briefly nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null) || return 1
    [[ -n $capabilities ]] && ! grep -qvx '9\.[0-9]' <<<"$capabilities"
}

# Whether the machine has an NCCL that programs find.
has_nccl() {
    local place
    if [[ $(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null) == *libnccl.so.2* ]]; then return; fi
    while read -rd : place; do
        if [[ -e $place/libnccl.so.2 ]]; then return; fi
    done <<<"$libraries:"
    return 1
}

# Prints where python3's packages have NCCL, or nothing.
nccl_of_python() {
    if ! has_python; then return; fi
    briefly python3 -c '
import pathlib, sys
places = (pathlib.Path(folder, "nvidia/nccl/lib") for folder in sys.path)
print(next((place for place in places if (place / "libnccl.so.2").exists()), ""))
'
}

# If the machine has no NCCL, adds one to `libraries`: from python3's packages, or the bundle's reduced one.
find_nccl() {
    local place packed=${libraries%%:*}/libnccl.so.2.gz
    if has_nccl; then return; fi
    place=$(nccl_of_python) || place=
    if [[ -n $place ]]; then
        libraries+=:$place
        say "NCCL: of python3's packages, $place"
    elif [[ -e $packed ]] && only_hopper && mkdir "$work/nccl"; then
        gzip -dc "$packed" | cp --sparse=always /dev/stdin "$work/nccl/libnccl.so.2" || return 0
        libraries+=:$work/nccl
        say "NCCL: the bundle's"
    fi
}

# Prints a summary of the machine and its software.
describe_machine() {
    sed -n 's/^PRETTY_NAME=//p' /etc/os-release
    getconf GNU_LIBC_VERSION
    df -h /dev/shm # of which NCCL takes 34 MB for each communicator and process
    briefly nvidia-smi
    briefly python3 -c '
import importlib.metadata, sys
print("python3", sys.version.split()[0])
for package in importlib.metadata.distributions():
    name = (package.metadata["Name"] or "").lower()
    if name in ("torch", "deepspeed") or name.startswith(("cupy", "nvidia-nccl")):
        print(name, package.version)
'
    program onebit_info
}

# Text as a JSON string: a log may contain any bytes and be cut anywhere.
quoted() {
    printf '"%s"' "$(LC_ALL=C tr -cd '\11\12\40-\176' <<<"$1" |
        sed -z 's/[\\"]/\\&/g; s/\t/\\t/g; s/\n$//; s/\n/\\n/g')"
}

# A step's row for the report: NAME RESULT REASON SECONDS [LOG]
row() {
    printf '{"name": %s, "result": "%s", "reason": %s, "seconds": %d%s}' \
        "$(quoted "$1")" "$2" "$(quoted "$3")" "$4" "${5:+, \"log\": $(quoted "$5")}"
}

# Writes all results so far.
write_report() {
    local part=$folder/gpu_check.json.part name all
    all=$(printf ',\n%s' "${steps[@]}")
    {
        printf '{"tests": "%s", "nccl": "%s", "steps": [%s]' "$tests" "$nccl" "${all:1}"
        for name in kernels passes allreduce processes torch deepspeed; do
            printf ',\n"%s": %s' "$name" "${figures[$name]:-null}"
        done
        printf '}\n'
    } >"$part"
    mv "$part" "$folder/gpu_check.json"
}

# Passes on a log's beginning at once and its end when the log is complete; leaves out the middle.
kept() {
    local bytes=$((512 << 10)) end=$work/end.txt
    stdbuf -o0 head -c "$bytes" 2>/dev/null || head -c "$bytes"
    tail -c "$bytes" >"$end"
    if [[ -s $end ]]; then printf '\n[... the end of the log:]\n' | cat - "$end"; fi
}

# The two places for a command's output.
show() {
    kept | tee -a "$log" "$folder/gpu_check.txt"
}
note() {
    kept >>"$folder/gpu_check.txt"
}

# Runs a command for at most SECONDS: PLACE SECONDS COMMAND...
run_into() {
    local place=$1 step_end=$((SECONDS + $2)) code=0 reader
    {
        reader=$!
        "${@:3}" || code=$?
    } > >("$place") 2>&1
    # Waits only 5 s: a process that hangs in a GPU's driver can't be killed, and keeps the log open.
    timeout 5 tail -s 0.02 --pid="$reader" -f /dev/null || kill "$reader" 2>/dev/null || true
    return "$code"
}

# Sets `result` and `reason` according to an exit status: CODE SECONDS LIMIT
judge() {
    result=failed
    reason="exit status $1"
    if (($1 > 128)); then reason="signal $(kill -l "$1" 2>/dev/null || echo $(($1 - 128)))"; fi
    case $1 in
        0) result=passed reason='' ;;
        77) result=skipped ;;
        124 | 137) if (($2 >= $3)); then reason="took more than $3 s"; fi ;;
    esac
    # The NCCL tests pass even if there is no NCCL for one rank.
    if [[ $result == passed ]] && grep -q 'skipped: NCCL with 1 ranks' "$log"; then result=skipped; fi
    if [[ $result == skipped ]]; then reason=$(sed -n '/skipped: /{s/.*skipped: //p;q}' "$log"); fi
}

# Prints a step's name, runs it for at most SECONDS and at most until `until`: NAME SECONDS COMMAND... Sets `result` to
# passed, skipped or failed. Adds to `table` and `steps` (JSON).
step() {
    local name=$1 limit=$2 begin=$SECONDS code=0 reason='no time left' log=$work/step.txt end=''
    if ((limit > until - SECONDS)); then limit=$((until - SECONDS)); fi
    say "==> $name"
    steps+=("$(row "$name" running '' 0)")
    : >"$log"
    if ((limit < 3)); then
        result=skipped
    else
        write_report
        run_into show "$limit" "${@:3}" || code=$?
        judge "$code" $((SECONDS - begin)) "$limit"
    fi
    if [[ $result == failed ]]; then end=$(tail -c 4000 "$log" | tr -d '\0'); fi
    steps[-1]=$(row "$name" "$result" "$reason" $((SECONDS - begin)) "$end")
    write_report
    say "==> $name: $result${reason:+: $reason}"
    table+=("$(printf '%-60s %4d s  %s' "$name" $((SECONDS - begin)) "$result${reason:+: $reason}")")
}

# Whether a file is a complete report. Without python3, checks only its first and last line.
is_report() {
    if [[ ! -s $1 ]]; then return 1; fi
    if has_python; then
        briefly python3 -c 'import json, sys; json.load(open(sys.argv[1]), parse_constant=int)' "$1" &>/dev/null
    else
        [[ $(head -n 1 "$1") == '{' && $(tail -n 1 "$1") == '}' ]]
    fi
}

# A benchmark's step: NAME KEY SECONDS COMMAND... The JSON that it writes, even a part, is stored in `figures[KEY]`.
measure() {
    local file=$folder/figures.json
    rm -f "$file"
    step "$1" "$3" "${@:4}" --json "$file"
    if is_report "$file"; then figures[$2]=$(<"$file"); fi
    rm -f "$file"
    write_report
}

# Prints the worst result.
worst() {
    case " $* " in
        *" failed "*) echo failed ;;
        *" skipped "*) echo skipped ;;
        *) echo passed ;;
    esac
}

# Runs the tests of a file: NAME SECONDS SPECIFICATION
run_tests() {
    step "$1" "$2" program onebit_cuda_tests -# -d yes --abortx 50 "$3"
}

# Runs them again, slowly and with details, only into the log: NAME SPECIFICATION
run_tests_once_more() {
    local limit=$((until - SECONDS))
    if ((limit < 3)); then return; fi
    say "==> $1: once more, with -s and CUDA_LAUNCH_BLOCKING=1, into gpu_check.txt"
    CUDA_LAUNCH_BLOCKING=1 run_into note $((limit < 30 ? limit : 30)) \
        program onebit_cuda_tests -# -s -d yes --abortx 50 "$2" || true
}

# Runs the tests of one source file at a time, by Catch2's tag for the file: a crash, a hang or a GPU error in one file
# doesn't affect the tests of other files. Leaves most of the time to the benchmarks. Sets `result`.
run_all_tests() {
    local before=$until until=$((SECONDS + 210)) step_end=$((SECONDS + 30)) file files results=() failed=()
    if ((until > before)); then until=$before; fi
    files=$(program onebit_cuda_tests -# --list-tags "$visible" 2>/dev/null | sed -n 's/.*\[#\([^]]*\)\].*/\1/p') || true
    for file in $files; do
        run_tests "Tests: $file" 60 "[#$file]$visible"
        results+=("$result")
        if [[ $result == failed ]]; then failed+=("$file"); fi
    done
    for file in "${failed[@]}"; do run_tests_once_more "Tests: $file" "[#$file]$visible"; done
    if [[ -z $files ]]; then
        run_tests "Tests" 120 "$visible" # its output says why
        results=("$result")
    fi
    result=$(worst "${results[@]}")
}

# Sets `nccl`, and adds only failures to `results`: NCCL is optional.
run_nccl() {
    local ranks
    run_tests "NCCL in one process" 60 '[nccl]'
    if [[ $result == failed ]]; then
        results+=(failed)
        run_tests_once_more "NCCL in one process" '[nccl]'
    fi
    for ranks in 2 4; do
        step "NCCL between $ranks processes" 75 program onebit_nccl_processes "$ranks"
        # NCCL need not allow four ranks to share a GPU.
        if ((ranks == 2)) || [[ $result == failed ]]; then nccl=$result; fi
        if [[ $result == failed ]]; then results+=(failed); fi
    done
    measure "Allreduces between two processes over NCCL" processes 60 time_over_nccl
    if [[ $result == failed ]]; then results+=(failed); fi
}

# With the same numbers of elements as cuda_allreduce_benchmark.
time_over_nccl() {
    if [[ $nccl != passed ]]; then
        echo "skipped: NCCL between processes: $nccl"
        return 77
    fi
    program onebit_nccl_processes --time $((1 << 18)) $((1 << 22)) $((1 << 26)) "$@"
}

# Compares calls on PyTorch's tensors in the GPU's memory with the same calls on host memory.
test_python() {
    local place=${libraries%%:*}
    if ! has_python || ! limited python3 -c 'import pytest, torch; assert torch.cuda.is_available()' &>/dev/null; then
        echo "skipped: there is no python3 with pytest and a PyTorch that finds a GPU"
        return 77
    fi
    ONEBIT_LIBRARY=$(echo "$place"/libonebit.so.*) limited python3 -m pytest -p no:cacheprovider -q --color=no \
        --durations=5 "$scripts/python/tests/test_torch_cuda.py"
}

# Times another library beside onebit: SCRIPT, KEY OF ONEBIT'S FIGURES, OPTIONS...
beside() {
    if [[ -z ${figures[$2]:-} ]]; then
        echo "skipped: there are no figures of onebit's"
        return 77
    elif ! has_python; then
        echo "skipped: there is no python3"
        return 77
    fi
    echo "${figures[$2]}" >"$work/onebit.json"
    limited python3 "$scripts/$1" "$work/onebit.json" "${@:3}"
}

beside_deepspeed() {
    local processes=()
    if [[ -n ${figures[processes]:-} ]]; then
        echo "${figures[processes]}" >"$work/processes.json"
        processes=(--processes "$work/processes.json")
    fi
    beside deepspeed_allreduce.py allreduce "${processes[@]}" "$@"
}

# Compares the figures with their targets; prints the result and adds it to the report.
add_targets() {
    if has_python; then
        timeout 30 python3 "$scripts/gpu_targets.py" "$folder/gpu_check.json" 2>&1
    else
        echo "targets: left out, for there is no python3"
    fi
}

check_all() {
    local until=$((SECONDS + total)) tests=running nccl=running results=() table=() steps=() result reason python=''
    local -A figures=()
    has_python || true
    find_nccl
    step "The machine" 40 describe_machine
    run_all_tests
    tests=$result
    results+=("$result")
    step "PyTorch's tensors in the GPU's memory" 150 test_python # optional
    if [[ $result == failed ]]; then results+=("$result"); fi
    measure "Kernels beside a copy from device to device" kernels 60 program cuda_kernel_benchmark
    results+=("$result")
    measure "The optimizers' passes beside a copy from device to device" passes 90 program cuda_passes_benchmark
    results+=("$result")
    measure "Allreduces between two ranks on one GPU" allreduce 60 program cuda_allreduce_benchmark
    results+=("$result")
    run_nccl
    # PyTorch and DeepSpeed are optional.
    measure "PyTorch's fused Adam beside onebit's steps" torch 90 beside torch_fused_adam.py passes
    if [[ $result == failed ]]; then results+=("$result"); fi
    measure "DeepSpeed's compressed allreduce beside onebit's" deepspeed 120 beside_deepspeed
    if [[ $result == failed ]]; then results+=("$result"); fi
    {
        echo
        printf '%s\n' "${table[@]}"
        echo
        add_targets || echo "targets: they can't be looked up"
    } | tee -a "$folder/gpu_check.txt"
    case "${results[*]}" in
        "passed passed passed passed") return 0 ;;
        "skipped skipped skipped skipped") return 77 ;;
        *) return 1 ;;
    esac
}

main() {
    local folder programs scripts libraries total=${GPU_CHECK_SECONDS:-560} code=0
    if [[ ${1:-} == -h || ${1:-} == --help ]]; then
        usage
        exit 0
    fi
    if ! [[ $total =~ ^[0-9]+$ ]]; then
        echo "gpu_check.sh: GPU_CHECK_SECONDS: $total is no number of seconds" >&2
        exit 1
    fi
    folder=${1:-.}
    mkdir -p "$folder"
    folder=$(cd "$folder" && pwd)
    find_programs
    work=$(mktemp -d)
    trap clean_up EXIT
    trap 'exit 1' HUP INT TERM
    # A hanging test must report its hang before its step's time is over.
    export ONEBIT_TIMEOUT=${ONEBIT_TIMEOUT:-30} ONEBIT_TEST_WATCHDOG=${ONEBIT_TEST_WATCHDOG:-40} PYTHONUNBUFFERED=1
    export NCCL_DEBUG=${NCCL_DEBUG:-WARN} # the only way to learn why NCCL fails
    rm -f "$folder/gpu_check.json"
    : >"$folder/gpu_check.txt"
    check_all || code=$?
    return "$code"
}

main "$@"
