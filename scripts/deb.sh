#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# Makes Debian packages of the library, as cmake/OnebitPackages.cmake describes them, and tests them in a new Debian.

set -euo pipefail

usage() {
    cat <<'END'
usage: scripts/deb.sh [--test] [CMAKE-OPTION...]

Builds the preset "packages" and puts its packages into dist/: the library, one for each MPI, for development, tools, and
Python. Install them with apt: apt install ./dist/*.deb

  --test        then installs them into a new Debian of the same release, and builds and runs the examples there, in C,
                C++, Fortran and Python, on two ranks. Needs root, and a mirror of Debian. It takes minutes
  CMAKE-OPTION  e.g. -DONEBIT_CUDA=OFF
END
}

die() {
    echo "deb.sh: $*" >&2
    exit 1
}

make_packages() { # CMAKE-OPTION...
    quietly cmake --preset packages "$@"
    quietly cmake --build --preset packages
    rm -f build/packages/*.deb
    (cd build/packages && quietly cpack)
    mkdir -p dist
    rm -f dist/*.deb
    cp build/packages/*.deb dist/
}

# Builds one program per language. Its compiler finds the library as the packages provide for.
try_mpi() { # NAME
    local mpi=$1 directory=/root/$1
    mkdir -p "$debian$directory"
    cp examples/allreduce.c examples/allreduce.f90 "$debian$directory/"
    cat >"$debian$directory/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(stranger LANGUAGES C)
set(MPI_C_COMPILER mpicc.$mpi)
find_package(MPI REQUIRED COMPONENTS C)
find_package(onebit REQUIRED)
add_executable(by_cmake allreduce.c)
target_link_libraries(by_cmake PRIVATE onebit::mpi m)
END
    cat >"$debian$directory/build.sh" <<END
set -e
cd $directory
mpicc.$mpi allreduce.c -o by_pkg_config \$(pkg-config --cflags --libs onebit-$mpi) -lm
cmake -S . -B build >/dev/null
cmake --build build >/dev/null
mpif90.$mpi -c /usr/include/onebit/onebit.f90
mpif90.$mpi allreduce.f90 onebit.o -o by_fortran -lonebit_$mpi -lonebit
for program in ./by_pkg_config build/by_cmake ./by_fortran "osu_onebit_allreduce.$mpi -m 8:4096 -i 10 -x 2"; do
    mpirun.$mpi -n 2 \$program
done
onebit_info.$mpi
END
    in_debian sh "$directory/build.sh" >"$work/output" 2>&1 || { cat "$work/output" >&2; die "no program runs with $mpi"; }
    echo "==> $mpi: programs in C (pkg-config and CMake) and Fortran ran on two ranks"
}

try_cpp() {
    cat >"$debian/root/alone.cpp" <<'END'
#include <onebit/onebit.hpp>
#include <cstdio>

int main() {
    std::printf("onebit %s without MPI\n", onebit_version());
}
END
    # shellcheck disable=SC2016
    quietly in_debian sh -c 'cd /root && g++ -std=c++20 alone.cpp -o alone $(pkg-config --cflags --libs onebit) && ./alone'
}

try_python() {
    cp examples/python/train.py "$debian/root/"
    in_debian sh -c 'cd /root && python3 -m torch.distributed.run --standalone --redirects 1 --tee 1 --nproc_per_node 2 \
        train.py --steps 100' >"$work/output" 2>&1 || { cat "$work/output" >&2; die "the training failed"; }
    grep 'step 100' "$work/output"
}

test_packages() {
    local mpi packages=()
    echo "==> Making a new Debian"
    make_debian "$work/debian"
    mkdir "$debian/root/dist"
    cp dist/*.deb "$debian/root/dist/"
    mapfile -t packages < <(cd dist && printf '/root/dist/%s\n' *.deb)
    echo "==> Installing ${#packages[@]} packages there"
    apt_in_debian install "${packages[@]}" g++ gfortran cmake make pkg-config python3-torch \
        libopenmpi-dev openmpi-bin libmpich-dev mpich
    for mpi in openmpi mpich; do try_mpi $mpi; done
    try_cpp
    try_python
    apt_in_debian purge "$(cd dist && basename libonebit[0-9]*.deb | cut -d _ -f 1)"
    ! find "$debian/usr" -name '*onebit*' | grep . || die "something stays behind when the packages are removed"
    echo "==> All programs ran, and the packages left nothing behind"
}

leave() {
    leave_debian
    rm -rf --one-file-system "$work"
}

main() {
    local test=false
    local -a options=()
    for argument in "$@"; do
        case $argument in
            -h | --help)
                usage
                exit 0
                ;;
            --test) test=true ;;
            *) options+=("$argument") ;;
        esac
    done
    cd "$(dirname "${BASH_SOURCE[0]}")/.."
    # shellcheck source=scripts/quietly.sh
    source scripts/quietly.sh
    # shellcheck source=scripts/new_debian.sh
    source scripts/new_debian.sh
    work=$(mktemp -d)
    trap leave EXIT
    scripts/packages.sh build openmpi mpich bench deb
    echo "==> Building the packages"
    make_packages "${options[@]}"
    du -h dist/*.deb
    if [[ $test == true ]]; then test_packages; fi
}

main "$@"
