"""Reads the keys of a GGUF file, and writes a GGUF header. Only the standard library."""

import struct

U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
ALIGNMENT = 32
# name: (id, elements per block, bytes per block)
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144),
         "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "BF16": (30, 1, 2)}


class Reader:
    def __init__(self, path):
        self.path = path
        self.f = open(path, "rb")

    def take(self, n):
        raw = self.f.read(n)
        if len(raw) != n:
            raise ValueError(f"{self.path}: ends at byte {self.f.tell()}, in the middle of its header")
        return raw

    def scalar(self, code):
        return struct.unpack("<" + code, self.take(struct.calcsize(code)))[0]

    def string(self):
        return self.take(self.scalar("Q"))

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            elem, n = self.scalar("I"), self.scalar("Q")
            return [self.value(elem) for _ in range(n)]
        if kind not in SCALARS:
            raise ValueError(f"{self.path}: value type {kind} at byte {self.f.tell()}, wanted 0 to 12")
        return self.scalar(SCALARS[kind])


def read_keys(path):
    """The keys as {name: (value type, value)}; strings stay bytes."""
    r = Reader(path)
    with r.f:
        magic, version = r.take(4), r.scalar("I")
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"{path}: no GGUF file of version 2 or 3")
        r.scalar("Q")
        out = {}
        for _ in range(r.scalar("Q")):
            name, kind = r.string().decode(), r.scalar("I")
            out[name] = (kind, r.value(kind))
        return out


def read_tensors(path):
    """The tensors as [(name, type as in TYPES, dims, offset)], and the byte where their data begins."""
    names = {v[0]: k for k, v in TYPES.items()}
    r = Reader(path)
    with r.f:
        r.take(8)
        n_tensors, n_keys = r.scalar("Q"), r.scalar("Q")
        for _ in range(n_keys):
            r.string()
            r.value(r.scalar("I"))
        tensors = []
        for _ in range(n_tensors):
            name, dims = r.string().decode(), tuple(r.scalar("Q") for _ in range(r.scalar("I")))
            tensors.append((name, names[r.scalar("I")], dims, r.scalar("Q")))
        return tensors, padded(r.f.tell())


def string(raw):
    raw = raw.encode() if isinstance(raw, str) else raw
    return struct.pack("<Q", len(raw)) + raw


def packed(kind, v):
    if kind == STRING:
        return string(v)
    if kind == ARRAY:
        elem = {bytes: STRING, str: STRING, float: F32, int: I32}[type(v[0])] if v else STRING
        return struct.pack("<IQ", elem, len(v)) + b"".join(packed(elem, x) for x in v)
    return struct.pack("<" + SCALARS[kind], v)


def tensor_bytes(kind, dims):
    """Bytes of a tensor without its padding; dims[0] is the row."""
    _, block_len, block_bytes = TYPES[kind]
    n = dims[0] // block_len * block_bytes
    for d in dims[1:]:
        n *= d
    return n


def padded(n):
    return -(-n // ALIGNMENT) * ALIGNMENT


def header(keys, tensors):
    """keys: [(name, value type, value)], tensors: [(name, type, dims)] in file order. Ends where the data section begins."""
    out = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(keys))]
    out += [string(name) + struct.pack("<I", kind) + packed(kind, v) for name, kind, v in keys]
    offset = 0
    for name, kind, dims in tensors:
        out.append(string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, TYPES[kind][0], offset))
        offset += padded(tensor_bytes(kind, dims))
    raw = b"".join(out)
    return raw + bytes(padded(len(raw)) - len(raw))
