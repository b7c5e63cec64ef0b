# SPDX-License-Identifier: Apache-2.0
"""Launch a kernel: blocks in chunks, and the warps of a block in a random order.

A warp runs until it waits, ends, or by chance. Whatever may arrive late arrives when nothing else
can happen any more.
"""

import random

import numpy as np

from gang import Gang
from hopper import warpgroups
from memory import SharedMemory
from ptx import Violation

_LANES = 1024      # of a gang, about: with more, numpy's own costs do not matter any more
_SHARED = 24 << 20 # bytes for the shared memory of a chunk, and what is known of it


class Launch:
    """A grid. code: instructions.Instructions; parameters: bytes; seed: of the warps' order;
    prompt: copies and products are done at once, instead of as late as allowed."""

    def __init__(self, code, memory, grid, block, parameters, seed, prompt=False):
        self.code, self.memory, self.grid, self.block = code, memory, grid, block
        self.parameters = parameters
        self.prompt = prompt
        self.random = random.Random(seed)
        threads = block[0] * block[1] * block[2]
        if threads > code.kernel.threads_max:
            raise Violation(f"{threads} threads, and the kernel is made for at most "
                            f"{code.kernel.threads_max}")
        if len(parameters) != code.kernel.parameter_bytes:
            raise Violation(f"{len(parameters)} bytes of parameters, and the kernel has "
                            f"{code.kernel.parameter_bytes}")
        self.warps = -(-threads // 32)

    def run(self):
        blocks = self.grid[0] * self.grid[1] * self.grid[2]
        order = list(range(blocks))
        self.random.shuffle(order)
        size = self._chunk_size()
        with np.errstate(all="ignore"):
            for at in range(0, blocks, size):
                Chunk(self, np.array(order[at:at + size])).run()

    def _chunk_size(self):
        code = self.code
        if not code.uses_shared:
            return max(1, 4 * _LANES // (self.warps * 32))
        known = 2 + (9 + 4 * self.warps) / code.granule
        return max(1, min(_LANES // 32, int(_SHARED / (code.shared_bytes * known))))


class Barrier:
    """One of the 16 named barriers, in each block of a chunk."""

    def __init__(self, chunk, name):
        self.chunk, self.name = chunk, name
        self.generation = np.zeros(chunk.count, "i8")
        self.arrived = np.zeros(chunk.count, "i8")
        self.expected = np.full(chunk.count, -1, "i8") # threads; -1: all of the block
        self.gathered = np.zeros((chunk.count, chunk.shared.agents), "i4")
        self.published = self.gathered.copy()

    def arrive(self, blocks, count, clock):
        if count is not None and (count % 32 or not 0 < count <= self.chunk.launch.warps * 32):
            raise Violation(f"barrier {self.name} of {count} threads")
        wanted = -1 if count is None else count
        fresh = self.arrived[blocks] == 0
        if (~fresh & (self.expected[blocks] != wanted)).any():
            raise Violation(f"barrier {self.name} with different numbers of threads")
        self.expected[blocks] = wanted
        self.arrived[blocks] += 32
        self.gathered[blocks] = np.maximum(self.gathered[blocks], clock)
        self.complete(blocks)

    def complete(self, blocks):
        """Let threads go where all have come."""
        wanted = np.where(self.expected[blocks] < 0, self.chunk.live_warps[blocks] * 32,
                          self.expected[blocks])
        if (self.arrived[blocks] > wanted).any():
            raise Violation(f"more threads come to barrier {self.name} than it waits for")
        done = blocks[(self.arrived[blocks] == wanted) & (self.arrived[blocks] > 0)]
        if len(done):
            self.generation[done] += 1
            self.arrived[done] = 0
            self.published[done] = self.gathered[done]
            self.gathered[done] = 0
            self.chunk.wake()


class Chunk:
    """Blocks that are executed together."""

    def __init__(self, launch, ids):
        self.launch, self.code, self.count = launch, launch.code, len(ids)
        self.prompt, self.random = launch.prompt, launch.random
        gx, gy, _ = launch.grid
        self.block_ids = ids % gx, ids // gx % gy, ids // (gx * gy)
        self.live_warps = np.full(self.count, launch.warps)
        self.shared, self.chance = None, lambda: False
        self._barriers = {}
        if not self.code.uses_shared:
            self.gangs = [Gang(self, None)]
            return
        proxies = self.code.uses_async_proxy
        agents = launch.warps + (warpgroups.BARRIERS_MAX if proxies else 0)
        self.shared = SharedMemory(self.count, self.code.shared_bytes, launch.warps, agents,
                                   self.code.granule, proxies)
        if launch.warps > 1:
            self.chance = lambda: self.random.random() < 1 / 16
        if proxies:
            self.copies = warpgroups.BulkCopies(self)
            self.pool = warpgroups.RegisterPool(self)
        self.gangs = [(warpgroups.HopperGang if proxies else Gang)(self, w)
                      for w in range(launch.warps)]

    def barrier(self, name):
        if not 0 <= name < 16:
            raise Violation(f"barrier {name}: there are 16")
        if name not in self._barriers:
            self._barriers[name] = Barrier(self, name)
        return self._barriers[name]

    def wake(self):
        for gang in self.gangs:
            gang.wake()

    def lanes_ended(self, gang, mask):
        """Barriers of all threads do not wait for warps that have ended."""
        if gang.warp is None:
            return
        over = mask.reshape(-1, 32).any(1) & ~gang.alive.reshape(-1, 32).any(1)
        blocks = np.flatnonzero(over)
        self.live_warps[blocks] -= 1
        for barrier in self._barriers.values():
            barrier.complete(blocks)

    def run(self):
        copies = getattr(self, "copies", None)
        while True:
            ready = [g for g in self.gangs if not g.blocked and not g.ended]
            if ready:
                self.random.choice(ready).run()
            elif all(g.ended for g in self.gangs):
                break
            elif copies is None or not copies.deliver_one():
                self._deadlock()
        for barrier in self._barriers.values():
            if barrier.arrived.any():
                raise Violation(f"the kernel ends while threads wait at barrier {barrier.name}")
        if copies is not None:
            copies.check_end()

    def _deadlock(self):
        waiting = {}
        for gang in self.gangs:
            if not gang.ended:
                waiting.setdefault(tuple(gang.positions()), []).append(gang.warp)
        text = "; ".join(f"warps {', '.join(map(str, warps))} at PTX line "
                         f"{' and '.join(map(str, lines))}" for lines, warps in waiting.items())
        raise Violation(f"waits for ever: {text}")
