#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# Runs the Python tests with a newer PyTorch than this machine's: in a root folder of a newer Debian.

set -euo pipefail

usage() {
    cat <<'END_OF_USAGE'
usage: scripts/newer_torch.sh [--suite SUITE] [--root FOLDER] [--library FILE] [COMMAND ARGUMENT...]

Makes a root folder of a newer Debian, once, and runs COMMAND in it, in this project's folder (a bind mount). PyTorch there is
for the CPU, with gloo. Needs root.

  --suite    trixie: PyTorch 2.6, Python 3.13; forky: PyTorch 2.14 or later, accelerate, transformers and Lightning [trixie]
  --root     where the root folder is, or is to be: 3 GB [/var/cache/onebit/SUITE]
  --library  libonebit.so of a finished build on an older Debian [build/release/libonebit.so]
  COMMAND    [python3 -m pytest -q -p no:cacheprovider python/tests]

Ends with status 77 where the root folder can't be made: without root, debootstrap, or a Debian mirror.
END_OF_USAGE
}

die() { # STATUS MESSAGE
    echo "newer_torch.sh: $2" >&2
    exit "$1"
}

packages_of() { # SUITE
    # For libonebit.so and for the tests; the BLAS variant that several threads may call at once.
    echo libhwloc15 libhwy1t64 python3-torch python3-numpy python3-pytest python3-mpi4py libopenblas0-pthread
    if [[ $1 == forky ]]; then echo python3-accelerate python3-transformers python3-venv; fi
}

# Debian has no Lightning. Lightning and its dependencies on PyPI are pure Python.
add_lightning() { # FOLDER
    install -D --mode=644 /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/ca-certificates.crt" # also a company's
    chroot "$1" python3 -m venv --system-site-packages /opt/onebit
    chroot "$1" /opt/onebit/bin/pip install --disable-pip-version-check --quiet lightning
}

make_root() { # SUITE FOLDER
    local part=$2.part mirror
    local -a packages
    ((EUID == 0)) || die 77 "run it as root: it makes a root folder and mounts"
    command -v debootstrap >/dev/null || die 77 "install debootstrap"
    mirror=$(debian_mirror)
    wget --quiet --spider --tries=2 --timeout=20 "$mirror/dists/$1/Release" ||
        die 77 "apt's Debian mirror can't be reached: $mirror"
    mapfile -t packages < <(packages_of "$1" | tr ' ' '\n')
    rm -rf "$part"
    mkdir -p "$part"
    echo "==> Making $2 of Debian $1; it takes some minutes"
    # sid's script, as an older debootstrap has no script for a newer suite
    quietly debootstrap --variant=minbase "$1" "$part" "$mirror" sid
    quietly chroot "$part" apt-get --yes --no-install-recommends install "${packages[@]}"
    if [[ $1 == forky ]]; then quietly add_lightning "$part"; fi
    rm -rf "$part"/var/cache/apt/archives/*.deb
    mv "$part" "$2" # an incomplete root folder never has this name
}

# Uses a new mount namespace, so that nothing stays mounted.
run_inside() { # FOLDER LIBRARY COMMAND...
    local folder=$1 library=$2
    shift 2
    # shellcheck disable=SC2016  # the inner shell expands them
    exec unshare --mount --propagation private bash -c '
        set -euo pipefail
        folder=$1 project=$2 library=$3
        shift 3
        mkdir -p "$folder/onebit" "$folder/library"
        mount --bind "$project" "$folder/onebit"
        mount --bind "$(dirname "$library")" "$folder/library"
        mount -t proc proc "$folder/proc"
        mount --rbind /dev "$folder/dev"
        mount --rbind /sys "$folder/sys"
        path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
        if [[ -d $folder/opt/onebit ]]; then path=/opt/onebit/bin:$path; fi
        exec chroot "$folder" env -C /onebit LC_ALL=C.UTF-8 PATH="$path" PYTHONPATH=/onebit/python \
            PYTHONDONTWRITEBYTECODE=1 ONEBIT_LIBRARY="/library/$(basename "$library")" "$@"
    ' bash "$folder" "$root" "$library" "$@"
}

main() {
    local suite=trixie folder="" library=""
    while (($# > 0)) && [[ $1 == -* ]]; do
        case $1 in
            -h | --help)
                usage
                exit 0
                ;;
            --suite | --root | --library) (($# > 1)) || die 2 "$1 needs a value (--help)" ;;&
            --suite) suite=$2 ;;
            --root) folder=$2 ;;
            --library) library=$2 ;;
            *) die 2 "unknown option '$1' (--help)" ;;
        esac
        shift 2
    done
    [[ $suite == trixie || $suite == forky ]] || die 2 "there is no suite '$suite' (--help)"
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    # shellcheck source=scripts/quietly.sh disable=SC1091
    source "$root/scripts/quietly.sh"
    # shellcheck source=scripts/new_debian.sh disable=SC1091
    source "$root/scripts/new_debian.sh"
    folder=${folder:-/var/cache/onebit/$suite}
    library=$(realpath -e -- "${library:-$root/build/release/libonebit.so}") || die 2 "build the library first (--help)"
    [[ -d $folder ]] || make_root "$suite" "$folder"
    if (($# == 0)); then set -- python3 -m pytest -q -p no:cacheprovider python/tests; fi
    run_inside "$folder" "$library" "$@"
}

main "$@"
