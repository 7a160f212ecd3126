#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# Runs the tests that belong there where /dev/shm has less room than what the ranks of a node share, which is none of it.
# usage: small_shared_memory_test.sh MPIRUN... MPI_TESTS    with four ranks
# Exit status 77: can't be tried here, for it takes a mount namespace.

set -uo pipefail

if [[ ${INSIDE:-} != yes ]]; then
    unshare --mount true 2>/dev/null || { echo "skipped: no mount namespaces here (not root?)"; exit 77; }
    INSIDE=yes exec unshare --mount "$0" "$@"
fi
mount -t tmpfs -o size=8m tmpfs /dev/shm || exit 77 # two levels share 5 MiB of each rank
exec timeout 100 "$@" "[small shared memory]"
