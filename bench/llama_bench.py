#!/usr/bin/env python3
"""One thread of Hearth against one thread of llama.cpp, same file: tokens per second of decoding and of a prompt.

Times come from inside each process: hearth run --json, and tools/oracle/llama_oracle.c around llama_decode. Decoding is 64 tokens after a
prompt of 16, greedy in both; the prompt has 512 tokens. Printed: the ratio of the rates, Hearth's over llama.cpp's (paired.py says how).

Both use AVX2: Hearth by --simd avx2, llama.cpp by its back end built for Haswell. With --cpu best llama.cpp picks what the machine has.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

import paired

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEARTH = ROOT / "build/bin/hearth"
ORACLE = ROOT / "build/oracle/bin/llama_oracle"
MODEL = ROOT / "build/models/SmolLM2-135M-Instruct.Q4_1.gguf"
N_PROMPT, N_DECODE, N_PREFILL = 16, 64, 512
THRESHOLDS = {"decode": 0.7, "prefill": 0.4}
WORDS = "once upon a time there was a small house near the sea where an old woman lived with her cat and every day".split()


def words(n):
    """A text of n tokens, given that each of these words is one; hearth's count is checked."""
    return " ".join(WORDS[i % len(WORDS)] for i in range(n))


def hearth(text, n, n_want):
    argv = [HEARTH, "run", MODEL, "-p", text, "-n", str(n), "--temp", "0", "--threads", "1", "--simd", "avx2", "--no-logits-hash", "--ctx", "2048", "--json"]
    out = json.loads(subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout)
    if len(out["prompt_ids"]) != n_want or len(out["output_ids"]) != n:
        sys.exit("hearth: %d prompt tokens and %d of output, wanted %d and %d" % (len(out["prompt_ids"]), len(out["output_ids"]), n_want, n))
    return out["timings"]


def run_hearth():
    # The first token comes out of the prompt's step: N_DECODE more are N_DECODE steps.
    return {"decode": hearth(words(N_PROMPT), N_DECODE + 1, N_PROMPT)["decode_tps"], "prefill": hearth(words(N_PREFILL), 1, N_PREFILL)["prefill_tps"]}


def run_llama(cpu):
    argv = [ORACLE, cpu, "bench", MODEL, str(N_PROMPT), str(N_DECODE), str(N_PREFILL)]
    out = json.loads(subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout)
    return {"decode": out["decode_tps"], "prefill": out["prefill_tps"], "system_info": out["system_info"]}


def report(pairs, info, cpu):
    """Prints the verdicts; returns whether all hold. Only AVX2 against AVX2 has thresholds."""
    print("llama.cpp back end: %s (%s)" % (cpu, " ".join(w.strip() for w in info.split("|") if "= 1" in w).replace(" = 1", "")))
    ok = True
    for what in ("decode", "prefill"):
        detail = "hearth %8.2f tok/s, llama.cpp %8.2f tok/s, " % tuple(paired.median(p[side][what] for p in pairs) for side in (0, 1))
        ok &= paired.report(what, [h[what] / l[what] for h, l in pairs], at_least=THRESHOLDS[what] if cpu == "haswell" else None, detail=detail)
    return ok


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=20, help="pairs of runs (default 20; 6 are the fewest an interval of 95 %% needs)")
    parser.add_argument("--cpu", default="haswell", help="llama.cpp's CPU back end: haswell (default), best, or another of its libraries")
    args = parser.parse_args()
    if not ORACLE.exists():
        subprocess.run(["sh", ROOT / "tools/oracle/oracle_setup.sh"], check=True, stdout=subprocess.DEVNULL)
    pairs = paired.alternate(args.pairs, run_hearth, lambda: run_llama(args.cpu))
    info = pairs[0][1]["system_info"]
    os.makedirs(ROOT / "build/bench", exist_ok=True)
    (ROOT / "build/bench/llama.json").write_text(json.dumps({"cpu": args.cpu, "system_info": info, "pairs": pairs}, indent=1) + "\n")
    sys.exit(0 if report(pairs, info, args.cpu) else 1)


if __name__ == "__main__":
    main()
