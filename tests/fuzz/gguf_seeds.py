#!/usr/bin/env python3
"""Writes the seeds of fuzz_gguf: small containers of each kind, a few hundred bytes each.

    python3 tests/fuzz/gguf_seeds.py tests/fuzz/corpus/gguf
"""

import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from make_tiny_model import ARRAY, BOOL, F32, I32, STRING, U32, array, key, string, u32  # noqa: E402

TYPE_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def container(keys, tensors, alignment=32, version=3):
    """tensors: (name, dims, type id, bytes of data)"""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys)
    data = b""
    for name, dims, type_id, n_bytes in tensors:
        head += string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, type_id, len(data))
        data += b"\0" * n_bytes
        data += b"\0" * (-len(data) % alignment)
    return head + b"\0" * (-len(head) % alignment) + data


def f32(name, v):
    return key(name, F32, struct.pack("<f", v))


def llama(extra=()):
    tokens = ["a", "b", "<s>", "</s>"]
    keys = [
        key("general.architecture", STRING, string("llama")),
        u32("llama.block_count", 1),
        u32("llama.context_length", 64),
        u32("llama.embedding_length", 8),
        u32("llama.feed_forward_length", 8),
        u32("llama.attention.head_count", 1),
        f32("llama.attention.layer_norm_rms_epsilon", 1e-5),
        f32("llama.rope.freq_base", 10000.0),
        array("tokenizer.ggml.tokens", STRING, [string(t) for t in tokens]),
        *extra,
    ]
    square = ((8, 8), 1, 128)  # f16
    norm = ((8,), 0, 32)
    tensors = [("token_embd.weight", (8, 4), 1, 64), ("output_norm.weight", *norm)]
    tensors += [(f"blk.0.{n}.weight", *norm) for n in ("attn_norm", "ffn_norm")]
    tensors += [(f"blk.0.{n}.weight", *square) for n in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")]
    return keys, tensors


def seeds():
    yield "empty", container([], [])
    yield "version2", container([u32("a", 1)], [("t", (1,), 0, 4)], version=2)
    scalars = [key(f"k{t}", t, bytes([1]) + b"\0" * (n - 1)) for t, n in TYPE_BYTES.items()]
    yield "scalars", container(scalars + [key("s", STRING, string("text"))], [])
    arrays = [key(f"a{t}", ARRAY, struct.pack("<IQ", t, 2) + b"\1" + b"\0" * (2 * n - 1)) for t, n in TYPE_BYTES.items()]
    yield "arrays", container(arrays + [array("s", STRING, [string(""), string("xy")])], [])
    yield "alignment", container([u32("general.alignment", 64)], [("t", (3,), 24, 3), ("u", (2,), 28, 16)], alignment=64)
    yield "types", container([], [("a", (32,), 2, 18), ("b", (32, 2), 3, 40), ("c", (32, 1, 2), 8, 68), ("d", (64, 1, 1, 1), 40, 36)])
    yield "split", container([u32("split.count", 3), key("general.architecture", STRING, string("llama"))], [])
    yield "llama", container(*llama())
    extra = [
        array("llama.attention.head_count_kv", I32, [struct.pack("<i", 1)]),
        u32("llama.expert_count", 0),
        key("llama.rope.scaling.type", STRING, string("none")),
        key("tokenizer.ggml.add_bos_token", BOOL, b"\1"),
        u32("tokenizer.ggml.bos_token_id", 2),
    ]
    yield "llama_more_keys", container(*llama(extra))
    keys, tensors = llama()
    yield "llama_biases", container(keys, tensors + [("blk.0.attn_q.bias", (8,), 0, 32), ("output.weight", (8, 4), 1, 64)])
    yield "qwen", container([key("general.architecture", STRING, string("qwen2")), array("x", U32, [])], [])


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, raw in seeds():
        (folder / name).write_bytes(raw)


if __name__ == "__main__":
    main()
