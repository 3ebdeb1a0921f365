#!/usr/bin/env python3
"""What the planner of a live cluster promises against what that cluster then takes, and against other plans tried by force.

    python3 bench/planner_bench.py [--only NAME,...] [--force N] [--tokens N] [--write]

Each set-up is a coordinator and nodes as processes of this machine, one compute thread each, slowed by --slowdown, capped by --mem, some behind links of
`hearth emulate`. The cluster plans by itself from what it measured; then one answer is timed, three times. With --force N the same machines compute N
other plans, given by --split and --rounds: each machine alone, orders of up to three with equal and with proportional parts, one round and two, and the
neighbours of the chosen plan; measurements of the chosen plan stand between them. Results are merged by set-up into build/bench/planner.json, so that a part
can be measured again; --write makes the table of docs/planner.md from it. Exit code 1: a threshold is missed.
"""
import argparse
import contextlib
import itertools
import json
import pathlib
import socket
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/integration"))
import cluster as cluster_module  # noqa: E402
import made  # noqa: E402
import paired  # noqa: E402
from emulated import HUB, Emulated  # noqa: E402

DOC = ROOT / "docs/planner.md"
RESULTS = ROOT / "build/bench/planner.json"
BEGIN, END = "<!-- table: bench/planner_bench.py --write -->", "<!-- end of table -->"
PROMPT = "Once upon a time there was a house in which every machine"
DEVIATION_MAX, WORSE_MAX = .10, 1.05
N_LAYERS = 14
PLAN_S = 90 # until every machine has measured itself and the plan stands


class Machine:
    def __init__(self, name, slowdown=1, mem=None, delay_ms=0):
        self.name, self.slowdown, self.mem, self.delay_ms = name, slowdown, mem, delay_ms

    def options(self):
        return ["--threads", "1", "--no-give-way", "--slowdown", self.slowdown, *(["--mem", self.mem] if self.mem else [])]


def machines(text):
    """"hub a:2:400M:5": name, slowdown, cap, delay of its link in milliseconds; all but the name may be left out."""
    out = []
    for word in text.split():
        f = word.split(":") + ["", "", ""]
        out.append(Machine(f[0], float(f[1] or 1), f[2] or None, float(f[3] or 0)))
    return out


# A hub that holds layers is named first; others have a coordinator of their own beside them.
SETUPS = {
    "hub-and-equal": ("two equal machines, each holds the model", "hub a"),
    "hub-slow": ("the coordinator's machine is four times as slow", "hub:4 a"),
    "two-free": ("two nodes, one half as fast", "a b:2"),
    "two-capped": ("two equal nodes that hold two thirds of the model each", "a::400M b::400M"),
    "two-capped-uneven": ("the same, one three times as slow", "a::400M b:3:400M"),
    "three-capped": ("three equal nodes that hold two fifths each", "a::256M b::256M c::256M"),
    "three-capped-uneven": ("the same, slowed by 1, 2 and 4", "a::256M b:2:256M c:4:256M"),
    "hub-capped": ("the coordinator's machine and two nodes, half of the model each", "hub::300M a::300M b::300M"),
    "one-streams": ("one machine that holds a third", "a::200M"),
    "two-stream": ("two nodes that hold a third each", "a::200M b::200M"),
    "far": ("two nodes that hold two thirds, 5 ms away", "a::400M:5 b::400M:5"),
    "one-far": ("two near nodes and one 20 ms away, two thirds each", "a::400M b::400M c::400M:20"),
}


def stream(cluster, n_tokens):
    """(seconds to the first token, seconds between tokens) of one answer."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(300)
        s.connect(str(cluster.state(cluster.coordinator) / "admin.sock"))
        began, times, said = time.perf_counter(), [], {}
        s.sendall(json.dumps({"cmd": "generate", "prompt": PROMPT, "max_tokens": n_tokens, "temperature": 0.0, "ignore_stop": True}).encode() + b"\n")
        for line in s.makefile("rb"):
            at = time.perf_counter()
            said = {**said, **json.loads(line)}
            if said.get("token", -1) >= 0:
                times.append(at)
            if "end" in said:
                break
    assert said.get("end") in ("length", "stop") and len(times) > 4, said
    return times[0] - began, [b - a for a, b in zip(times, times[1:])]


class Running:
    """A set-up's cluster: with the plan of the planner, or, with `forced`, [(machine, layers)] in ring order, in so many rounds."""

    def __init__(self, setup, hearth, model, folder, forced=None, rounds=1):
        folder.mkdir()
        self.machines = {m.name: m for m in setup}
        self.cluster = cluster_module.Cluster(hearth, model, folder)
        try:
            self.start(forced, rounds)
        except BaseException:
            self.cluster.close()
            raise

    def start(self, forced, rounds):
        holders = list(self.machines.values()) if forced is None else [self.machines[n] for n, _ in forced]
        nodes = [m for m in holders if m.name != HUB]
        options = ["--plan", "cost"] if forced is None else ["--split", ",".join(str(n) for _, n in forced), "--rounds", rounds]
        hub = self.machines.get(HUB) if any(m.name == HUB for m in holders) else None
        options += hub.options() if hub else ["--no-node", "--threads", "1", "--no-give-way"]
        options += ["--nodes", len(nodes)]
        delays = {m.name: m.delay_ms for m in nodes}
        if any(m.delay_ms for m in self.machines.values()):
            leg = 'rate = "1 Gbit/s"\ndelay = "%g ms"'
            via = Emulated(self.cluster, list(delays), {HUB: leg % 0, **{n: leg % d for n, d in delays.items()}})
            via.serve(*options, probe=forced is None)
            for m in nodes:
                via.join(m.name, *m.options()[2:], probe=forced is None)
        else:
            self.cluster.serve(*options, probe=forced is None)
            for m in nodes:
                self.cluster.join(m.name, *m.options(), probe=forced is None)
        self.status = self.cluster.wait_status((lambda s: s["ready"]) if forced else self.is_planned, PLAN_S, "the plan")

    def is_planned(self, status):
        """Every machine has told its figures, and the plan that stands is made of them."""
        return status["ready"] and "plan" in status and all(n.get("profile") for n in status["nodes"])

    def plan(self):
        stages = sorted((n for n in self.status["nodes"] if n.get("stage") is not None and n.get("stage", -1) >= 0), key=lambda n: n["stage"])
        names = {n["name"]: n["name"] if n["name"] in self.machines else HUB for n in stages}
        return [(names[n["name"]], sum(e - b for b, e in n["layers"])) for n in stages]

    def close(self):
        self.cluster.close()


def forced_plans(setup, chosen, n):
    """[(plan, rounds)] without the chosen one."""
    def parts(weights):
        left, out = N_LAYERS, []
        for i, w in enumerate(weights):
            take = max(1, round(left * w / sum(weights[i:]))) if i + 1 < len(weights) else left
            out.append(take)
            left -= take
        return out

    plans, (base, base_rounds) = [], chosen
    for i in range(len(base)):
        for j in range(len(base)):
            if i != j and base[i][1] > 1:
                moved = [(name, k - (a == i) + (a == j)) for a, (name, k) in enumerate(base)]
                plans.append((moved, base_rounds))
    plans += [([(m.name, N_LAYERS)], 1) for m in setup]
    for size in (2, 3):
        for order in itertools.permutations(setup, size):
            if any(m.name == HUB for m in order[1:]):
                continue # the coordinator's machine is the first stage, if it is one
            for weights in ([1] * size, [1 / m.slowdown for m in order]):
                for rounds in (1, 2):
                    plans.append((list(zip((m.name for m in order), parts(weights))), rounds))
    out = []
    for p in plans:
        if p != chosen and p not in out:
            out.append(p)
    return out[:n]


def timed(setup, tools, folder, tokens, forced=None, rounds=1, repeat=1):
    with contextlib.closing(Running(setup, *tools, folder, forced, rounds)) as r:
        stream(r.cluster, 4) # weights and links are warm
        answers = [stream(r.cluster, tokens) for _ in range(repeat)]
        status = r.cluster.status()
        return {"plan": r.plan(), "rounds": (status.get("plan") or {}).get("rounds", rounds), "predicted_s": (status.get("plan") or {}).get("predicted_ms_per_token", 0) / 1e3,
            "left_out": (status.get("plan") or {}).get("left_out", ""), "ttft_s": paired.median([a for a, _ in answers]),
            "tpot_s": paired.median([g for _, gaps in answers for g in gaps])}


def measure(name, tools, tokens, n_forced):
    setup = machines(SETUPS[name][1])
    with tempfile.TemporaryDirectory(prefix="hearth-planner-") as top:
        count = itertools.count()
        here = lambda: pathlib.Path(top) / str(next(count))  # noqa: E731
        row = timed(setup, tools, here(), tokens, repeat=3)
        print("%s: %s in %d rounds, predicted %.1f ms, measured %.1f" % (name, row["plan"], row["rounds"], row["predicted_s"] * 1e3, row["tpot_s"] * 1e3), flush=True)
        chosen = (row["plan"], row["rounds"])
        row["forced"] = []
        for i, (plan, rounds) in enumerate(forced_plans(setup, chosen, n_forced)):
            try:
                t = timed(setup, tools, here(), tokens, plan, rounds)["tpot_s"]
            except (AssertionError, TimeoutError):
                t = None # such a plan does not fit
            again = timed(setup, tools, here(), tokens, *chosen)["tpot_s"] if i % 5 == 4 else None
            row["forced"].append({"plan": plan, "rounds": rounds, "tpot_s": t, "chosen_again_s": again})
            print("  %s in %d: %s%s" % (plan, rounds, "does not fit" if t is None else "%.1f ms" % (t * 1e3), "" if again is None else " (chosen again: %.1f ms)" % (again * 1e3)), flush=True)
    return row


def summary(rows):
    deviations = sorted(abs(r["predicted_s"] / r["tpot_s"] - 1) for r in rows.values())
    print("%d set-ups: |predicted / measured - 1| %.1f %% at the median (limit %.0f %%), %.1f %% at most" % (len(rows), 100 * paired.median(deviations),
        100 * DEVIATION_MAX, 100 * deviations[-1]))
    ok = paired.median(deviations) <= DEVIATION_MAX
    for name, r in rows.items():
        tried = [f["tpot_s"] for f in r["forced"] if f["tpot_s"]]
        if not tried:
            continue
        own = paired.median([r["tpot_s"], *(f["chosen_again_s"] for f in r["forced"] if f["chosen_again_s"])])
        print("%s: the chosen plan takes %.3f of the best of %d others" % (name, own / min(tried), len(tried)))
        ok = ok and own <= WORSE_MAX * min(tried)
    return ok


def words(plan, rounds):
    return ", ".join("%s %d" % p for p in plan) + ("" if rounds == 1 else "; %d rounds" % rounds)


def table(rows):
    out = ["| set-up | plan | predicted | measured | deviation | best of the others |", "|---|---|---|---|---|---|"]
    for name, r in rows.items():
        tried = [f for f in r["forced"] if f["tpot_s"]]
        best = min(tried, key=lambda f: f["tpot_s"]) if tried else None
        out.append("| %s | %s | %.1f ms | %.1f ms | %+.1f %% | %s |" % (SETUPS[name][0], words(r["plan"], r["rounds"]), r["predicted_s"] * 1e3, r["tpot_s"] * 1e3,
            100 * (r["predicted_s"] / r["tpot_s"] - 1), "" if best is None else "%.1f ms of %d: %s" % (best["tpot_s"] * 1e3, len(tried), words(best["plan"], best["rounds"]))))
    return "\n".join(out)


def write(rows):
    text = DOC.read_text()
    head, rest = text.split(BEGIN)
    DOC.write_text(head + BEGIN + "\n" + table(rows) + "\n" + END + rest.split(END)[1])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default=",".join(SETUPS))
    p.add_argument("--force", type=int, default=0, metavar="N", help="plans tried by force")
    p.add_argument("--tokens", type=int, default=24)
    p.add_argument("--write", action="store_true")
    args = p.parse_args()
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    tools = (ROOT / "build/bin/hearth", made.made("streamed", *made.STREAMED))
    for name in args.only.split(","):
        rows[name] = measure(name, tools, args.tokens, args.force)
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(json.dumps(rows, indent=1))
    rows = {n: rows[n] for n in SETUPS if n in rows}
    ok = summary(rows)
    if args.write:
        write(rows)
    sys.exit(not ok)


if __name__ == "__main__":
    main()
