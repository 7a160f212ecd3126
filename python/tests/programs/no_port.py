# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Two ranks, threads, on a host with one free port, in a network namespace of its own. Prints "ok"."""

import socket
import subprocess
import sys
import threading
from pathlib import Path

import onebit

PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def errors_of(folder):
    errors = [None, None]

    def run(rank):
        try:
            onebit.from_folder(rank, 2, folder, timeout=10)
        except onebit.Error as error:
            errors[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
PORTS.write_text("50000 50001")
taken = socket.create_server(("127.0.0.1", 50000))
for error in errors_of(f"{sys.argv[1]}/first"):
    assert isinstance(error, onebit.TransportError), error
    assert "in use; widen net.ipv4.ip_local_port_range" in str(error), error
PORTS.write_text("50000 60000")
assert errors_of(f"{sys.argv[1]}/second") == [None, None]
print("ok")
