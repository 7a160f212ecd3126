# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
#
# Toolchain file: Debian's cross compiler for 64-bit ARM. The environment variable ONEBIT_SYSROOT names the folder with
# the library's dependencies, which scripts/cross_aarch64.sh fills.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static;-L;/usr/aarch64-linux-gnu)

set(CMAKE_FIND_ROOT_PATH $ENV{ONEBIT_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind LIBRARY INCLUDE PACKAGE)
    set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
set(ENV{PKG_CONFIG_SYSROOT_DIR} $ENV{ONEBIT_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} $ENV{ONEBIT_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:$ENV{ONEBIT_SYSROOT}/usr/share/pkgconfig)
set(ENV{PKG_CONFIG_ALLOW_SYSTEM_CFLAGS} 1) # the compiler doesn't search that folder's /usr/include
