# SPDX-License-Identifier: Apache-2.0
"""Parse the PTX that nvcc emits.

A Module is one file. It finds the entries by their text only, so that a mutant can replace one
entry's text; Kernel parses the text of one entry into instructions with resolved operands.
"""

import re

# Bytes of a value of each type, by the number in its name.
TYPE_BYTES = {"pred": 1}
for _kind in "busf":
    for _bits in (8, 16, 32, 64):
        TYPE_BYTES[f"{_kind}{_bits}"] = _bits // 8


class PtxError(Exception):
    """The PTX cannot be executed: a construct or an instruction is not known."""


class Violation(Exception):
    """A kernel does what a GPU does not allow, or does not define."""


class Operand:
    """One operand of an instruction.

    kind is "reg" (value: index of the register), "imm" (value: int), "float" (value: bits, bytes
    in `offset`), "vector" (value: operands), "address" (value: base operand, offset, coordinates
    in `extra`), "symbol" (value: name, offset added), "special" (value: "%tid.x") or "none" ("_").
    """

    __slots__ = ("kind", "value", "offset", "extra")

    def __init__(self, kind, value, offset=0, extra=None):
        self.kind, self.value, self.offset, self.extra = kind, value, offset, extra


class Instruction:
    """opcode is the name up to the first dot, modifiers the rest; guard is None or (register,
    negated)."""

    __slots__ = ("line", "text", "opcode", "modifiers", "operands", "guard")

    def __init__(self, line, text, opcode, modifiers, operands, guard):
        self.line, self.text, self.opcode = line, text, opcode
        self.modifiers, self.operands, self.guard = modifiers, operands, guard

    @property
    def name(self):
        return ".".join([self.opcode] + self.modifiers)


class Variable:
    """A variable in .shared, .local or .global memory, or a parameter."""

    def __init__(self, name, align, size, data=None):
        self.name, self.align, self.size, self.data = name, align, size, data
        self.address = 0


_ARRAY = re.compile(r"(?:\.align\s+(\d+)\s+)?\.([a-z]\d+)\s+([\w$]+)\s*(?:\[(\d*)\])?")
_ENTRY = re.compile(r"^(?:\.visible\s+|\.weak\s+)?\.entry\s+([\w$]+)\s*\(", re.MULTILINE)


def _variable(text):
    match = _ARRAY.match(text.strip())
    if not match:
        raise PtxError(f"declaration not understood: {text}")
    align, kind, name, count = match.groups()
    size = TYPE_BYTES[kind]
    # An array without a length takes its size from the launch.
    total = size if count is None else size * int(count or 0)
    return Variable(name, int(align or size), total)


def _end_of_body(text, start):
    depth = 0
    for brace in re.compile("[{}]").finditer(text, start):
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return brace.end()
    raise PtxError("an entry has no end")


class Module:
    """A file of PTX: its entries by name, and its variables."""

    def __init__(self, text, path=""):
        self.path = path
        target = re.search(r"^\.target\s+([^\s,]+)", text, re.MULTILINE)
        self.target = target.group(1) if target else ""
        self.entries = {}
        self.dynamic_shared = {}
        self.globals = {}
        for match in re.finditer(r"^\.extern \.shared ([^;]+);", text, re.MULTILINE):
            variable = _variable(match.group(1))
            self.dynamic_shared[variable.name] = variable
        for match in re.finditer(r"^(?:\.visible )?\.(?:global|const) ([^;=]+?)"
                                 r"(?: = \{([^}]*)\})?;", text, re.MULTILINE):
            variable = _variable(match.group(1))
            variable.data = bytes(int(n) for n in (match.group(2) or "").split(",") if n.strip())
            self.globals[variable.name] = variable
        for match in _ENTRY.finditer(text):
            body = text[match.start():_end_of_body(text, match.start())]
            self.entries[match.group(1)] = Entry(self, match.group(1), body,
                                                 text.count("\n", 0, match.start()) + 1)
        if re.search(r"^\s*(?:\.visible |\.weak )?\.func\b", text, re.MULTILINE):
            raise PtxError(f"{path}: .func: functions that are called are not known here")


class Entry:
    """The text of one kernel, and the number of its first line."""

    def __init__(self, module, name, text, line):
        self.module, self.name, self.text, self.line = module, name, text, line

    def fingerprint(self):
        """The code without line numbers, and with symbols numbered in order of appearance: the
        same for two targets if they execute the same code."""
        text = re.sub(r"^\s*(?:\.loc|//)[^\n]*\n|//[^\n]*", "", self.text, flags=re.MULTILINE)
        text = re.sub(r"\n\s*\n", "\n", text)
        symbols = {}
        return re.sub(r"\b_Z\w+", lambda m: symbols.setdefault(m.group(), f"s{len(symbols)}"), text)


_STATEMENT = re.compile(
    r"\s*(?:(?P<comment>//[^\n]*)|(?P<open>\{)|(?P<close>\})"
    r"|(?P<note>\.(?:loc|file)\b[^\n]*)|(?P<directive>\.[^;]*;)|(?P<label>[$%\w]+):"
    r"|(?P<instruction>[^;{}]?[^;]*;))")
_INSTRUCTION = re.compile(r"(?:@(!?)([%$\w]+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
_OPERAND = re.compile(r"\s*(\{[^}]*\}|\[[^\]]*\]|[^,{}\[\]]+)\s*(?:,|$)")
_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)U?$")
_HEADER_PARAM = re.compile(r"\.param\s+([^,\n)]+)")


class Kernel:
    """A parsed entry.

    registers: type of each register, by index. instructions: in order. labels: index of the
    instruction that follows. parameters, shared, local: Variables; addresses of parameters are
    their offsets.
    """

    def __init__(self, entry):
        self.entry, self.module, self.name = entry, entry.module, entry.name
        self.registers, self.instructions, self.labels = [], [], {}
        self.parameters, self.shared, self.local = {}, {}, {}
        self._scopes = [{}]
        header, body = self._split()
        self._parse_header(header)
        self._parse_body(body)

    def _split(self):
        at = self.entry.text.index("\n{")
        return self.entry.text[:at], (self.entry.text, at + 2)

    def _parse_header(self, header):
        offset = 0
        for match in _HEADER_PARAM.finditer(header):
            variable = _variable(match.group(1).replace(".ptr", "").strip())
            offset = -(-offset // variable.align) * variable.align
            variable.address = offset
            offset += variable.size
            self.parameters[variable.name] = variable
        self.parameter_bytes = offset
        threads = re.search(r"\.maxntid\s+(\d+),\s*(\d+),\s*(\d+)", header)
        self.threads_max = 1024
        if threads:
            x, y, z = (int(n) for n in threads.groups())
            self.threads_max = x * y * z
        blocks = re.search(r"\.minnctapersm\s+(\d+)", header)
        self.blocks_min = int(blocks.group(1)) if blocks else 1

    def _parse_body(self, body):
        text, at = body
        line = self.entry.line + text.count("\n", 0, at)
        seen = at
        while True:
            match = _STATEMENT.match(text, at)
            if not match:
                if text[at:].strip():
                    raise PtxError(f"{self.name}: not understood: {text[at:at + 80].strip()}")
                break
            kind = match.lastgroup
            start = match.start(kind)
            line += text.count("\n", seen, start)
            seen = start
            if kind == "open":
                self._scopes.append({})
            elif kind == "close":
                self._scopes.pop()
                if not self._scopes:
                    break
            elif kind == "directive":
                self._directive(match.group(kind)[:-1].strip())
            elif kind == "label":
                self.labels[match.group(kind)] = len(self.instructions)
            elif kind == "instruction":
                self._instruction(match.group(kind)[:-1].strip(), line)
            at = match.end()

    def _directive(self, text):
        word, _, rest = text.partition(" ")
        word = word.split("\t")[0]
        rest = text[len(word):].strip()
        if word == ".reg":
            kind, names = rest[1:].split(None, 1)
            if kind not in TYPE_BYTES:
                raise PtxError(f"{self.name}: registers of type .{kind} are not known here")
            for name in names.split(","):
                self._register(name.strip(), kind)
        elif word == ".shared":
            variable = _variable(rest)
            self.shared[variable.name] = variable
        elif word == ".local":
            variable = _variable(rest)
            self.local[variable.name] = variable
        elif word != ".pragma":
            raise PtxError(f"{self.name}: directive {word} is not known here")

    def _register(self, name, kind):
        match = re.fullmatch(r"([%$\w]+)<(\d+)>", name)
        names = [name] if not match else [f"{match[1]}{i}" for i in range(int(match[2]))]
        for one in names:
            self._scopes[-1][one] = len(self.registers)
            self.registers.append(kind)

    def _find_register(self, name):
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return None

    def _instruction(self, text, line):
        match = _INSTRUCTION.fullmatch(text)
        if not match:
            raise PtxError(f"{self.name}: line {line}: not understood: {text}")
        negated, guard, name, rest = match.groups()
        if guard:
            index = self._find_register(guard)
            if index is None:
                raise PtxError(f"{self.name}: line {line}: {guard} is not declared")
            guard = (index, negated == "!")
        opcode, *modifiers = name.split(".")
        operands = [self._operand(part, line) for part in _OPERAND.findall(rest)]
        self.instructions.append(Instruction(line, text, opcode, modifiers, operands,
                                             guard or None))

    def _operand(self, text, line):
        text = text.strip()
        if text[0] == "{":
            return Operand("vector", [self._operand(t, line) for t in text[1:-1].split(",")])
        if text[0] == "[":
            base, _, coordinates = text[1:-1].partition(",")
            extra = self._operand(coordinates.strip(), line) if coordinates.strip() else None
            base, _, offset = base.strip().partition("+")
            return Operand("address", self._operand(base, line), int(offset or 0), extra)
        if "|" in text: # shfl's result and predicate
            return Operand("vector", [self._operand(t, line) for t in text.split("|")])
        if _INTEGER.match(text):
            return Operand("imm", int(text.rstrip("U"), 0))
        if re.match(r"0[fF][0-9a-fA-F]{8}$", text):
            return Operand("float", int(text[2:], 16), 4)
        if re.match(r"0[dD][0-9a-fA-F]{16}$", text):
            return Operand("float", int(text[2:], 16), 8)
        if text == "_":
            return Operand("none", None)
        negated = text[0] == "!"
        index = self._find_register(text[1:] if negated else text)
        if index is not None:
            return Operand("reg", index, extra="not" if negated else None)
        if text[0] == "%":
            return Operand("special", text)
        name, _, offset = text.partition("+")
        return Operand("symbol", name, int(offset or 0))
