# SPDX-License-Identifier: Apache-2.0
"""The source of each PTX instruction.

An instruction, a modifier or a combination of types that is not listed here raises PtxError.
"""

import numpy as np

from arithmetic import shuffle_lanes
from ptx import TYPE_BYTES
from translator import Translator, dtype_of

_ADD_LIKE = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^"}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
# True also where an operand is NaN: the opposite of the ordered opposite.
_UNORDERED = {"equ": "!=", "neu": "==", "ltu": ">=", "leu": ">", "gtu": "<=", "geu": "<"}


class Instructions(Translator):
    """A method for each opcode, which writes the source of one instruction."""

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
                   "rn.f16.f32": ("to_f16({})", "b16"),
                   "sat.f32.f32": ("saturate({})", "f32"),
                   "rzi.f32.f32": ("np.trunc({})", "f32"),
                   "rni.s32.f32": ("nearest_s32({})", "s32"),
                   "rzi.s32.f32": ("nearest_s32(np.trunc({}))", "s32")}
        if text in special:
            form, kind = special[text]
            self._set(ops[0], form.format(self._src(ops[1], "f32")), kind)
        elif text == "f32.bf16":
            self._set(ops[0], f"pack((K0, {self._src(ops[1], 'b16', True)}), 32).view('f4')"
                      .replace("K0", self._constant(0, "u2")), "f32")
        elif text == "f32.f16":
            self._set(ops[0], f"from_f16({self._src(ops[1], 'b16', True)})", "f32")
        elif text in ("rn.bf16x2.f32", "rn.f16x2.f32"):
            high, low = (self._src(o, "f32", True) for o in ops[1:])
            self._set(ops[0], f"pack_{mods[1][:-2]}({high}, {low})", "b32")
        elif text in ("f64.f32", "rn.f32.f64", "rn.f32.s16", "rn.f32.s32", "rn.f32.u32",
                      "rn.f64.s64", "rn.f64.s32", "rn.f64.u32") or (
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

    def _op_copysign(self, ins, mods, ops):
        """The sign of the first source, the magnitude of the second."""
        self._only(ins, [["f32"]])
        sign, magnitude = (self._src(o, "f32") for o in ops[1:])
        self._set(ops[0], f"np.copysign({magnitude}, {sign})", "f32")

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

    def _op_brev(self, ins, mods, ops):
        self._only(ins, [["b32"]])
        self._set(ops[0], f"reverse_bits({self._src(ops[1], 'u32', True)})", "u32")

    def _op_popc(self, ins, mods, ops):
        self._only(ins, [["b32"]])
        self._set(ops[0], f"count_bits({self._src(ops[1], 'u32', True)})", "u32")

    def _op_bfind(self, ins, mods, ops):
        self._only(ins, [["shiftamt", "u32"]])
        self._set(ops[0], f"leading_zeros({self._src(ops[1], 'u32', True)})", "u32")

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

    def _op_prmt(self, ins, mods, ops):
        self._only(ins, [["b32"]])
        values = ", ".join(self._src(o, "b32", True) for o in ops[1:])
        self._set(ops[0], f"permute_bytes({values})", "b32")

    def _op_setp(self, ins, mods, ops):
        compare, kind = mods
        if compare in ("eq", "ne"):
            kind = self._unsigned(kind)
        a, b = self._src(ops[1], kind, True), self._src(ops[2], kind)
        if compare == "nan" and kind[0] == "f":
            text = f"np.isnan({a}) | np.isnan({b})"
        elif compare in _UNORDERED and kind[0] == "f":
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
        forms = {"ex2.approx.ftz.f32": "ex2_f32({})", "rcp.approx.ftz.f32": "rcp_approx_f32({})",
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
        self._only(ins, [["sync", "any", "pred"], ["sync", "all", "pred"],
                         ["sync", "ballot", "b32"]])
        self._warps(ops[2])
        lanes = f"{self._src(ops[1], 'pred', True)}.reshape(-1, 32)"
        if mods[1] == "ballot":
            self._set(ops[0], f"np.repeat(({lanes} * (1 << np.arange(32))).sum(1), 32)"
                      ".astype('u4')", "u32")
        else:
            self._set(ops[0], f"np.repeat({lanes}.{mods[1]}(1), 32)", "pred")

    def _op_ldmatrix(self, ins, mods, ops):
        plain = ["sync", "aligned", "m8n8", "x4", "shared", "b16"]
        self._only(ins, [plain, plain[:4] + ["trans"] + plain[4:]])
        self._warps()
        self._out(f"x = g.load_matrices({self._address(ops[1], 'u32')}, {'trans' in mods}, "
                  f"{self._mask})")
        for i, part in enumerate(ops[0].value):
            self._set(part, f"x[{i}]", "b32")

    def _op_mma(self, ins, mods, ops):
        text, kind = ".".join(mods), mods[6]
        half = text == "sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
        if not half and text not in (f"sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32"
                                     for kind in ("bf16", "f16")):
            self._unknown(ins)
        self._warps()
        words = [self._src(o, "b32", True) for o in ops[1].value + ops[2].value]
        if half and len(words) == 3:  # the first half of k; the other is zero
            zero = f"np.zeros_like({words[0]})"
            words = [words[0], words[1], zero, zero, words[2], zero]
        add = [self._src(o, "f32", True) for o in ops[3].value]
        if len(ops[1].value) != (2 if half else 4) or len(words) != 6 or len(add) != 4:
            self._unknown(ins)
        self._out(f"x = mma_m16n8k16(left_{kind}, right_{kind}, ({', '.join(words)}), "
                  f"({', '.join(add)}))")
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
            a = f"{tuple(o.value for o in ops[1].value)}"
            a_trans, (scale_a, scale_b, b_trans) = 0, flags
        else:
            a = self._src(ops[1], "u64", True)
            scale_a, scale_b, a_trans, b_trans = flags
        if (scale_a, scale_b) != (1, 1):
            self._unknown(ins)
        self._out(f"g.wgmma({ins.line}, {columns}, {self._object(d)}, {a}, "
                  f"{self._src(ops[2], 'u64', True)}, {self._src(ops[3], 'pred', True)}, "
                  f"{a_trans}, {b_trans}, R, {self._mask})")
