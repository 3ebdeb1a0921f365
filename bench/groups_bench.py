#!/usr/bin/env python3
"""A group of two nodes with a core each, against what two cores and its exchanges allow.

    bench/groups_bench.py [SHAPE ...] [--mode MODE,...] [--chunk N] [--times N] [--seconds S] [--write]

A coordinator without layers, and nodes that are pinned to a core each, one compute thread. In alternation (A B B A ...), all within seconds:

  one       a node alone holds all layers: T1 for a token, or for a prompt of 512
  group     two share each layer, half and half: T2
  scaling   how much faster two cores are than one, s: reading a buffer as large as the layers (read_scaling.c); of a prompt, one node with two threads
  empty     the same group, and the same node alone, with products that compute nothing (empty_products.c): what the group takes longer is its
            exchanges, with the same payload; over T1 that is c
  idle      for a token, the group with shares of 1 and 0: what it takes longer than one node, over T1, is c as well, without waiting for each other

Rounds in which other programs, or other guests of the host, took more than OTHERS_MAX of the processors do not count.

What no such group passes is 1 / (1 / s + c); what holds is T1 / T2 of at least 0.9 of that. Rounds of several runs of this script add up in
build/bench/groups.jsonl. --write makes the table of docs/groups.md of them.
"""
import argparse
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/integration"))
import cluster as cluster_module  # noqa: E402
import paired  # noqa: E402

DOC = ROOT / "docs/groups.md"
RESULTS = ROOT / "build/bench/groups.jsonl"
MODELS = ROOT / "build/models/made"
BEGIN, END = "<!-- table: bench/groups_bench.py --write -->", "<!-- end of table -->"
HEARTH, EMPTY, READER = ROOT / "build/bin/hearth", ROOT / "build/bench/hearth_empty", ROOT / "build/bench/read_scaling"
LIBS = "-lnng -lmicrohttpd -ljansson -lsqlite3 -lprotobuf-c -lpcre2-8 -lsodium -lqrencode -lzstd -lpthread -lm".split()
LIMIT = 0.9
READ_S = 0.3
OTHERS_MAX = 0.04


class Shape:
    def __init__(self, words, shape, layers, tokens=0, prompt=0):
        self.words, self.shape, self.layers, self.tokens, self.prompt = words, "%s,layers=%d" % (shape, layers), layers, tokens, prompt


SHAPES = {
    "decode": Shape("a token, four layers of an 8B", "8B", 4, tokens=14),
    "cache": Shape("a token, two layers of 80 MB, within the L3 cache", "8B,ffn=8192", 2, tokens=32),
    "prefill": Shape("a prompt of 512, four layers of an 8B", "8B", 4, prompt=512),
}
MODES = ("gather", "mixed", "mixed-scatter", "reduce")
CHUNKS = (0, 256, 128)  # tokens of a prompt in one forward; 0: as it is by itself
FIELDS = ("s", "one", "group", "empty_one", "empty_group", "idle", "others")


def build():
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    cc = [os.environ.get("CC", "gcc"), "-std=c11", "-O3", "-D_GNU_SOURCE", "-I."]
    subprocess.run([*cc, "-march=native", "-o", READER, "bench/read_scaling.c", "-lpthread"], cwd=ROOT, check=True)
    wraps = ["-Wl,--wrap=%s" % f for f in ("kernels_matmul", "kernels_matmul_nodes")]
    subprocess.run([*cc, *wraps, "-o", EMPTY, "build/obj/cli/main.o", "bench/empty_products.c", "build/libhearth.a", *LIBS], cwd=ROOT, check=True)


def model_of(shape):
    """A vocabulary of next to nothing: the output head, which is the coordinator's, takes no time."""
    MODELS.mkdir(parents=True, exist_ok=True)
    vocab, model = MODELS / "tiny-vocab.gguf", MODELS / ("groups-%s.gguf" % shape.shape)
    if not vocab.exists():
        subprocess.run([sys.executable, ROOT / "tools/make_tiny_model.py", "--no-stop", vocab], check=True)
    words = [ROOT / "tools/make_model", "--vocab-from", vocab, "--shape", shape.shape, "--type", "Q4_0"]
    if not model.exists():
        subprocess.run([*words, "-o", model], check=True, capture_output=True)
    sizes = json.loads(subprocess.run([*words, "--dry-run"], check=True, capture_output=True).stdout)
    return model, sizes["layer_bytes"] * shape.layers


@contextlib.contextmanager
def on_cores(cores):
    """What is started meanwhile may use these alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Machines:
    """A coordinator and its nodes. place: as of --place; cores: those of each node."""

    def __init__(self, hearth, model, folder, shape, place, cores, mode="gather", chunk=0):
        folder.mkdir()
        self.shape, self.n_prompts, self.n_tokens = shape, 0, shape.tokens * (3 if hearth == EMPTY else 1)
        self.cluster = cluster_module.Cluster(hearth, model, folder)
        try:
            self.cluster.serve("--no-node", "--threads", "1", "--no-give-way", "--nodes", len(cores), "--slots", "1", "--ctx", "768", "--keep-mem", "0", "--place",
                place, *(["--tp-mode", mode] if "+" in place else []), *(["--prefill-chunk", chunk] if chunk else []))
            for name, own in cores.items():
                with on_cores(own):
                    self.cluster.join(name, "--threads", len(own), "--no-give-way", "--keep-mem", "0")
            is_up = lambda s: s["ready"] and sum("stage" in n for n in s["nodes"]) == len(cores)  # noqa: E731
            self.cluster.wait_status(is_up, 60, "a plan of %d machines" % len(cores))
            for _ in range(2 if shape.prompt == 0 else 1):
                self.measure()
        except BaseException:
            self.cluster.close()
            raise

    def ask(self, prompt, n):
        """(seconds to the first token, seconds between tokens, tokens) of an answer."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(120)
            s.connect(str(self.cluster.state(self.cluster.coordinator) / "admin.sock"))
            began, times, ids, said = time.perf_counter(), [], [], {}
            s.sendall(json.dumps({"cmd": "generate", "prompt": prompt, "max_tokens": n, "temperature": 0.0, "ignore_stop": True}).encode() + b"\n")
            for line in s.makefile("rb"):
                at, said = time.perf_counter(), {**said, **json.loads(line)}
                if said.get("token", -1) >= 0:
                    times.append(at)
                    ids.append(said["token"])
                if "end" in said:
                    break
        assert said.get("end") == "length" and len(times) == n, said
        return times[0] - began, [b - a for a, b in zip(times, times[1:])], ids, len(said["prompt_ids"])

    def measure(self):
        """Seconds of a token, or of the prompt."""
        if self.shape.prompt == 0:
            _, gaps, self.ids, _ = self.ask("Once", self.n_tokens)
            return paired.median(gaps[1:])
        self.n_prompts += 1 # each another one: of the last there may be something left
        first_s, _, self.ids, n = self.ask(("%d" % self.n_prompts + "zq" * self.shape.prompt)[:self.shape.prompt], 1)  # a token each
        assert n == self.shape.prompt, n
        return first_s


class Reader:
    def __init__(self, n_bytes):
        self.process = subprocess.Popen([READER, str(n_bytes >> 20), str(READ_S)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def measure(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        rates = json.loads(self.process.stdout.readline())
        return rates["two"] / rates["one"]

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)


class Others:
    """What share of the processors' time went to others than this process and those it has started."""

    def __init__(self):
        self.before = self.times()

    @staticmethod
    def times():
        """Seconds of: all busy processors, own processes."""
        tick, own, me = os.sysconf("SC_CLK_TCK"), 0, os.getpid()
        user, nice, system, _, _, irq, softirq, steal = map(int, pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9])
        for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                f = path.read_text().rsplit(")", 1)[1].split()
                if int(f[1]) == me or int(path.parent.name) == me:
                    own += int(f[11]) + int(f[12])
        return (user + nice + system + irq + softirq + steal) / tick, own / tick, time.monotonic()

    def share(self):
        """Since the last call."""
        before, self.before = self.before, self.times()
        busy, own, passed = (b - a for a, b in zip(before, self.before))
        return max(0, busy - own) / passed / os.cpu_count()


def open_arms(shape, modes, chunk, folder, stack):
    """{name: function that measures it}; those of a mode are called (what, mode)."""
    model, n_bytes = model_of(shape)
    n_opened = iter(range(1000))

    def machines(hearth, place, cores, mode="gather"):
        m = Machines(hearth, model, folder / str(next(n_opened)), shape, place % shape.layers, cores, mode, chunk)
        stack.callback(m.cluster.close)
        return m
    one, two = {"a": {0}}, {"a": {0}, "b": {1}}
    alone = machines(HEARTH, "a=%d", one)
    arms = {"one": alone.measure}
    if shape.prompt > 0:
        arms["s"] = machines(HEARTH, "a=%d", {"a": {0, 1}}).measure
    else:
        reader = Reader(n_bytes)
        stack.callback(reader.close)
        arms["s"] = reader.measure
    arms["empty_one"] = machines(EMPTY, "a=%d", one).measure
    for mode in modes:
        groups = {"group": machines(HEARTH, "a:1+b:1=%d", two, mode), "empty_group": machines(EMPTY, "a:1+b:1=%d", two, mode)}
        if shape.prompt == 0:
            groups["idle"] = machines(HEARTH, "a:1+b:0=%d", two, mode)
            assert alone.ids == groups["group"].ids == groups["idle"].ids
        arms.update({(what, mode): m.measure for what, m in groups.items()})
    return arms


def kept_of(name, mode, chunk, seconds=3600):
    what = {"shape": SHAPES[name].shape, "tokens": SHAPES[name].tokens, "prompt": SHAPES[name].prompt, "mode": mode, **({"chunk": chunk} if chunk else {})}
    return paired.Kept(RESULTS, "group of two", what, seconds)


def measure(name, modes, chunk, times, end):
    shape = SHAPES[name]
    kept = {mode: kept_of(name, mode, chunk) for mode in modes}
    with tempfile.TemporaryDirectory(prefix="hearth-groups-") as folder, contextlib.ExitStack() as stack:
        arms, others = open_arms(shape, modes, chunk, pathlib.Path(folder), stack), Others()
        while time.monotonic() < end and min(len(rows_of(k)) for k in kept.values()) < times:
            i = min(len(k.pairs) for k in kept.values())
            others.share()
            got = {arm: arms[arm]() for arm in (list(arms) if i % 2 == 0 else reversed(list(arms)))}
            if shape.prompt > 0:
                got["s"] = got["one"] / got["s"]
            got["others"] = others.share()
            for mode, k in kept.items():
                k.add([got[(f, mode)] if (f, mode) in got else got.get(f) for f in FIELDS])


class Row:
    """What one round says."""

    def __init__(self, values):
        v = dict(zip(FIELDS, values))
        self.s, self.one, self.group = v["s"], v["one"], v["group"]
        self.others = v.get("others", 0)
        self.speedup = self.one / self.group
        self.c = (v["empty_group"] - v["empty_one"]) / self.one
        self.bound = 1 / (1 / self.s + self.c)
        self.c_idle = (v["idle"] - self.one) / self.one if v["idle"] is not None else None
        self.bound_idle = 1 / (1 / self.s + self.c_idle) if v["idle"] is not None else None


def rows_of(kept):
    return [r for r in map(Row, kept.pairs) if r.others <= OTHERS_MAX]


def line(name, mode, rows):
    def mid(value):
        return paired.median(value(r) for r in rows)

    def of(bound):
        return "%.3f (%.3f to %.3f)" % paired.interval([r.speedup / bound(r) for r in rows])[:3]
    out = "| %s | %s | %d | %.1f | %.1f | %.2f | %.2f | %.1f | %.2f | %s |" % (SHAPES[name].words, mode, len(rows), 1e3 * mid(lambda r: r.one),
        1e3 * mid(lambda r: r.group), mid(lambda r: r.speedup), mid(lambda r: r.s), 100 * mid(lambda r: r.c), mid(lambda r: r.bound), of(lambda r: r.bound))
    return out + (" | |" if rows[0].c_idle is None else " %.1f | %s |" % (100 * mid(lambda r: r.c_idle), of(lambda r: r.bound_idle)))


def table(shapes, modes):
    lines = ["| | mode | rounds | one, ms | group, ms | faster by | s | c, % | bound | of the bound | c by an idle member, % | of that bound |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"]
    holds = True
    for name in shapes:
        for mode in modes:
            for chunk in CHUNKS if SHAPES[name].prompt else (0,):
                rows = rows_of(kept_of(name, mode, chunk))
                if rows:
                    words = mode + (", chunks of %d" % chunk if chunk else "")
                    lines.append(line(name, words, rows))
                    holds &= paired.report("%s, %s" % (name, words), [r.speedup / r.bound for r in rows], at_least=LIMIT)
    return "\n".join(lines) + "\n", holds


def write(text):
    doc = DOC.read_text()
    begin, end = doc.index(BEGIN) + len(BEGIN), doc.index(END)
    DOC.write_text(doc[:begin] + "\n\n" + text + "\n" + doc[end:])


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("shape", nargs="*", choices=[*SHAPES, []], help="default: all (with --write: none, only writes)")
    p.add_argument("--mode", default=",".join(MODES))
    p.add_argument("--chunk", type=int, choices=CHUNKS, default=0, help="--prefill-chunk of all")
    p.add_argument("--times", type=int, default=40, help="measured in alternation so often (default 40)")
    p.add_argument("--seconds", type=int, default=3600, help="no round begins later")
    p.add_argument("--write", action="store_true", help="put the table of all results so far into docs/groups.md")
    args = p.parse_args()
    end = time.monotonic() + args.seconds
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    if args.shape or not args.write:
        build()
        for name in args.shape or SHAPES:
            measure(name, args.mode.split(","), args.chunk, args.times, end)
    text, holds = table(SHAPES, MODES)
    if args.write:
        write(text)
    print(text, end="")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
