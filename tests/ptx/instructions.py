# SPDX-License-Identifier: Apache-2.0
"""What each PTX instruction computes, as Python source over numpy arrays.

Translator turns the instructions of a kernel into one Python function for each basic block, once.
A register is an array with one element for each lane of a gang (machine.py); arrays are never
changed in place, so that a register that is copied may share its array. A block has two functions:
one that writes registers of all lanes, where every lane that has not ended executes the block, and
one that writes only those of the lanes in the mask `m`.

An instruction, a modifier or a combination of types that is not listed here raises PtxError.
"""

import numpy as np

import ptx
from ptx import PtxError, TYPE_BYTES

# The first address of the parameters, of local memory and of the module's variables. Shared memory
# begins at 0, and buffers in global memory lie where the recording says.
PARAM_BASE = 0x7C00_0000_0000_0000
LOCAL_BASE = 0x7D00_0000_0000_0000
MODULE_BASE = 0x7E00_0000_0000_0000

_DTYPES = {"f32": "f4", "f64": "f8", "pred": "?"}
for _bytes in (1, 2, 4, 8):
    for _kind, _code in (("b", "u"), ("u", "u"), ("s", "i")):
        _DTYPES[f"{_kind}{_bytes * 8}"] = f"{_code}{_bytes}"


def dtype_of(kind):
    return np.dtype(_DTYPES[kind])


def storage_of(kind):
    """The numpy type of a register's array."""
    return dtype_of("b" + kind[1:]) if kind[0] in "us" else dtype_of(kind)


# --- arithmetic that numpy has not


def fma_f32(a, b, c):
    """The product is exact in fp64 and the sum is rounded twice, to 53 and to 24 bits: in rare cases
    (one in 2^28 for random numbers) that is not the correctly rounded result."""
    return (np.multiply(a, b, dtype="f8") + c).astype("f4")


def fma_down_f32(a, b, c):
    exact = np.multiply(a, b, dtype="f8") + c
    near = exact.astype("f4")
    return np.where(near > exact, np.nextafter(near, np.float32(-np.inf)), near)


def fma_f64(a, b, c):
    """By error-free products and sums (Dekker 1971, Knuth): right but for rare double rounding."""
    split = np.float64(134217729.0)
    p, q = a * split, b * split
    ah, bh = p - (p - a), q - (q - b)
    al, bl = a - ah, b - bh
    product = a * b
    low = ((ah * bh - product) + ah * bl + al * bh) + al * bl
    total = product + c
    part = total - product
    rest = (product - (total - part)) + (c - part)
    precise = total + (rest + low)
    return np.where(np.isfinite(precise), precise, total)


def ex2_f32(x):
    return np.exp2(x)


def rcp_approx_f64(x):
    """Only the upper half of the result is defined as such; the lower one is zero."""
    return ((1 / x).view("u8") & np.uint64(0xFFFFFFFF00000000)).view("f8")


def _round_bf16(x):
    """fp32 numbers rounded to nearest even, with the 16 bits that are left in the upper half."""
    bits = x.view("u4")
    rounded = (bits >> np.uint32(16) & np.uint32(1)) + np.uint32(0x7FFF) + bits
    total = np.add.reduce(x)
    if total != total: # NaN, or infinities: look closer
        rounded = np.where(np.isnan(x), np.uint32(0x7FFF0000), rounded)
    return rounded


def to_bf16(x):
    return _round_bf16(x) >> np.uint32(16)


def pack_bf16(high, low):
    return _round_bf16(high) & np.uint32(0xFFFF0000) | _round_bf16(low) >> np.uint32(16)


def saturate(x):
    return np.fmin(np.fmax(x, np.float32(0)), np.float32(1))


def nearest_s32(x):
    near = np.rint(x.astype("f8"))
    return np.where(np.isnan(near), 0, np.clip(near, -2147483648, 2147483647)).astype("i4")


def pack(parts, bits):
    """One integer from two of half its size, the lower first."""
    wide = f"u{bits // 8}"
    low, high = (np.asarray(part).astype(wide) for part in parts)
    return low | high << np.array(bits // 2, wide)


def unpack(value, bits):
    halves = np.ascontiguousarray(value).view(f"u{bits // 16}").reshape(-1, 2)
    return halves[:, 0].copy(), halves[:, 1].copy()


def insert_bits(field, into, position, length, dtype):
    mask = np.array(((1 << length) - 1) << position, dtype)
    return (into & ~mask) | (field << np.array(position, dtype) & mask)


def both(p, m):
    return p if m is None else p & m


# --- matrix fragments of a warp (PTX, "Matrix Fragments for mma.m16n8k16")


def halves(word):
    """The two bf16 of each word as fp32, in a new last dimension."""
    out = np.empty(word.shape + (2,), "f4")
    bits = out.view("u4")
    np.left_shift(word, np.uint32(16), out=bits[..., 0])
    np.bitwise_and(word, np.uint32(0xFFFF0000), out=bits[..., 1])
    return out


def fragment_a(words):
    """[warps, 16, 16] from four registers."""
    # Register i has rows g + 8 (i & 1), columns 2 t + 8 (i >> 1) and the next; lane = 4 g + t.
    both_of = halves(np.array(words)).reshape(2, 2, -1, 8, 4, 2)
    return both_of.transpose(2, 1, 3, 0, 4, 5).reshape(-1, 16, 16)


def fragment_b(words):
    """[warps, 16, 8] from two registers: rows 2 t + 8 i and the next, column g."""
    both_of = halves(np.array(words)).reshape(2, -1, 8, 4, 2)
    return both_of.transpose(1, 0, 3, 4, 2).reshape(-1, 16, 8)


def fragment_c(values):
    """[warps, 16, n] from n / 2 registers: n / 8 times rows g and g + 8, columns 2 t, 2 t + 1."""
    blocks = len(values) // 4
    parts = np.array(values).reshape(blocks, 2, 2, -1, 8, 4)
    return parts.transpose(3, 1, 4, 0, 5, 2).reshape(-1, 16, blocks * 8)


def scatter_c(matrix):
    """The registers of fragment_c, as rows of an array."""
    blocks = matrix.shape[2] // 8
    parts = matrix.reshape(-1, 2, 8, blocks, 4, 2).transpose(3, 1, 5, 0, 2, 4)
    return np.ascontiguousarray(parts).reshape(blocks * 4, -1)


class FragmentCache:
    """The matrices of the last few operands: products that follow each other share factors."""

    def __init__(self, make, depth):
        self.make, self.depth, self.entries = make, depth, []

    def __call__(self, words):
        for known, matrix in self.entries:
            if all(a is b for a, b in zip(known, words)):
                return matrix
        matrix = self.make(words)
        self.entries = [(words, matrix)] + self.entries[:self.depth - 1]
        return matrix


def mma_m16n8k16(left, right, words, add):
    a, b = left(words[:4]), right(words[4:])
    return scatter_c(np.matmul(a, b) + fragment_c(add))


_HELPERS = [fma_f32, fma_down_f32, fma_f64, ex2_f32, rcp_approx_f64, to_bf16, pack_bf16, saturate,
            nearest_s32, pack, unpack, insert_bits, both, mma_m16n8k16]


# --- translation

_ADD_LIKE = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^"}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
# True also where an operand is NaN: the opposite of the ordered opposite.
_UNORDERED = {"equ": "!=", "neu": "==", "ltu": ">=", "leu": ">", "gtu": "<=", "geu": "<"}

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
    """Python functions for the blocks of a kernel. `shared_bytes`: of dynamic shared memory."""

    def __init__(self, kernel, shared_bytes=0):
        self.kernel = kernel
        self.space = {"np": np}
        self.space.update((f.__name__, f) for f in _HELPERS)
        self.space["left"], self.space["right"] = FragmentCache(fragment_a, 4), FragmentCache(
            fragment_b, 4)
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
        # Bytes to which races are told apart.
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

    # --- moves and conversions

    def _op_mov(self, ins, mods, ops):
        (kind,) = mods
        to, source = ops
        bits = TYPE_BYTES[kind] * 8
        if source.kind == "vector":
            parts = ", ".join(self._src(p, f"u{bits // 2}", True) for p in source.value)
            if len(source.value) != 2:
                self._unknown(ins)
            self._set(to, f"pack(({parts}), {bits})", f"u{bits}")
        elif to.kind == "vector":
            if len(to.value) != 2:
                self._unknown(ins)
            self._out(f"x = unpack({self._src(source, f'u{bits}')}, {bits})")
            for i, part in enumerate(to.value):
                if part.kind == "reg" and part.value in self._read:
                    self._set(part, f"x[{i}]", f"u{bits // 2}")
        elif source.kind == "symbol" and source.value in self.kernel.parameters:
            self._set(to, self._src(source, kind, True), kind)
        else:
            self._set(to, self._src(source, kind, True), kind)

    def _op_cvta(self, ins, mods, ops):
        self._only(ins, [["to", "global", "u64"], ["to", "local", "u64"], ["local", "u64"],
                         ["param", "u64"]])
        self._set(ops[0], self._src(ops[1], "u64"), "u64")

    def _op_cvt(self, ins, mods, ops):
        text = ".".join(mods)
        special = {"rn.bf16.f32": ("to_bf16({}).astype('u2')", "b16"),
                   "sat.f32.f32": ("saturate({})", "f32"),
                   "rni.s32.f32": ("nearest_s32({})", "s32")}
        if text in special:
            form, kind = special[text]
            self._set(ops[0], form.format(self._src(ops[1], "f32")), kind)
        elif text == "f32.bf16":
            self._set(ops[0], f"pack((K0, {self._src(ops[1], 'b16', True)}), 32).view('f4')"
                      .replace("K0", self._constant(0, "u2")), "f32")
        elif text == "rn.bf16x2.f32":
            high, low = (self._src(o, "f32", True) for o in ops[1:])
            self._set(ops[0], f"pack_bf16({high}, {low})", "b32")
        elif text in ("f64.f32", "rn.f32.f64", "rn.f32.s32", "rn.f32.u32", "rn.f64.s64") or (
                len(mods) == 2 and all(m[0] in "us" and m in TYPE_BYTES for m in mods)):
            to, source = mods[-2:]
            self._set(ops[0], f"{self._src(ops[1], source, True)}"
                      f".astype('{dtype_of(to).str[1:]}')", to)
        else:
            self._unknown(ins)

    # --- integers, predicates and fp32, fp64

    def _unsigned(self, kind):
        """Results modulo 2^n are the same for both."""
        return "u" + kind[1:] if kind[0] in "sb" else kind

    def _float_or_int(self, ins, mods):
        """The type, where the modifiers are a type alone or .rn with a floating-point one."""
        if mods[:-1] not in ([], ["rn"]) or (mods[:-1] and mods[-1] not in ("f32", "f64")):
            self._unknown(ins)
        if mods[-1] not in TYPE_BYTES:
            self._unknown(ins)
        return self._unsigned(mods[-1])

    def _binary(self, ins, mods, ops):
        kind = self._float_or_int(ins, mods)
        if ins.opcode in ("and", "or", "xor") and kind[0] == "f":
            self._unknown(ins)
        if ins.opcode in ("add", "sub") and kind == "pred":
            self._unknown(ins)
        a, b = self._src(ops[1], kind, ops[2].kind != "reg"), self._src(ops[2], kind)
        self._set(ops[0], f"{a} {_ADD_LIKE[ins.opcode]} {b}", kind)

    _op_add = _op_sub = _op_and = _op_or = _op_xor = _binary

    def _op_not(self, ins, mods, ops):
        (kind,) = mods
        self._set(ops[0], f"~({self._src(ops[1], self._unsigned(kind))})", self._unsigned(kind))

    def _op_neg(self, ins, mods, ops):
        (kind,) = mods
        if kind[0] == "f":
            self._set(ops[0], f"-{self._src(ops[1], kind)}", kind)
        else:
            kind = self._unsigned(kind)
            zero = self._constant(0, dtype_of(kind))
            self._set(ops[0], f"{zero} - {self._src(ops[1], kind)}", kind)

    def _op_abs(self, ins, mods, ops):
        self._only(ins, [["f32"], ["f64"]])
        self._set(ops[0], f"np.abs({self._src(ops[1], mods[0])})", mods[0])

    def _op_mul(self, ins, mods, ops):
        if mods[0] == "wide":
            wide = f"{mods[1][0]}{TYPE_BYTES[mods[1]] * 16}"
            if wide not in ("u32", "s32", "u64", "s64") or len(mods) != 2:
                self._unknown(ins)
            self._set(ops[0], self._wide_product(ops, mods[1], wide), wide)
            return
        if mods[0] == "lo":
            if mods[1][0] == "f":
                self._unknown(ins)
            kind = self._float_or_int(ins, mods[1:])
        else:
            kind = self._float_or_int(ins, mods)
            if kind[0] != "f":
                self._unknown(ins)
        a, b = self._src(ops[1], kind, ops[2].kind != "reg"), self._src(ops[2], kind)
        self._set(ops[0], f"{a} * {b}", kind)

    def _wide_product(self, ops, kind, wide):
        code = dtype_of(wide).str[1:]
        return (f"{self._src(ops[1], kind, True)}.astype('{code}') * "
                f"{self._src(ops[2], kind)}.astype('{code}')")

    def _op_mad(self, ins, mods, ops):
        if mods[0] == "lo" and mods[1] in ("s32", "u32", "s64", "u64"):
            kind = self._unsigned(mods[1])
            a, b, c = (self._src(o, kind, i == 0) for i, o in enumerate(ops[1:]))
            self._set(ops[0], f"{a} * {b} + {c}", kind)
        elif mods == ["wide", "u32"]:
            self._set(ops[0], f"{self._wide_product(ops, 'u32', 'u64')} + "
                      f"{self._src(ops[3], 'u64')}", "u64")
        else:
            self._unknown(ins)

    def _op_div(self, ins, mods, ops):
        if ".".join(mods) not in ("u32", "u64", "u16", "rn.f32", "rn.f64"):
            self._unknown(ins)
        kind = mods[-1]
        sign = "/" if kind[0] == "f" else "//"
        self._set(ops[0], f"{self._src(ops[1], kind, True)} {sign} {self._src(ops[2], kind)}",
                  kind)

    def _op_rem(self, ins, mods, ops):
        self._only(ins, [["u16"], ["u32"], ["u64"]])
        self._set(ops[0], f"{self._src(ops[1], mods[0], True)} % {self._src(ops[2], mods[0])}",
                  mods[0])

    def _extreme(self, ins, mods, ops):
        (kind,) = mods
        function = {"max": "maximum", "min": "minimum"}[ins.opcode]
        if kind[0] == "f":
            function = "f" + ins.opcode # of a number and NaN: the number
        self._set(ops[0], f"np.{function}({self._src(ops[1], kind, True)}, "
                  f"{self._src(ops[2], kind)})", kind)

    _op_max = _op_min = _extreme

    def _shift(self, ins, mods, ops):
        (kind,) = mods
        if ins.opcode == "shl":
            kind = self._unsigned(kind)
        amount = self._src(ops[2], "u32")
        code = dtype_of(kind).str[1:]
        if ops[2].kind == "imm":
            amount = self._constant(min(ops[2].value, 255), dtype_of(kind))
        elif code not in ("u4", "u8"):
            amount = f"({amount}).astype('{code}')"
        sign = "<<" if ins.opcode == "shl" else ">>"
        self._set(ops[0], f"{self._src(ops[1], kind, True)} {sign} {amount}",
                  kind)

    _op_shl = _op_shr = _shift

    def _op_bfi(self, ins, mods, ops):
        self._only(ins, [["b32"], ["b64"]])
        field, into = (self._src(o, mods[0], True) for o in ops[1:3])
        position, length = self._number(ops[3]), self._number(ops[4])
        if position is None or length is None:
            self._unknown(ins)
        self._set(ops[0], f"insert_bits({field}, {into}, {position}, {length}, "
                  f"'{dtype_of(mods[0]).str[1:]}')", mods[0])

    def _op_setp(self, ins, mods, ops):
        compare, kind = mods
        if compare in ("eq", "ne"):
            kind = self._unsigned(kind)
        a, b = self._src(ops[1], kind, True), self._src(ops[2], kind)
        if compare in _UNORDERED and kind[0] == "f":
            text = f"~({a} {_UNORDERED[compare]} {b})"
        else:
            text = f"{a} {_COMPARE[compare]} {b}"
        self._set(ops[0], text, "pred")

    def _op_selp(self, ins, mods, ops):
        kind = self._unsigned(mods[0])
        if len(mods) != 1:
            self._unknown(ins)
        a, b = self._src(ops[1], kind), self._src(ops[2], kind)
        self._set(ops[0], f"np.where({self._src(ops[3], 'pred')}, {a}, {b})", kind)

    def _op_fma(self, ins, mods, ops):
        function = {"rn.f32": "fma_f32", "rm.f32": "fma_down_f32", "rn.f64": "fma_f64"}.get(
            ".".join(mods))
        if not function:
            self._unknown(ins)
        values = ", ".join(self._src(o, mods[1], i == 0) for i, o in enumerate(ops[1:]))
        self._set(ops[0], f"{function}({values})", mods[1])

    def _function(self, ins, mods, ops):
        forms = {"ex2.approx.ftz.f32": "ex2_f32({})", "rcp.approx.ftz.f32": "K / {}",
                 "rcp.rn.f32": "K / {}", "rcp.rn.f64": "K / {}",
                 "rcp.approx.ftz.f64": "rcp_approx_f64({})", "sqrt.rn.f32": "np.sqrt({})",
                 "sqrt.rn.f64": "np.sqrt({})"}
        if ins.name not in forms:
            self._unknown(ins)
        kind = mods[-1]
        form = forms[ins.name].replace("K", self._constant(1.0, dtype_of(kind)))
        self._set(ops[0], form.format(self._src(ops[1], kind, True)), kind)

    _op_ex2 = _op_rcp = _op_sqrt = _function

    # --- memory

    def _vector(self, operand):
        return operand.value if operand.kind == "vector" else [operand]

    def _op_ld(self, ins, mods, ops):
        count = {"v2": 2, "v4": 4}.get(mods[-2] if len(mods) > 1 else "", 1)
        parts, kind = self._vector(ops[0]), mods[-1]
        space = mods[:-2] if count > 1 else mods[:-1]
        if len(parts) != count or space not in (["param"], ["global"], ["global", "nc"],
                                                ["shared"], ["local"]):
            self._unknown(ins)
        code = dtype_of(kind).str[1:]
        if space[0] == "param":
            self._load_param(ops[1], parts, kind)
            return
        wide = "u32" if space[0] == "shared" else "u64"
        self._out(f"x = g.{space[0]}_load({self._site()}, {self._address(ops[1], wide)}, "
                  f"'{code}', {count}, {self._mask})")
        for i, part in enumerate(parts):
            self._set(part, f"x[{i}]", kind)

    def _load_param(self, address, parts, kind):
        code, size = dtype_of(kind).str[1:], TYPE_BYTES[kind]
        for i, part in enumerate(parts):
            if address.value.kind == "symbol":
                at = self.kernel.parameters[address.value.value].address + address.value.offset
                text = f"g.param({at + address.offset + i * size}, '{code}')"
            else:
                at = self._address(address, "u64")
                text = f"g.param_at({at}, {i * size}, '{code}', {self._mask})"
            self._set(part, text, kind)

    def _op_st(self, ins, mods, ops):
        count = {"v2": 2, "v4": 4}.get(mods[-2] if len(mods) > 1 else "", 1)
        parts, kind = self._vector(ops[1]), mods[-1]
        space = [m for m in (mods[:-2] if count > 1 else mods[:-1]) if m != "volatile"]
        if len(parts) != count or space not in (["global"], ["shared"], ["local"]):
            self._unknown(ins)
        wide = "u32" if space[0] == "shared" else "u64"
        values = ", ".join(self._src(p, kind, True) for p in parts)
        self._out(f"g.{space[0]}_store({self._site()}, {self._address(ops[0], wide)}, "
                  f"({values},), {self._mask})")

    def _op_atom(self, ins, mods, ops):
        self._only(ins, [["shared", "add", "u32"]])
        text = (f"g.shared_atomic_add({self._address(ops[1], 'u32')}, "
                f"{self._src(ops[2], 'u32', True)}, {self._mask})")
        self._set(ops[0], text, "u32")

    def _op_cp(self, ins, mods, ops):
        text = ".".join(mods)
        if text in ("async.cg.shared.global", "async.ca.shared.global"):
            size = self._number(ops[2])
            if size not in ((16,) if mods[1] == "cg" else (4, 8, 16)) or len(ops) > 4:
                self._unknown(ins)
            given = self._src(ops[3], "u32", True) if len(ops) == 4 else "None"
            self._out(f"g.copy_async({self._site()}, {self._address(ops[0], 'u32')}, "
                      f"{self._address(ops[1], 'u64')}, {size}, {given}, {self._mask})")
        elif text == "async.commit_group":
            self._out(f"g.commit_copies({self._mask})")
        elif text == "async.wait_group":
            self._out(f"g.wait_copies({ops[0].value}, {self._mask})")
        elif text == ("async.bulk.tensor.4d.shared::cluster.global.tile."
                      "mbarrier::complete_tx::bytes"):
            coordinates = ", ".join(self._src(o, "u32", True) for o in ops[1].extra.value)
            if len(ops[1].extra.value) != 4:
                self._unknown(ins)
            self._out(f"g.bulk_load({self._address(ops[0], 'u32')}, "
                      f"{self._src(ops[1].value, 'u64', True)}, ({coordinates}), "
                      f"{self._address(ops[2], 'u32')}, {self._mask})")
        else:
            self._unknown(ins)

    # --- a warp together

    def _op_shfl(self, ins, mods, ops):
        if mods[0] != "sync" or mods[2] != "b32" or mods[1] not in ("bfly", "idx", "up", "down"):
            self._unknown(ins)
        self._warps(ops[4])
        value, valid = self._vector(ops[0]) if ops[0].kind == "vector" else (ops[0], None)
        text = self._src(ops[1], "b32", True)
        lane, clamp = self._number(ops[2]), self._number(ops[3])
        if lane is None or clamp is None:
            lanes, clamps = self._src(ops[2], "u32", True), self._src(ops[3], "u32", True)
            self._out(f"x = g.shuffle('{mods[1]}', {text}, {lanes}, {clamps})")
        else:
            source, inside = shuffle_lanes(mods[1], np.arange(32), lane, clamp)
            names = self._object(source), self._object(inside)
            self._out(f"x = ({text}.reshape(-1, 32)[:, {names[0]}].ravel(), g.lanes({names[1]}))")
        self._set(value, "x[0]", "b32")
        if valid is not None and valid.kind == "reg" and valid.value in self._read:
            self._set(valid, "x[1]", "pred")

    def _op_vote(self, ins, mods, ops):
        self._only(ins, [["sync", "any", "pred"], ["sync", "all", "pred"]])
        self._warps(ops[2])
        self._set(ops[0], f"np.repeat({self._src(ops[1], 'pred', True)}.reshape(-1, 32)"
                  f".{mods[1]}(1), 32)", "pred")

    def _op_ldmatrix(self, ins, mods, ops):
        plain = ["sync", "aligned", "m8n8", "x4", "shared", "b16"]
        self._only(ins, [plain, plain[:4] + ["trans"] + plain[4:]])
        self._warps()
        self._out(f"x = g.load_matrices({self._address(ops[1], 'u32')}, {'trans' in mods}, "
                  f"{self._mask})")
        for i, part in enumerate(ops[0].value):
            self._set(part, f"x[{i}]", "b32")

    def _op_mma(self, ins, mods, ops):
        self._only(ins, ["sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32".split(".")])
        self._warps()
        words = [self._src(o, "b32", True) for o in ops[1].value + ops[2].value]
        add = [self._src(o, "f32", True) for o in ops[3].value]
        if len(ops[1].value) != 4 or len(words) != 6 or len(add) != 4:
            self._unknown(ins)
        self._out(f"x = mma_m16n8k16(left, right, ({', '.join(words)}), ({', '.join(add)}))")
        for i, part in enumerate(ops[0].value):
            self._set(part, f"x[{i}]", "f32")

    # --- barriers

    def _op_bar(self, ins, mods, ops):
        if mods == ["warp", "sync"]:
            self._out(f"return g.sync_warp({self._src(ops[0], 'u32', True)}, m)")
        elif mods in (["sync"], ["arrive"]):
            count = self._src(ops[1], "u32", True) if len(ops) > 1 else "None"
            barrier = self._src(ops[0], "u32", True)
            if mods[0] == "sync":
                self._out(f"return g.barrier_sync({barrier}, {count}, m)")
            else:
                self._out(f"g.barrier_arrive({barrier}, {count}, {self._mask})")
        else:
            self._unknown(ins)

    def _op_mbarrier(self, ins, mods, ops):
        text = ".".join(mods)
        if text == "init.shared::cta.b64":
            self._out(f"g.mbarrier_init({self._address(ops[0], 'u32')}, "
                      f"{self._src(ops[1], 'u32', True)}, {self._mask})")
        elif text in ("arrive.shared::cta.b64", "arrive.expect_tx.shared::cta.b64"):
            if ops[0].kind != "none":
                self._unknown(ins)
            size = self._src(ops[2], "u32", True) if "expect_tx" in mods else "None"
            self._out(f"g.mbarrier_arrive({self._address(ops[1], 'u32')}, {size}, {self._mask})")
        elif text == "try_wait.parity.shared::cta.b64":
            self._out(f"x = g.mbarrier_try({self._address(ops[1], 'u32')}, "
                      f"{self._src(ops[2], 'u32', True)}, m)")
            self._write = "x[0]"
            self._set(ops[0], "x[1]", "pred")
            self._out("return x[0]")
        else:
            self._unknown(ins)

    def _op_fence(self, ins, mods, ops):
        if ".".join(mods) == "proxy.async.shared::cta":
            self._out(f"g.fence_proxy({self._mask})")
        elif ".".join(mods) != "mbarrier_init.release.cluster":
            self._unknown(ins)
        # The other fence orders initialisations for other blocks of a cluster: there are none.

    # --- compute capability 9.0

    def _op_setmaxnreg(self, ins, mods, ops):
        self._only(ins, [["inc", "sync", "aligned", "u32"], ["dec", "sync", "aligned", "u32"]])
        call = f"g.registers_{mods[0]}({self._number(ops[0])}, {self._mask})"
        self._out(f"return {call}" if mods[0] == "inc" else call)

    def _op_wgmma(self, ins, mods, ops):
        text = ".".join(mods)
        if text == "fence.sync.aligned":
            self._out(f"g.wgmma_fence({ins.line}, R, {self._mask})")
        elif text == "commit_group.sync.aligned":
            self._out(f"g.wgmma_commit({ins.line}, {self._mask})")
        elif text == "wait_group.sync.aligned":
            self._out(f"g.wgmma_wait({ins.line}, {ops[0].value}, R, {self._mask})")
        elif mods[0] == "mma_async" and mods[1:3] == ["sync", "aligned"] and mods[3] in (
                "m64n32k16", "m64n64k16", "m64n128k16") and mods[4:] == ["f32", "bf16", "bf16"]:
            self._wgmma(ins, ops)
        else:
            self._unknown(ins)

    def _wgmma(self, ins, ops):
        columns = int(ins.modifiers[3][4:-3])
        d = tuple(o.value for o in ops[0].value)
        if len(d) != columns // 2 or any(o.kind != "reg" for o in ops[0].value):
            self._unknown(ins)
        flags = [o.value for o in ops[4:]]
        if ops[1].kind == "vector":
            a, a_trans, (scale_a, scale_b, b_trans) = f"{tuple(o.value for o in ops[1].value)}", 0, flags
        else:
            a, (scale_a, scale_b, a_trans, b_trans) = self._src(ops[1], "u64", True), flags
        if (scale_a, scale_b) != (1, 1):
            self._unknown(ins)
        self._out(f"g.wgmma({ins.line}, {columns}, {self._object(d)}, {a}, "
                  f"{self._src(ops[2], 'u64', True)}, {self._src(ops[3], 'pred', True)}, "
                  f"{a_trans}, {b_trans}, R, {self._mask})")


def shuffle_lanes(mode, lane, by, clamp):
    """From which lane each takes, and whether that lane is inside its segment."""
    segment, clamp = clamp >> 8 & 31, clamp & 31
    low = lane & segment
    top = low | (clamp & (31 ^ segment))
    by = by & 31
    source = {"up": lane - by, "down": lane + by, "bfly": lane ^ by,
              "idx": low | (by & (31 ^ segment))}[mode]
    inside = source >= top if mode == "up" else source <= top
    return np.where(inside, source, lane), inside


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
