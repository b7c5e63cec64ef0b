# SPDX-License-Identifier: Apache-2.0
"""From a kernel's instructions to Python functions over numpy arrays, once for each basic block.

A register is an array with one element for each lane of a gang (gang.py); arrays are never changed
in place, so that a register that is copied may share its array. A block has two functions: one that
writes registers of all lanes, where every lane that has not ended executes the block, and one that
writes only those of the lanes in the mask `m`.
"""

import functools

import numpy as np

import arithmetic
from ptx import PtxError, TYPE_BYTES

# The first address of the parameters, of local memory and of the module's variables. Shared memory
# begins at 0, and buffers in global memory are at the recorded addresses.
PARAM_BASE = 0x7C00_0000_0000_0000
LOCAL_BASE = 0x7D00_0000_0000_0000
MODULE_BASE = 0x7E00_0000_0000_0000

_DTYPES = {"f16": "u2", "f32": "f4", "f64": "f8", "pred": "?"} # fp16 as bits
for _bytes in (1, 2, 4, 8):
    for _kind, _code in (("b", "u"), ("u", "u"), ("s", "i")):
        _DTYPES[f"{_kind}{_bytes * 8}"] = f"{_code}{_bytes}"


def dtype_of(kind):
    return np.dtype(_DTYPES[kind])


def storage_of(kind):
    """The numpy type of a register's array."""
    return dtype_of("b" + kind[1:]) if kind[0] in "us" else dtype_of(kind)


_SPECIALS = {f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"}

# Instructions at which a lane may have to wait. Each is a basic block of its own, executed again
# until it lets the lane pass.
_BLOCKING = {"bar.sync", "bar.warp.sync", "mbarrier.try_wait.parity.shared::cta.b64",
             "setmaxnreg.inc.sync.aligned.u32"}


class Block:
    """Instructions first to last (exclusive), and where lanes go afterwards.

    after is ("next",), ("goto", block), ("branch", register, negated, block) or ("exit",).
    """

    def __init__(self, first):
        self.first, self.last = first, first
        self.after = ("next",)
        self.blocking = False
        self.whole = self.masked = None


class Translator:
    """Python functions for the blocks of a kernel. `shared_bytes`: of dynamic shared memory. The
    subclass Instructions has a method for each opcode."""

    def __init__(self, kernel, shared_bytes=0):
        self.kernel = kernel
        self.space = {"np": np}
        self.space.update((f.__name__, f) for f in arithmetic.FUNCTIONS)
        for kind, widen in (("bf16", arithmetic.halves), ("f16", arithmetic.halves_f16)):
            for side, fragment in (("left", arithmetic.fragment_a), ("right", arithmetic.fragment_b)):
                self.space[f"{side}_{kind}"] = arithmetic.FragmentCache(
                    functools.partial(fragment, widen=widen), 4)
        self.sites = 0
        self.filename = f"<ptx {id(self)}>"
        self._constants = {}
        self._places = self._place(shared_bytes)
        self._scan()
        self.blocks = self._cut()

    def _place(self, dynamic_bytes):
        """Addresses of all variables; self.shared_bytes is what a block has of shared memory."""
        places = {name: PARAM_BASE + p.address for name, p in self.kernel.parameters.items()}
        at = 0
        for variable in self.kernel.shared.values():
            at = -(-at // variable.align) * variable.align
            places[variable.name] = at
            at += variable.size
        if dynamic_bytes:
            align = max([v.align for v in self.kernel.module.dynamic_shared.values()] + [16])
            at = -(-at // align) * align
        for variable in self.kernel.module.dynamic_shared.values():
            places[variable.name] = at
        self.shared_bytes = at + dynamic_bytes
        at = 0
        for variable in self.kernel.local.values():
            at = -(-at // variable.align) * variable.align
            places[variable.name] = LOCAL_BASE + at
            at += variable.size
        self.local_bytes = at
        at = 0
        for variable in self.kernel.module.globals.values():
            at = -(-at // 256) * 256
            places[variable.name] = variable.address = MODULE_BASE + at
            at += variable.size + 4096
        return places

    def _scan(self):
        """Which registers are read, and which are always the same number."""
        self._read, moves, writes = set(), {}, {}

        def visit(operand):
            if operand is None or operand.kind not in ("reg", "vector", "address"):
                return
            if operand.kind == "reg":
                self._read.add(operand.value)
            elif operand.kind == "vector":
                for part in operand.value:
                    visit(part)
            else:
                visit(operand.value)
                visit(operand.extra)

        for ins in self.kernel.instructions:
            no_result = ins.opcode in ("st", "bra", "bar", "cp", "ret") or not ins.operands
            for operand in ins.operands[0 if no_result else 1:]:
                visit(operand)
            if ins.guard:
                self._read.add(ins.guard[0])
            if no_result:
                continue
            first = ins.operands[0]
            for part in first.value if first.kind == "vector" else [first]:
                if part.kind == "reg":
                    writes[part.value] = writes.get(part.value, 0) + 1
                    if ins.opcode == "mov" and not ins.guard and ins.operands[1].kind == "imm":
                        moves[part.value] = ins.operands[1].value
                elif part.kind == "address":
                    visit(part)
        self._known = {r: v for r, v in moves.items() if writes[r] == 1}
        names = {ins.opcode for ins in self.kernel.instructions}
        self.uses_shared = bool(self.shared_bytes)
        self.uses_async_proxy = "wgmma" in names or any(
            "bulk" in ins.modifiers for ins in self.kernel.instructions)
        self.is_asynchronous = self.uses_async_proxy or "cp" in names
        small = [TYPE_BYTES[ins.modifiers[-1]] for ins in self.kernel.instructions
                 if ins.opcode in ("ld", "st", "atom") and "shared" in ins.modifiers]
        # Granularity in bytes at which races are detected.
        self.granule = 1 if min(small + [4]) < 4 else 4

    def _cut(self):
        code, labels = self.kernel.instructions, self.kernel.labels
        starts = {0, len(code)} | set(labels.values())
        for i, ins in enumerate(code):
            if ins.opcode in ("bra", "ret", "exit"):
                starts.add(i + 1)
            elif ins.name in _BLOCKING:
                starts |= {i, i + 1}
        starts = sorted(starts)
        number = {first: n for n, first in enumerate(starts)}
        blocks = [Block(first) for first in starts]
        self._exit = len(blocks) - 1
        for block, end in zip(blocks, starts[1:]):
            block.last = end
            last = code[end - 1] if end > block.first else None
            if last is None:
                continue
            if last.opcode == "bra":
                self._only(last, [[], ["uni"]])
                target = labels.get(last.operands[0].value)
                if target is None:
                    raise PtxError(f"{self.kernel.name}: no label {last.operands[0].value}")
                block.last -= 1
                block.after = ("branch", *last.guard, number[target]) if last.guard else (
                    "goto", number[target])
            elif last.opcode in ("ret", "exit"):
                block.last -= 1
                block.after = ("branch", *last.guard, self._exit) if last.guard else (
                    "goto", self._exit)
            elif last.name in _BLOCKING:
                block.blocking = True
                if last.guard:
                    raise PtxError(f"{last.name} with a guard is not known here")
        blocks[-1].after = ("exit",)
        return blocks

    # --- source

    def check(self):
        """Raise PtxError for the first instruction that is not known."""
        for block in self.blocks:
            self._source(block, masked=False)

    def function(self, block, masked):
        """The block's function(g, R, m), compiled when it is first needed."""
        done = block.masked if masked else block.whole
        if done is None:
            source, lines = self._source(block, masked)
            name = f"{self.filename}:{block.first}:{int(masked)}"
            exec(compile(source, name, "exec"), self.space) # pylint: disable=exec-used
            done = self.space.pop("block")
            LINES[name] = (self.kernel, lines)
            if masked:
                block.masked = done
            else:
                block.whole = done
        return done

    def _source(self, block, masked):
        self._lines, self._of = ["def block(g, R, m):"], [None]
        self._masked = masked
        for ins in self.kernel.instructions[block.first:block.last]:
            self._current = ins
            self._begin(ins)
            handler = getattr(self, "_op_" + ins.opcode, None)
            if handler is None:
                self._unknown(ins)
            try:
                handler(ins, ins.modifiers, ins.operands)
            except (IndexError, KeyError, ValueError, AttributeError) as error:
                raise PtxError(f"instruction {ins.name} is not known in this form: {ins.text}"
                               ) from error
        if len(self._lines) == 1:
            self._out("pass")
        return "\n".join(self._lines), self._of

    def _begin(self, ins):
        self._mask, self._write = "m", "m" if self._masked else None
        if ins.guard:
            register, negated = ins.guard
            self._out(f"k = both({'~' if negated else ''}R[{register}], m)")
            self._mask = self._write = "k"

    def _unknown(self, ins):
        raise PtxError(f"instruction {ins.name} is not known here: {ins.text}")

    def _only(self, ins, allowed):
        if ins.modifiers not in allowed:
            self._unknown(ins)

    def _out(self, line):
        self._lines.append("    " + line)
        self._of.append(getattr(self, "_current", None))

    def _constant(self, value, dtype):
        """The name of a numpy scalar."""
        dtype = np.dtype(dtype)
        key = (value, dtype.str)
        if key not in self._constants:
            if dtype.kind in "ui":
                number = np.array([value & (1 << dtype.itemsize * 8) - 1], f"u{dtype.itemsize}")
                number = number.view(dtype)[0]
            else:
                number = dtype.type(value)
            self._constants[key] = f"K{len(self._constants)}"
            self.space[self._constants[key]] = number
        return self._constants[key]

    def _object(self, value):
        name = f"J{len(self.space)}"
        self.space[name] = value
        return name

    def _src(self, operand, kind, every_lane=False):
        """An expression for the operand's value as that type: an array, or a scalar where the
        operand is constant, unless `every_lane`."""
        dtype = dtype_of(kind)
        if operand.kind == "reg":
            register = self.kernel.registers[operand.value]
            stored = storage_of(register)
            text = f"R[{operand.value}]"
            if operand.extra == "not":
                return "~" + text
            if stored == dtype:
                return text
            if stored.itemsize == dtype.itemsize and dtype.kind != "b" and stored.kind != "b":
                return f"{text}.view('{dtype.str[1:]}')"
            if stored.itemsize > dtype.itemsize and stored.kind in "ui" and dtype.kind in "ui":
                return f"{text}.astype('{dtype.str[1:]}')"
            raise ValueError(kind)
        if operand.kind == "special" and operand.value in _SPECIALS and kind == "u32":
            return "g." + operand.value[1:].replace(".", "_")
        if operand.kind == "imm":
            if dtype.kind == "f":
                raise ValueError(kind)
            value = operand.value != 0 if kind == "pred" else operand.value
            text = self._constant(value, dtype)
        elif operand.kind == "float" and dtype.itemsize == operand.offset:
            bits = self._constant(operand.value, f"u{operand.offset}")
            number = self.space[bits].view(dtype)
            name = f"F{bits}{dtype.str[1:]}"
            self.space[name] = number
            text = name
        elif operand.kind == "symbol" and dtype.itemsize >= 4:
            text = self._constant(self._places[operand.value] + operand.offset, dtype)
        else:
            raise ValueError(operand.kind)
        return f"g.every({text})" if every_lane else text

    def _set(self, operand, expression, kind):
        """Write a result of that type to a register."""
        if operand.kind == "none":
            return
        if operand.kind != "reg":
            raise ValueError(operand.kind)
        stored = storage_of(self.kernel.registers[operand.value])
        dtype = dtype_of(kind)
        if stored != dtype:
            if "?" in (stored.char, dtype.char) or stored.itemsize < dtype.itemsize:
                raise ValueError(kind)
            how = "view" if stored.itemsize == dtype.itemsize else "astype"
            expression = f"({expression}).{how}('{stored.str[1:]}')"
        if self._write:
            expression = f"np.where({self._write}, {expression}, R[{operand.value}])"
        self._out(f"R[{operand.value}] = {expression}")

    def _number(self, operand):
        """The operand's value where it is known, else None."""
        if operand.kind == "imm":
            return operand.value
        return self._known.get(operand.value) if operand.kind == "reg" else None

    def _address(self, operand, kind):
        if operand.kind != "address":
            raise ValueError(operand.kind)
        base = self._src(operand.value, kind)
        if operand.offset:
            base += " + " + self._constant(operand.offset, dtype_of(kind))
        if operand.value.kind != "reg":
            base = f"g.every({base})"
        return base

    def _site(self):
        self.sites += 1
        return self.sites - 1

    def _warps(self, members=None):
        """All lanes of a warp must execute this."""
        if members is None or self._number(members) == -1:
            self._out(f"g.need_warps({self._mask})")
        else:
            self._out(f"g.need_members({self._mask}, {self._src(members, 'u32', True)})")


# Source of the functions that were made, for messages: by file name, the kernel and the
# instruction of each line.
LINES = {}


def where(traceback):
    """The kernel and instruction in which an exception was raised: (kernel, instruction) or
    None."""
    found = None
    while traceback:
        known = LINES.get(traceback.tb_frame.f_code.co_filename)
        if known:
            kernel, lines = known
            found = kernel, lines[traceback.tb_lineno - 1]
        traceback = traceback.tb_next
    return found
