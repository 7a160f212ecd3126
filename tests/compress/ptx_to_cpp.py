#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Turns the PTX that nvcc makes of the kernels into C++, a statement for each instruction, for emulated threads.

  ptx_to_cpp.py OUTPUT PTX...
  ptx_to_cpp.py --self-test       prove that what it doesn't know is an error

So the compiler's output runs without a GPU, instead of the kernels' sources.
Supports the instructions of our kernels, with one block size and without local memory; anything else is an error. The
semantics are those of the PTX ISA, 9.0. Instructions that compute with floats must flush subnormal numbers (.ftz). The
emulated threads' environment (core/float_environment.hpp) does this, too. Only operations that move bits on a CPU, for
example a change of sign, are flushed by the generated code.
"""

import re
import sys

TYPES = {"pred": "bool", "b16": "std::uint16_t", "u16": "std::uint16_t", "s16": "std::int16_t", "u8": "std::uint8_t",
         "b32": "std::uint32_t", "u32": "std::uint32_t", "s32": "std::int32_t", "f32": "float",
         "b64": "std::uint64_t", "u64": "std::uint64_t", "s64": "std::int64_t", "f64": "double"}
SPECIAL = {"%tid.x": "thread.warp() * 32 + thread.lane()", "%ctaid.x": "thread.block()", "%ctaid.y": "thread.row()"}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

# These move bits, and PTX has no form of them that flushes.
NEVER_FLUSHED = ("mov", "selp", "ld", "st", "shfl")

ENTRY = re.compile(r"\.entry\s+(\w+)\((.*?)\)(.*?)\n\{\n(.*?)\n\}", re.DOTALL)
REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+%(\w+)<(\d+)>;")
STATEMENT = re.compile(r"(?:@(!?)%(\w+)\s+)?([a-z][\w.]*)\s*(.*)", re.DOTALL)


def wrapping(kind):
    """The type for operations that may overflow: of the same bits, but C++ allows its overflow."""
    return kind.replace("s", "u") if kind in ("s32", "s64") else kind


class Kernel:
    """One kernel's body: registers are arrays, labels are labels."""

    def __init__(self, name, body):
        self.constants = dict(re.findall(r"\bmov\.u32\s+(%r\d+), (-?\d+);", body))
        self.types = {registers: kind for kind, registers, _ in REGISTERS.findall(body)}
        self.lines = [f"    [[maybe_unused]] {TYPES[kind]} {registers}[{count}] = {{}};"
                      for kind, registers, count in REGISTERS.findall(body)]
        code = re.sub(r"//[^\n]*", "", REGISTERS.sub("", body))
        code = re.sub(r"^\s*\.(shared|pragma)[^;]*;", "", code, flags=re.MULTILINE)  # one shared array, from 0 on
        for statement in filter(None, (part.strip() for part in re.split(r";|(?<=:)\s", code))):
            try:
                line = self.label(statement) if statement.endswith(":") else self.statement(statement)
            except (AssertionError, AttributeError, KeyError, ValueError) as error:
                raise SystemExit(f"ptx_to_cpp.py: {name}: '{statement}' is not known") from error
            self.lines.append("    " + line)

    @staticmethod
    def label(name):
        return name.replace("$", "label_")

    def register(self, name):
        match = re.fullmatch(r"%([a-z]+)(\d+)", name)
        return (f"{match[1]}[{match[2]}]", self.types[match[1]]) if match else None

    def value(self, operand, kind):
        """An operand as a value of a type."""
        if operand in SPECIAL:
            return f"as<{TYPES[kind]}>({SPECIAL[operand]})"
        if register := self.register(operand):
            return f"as<{TYPES[kind]}>({register[0]})"
        if match := re.fullmatch(r"0([fd])([0-9A-F]+)", operand):
            return f"as<{TYPES[kind]}>(std::uint{32 if match[1] == 'f' else 64}_t{{0x{match[2]}}})"
        if re.fullmatch(r"-?(0x)?[0-9A-Fa-f]+", operand):
            return f"static_cast<{TYPES[kind]}>({operand}LL)"
        if re.fullmatch(r"\w+_param_\d+", operand):
            return "reinterpret_cast<std::uint64_t>(parameters)"
        if operand.endswith("scratch"):
            return f"{TYPES[kind]}{{0}}"
        raise ValueError(f"operand {operand}")

    def address(self, operand, space):
        base, offset = re.fullmatch(r"\[([%\w]+)(?:\+(-?\d+))?\]", operand).groups()
        kind = self.register(base)[1] if base.startswith("%") else "b64"
        place = f"{self.value(base, kind)} + {offset or 0}"
        return f"static_cast<std::byte*>(shared) + ({place})" if space == "shared" else f"({place})"

    def assign(self, destination, value):
        place, kind = self.register(destination)
        return f"{place} = as<{TYPES[kind]}>({value});"

    def statement(self, text):
        unless, predicate, name, rest = STATEMENT.fullmatch(text).groups()
        operands = [part.strip() for part in re.split(r",(?![^{]*\})", rest)] if rest else []
        code = self.instruction(self.without_ftz(name.split(".")), operands)
        if predicate is None:
            return code
        return f"if ({unless}{self.register('%' + predicate)[0]}) {{ {code} }}"

    @staticmethod
    def without_ftz(name):
        """The instruction's name without .ftz. An instruction must have .ftz exactly if it computes with floats."""
        of_integer = name[0] == "cvt" and name[-1] in ("u32", "s32")  # never a subnormal float
        computes = "f32" in name and name[0] not in NEVER_FLUSHED and not of_integer
        assert ("ftz" in name) == computes, name
        return [part for part in name if part != "ftz"]

    def instruction(self, name, operands):
        operation, kind = name[0], name[-1]
        special = getattr(self, "do_" + operation, None)
        if special:
            return special(name, operands)
        if operation in ("add", "sub"):
            kind = wrapping(kind)
        kinds = {"selp": (kind, kind, "pred"), "bfi": (kind, kind, "u32", "u32"), "shl": (kind, "u32"),
                 "shr": (kind, "u32")}.get(operation, (kind,) * (len(operands) - 1))
        a = [self.value(operand, k) for operand, k in zip(operands[1:], kinds, strict=True)]
        if kind[0] == "f" and operation in ("add", "sub", "div", "sqrt"):
            assert name[1] == "rn", name
        if kind == "f32" and operation in ("neg", "abs", "min", "max"):
            a = [f"flushed({value})" for value in a]
        forms = {"not": "~{}", "neg": "-{}", "abs": "std::fabs({})", "sqrt": "std::sqrt({})", "add": "{} + {}",
                 "sub": "{} - {}", "div": "{} / {}", "and": "{} & {}", "or": "{} | {}", "xor": "{} ^ {}",
                 "min": "least({}, {})", "max": "most({}, {})", "shl": "shifted_left({}, {})",
                 "shr": "shifted_right({}, {})", "selp": "{2} ? {0} : {1}", "bfi": "with_bits({}, {}, {}, {})"}
        if kind == "pred":
            forms = {"not": "!{}", "and": "{} && {}", "or": "{} || {}"}
        form = forms[operation]
        return self.assign(operands[0], f"static_cast<{TYPES[kind]}>({form.format(*a)})")

    def do_mul(self, name, operands):
        kind = wrapping(name[-1])
        a, b = (self.value(operand, kind) for operand in operands[1:])
        if name[1] == "wide":
            assert name[2] == "u32", name
            return self.assign(operands[0], f"std::uint64_t{{{a}}} * {b}")
        assert name[1] in ("lo", "rn"), name
        return self.assign(operands[0], f"static_cast<{TYPES[kind]}>({a} * {b})")

    def do_mad(self, name, operands):
        assert name[1:] == ["lo", "s32"], name
        a, b, c = (self.value(operand, "u32") for operand in operands[1:])
        return self.assign(operands[0], f"{a} * {b} + {c}")

    def do_mov(self, name, operands):
        destination, source = operands
        if destination.startswith("{"):
            low, high = destination.strip("{}").split(",")
            value = self.value(source, "b64")
            return (self.assign(low.strip(), f"static_cast<std::uint32_t>({value})") + " " +
                    self.assign(high.strip(), f"static_cast<std::uint32_t>({value} >> 32)"))
        if source.startswith("{"):
            low, high = (self.value(part.strip(), "b32") for part in source.strip("{}").split(","))
            return self.assign(destination, f"std::uint64_t{{{high}}} << 32 | {low}")
        return self.assign(destination, self.value(source, name[-1]))

    def do_cvta(self, name, operands):
        assert name[1:] == ["to", "global", "u64"], name
        return self.assign(operands[0], self.value(operands[1], "u64"))

    def do_cvt(self, name, operands):
        to, of = name[-2:]
        assert name[1] == "rn" or to[0] != "f" or (to, of) == ("f64", "f32"), name
        narrow = {"s8": "std::int8_t", "u8": "std::uint8_t", "s16": "std::int16_t", "u16": "std::uint16_t"}
        value = self.value(operands[1], "b32" if of in narrow else of)
        if of in narrow:  # the register's lowest bits
            value = f"static_cast<{narrow[of]}>({value})"
        return self.assign(operands[0], f"static_cast<{TYPES[to]}>({value})")

    def do_prmt(self, name, operands):
        assert name[1:] == ["b32"], name
        a, b, which = (self.value(operand, "u32") for operand in operands[1:])
        return self.assign(operands[0], f"permuted({a}, {b}, {which})")

    def do_setp(self, name, operands):
        comparison, kind = name[1:]
        a, b = (self.value(operand, kind) for operand in operands[1:])
        if comparison.endswith("u") and kind[0] == "f":  # or unordered
            opposite = {"neu": "eq", "ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt"}[comparison]
            return self.assign(operands[0], f"!({a} {COMPARISONS[opposite]} {b})")
        return self.assign(operands[0], f"{a} {COMPARISONS[comparison]} {b}")

    def do_ld(self, name, operands):
        space = name[1] if name[1] in ("param", "global", "shared") else "generic"
        place = self.address(operands[1], space)
        targets = [target.strip() for target in operands[0].strip("{}").split(",")]
        assert len(targets) == (2 if "v2" in name else 1), name
        size = f"sizeof({TYPES[name[-1]]})"
        return " ".join(self.assign(target, f"loaded<{TYPES[name[-1]]}>({place} + {i} * {size})")
                        for i, target in enumerate(targets))

    def do_st(self, name, operands):
        assert name[1] in ("global", "shared") and len(name) == 3, name
        return f"store({self.address(operands[0], name[1])}, {self.value(operands[1], name[2])});"

    def do_atom(self, name, operands):
        assert name[1:] == ["global", "min", "u64"], name
        place = f"reinterpret_cast<unsigned long long*>({self.address(operands[1], 'global')})"
        return f"thread.lower({place}, {self.value(operands[2], 'u64')});"  # the old value is not used

    def constant(self, operand):
        return self.constants.get(operand, operand)

    def do_shfl(self, name, operands):
        assert name[1:] in (["sync", "idx", "b32"], ["sync", "down", "b32"]), name
        assert [self.constant(operand) for operand in operands[-2:]] == ["31", "-1"], operands
        destination = operands[0].split("|")[0]  # the in-range result is not used
        function = "shuffle" if name[2] == "idx" else "shuffle_down"
        return self.assign(destination,
                           f"thread.{function}({self.value(operands[1], 'b32')}, {self.value(operands[2], 'u32')})")

    def do_vote(self, name, operands):
        assert name[1:] == ["sync", "ballot", "b32"] and self.constant(operands[2]) == "-1", operands
        return self.assign(operands[0], f"thread.ballot({self.value(operands[1], 'pred')})")

    def do_bar(self, name, operands):
        assert name[1:] == ["sync"] and operands == ["0"], name
        return "thread.sync();"

    def do_bra(self, _, operands):
        return f"goto {self.label(operands[0])};"

    def do_ret(self, _, __):
        return "return;"


def check(name, body):
    """What the translation leaves out is not asked for."""
    for what, pattern in (("shuffle", r"\|(%p\d+)"), ("atom", r"\batom\.\S+\s+(%rd\d+)")):
        for register in re.findall(pattern, body):
            if len(re.findall(rf"{register}\b", body)) > 1:
                raise SystemExit(f"ptx_to_cpp.py: {name}: {register} of a {what} is used")
    if len(re.findall(r"^\s*\.shared", body, re.MULTILINE)) > 1 or ".local" in body:
        raise SystemExit(f"ptx_to_cpp.py: {name}: several shared arrays, or local memory")


def kernels_of(text):
    kernels = {}
    for name, _, directives, body in ENTRY.findall(text):
        if ".maxntid 256" not in directives:
            raise SystemExit(f"ptx_to_cpp.py: {name}: not of 256 threads")
        check(name, body)
        kernels[name] = Kernel(name, body)
    return kernels


def translate(output, files):
    kernels = {}
    for file in files:
        with open(file, encoding="utf-8") as stream:
            kernels |= kernels_of(stream.read())
    with open(output, "w", encoding="utf-8") as stream:
        stream.write("// Made by ptx_to_cpp.py.\n#include \"compress/ptx_kernels.hpp\"\n\n"
                     "namespace onebit_test {\nnamespace {\n\n")
        for i, kernel in enumerate(kernels.values()):
            stream.write(f"void kernel_{i}([[maybe_unused]] const EmulatedThread& thread, "
                         f"[[maybe_unused]] const void* parameters, [[maybe_unused]] void* shared) {{\n")
            stream.write("\n".join(kernel.lines) + "\n}\n\n")
        stream.write("} // namespace\n\nconst std::map<std::string, PtxKernel>& ptx_kernels() {\n"
                     "    static const std::map<std::string, PtxKernel> all = {\n")
        stream.writelines(f'        {{"{name}", kernel_{i}}},\n' for i, name in enumerate(kernels))
        stream.write("    };\n    return all;\n}\n\n} // namespace onebit_test\n")


def self_test():
    def lines(body, directives=".maxntid 256, 1, 1"):
        registers = ".reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>;"
        return kernels_of(f".entry k(\n) {directives}\n{{\n{registers}\n{body}\nret;\n}}\n")["k"].lines

    assert "    if (!p[1]) { f[1] = as<float>(static_cast<float>(as<float>(f[2]) + as<float>(f[3]))); }" in \
        lines("@!%p1 add.rn.ftz.f32 %f1, %f2, %f3;")
    assert "    f[1] = as<float>(static_cast<float>(-flushed(as<float>(f[2]))));" in lines("neg.ftz.f32 %f1, %f2;")
    for wrong in ("fma.rn.ftz.f32 %f1, %f2, %f3, %f4;", "add.ftz.f32 %f1, %f2, %f3;", "add.rn.f32 %f1, %f2, %f3;",
                  "setp.lt.f32 %p1, %f1, %f2;", "neg.f32 %f1, %f2;", "div.approx.ftz.f32 %f1, %f2, %f3;",
                  "add.rn.ftz.f64 %rd1, %rd2, %rd3;",
                  "ld.local.u32 %r1, [%rd1];", "shfl.sync.bfly.b32 %r1|%p1, %r2, %r3, 31, -1;",
                  "shfl.sync.idx.b32 %r1|%p1, %r2, %r3, 31, -1; mov.pred %p2, %p1;", "mul.wide.s32 %rd1, %r1, %r2;",
                  "atom.global.min.u64 %rd1, [%rd2], %rd3; mov.u64 %rd4, %rd1;", "trap;", "bar.sync 1;"):
        try:
            lines(wrong)
        except SystemExit:
            continue
        raise AssertionError(f"not found: {wrong}")
    try:
        lines("", directives="")
    except SystemExit:
        return
    raise AssertionError("not found: another block size")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
    else:
        translate(sys.argv[1], sys.argv[2:])
