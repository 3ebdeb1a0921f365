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


def again(cases):
    """Positions and layers that were computed again, in the cases where something was: (fewest, most) of each."""
    some = [a for c in cases for a in c["again"] if a[2] > 0]
    layers = [N_LAYERS if a[0] is None else a[1] - a[0] + 1 for a in some]
    return [(min(v), max(v)) if v else (0, 0) for v in ([a[2] for a in some], layers)]


def span(v):
    return "%d" % v[0] if v[0] == v[1] else "%d to %d" % v


def row(loss, token, silence, cases):
    pauses = sorted(c["pause_ms"] / 1000 for c in cases)
    positions, layers = again(cases)
    return "| %s | %s | %d | %d | %.1f | %.1f | %.0f | %s | %s of %d |" % (loss, silence, token, len(cases), statistics.median(pauses), pauses[-1],
                                                                  statistics.median(c["token_ms"] for c in cases), span(positions), span(layers), N_LAYERS)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/recovery")
    cases = [json.loads(f.read_text()) for f in sorted(p.parse_args().folder.glob("*.json"))]
    print("| loss | given up after | at token | answers | pause, s: median | most | a token, ms | positions computed again | in layers |")
    print("|---|---|---|---|---|---|---|---|---|")
    for loss in ("kill", "stop", "cut"):
        for token in (1, 17, 200):
            for silence in ("0.8 s", "8 s"):
                some = [c for c in cases if (c["loss"], c["token"], c["silence"]) == (loss, token, silence)]
                if some:
                    print(row(loss, token, silence, some))


if __name__ == "__main__":
    main()
