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


def main():
    texts = [(text, special) for _, text, special in prompts.PROMPTS]
    os.makedirs(os.path.join(oracle.ROOT, "tests/golden"), exist_ok=True)
    runs = oracle.logits(oracle.MODEL, texts, N, "f16", CPU)
    f32 = oracle.logits(oracle.MODEL, texts, N, "f32", CPU)
    best = oracle.logits(oracle.MODEL, texts, N, "f16", "best")
    head = {
        "about": "llama.cpp's prompt ids, greedy ids, and at each position (its own ids fed) the 8 largest logits as [ids, logits]; "
                 "gap: first minus second. Made by tools/oracle/llama_reference.py.",
        "llama_cpp": "v0.5.0 (node-llama-cpp 3.22.1)",
        "library": oracle.info(CPU), "cpu_back_end": CPU, "kv_cache": "f16, flash attention auto (the library's defaults)", "threads": 1,
        "model": os.path.basename(oracle.MODEL), "model_sha256": oracle.sha256(oracle.MODEL),
        "noise_f32_kv": noise(runs, f32), "noise_best_cpu": noise(runs, best), "best_cpu": oracle.info("best")["system_info"],
        "n_predict": N,
    }
    with open(os.path.join(oracle.ROOT, "tests/golden/llama_smollm2.json"), "w") as f:
        f.write(json.dumps(head, indent=1)[:-2] + ",\n \"prompts\": [\n")
        for i, ((name, text, special), run) in enumerate(zip(prompts.PROMPTS, runs)):
            row = {"name": name, "text": text, "special": special, "prompt_ids": run["prompt_ids"], "output_ids": run["output_ids"],
                   "gap": [round(t[1][0] - t[1][1], 6) for t in run["top"]], "top": run["top"]}
            f.write((",\n" if i else "") + json.dumps(row, ensure_ascii=False, separators=(",", ":")))
        f.write("\n]}\n")
    print(json.dumps({k: head[k] for k in ("noise_f32_kv", "noise_best_cpu")}))


if __name__ == "__main__":
    main()
