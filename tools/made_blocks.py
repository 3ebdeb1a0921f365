"""Blocks of random weights with a wanted root mean square and a mean of zero, at hundreds of megabytes a second without a library.

What a block holds is noise, except the fields that set its scale. One random byte of a block, its index, chooses them from a table of 256:
writing a field of every block at once is one strided copy, which Python does in C. Noise comes from a pool of SHAKE-128 output: each chunk is a
window at an offset of its own, its byte values renamed by a permutation of its own, so that no two chunks, and no two layers, have much
in common, for a compressor neither. Everything depends on the seed, the tensor's name and the chunk's number alone.
"""

import hashlib
import math
import struct

from gguf_header import TYPES

POOL_BYTES = 8 << 20
CHUNK_BYTES = 1 << 20  # a chunk holds the blocks that begin in it
BYTES = bytes(range(256))


class Noise:
    def __init__(self, seed):
        self.seed = seed
        pool = hashlib.shake_128(b"made model %d" % seed).digest(POOL_BYTES)
        self.pool = pool + pool[:CHUNK_BYTES]

    def chunk(self, name, i, n):
        """n <= CHUNK_BYTES random bytes: chunk i of the tensor `name`."""
        draw = hashlib.shake_128(b"%d/%s/%d" % (self.seed, name.encode(), i)).digest(4 + 512)
        at = struct.unpack_from("<I", draw)[0] % POOL_BYTES
        order = struct.unpack_from("<256H", draw, 4)
        renamed = bytes(sorted(BYTES, key=order.__getitem__))
        return bytearray(self.pool[at : at + n].translate(renamed))


def spread(signed):
    """256 factors around 1 of one mean square, half of them negative when signed: then weights whose own mean is not zero have one of zero."""
    sizes = [0.75 + 0.5 * (i >> 1) / 127 for i in BYTES]
    scale = 1 / math.sqrt(sum(s * s for s in sizes) / 256)
    return [scale * s * (-1 if signed and i & 1 else 1) for i, s in zip(BYTES, sizes)]


def f16_tables(values):
    """Tables of the low and the high byte of each value as f16."""
    raw = struct.pack("<256e", *values)
    return raw[0::2], raw[1::2]


def write_fields(buf, at, step, index, tables):
    """Sets bytes at, at + 1, ... of every block to what the tables have for its index."""
    for i, table in enumerate(tables):
        buf[at + i :: step] = index.translate(table)


def one_scale(block_bytes, at, unit):
    """Types with one f16 scale at byte `at` and quants of mean square unit * unit around about zero."""
    def make(rms):
        tables = f16_tables([rms / unit * f for f in spread(True)])

        def patch(buf):
            write_fields(buf, at, block_bytes, buf[at::block_bytes], tables)
        return patch
    return make


def q4_1(rms):
    d = [rms / math.sqrt(21.25) * f for f in spread(False)]
    tables, mins = f16_tables(d), f16_tables([-7.5 * v for v in d])

    def patch(buf):
        index = buf[0::20]
        write_fields(buf, 0, 20, index, tables)
        write_fields(buf, 2, 20, index, mins)
    return patch


# Scales of sub-blocks are 32 to 63 in 6 bits, and the mins are the same numbers: a weight is d * scale * (quant - middle).
LOW_SIX = bytes((b & 0x5F) | 0xA0 for b in BYTES)  # sub-block j's scale in bits 0 to 5, bits 4 and 5 of sub-block j + 4's in 6 and 7
TWICE = bytes((b & 0xF) * 0x11 for b in BYTES)     # bits 0 to 3 of sub-block j + 4's, of scale and min
SCALE_RMS = math.sqrt(47.5**2 + (32**2 - 1) / 12)


def k_with_min(block_bytes, middle, mean_square):
    """Q4_K and Q5_K: d, dmin, 12 bytes of scales, quants."""
    def make(rms):
        d = [rms / (SCALE_RMS * math.sqrt(mean_square)) * f for f in spread(False)]
        tables, mins = f16_tables(d), f16_tables([middle * v for v in d])

        def patch(buf):
            index = buf[0::block_bytes]
            write_fields(buf, 0, block_bytes, index, tables)
            write_fields(buf, 2, block_bytes, index, mins)
            for j in range(4, 8):
                low = buf[j::block_bytes].translate(LOW_SIX)
                buf[j::block_bytes] = low
                buf[j + 4 :: block_bytes] = low
                buf[j + 8 :: block_bytes] = buf[j + 8 :: block_bytes].translate(TWICE)
        return patch
    return make


BIG_I8 = bytes((b & 0x3F) + 64 if b & 0x40 else 256 - 64 - (b & 0x3F) for b in BYTES)  # 64 to 127, or the negative
BIG_I8_RMS = math.sqrt(sum(v * v for v in range(64, 128)) / 64)


def q6_k(rms):
    tables = f16_tables([rms / (BIG_I8_RMS * math.sqrt(341.5)) * f for f in spread(False)])

    def patch(buf):
        write_fields(buf, 208, 210, buf[208::210], tables)
        for j in range(192, 208):
            buf[j::210] = buf[j::210].translate(BIG_I8)
    return patch


def uniform(rms):
    """256 values from -a to a. As floats, their index is the sign and the first bits; what follows stays noise."""
    step = 2 * rms * math.sqrt(3) / 256
    return [(i - 127.5) * step for i in BYTES]


def leading_bytes(n_bytes, n_leading, pack):
    """A float type of n_bytes whose first n_leading bytes, the last in memory, the index chooses."""
    def make(rms):
        raw = pack(uniform(rms))
        tables = [raw[len(raw) // 256 - n_leading + i :: len(raw) // 256] for i in range(n_leading)]

        def patch(buf):
            write_fields(buf, n_bytes - n_leading, n_bytes, buf[n_bytes - 1 :: n_bytes], tables)
        return patch
    return make


def pack_f32(values):
    return struct.pack("<256f", *values)


def pack_f16(values):
    return struct.pack("<256e", *values)


PATCHES = {
    "F32": leading_bytes(4, 2, pack_f32), "F16": leading_bytes(2, 1, pack_f16), "BF16": leading_bytes(2, 2, pack_f32),
    "Q4_0": one_scale(18, 0, math.sqrt(21.5)), "Q4_1": q4_1, "Q8_0": one_scale(34, 0, math.sqrt(5461.5)),
    "Q4_K": k_with_min(144, 7.5, 21.25), "Q5_K": k_with_min(176, 15.5, 85.25), "Q6_K": q6_k,
}


def chunks(noise, name, kind, n_weights, rms):
    """Yields the tensor's bytes, a chunk at a time."""
    _, block_len, block_bytes = TYPES[kind]
    patch = PATCHES[kind](rms)
    left, per_chunk, i = n_weights // block_len, CHUNK_BYTES // block_bytes, 0
    while left > 0:
        n = min(left, per_chunk)
        buf = noise.chunk(name, i, n * block_bytes)
        patch(buf)
        yield buf
        left -= n
        i += 1


def vector(noise, name, n, size, signed):
    """n values of f32, size * 0.75 to size * 1.25, of random sign when signed."""
    raw = noise.chunk(name, 0, 2 * n)
    return struct.pack(f"<{n}f", *((-size if signed and raw[n + i] & 1 else size) * (0.75 + raw[i] / 512) for i in range(n)))
