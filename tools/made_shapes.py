"""The shapes of real models, and what tensors a made model of a shape has: names, dimensions, types and sizes of the weights.

Sizes keep the numbers sane: embeddings have a root mean square of 1, and all layers together triple it whatever their number; queries and keys
are large enough that attention chooses; logits spread as the shape says. The last norm's weights have random signs: what is left of the last token's
embedding would otherwise make a tied head say that token again.
"""

import dataclasses
import math

from gguf_header import ARRAY, F32, STRING, TYPES, U32, tensor_bytes

QK_SIZE = 1.5       # of queries and keys: scores then spread by 2.25
GLU_SIZE = 0.6      # of SILU(gate) * up, when gate and up have size 1
ATTENDED_SIZE = 0.6  # of what attention returns, when values have size 1 and a few positions matter
QUIET = 0.125       # control tokens say so much less than others: they are never the likeliest
MIXED = {"Q4_K_M": ("Q4_K", "Q6_K")}


@dataclasses.dataclass
class Shape:
    arch: str = "llama"
    layers: int = 0
    hidden: int = 0
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0      # 0: hidden / heads
    ffn: int = 0
    experts: int = 0
    experts_used: int = 0
    ctx: int = 4096
    rope_theta: float = 10000.0
    eps: float = 1e-5
    tied: int = 0
    vocab: int = 0         # 0: all tokens of the file they come from
    spread: float = 3.0    # standard deviation of logits
    router: float = 1.5    # standard deviation of a router's logits
    name: str = "made"

    def check(self):
        """Returns what is wrong with it, or None."""
        for f in ("layers", "hidden", "heads", "kv_heads", "ffn"):
            if getattr(self, f) < 1:
                return f"{f} is {getattr(self, f)}, wanted at least 1"
        if self.arch not in ("llama", "qwen3moe"):
            return f"arch {self.arch}, wanted llama or qwen3moe"
        if self.heads % self.kv_heads:
            return f"{self.kv_heads} kv_heads for {self.heads} heads, wanted a divisor"
        if self.head_dim == 0 and self.hidden % self.heads:
            return f"hidden {self.hidden} is no multiple of {self.heads} heads: give head_dim"
        self.head_dim = self.head_dim or self.hidden // self.heads
        if self.head_dim % 8:
            return f"head_dim {self.head_dim}, wanted a multiple of 8"
        if not 0 <= self.experts_used <= self.experts or (self.experts > 0) != (self.experts_used > 0):
            return f"{self.experts_used} experts_used of {self.experts} experts"
        if self.arch == "qwen3moe" and not self.experts:
            return "qwen3moe wants experts and experts_used"
        return None


SHAPES = {
    "135M": Shape(layers=30, hidden=576, heads=9, kv_heads=3, ffn=1536, ctx=8192, rope_theta=100000.0, tied=1),
    "1B": Shape(layers=16, hidden=2048, heads=32, kv_heads=8, ffn=8192, ctx=131072, rope_theta=500000.0, tied=1),
    "8B": Shape(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, ctx=8192, rope_theta=500000.0),
    "70B": Shape(layers=80, hidden=8192, heads=64, kv_heads=8, ffn=28672, ctx=8192, rope_theta=500000.0),
    "8x7B": Shape(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, experts=8, experts_used=2, ctx=32768, rope_theta=1000000.0),
    "30B-A3B": Shape("qwen3moe", layers=48, hidden=2048, heads=32, kv_heads=4, head_dim=128, ffn=768, experts=128, experts_used=8, ctx=32768,
                     rope_theta=1000000.0, eps=1e-6),
}


def parse(text):
    """A name of SHAPES, or KEY=VALUE pairs, or a name and what differs from it; joined by commas."""
    words = text.split(",")
    shape = Shape(layers=2, hidden=64, heads=4, kv_heads=2, ffn=160)
    if "=" not in words[0]:
        if words[0] not in SHAPES:
            raise ValueError(f"shape {words[0]} is not known, wanted one of {', '.join(SHAPES)}, or KEY=VALUE,...")
        shape = dataclasses.replace(SHAPES[words[0]], name=words.pop(0))
    kinds = {f.name: f.type for f in dataclasses.fields(Shape) if f.name != "name"}
    for word in words:
        key, eq, value = word.partition("=")
        if not eq or key not in kinds:
            raise ValueError(f"\"{word}\" in the shape, wanted KEY=VALUE with a key of {', '.join(kinds)}")
        try:
            shape = dataclasses.replace(shape, **{key: kinds[key](value)})
        except ValueError:
            raise ValueError(f"\"{word}\" in the shape, wanted {'an' if kinds[key] is int else 'a'} {kinds[key].__name__}") from None
        if shape.name in SHAPES:
            shape.name += "-like"
    return shape


@dataclasses.dataclass
class Tensor:
    name: str
    type: str
    dims: tuple            # dims[0] is the row
    size: float            # root mean square of a matrix's weights, middle of a vector's
    signed: bool = False   # a vector's weights have random signs
    quiet: bool = False    # rows of control tokens are QUIET times as large

    @property
    def bytes(self):
        return tensor_bytes(self.type, self.dims)

    @property
    def is_vector(self):
        return len(self.dims) == 1


def uses_more_bits(layer, n_layers):
    """In which layers a mixed model gives values and down the larger type: the first and the last eighth, every third between."""
    eighth = n_layers // 8
    return layer < eighth or layer >= 7 * n_layers // 8 or (layer - eighth) % 3 == 2


def types_of(kind, layer, n_layers):
    """Types of the matrices of a layer: (most, values and down)."""
    most, large = MIXED.get(kind, (kind, kind))
    return most, large if uses_more_bits(layer, n_layers) else most


def head_type(kind):
    """Of output.weight: six bits or more, as quantisers give it."""
    most, large = MIXED.get(kind, (kind, kind))
    return {"Q4_0": "Q8_0", "Q4_1": "Q8_0", "Q4_K": "Q6_K", "Q5_K": "Q6_K"}.get(most, large)


def attention(s, blk, kind, values_kind):
    step = math.sqrt(4 / s.layers)  # what attention and feed-forward each add: 2 layers * step^2 + 1 = 3^2
    q_rows, kv_rows = s.heads * s.head_dim, s.kv_heads * s.head_dim
    unit = 1 / math.sqrt(s.hidden)
    own_norm = s.arch == "qwen3moe"
    qk_size = unit if own_norm else unit * QK_SIZE
    out = [
        Tensor(blk + "attn_norm.weight", "F32", (s.hidden,), 1.0),
        Tensor(blk + "attn_q.weight", kind, (s.hidden, q_rows), qk_size),
        Tensor(blk + "attn_k.weight", kind, (s.hidden, kv_rows), qk_size),
        Tensor(blk + "attn_v.weight", values_kind, (s.hidden, kv_rows), unit),
        Tensor(blk + "attn_output.weight", kind, (q_rows, s.hidden), step / (ATTENDED_SIZE * math.sqrt(q_rows))),
    ]
    if own_norm:
        out += [Tensor(blk + f"attn_{x}_norm.weight", "F32", (s.head_dim,), QK_SIZE) for x in "qk"]
    return out


def feed_forward(s, blk, kind, down_kind, per_expert):
    step = math.sqrt(4 / s.layers)
    unit = 1 / math.sqrt(s.hidden)
    down = step / (GLU_SIZE * math.sqrt(s.ffn))
    out = [Tensor(blk + "ffn_norm.weight", "F32", (s.hidden,), 1.0)]
    parts = [("gate", kind, (s.hidden, s.ffn), unit), ("up", kind, (s.hidden, s.ffn), unit), ("down", down_kind, (s.ffn, s.hidden), down)]
    if not s.experts:
        return out + [Tensor(f"{blk}ffn_{part}.weight", *rest) for part, *rest in parts]
    # Experts' outputs are independent and weighted by about 1/n each: together they are smaller by the root of n.
    parts[2] = ("down", down_kind, (s.ffn, s.hidden), down * math.sqrt(s.experts_used))
    out.append(Tensor(blk + "ffn_gate_inp.weight", "F32", (s.hidden, s.experts), unit * s.router))
    for part, t, dims, size in parts:
        if per_expert:
            out += [Tensor(f"{blk}ffn_{part}.{e}.weight", t, dims, size) for e in range(s.experts)]
        else:
            out.append(Tensor(f"{blk}ffn_{part}_exps.weight", t, (*dims, s.experts), size))
    return out


def tensors(s, kind, per_expert=False):
    """What a model of shape s has, in file order. s.vocab is known by now."""
    most = MIXED.get(kind, (kind, kind))[0]
    out = [Tensor("token_embd.weight", head_type(kind) if s.tied else most, (s.hidden, s.vocab), 1.0, quiet=bool(s.tied))]
    for i in range(s.layers):
        small, large = types_of(kind, i, s.layers)
        out += attention(s, f"blk.{i}.", small, large) + feed_forward(s, f"blk.{i}.", small, large, per_expert)
    out.append(Tensor("output_norm.weight", "F32", (s.hidden,), s.spread / math.sqrt(s.hidden), signed=True))
    if not s.tied:
        out.append(Tensor("output.weight", head_type(kind), (s.hidden, s.vocab), 1.0, quiet=True))
    for t in out:
        block_len = TYPES[t.type][1]
        if t.dims[0] % block_len:
            raise ValueError(f"tensor {t.name} has rows of {t.dims[0]} weights, and {t.type} wants a multiple of {block_len}: choose another type")
    return out


def shape_keys(s, seed):
    a = s.arch
    out = [
        ("general.architecture", STRING, a), ("general.name", STRING, f"{s.name} made of seed {seed}"),
        (f"{a}.block_count", U32, s.layers), (f"{a}.context_length", U32, s.ctx), (f"{a}.embedding_length", U32, s.hidden),
        (f"{a}.feed_forward_length", U32, s.ffn), (f"{a}.attention.head_count", U32, s.heads), (f"{a}.attention.head_count_kv", U32, s.kv_heads),
        (f"{a}.attention.key_length", U32, s.head_dim), (f"{a}.attention.value_length", U32, s.head_dim),
        (f"{a}.rope.dimension_count", U32, s.head_dim), (f"{a}.rope.freq_base", F32, s.rope_theta),
        (f"{a}.attention.layer_norm_rms_epsilon", F32, s.eps), (f"{a}.vocab_size", U32, s.vocab),
    ]
    if s.experts:
        out += [(f"{a}.expert_count", U32, s.experts), (f"{a}.expert_used_count", U32, s.experts_used)]
    if a == "qwen3moe":
        out.append((f"{a}.expert_feed_forward_length", U32, s.ffn))
    return out


def vocab_keys(keys, n):
    """The tokenizer's keys of another file, its first n tokens only: (keys, n, ids of control tokens)."""
    names = ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges")
    if any(name not in keys or keys[name][0] != ARRAY for name in names):
        raise ValueError(f"has no vocabulary with {', '.join(names)}")
    tokens, kinds, merges = (keys[name][1] for name in names)
    if not 0 <= n <= len(tokens):
        raise ValueError(f"has {len(tokens)} tokens, wanted vocab {n} at most that")
    if 0 < n < len(tokens):
        tokens, kinds = tokens[:n], kinds[:n]
        have = set(tokens)
        merges = [m for m in merges if m.replace(b" ", b"") in have and have.issuperset(m.split(b" "))]
        missing = [b for b in keys[names[0]][1] if len(b.decode()) == 1 and b not in have]
        if missing:
            raise ValueError(f"has {len(missing)} bytes among the tokens that vocab {n} leaves out: wanted more")
    cut = {names[0]: (ARRAY, tokens), names[1]: (ARRAY, kinds), names[2]: (ARRAY, merges)}
    out = [(name, *cut.get(name, value)) for name, value in keys.items() if name.startswith("tokenizer.")]
    return out, len(tokens), [i for i, k in enumerate(kinds) if k == 3]
