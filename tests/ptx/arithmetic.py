# SPDX-License-Identifier: Apache-2.0
"""What instructions compute, where numpy has no function for it: roundings and approximations, and
the fragments of matrices that the lanes of a warp hold."""

import numpy as np


def fma_f32(a, b, c):
    """The product is exact in fp64 and the sum is rounded twice, to 53 and to 24 bits: in rare
    cases (one in 2^28 for random numbers) that is not the correctly rounded result."""
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


# The chip's approximations are wrong by up to 2^-22 (ex2) and one unit in the last place (rcp).
# Here they are, upwards or downwards by the last bit of the argument.
_EX2_ERROR = np.array([1 + 0.75 * 2**-22, 1 - 0.75 * 2**-22], "f4")
_RCP_ERROR = np.array([1 + 2**-23, 1 - 2**-23], "f4")


def ex2_f32(x):
    return np.exp2(x) * _EX2_ERROR[x.view("u4") & np.uint32(1)]


def rcp_approx_f32(x):
    return 1 / x * _RCP_ERROR[x.view("u4") & np.uint32(1)]


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


def to_f16(x):
    """As bits; a NaN becomes the one of the GPU's conversion."""
    return np.where(np.isnan(x), np.uint16(0x7FFF), np.asarray(x).astype("f2").view("u2"))


def pack_f16(high, low):
    return to_f16(high).astype("u4") << np.uint32(16) | to_f16(low)


def from_f16(bits):
    return np.asarray(bits).astype("u2").view("f2").astype("f4")


def saturate(x):
    return np.fmin(np.fmax(x, np.float32(0)), np.float32(1))


def nearest_s32(x):
    near = np.rint(x.astype("f8"))
    return np.where(np.isnan(near), 0, np.clip(near, -2147483648, 2147483647)).astype("i4")


def reverse_bits(x):
    for shift, mask in (1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF):
        x = (x >> np.uint32(shift) & np.uint32(mask)) | (x & np.uint32(mask)) << np.uint32(shift)
    return x >> np.uint32(16) | x << np.uint32(16)


def count_bits(x):
    """Bits that are 1."""
    for shift, mask in (1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF):
        x = (x & np.uint32(mask)) + (x >> np.uint32(shift) & np.uint32(mask))
    return (x & np.uint32(0xFFFF)) + (x >> np.uint32(16))


def leading_zeros(x):
    """Zeros above the highest bit that is 1; 2^32 - 1 where there is none."""
    bits = np.frexp(x.astype("f8"))[1]
    return np.where(x == 0, 0xFFFFFFFF, 32 - bits).astype("u4")


def pack(parts, bits):
    """One integer from two of half its size, the lower first."""
    wide = f"u{bits // 8}"
    low, high = (np.asarray(part).astype(wide) for part in parts)
    return low | high << np.array(bits // 2, wide)


def permute_bytes(low, high, selector):
    """Four of the eight bytes, each by three bits of a digit of the selector; with the fourth, its
    sign only."""
    wide, out = pack((low, high), 64), np.uint64(0)
    for i in range(4):
        digit = (np.asarray(selector) >> np.uint32(4 * i)).astype("u8")
        byte = wide >> (digit & np.uint64(7)) * np.uint64(8) & np.uint64(255)
        sign = (byte >> np.uint64(7)) * np.uint64(255)
        out = out | np.where(digit & np.uint64(8), sign, byte) << np.uint64(8 * i)
    return out.astype("u4")


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


def halves_f16(word):
    """The same of fp16."""
    return np.ascontiguousarray(word).view("f2").reshape(word.shape + (2,)).astype("f4")


def fragment_a(words, widen=halves):
    """[warps, 16, 16] from four registers."""
    # Register i has rows g + 8 (i & 1), columns 2 t + 8 (i >> 1) and the next; lane = 4 g + t.
    both_of = widen(np.array(words)).reshape(2, 2, -1, 8, 4, 2)
    return both_of.transpose(2, 1, 3, 0, 4, 5).reshape(-1, 16, 16)


def fragment_b(words, widen=halves):
    """[warps, 16, 8] from two registers: rows 2 t + 8 i and the next, column g."""
    both_of = widen(np.array(words)).reshape(2, -1, 8, 4, 2)
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


# What the source that translator.py makes may call.
FUNCTIONS = [fma_f32, fma_down_f32, fma_f64, ex2_f32, rcp_approx_f32, rcp_approx_f64, to_bf16,
             pack_bf16, to_f16, pack_f16, from_f16, saturate, nearest_s32, reverse_bits,
             count_bits, leading_zeros, pack, unpack, permute_bytes, insert_bits, both, mma_m16n8k16]
