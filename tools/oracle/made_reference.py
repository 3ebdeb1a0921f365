#!/usr/bin/env python3
"""Has the Python package `gguf` read what tools/make_model writes: every tensor where it should be, its weights of the size they should have.

    python3 tools/oracle/made_reference.py MODEL_FOR_THE_VOCABULARY
"""
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import gguf_header  # noqa: E402
import made_shapes  # noqa: E402

SHAPES = ("layers=3,hidden=512,heads=8,kv_heads=2,ffn=1024", "arch=qwen3moe,layers=2,hidden=256,heads=4,kv_heads=2,head_dim=64,ffn=256,experts=8,experts_used=2")


def check(path, shape, kind):
    got = {t.name: t for t in gguf.GGUFReader(path).tensors}
    wanted = made_shapes.tensors(shape, kind)
    assert list(got) == [t.name for t in wanted]
    for t in wanted:
        x = gguf.quants.dequantize(got[t.name].data, got[t.name].tensor_type).astype(numpy.float64)
        rms = numpy.sqrt((x * x).mean())
        assert got[t.name].tensor_type.name == t.type and [int(d) for d in got[t.name].shape] == list(t.dims)
        assert abs(rms / t.size - 1) < 0.05, (t.name, rms, t.size)
        assert t.is_vector or abs(x.mean()) < 5 * t.size / numpy.sqrt(x.size / gguf_header.TYPES[t.type][1]), (t.name, x.mean())


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/made.gguf"
        for text in SHAPES:
            for kind in [*gguf_header.TYPES, *made_shapes.MIXED]:
                subprocess.run([ROOT / "tools/make_model", "--shape", text, "--type", kind, "--vocab-from", sys.argv[1], "-o", path], check=True,
                               stderr=subprocess.DEVNULL)
                shape = made_shapes.parse(text)
                shape.check()
                shape.vocab = 49152
                check(path, shape, kind)


if __name__ == "__main__":
    main()
