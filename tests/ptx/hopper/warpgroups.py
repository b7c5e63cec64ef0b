# SPDX-License-Identifier: Apache-2.0
"""Instructions of compute capability 9.0: barriers in shared memory, bulk copies of boxes of a
tensor, products of a warpgroup, and registers that warpgroups give to each other.

Copies and products are done as late as allowed: a copy when no warp can go on without it, a product
when its result is waited for. Until then, neither its destination nor its accumulators can be read.
"""

import struct

import numpy as np

from arithmetic import fragment_a, fragment_c, halves, scatter_c
from gang import Gang
from ptx import Violation
from translator import PARAM_BASE

BARRIERS_MAX = 40 # in a block
_TX_MAX = (1 << 20) - 1


class MemoryBarrier:
    """An mbarrier, in each block of a chunk. A phase ends when as many threads have arrived as it
    was made for, and as many bytes as were announced."""

    def __init__(self, chunk, agent):
        self.chunk, self.agent = chunk, agent
        self.count = np.zeros(chunk.count, "i8") # 0: not initialised
        self.pending, self.bytes, self.phase = (np.zeros(chunk.count, "i8") for _ in range(3))
        self.gathered = np.zeros((chunk.count, chunk.shared.agents), "i4")
        self.published = self.gathered.copy()

    def init(self, blocks, counts):
        if (counts < 1).any() or (counts > _TX_MAX).any():
            raise Violation("an mbarrier of a wrong number of arrivals")
        self.count[blocks] = self.pending[blocks] = counts
        self.bytes[blocks] = self.phase[blocks] = 0
        self.gathered[blocks] = 0

    def arrive(self, blocks, arrivals, expected, clock):
        if (self.pending[blocks] < arrivals).any():
            raise Violation("more threads arrive at an mbarrier than it waits for")
        self.bytes[blocks] += expected
        self.pending[blocks] -= arrivals
        self.gathered[blocks] = np.maximum(self.gathered[blocks], clock)
        self._complete(blocks)

    def deliver(self, block, size):
        """Bytes of a bulk copy have arrived."""
        self.bytes[block] -= size
        self.gathered[block, self.agent] = self.phase[block] + 1
        self._complete(np.array([block]))

    def _complete(self, blocks):
        if (np.abs(self.bytes[blocks]) > _TX_MAX).any():
            raise Violation("an mbarrier waits for more bytes than it can count")
        done = blocks[(self.pending[blocks] == 0) & (self.bytes[blocks] == 0)]
        if len(done):
            self.phase[done] += 1
            self.pending[done] = self.count[done]
            self.published[done] = self.gathered[done]
            self.chunk.wake()


class TensorMap:
    """What cuTensorMapEncodeTiled of runtime.c leaves: see there."""

    def __init__(self, data, memory):
        magic, kind, self.rank, _ = struct.unpack_from("<4s3I", data)
        if magic != b"mics":
            raise Violation("a bulk copy by a map that is none")
        if kind != 9:
            raise Violation(f"a tensor map of type {kind} is not known here: only bf16")
        (self.address,) = struct.unpack_from("<Q", data, 16)
        self.sizes = struct.unpack_from("<5Q", data, 24)[:self.rank]
        self.strides = (2,) + struct.unpack_from("<4Q", data, 64)[:self.rank - 1]
        self.swizzle, interleave, fill = data[96:99]
        self.box = struct.unpack_from("<5H", data, 100)[:self.rank]
        steps = struct.unpack_from("<5H", data, 110)[:self.rank]
        if self.swizzle not in (0, 3) or interleave or fill or any(s != 1 for s in steps):
            raise Violation("a tensor map with modes that are not known here")
        self.bytes = 2 * int(np.prod(self.box))
        extent = sum((n - 1) * s for n, s in zip(self.sizes, self.strides)) + 2
        self.buffer = memory.find(self.address, extent)
        if self.buffer is None:
            raise Violation("a tensor map of more than its buffer")

    def read(self, memory, corner):
        """The box as 16-byte pieces, with zeros outside of the tensor."""
        place = self.address - self.buffer.address + self.buffer.offset
        inside = True
        for i, (first, count, size, stride) in enumerate(zip(corner, self.box, self.sizes,
                                                             self.strides)):
            index = first + np.arange(count)
            good = (index >= 0) & (index < size)
            shape = (count,) + (1,) * i # the first dimension is the innermost
            place = place + (np.where(good, index, 0) * stride).reshape(shape)
            inside = inside & good.reshape(shape)
        data = memory.views["u2"][place.reshape(-1) >> 1]
        data[~inside.reshape(-1)] = 0
        return data.view("u1").reshape(-1, 16)

    def pieces(self, to):
        """Addresses of the pieces in shared memory, for a box that begins at `to`."""
        at = to + np.arange(0, self.bytes, 16)
        return at ^ (at >> 7 & 7) << 4 if self.swizzle else at


class BulkCopies:
    """The mbarriers of a chunk's blocks, and the copies that have not arrived."""

    def __init__(self, chunk):
        self.chunk = chunk
        self._barriers, self._copies, self._maps = {}, [], {}
        self._log = {}

    def barrier(self, address, make=False):
        if address % 8:
            raise Violation("an mbarrier that is not aligned to 8 bytes")
        if address not in self._barriers:
            if not make:
                raise Violation(f"no mbarrier was initialised at {address}")
            if len(self._barriers) == BARRIERS_MAX:
                raise Violation(f"more than {BARRIERS_MAX} mbarriers are not known here")
            agent = self.chunk.launch.warps + len(self._barriers)
            self._barriers[address] = MemoryBarrier(self.chunk, agent)
        return self._barriers[address]

    def _map(self, address):
        if address not in self._maps:
            launch = self.chunk.launch
            offset = address - PARAM_BASE
            if 0 <= offset < len(launch.parameters):
                data = launch.parameters[offset:offset + 128]
            else:
                buffer = launch.memory.find(address, 128)
                if buffer is None:
                    raise Violation("a tensor map where no memory is")
                data = launch.memory.bytes_of(buffer)[address - buffer.address:][:128].tobytes()
            if address % 64 or len(data) != 128:
                raise Violation("a tensor map that is not aligned to 64 bytes, or not whole")
            self._maps[address] = TensorMap(data, launch.memory)
        return self._maps[address]

    def begin(self, gang, block, to, map_address, corner, barrier_address):
        shared = self.chunk.shared
        tensor = self._map(map_address)
        if len(corner) != tensor.rank:
            raise Violation("a bulk copy with another number of dimensions than its map")
        if to % 128 or to + tensor.bytes > shared.size:
            raise Violation(f"a bulk copy of {tensor.bytes} bytes to {to} of the {shared.size} "
                            "bytes of shared memory, or not aligned to 128 bytes")
        barrier = self.barrier(barrier_address)
        gang.check_barrier(barrier_address, np.array([block]))
        words = shared.granules(np.array([block * shared.stride + barrier_address]), 8)
        shared.check_fenced(words, "an mbarrier of a bulk copy")
        at = tensor.pieces(to) + block * shared.stride
        shared.expect_copy(at, 16, gang.view_of(np.full(len(at), block)))
        copy = (block, at, tensor, corner, barrier)
        if self.chunk.prompt:
            self._deliver(copy)
        else:
            self._copies.append(copy)

    def deliver_one(self):
        """One copy in each block, the same one where blocks do the same, so that they stay
        together; whether there was any."""
        pick, waiting = self.chunk.random.random(), {}
        for copy in self._copies:
            waiting.setdefault(copy[0], []).append(copy)
        self._copies = []
        for copies in waiting.values():
            arriving = copies.pop(int(pick * len(copies)))
            self._copies += copies
            self._deliver(arriving)
        return bool(waiting)

    def _deliver(self, copy):
        block, at, tensor, corner, barrier = copy
        rows = tensor.read(self.chunk.launch.memory, corner)
        self.chunk.shared.finish_copy(at, rows, barrier.agent,
                                      np.full(len(at), barrier.phase[block] + 1))
        barrier.deliver(block, tensor.bytes)

    def agree(self, group, block, step, what):
        """All four warps of a warpgroup execute the same, with the same operands."""
        key = (group, block, step)
        known, count = self._log.get(key, (what, 0))
        if known != what:
            raise Violation(f"the warps of a warpgroup go apart: PTX line {known[0]} and "
                            f"{what[0]}, or its operands differ")
        if count == 3:
            del self._log[key]
        else:
            self._log[key] = known, count + 1

    def check_end(self):
        if self._copies:
            raise Violation("the kernel ends while a bulk copy is under way")
        for address, barrier in self._barriers.items():
            if barrier.bytes.any():
                raise Violation(f"the kernel ends while the mbarrier at {address} waits for "
                                f"{int(barrier.bytes[barrier.bytes != 0][0])} bytes")
        if self._log:
            raise Violation("not all warps of a warpgroup executed PTX line "
                            f"{next(iter(self._log.values()))[0][0]}")
        for gang in self.chunk.gangs:
            if gang.products:
                raise Violation("the kernel ends while a product is under way")


class RegisterPool:
    """Registers of a block that no warp has, and how many each thread has."""

    def __init__(self, chunk):
        kernel, threads = chunk.code.kernel, chunk.launch.warps * 32
        # What ptxas may use: the register file by the blocks that the kernel is made for.
        share = 65536 // (kernel.threads_max * kernel.blocks_min) // 8 * 8
        self.first = min(share, 256)
        self.free = np.zeros(chunk.count, "i8")
        self.each = np.full((chunk.count, threads // 32), self.first)


class InFlight:
    """What a register holds whose value a product will write."""

    def __getattr__(self, name):
        raise Violation("uses an accumulator of a product that was not waited for")


_IN_FLIGHT = InFlight()


class Accumulator:
    """The sums of products that are under way. matrix: the warp's 16 rows, in each block."""

    def __init__(self, blocks, columns):
        self.matrix = np.zeros((blocks, 16, columns), "f4")
        self.count = np.zeros(blocks, "i8")


class Product:
    def __init__(self, columns, registers, a, b, add, majors, blocks, groups):
        self.columns, self.registers, self.a, self.b = columns, registers, a, b
        self.add, self.majors, self.blocks, self.groups = add, majors, blocks, groups
        self.done = False


class HopperGang(Gang):
    """A warp of several blocks, with the instructions of compute capability 9.0."""

    def __init__(self, chunk, warp):
        super().__init__(chunk, warp)
        self.products, self._sums = [], {}
        self._committed = np.zeros(chunk.count, "i8")
        self._fenced = [None] * chunk.count # registers at the last wgmma.fence
        self._step = np.zeros(chunk.count, "i8")

    # --- mbarriers and bulk copies

    def _by_address(self, address, mask):
        """(address, lanes) for each address that active lanes have."""
        lanes = np.flatnonzero(self.alive if mask is None else mask)
        at = (address if address.ndim else self.every(address))[lanes]
        first = at[0] if len(at) else 0
        if (at == first).all():
            return [(int(first), lanes)] if len(at) else []
        return [(int(one), lanes[at == one]) for one in np.unique(at)]

    def check_barrier(self, address, blocks):
        """The initialisation comes before this use of the barrier."""
        barrier, shared = self.chunk.copies.barrier(address), self.chunk.shared
        if (barrier.count[blocks] == 0).any():
            raise Violation(f"no mbarrier was initialised at {address}")
        words = shared.granules(blocks * shared.stride + address, 8)
        known = self.clock[blocks[:, None], shared.writer[words]]
        if (shared.written[words] > known).any():
            raise Violation(f"warp {self.warp} uses the mbarrier at {address} without a barrier "
                            "behind its initialisation")
        return barrier

    def mbarrier_init(self, address, counts, mask):
        shared = self.chunk.shared
        for at, lanes in self._by_address(address, mask):
            blocks = self.block[lanes]
            if at + 8 > shared.size:
                raise Violation(f"an mbarrier at {at} of {shared.size} bytes")
            self.chunk.copies.barrier(at, True).init(blocks, counts[lanes].astype("i8"))
            words = shared.granules(blocks * shared.stride + at, 8)
            who = self.view_of(blocks)
            shared.check_write(words, who)
            shared.note_write(words, self.warp, who.steps, True)

    def mbarrier_arrive(self, address, sizes, mask):
        for at, lanes in self._by_address(address, mask):
            blocks, arrivals = np.unique(self.block[lanes], return_counts=True)
            barrier = self.check_barrier(at, blocks)
            expected = np.zeros(self.chunk.count, "i8")
            if sizes is not None:
                np.add.at(expected, self.block[lanes], sizes[lanes].astype("i8"))
            barrier.arrive(blocks, arrivals, expected[blocks], self.clock[blocks])
            self.advance(blocks)

    def mbarrier_try(self, address, parity, mask):
        """(lanes that go on, lanes whose phase is over). An attempt may also end without."""
        over = np.zeros(self.lane_count, bool)
        for at, lanes in self._by_address(address, mask):
            barrier = self.check_barrier(at, np.unique(self.block[lanes]))
            done = lanes[(barrier.phase[self.block[lanes]] & 1) != parity[lanes]]
            if len(done):
                blocks = np.unique(self.block[done])
                self.learn(blocks, barrier.published[blocks])
                over[done] = True
        if self.chunk.random.random() < 0.25:
            return (self.alive if mask is None else mask), over
        return over, over

    def bulk_load(self, to, maps, corners, barriers, mask):
        for lane in np.flatnonzero(self.alive if mask is None else mask):
            corner = [int(c[lane]) - (int(c[lane]) >> 31 << 32) for c in corners]
            self.chunk.copies.begin(self, int(self.block[lane]), int(self.every(to)[lane]),
                                    int(maps[lane]), corner, int(self.every(barriers)[lane]))

    def fence_proxy(self, mask):
        active = self.alive if mask is None else mask
        self.chunk.shared.fence(np.unique(self.block[active]), self.warp)

    # --- registers

    def _registers(self, count, mask):
        if not 24 <= count <= 256 or count % 8:
            raise Violation(f"setmaxnreg of {count}")
        blocks = self.warp_blocks(mask)
        return blocks, self.chunk.pool.each[blocks, self.warp]

    def registers_dec(self, count, mask):
        blocks, have = self._registers(count, mask)
        if (have < count).any():
            raise Violation(f"setmaxnreg.dec to {count} of {int(have.min())}")
        self.chunk.pool.free[blocks] += (have - count) * 32
        self.chunk.pool.each[blocks, self.warp] = count
        self._agree(blocks, [("setmaxnreg.dec", count)] * len(blocks))
        self.chunk.wake()

    def registers_inc(self, count, mask):
        blocks, have = self._registers(count, mask)
        if (have > count).any():
            raise Violation(f"setmaxnreg.inc to {count} of {int(have.max())}")
        pool = self.chunk.pool
        need = (count - have) * 32
        granted = blocks[pool.free[blocks] >= need]
        pool.free[granted] -= (count - pool.each[granted, self.warp]) * 32
        pool.each[granted, self.warp] = count
        self._agree(granted, [("setmaxnreg.inc", count)] * len(granted))
        passed = np.zeros(self.chunk.count, bool)
        passed[granted] = True
        return passed[self.block]

    # --- products of a warpgroup

    def _agree(self, blocks, whats):
        for block, what in zip(blocks.tolist(), whats):
            self.chunk.copies.agree(self.warp // 4, block, int(self._step[block]), what)
        self._step[blocks] += 1

    def _lanes_of(self, blocks):
        return (blocks[:, None] * 32 + np.arange(32)).ravel()

    def wgmma_fence(self, line, registers, mask):
        blocks = self.warp_blocks(mask)
        self._agree(blocks, [(line,)] * len(blocks))
        now = list(registers)
        for block in blocks.tolist():
            self._fenced[block] = now

    def _check_fenced(self, registers, numbers, blocks):
        """No register was written since the fence."""
        for block in blocks.tolist():
            then = self._fenced[block]
            if then is None:
                raise Violation("a product without a wgmma.fence before")
            for i in numbers:
                now = registers[i]
                if then[i] is now:
                    continue
                lanes = slice(block * 32, block * 32 + 32)
                if then[i] is _IN_FLIGHT or (then[i][lanes].view("u4") !=
                                             now[lanes].view("u4")).any():
                    raise Violation("a product of registers that were written after the last "
                                    "wgmma.fence")

    def wgmma(self, line, columns, d, a, b, add, a_trans, b_trans, registers, mask):
        blocks = self.warp_blocks(mask)
        if len(blocks) == 0:
            return
        first = blocks * 32
        held = isinstance(a, tuple)
        descriptors = b[first], None if held else a[first]
        self._agree(blocks, [(line, int(b[i]), None if held else int(a[i])) for i in first])
        sums = self._sums.get(d)
        if sums is None:
            for other, known in self._sums.items():
                if known.count[blocks].any() and not set(other).isdisjoint(d):
                    raise Violation("a product whose accumulators overlap another's")
            sums = self._sums[d] = Accumulator(self.chunk.count, columns)
        fresh = blocks[sums.count[blocks] == 0]
        if len(fresh):
            self._check_fenced(registers, d, fresh)
            whole = fragment_c([registers[i] for i in d])
            sums.matrix[fresh] = whole[fresh]
            self._poison(registers, d, fresh)
        if held:
            self._check_fenced(registers, a, blocks)
        sums.count[blocks] += 1
        product = Product(columns, d, a if held else descriptors[1], descriptors[0],
                          add[first], (a_trans, b_trans), blocks, self._committed[blocks].copy())
        self.products.append(product)
        if self.chunk.prompt:
            self._multiply(product, registers, np.arange(len(blocks)))
            product.done = True

    def _poison(self, registers, numbers, blocks):
        if len(blocks) == self.chunk.count:
            for i in numbers:
                registers[i] = _IN_FLIGHT
            return
        lanes = self._lanes_of(blocks)
        for i in numbers:
            registers[i] = registers[i].copy()
            registers[i][lanes] = np.nan

    def wgmma_commit(self, line, mask):
        blocks = self.warp_blocks(mask)
        self._agree(blocks, [(line,)] * len(blocks))
        self._committed[blocks] += 1

    def wgmma_wait(self, line, pending, registers, mask):
        """All groups but the last `pending` are done."""
        blocks = self.warp_blocks(mask)
        self._agree(blocks, [(line,)] * len(blocks))
        waiting = np.zeros(self.chunk.count, bool)
        waiting[blocks] = True
        left = []
        for product in self.products:
            over = waiting[product.blocks] & (
                product.groups < self._committed[product.blocks] - pending)
            if over.any():
                some = np.flatnonzero(over)
                if not product.done:
                    self._multiply(product, registers, some)
                self._finish(product, registers, product.blocks[some])
            if not over.all():
                keep = ~over
                product.blocks, product.groups = product.blocks[keep], product.groups[keep]
                product.b, product.add = product.b[keep], product.add[keep]
                if not isinstance(product.a, tuple):
                    product.a = product.a[keep]
                left.append(product)
        self.products = left

    def _multiply(self, product, registers, some):
        blocks = product.blocks[some]
        right = self._tile(product.b[some], blocks, 0, product.columns, product.majors[1])
        if isinstance(product.a, tuple):
            left = fragment_a([registers[i] for i in product.a])[blocks]
        else:
            left = self._tile(product.a[some], blocks, self.warp % 4 * 16, 16, product.majors[0])
        sums = self._sums[product.registers]
        before = np.where(product.add[some][:, None, None], sums.matrix[blocks], np.float32(0))
        sums.matrix[blocks] = np.matmul(left, right.swapaxes(1, 2)) + before

    def _tile(self, descriptor, blocks, first, rows, mn_major):
        """[blocks, rows, 16] of a factor: its rows from `first` on, times 16 of the products'
        k."""
        shared = self.chunk.shared
        start, leading, stride = (
            (descriptor >> np.uint64(at) & np.uint64(0x3FFF)).astype("i8") << 4
            for at in (0, 16, 32))
        if (descriptor >> np.uint64(62) != 1).any() or (
                descriptor >> np.uint64(49) & np.uint64(7)).any():
            raise Violation("a matrix descriptor without the 128-byte swizzle, or with a base "
                            "offset, is not known here")
        start, leading, stride = (x[:, None, None] for x in (start, leading, stride))
        if mn_major: # [16 of k, pieces of 8 rows]
            k, piece = np.arange(16)[:, None], np.arange(first // 8, (first + rows) // 8)
            at = start + piece // 8 * leading + k // 8 * stride + k % 8 * 128 + piece % 8 * 16
        else: # [rows, 2 pieces of 8 of k]
            row = np.arange(first, first + rows)[:, None]
            at = start + row // 8 * stride + row % 8 * 128 + np.arange(2) * 16
        if int(at.max()) + 16 > shared.size:
            raise Violation(f"a factor of a product at {int(at.max())} of the {shared.size} bytes "
                            "of shared memory")
        at = (at ^ (at >> 7 & 7) << 4) + blocks[:, None, None] * shared.stride
        flat = at.ravel()
        shared.check_valid(flat, 16)
        words = shared.granules(flat, 16)
        shared.check_fenced(words, "a product")
        shared.check_read(words, self.view_of(np.repeat(blocks, at[0].size)))
        values = halves(shared.views["u4"].reshape(-1, 4)[flat >> 4])
        values = values.reshape(at.shape[:2] + (-1,))
        return values.swapaxes(1, 2) if mn_major else values

    def _finish(self, product, registers, blocks):
        """Registers get their sums when the last product that adds to them is over."""
        sums = self._sums[product.registers]
        sums.count[blocks] -= 1
        ready = blocks[sums.count[blocks] == 0]
        if len(ready) == 0:
            return
        values = scatter_c(sums.matrix)
        lanes = self._lanes_of(ready)
        fenced = {id(self._fenced[b]): self._fenced[b] for b in ready.tolist()}.values()
        for i, value in zip(product.registers, values):
            if len(ready) == self.chunk.count:
                registers[i] = value
            else:
                registers[i] = registers[i].copy()
                registers[i][lanes] = value[lanes]
            for then in fenced:
                then[i] = registers[i]
        if not sums.count.any():
            del self._sums[product.registers]
