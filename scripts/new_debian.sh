# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Sourced, after quietly.sh, by scripts that test something in a new Debian: debootstrap makes its folder, chroot enters
# it. Needs root and a mirror of Debian.

# Prints where this machine gets Debian's packages from.
debian_mirror() {
    # shellcheck disable=SC2016  # apt-get's format
    apt-get indextargets --format '$(SITE)' | awk '!/security/ && !found { print; found = 1 }'
}

# Makes a Debian with this machine's package sources; default: of the same release. Sets $debian to FOLDER.
make_debian() { # FOLDER [RELEASE]
    local own mirror
    debian=$1
    # shellcheck source=/dev/null
    own=$(. /etc/os-release && echo "$VERSION_CODENAME")
    local -r release=${2:-$own}
    mirror=$(debian_mirror)
    quietly debootstrap --variant=minbase "$release" "$debian" "$mirror" sid # sid's script: older debootstraps have it
    cp -r /etc/apt/. "$debian/etc/apt/"
    find "$debian/etc/apt" \( -name '*.list' -o -name '*.sources' \) -exec sed -i "s/\b$own/$release/g" {} +
    cp /etc/hosts "$debian/etc/" # an installer writes it, debootstrap doesn't
    mount -t proc proc "$debian/proc"
    mount -t sysfs sysfs "$debian/sys"
    mount --rbind --make-rslave /dev "$debian/dev"
    apt_in_debian update
}

in_debian() { # COMMAND...: runs it inside
    chroot "$debian" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$@"
}

apt_in_debian() {
    quietly in_debian apt-get -qq --yes --no-install-recommends "$@"
}

# Removes the new Debian, if there is one.
leave_debian() {
    if [[ -z ${debian:-} ]]; then return; fi
    local place
    for place in proc sys dev; do umount --quiet --recursive "$debian/$place" 2>/dev/null || true; done
    rm -rf --one-file-system "$debian"
}
