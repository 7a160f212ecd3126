#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The resources of each kernel's threads, by the machine code or the compiler: no stack, no spills, few registers.

  cuda_resources_test.py KERNELS FILE... -- COMMAND...   run COMMAND on each FILE; there must be KERNELS kernels per GPU
  cuda_resources_test.py --self-test                     prove that whatever is wrong is found

COMMAND is `cuobjdump --dump-resource-usage`, on a library or objects, or `ptxas -v`, on PTX.
"""

import re
import subprocess
import sys

MOST_REGISTERS = 128  # of a multiprocessor's 65536: for two blocks of 256 threads, one loads while the other adds up
NONE = {"registers": 0, "stack": 0, "local": 0, "spilled": 0}

# A kernel begins with `Function` in cuobjdump's output, after a line with its GPU; in ptxas's output with `Compiling`.
LINE = re.compile(r"^arch = (?P<gpu>sm_\w+)|^ *Function (?P<function>[^\s:]+):"
                  r"|Compiling entry function '(?P<entry>[^']+)' for '(?P<target>[^']+)'"
                  r"|\bREG:(?P<reg>\d+) STACK:(?P<stack>\d+) SHARED:\d+ LOCAL:(?P<local>\d+)"
                  r"|(?P<frame>\d+) bytes stack frame"
                  r"|(?P<stores>\d+) bytes spill stores|(?P<loads>\d+) bytes spill loads"
                  r"|\bUsed (?P<used>\d+) registers", re.MULTILINE)


def parse(text):
    """{(GPU, kernel): a thread's resources}. ptxas lists functions after a kernel that calls them: they count there."""
    kernels, gpu, current = {}, "?", None
    for match in LINE.finditer(text):
        found = {name: int(value) if value.isdecimal() else value
                 for name, value in match.groupdict().items() if value is not None}
        gpu = found.get("gpu") or found.get("target") or gpu
        name = found.get("function") or found.get("entry")
        if name:
            current = kernels.setdefault((gpu, name), dict(NONE)) if "onebit" in name else None
        elif current is not None:
            current["registers"] = max(current["registers"], found.get("reg", 0), found.get("used", 0))
            current["stack"] += found.get("stack", 0) + found.get("frame", 0)
            current["local"] += found.get("local", 0)
            current["spilled"] += found.get("stores", 0) + found.get("loads", 0)
    return kernels


def is_wrong(usage):
    return not 0 < usage["registers"] <= MOST_REGISTERS or any(usage[what] for what in ("stack", "local", "spilled"))


def judge(expected, kernels):
    """The message, and whether all is well."""
    gpus = [gpu for gpu, _ in kernels]
    counts = {gpu: gpus.count(gpu) for gpu in sorted(set(gpus))}
    wrong = {key: usage for key, usage in kernels.items() if is_wrong(usage)}
    lines = [f"{count} kernels for {gpu} instead of {expected}" for gpu, count in counts.items() if count != expected]
    if not kernels:
        lines.append(f"no kernel instead of {expected}")
    if wrong:
        lines.append("registers   stack   local spilled  (registers per thread, of at most "
                     f"{MOST_REGISTERS}; bytes, which must be 0)")
        lines += ["{registers:9} {stack:7} {local:7} {spilled:7}  ".format(**usage) + " ".join(key)
                  for key, usage in sorted(wrong.items())]
    if lines:
        return "\n".join(lines), False
    most = max(usage["registers"] for usage in kernels.values())
    return f"{expected} kernels ({', '.join(counts)}), at most {most} registers, no stack, no spills", True


CUOBJDUMP = """
Fatbin elf code:
================
arch = sm_90

Resource usage:
 Common:
  GLOBAL:0
 Function _ZN6onebit4encodeEv:
  REG:58 STACK:0 SHARED:17408 LOCAL:0 CONSTANT[0]:648 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function _ZN6onebit6decodeEv:
  REG:29 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:600 TEXTURE:0 SURFACE:0 SAMPLER:0
"""
PTXAS = """
ptxas info    : Compiling entry function '_ZN6onebit4encodeEv' for 'sm_90'
ptxas info    : Function properties for _ZN6onebit4encodeEv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 58 registers, used 1 barriers, 16384 bytes smem
ptxas info    : Compiling entry function '_ZN6onebit6decodeEv' for 'sm_90'
ptxas info    : Function properties for _ZN6onebit6decodeEv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 29 registers, used 0 barriers
ptxas info    : Function properties for called_by_decode
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
"""
OTHERS = " Function of_the_runtime:\n  REG:255 STACK:8 SHARED:0 LOCAL:8 CONSTANT[0]:600\n"
RIGHT = "2 kernels (sm_90), at most 58 registers, no stack, no spills"
SELF_TEST = [  # text, what takes which place in it, what is said
    (CUOBJDUMP, "", "", RIGHT),
    (CUOBJDUMP + OTHERS, "", "", RIGHT),
    (PTXAS, "", "", RIGHT),
    (CUOBJDUMP + CUOBJDUMP.replace("sm_90", "sm_80"), "", "", RIGHT.replace("sm_90", "sm_80, sm_90")),
    ("", "", "", "no kernel instead of 2"),
    (CUOBJDUMP, "onebit6", "twobit6", "1 kernels for sm_90 instead of 2"),
    (PTXAS, "onebit6", "twobit6", "1 kernels for sm_90 instead of 2"),
    (CUOBJDUMP + CUOBJDUMP.replace("sm_90", "sm_80").replace("decode", "seal"), "sm_90", "sm_80",
     "3 kernels for sm_80 instead of 2"),
    (CUOBJDUMP, "REG:29 STACK:0", "REG:29 STACK:8", " 29       8       0       0  sm_90 _ZN6onebit6decodeEv"),
    (CUOBJDUMP, "17408 LOCAL:0", "17408 LOCAL:16", " 58       0      16       0  sm_90 _ZN6onebit4encodeEv"),
    (CUOBJDUMP, "REG:58", "REG:129", "129       0       0       0  sm_90 _ZN6onebit4encodeEv"),
    (CUOBJDUMP, "REG:58", "REGISTERS:58", " 0       0       0       0  sm_90 _ZN6onebit4encodeEv"),
    (PTXAS, "0 bytes stack", "8 bytes stack", " 58       8       0       0  sm_90 _ZN6onebit4encodeEv"),
    (PTXAS, "0 bytes spill stores", "4 bytes spill stores", " 58       0       0       4  sm_90 _ZN6onebit4encodeEv"),
    (PTXAS, "0 bytes spill loads", "4 bytes spill loads", " 58       0       0       4  sm_90 _ZN6onebit4encodeEv"),
    (PTXAS, "Used 58", "Used 129", "129       0       0       0  sm_90 _ZN6onebit4encodeEv"),
    (PTXAS, "by_decode\n    0", "by_decode\n    8", " 29       8       0       0  sm_90 _ZN6onebit6decodeEv"),
]


def self_test():
    failures = 0
    for text, old, new, wanted in SELF_TEST:
        said, well = judge(2, parse(text.replace(old, new, 1) if old else text))
        if wanted not in said.splitlines()[-1] or well != wanted.startswith("2 kernels"):
            failures += 1
            print(f"self-test: {old!r} -> {new!r}: wanted {wanted!r}, found {well}: {said}")
    print(f"self-test: {len(SELF_TEST)} texts, {failures} failures")
    return 1 if failures else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    split = arguments.index("--") if "--" in arguments else 0
    files, command = arguments[1:split], arguments[split + 1:]
    if not files or not command:
        sys.exit(__doc__)
    text = ""
    for file in files:
        result = subprocess.run([*command, file], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if result.returncode != 0:
            sys.exit(f"'{' '.join(command)} {file}' ended with {result.returncode}: {result.stdout}")
        text += result.stdout
    said, well = judge(int(arguments[0]), parse(text))
    print(said)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
