#!/usr/bin/env python3
"""Published figures of other systems beside what `hearth sim run` predicts for them.

    python3 bench/published_bench.py [--write] [--hearth build/bin/hearth]

Runs every scenario of sim/scenarios/published/ and prints a table; with --write it puts the same table into docs/published.md. A row marked
"calibration" lent its figure to the scenario, so that agreement there proves nothing. Nothing is fitted to any other row.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCENARIOS = ROOT / "sim" / "scenarios" / "published"
DOC = ROOT / "docs" / "published.md"
BEGIN = "<!-- table: bench/published_bench.py --write -->"
END = "<!-- end of table -->"
GROUPS = [("llama-cpp", "llama.cpp, one machine"), ("prima", "prima.cpp"), ("exo", "exo"), ("dllama", "distributed-llama"), ("tpi", "TPI-LLM"),
          ("petals", "Petals")]
# Latency effects: what a longer round trip adds to a step, without the stages' time, which is taken from the first row.
EFFECTS = [("Petals, Llama 2 70B on three T4", "petals-t4-near", "petals-t4-far"),
           ("Petals, BLOOM-176B on three A100, 100 Mbit/s", "petals-a100-slow", "petals-a100-far")]


def order(path):
    """Groups as above; within one by name, sizes as numbers."""
    group = next(i for i, (prefix, _) in enumerate(GROUPS) if path.stem.startswith(prefix))
    return group, [int(t) if t.isdigit() else t for t in re.split(r"(\d+)", path.stem)]


def run(hearth, path):
    p = subprocess.run([str(hearth), "sim", "run", str(path), "--json"], capture_output=True, text=True, timeout=300)
    if p.returncode != 0:
        sys.exit("%s: %s" % (path, p.stderr.strip()))
    return json.loads(p.stdout)


def milliseconds(seconds):
    ms = seconds * 1000
    return "%.0f" % ms if ms >= 100 else "%.1f" % ms


def figures(said):
    """(what, published, predicted) of one scenario."""
    published = said["published"]
    if published["tpot_s"]:
        yield "per token", published["tpot_s"], said["tpot_s"]["p50"]
    if published["ttft_s"]:
        yield "first token", published["ttft_s"], said["ttft_s"]["p50"]
    if published["exchange_s"]:
        yield "one exchange", published["exchange_s"], said["cost_model"]["exchange_s"]


def table(results):
    lines = ["| scenario | what | published, ms | predicted, ms | deviation | |", "|---|---|---:|---:|---:|---|"]
    for name, said in results.items():
        for what, published, predicted in figures(said):
            mark = "calibration: " if said["published"]["calibrates"] else ""
            lines.append("| [%s](../sim/scenarios/published/%s.toml): %s | %s | %s | %s | %+.1f %% | %s%s |" % (
                name, name, said["about"], what, milliseconds(published), milliseconds(predicted), (predicted / published - 1) * 100, mark,
                said["published"]["note"]))
    lines += ["", "| effect of a round trip of 100 ms on one step | published, ms | predicted, ms | deviation |", "|---|---:|---:|---:|"]
    for words, near, far in EFFECTS:
        published = results[far]["published"]["tpot_s"] - results[near]["published"]["tpot_s"]
        predicted = results[far]["tpot_s"]["p50"] - results[near]["tpot_s"]["p50"]
        lines.append("| %s | %s | %s | %+.1f %% |" % (words, milliseconds(published), milliseconds(predicted), (predicted / published - 1) * 100))
    return "\n".join(lines) + "\n"


def assumptions(results):
    """Every figure that was assumed, once."""
    seen = {}
    for name, said in results.items():
        for d in said["derived"]:
            seen.setdefault((d["figure"], d["value"], d["why"]), []).append(name)
    lines = ["| assumed | value | from | in |", "|---|---|---|---|"]
    for (figure, value, why), names in seen.items():
        lines.append("| %s | %s | %s | %s |" % (figure, value, why, names[0] if len(names) == 1 else "%s and %d more" % (names[0], len(names) - 1)))
    return "\n".join(lines) + "\n"


def write(text):
    doc = DOC.read_text()
    begin, end = doc.index(BEGIN) + len(BEGIN), doc.index(END)
    DOC.write_text(doc[:begin] + "\n\n" + text + "\n" + doc[end:])


def main():
    p = argparse.ArgumentParser(description="Published figures beside predicted ones.")
    p.add_argument("--hearth", type=pathlib.Path, default=ROOT / "build" / "bin" / "hearth")
    p.add_argument("--write", action="store_true", help="put the tables into docs/published.md")
    args = p.parse_args()
    results = {path.stem: run(args.hearth, path) for path in sorted(SCENARIOS.glob("*.toml"), key=order)}
    text = table(results) + "\n" + assumptions(results)
    if args.write:
        write(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
