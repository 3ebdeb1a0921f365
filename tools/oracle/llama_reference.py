#!/usr/bin/env python3
"""Writes tests/golden/llama_smollm2.json: what llama.cpp computes for 20 prompts, 64 greedy tokens each."""
import json
import os

import oracle
import prompts

N = 64
CPU = "haswell"


def noise(ours, theirs):
    """Largest and 99th percentile of |difference| over the ids both name at positions whose history is the same."""
    deltas, flips, n = [], 0, 0
    for a, b in zip(ours, theirs):
        for i in range(N):
            if a["output_ids"][:i] != b["output_ids"][:i]:
                break
            n += 1
            flips += a["output_ids"][i] != b["output_ids"][i]
            other = dict(zip(*b["top"][i]))
            deltas += [abs(v - other[k]) for k, v in zip(*a["top"][i]) if k in other]
    deltas.sort()
    return {"positions": n, "first_differs": flips, "p99": deltas[int(0.99 * len(deltas))], "max": deltas[-1]}


def runs_of(texts):
    """The reference, and the other answers llama.cpp has for the same file: how much they differ from each other is its own noise."""
    dequantised = os.path.join(oracle.ROOT, "build/oracle/smollm2-f32.gguf")
    oracle.call(CPU, "dequantise", oracle.MODEL, dequantised)
    runs = {
        "reference": oracle.logits(oracle.MODEL, texts, N, "default", CPU),
        "unfused_attention": oracle.logits(oracle.MODEL, texts, N, "f16", CPU),
        "f32_kv": oracle.logits(oracle.MODEL, texts, N, "f32", CPU),
        "f32_weights": oracle.logits(dequantised, texts, N, "f32", CPU),
    }
    os.unlink(dequantised)
    return runs


def write(runs):
    ref = runs["reference"]
    head = {
        "about": "llama.cpp's prompt ids, greedy ids, and at each position (its own ids fed) the 8 largest logits as [ids, logits]; "
                 "gap: first minus second. Made by tools/oracle/llama_reference.py.",
        "llama_cpp": "v0.5.0 (node-llama-cpp 3.22.1)",
        "library": oracle.info(CPU), "cpu_back_end": CPU, "kv_cache": "f16, fused attention (the library's defaults)", "threads": 1,
        "model": os.path.basename(oracle.MODEL), "model_sha256": oracle.sha256(oracle.MODEL),
        "noise_about": "the same library against itself, while the histories are equal: with unfused attention, with that and an "
                       "f32 KV cache, and with that and the weights dequantised to f32, which rounds no activation to 8 bits",
        "noise": {name: noise(ref, run) for name, run in runs.items() if name != "reference"},
        "noise_f32_kv_to_f32_weights": noise(runs["f32_kv"], runs["f32_weights"]),
        "n_predict": N,
    }
    with open(os.path.join(oracle.ROOT, "tests/golden/llama_smollm2.json"), "w") as f:
        f.write(json.dumps(head, indent=1)[:-2] + ",\n \"prompts\": [\n")
        for i, ((name, text, special), run) in enumerate(zip(prompts.PROMPTS, ref)):
            row = {"name": name, "text": text, "special": special, "prompt_ids": run["prompt_ids"], "output_ids": run["output_ids"],
                   "gap": [round(t[1][0] - t[1][1], 6) for t in run["top"]], "top": run["top"]}
            f.write((",\n" if i else "") + json.dumps(row, ensure_ascii=False, separators=(",", ":")))
        f.write("\n]}\n")
    print(json.dumps({k: head[k] for k in ("noise", "noise_f32_kv_to_f32_weights")}, indent=1))


def main():
    os.makedirs(os.path.join(oracle.ROOT, "tests/golden"), exist_ok=True)
    write(runs_of([(text, special) for _, text, special in prompts.PROMPTS]))


if __name__ == "__main__":
    main()
