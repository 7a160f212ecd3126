#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Copies a shared library, compressed, with the GPU code of only one architecture: of NCCL's 218 MB, one GPU needs 13.

    slim_library.py /usr/lib/libnccl.so.2 90 lib/libnccl.so.2.gz

Replaces code for other GPUs, relocatable code, which is not read at run time, and debug information by zeroes; no byte
changes its place. After gzip -d, the library is used like the original.
"""

import argparse
import gzip
import struct
import sys
from pathlib import Path

FATBIN = ".nv_fatbin"
UNREAD = ("__nv_relfatbin", ".debug_")
# .nv_fatbin contains images. An image has a header and entries; an entry has a header and one architecture's code.
IMAGE_MAGIC = 0xBA55ED50
IMAGE = struct.Struct("<IHHQ")           # magic, version, bytes of the header, bytes of what follows it
ENTRY = struct.Struct("<HHIQIIHHI")      # kind, version, bytes of the header, of the code, ..., ..., minor, major, architecture
SECTION = struct.Struct("<IIQQQQ")       # name, type, flags, address, place in the file, bytes


def sections(library):
    """Name, place and bytes of each section of a 64-bit ELF file."""
    if library[:5] != b"\x7fELF\x02":
        sys.exit("slim_library.py: not a 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", library, 0x28)
    size, number, names = struct.unpack_from("<HHH", library, 0x3A)
    headers = [SECTION.unpack_from(library, table + i * size) for i in range(number)]
    for name, _, _, _, place, length in headers:
        begin = headers[names][4] + name
        yield library[begin:library.index(b"\0", begin)].decode(), place, length


def entries(library, place, length):
    """Architecture, place and bytes of the code of each entry of .nv_fatbin."""
    end = place + length
    while place < end:
        magic, _, header, size = IMAGE.unpack_from(library, place)
        if magic != IMAGE_MAGIC:
            place += 8  # there may be gaps between images
            continue
        entry, place = place + header, place + header + size
        while entry < place:
            _, _, header, size, _, _, _, _, architecture = ENTRY.unpack_from(library, entry)
            yield architecture, entry + header, size
            entry += header + size


def clear(library, place, length):
    library[place:place + length] = bytes(length)


def slim(library, architecture):
    """Returns how many bytes of code are left."""
    left = 0
    for name, place, length in list(sections(library)):
        if name.startswith(UNREAD):
            clear(library, place, length)
        elif name == FATBIN:
            for of, begin, size in list(entries(library, place, length)):
                if of == architecture:
                    left += size
                else:
                    clear(library, begin, size)
    return left


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=Path)
    parser.add_argument("architecture", type=int, help="of sm_90: 90")
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    library = bytearray(options.library.read_bytes())
    left = slim(library, options.architecture)
    if left == 0:
        sys.exit(f"slim_library.py: {options.library} has no code for sm_{options.architecture}")
    with gzip.open(options.output, "wb", compresslevel=6) as file:
        file.write(library)
    print(f"{options.output}: {options.output.stat().st_size >> 20} MiB, of them {left >> 20} code for sm_{options.architecture}, "
          f"instead of {len(library) >> 20}")


if __name__ == "__main__":
    main()
