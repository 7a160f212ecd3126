#!/usr/bin/env bash
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0

# Makes a site of docs/, the headers and the Python package, and checks whether it is complete.

set -euo pipefail

usage() {
    cat <<'END'
usage: scripts/site.sh [BUILD]

Installs what is missing (Debian; needs root or sudo) and builds build/site/html/index.html. BUILD (default:
build/release) is a folder with a built libonebit.so, which the description of the Python package needs. Fails if Sphinx
warns of anything, a link is broken, or a public function is not described.
END
}

main() {
    if [[ ${1:-} == -h || ${1:-} == --help ]]; then
        usage
        exit 0
    fi
    cd "$(dirname "${BASH_SOURCE[0]}")/.."
    local library=${1:-build/release}/libonebit.so
    if [[ ! -e $library ]]; then
        echo "site.sh: there is no $library: build it first" >&2
        exit 1
    fi
    scripts/packages.sh site python
    rm -rf build/site # Sphinx reports a page's warnings only when it reads that page
    export ONEBIT_SITE_XML=$PWD/build/site/xml PYTHONDONTWRITEBYTECODE=1
    ONEBIT_LIBRARY=$(realpath "$library") /usr/bin/python3 -m sphinx -q -W --keep-going -b html -d build/site/doctrees \
        docs build/site/html
    docs/check_site.py build/site/html
}

main "$@"
