#!/usr/bin/env python3
"""dequantise.py IN OUT: the same model with every tensor as f32, by the gguf package. Keys are copied byte for byte.

llama.cpp quantises activations only for quantised weights, so that with this file it computes in f32 what the quantised file means."""
import sys

import numpy
from gguf import GGUFReader
from gguf.quants import dequantize

ALIGN = 32


def main():
    reader = GGUFReader(sys.argv[1])
    first = min(t.field.offset for t in reader.tensors)
    with open(sys.argv[2], "wb") as out:
        out.write(bytes(reader.data[:first]))
        offset = 0
        for t in reader.tensors:
            name = t.name.encode()
            out.write(len(name).to_bytes(8, "little") + name + len(t.shape).to_bytes(4, "little"))
            for dim in t.shape:
                out.write(int(dim).to_bytes(8, "little"))
            out.write((0).to_bytes(4, "little") + offset.to_bytes(8, "little"))
            offset += -(-4 * int(t.n_elements) // ALIGN) * ALIGN
        for t in reader.tensors:
            out.write(b"\0" * (-out.tell() % ALIGN))
            out.write(dequantize(t.data, t.tensor_type).astype(numpy.float32).tobytes())


if __name__ == "__main__":
    main()
