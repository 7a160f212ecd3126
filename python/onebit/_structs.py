# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""C structs filled from keyword arguments, and read into named tuples."""

import ctypes
from enum import IntEnum
from typing import Type

from onebit import _c
from onebit._errors import InvalidArgument
from onebit._library import library

# Values that have a name, besides those of enumerations.
_WORDS = {
    "freeze_step": {"auto": _c.FREEZE_AUTO, "never": _c.FREEZE_NEVER, "paper": _c.FREEZE_PAPER},
    "bucket_size": {"suggested": _c.BUCKET_SIZE_SUGGESTED},
    "follow_interval": {"never": _c.FOLLOW_NEVER},
}
# Members that this package sets by itself.
_OWN = {
    "size", "version", "reserved", "count", "counts", "shapes", "num_shapes", "levels", "num_levels", "datatype",
    "memory", "stream", "kind", "groups", "num_groups"
}


def initialised(struct_type, init, *arguments):
    """A struct with the library's defaults; `init` is the library's function for it."""
    struct = struct_type()
    init(ctypes.byref(struct), ctypes.sizeof(struct), *arguments)
    return struct


def set_options(struct, options: dict) -> None:
    """Sets members by name. Enumerations and values with a name may be given as strings: algorithm="dense".

    Raises TypeError for a name that the struct lacks or a value of another type, InvalidArgument for a value that the
    member can't hold.
    """
    known = [name for name, _ in struct._fields_ if name not in _OWN]
    for name, value in _without_betas(options):
        if name not in known:
            raise TypeError(f"there is no option {name!r}; there are {', '.join(known)}")
        set_member(struct, name, value)


def _without_betas(options):
    """PyTorch's betas are two members in C."""
    for name, value in options.items():
        if name == "betas":
            yield from zip(("beta1", "beta2"), value)
        else:
            yield name, value


def set_member(struct, name: str, value) -> None:
    """Sets one member, as `set_options` does."""
    number = _number(struct, name, value)
    try:
        setattr(struct, name, number)
    except TypeError as error:
        raise TypeError(f"{name}={value!r}: {error}") from None
    if isinstance(number, int) and getattr(struct, name) != number:
        raise InvalidArgument(f"{name}={value!r} is out of range")


def _number(struct, name, value):
    if not isinstance(value, str):
        return value
    words = _WORDS.get(name) or {member.name.lower(): member for member in struct.ENUMS.get(name, ())}
    if value.lower() not in words:
        raise InvalidArgument(f"{name}={value!r}: " + (f"one of {', '.join(words)}" if words else "not a number"))
    return int(words[value.lower()])


def enum_value(kind: Type[IntEnum], name: str, value) -> IntEnum:
    """`value`, a member of `kind` or its name in any case, as a member of `kind`."""
    try:
        return kind[value.upper()] if isinstance(value, str) else kind(value)
    except (KeyError, ValueError):
        raise InvalidArgument(f"{name}={value!r}: one of {', '.join(m.name.lower() for m in kind)}") from None


def read_info(struct_type, tuple_type, init_name: str, get_name: str, handle):
    """What a get_info function says, as a named tuple."""
    return read_info_by(struct_type, tuple_type, init_name, getattr(library, get_name), handle)


def read_info_by(struct_type, tuple_type, init_name: str, get, handle):
    """What get(handle, info) says."""
    struct = initialised(struct_type, getattr(library, init_name))
    get(handle, ctypes.byref(struct))
    return tuple_type(*(_python_value(struct, name) for name in tuple_type._fields))


def _python_value(struct, name):
    value = getattr(struct, name)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return struct.ENUMS[name](value) if name in struct.ENUMS else value
