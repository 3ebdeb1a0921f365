"""A ring of real processes behind `hearth emulate` on replayed traces, measured token by token; the calibration beside it; and the scenario that
`hearth sim run` predicts it from. What bench/predicted_bench.py and its test are made of."""
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/integration"))
import cluster as cluster_module  # noqa: E402
from emulated import HUB, Emulated  # noqa: E402

AIR = "300 Mbit/s"  # of the one access point: 5 GHz, two streams
WIRE = "1 Gbit/s"
TRACE_S = 300
TRACE_INTERVAL_MS = 20  # below a token's time: each token meets its own samples
LAYER_BYTES = 2000000.0 # any: what follows from it and the calibration is the rate of reading
PROMPT = "Once"         # one token: a prompt is no part of this
SETTLE_S = 10           # a scenario's first request comes so long after its cluster is ready: direct links are up
REFERENCE_DELAY_MS = 2


class Topology:
    """legs: {node: profile}, in the order of joining; layers: of the stages in ring order, the hub's first if it holds any. relayed: no two nodes
    reach each other."""

    def __init__(self, name, words, legs, layers, relayed=False):
        self.name, self.words, self.legs, self.layers, self.relayed = name, words, legs, layers, relayed
        self.hub_holds = len(layers) > len(legs)
        assert len(layers) == len(legs) + self.hub_holds


def generate(cluster, n_tokens):
    """One stream, asked for without a client of its own: when each token came (perf_counter), and what the coordinator said at the end."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(120)
        s.connect(str(cluster.state(cluster.coordinator) / "admin.sock"))
        s.sendall(json.dumps({"cmd": "generate", "prompt": PROMPT, "max_tokens": n_tokens, "temperature": 0.0}).encode() + b"\n")
        times, said = [], {}
        for line in s.makefile("rb"):
            at = time.perf_counter()
            said = {**said, **json.loads(line)}
            if said.get("token", -1) >= 0:
                times.append(at)
            if "end" in said:
                break
    assert said.get("end") == "length" and len(times) == n_tokens, said
    return times, said


def worker_ns(processes):
    """{pid: {thread: nanoseconds it has run}} of these processes."""
    return {p.pid: {t.name: int((t / "schedstat").read_text().split()[0]) for t in pathlib.Path("/proc/%d/task" % p.pid).iterdir()} for p in processes}


class Ring:
    """One topology running. Closed by close()."""

    def __init__(self, topology, hearth, model, folder, fixed_ms=None):
        """fixed_ms: a delay of each leg in place of its trace, for the reference."""
        folder.mkdir()
        self.t, self.fixed_ms, self.folder = topology, fixed_ms, folder
        self.cluster = cluster_module.Cluster(hearth, model, folder)
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self):
        t = self.t
        for i, (name, profile) in enumerate(t.legs.items()):
            if not self.fixed_ms:
                self.cluster.command("trace", "generate", profile, "--seconds", TRACE_S, "--interval-ms", TRACE_INTERVAL_MS, "--seed", i + 1,
                    "-o", self.folder / ("%s.csv" % name))
        self.emulated = Emulated(self.cluster, list(t.legs), {HUB: 'rate = "%s"' % WIRE, **{n: self.leg(n) for n in t.legs}}, self.air())
        if t.relayed:
            names = list(t.legs)
            for i, a in enumerate(names):
                for b in names[i + 1:]:
                    self.emulated.send("cut %s %s reset" % (a, b))
        node = [] if t.hub_holds else ["--no-node"]
        self.emulated.serve(*node, "--nodes", len(t.legs), "--threads", "1", "--split", ",".join(map(str, t.layers)))
        for name in t.legs:
            self.emulated.join(name)
        status = self.cluster.wait_status(self.is_up, 120, "the ring")
        stages = sorted((n for n in status["nodes"] if "stage" in n), key=lambda n: n["stage"])
        names = [n["name"] for n in stages]
        self.order = [HUB if n not in t.legs else n for n in names]
        first = next(e for e in self.emulated.events() if e["event"] == "connected")
        self.began = first["time"] - first["t"]  # of the relay's clock, which the traces run by

    def is_up(self, status):
        stages = sorted((n for n in status["nodes"] if "stage" in n), key=lambda n: n["stage"])
        remote = [n for n in stages if n["name"] in self.t.legs]
        wanted = "relay" if self.t.relayed else "direct"
        return status["ready"] and len(stages) == len(self.t.layers) and all(n["next_link"] == wanted for n in remote[:-1])

    def leg(self, name):
        if self.fixed_ms:
            return 'rate = "%s"\ndelay = "%g ms"' % (WIRE, self.fixed_ms)
        at = 'rate = "%s"' % WIRE if self.t.legs[name] == "W0" else 'access_point = "ap"'
        return '%s\ntrace = "%s.csv"' % (at, name)

    def air(self):
        return '[[access_point]]\nname = "ap"\nrate = "%s"' % AIR

    def answer(self, n_tokens):
        """One stream: when it was asked for, on the traces' clock, the prompt's tokens, the times between tokens, and the processor time of all workers."""
        before = self.worker_ns()
        began = time.time() - self.began
        times, said = generate(self.cluster, n_tokens)
        return {"at_s": began, "n_prompt": len(said["prompt_ids"]), "gaps_s": [b - a for a, b in zip(times, times[1:])],
            "computing_s": sum(self.busiest_ns(before)) / 1e9}

    def worker_ns(self):
        """Of coordinator and nodes."""
        return worker_ns(p for name, p in self.cluster.processes.items() if name == self.cluster.coordinator or name in self.t.legs)

    def busiest_ns(self, before):
        """How long the busiest thread of each has run since: its worker."""
        return [max(ns - before[pid].get(t, 0) for t, ns in threads.items()) for pid, threads in self.worker_ns().items()]

    def delay_ms(self, name):
        """One way, of a leg: the median."""
        if name == HUB:
            return 0.0
        if self.fixed_ms:
            return self.fixed_ms
        shown = self.cluster.command("trace", "show", self.folder / ("%s.csv" % name), "--json")
        return json.loads(shown.stdout)["rtt_ms"]["p50"] / 2

    def hops(self):
        """[(from, to, relayed)] of one token."""
        path = [HUB, *self.order, HUB]
        return [(a, b, self.t.relayed and HUB not in (a, b)) for a, b in zip(path, path[1:]) if a != b]

    def rests_us(self):
        """What each stage, then the head, rests before its turn: as long as the hop takes that ends there."""
        path, rests = [HUB, *self.order, HUB], []
        for a, b in zip(path, path[1:]):
            rests.append(0 if a == b else round(1e3 * (self.delay_ms(a) + self.delay_ms(b))))
        return rests

    def pids(self):
        return [p.pid for p in self.cluster.processes.values() if p.is_running()]

    def close(self):
        self.cluster.close()


class Calibration:
    """bench/calibrate, kept running: asked for some tokens at a time."""

    def __init__(self, program, model, rests_us, layers):
        self.popen = subprocess.Popen([str(program), str(model), ",".join(map(str, rests_us)), ",".join(map(str, layers))], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)

    def tokens(self, n):
        """{"ranges": [[us of each token] of each range], "head": [...], "hand_over": [...]}"""
        self.popen.stdin.write("%d\n" % n)
        self.popen.stdin.flush()
        line = self.popen.stdout.readline()
        assert line, "calibrate ended with code %s" % self.popen.wait(10)
        return json.loads(line)

    def pids(self):
        return [self.popen.pid]

    def close(self):
        self.popen.stdin.close()
        self.popen.wait(10)
        self.popen.stdout.close()


def scenario_text(ring, ranges_us, head_us, software_ms, answers, model):
    """What `hearth sim run` is given: machines that compute as fast as the calibration says, links with the same traces from the same times on."""
    t = ring.t
    speed = {n: layers * LAYER_BYTES / us for n, layers, us in zip(ring.order, t.layers, ranges_us)}  # MB/s
    speed.setdefault(HUB, 1000.0)
    begin = answers[0]["at_s"]
    lines = ['name = "%s"' % t.name, "[model]", 'name = "SmolLM2-135M"', "layers = %d" % sum(t.layers), "hidden = %d" % model["hidden"],
        'layer_bytes = "%d B"' % LAYER_BYTES, 'head_bytes = "%d B"' % round(head_us * speed[HUB]), "vocab = %d" % model["vocab"],
        ring.air(), "[network]", 'delay = "%.6f ms"' % software_ms, "[serving]", "slots = 1", "ctx = 2048"]
    for name in [HUB, *t.legs]:
        lines += ["[[device]]", 'name = "%s"' % name, 'memory = "4 GiB"', 'cpu_read = "%.6f MB/s"' % speed[name]]
        if name == HUB:
            lines.append('rate = "%s"' % WIRE)
        else:
            lines += [ring.leg(name), 'offset = "%.6f s"' % ((begin - SETTLE_S) % TRACE_S)]
    names = list(t.legs)
    for i, a in enumerate(names):
        for b in names[i + 1:]:
            if t.relayed:
                lines += ["[[link]]", 'between = ["%s", "%s"]' % (a, b), "cut = true", 'delay = "%.6f ms"' % software_ms]
    stages = ", ".join("%s = %d" % (n, layers) for n, layers in zip(ring.order, t.layers))
    lines += ["[plan]", 'coordinator = "%s"' % HUB, "coordinator_only = %s" % str(not t.hub_holds).lower(), "layers = { %s }" % stages]
    for a in answers:
        lines += ["[[request]]", 'at = "%.6f s"' % (SETTLE_S + a["at_s"] - begin), "prompt = %d" % a["n_prompt"], "predict = %d" % (len(a["gaps_s"]) + 1)]
    return "\n".join(lines) + "\n"


def predict(ring, text, name="scenario"):
    path = ring.folder / ("%s.toml" % name)
    path.write_text(text)
    said = json.loads(ring.cluster.command("sim", "run", path, "--json").stdout)
    assert not said["timed_out"] and said["failed"] == 0, said
    return said
