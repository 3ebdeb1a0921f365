#!/usr/bin/env python3
"""Writes tests/golden/llama_experts.json: all logits of llama.cpp for tiny made models with experts, each token fed alone; and
tests/golden/llama_experts_exact.json: of more of them, whatever their routers say, the logits of llama.cpp with every weight dequantised to f32, and how far
its own logits with quantised weights are from those.

The models are those that tools/make_model writes for the words kept with the logits; their vocabulary is that of tools/make_tiny_model.py.
"""
import json
import math
import os
import subprocess
import sys
import tempfile

import oracle

CPU = "haswell"
TEXT = "the answer is on the other side of the"
LLAMA = "layers=2,hidden=256,heads=8,kv_heads=2,ffn=256,experts=8,experts_used=2"
QWEN = "arch=qwen3moe,layers=2,hidden=256,heads=8,kv_heads=2,head_dim=64,ffn=256,experts=16,experts_used=4"
# F32: only the graph can differ. The others: both sides round activations to 8 bits, each in its own way; where two experts nearly tie, that
# decides which is chosen. Hence routers with clear choices, and logits no sharper than the comparison needs.
CLEAR = ",spread=1,router=3"
SEED = 3  # with it no two experts nearly tie
SEEDS = (1, 2, 4)  # any: in some of these models experts nearly tie
TEXT_EXACT = "the answer is on the other"
MODELS = [(shape + (CLEAR if kind != "F32" else ""), kind) for shape in (LLAMA, QWEN) for kind in ("F32", "Q4_0", "Q8_0", "Q4_K_M")]


def make(folder, shape, kind, seed):
    vocab, path = os.path.join(folder, "vocab.gguf"), os.path.join(folder, "made.gguf")
    subprocess.run([sys.executable, os.path.join(oracle.ROOT, "tools/make_tiny_model.py"), vocab], check=True)
    subprocess.run([os.path.join(oracle.ROOT, "tools/make_model"), "--vocab-from", vocab, "--shape", shape, "--type", kind, "--seed", str(seed), "-o", path], check=True,
                   stderr=subprocess.DEVNULL)
    return path


def every(path, text):
    return json.loads(oracle.call(CPU, "every", path, "f32", stdin=oracle.records([text])))


def run(folder, shape, kind):
    path = make(folder, shape, kind, SEED)
    got = every(path, TEXT)
    return {"shape": shape, "type": kind, "seed": SEED, "sha256": oracle.sha256(path), "ids": got["ids"],
            "logits": [[round(v, 5) for v in row] for row in got["logits"]]}


def log_shares(logits):
    most = max(logits)
    total = most + math.log(sum(math.exp(v - most) for v in logits))
    return [v - total for v in logits]


def kl(p, q):
    return sum(math.exp(a) * (a - b) for a, b in zip(log_shares(p), log_shares(q)))


def run_exact(folder, shape, kind, seed):
    path, f32 = make(folder, shape, kind, seed), os.path.join(folder, "f32.gguf")
    got = every(path, TEXT_EXACT)
    oracle.call(CPU, "dequantise", path, f32)
    exact = every(f32, TEXT_EXACT)["logits"]
    return {"shape": shape, "type": kind, "seed": seed, "sha256": oracle.sha256(path), "ids": got["ids"],
            "kl_of_llama_cpp": [float("%.3g" % abs(kl(*rows))) for rows in zip(exact, got["logits"])], "thousandths": [[round(1e3 * v) for v in row] for row in exact]}


def write(name, head, runs):
    with open(os.path.join(oracle.ROOT, "tests/golden", name), "w") as f:
        f.write(json.dumps(head, indent=1)[:-2] + ',\n "models": [\n')
        f.write(",\n".join(json.dumps(r, separators=(",", ":")) for r in runs) + "\n]}\n")


def main():
    about = {"llama_cpp": "v0.5.0 (node-llama-cpp 3.22.1)", "cpu_back_end": CPU}
    with tempfile.TemporaryDirectory() as folder:
        runs = [run(folder, *m) for m in MODELS]
        exact = [run_exact(folder, shape, kind, seed) for shape in (LLAMA, QWEN) for kind in ("F32", "Q4_0", "Q8_0", "Q4_K_M") for seed in SEEDS]
    write("llama_experts.json", {"about": "llama.cpp's logits at each position of a text, for models of tools/make_model (shape, type, seed) with experts. KV cache "
                                          "and attention in f32. Made by tools/oracle/expert_reference.py.", **about}, runs)
    write("llama_experts_exact.json", {"about": "The same in thousandths for other models, every weight dequantised to f32 first; and at each position the KL divergence "
                                                "from there to llama.cpp's logits with the weights as they are. Made by tools/oracle/expert_reference.py.", **about}, exact)


if __name__ == "__main__":
    main()
