#!/usr/bin/env python3
"""One thread of Hearth against one thread of llama.cpp, same file: tokens per second of decoding and of a prompt.

Runs alternate A B B A, so that a machine that slows down does so to both; a pair is one run of each, side by side. Times come from inside
each process: hearth run --json, and tools/oracle/llama_oracle.c around llama_decode. Decoding is 64 tokens after a prompt of 16, greedy
in both; the prompt has 512 tokens. Printed: the median of the pairs' ratios (Hearth's rate over llama.cpp's) with the interval of order
statistics that holds the true median with at least 95 %. A threshold is missed when the whole interval lies below it.

Both use AVX2: Hearth by --simd avx2, llama.cpp by its back end built for Haswell. With --cpu best llama.cpp picks what the machine has.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys

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


def run_hearth(_):
    # The first token comes out of the prompt's step: N_DECODE more are N_DECODE steps.
    return {"decode": hearth(words(N_PROMPT), N_DECODE + 1, N_PROMPT)["decode_tps"], "prefill": hearth(words(N_PREFILL), 1, N_PREFILL)["prefill_tps"]}


def run_llama(cpu):
    argv = [ORACLE, cpu, "bench", MODEL, str(N_PROMPT), str(N_DECODE), str(N_PREFILL)]
    out = json.loads(subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout)
    return {"decode": out["decode_tps"], "prefill": out["prefill_tps"], "system_info": out["system_info"]}


def interval(ratios):
    """Median, and the order statistics around it: P(true median outside) is twice the binomial tail below the lower one."""
    v, n = sorted(ratios), len(ratios)
    median = (v[(n - 1) // 2] + v[n // 2]) / 2
    k = 0  # v[k] to v[n - 1 - k]: as narrow as 95 % allows; below 6 pairs even the whole range is less
    while 2 * sum(math.comb(n, i) for i in range(k + 2)) / 2 ** n <= 0.05:
        k += 1
    covers = 1 - 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2 ** n
    return median, v[k], v[n - 1 - k], covers


def measure(cpu, n_pairs):
    pairs, info = [], ""
    for i in range(n_pairs):
        got = {}
        for name, run in (("hearth", run_hearth), ("llama", run_llama))[::1 if i % 2 == 0 else -1]:
            got[name] = run(cpu)
        info = got["llama"].pop("system_info")
        pairs.append(got)
        if sys.stderr.isatty():
            print("\rpair %d of %d" % (i + 1, n_pairs), end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    return pairs, info


def middle(values):
    v = sorted(values)
    return (v[(len(v) - 1) // 2] + v[len(v) // 2]) / 2


def report(pairs, info, cpu):
    """Prints the verdicts; returns how many thresholds were missed. Only AVX2 against AVX2 has thresholds."""
    print("llama.cpp back end: %s (%s)" % (cpu, " ".join(w.strip() for w in info.split("|") if "= 1" in w).replace(" = 1", "")))
    missed = 0
    for what in ("decode", "prefill"):
        median, low, high, covers = interval([p["hearth"][what] / p["llama"][what] for p in pairs])
        line = "%-8s hearth %8.2f tok/s, llama.cpp %8.2f tok/s, ratio %.3f, %.0f %% interval %.3f to %.3f (%d pairs)" % (
            what, middle(p["hearth"][what] for p in pairs), middle(p["llama"][what] for p in pairs), median, 100 * covers, low, high, len(pairs))
        if cpu == "haswell":
            holds = high >= THRESHOLDS[what]
            missed += not holds
            line += ": at least %.1f %s" % (THRESHOLDS[what], "holds" if holds else "is MISSED")
        print(line)
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=20, help="pairs of runs (default 20; 6 are the fewest an interval of 95 %% needs)")
    parser.add_argument("--cpu", default="haswell", help="llama.cpp's CPU back end: haswell (default), best, or another of its libraries")
    args = parser.parse_args()
    if not ORACLE.exists():
        subprocess.run(["sh", ROOT / "tools/oracle/oracle_setup.sh"], check=True, stdout=subprocess.DEVNULL)
    pairs, info = measure(args.cpu, args.pairs)
    os.makedirs(ROOT / "build/bench", exist_ok=True)
    (ROOT / "build/bench/llama.json").write_text(json.dumps({"cpu": args.cpu, "system_info": info, "pairs": pairs}, indent=1) + "\n")
    sys.exit(1 if report(pairs, info, args.cpu) else 0)


if __name__ == "__main__":
    main()
