#!/usr/bin/env python3
"""What a cluster costs and gains, SmolLM2-135M on this machine, in alternating pairs (paired.py):

  hops     time per token of a coordinator and three nodes (one compute thread each; a token is in one place at a time) over that of
           one process with one compute thread. Threshold: at most 1.15.
  batch    total time of eight clients at once over that of the same eight one after the other, three stages. Threshold: at most 0.6.

Run it on a quiet machine: python3 bench/cluster_bench.py [--pairs N] [--only hops|batch]
"""
import argparse
import pathlib
import sys
import tempfile
import threading
import time

import paired

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/integration"))
import cluster as cluster_module  # noqa: E402

MODEL = ROOT / "build/models/SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPT = "The history of the bicycle began"
PROMPTS = ["Count: one, two,", "The sea is", "Once upon a time", "def add(a, b):", "Bonjour, je", "2 + 2 =", "A recipe for bread:", "The moon"]
N_TOKENS = 64


def ms_per_token(answer):
    return answer["timings"]["decode_ms"] / answer["timings"]["decode_tokens"]


def one_after_the_other(c):
    begin = time.monotonic()
    for p in PROMPTS:
        c.run(p, "--no-logits-hash", n=N_TOKENS)
    return time.monotonic() - begin


def together(c):
    threads = [threading.Thread(target=c.run, args=(p, "--no-logits-hash"), kwargs={"n": N_TOKENS}) for p in PROMPTS]
    begin = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return time.monotonic() - begin


def measure(name, n_pairs, a, b, at_most):
    got = paired.alternate(n_pairs, a, b)
    return paired.report(name, [x / y for x, y in got], at_most=at_most,
        detail="%.2f over %.2f, " % (paired.median(x for x, _ in got), paired.median(y for _, y in got)))


def main():
    parser = argparse.ArgumentParser(description="What a cluster costs and gains on this machine.")
    parser.add_argument("--only", choices=["hops", "batch"], help="default: both")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of runs (default 20)")
    args = parser.parse_args()
    ok = True
    with tempfile.TemporaryDirectory() as folder:
        c = cluster_module.Cluster(ROOT / "build/bin/hearth", MODEL, folder)
        try:
            c.serve("--no-node", "--nodes", "3", "--threads", "1")
            for name in "abc":
                c.join(name, "--threads", "1")
            c.wait_status(lambda s: s["ready"] and all(n.get("next_link") != "relay" for n in s["nodes"]), 60, "direct links")
            ring = lambda: ms_per_token(c.run(PROMPT, "--no-logits-hash", n=N_TOKENS))  # noqa: E731
            alone = lambda: ms_per_token(c.run_alone(PROMPT, "--no-logits-hash", "--threads", "1", n=N_TOKENS))  # noqa: E731
            if args.only != "batch":
                ring(), alone()  # the first run of each reads the file
                ok &= measure("hops", args.pairs, ring, alone, 1.15)
            if args.only != "hops":
                ok &= measure("batch", args.pairs, lambda: together(c), lambda: one_after_the_other(c), 0.6)
        finally:
            c.close()
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
