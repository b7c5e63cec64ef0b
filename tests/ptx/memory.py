# SPDX-License-Identifier: Apache-2.0
"""Global memory as recorded, and shared memory that reports what a GPU leaves undefined."""

import numpy as np

from ptx import Violation
from translator import MODULE_BASE

POISON = 0xFF # a NaN in every floating-point type, and no index that is in bounds


class Buffer:
    """An allocation: its bytes lie at `offset` of the memory's image."""

    def __init__(self, name, address, size, writable):
        self.name, self.address, self.size, self.writable = name, address, size, writable
        self.offset = 0


class GlobalMemory:
    """All allocations in one image. Addresses keep their remainder modulo 1024."""

    def __init__(self, buffers):
        """buffers: (Buffer, first contents or None)."""
        self.buffers = sorted((b for b, _ in buffers), key=lambda b: b.address)
        at = 0
        for buffer in self.buffers:
            buffer.offset = -(-at // 1024) * 1024 + buffer.address % 1024
            at = buffer.offset + buffer.size
        self.image = np.full(-(-at // 1024) * 1024 + 1024, POISON, "u1")
        self.views = {code: self.image.view(code) for code in ("u1", "i1", "u2", "i2", "u4", "i4",
                                                              "u8", "i8", "f4", "f8")}
        for buffer, data in buffers:
            if data is not None:
                self.image[buffer.offset:buffer.offset + len(data)] = np.frombuffer(data, "u1")
        self._starts = np.array([b.address for b in self.buffers], "u8")
        self._last = {}

    def bytes_of(self, buffer):
        return self.image[buffer.offset:buffer.offset + buffer.size]

    def find(self, address, size):
        """The buffer that has these bytes, or None."""
        i = int(np.searchsorted(self._starts, np.uint64(address), "right")) - 1
        if i < 0:
            return None
        buffer = self.buffers[i]
        return buffer if address + size <= buffer.address + buffer.size else None

    def place(self, site, address, size, write):
        """Offsets in the image of accesses of `size` bytes each; `site` identifies the instruction."""
        buffer = self._last.get(site)
        if buffer is not None:
            offset = address - np.uint64(buffer.address)
            if (int(np.bitwise_or.reduce(offset)) > buffer.size - size and
                    int(offset.max()) > buffer.size - size):
                buffer = None
        if buffer is None:
            low, high = int(address.min()), int(address.max())
            buffer = self.find(low, size)
            if buffer is None or high + size > buffer.address + buffer.size:
                return self._place_each(address, size, write)
            self._last[site] = buffer
            offset = address - np.uint64(buffer.address)
        if write and not buffer.writable:
            raise Violation(f"writes to {buffer.name}, which the operation may not change")
        offset = offset + np.uint64(buffer.offset)
        if int(np.bitwise_or.reduce(offset)) & size - 1:
            raise Violation(f"an access of {size} bytes to {buffer.name} is not aligned")
        return offset

    def _place_each(self, address, size, write):
        out = np.empty_like(address)
        for i, one in enumerate(address.tolist()):
            buffer = self.find(one, size)
            if buffer is None:
                raise Violation(self._outside(one, size))
            if one % size:
                raise Violation(f"an access of {size} bytes to {buffer.name} is not aligned")
            if write and not buffer.writable:
                raise Violation(f"writes to {buffer.name}, which the operation may not change")
            out[i] = one - buffer.address + buffer.offset
        return out

    def _outside(self, address, size):
        near = [b for b in self.buffers if b.address <= address < b.address + b.size + 4096]
        if near:
            behind = address - near[-1].address
            return (f"an access of {size} bytes at {behind} of the {near[-1].size} bytes of "
                    f"{near[-1].name}")
        return f"an access of {size} bytes at {address:#x}, where no buffer is"

    def load(self, site, address, code, count):
        size = int(code[1])
        offset = self.place(site, address, size * count, False)
        view = self.views[code]
        if count == 1:
            return [view[offset >> np.uint64(size.bit_length() - 1)]]
        rows = view.reshape(-1, count)[offset >> np.uint64((size * count).bit_length() - 1)]
        return list(np.ascontiguousarray(rows.T))

    def store(self, site, address, values):
        size, count = values[0].itemsize, len(values)
        offset = self.place(site, address, size * count, True)
        view = self.views[values[0].dtype.str[1:]]
        if count == 1:
            view[offset >> np.uint64(size.bit_length() - 1)] = values[0]
        else:
            view.reshape(-1, count)[offset >> np.uint64((size * count).bit_length() - 1)] = (
                np.array(values).T)

    def fill(self, address, value, size):
        buffer = self._named(address, size, "memset")
        at = buffer.offset + address - buffer.address
        self.image[at:at + size] = value

    def copy(self, to, source, size):
        a, b = self._named(to, size, "copy"), self._named(source, size, "copy")
        at, start = a.offset + to - a.address, b.offset + source - b.address
        self.image[at:at + size] = self.image[start:start + size].copy()

    def _named(self, address, size, what):
        buffer = self.find(address, size)
        if buffer is None:
            raise Violation(f"{what}: {self._outside(address, size)}")
        return buffer


def module_buffers(module):
    """The module's own variables, as (Buffer, contents)."""
    return [(Buffer(v.name, v.address, v.size, False), v.data + bytes(v.size - len(v.data)))
            for v in module.globals.values() if v.address >= MODULE_BASE]


class View:
    """What a warp knows when it makes some accesses. clock: of all agents, in each block, flat;
    rows: where each access's block begins there; steps: the warp's own, at each access."""

    __slots__ = ("warp", "clock", "rows", "steps")

    def __init__(self, warp, clock, rows, steps):
        self.warp, self.clock, self.rows, self.steps = warp, clock, rows, steps


class SharedMemory:
    """Shared memory of some blocks, with what is known of each granule of 1 or 4 bytes.

    Every access is checked against bounds, alignment and these:
      * valid: a byte was written. Bytes in which a copy will arrive are not valid before it has.
      * order: two accesses by different warps, one of them a write, need a barrier between them.
        Each warp has a vector clock: for each agent (a warp, or a barrier at which bulk copies
        arrive) the last of its steps that this warp knows to be over. A granule remembers who
        wrote it, and when; and when each warp last read it.
      * proxy: bytes written by ordinary stores that no fence.proxy.async has followed.
    """

    def __init__(self, blocks, size, warps, agents, granule, proxies):
        self.blocks, self.size, self.warps, self.agents = blocks, size, warps, agents
        self.stride = -(-size // 1024) * 1024
        total = blocks * self.stride
        self.data = np.full(total, POISON, "u1")
        self.valid = np.zeros(total, "u1")
        self.views = {code: self.data.view(code) for code in ("u1", "i1", "u2", "i2", "u4", "i4",
                                                             "u8", "i8", "f4", "f8")}
        self.valid_views = {n: self.valid.view(f"u{n}") for n in (1, 2, 4, 8)}
        self.shift = granule.bit_length() - 1
        granules = total >> self.shift
        self.writer = np.zeros(granules, "i4")
        self.written = np.zeros(granules, "i4")
        self.atomic = np.zeros(granules, bool)
        self.read = np.zeros((warps, granules), "i4")
        self.unfenced = np.zeros(granules, bool) if proxies else None
        self.tracked = warps > 1

    def place(self, address, base, size):
        """Offsets in the image; address: u32, base: of each lane's block."""
        bits = int(np.bitwise_or.reduce(address)) # at least the largest
        if bits & size - 1:
            raise Violation(f"an access of {size} bytes to shared memory is not aligned")
        if bits > self.size - size and int(address.max()) > self.size - size:
            raise Violation(f"an access of {size} bytes at {int(address.max())} of the "
                            f"{self.size} bytes of shared memory")
        return address + base

    def granules(self, at, size):
        """[accesses, granules of each], or [accesses] if each has one."""
        if size >> self.shift <= 1:
            return at >> self.shift
        return (at >> self.shift)[:, None] + np.arange(size >> self.shift)

    def _say(self, what, where):
        at = int(where) << self.shift
        return Violation(f"shared memory at {at % self.stride}: {what}")

    def check_valid(self, at, size):
        unit = min(size, 8)
        words = self.valid_views[unit][at >> (unit.bit_length() - 1)]
        if size > 8:
            words = words & self.valid_views[8][(at >> 3) + 1]
        full = (1 << unit * 8) - 1
        if int(words.min()) != full:
            bad = at[np.argmin(words == full)]
            raise self._say("read where nothing was written, or where a copy has not arrived",
                            bad >> self.shift)

    def _known(self, who, agents):
        """The last step of each agent that the accessing warp knows to be over."""
        rows = who.rows if agents.ndim == 1 else who.rows[:, None]
        return who.clock[rows + agents]

    def check_read(self, words, who):
        """words: granules of the accesses; who: a View of the warp that reads."""
        if not self.tracked:
            return
        writer = self.writer[words]
        late = self.written[words] > self._known(who, writer)
        if np.count_nonzero(late):
            bad = np.argmax(late.ravel())
            raise self._say(f"warp {who.warp} reads what {self._agent(writer.ravel()[bad])} wrote "
                            "without a barrier between", words.ravel()[bad])
        self.read[who.warp][words] = who.steps if words.ndim == 1 else who.steps[:, None]

    def check_write(self, words, who, atomic=False):
        if not self.tracked:
            return
        writer = self.writer[words]
        late = self.written[words] > self._known(who, writer)
        if atomic:
            late &= ~self.atomic[words]
        if np.count_nonzero(late):
            bad = np.argmax(late.ravel())
            raise self._say(f"warp {who.warp} overwrites what {self._agent(writer.ravel()[bad])} "
                            "wrote without a barrier between", words.ravel()[bad])
        rows = who.rows if words.ndim == 1 else who.rows[:, None]
        agents = np.arange(self.warps).reshape((-1,) + (1,) * words.ndim)
        late = self.read[:, words] > who.clock[rows + agents]
        if np.count_nonzero(late):
            bad = np.argmax(late.any(0).ravel())
            raise self._say(f"warp {who.warp} overwrites what another warp read without a barrier "
                            "between", words.ravel()[bad])

    def _agent(self, agent):
        return f"warp {agent}" if agent < self.warps else "a bulk copy"

    def note_write(self, words, agent, step, generic, atomic=False):
        """step: the agent's, of each access."""
        if self.tracked:
            self.writer[words] = agent
            self.written[words] = step if words.ndim == 1 else step[:, None]
            self.atomic[words] = atomic
        if self.unfenced is not None:
            self.unfenced[words] = generic

    def fence(self, blocks, warp):
        """What the warp wrote in these blocks may be read by the asynchronous proxy."""
        if self.unfenced is not None:
            per = self.stride >> self.shift
            unfenced = self.unfenced.reshape(self.blocks, per)
            writer = self.writer.reshape(self.blocks, per)
            for block in blocks:
                unfenced[block] &= writer[block] != warp

    def check_fenced(self, words, what):
        if np.count_nonzero(self.unfenced[words]):
            bad = words.ravel()[np.argmax(self.unfenced[words].ravel())]
            raise self._say(f"{what} uses what ordinary stores wrote without fence.proxy.async",
                            bad)

    def load(self, at, code, count, who):
        size = int(code[1])
        self.check_valid(at, size * count)
        self.check_read(self.granules(at, size * count), who)
        view = self.views[code]
        if count == 1:
            return [view[at >> (size.bit_length() - 1)]]
        rows = view.reshape(-1, count)[at >> ((size * count).bit_length() - 1)]
        return list(np.ascontiguousarray(rows.T))

    def store(self, at, values, who):
        size, count = values[0].itemsize, len(values)
        words = self.granules(at, size * count)
        self.check_write(words, who)
        self.note_write(words, who.warp, who.steps, True)
        view = self.views[values[0].dtype.str[1:]]
        if count == 1:
            view[at >> (size.bit_length() - 1)] = values[0]
        else:
            view.reshape(-1, count)[at >> ((size * count).bit_length() - 1)] = np.array(values).T
        self.mark(at, size * count, True)

    def mark(self, at, size, valid):
        unit = min(size, 8)
        full = (1 << unit * 8) - 1 if valid else 0
        for i in range(size // unit):
            self.valid_views[unit][(at >> (unit.bit_length() - 1)) + i] = full

    def expect_copy(self, at, size, who):
        """A copy of `size` (a power of two up to 16) bytes will be written here."""
        self.check_write(self.granules(at, size), who)
        self.mark(at, size, False)
        rows = self.data.reshape(-1, size)
        rows[at // size] = POISON

    def finish_copy(self, at, rows, agent, step):
        """It has arrived: rows of bytes [copies, size]."""
        size = rows.shape[1]
        self.data.reshape(-1, size)[at // size] = rows
        self.mark(at, size, True)
        self.note_write(self.granules(at, size), agent, step, agent < self.warps)

    def atomic_add(self, at, values, who):
        """Returns what was there before; accesses to one place happen in some order."""
        self.check_valid(at, 4)
        words = self.granules(at, 4)
        self.check_write(words, who, atomic=True)
        self.note_write(words, who.warp, who.steps, True, atomic=True)
        view = self.views["u4"]
        before = np.empty_like(values)
        for i, (place, value) in enumerate(zip((at >> 2).tolist(), values)):
            before[i] = view[place]
            view[place] += value
        return before
