# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""An allgather through a store of keys and values, for `onebit.from_bootstrap`; and a folder as such a store."""

import os
import time
from pathlib import Path
from typing import Callable, List

_DEFAULT_TIMEOUT = 600.0  # ONEBIT_TIMEOUT's


class StoreAllgather:
    """Rank 0 collects all ranks' parts, and all ranks read the collected parts.

    put  takes a key and bytes
    get  takes a key; returns its bytes once some rank has put them there
    """

    def __init__(
        self, rank: int, size: int, put: Callable[[str, bytes], object], get: Callable[[str], bytes], prefix: str
    ):
        self.rank = rank
        self._size = size
        self._put = put
        self._get = get
        self._prefix = prefix
        self._calls = 0

    def __call__(self, mine: bytes) -> List[bytes]:
        prefix = f"{self._prefix}/{self._calls}"
        self._calls += 1
        if self.rank == 0:
            parts = [mine] + [self._get(f"{prefix}/{rank}") for rank in range(1, self._size)]
            self._put(f"{prefix}/all", b"".join(parts))
            return parts
        self._put(f"{prefix}/{self.rank}", mine)
        together = self._get(f"{prefix}/all")
        return [together[i * len(mine) : (i + 1) * len(mine)] for i in range(self._size)]


class Folder:
    """A store in a folder that all ranks see, a new one for each run: a file for each key."""

    def __init__(self, path, timeout: float):
        self._path = Path(path)
        self._timeout = seconds_to_wait(timeout)
        self._path.mkdir(parents=True, exist_ok=True)

    def put(self, key: str, value: bytes) -> None:
        """Raises FileExistsError for a file that another run has left: that run's ranks listen no more."""
        file = self._file(key)
        if file.exists():
            raise FileExistsError(f"{file} is there already, from another run or rank: take a new folder for each run")
        part = file.with_name(f"{file.name}.part")
        part.write_bytes(value)
        os.replace(part, file)  # a rank that sees the file sees all of it

    def get(self, key: str) -> bytes:
        file = self._file(key)
        deadline = time.monotonic() + self._timeout
        while not file.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{file} has not come within {self._timeout:g} s: has that rank begun?")
            time.sleep(0.02)
        return file.read_bytes()

    def _file(self, key: str) -> Path:
        return self._path / key.replace("/", "-")


def seconds_to_wait(timeout: float) -> float:
    """`timeout`; if it is 0, ONEBIT_TIMEOUT; if both are 0, infinity."""
    return timeout or float(os.environ.get("ONEBIT_TIMEOUT") or _DEFAULT_TIMEOUT) or float("inf")


def milliseconds_to_wait(timeout: float) -> int:
    """The same for stores that take milliseconds: 24 days at most."""
    return int(min(1000 * seconds_to_wait(timeout), 2**31 - 1))
