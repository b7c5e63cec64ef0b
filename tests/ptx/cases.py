# SPDX-License-Identifier: Apache-2.0
"""Execute recordings of tests/ptx/record (record.h has their format) and compare the results."""

import json
import os
import re
import zlib

import numpy as np

from instructions import Instructions
from machine import Launch
from memory import Buffer, GlobalMemory, module_buffers
from ptx import Kernel, Module, PtxError, Violation
from translator import where

# Folders with the code that a chip executes.
FOLDERS = {"sm_75": ["sm_75"], "sm_80": ["sm_80"], "sm_90": ["sm_90", "sm_90a"]}

_NUMBERS = {"f32": "f4", "f64": "f8", "i32": "i4", "u8": "u1"}


class Library:
    """The kernels of a chip: those in the PTX under `folder`."""

    def __init__(self, folder, chip):
        self.chip = chip
        self._files, self._modules = {}, {}
        self._code = {}
        for arch in FOLDERS[chip]:
            root = os.path.join(folder, arch)
            for file in sorted(os.listdir(root)) if os.path.isdir(root) else []:
                path = os.path.join(root, file)
                with open(path, encoding="utf-8") as stream:
                    names = re.findall(r"\.entry\s+([\w$]+)", stream.read())
                for name in names:
                    self._files[name] = path

    def names(self):
        return list(self._files)

    def path(self, name):
        return self._files[name]

    def entry(self, name):
        path = self._files.get(name)
        if path is None:
            raise PtxError(f"no PTX of {self.chip} has the kernel {name}")
        if path not in self._modules:
            with open(path, encoding="utf-8") as stream:
                self._modules[path] = Module(stream.read(), path)
        return self._modules[path].entries[name]

    def code(self, entry, shared_bytes):
        """The kernel, translated for that much dynamic shared memory."""
        key = (entry.name, shared_bytes)
        known = self._code.get(key)
        if known is None or known.kernel.entry is not entry:
            known = self._code[key] = Instructions(Kernel(entry), shared_bytes)
        return known


class Failure(Exception):
    """A case that failed; the text has the reason."""


class Case:
    """A recording."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as stream:
            record = json.load(stream)
        self.name, self.chip = record["name"], record["chip"]
        self.buffers, self.operations = record["buffers"], record["operations"]
        self._data = path[:-len(".json")] + ".bin"

    def kernels(self):
        return [o["kernel"] for o in self.operations if o["kind"] == "launch"]

    def execute(self, library, seed=0, prompt=False, change=None):
        """Run all operations; what `change` does with the PTX's entries is for mutants. Returns the
        largest error in units of the tolerance."""
        with open(self._data, "rb") as stream:
            data = stream.read()
        entries = {}
        for name in self.kernels():
            entry = library.entry(name)
            entries[name] = change(entry) if change else entry
        memory = self._memory(data, entries, library)
        for number, operation in enumerate(self.operations):
            kind = operation["kind"]
            try:
                if kind == "launch":
                    self._launch(operation, entries, library, memory, f"{seed} {number}", prompt)
                elif kind == "memset":
                    memory.fill(operation["address"], operation["value"], operation["bytes"])
                elif kind == "copy":
                    memory.copy(operation["to"], operation["from"], operation["bytes"])
                else:
                    raise Failure(f"an operation '{kind}' is not known here")
            except Violation as error:
                raise Failure(str(error)) from error
        return max([self._compare(b, data, memory) for b in self.buffers
                    if b["expected_offset"] is not None], default=0)

    def _memory(self, data, entries, library):
        buffers = []
        for b in self.buffers:
            first = None
            if b["offset"] is not None:
                first = data[b["offset"]:b["offset"] + b["bytes"]]
            buffers.append((Buffer(b["name"], b["address"], b["bytes"], b["written"]), first))
        modules = {id(e.module): e for e in entries.values() if e.module.globals}
        if len(modules) > 1:
            raise Failure("kernels of two modules with variables are not known here")
        for entry in modules.values():
            library.code(entry, 0) # gives the variables their addresses
            buffers += module_buffers(entry.module)
        return GlobalMemory(buffers)

    def _launch(self, operation, entries, library, memory, seed, prompt):
        entry = entries[operation["kernel"]]
        code = library.code(entry, operation["shared"])
        seed = zlib.crc32(f"{self.name} {seed}".encode())
        try:
            Launch(code, memory, operation["grid"], operation["block"],
                   bytes.fromhex(operation["params"]), seed, prompt).run()
        except Violation as error:
            raise Failure(f"{short(entry.name)}: {_location(error)}{error}") from error
        except (TypeError, ValueError, IndexError, OverflowError) as error:
            # A value that no instruction should meet, or an error here.
            raise Failure(f"{short(entry.name)}: {_location(error)}{error!r}") from error

    def _compare(self, b, data, memory):
        got = memory.bytes_of(memory.find(b["address"], b["bytes"]))
        if b["dtype"] == "f16":
            got = np.frombuffer(got.tobytes(), "f2").astype("f8")
        elif b["dtype"] == "bf16":
            bits = np.frombuffer(got.tobytes(), "u2").astype("u4") << np.uint32(16)
            got = bits.view("f4").astype("f8")
        else:
            got = np.frombuffer(got.tobytes(), _NUMBERS[b["dtype"]]).astype("f8")
        want = np.frombuffer(data, _NUMBERS[b["expected_dtype"]], len(got),
                             b["expected_offset"]).astype("f8")
        with np.errstate(all="ignore"):
            error = np.abs(got - want)
            same = (got == want) | (np.isnan(got) & np.isnan(want))
            allowed = b["atol"] + b["rtol"] * np.abs(want)
            share = np.where(same, 0, np.where(allowed > 0, error / allowed, np.inf))
            share[np.isnan(share)] = np.inf
            norm = np.sqrt(np.square(error[~same]).sum() / max(np.square(want).sum(), 1e-300))
        worst = int(share.argmax())
        if share[worst] > 1:
            wrong = int((share > 1).sum())
            raise Failure(f"{b['name']}[{worst}] is {got[worst]:.9g} instead of {want[worst]:.9g} "
                          f"({wrong} of {len(got)} wrong)")
        if not b["norm"]:
            return float(share[worst])
        if not norm <= b["norm"]:
            raise Failure(f"{b['name']}: the error's norm is {norm:.3g} of the result's, at most "
                          f"{b['norm']:.3g} is right")
        return max(float(share[worst]), norm / b["norm"])


def short(name):
    """The kernel's own name in a mangled one: that of the function, without namespaces."""
    at, found = 2 + name.startswith("_ZN"), name
    while match := re.compile(r"\d+").match(name, at):
        at = match.end() + int(match.group())
        found = name[match.end():at]
    return found


def _location(error):
    found = where(error.__traceback__)
    if not found or not found[1]:
        return ""
    kernel, instruction = found
    text = " ".join(instruction.text.split())
    return (f"{os.path.basename(kernel.module.path)}:{instruction.line}: "
            f"{text if len(text) < 100 else text[:97] + '...'}: ")
