#!/usr/bin/env python3
"""Rings in rounds whose machines read weights from this disk, against what the exact judge of the cost model says of them.

    bench/rounds_bench.py [K ...] [--times N] [--seconds S] [--write]

For each k: a coordinator and three nodes with a cap that holds about half of their layers, direct reader, one compute thread each, and the same ring without
a cap. In alternation, all within seconds:

  capped    tokens of the ring that reads, which are judged
  disk      as many readers at once as there are nodes (residency_reader.c): nodes that share a disk share its rate, so each has its share of the sum
  uncapped  tokens of the ring without a cap: the processor time of its workers says how fast each stage and the head compute, what a token takes beyond
            that is hops

From disk, computing and hops the judge (ring_judge.c) gives a token's time; what follows is measured over judged, round by round. The judge knows no disk that
is shared: with a share for each for good it is too slow, as a node that reads while others' windows are full has more. So a bound from below is shown, too: the
larger of the judge's answer if each node had the whole disk, and of all bytes over the disk's rate. Rounds of several runs of this script add up in
build/bench/rounds.json. --write makes the table of docs/memory.md.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import emulated_ring as rings
import paired
from emulated_ring import cluster_module

import made  # after emulated_ring, which knows where

ROOT = rings.ROOT
DOC = ROOT / "docs/memory.md"
RESULTS = ROOT / "build/bench/rounds.json"
BEGIN, END = "<!-- table: bench/rounds_bench.py --write -->", "<!-- end of table -->"
JUDGE, READER = ROOT / "build/bench/ring_judge", ROOT / "build/bench/residency_reader"
LIMIT = 1.05
NODES = ("a", "b", "c")
LAYERS = int(made.STREAMED[made.STREAMED.index("--layers") + 1])
TOKENS_CAPPED, TOKENS_UNCAPPED = 10, 12
READ_S = 1.0
READ_MIB = 64  # of each reader's memory: the rate does not depend on it


def build():
    JUDGE.parent.mkdir(parents=True, exist_ok=True)
    for program in (JUDGE, READER):
        subprocess.run([os.environ.get("CC", "gcc"), "-std=c11", "-O3", "-D_GNU_SOURCE", "-I.", "-ffp-contract=off", "-o", program, "bench/%s.c" % program.name,
                        "build/libhearth.a", "-lsodium", "-lm", "-lpthread"], cwd=ROOT, check=True)


def even(n_layers, n):
    return [n_layers * (i + 1) // n - n_layers * i // n for i in range(n)]


class Ring:
    """A coordinator without layers and its nodes; node_options are theirs alone."""

    def __init__(self, model, folder, layers, k, *node_options):
        folder.mkdir()
        self.cluster = cluster_module.Cluster(ROOT / "build/bin/hearth", model, folder)
        self.layers = layers
        try:
            self.cluster.serve("--no-node", "--nodes", len(layers), "--threads", "1", "--rounds", k, "--ctx", "256", "--slots", "1", "--prefill-chunk", "16",
                "--split", ",".join(map(str, layers)))
            for name in NODES[:len(layers)]:
                self.cluster.join(name, "--threads", "1", "--keep-mem", "0", *node_options)
            status = self.cluster.wait_status(lambda s: s["ready"] and all(n["next_link"] == "direct" for n in stages_of(s)[:-1]), 120, "the ring")
        except BaseException:
            self.close()
            raise
        self.order = [n["name"] for n in stages_of(status)]

    def token_s(self, n):
        """The mean time between tokens, but for the first, which begins with full windows. A mean, as the disk's rate is one: a disk that pauses now and then
        makes some tokens much slower, and the median of a few would leave that out or make it all there is."""
        times, _ = rings.generate(self.cluster, n)
        return (times[-1] - times[1]) / (n - 2)

    def computing_s(self, n):
        """(mean time between tokens, of the head and of each stage what a token keeps its worker busy)"""
        processes = [self.cluster.processes[name] for name in (self.cluster.coordinator, *self.order)]
        before = rings.worker_ns(processes)
        times, _ = rings.generate(self.cluster, n)
        after = rings.worker_ns(processes)
        busy = [max(ns - before[p.pid].get(t, 0) for t, ns in after[p.pid].items()) / 1e9 / n for p in processes]
        return (times[-1] - times[0]) / (n - 1), busy

    def weights(self):
        """Where each stage's weights are, in ring order."""
        status = self.cluster.wait_status(lambda s: all(n.get("weights", {}).get("read_bytes", 0) > 0 for n in stages_of(s)), 20, "reports of all nodes")
        return [n["weights"] for n in stages_of(status)]

    def close(self):
        self.cluster.close()


def stages_of(status):
    return sorted((n for n in status["nodes"] if "stage" in n), key=lambda n: n["stage"])


def disk_rate(model, n):
    """Of each of n readers that read at once."""
    argv = [str(x) for x in (READER, model, "direct", READ_MIB, READ_S)]
    readers = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(n)]
    return sum(json.loads(r.communicate(timeout=120)[0])["bytes_per_s"] for r in readers) / n


def judged(k, layer_bytes, layers, weights, uncapped, rate):
    token_s, (head_s, *busy_s) = uncapped
    hop_s = max(1e-6, (token_s - head_s - sum(busy_s)) / (k * len(layers) + 1))
    stages = ["%d,%f,%f,%d,%d,%d" % (n, n * layer_bytes / b, rate, w["pinned_bytes"], w["streamed_bytes"], w["window_bytes"])
        for n, b, w in zip(layers, busy_s, weights)]
    out = subprocess.run([str(JUDGE), str(k), str(layer_bytes), "%.9f" % hop_s, "%.9f" % head_s, *stages], stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(out.stdout)


def measure(model, other_model, k, args, folder, add):
    """Calls add(where the weights are, row) for each round of measuring."""
    end = time.monotonic() + args.seconds
    sizes = made.sizes(*made.STREAMED)
    layers = even(LAYERS, len(NODES))
    with contextlib.ExitStack() as open_ones:
        def opened(ring):
            open_ones.callback(ring.close)
            return ring
        capped = opened(Ring(model, folder / "capped", layers, k, "--mem", "%dM" % args.cap, "--reader", "direct"))
        uncapped = opened(Ring(other_model, folder / "uncapped", layers, k))
        capped.token_s(3)
        uncapped.computing_s(3)  # reads the file: not counted
        weights = capped.weights()
        work = [lambda: capped.token_s(TOKENS_CAPPED), lambda: disk_rate(model, len(NODES)), lambda: uncapped.computing_s(TOKENS_UNCAPPED)]
        for i in range(args.times):
            if time.monotonic() > end:
                break
            got = [None] * 3
            for j in range(3) if i % 2 == 0 else reversed(range(3)):
                got[j] = work[j]()
            token_s, rate, computing = got
            says = [judged(k, sizes["layer_bytes"], layers, weights, computing, r) for r in (rate, rate * len(NODES))]
            row = {"token_s": token_s, "rate": rate, "computing": computing, "judged": says[0], "alone": says[1]}
            print("k = %d: %.3f s, judged %.3f, with a disk each %.3f" % (k, token_s, says[0]["token_s"], says[1]["token_s"]), file=sys.stderr, flush=True)
            add(weights, row)


def bound_s(r, row):
    """No ring takes less, whoever of its nodes reads when."""
    return max(row["alone"]["token_s"], sum(w["streamed_bytes"] for w in r["weights"]) / (len(NODES) * row["rate"]))


def line(k, r):
    def median(value):
        return paired.median(value(row) for row in r["rows"])

    def ratio(below):
        return "%.2f (%.2f to %.2f)" % paired.interval([row["token_s"] / below(row) for row in r["rows"]])[:3]
    ms = [1e3 * median(value) for value in (lambda x: x["computing"][0], lambda x: x["token_s"], lambda x: x["judged"]["token_s"], lambda x: bound_s(r, x))]
    return "| %s | %d | %.0f | %.0f | %.1f | %.1f | %.1f | %s | %.1f | %s |" % (k, len(r["rows"]), sum(w["streamed_bytes"] for w in r["weights"]) / 1e6,
        median(lambda x: len(NODES) * x["rate"]) / 1e6, *ms[:3], ratio(lambda x: x["judged"]["token_s"]), ms[3], ratio(lambda x: bound_s(r, x)))


def table(results):
    lines = ["| k | times | streamed, MB a token | disk, MB/s | a token without a cap, ms | measured, ms | judged, ms | measured / judged | bound, ms | measured / bound |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"]
    return "\n".join(lines + [line(k, r) for k, r in sorted(results.items())]) + "\n"


def write(text):
    doc = DOC.read_text()
    begin, end = doc.index(BEGIN) + len(BEGIN), doc.index(END)
    DOC.write_text(doc[:begin] + "\n\n" + text + "\n" + doc[end:])


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("k", nargs="*", type=int, help="rounds (default: 1 2 4; none with --write: only writes)")
    p.add_argument("--times", type=int, default=20, help="measured in alternation so often (default 20)")
    p.add_argument("--seconds", type=int, default=3600, help="no round begins later")
    p.add_argument("--cap", type=int, default=150, help="MiB of each node")
    p.add_argument("--write", action="store_true", help="put the table of all results so far into docs/memory.md")
    args = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    build()
    model = made.made("streamed", *made.STREAMED)
    other = model.with_suffix(".uncapped")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    holds = True
    for k in args.k or ([] if args.write else [1, 2, 4]):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(model, other)  # pages of its own: what one ring maps the other could not drop
            def add(weights, row, k=k):
                of_k = results.setdefault(str(k), {"weights": weights, "rows": []})
                of_k["weights"] = weights
                of_k["rows"].append(row)
                RESULTS.write_text(json.dumps(results, indent=1))
            try:
                measure(model, other, k, args, pathlib.Path(folder), add)
            finally:
                other.unlink()
        holds &= paired.report("k = %d" % k, [r["token_s"] / r["judged"]["token_s"] for r in results[str(k)]["rows"]], at_most=LIMIT)
    text = table(results)
    if args.write:
        write(text)
    print(text, end="")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
