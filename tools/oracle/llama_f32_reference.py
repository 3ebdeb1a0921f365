#!/usr/bin/env python3
"""Writes tests/golden/llama_smollm2_f32.json: llama.cpp's logits with every weight dequantised to f32, so without its rounding noise.

Wants 540 MB under build/oracle/."""
import json
import os

import oracle
import prompts

N = 64
CPU = "haswell"
F32 = os.path.join(oracle.ROOT, "build/oracle/smollm2_f32.gguf")


def main():
    with open(os.path.join(oracle.ROOT, "tests/golden/llama_smollm2.json")) as f:
        llama_cpp = json.load(f)["llama_cpp"]
    oracle.call(CPU, "dequantise", oracle.MODEL, F32)
    runs = oracle.logits(F32, [(text, special) for _, text, special in prompts.PROMPTS], N, "f32", CPU)
    os.remove(F32)
    head = {
        "about": "llama.cpp's greedy ids and 8 largest logits as in llama_smollm2.json, but computed in f32: every tensor dequantised to "
                 "f32 first, KV cache and attention in f32. Made by tools/oracle/llama_f32_reference.py.",
        "llama_cpp": llama_cpp, "cpu_back_end": CPU,
        "model": os.path.basename(oracle.MODEL), "model_sha256": oracle.sha256(oracle.MODEL), "n_predict": N,
    }
    with open(os.path.join(oracle.ROOT, "tests/golden/llama_smollm2_f32.json"), "w") as f:
        f.write(json.dumps(head, indent=1)[:-2] + ",\n \"prompts\": [\n")
        for i, ((name, text, special), run) in enumerate(zip(prompts.PROMPTS, runs)):
            row = {"name": name, "text": text, "special": special, "prompt_ids": run["prompt_ids"], "output_ids": run["output_ids"],
                   "gap": [round(t[1][0] - t[1][1], 6) for t in run["top"]], "top": run["top"]}
            f.write((",\n" if i else "") + json.dumps(row, ensure_ascii=False, separators=(",", ":")))
        f.write("\n]}\n")


if __name__ == "__main__":
    main()
