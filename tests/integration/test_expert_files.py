"""Files with experts: one tensor for all of them or one for each, under a cap or not, and files that contradict themselves."""
import json
import math
import subprocess
import sys

import pytest
from cluster import IS_SANITIZED, PATIENCE, ROOT

sys.path.insert(0, str(ROOT / "tools"))
import gguf_header  # noqa: E402

MIXTRAL = "layers=3,hidden=256,heads=4,kv_heads=2,ffn=256,experts=6,experts_used=2"
QWEN = "arch=qwen3moe,layers=4,hidden=512,heads=8,kv_heads=2,head_dim=64,ffn=256,experts=64,experts_used=4"


def make(folder, shape, kind="Q4_0", *more):
    subprocess.run([sys.executable, ROOT / "tools/make_tiny_model.py", folder / "vocab.gguf"], check=True)
    path = folder / "made.gguf"
    subprocess.run([ROOT / "tools/make_model", "--vocab-from", folder / "vocab.gguf", "--shape", shape, "--type", kind, "-o", path, *more], check=True,
                   stderr=subprocess.DEVNULL)
    return path


@pytest.fixture
def call(hearth):
    return lambda *words: subprocess.run([hearth, *map(str, words)], capture_output=True, text=True, timeout=60 * PATIENCE)


def answer(call, path, *options):
    ran = call("run", path, "-p", "the other side", "-n", 12, "--json", *options)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def parts_of(path):
    """A file's keys, tensors [(name, type, dims, offset)] and data."""
    keys = [(name, kind, v) for name, (kind, v) in gguf_header.read_keys(path).items()]
    tensors, data_at = gguf_header.read_tensors(path)
    return keys, tensors, path.read_bytes()[data_at:]


def test_a_tensor_for_each_expert_is_the_same_model(call, tmp_path):
    path = make(tmp_path, MIXTRAL)
    keys, tensors, data = parts_of(path)
    # The slices of a tensor lie one behind the other, so the same data serves: each slice is a tensor now.
    apart = []
    for name, kind, dims, _ in tensors:
        if "_exps." in name:
            apart += [(name.replace("_exps.", ".%d." % e), kind, dims[:2]) for e in range(dims[2])]
        else:
            apart.append((name, kind, dims))
    old = tmp_path / "apart.gguf"
    old.write_bytes(gguf_header.header(keys, apart) + data)
    assert answer(call, old)["logits_hash"] == answer(call, path)["logits_hash"]
    said = json.loads(call("inspect", old, "--json").stdout)
    assert said["runs"] is True and said["problems"] == []


@pytest.mark.skipif(IS_SANITIZED, reason="a sanitizer's memory is not the program's")
@pytest.mark.parametrize("reader", ["mmap", "direct"])
def test_a_cap_keeps_the_bits(call, tmp_path, reader):
    path = make(tmp_path, QWEN, "Q8_0")
    wanted = answer(call, path)
    got = answer(call, path, "--mem", "96M", "--reader", reader)
    assert path.stat().st_size > 96 << 20
    assert got["logits_hash"] == wanted["logits_hash"] and got["output_ids"] == wanted["output_ids"]
    assert got["memory"]["highest_bytes"] <= 96 << 20


def changed(path, out, change_keys=None, change_tensors=None):
    keys, tensors, data = parts_of(path)
    keys = [(n, k, (change_keys or {}).get(n, v)) for n, k, v in keys]
    tensors = [t[:3] for t in tensors]
    if change_tensors:
        tensors = change_tensors(tensors)
    out.write_bytes(gguf_header.header(keys, tensors) + data)
    return out


def swapped(name, dims):
    return lambda tensors: [(n, t, dims if n == name else d) for n, t, d in tensors]


@pytest.mark.parametrize("keys, tensors, said", [
    ({"llama.expert_used_count": 7}, None, "key llama.expert_used_count is 7, wanted at most 6 (llama.expert_count)"),
    ({"llama.expert_used_count": 0}, None, "key llama.expert_used_count is 0, wanted 1 to 1024"),
    ({"llama.expert_count": 0}, None, "tensor blk.0.ffn_gate.weight is missing"),
    ({"llama.expert_count": 5}, None, "tensor blk.0.ffn_gate_inp.weight is 256 x 6, wanted 256 x 5"),
    ({"llama.expert_count": 4294967295}, None, "key llama.expert_count is 4294967295, wanted at most 1024"),
    ({}, swapped("blk.1.ffn_up_exps.weight", (256, 1536)), "tensor blk.1.ffn_up_exps.weight is 256 x 1536, wanted 256 x 256 x 6"),
    ({}, swapped("blk.1.ffn_up_exps.weight", (256, 256, 3, 2)), "tensor blk.1.ffn_up_exps.weight is 256 x 256 x 3 x 2, wanted 256 x 256 x 6"),
    ({}, lambda ts: [(n.replace("blk.2.ffn_down_exps", "blk.2.ffn_down.0"), t, d) for n, t, d in ts],
     "tensor blk.2.ffn_down.0.weight is 256 x 256 x 6, wanted 256 x 256 x 1"),
    ({}, lambda ts: [(n.replace("blk.2.ffn_down_exps", "blk.2.ffn_down.00"), t, d) for n, t, d in ts], "tensor blk.2.ffn_down_exps.weight is missing"),
])
def test_a_file_that_contradicts_itself_is_refused(call, tmp_path, keys, tensors, said):
    path = changed(make(tmp_path, MIXTRAL), tmp_path / "wrong.gguf", keys, tensors)
    ran = call("run", path, "-p", "the", "-n", 1)
    assert ran.returncode == 1 and said in ran.stderr
    told = json.loads(call("inspect", path, "--json").stdout)
    assert told["runs"] is False and any(said in p for p in told["problems"])


def test_both_forms_of_one_matrix_are_refused(call, tmp_path):
    path = make(tmp_path, MIXTRAL)
    keys, tensors, data = parts_of(path)
    more = [t[:3] for t in tensors] + [("blk.0.ffn_gate.0.weight", "F32", (256, 1))]
    both = tmp_path / "both.gguf"
    both.write_bytes(gguf_header.header(keys, more) + data + bytes(math.prod((256, 4))))
    ran = call("run", both, "-p", "the", "-n", 1)
    assert ran.returncode == 1 and 'tensor "blk.0.ffn_gate.0.weight" is none of architecture llama' in ran.stderr
