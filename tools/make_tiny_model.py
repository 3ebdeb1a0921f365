#!/usr/bin/env python3
"""Write a tiny random llama model as a GGUF file, for tests: without --loud the same bytes as tests/support/tiny_llama.c.

Only the standard library. The weights depend on the seed and the shape alone.
"""

import argparse
import struct

MERGES = (
    "Ġ t|Ġ a|h e|i n|r e|o n|Ġt he|e r|Ġ s|a t|Ġ w|Ġ o|e n|Ġ c|i t|i s|a n|o r|"
    "e s|Ġ b|e d|Ġ f|in g|Ġ p|o u|Ġa n|a l|a r|Ġt o|Ġ m|Ġo f|Ġ in|Ġ d|Ġ h|Ġan d|"
    "i c|a s|l e|Ġt h|i on|o m|l l|en t|Ġ n|Ġ l|s t|Ġ re|v e|Ġ e|r o|l y|Ġb e|"
    "Ġ g|Ġ T|c t|Ġ S|i d|o t|Ġ I|u t|e t"
).split("|")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VOCAB_MIN = 259
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
# name: (id, elements per block, bytes per block)
TYPES = {"f32": (0, 1, 4), "f16": (1, 1, 2), "q4_0": (2, 32, 18), "q4_1": (3, 32, 20), "q8_0": (8, 32, 34), "bf16": (30, 1, 2)}
ALIGNMENT = 32
LOUD_SHIFT = 12  # what the loud layer adds is 2^12 as much as otherwise: thousands, where f16 ends 480 above a loud token
MASK = (1 << 64) - 1


class Rng:
    """splitmix64"""

    def __init__(self, seed):
        self.state = seed & MASK

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        return z ^ z >> 31


def byte_tokens():
    out, n = [], 0
    for b in range(256):
        if 0x21 <= b <= 0x7E or (0xA1 <= b and b != 0xAD):
            out.append(chr(b))
        else:
            out.append(chr(0x100 + n))
            n += 1
    return out


def string(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def key(name, kind, raw):
    return string(name) + struct.pack("<I", kind) + raw


def u32(name, v):
    return key(name, U32, struct.pack("<I", v))


def array(name, kind, values):
    return key(name, ARRAY, struct.pack("<IQ", kind, len(values)) + b"".join(values))


def keys(o):
    merges = MERGES[: o.vocab - VOCAB_MIN]
    special = ["<|unused_0|>", SPECIAL[1], "<|unused_2|>"] if o.no_stop else SPECIAL
    tokens = special + byte_tokens() + [m.replace(" ", "") for m in merges]
    types = [3] * 3 + [1] * (256 + len(merges))
    for i in range(len(tokens), o.vocab):
        tokens.append(f"<|unused_{i}|>")
        types.append(5)
    return [
        key("general.architecture", STRING, string("llama")),
        key("general.name", STRING, string("tiny llama")),
        u32("llama.block_count", o.layers),
        u32("llama.context_length", o.ctx),
        u32("llama.embedding_length", o.hidden),
        u32("llama.feed_forward_length", o.ffn),
        u32("llama.attention.head_count", o.heads),
        u32("llama.attention.head_count_kv", o.kv_heads),
        key("llama.rope.freq_base", F32, struct.pack("<f", 10000.0)),
        key("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 2.0**-16)),
        u32("llama.vocab_size", o.vocab),
        key("tokenizer.ggml.model", STRING, string("gpt2")),
        key("tokenizer.ggml.pre", STRING, string("smollm")),
        array("tokenizer.ggml.tokens", STRING, [string(t) for t in tokens]),
        array("tokenizer.ggml.token_type", I32, [struct.pack("<i", t) for t in types]),
        array("tokenizer.ggml.merges", STRING, [string(m) for m in merges]),
        u32("tokenizer.ggml.bos_token_id", 1),
        *([] if o.no_stop else [u32("tokenizer.ggml.eos_token_id", 2)]),
        key("tokenizer.ggml.add_bos_token", BOOL, b"\0"),
        key("tokenizer.chat_template", STRING, string(CHAT_TEMPLATE)),
    ]


def tensors(o):
    """(name, type, cols, rows) in file order"""
    n_matrices = 0

    def matrix(name, cols, rows):
        nonlocal n_matrices
        n_matrices += 1
        return (name, o.types[(n_matrices - 1) % len(o.types)], cols, rows)

    kv = o.kv_heads * (o.hidden // o.heads)
    out = [("token_embd.weight", o.embd_type, o.hidden, o.vocab)]
    for i in range(o.layers):
        blk = f"blk.{i}."
        out.append((blk + "attn_norm.weight", "f32", o.hidden, 1))
        out.append(matrix(blk + "attn_q.weight", o.hidden, o.hidden))
        out.append(matrix(blk + "attn_k.weight", o.hidden, kv))
        out.append(matrix(blk + "attn_v.weight", o.hidden, kv))
        out.append(matrix(blk + "attn_output.weight", o.hidden, o.hidden))
        if o.biases:
            out.append((blk + "attn_q.bias", "f32", o.hidden, 1))
            out.append((blk + "attn_k.bias", "f32", kv, 1))
            out.append((blk + "attn_v.bias", "f32", kv, 1))
        out.append((blk + "ffn_norm.weight", "f32", o.hidden, 1))
        out.append(matrix(blk + "ffn_gate.weight", o.hidden, o.ffn))
        out.append(matrix(blk + "ffn_up.weight", o.hidden, o.ffn))
        out.append(matrix(blk + "ffn_down.weight", o.ffn, o.hidden))
    out.append(("output_norm.weight", "f32", o.hidden, 1))
    if o.untied:
        out.append(("output.weight", o.embd_type, o.hidden, o.vocab))
    return out


def random_f32(rng, is_norm, shift):
    v = rng.next()
    if is_norm:
        return 127 << 23 | (v & 0x1FFFFF)
    return (v & 0x80000000) | (123 + shift + (v >> 40 & 1)) << 23 | (v & 0x7FFFFF)


def floats(rng, kind, n, is_norm, shift):
    bits = [random_f32(rng, is_norm, shift) for _ in range(n)]
    if kind == "f32":
        return struct.pack(f"<{n}I", *bits)
    if kind == "bf16":
        return struct.pack(f"<{n}H", *(b >> 16 for b in bits))
    return struct.pack(f"<{n}H", *((b >> 16 & 0x8000) | ((b >> 23 & 0xFF) - 112) << 10 | (b >> 13 & 0x3FF) for b in bits))


def blocks(rng, kind, n, shift):
    size = TYPES[kind][2]
    exponent = (5 if kind == "q8_0" else 9) + shift
    out = []
    for _ in range(n):
        d = exponent << 10 | (rng.next() & 0x3FF)
        block = struct.pack("<H", d)
        if kind == "q4_1":
            block += struct.pack("<H", 0x8000 | (d + (3 << 10)))
        while len(block) < size:
            block += struct.pack("<Q", rng.next())
        out.append(block[:size])
    return b"".join(out)


def data(rng, name, kind, cols, rows, shift):
    block_len = TYPES[kind][1]
    if block_len == 1:
        return floats(rng, kind, cols * rows, "norm" in name, shift)
    return blocks(rng, kind, cols // block_len * rows, shift)


def loud_row(token, layer, cols):
    """A row of q8_0 whose values are 127 * 512 = 65,024 or the negative: f16 still holds it, but not the sum with what LOUD_SHIFT makes.
    Twice that for layer -1, the embedding."""
    rng = Rng(token)
    return b"".join(struct.pack("<H32b", (24 if layer >= 0 else 25) << 10, *(127 if rng.next() & 1 else -127 for _ in range(32))) for _ in range(cols // 32))


def tensor_data(rng, o, name, kind, cols, rows):
    token, layer = o.loud
    shift = LOUD_SHIFT if name == f"blk.{layer}.ffn_down.weight" else 0
    raw = data(rng, name, kind, cols, rows, shift)
    if token >= 0 and name == "token_embd.weight":
        row = loud_row(token, layer, cols)
        raw = raw[: token * len(row)] + row + raw[(token + 1) * len(row) :]
    return raw


def pad(raw):
    return raw + b"\0" * (-len(raw) % ALIGNMENT)


def build(o):
    all_keys, all_tensors = keys(o), tensors(o)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(all_tensors), len(all_keys)) + b"".join(all_keys)
    offset = 0
    for name, kind, cols, rows in all_tensors:
        type_id, block_len, block_bytes = TYPES[kind]
        dims = (cols, rows) if rows > 1 else (cols,)
        head += string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, type_id, offset)
        offset += -(-(cols // block_len * block_bytes * rows) // ALIGNMENT) * ALIGNMENT
    rng = Rng(o.seed)
    return pad(head) + b"".join(pad(tensor_data(rng, o, *t)) for t in all_tensors)


def types_list(text):
    out = text.split(",")
    for t in out:
        if t not in TYPES:
            raise argparse.ArgumentTypeError(f"type {t}, wanted one of {', '.join(TYPES)}")
    return out


def token_and_layer(text):
    token, _, layer = text.partition(":")
    return int(token), int(layer)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("out")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--hidden", type=int, default=64)
    p.add_argument("--ffn", type=int, default=160)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--kv-heads", type=int, default=2)
    p.add_argument("--vocab", type=int, default=320, help=f"at least {VOCAB_MIN}")
    p.add_argument("--ctx", type=int, default=512)
    p.add_argument("--types", type=types_list, default=["q4_1"], help="of the matrices, in turn: q4_0,q8_0,...")
    p.add_argument("--embd-type", choices=list(TYPES), default="q8_0")
    p.add_argument("--untied", action="store_true", help="write output.weight")
    p.add_argument("--biases", action="store_true", help="write q, k and v biases")
    p.add_argument("--loud", type=token_and_layer, metavar="TOKEN:LAYER", default=(-1, -1),
                   help="the hidden state of this token leaves f16's range at this layer (-1: when it is embedded), that of others does not")
    p.add_argument("--no-stop", action="store_true", help="no token ends an answer: it is as long as asked for, with any seed; there is no chat")
    o = p.parse_args()
    if o.vocab < VOCAB_MIN:
        p.error(f"--vocab {o.vocab}, wanted at least {VOCAB_MIN}")
    if o.loud[0] >= 0 and (o.embd_type != "q8_0" or not o.untied or o.loud[0] >= o.vocab or not -1 <= o.loud[1] < o.layers):
        p.error("--loud wants a token and a layer of the model, --embd-type q8_0, and --untied: a tied head would say the loud token always")
    raw = build(o)
    with open(o.out, "wb") as f:
        f.write(raw)


if __name__ == "__main__":
    main()
