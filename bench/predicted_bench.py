#!/usr/bin/env python3
"""What `hearth sim run` predicts against what real processes behind `hearth emulate` take, on replayed Wi-Fi traces.

    bench/predicted_bench.sh [--only NAME,...] [--write]

For each topology: a coordinator and nodes as processes, one compute thread each, whose links replay traces of `hearth trace generate`; one stream at a
time. Chunks of it alternate with those of two calibrations, forwards, backwards, forwards ...:

  computing   bench/calibrate: one process, the same ranges of layers, one thread, rests between them as the links make them
  software    a ring of one node over a link of a fixed 2 ms: what its tokens take beyond the processor time of its workers and the link, halved

From these and the traces a scenario is written, which names the same times of the traces, and simulated. Nothing of the run that is predicted goes
into it but the order of its ring and when its requests came. Results are merged by topology into build/bench/predicted.json, so that a part can be measured
again; --write makes the table of docs/predicted.md from it. Exit code 1: a threshold is missed.
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import sys
import tempfile
import time

import emulated_ring as rings
import paired

ROOT = rings.ROOT
DOC = ROOT / "docs/predicted.md"
RESULTS = ROOT / "build/bench/predicted.json"
BEGIN, END = "<!-- table: bench/predicted_bench.sh --write -->", "<!-- end of table -->"
LIMITS = {"p50": .10, "p90": .25}
MODEL_SHAPE = {"hidden": 576, "vocab": 49152}  # SmolLM2-135M
CHUNKS, CHUNK_TOKENS = 16, 24
BUSY_MAX = .2   # cores that others keep busy in a round that counts
ROUNDS_MAX = 3
REFERENCE = rings.Topology("reference", "one node, fixed delay", {"a": "W0"}, [30])
W1_3, W2_3 = dict.fromkeys("abc", "W1"), dict.fromkeys("abc", "W2")
TOPOLOGIES = [
    rings.Topology("w1-two", "two nodes on W1", dict.fromkeys("ab", "W1"), [15, 15]),
    rings.Topology("w2-two-uneven", "two nodes on W2, uneven", dict.fromkeys("ab", "W2"), [20, 10]),
    rings.Topology("w1-three", "three nodes on W1", W1_3, [10, 10, 10]),
    rings.Topology("w1-three-relayed", "three nodes on W1 that reach only the coordinator", W1_3, [10, 10, 10], relayed=True),
    rings.Topology("w2-three-uneven", "three nodes on W2, uneven", W2_3, [16, 8, 6]),
    rings.Topology("w1-four-hub", "four nodes on W1, the coordinator holds layers too", dict.fromkeys("abcd", "W1"), [10, 8, 6, 4, 2]),
    rings.Topology("mixed-four", "two wired nodes (W0) and two on W2", {"a": "W0", "b": "W0", "c": "W2", "d": "W2"}, [8, 8, 7, 7]),
    rings.Topology("w2-four-relayed", "four nodes on W2 that reach only the coordinator", dict.fromkeys("abcd", "W2"), [8, 8, 7, 7], relayed=True),
]


def quantile(values, part):
    """Nearest rank, as `hearth sim run` has it."""
    v = sorted(values)
    return v[max(0, -int(-part * len(v) // 1) - 1)]


class Tools:
    def __init__(self, hearth, calibrate, model):
        self.hearth, self.calibrate, self.model = hearth, calibrate, model


class Load:
    """How many cores others keep busy: the machine's busy time without that of processes which are ours."""

    def __init__(self, pids):
        self.pids = [*pids, os.getpid()]
        self.start()

    def now(self):
        ticks = [int(x) for x in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        busy = sum(ticks) - ticks[3] - ticks[4]  # without idle, waiting for a disk
        for pid in self.pids:
            fields = pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()
            busy -= int(fields[11]) + int(fields[12])
        return busy / os.sysconf("SC_CLK_TCK"), time.monotonic()

    def start(self):
        self.begin = self.now()

    def cores(self):
        """Since start()."""
        (busy, wall), (busy_then, wall_then) = self.now(), self.begin
        return max(0.0, (busy - busy_then) / (wall - wall_then))


def computing_us(calibrated):
    """(of each range, of the head) of a token of median time: each part has its share of all the time. Episodes in which the machine is slow hit all
    parts together, so that the sum of their medians would be another one."""
    parts = [[us for c in calibrated for us in c["ranges"][i]] for i in range(len(calibrated[0]["ranges"]))]
    parts.append([us for c in calibrated for us in c["head"]])
    totals = [sum(token) for token in zip(*parts)]
    scale = quantile(totals, .5) / sum(totals)
    *ranges, head = (scale * sum(p) for p in parts)
    return ranges, head


def software_ms(answers):
    """Of one hop: what the reference takes per token beyond computing and its two delays, halved. Its own workers tell what it computed: a
    calibration beside it would be off by how the machine's speed varies, which is more than this is."""
    return paired.median((1e3 * sum(a["gaps_s"]) / len(a["gaps_s"]) - 1e3 * a["computing_s"] / (len(a["gaps_s"]) + 1)) / 2 - rings.REFERENCE_DELAY_MS for a in answers)


def measure(topology, tools, folder, chunks=CHUNKS, tokens=CHUNK_TOKENS):
    """One topology's row: what was measured and what is predicted, in ms."""
    with contextlib.ExitStack() as open_ones:
        def opened(thing):
            open_ones.callback(thing.close)
            return thing
        reference = opened(rings.Ring(REFERENCE, tools.hearth, tools.model, folder / "reference", fixed_ms=rings.REFERENCE_DELAY_MS))
        ring = opened(rings.Ring(topology, tools.hearth, tools.model, folder / topology.name))
        calibration = opened(rings.Calibration(tools.calibrate, tools.model, ring.rests_us(), topology.layers))
        ours = [reference, ring, calibration]
        load = Load([pid for o in ours for pid in o.pids()])
        rounds = alternate([ring.answer, calibration.tokens, reference.answer], load, chunks, tokens)
        return judge(topology, ring, *rounds)


def alternate(work, load, chunks, tokens):
    """(what each gave, round by round; how many cores others kept busy meanwhile). One round forwards, one backwards. A round with more than
    BUSY_MAX is done again, up to ROUNDS_MAX times as many in all; if that was not enough, the quietest are kept."""
    for of_one in work:
        of_one(tokens)  # reads files, warms caches: not counted
    rounds, n_done = [], 0
    while sum(busy <= BUSY_MAX for busy, _ in rounds) < chunks and n_done < ROUNDS_MAX * chunks:
        got = [None] * len(work)
        load.start()
        for k in range(len(work)) if n_done % 2 == 0 else reversed(range(len(work))):
            got[k] = work[k](tokens)
        rounds.append((load.cores(), got))
        n_done += 1
    kept = sorted(sorted(range(n_done), key=lambda i: rounds[i][0])[:chunks])
    return [rounds[i] for i in kept], n_done


def judge(topology, ring, rounds, n_done):
    answers, calibrated, reference_answers = zip(*(got for _, got in rounds))
    software = software_ms(reference_answers)
    ranges_us, head_us = computing_us(calibrated)
    text = rings.scenario_text(ring, ranges_us, head_us, max(software, 0.0), answers, MODEL_SHAPE)
    said = rings.predict(ring, text)
    gaps = [g for a in answers for g in a["gaps_s"]]
    return {"words": topology.words, "layers": topology.layers, "n": len(gaps), "date": datetime.date.today().isoformat(),
        "other_cores": sum(busy for busy, _ in rounds) / len(rounds), "rounds": [len(rounds), n_done],
        "computing_ms": (sum(ranges_us) + head_us) / 1e3, "software_ms": software, "hops": len(ring.hops()),
        "measured_ms": {"p50": 1e3 * quantile(gaps, .5), "p90": 1e3 * quantile(gaps, .9), "mean": 1e3 * sum(gaps) / len(gaps)},
        "predicted_ms": {k: 1e3 * said["gap_s"][k] for k in ("p50", "p90", "mean")}, "predicted_n": said["gap_s"]["n"], "scenario": text}


def ratio(row, what):
    return row["predicted_ms"][what] / row["measured_ms"][what]


def verdicts(rows):
    """[(what, median deviation, limit)]"""
    return [(what, paired.median(abs(ratio(r, what) - 1) for r in rows.values()), limit) for what, limit in LIMITS.items()]


def table(rows):
    lines = ["| topology | layers of the stages | n | median: predicted / measured, ms | ratio | p90: predicted / measured, ms | ratio | computing | a hop's software |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|"]
    for name, r in rows.items():
        p, m = r["predicted_ms"], r["measured_ms"]
        lines.append("| %s | %s | %d | %.1f / %.1f | %.2f | %.1f / %.1f | %.2f | %.1f ms | %.2f ms |" % (r["words"], ", ".join(map(str, r["layers"])), r["n"], p["p50"], m["p50"],
            ratio(r, "p50"), p["p90"], m["p90"], ratio(r, "p90"), r["computing_ms"], r["software_ms"]))
    lines.append("")
    for what, deviation, limit in verdicts(rows):
        lines.append("%s: median deviation over %d topologies %.1f %%, at most %d %% wanted." % ({"p50": "Median", "p90": "p90"}[what], len(rows), 100 * deviation, 100 * limit))
    return "\n".join(lines) + "\n"


def cpu():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "an unknown processor"


def footer(rows):
    dates = sorted({r["date"] for r in rows.values()})
    counted, done = (sum(r["rounds"][i] for r in rows.values()) for i in (0, 1))
    return "%d cores of %s, %s. %d of %d rounds count; while they were measured, others kept %.2f cores busy (median over the topologies).\n" % (os.cpu_count(), cpu(),
        " to ".join(sorted({dates[0], dates[-1]})), counted, done, paired.median(r["other_cores"] for r in rows.values()))


def write(text):
    doc = DOC.read_text()
    begin, end = doc.index(BEGIN) + len(BEGIN), doc.index(END)
    DOC.write_text(doc[:begin] + "\n\n" + text + "\n" + doc[end:])


def main():
    p = argparse.ArgumentParser(description="What hearth sim run predicts against real processes behind hearth emulate.")
    p.add_argument("--only", help="comma-separated topologies: %s" % ", ".join(t.name for t in TOPOLOGIES))
    p.add_argument("--write", action="store_true", help="put the table of all results so far into docs/predicted.md")
    p.add_argument("--no-measuring", action="store_true", help="only show (and write) the results so far")
    args = p.parse_args()
    wanted = args.only.split(",") if args.only else [t.name for t in TOPOLOGIES]
    assert set(wanted) <= {t.name for t in TOPOLOGIES}, "no such topology: %s" % args.only
    tools = Tools(ROOT / "build/bin/hearth", ROOT / "build/bench/calibrate", ROOT / "build/models/SmolLM2-135M-Instruct.Q4_1.gguf")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for t in TOPOLOGIES:
        if t.name not in wanted or args.no_measuring:
            continue
        with tempfile.TemporaryDirectory() as folder:
            results[t.name] = measure(t, tools, pathlib.Path(folder))
        RESULTS.write_text(json.dumps(results, indent=1))
        print(t.name, json.dumps({k: v for k, v in results[t.name].items() if k != "scenario"}), file=sys.stderr, flush=True)
    rows = {t.name: results[t.name] for t in TOPOLOGIES if t.name in results}
    text = table(rows) + "\n" + footer(rows)
    if args.write:
        write(text)
    print(text, end="")
    return 0 if all(deviation <= limit for _, deviation, limit in verdicts(rows)) else 1


if __name__ == "__main__":
    sys.exit(main())
