# SPDX-License-Identifier: Apache-2.0
"""Lanes that are executed together.

A gang is the same warp of several blocks, or all warps of several blocks where the kernel has no
shared memory, so that warps cannot affect each other. Lanes have their own program counter:
those with the smallest execute first, so that diverged lanes reconverge.
"""

import numpy as np

from arithmetic import shuffle_lanes
from memory import POISON, View
from ptx import Violation
from translator import LOCAL_BASE, PARAM_BASE, storage_of

_ENDED = 1 << 30 # the place of lanes that are not executed


class Gang:
    """chunk: what the blocks share (machine.Chunk). warp: which of a block's warps, or None: all.

    Registers are in self.registers. self.place is the basic block at which all lanes are that have
    not ended, or None, if self.places has one for each lane.
    """

    def __init__(self, chunk, warp):
        self.chunk, self.warp, self.launch = chunk, warp, chunk.launch
        code, (bx, by, bz) = chunk.code, chunk.launch.block
        threads = bx * by * bz
        warps = -(-threads // 32)
        first, count = (0, warps) if warp is None else (warp, 1)
        thread = np.tile(np.arange(first * 32, (first + count) * 32), chunk.count)
        self.block = np.repeat(np.arange(chunk.count), count * 32)
        self.lane_count = len(thread)
        self.alive = thread < threads
        self.alive_count = int(self.alive.sum())
        self.tid_x, self.tid_y, self.tid_z = (
            a.astype("u4") for a in (thread % bx, thread // bx % by, thread // (bx * by)))
        self._constants = {}
        for name, values in (("ntid", chunk.launch.block), ("nctaid", chunk.launch.grid)):
            for axis, value in zip("xyz", values):
                setattr(self, f"{name}_{axis}", self.every(np.uint32(value)))
        for axis, values in zip("xyz", chunk.block_ids):
            setattr(self, f"ctaid_{axis}", values.astype("u4")[self.block])
        self.registers = self._poisoned(code)
        self.place, self.places = 0, None
        self.blocked, self.ended = False, self.alive_count == 0
        self._checked = self._last_mask = self._last_active = None
        self._copies, self._groups = [], np.zeros(self.lane_count, "i8")
        self.local = np.full((self.lane_count, -(-code.local_bytes // 16) * 16), POISON, "u1")
        if chunk.shared:
            self.shared_base = self.block * chunk.shared.stride
            self.clock = np.zeros((chunk.count, chunk.shared.agents), "i4")
            self.clock[:, warp] = 1
            self._rows = self.block * chunk.shared.agents
            self._steps = self.clock[self.block, warp]
        self.waits = np.full(chunk.count, -1) # for which generation of the barrier
        self.at_barrier = np.zeros(chunk.count, "i8")

    def _poisoned(self, code):
        poison = {}
        for kind in set(code.kernel.registers):
            stored = storage_of(kind)
            array = np.full(self.lane_count * stored.itemsize, POISON, "u1")
            poison[kind] = array.view(stored) if kind != "pred" else array > 0
        return [poison[kind] for kind in code.kernel.registers]

    def every(self, value):
        """An array that has the value in every lane."""
        if isinstance(value, np.ndarray) and value.ndim:
            return value
        key = (value.dtype.char, value.tobytes())
        if key not in self._constants:
            self._constants[key] = np.full(self.lane_count, value)
        return self._constants[key]

    def lanes(self, of_warp):
        """The same 32 values in each warp."""
        return np.tile(of_warp, self.lane_count // 32)

    # --- going through the program

    def run(self):
        """Execute until every lane has ended or waits, or by chance other warps go first."""
        code, chance = self.chunk.code, self.chunk.chance
        while True:
            if self.place is not None:
                block = code.blocks[self.place]
                mask = None if self.alive_count == self.lane_count else self.alive
                if block.blocking:
                    passed = code.function(block, False)(self, self.registers, mask)
                    if not self._pass_together(block, passed):
                        return
                else:
                    code.function(block, False)(self, self.registers, mask)
                    self._leave_together(block)
            elif not self._step_apart(code):
                return
            if self.ended or chance():
                return

    def _pass_together(self, block, passed):
        """Lanes that the blocking instruction did not let pass stay; whether any went on."""
        count = self.lane_count if passed is None else np.count_nonzero(passed & self.alive)
        if passed is None or count == self.alive_count:
            self._leave_together(block)
            return True
        self._spread()
        self.parked = self.alive & ~passed
        self.places[passed & self.alive] += 1
        if count == 0:
            self.blocked = True
            return False
        return True

    def _leave_together(self, block):
        after = block.after
        if after[0] == "next":
            self.place += 1
        elif after[0] == "goto":
            self.place = after[1]
        elif after[0] == "exit":
            self._end(self.alive)
        else:
            _, register, negated, target = after
            taken = self.registers[register]
            if negated:
                taken = ~taken
            if self.alive_count != self.lane_count:
                taken = taken & self.alive
            count = np.count_nonzero(taken)
            if count == self.alive_count:
                self.place = target
            elif count == 0:
                self.place += 1
            else:
                self._spread()
                self.places[self.alive] += 1
                self.places[taken] = target

    def _spread(self):
        self.places = np.where(self.alive, self.place, _ENDED)
        self.parked = np.zeros(self.lane_count, bool)
        self.place = None

    def _step_apart(self, code):
        """One basic block by the lanes that are at the first; whether there were any."""
        places = np.where(self.parked, _ENDED, self.places)
        first = int(places.min())
        if first == _ENDED:
            self.blocked = True
            return False
        mask = places == first
        if np.count_nonzero(mask) == self.alive_count:
            self.place, self.places = first, None
            return True
        block = code.blocks[first]
        result = code.function(block, True)(self, self.registers, mask)
        if block.blocking and result is not None:
            self.parked |= mask & ~result
            mask = mask & result
        self._leave_apart(block, mask)
        return True

    def _leave_apart(self, block, mask):
        after = block.after
        if after[0] == "next":
            self.places[mask] += 1
        elif after[0] == "goto":
            self.places[mask] = after[1]
        elif after[0] == "exit":
            self._end(mask)
        else:
            _, register, negated, target = after
            taken = self.registers[register]
            self.places[mask] += 1
            self.places[mask & (~taken if negated else taken)] = target

    def _end(self, mask):
        self.alive = self.alive & ~mask
        self.alive_count = int(np.count_nonzero(self.alive))
        if self.places is not None:
            self.places[mask] = _ENDED
        self.ended = self.alive_count == 0
        self.chunk.lanes_ended(self, mask)

    def wake(self):
        """Something happened that may let waiting lanes go on."""
        self.blocked = False
        if self.place is None:
            self.parked[:] = False

    def positions(self):
        """Where lanes wait, for messages: PTX lines."""
        places = [self.place] if self.place is not None else np.unique(self.places[self.alive])
        blocks = self.chunk.code.blocks
        code = self.chunk.code.kernel.instructions
        return sorted({code[min(blocks[p].first, len(code) - 1)].line for p in places})

    # --- masks

    def need_warps(self, mask):
        """Lanes of a warp execute this together."""
        if mask is None or mask is self._checked:
            return
        warps = mask.reshape(-1, 32)
        if (warps.any(1) != warps.all(1)).any():
            raise Violation("executed by a part of a warp's lanes")
        self._checked = mask

    def need_members(self, mask, members):
        active = np.ones(self.lane_count, bool) if mask is None else mask
        lanes = active.reshape(-1, 32)
        present = (lanes.astype("u8") << np.arange(32, dtype="u8")).sum(1)
        wanted = members.reshape(-1, 32).astype("u8")
        own = wanted >> np.arange(32, dtype="u8") & np.uint64(1)
        if (lanes & (((wanted & ~present[:, None]) != 0) | (own == 0))).any():
            raise Violation("executed by other lanes than its mask has")

    def warp_blocks(self, mask):
        """Blocks whose warp executes this; all of its lanes that have not ended must."""
        active = self.alive if mask is None else mask
        some = active.reshape(-1, 32).any(1)
        if ((active != self.alive).reshape(-1, 32).any(1) & some).any():
            raise Violation("executed by a part of a warp's lanes")
        return np.flatnonzero(some)

    def sync_warp(self, members, mask):
        """Lanes wait for those of their warp that have not ended."""
        if mask is None:
            return None
        if int(members[np.argmax(mask)]) != 0xFFFFFFFF:
            raise Violation("a barrier of some lanes of a warp is not known here")
        together = (mask == self.alive).reshape(-1, 32).all(1)
        return np.repeat(together, 32) & mask

    def shuffle(self, mode, value, lane, clamp):
        """(values, whether the lane that they come from is inside the segment)"""
        own = np.arange(self.lane_count)
        source, inside = shuffle_lanes(mode, own % 32, lane.astype("i8"), clamp.astype("i8"))
        return value[own - own % 32 + source], inside

    # --- memory

    def _active(self, mask):
        """Indices of lanes."""
        if mask is not self._last_mask:
            self._last_mask, self._last_active = mask, np.flatnonzero(mask)
        return self._last_active

    def _select(self, mask, *arrays):
        """The arrays' elements of lanes that execute this, or None if there are none."""
        if mask is None:
            return arrays
        lanes = self._active(mask)
        return [a[lanes] for a in arrays] if len(lanes) else None

    def _select_shared(self, mask, address, size, *arrays):
        """(offsets in shared memory, who accesses them, elements of the arrays), or None."""
        chosen = self._select(mask, address, self.shared_base, self._rows, self._steps, *arrays)
        if chosen is None:
            return None
        address, base, rows, steps, *arrays = chosen
        who = View(self.warp, self.clock.reshape(-1), rows, steps)
        return self.chunk.shared.place(address, base, size), who, arrays

    def view_of(self, blocks):
        """What the warp knows in these blocks."""
        return View(self.warp, self.clock.reshape(-1), blocks * self.clock.shape[1],
                    self.clock[blocks, self.warp])

    def _expand(self, mask, values, code):
        if mask is None:
            return values
        out = []
        for value in values:
            whole = np.zeros(self.lane_count, code)
            whole[self._active(mask)] = value
            out.append(whole)
        return out

    def _nothing(self, code, count):
        return [np.zeros(self.lane_count, code)] * count

    def global_load(self, site, address, code, count, mask):
        chosen = self._select(mask, address)
        if chosen is None:
            return self._nothing(code, count)
        return self._expand(mask, self.launch.memory.load(site, chosen[0], code, count), code)

    def global_store(self, site, address, values, mask):
        chosen = self._select(mask, address, *values)
        if chosen is not None:
            self.launch.memory.store(site, chosen[0], chosen[1:])

    def shared_load(self, _site, address, code, count, mask):
        chosen = self._select_shared(mask, address, int(code[1]) * count)
        if chosen is None:
            return self._nothing(code, count)
        at, who, _ = chosen
        return self._expand(mask, self.chunk.shared.load(at, code, count, who), code)

    def shared_store(self, _site, address, values, mask):
        chosen = self._select_shared(mask, address, values[0].itemsize * len(values), *values)
        if chosen is not None:
            at, who, values = chosen
            self.chunk.shared.store(at, values, who)

    def shared_atomic_add(self, address, value, mask):
        chosen = self._select_shared(mask, address, 4, value)
        if chosen is None:
            return self._nothing("u4", 1)[0]
        at, who, (value,) = chosen
        before = self.chunk.shared.atomic_add(at, value, who)
        return self._expand(mask, [before], "u4")[0]

    def load_matrices(self, address, transposed, mask):
        """Four 8 x 8 matrices of 16 bits, whose rows begin at the addresses of 8 lanes each."""
        chosen = self._select_shared(mask, address, 16)
        if chosen is None:
            return self._nothing("u4", 4)
        at, who, _ = chosen
        shared = self.chunk.shared
        shared.check_valid(at, 16)
        shared.check_read(shared.granules(at, 16), who)
        rows = shared.views["u2"].reshape(-1, 8)[at >> 4].reshape(-1, 4, 8, 8)
        if transposed:
            rows = rows.swapaxes(2, 3)
        words = np.ascontiguousarray(rows.swapaxes(0, 1)).view("u4").reshape(4, -1)
        return self._expand(mask, list(words), "u4")

    def _local_places(self, address, size, mask):
        lanes = np.arange(self.lane_count)
        chosen = self._select(mask, address, lanes)
        if chosen is None:
            return None
        at = chosen[0] - np.uint64(LOCAL_BASE)
        if int(at.max()) > self.chunk.code.local_bytes - size or int(
                np.bitwise_or.reduce(at)) & size - 1:
            raise Violation(f"an access of {size} bytes outside of local memory, or not aligned")
        return chosen[1] * self.local.shape[1] + at.astype("i8")

    def local_load(self, _site, address, code, count, mask):
        size = int(code[1])
        at = self._local_places(address, size * count, mask)
        if at is None:
            return self._nothing(code, count)
        view = self.local.view(code).ravel()
        return self._expand(mask, [view[at // size + i] for i in range(count)], code)

    def local_store(self, _site, address, values, mask):
        size = values[0].itemsize
        at = self._local_places(address, size * len(values), mask)
        if at is not None:
            view = self.local.view(values[0].dtype).reshape(-1)
            for i, value in enumerate(values):
                view[at // size + i] = value if mask is None else value[mask]

    def param(self, offset, code):
        data = self.launch.parameters[offset:offset + int(code[1])]
        if len(data) != int(code[1]):
            raise Violation(f"a parameter at {offset} of {len(self.launch.parameters)} bytes")
        return self.every(np.frombuffer(data, code)[0])

    def param_at(self, address, extra, code, mask):
        size = int(code[1])
        chosen = self._select(mask, address)
        if chosen is None:
            return self._nothing(code, 1)[0]
        at = (chosen[0] - np.uint64(PARAM_BASE)).astype("i8") + extra
        data = np.frombuffer(self.launch.parameters, "u1")
        if at.min() < 0 or at.max() + size > len(data):
            raise Violation("an access outside of the parameters")
        value = data[at[:, None] + np.arange(size)].reshape(-1).view(code)
        return self._expand(mask, [value], code)[0]

    # --- copies that a thread waits for

    def copy_async(self, site, to, source, size, given, mask):
        """The source is read at once. The destination is undefined until the copy is waited for,
        and written then, or at once if the chunk is prompt."""
        given = self.every(np.uint32(size)) if given is None else given
        chosen = self._select_shared(mask, to, size, source, given, np.arange(self.lane_count))
        if chosen is None:
            return
        at, who, (source, given, lanes) = chosen
        if not np.isin(given, (0, size)).all():
            raise Violation("a copy of a part of its bytes is not known here")
        shared = self.chunk.shared
        rows = np.zeros((len(at), size), "u1")
        whole = given == size
        if whole.any():
            memory = self.launch.memory
            offset = memory.place(site, source[whole], size, False)
            rows[whole] = memory.image.reshape(-1, size)[offset // np.uint64(size)]
        shared.expect_copy(at, size, who)
        copy = (lanes, self._groups[lanes], at, rows)
        if self.chunk.prompt:
            self._arrive(*copy)
        else:
            self._copies.append(copy)

    def _arrive(self, lanes, _groups, at, rows):
        self.chunk.shared.finish_copy(at, rows, self.warp, self._steps[lanes])

    def commit_copies(self, mask):
        self._groups = self._groups + (1 if mask is None else mask)

    def wait_copies(self, pending, mask):
        """All groups but the last `pending` arrive."""
        left = []
        for copy in self._copies:
            lanes, groups = copy[:2]
            done = groups < self._groups[lanes] - pending
            if mask is not None:
                done &= mask[lanes]
            if done.any():
                self._arrive(*(part[done] for part in copy))
            if not done.all():
                left.append(tuple(part[~done] for part in copy))
        self._copies = left

    # --- barriers of a block

    def advance(self, blocks):
        """What the warp does from here on is not known to those that met it before."""
        self.clock[blocks, self.warp] += 1
        self._steps = self.clock[self.block, self.warp]

    def learn(self, blocks, clock):
        self.clock[blocks] = np.maximum(self.clock[blocks], clock)

    def barrier_sync(self, ids, counts, mask):
        """Lanes that may pass."""
        blocks = self.warp_blocks(mask)
        passed = np.zeros(self.chunk.count, bool)
        for barrier, count, some in self._barriers(ids, counts, blocks):
            new = some[self.waits[some] < 0]
            if len(new):
                self.waits[new] = barrier.generation[new]
                barrier.arrive(new, count, self.clock[new])
                self.advance(new)
            done = some[barrier.generation[some] > self.waits[some]]
            if len(done):
                self.learn(done, barrier.published[done])
                self.waits[done] = -1
                passed[done] = True
        return passed[self.block]

    def barrier_arrive(self, ids, counts, mask):
        blocks = self.warp_blocks(mask)
        for barrier, count, some in self._barriers(ids, counts, blocks):
            barrier.arrive(some, count, self.clock[some])
            self.advance(some)

    def _barriers(self, ids, counts, blocks):
        """(barrier, threads, blocks) for each that the lanes name."""
        first = blocks * 32
        names = ids if ids.ndim == 0 else ids[first]
        threads = None if counts is None else (counts if counts.ndim == 0 else counts[first])
        for name in np.unique(names):
            some = blocks if names.ndim == 0 else blocks[names == name]
            count = None
            if threads is not None:
                of_these = np.unique(threads if threads.ndim == 0 else threads[names == name])
                if len(of_these) != 1:
                    raise Violation("a barrier with different numbers of threads")
                count = int(of_these[0])
            yield self.chunk.barrier(int(name)), count, some
