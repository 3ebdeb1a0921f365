#!/usr/bin/env python3
"""A model of the canonical products in exact rationals, and the `gguf` package's reading of weights, as the golden file of
tests/kernels/test_reference.c.

    python3 tools/oracle/products_reference.py > tests/golden/products_reference.txt

Written from kernels/canonical.h alone: integers and fractions, each rounding to f32 made by hand. Lines:
    product TYPE COLS SEED INPUT BITS   one output: a row of weights times an input (rules 4 to 8), as the bits of the f32
    values TYPE COLS SEED HASH          the row as gguf 0.19.0 dequantises it (rule 20): FNV-1a, 64 bits, of its f32 bytes

Inputs are drawn from splitmix64(SEED), 64 bits at a time. First the row: its bytes, little-endian, the last draw cut; in each block the f16 scales keep sign and
mantissa and get an exponent of 8 (f32, f16 and bf16 rows: see `row_of`); for INPUT `greatest` every other byte of a quantised row is 0xff. Then, a draw for each x:
its low 16 bits as a signed integer, times 2^-12, times 64 where bits 16 to 20 are 0; `tiny`: times 2^-63; `greatest`: 3.0 for each.
"""
import os
import struct
import sys
from fractions import Fraction

MASK = (1 << 64) - 1
PYTHON = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/oracle/venv/bin/python")

# type: elements and bytes of a block, offsets of its f16 scales
TYPES = {
    "q8_0": (32, 34, [0]), "q4_0": (32, 18, [0]), "q4_1": (32, 20, [0, 2]), "q5_0": (32, 22, [0]), "q5_1": (32, 24, [0, 2]),
    "q3_k": (256, 110, [108]), "q4_k": (256, 144, [0, 2]), "q5_k": (256, 176, [0, 2]), "q6_k": (256, 210, [208]),
    "f32": (1, 4, []), "f16": (1, 2, []), "bf16": (1, 2, []),
}


class Draws:
    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        return z ^ z >> 31


def nearest(q, ulp):
    """The integer multiple of ulp nearest to q, ties to even."""
    n, d = (q / ulp).numerator, (q / ulp).denominator
    low, rest = divmod(n, d)
    if 2 * rest > d or (2 * rest == d and low & 1):
        low += 1
    return low * ulp


def f32(q):
    """Rounds a fraction to binary32; nothing here leaves its range."""
    if q == 0:
        return Fraction(0)
    e = abs(q.numerator).bit_length() - q.denominator.bit_length()  # or one more than the exponent
    e = max(e if abs(q) >= Fraction(2) ** e else e - 1, -126)
    r = nearest(q, Fraction(2) ** (e - 23))
    assert abs(r) < Fraction(2) ** 128
    return r


def bits(q):
    return struct.unpack("<I", struct.pack("<f", float(q)))[0]


def f16_at(row, at):
    return Fraction(struct.unpack_from("<e", row, at)[0])


def tree(lanes):
    while len(lanes) > 1:
        lanes = [f32(lanes[i] + lanes[i + 1]) for i in range(0, len(lanes), 2)]
    return lanes[0]


def fma(a, b, c):
    return f32(a * b + c)


def quantise(x):
    amax = max(abs(v) for v in x)
    if amax < Fraction(1, 2 ** 60):
        return Fraction(0), [0] * len(x)
    inverse = f32(127 / amax)
    return f32(amax / 127), [int(nearest(f32(v * inverse), Fraction(1))) for v in x]


def row_of(kind, cols, draws, greatest):
    block_len, block_bytes, scales = TYPES[kind]
    n = cols // block_len * block_bytes
    row = bytearray(b"".join(struct.pack("<Q", draws.next()) for _ in range((n + 7) // 8))[:n])
    if block_len == 1:  # an exponent in the middle of the range, sign and mantissa as drawn
        for i in range(cols):
            if kind == "f32":
                v, = struct.unpack_from("<I", row, 4 * i)
                struct.pack_into("<I", row, 4 * i, v & 0x80FFFFFF | 0x3F000000)
            else:
                v, = struct.unpack_from("<H", row, 2 * i)
                struct.pack_into("<H", row, 2 * i, v & 0x83FF | 0x3800 if kind == "f16" else v & 0x80FF | 0x3F00)
        return bytes(row)
    for at in range(0, n, block_bytes):
        kept = [struct.unpack_from("<H", row, at + s)[0] & 0x83FF | 0x2000 for s in scales]
        if greatest:
            row[at:at + block_bytes] = b"\xff" * block_bytes
        for s, v in zip(scales, kept):
            struct.pack_into("<H", row, at + s, v)
    return bytes(row)


def input_of(name, n, draws):
    out = []
    for _ in range(n):
        u = draws.next()
        v = Fraction((u & 0xFFFF ^ 0x8000) - 0x8000, 4096) * (64 if u >> 16 & 31 == 0 else 1)
        out.append(Fraction(3) if name == "greatest" else v / 2 ** 63 if name == "tiny" else v)
    return out


def block_32(kind, p):
    """(scale, min, 32 integers)"""
    if kind == "q8_0":
        return f16_at(p, 0), Fraction(0), list(struct.unpack("32b", p[2:34]))
    has_min, five = kind in ("q4_1", "q5_1"), kind in ("q5_0", "q5_1")
    at = 4 if has_min else 2
    high = int.from_bytes(p[at:at + 4], "little") if five else 0
    nibbles = p[at + 4:at + 20] if five else p[at:at + 16]
    q = [b & 15 for b in nibbles] + [b >> 4 for b in nibbles]
    q = [v + (high >> i & 1) * 16 - {"q4_0": 8, "q5_0": 16}.get(kind, 0) for i, v in enumerate(q)]
    return f16_at(p, 0), f16_at(p, 2) if has_min else Fraction(0), q


def block_256(kind, p):
    """(d, dmin, 16 scales of 16 elements, 8 mins of 32, 256 integers)"""
    if kind in ("q4_k", "q5_k"):
        packed = int.from_bytes(p[4:16], "little")
        byte = [packed >> 8 * i & 255 for i in range(12)]
        sc = [byte[i] & 63 for i in range(4)] + [byte[8 + i] & 15 | byte[i] >> 6 << 4 for i in range(4)]
        mn = [byte[4 + i] & 63 for i in range(4)] + [byte[8 + i] >> 4 | byte[4 + i] >> 6 << 4 for i in range(4)]
        low = p[16:] if kind == "q4_k" else p[48:]
        q = []
        for s in range(8):
            run = low[32 * (s // 2):32 * (s // 2) + 32]
            q += [(b >> 4 * (s % 2) & 15) + (16 * (p[16 + i] >> s & 1) if kind == "q5_k" else 0) for i, b in enumerate(run)]
        return f16_at(p, 0), f16_at(p, 2), [s for s in sc for _ in (0, 1)], mn, q
    q = []
    for half in (0, 1):
        for s in range(4):
            for i in range(32):
                if kind == "q6_k":
                    low = p[64 * half + 32 * (s % 2) + i] >> 4 * (s // 2) & 15
                    q.append((low | (p[128 + 32 * half + i] >> 2 * s & 3) << 4) - 32)
                else:
                    q.append((p[32 + 32 * half + i] >> 2 * s & 3 | (p[i] >> 4 * half + s & 1) << 2) - 4)
    if kind == "q6_k":
        return f16_at(p, 208), Fraction(0), list(struct.unpack("16b", p[192:208])), [0] * 8, q
    low = [b & 15 for b in p[96:104]] + [b >> 4 for b in p[96:104]]
    sc = [low[i] + 16 * (p[104 + i % 4] >> 2 * (i // 4) & 3) - 32 for i in range(16)]
    return f16_at(p, 108), Fraction(0), sc, [0] * 8, q


def dot_32(kind, row, x):
    lanes = [Fraction(0)] * 8
    size = TYPES[kind][1]
    for b in range(len(x) // 32):
        scale, least, w = block_32(kind, row[b * size:(b + 1) * size])
        dx, q = quantise(x[32 * b:32 * b + 32])
        lanes[b % 8] = fma(f32(Fraction(sum(a * c for a, c in zip(w, q)))), f32(scale * dx), lanes[b % 8])
        if kind in ("q4_1", "q5_1"):
            lanes[b % 8] = fma(f32(Fraction(sum(q))), f32(least * dx), lanes[b % 8])
    return tree(lanes)


def dot_256(kind, row, x):
    lanes = [Fraction(0)] * 4
    size = TYPES[kind][1]
    for b in range(len(x) // 256):
        d, dmin, sc, mn, w = block_256(kind, row[b * size:(b + 1) * size])
        dx, q = quantise(x[256 * b:256 * b + 256])
        s = f32(Fraction(sum(sc[i // 16] * w[i] * q[i] for i in range(256))))
        if kind in ("q4_k", "q5_k"):
            m = f32(Fraction(sum(mn[i // 32] * q[i] for i in range(256))))
            t = fma(s, d, -f32(m * dmin))
        else:
            t = f32(s * d)
        lanes[b % 4] = fma(t, dx, lanes[b % 4])
    return tree(lanes)


def dot_float(kind, row, x):
    lanes = [Fraction(0)] * 32
    for i, v in enumerate(x):
        if kind == "f16":
            w = f16_at(row, 2 * i)
        else:
            w = Fraction(struct.unpack("<f", row[4 * i:4 * i + 4] if kind == "f32" else b"\0\0" + row[2 * i:2 * i + 2])[0])
        lanes[i % 32] = fma(w, v, lanes[i % 32])
    return tree(lanes)


def fnv(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = (h ^ b) * 0x100000001B3 & MASK
    return h


def products():
    for seed, kind in enumerate(TYPES, 1):
        block = TYPES[kind][0]
        dot = {1: dot_float, 32: dot_32, 256: dot_256}[block]
        for name, cols in (("plain", 256), ("plain", 1280), ("plain", 2304), ("tiny", 1536), ("greatest", 1536)):
            if block == 1 and name == "greatest":
                continue
            draws = Draws(1000 * seed + cols)
            row = row_of(kind, cols, draws, name == "greatest")
            print("product", kind, cols, 1000 * seed + cols, name, "%08x" % bits(dot(kind, row, input_of(name, cols, draws))))


def values():
    import gguf
    import numpy
    for seed, kind in enumerate(TYPES, 1):
        row = row_of(kind, 768, Draws(seed), False)
        got = gguf.quants.dequantize(numpy.frombuffer(row, numpy.uint8), gguf.GGMLQuantizationType[kind.upper()]) \
            if kind != "f32" else numpy.frombuffer(row, numpy.float32)
        assert got.dtype == numpy.float32 and got.size == 768
        print("values", kind, 768, seed, "%016x" % fnv(got.tobytes()))


if __name__ == "__main__":
    if os.path.realpath(sys.prefix) != os.path.realpath(os.path.dirname(os.path.dirname(PYTHON))) and os.path.exists(PYTHON):
        os.execv(PYTHON, [PYTHON] + sys.argv)  # the Python that has gguf
    products()
    values()
