"""tools/make_model: what it writes is the same everywhere, is a whole GGUF file, and has weights of the sizes it promises."""
import hashlib
import json
import math
import pathlib
import signal
import struct
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import gguf_header  # noqa: E402
import made_shapes  # noqa: E402

SHAPE = "layers=2,hidden=256,heads=4,kv_heads=2,ffn=512"
EXPERTS = "arch=qwen3moe,layers=2,hidden=256,heads=4,kv_heads=2,head_dim=32,ffn=256,experts=6,experts_used=2"
# sha256 of a tiny model of seed 7 of each type. A new hash makes every model that was made before another one: say why.
HASHES = {
    "F32": "82dda96a482c8533d39dfa463b0aa5bfc22676828221d62aa2e9ceb9131daa55",
    "F16": "2a8ffa0f26a52727f0f08803f93639034fbbe4571e3e3dcb6bfaf6b9de52bf2b",
    "Q4_0": "23e4ee88097effa4331e0e0253947ad46780dd2f959e70108abda21e340836d2",
    "Q4_1": "06354df698850b01f73168d53e2226843e9fd218d00ccac93d8391e437e7141a",
    "Q8_0": "ef1c0679ccba0064e57385d7cd7185c7b0cba50e06685ec26456345f4b6282ad",
    "Q4_K": "95f2c0f813e9fcb8fa45b44077121f2b564ed1c7b2863898a6c9c2a2b9def960",
    "Q5_K": "1bc866f570d267355c4ce6c438c9e159bd20941248e98ea6d8fe0f11f39f016a",
    "Q6_K": "bd30780370f217127f61ed153aefffe54b84180f57651e50fbfbb6a7330ac3bd",
    "BF16": "9e12954a8420c2351e224967dd2a777c31c3bf5b425461573b7559e4223822d4",
    "Q4_K_M": "7eb32f222b10ec0a79e15263b11ccab31ad4b2ef301202930fc96bb13f049807",
    "experts": "d07e65b4a4519fb4b6cc88971603821a94ef2ae6e3b994b04fc901b2f77ec634",
}


@pytest.fixture(scope="module")
def vocab(tmp_path_factory):
    """A small file to take the vocabulary from."""
    path = tmp_path_factory.mktemp("vocab") / "tiny.gguf"
    subprocess.run([sys.executable, ROOT / "tools/make_tiny_model.py", path], check=True)
    return path


@pytest.fixture
def make(vocab, tmp_path):
    def run(*words, out="made.gguf", ok=True):
        path = tmp_path / out
        ran = subprocess.run([ROOT / "tools/make_model", "--vocab-from", vocab, "-o", path, *map(str, words)], capture_output=True, text=True)
        assert (ran.returncode == 0) == ok, ran.stderr
        return path if ok else ran.stderr
    return run


def file_tensors(path):
    """{name: (type, dims, bytes)} of a file."""
    tensors, data_at = gguf_header.read_tensors(path)
    data, out = path.read_bytes()[data_at:], {}
    for name, kind, dims, offset in tensors:
        end = offset + gguf_header.tensor_bytes(kind, dims)
        assert end <= len(data), name
        out[name] = (kind, list(dims), data[offset:end])
    return out


def k_scales(raw):
    """The eight scales and mins of a Q4_K or Q5_K block, from its 12 bytes."""
    low = [(raw[j] & 63, raw[j + 4] & 63) for j in range(4)]
    high = [(raw[j + 8] & 15 | raw[j] >> 6 << 4, raw[j + 8] >> 4 | raw[j + 4] >> 6 << 4) for j in range(4)]
    return low + high


def f16(raw):
    return struct.unpack("<e", raw)[0]


def block_values(kind, b):
    """The weights of one block, by the format's description."""
    if kind == "F32":
        return list(struct.unpack("<f", b))
    if kind == "F16":
        return [f16(b)]
    if kind == "BF16":
        return list(struct.unpack("<f", b"\0\0" + b))
    if kind in ("Q4_0", "Q4_1"):
        d, m, quants = (f16(b[:2]), None, b[2:]) if kind == "Q4_0" else (f16(b[:2]), f16(b[2:4]), b[4:])
        nibbles = [v & 15 for v in quants] + [v >> 4 for v in quants]
        return [d * (v - 8) if m is None else d * v + m for v in nibbles]
    if kind == "Q8_0":
        return [f16(b[:2]) * v for v in struct.unpack("<32b", b[2:])]
    if kind in ("Q4_K", "Q5_K"):
        d, dmin, scales = f16(b[:2]), f16(b[2:4]), k_scales(b[4:16])
        high, quants = (b[16:48], b[48:]) if kind == "Q5_K" else (bytes(32), b[16:])
        out = []
        for j, (scale, least) in enumerate(scales):
            for i in range(32):
                q = quants[j // 2 * 32 + i] >> 4 * (j % 2) & 15 | (high[i] >> j & 1) << 4
                out.append(d * scale * q - dmin * least)
        return out
    low, high, scales, d = b[:128], b[128:192], struct.unpack("<16b", b[192:208]), f16(b[208:])
    out = []
    for i in range(256):
        half, j, i32 = i // 128, i % 128 // 32, i % 32
        q = low[half * 64 + j % 2 * 32 + i32] >> 4 * (j // 2) & 15 | (high[half * 32 + i32] >> 2 * j & 3) << 4
        out.append(d * scales[i // 16] * (q - 32))
    return out


def values(kind, raw):
    size = gguf_header.TYPES[kind][2]
    return [v for at in range(0, len(raw), size) for v in block_values(kind, raw[at : at + size])]


@pytest.mark.parametrize("kind", [*gguf_header.TYPES, "Q4_K_M"])
def test_a_seed_gives_the_same_file_everywhere(make, kind):
    path = make("--shape", SHAPE, "--type", kind, "--seed", 7)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == HASHES[kind]


def test_experts_too(make):
    path = make("--shape", EXPERTS, "--type", "Q4_0", "--seed", 7)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == HASHES["experts"]


@pytest.mark.parametrize("kind", gguf_header.TYPES)
def test_weights_of_each_type_have_the_size_they_should_and_no_mean(make, kind):
    path = make("--shape", SHAPE, "--type", kind)
    got = file_tensors(path)
    shape = made_shapes.parse(SHAPE)
    assert shape.check() is None
    shape.vocab = 320
    for t in made_shapes.tensors(shape, kind):
        assert got[t.name][:2] == (t.type, list(t.dims))
        if t.name not in ("blk.1.attn_k.weight", "blk.1.attn_v.weight", "output.weight"):
            continue
        v = values(t.type, got[t.name][2])
        mean, rms = math.fsum(v) / len(v), math.sqrt(math.fsum(x * x for x in v) / len(v))
        assert 0.96 * t.size < rms < 1.04 * t.size, (t.name, rms / t.size)
        assert abs(mean) < 5 * t.size / math.sqrt(len(v) / gguf_header.TYPES[kind][1]), (t.name, mean / t.size)


def test_no_two_tensors_and_no_two_rows_are_equal(make):
    got = file_tensors(make("--shape", SHAPE + ",layers=4", "--type", "Q4_0"))
    seen = set()
    for kind, dims, raw in got.values():
        rows = 1 if len(dims) == 1 else dims[1]
        size = len(raw) // rows
        for r in range(rows):
            row = raw[r * size : (r + 1) * size]
            assert row not in seen
            seen.add(row)


def test_another_seed_changes_every_tensor(make):
    one, two = (file_tensors(make("--shape", SHAPE, "--type", "Q4_0", "--seed", s, out="%d.gguf" % s)) for s in (1, 2))
    assert one.keys() == two.keys()
    assert [n for n in one if one[n][2] == two[n][2]] == []


def test_a_mixed_model_has_more_bits_in_half_of_the_layers(make):
    got = file_tensors(make("--shape", SHAPE + ",layers=16", "--type", "Q4_K_M"))
    large = [i for i in range(16) if got["blk.%d.ffn_down.weight" % i][0] == "Q6_K"]
    assert large == [i for i in range(16) if got["blk.%d.attn_v.weight" % i][0] == "Q6_K"] and 6 <= len(large) <= 10
    assert {got["blk.%d.ffn_up.weight" % i][0] for i in range(16)} == {"Q4_K"} and got["output.weight"][0] == "Q6_K"


def test_experts_are_one_tensor_of_three_dimensions_or_one_each(make):
    got = file_tensors(make("--shape", EXPERTS, "--type", "Q4_0"))
    assert got["blk.0.ffn_gate_exps.weight"][1] == [256, 256, 6] and got["blk.0.ffn_gate_inp.weight"][:2] == ("F32", [256, 6])
    assert got["blk.1.attn_q_norm.weight"][1] == [32]
    apart = file_tensors(make("--shape", EXPERTS, "--type", "Q4_0", "--per-expert"))
    assert apart["blk.1.ffn_down.5.weight"][1] == [256, 256] and "blk.0.ffn_gate_exps.weight" not in apart


def test_rows_of_control_tokens_are_quiet(make):
    got = file_tensors(make("--shape", SHAPE, "--type", "Q8_0"))
    kind, dims, raw = got["output.weight"]
    size = len(raw) // dims[1]
    sizes = [math.sqrt(math.fsum(x * x for x in values(kind, raw[r * size : (r + 1) * size])) / dims[0]) for r in (0, 1, 2, 3, 319)]
    assert all(0.1 < s < 0.15 for s in sizes[:3]) and all(0.8 < s < 1.2 for s in sizes[3:])


def test_vocab_takes_the_first_tokens_and_the_merges_among_them(make, vocab):
    keys = gguf_header.read_keys(make("--shape", SHAPE + ",vocab=280", "--type", "Q4_0"))
    tokens, merges = keys["tokenizer.ggml.tokens"][1], keys["tokenizer.ggml.merges"][1]
    assert len(tokens) == 280 and keys["llama.vocab_size"][1] == 280
    assert len(merges) == 280 - 259 and all(m.replace(b" ", b"") in tokens for m in merges)


@pytest.mark.parametrize("words, said", [
    (("--shape", "7B", "--type", "Q4_0"), "shape 7B is not known, wanted one of 135M, 1B, 8B, 70B, 8x7B, 30B-A3B, or KEY=VALUE,..."),
    (("--shape", "70B,width=3", "--type", "Q4_0"), '"width=3" in the shape, wanted KEY=VALUE with a key of arch, layers, '),
    (("--shape", "70B,layers=many", "--type", "Q4_0"), '"layers=many" in the shape, wanted an int'),
    (("--shape", "135M", "--type", "Q4_K"), "rows of 576 weights, and Q6_K wants a multiple of 256"),
    (("--shape", SHAPE + ",kv_heads=3", "--type", "Q4_0"), "3 kv_heads for 4 heads, wanted a divisor"),
    (("--shape", SHAPE + ",experts=4,experts_used=5", "--type", "Q4_0"), "5 experts_used of 4 experts"),
    (("--shape", SHAPE, "--type", "Q3_K"), "invalid choice: 'Q3_K'"),
    (("--shape", SHAPE, "--type", "Q4_0", "--layers", 0), "0, wanted at least 1"),
    (("--shape", SHAPE + ",vocab=321", "--type", "Q4_0"), "has 320 tokens, wanted vocab 321 at most that"),
    (("--shape", SHAPE + ",vocab=50", "--type", "Q4_0"), "bytes among the tokens that vocab 50 leaves out"),
    (("--shape", "70B,layers=2000", "--type", "Q4_0"), "has only "),
    (("--shape", SHAPE, "--type", "Q4_0", "--vocab-from", "/none.gguf"), "/none.gguf is not there: `make model` fetches the demo model"),
    (("--shape", SHAPE, "--type", "Q4_0", "--vocab-from", "/dev/null"), "/dev/null: ends at byte 0"),
])
def test_errors_say_what_was_wrong_and_leave_nothing_behind(make, tmp_path, words, said):
    assert said in make(*words, ok=False)
    assert list(tmp_path.glob("made*")) == []


def test_a_run_that_is_ended_leaves_nothing_behind(vocab, tmp_path):
    p = subprocess.Popen([ROOT / "tools/make_model", "--vocab-from", vocab, "--shape", "8B,layers=2", "--type", "F32", "-o", tmp_path / "made.gguf"],
                         stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("made.gguf.*.part")) and p.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    assert len(list(tmp_path.glob("made.gguf.*.part"))) == 1
    p.send_signal(signal.SIGTERM)
    assert p.wait(60) == 143
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_tells_the_sizes_of_what_would_be_written(make, tmp_path, vocab):
    words = ["--shape", SHAPE, "--type", "Q4_K_M"]
    ran = subprocess.run([ROOT / "tools/make_model", "--vocab-from", vocab, "--dry-run", *words], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout)["bytes"] == make(*words).stat().st_size


def test_shapes_of_real_models_have_their_sizes():
    sizes = {}
    for name in made_shapes.SHAPES:
        s = made_shapes.parse(name)
        assert s.check() is None
        s.vocab = 49152
        sizes[name] = round(sum(math.prod(t.dims) for t in made_shapes.tensors(s, "Q4_0")) / 1e9, 2)
    assert sizes == {"135M": 0.13, "1B": 1.07, "8B": 7.38, "70B": 69.26, "8x7B": 46.84, "30B-A3B": 30.11}
