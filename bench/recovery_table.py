#!/usr/bin/env python3
"""What tests/integration/test_recovery.py measured: of each kind of loss the pause that the client saw, and what was computed again.

    python3 tools/run_tests.py recovery-long
    python3 bench/recovery_table.py [--folder build/recovery]

A row is the three positions of the ring and the three ways to sample of one loss at one token. An answer's pause is the longest time between two of
its tokens.
"""
import argparse
import json
import pathlib
import statistics

ROOT = pathlib.Path(__file__).resolve().parent.parent
N_LAYERS = 30  # of SmolLM2


def again_text(cases):
    """Part of layers x positions that was computed again, of what the answer had computed until then: mean over cases."""
    parts = []
    for case in cases:
        done = [(a[2] * ((a[1] - a[0] + 1) if a[0] is not None and a[2] > 0 else N_LAYERS if a[2] > 0 else 0), a[2] * N_LAYERS) for a in case["again"]]
        if done:
            parts.append(sum(d for d, _ in done) / max(sum(n for _, n in done), 1))
    return "%.0f %%" % (100 * statistics.mean(parts)) if parts else "nothing"


def row(loss, token, silence, cases):
    pauses = sorted(c["pause_ms"] / 1000 for c in cases)
    positions = sorted(a[2] for c in cases for a in c["again"])
    span = "%d to %d" % (positions[0], positions[-1]) if positions else "-"
    return "| %s | %s | %d | %d | %.1f | %.1f | %.0f | %s | %s |" % (loss, silence, token, len(cases), statistics.median(pauses), pauses[-1],
                                                             statistics.median(c["token_ms"] for c in cases), span, again_text(cases))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/recovery")
    cases = [json.loads(f.read_text()) for f in sorted(p.parse_args().folder.glob("*.json"))]
    print("| loss | given up after | at token | answers | pause, s: median | most | a token, ms | positions computed again | of their layers |")
    print("|---|---|---|---|---|---|---|---|---|")
    for loss in ("kill", "stop", "cut"):
        for token in (1, 17, 200):
            for silence in ("0.8 s", "8 s"):
                some = [c for c in cases if (c["loss"], c["token"], c["silence"]) == (loss, token, silence)]
                if some:
                    print(row(loss, token, silence, some))


if __name__ == "__main__":
    main()
