#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# Builds the last commit and runs its tests in a new Debian of any release.

set -euo pipefail

usage() {
    cat <<'END'
usage: scripts/debian_check.sh RELEASE [PRESET...]

Makes a new Debian of RELEASE (its name: bookworm, trixie) by debootstrap, puts the last commit there, and runs
scripts/test.sh there with the PRESETs (default: those of scripts/test.sh). Needs root, gigabytes in $TMPDIR, and a
mirror of Debian.
END
}

die() {
    echo "debian_check.sh: $*" >&2
    exit 1
}

main() {
    if [[ ${1:-} == -h || ${1:-} == --help ]]; then
        usage
        exit 0
    fi
    (($# > 0)) || die "which RELEASE? (--help)"
    local -r release=$1
    shift
    cd "$(dirname "${BASH_SOURCE[0]}")/.."
    # shellcheck source=scripts/quietly.sh
    source scripts/quietly.sh
    # shellcheck source=scripts/new_debian.sh
    source scripts/new_debian.sh
    ((EUID == 0)) || die "chroot needs root"
    scripts/packages.sh deb
    trap leave_debian EXIT
    echo "==> Making a new Debian $release"
    make_debian "$(mktemp -d)" "$release"
    git clone --quiet . "$debian/root/onebit"
    # shellcheck disable=SC2016
    in_debian sh -c 'cd /root/onebit && exec scripts/test.sh "$@"' sh "$@"
}

main "$@"
