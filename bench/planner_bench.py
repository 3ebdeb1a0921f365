#!/usr/bin/env python3
"""What the planner of a live cluster promises against what that cluster then takes, and against other plans tried by force.

    python3 bench/planner_bench.py [--only NAME,...] [--force N] [--seconds S] [--write]

Each set-up is a coordinator and nodes as processes of this machine, one compute thread each, slowed by --slowdown, capped by --mem, some behind links of
`hearth emulate`. First `hearth probe` measures this machine, as each machine of a cluster would measure itself: alone. Then the cluster plans by itself and
answers some questions. From then on `hearth plan --live --save` writes down what it knows, it answers two questions, and so on in turns: each prediction is
of what was known just before, and before the first answer, of what the probes found.

With --force N the same machines compute N other plans, given by --place, or --split and --rounds: of the neighbours of the chosen plan, each machine alone,
orders of up to three with several divisions, one round and two, those that are predicted to be the fastest, and some of the others. While one of them answers, a
cluster with the chosen plan is kept beside it and answers before or after. The two with the best ratio are then compared again, three clusters side by side that
answer in turns, since the fastest of many single measurements is the luckiest.

Results go to build/bench/planner.json after each measurement. --seconds S stops in time; the next call goes on with what is missing. --fresh NAME,...
forgets set-ups. --write makes the table of docs/planner.md. Exit code 1: a threshold is missed; 2: not everything has been measured.
"""
import argparse
import contextlib
import datetime
import itertools
import json
import os
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
PROMPT = "Once upon a time there was a house in which every machine had a name of its own, and " * 3
CTX = 256        # the planner counts on half of it to be read
SHORT = "Once upon a time"
TOKENS = 17      # of an answer: the first, and 16 gaps
TRY_TOKENS = 9   # of a plan that is tried once
ROUNDS = 2       # of measuring the machine, planning, and answering
WARM = 3         # answers before what the cluster knows is what it has seen
PAIRS = 5        # of a prediction and two answers
FINALS, TURNS = 2, 8 # so many of the best other plans are measured again, so often, in turns with the chosen one
LIKELY = .7     # of the plans by force are those that are predicted to be the fastest
SLOW_S = .5      # a token: slower ones would take too long to measure
DOUBTFUL, DOUBTS = 1.03, 3 # a chosen plan that seems to be so much slower is compared up to so many times
DEVIATION_MAX, WORSE_MAX = .10, 1.05
N_LAYERS = 14
PINGS = 5        # a link is known
TOLD_S = 1.5     # until nodes have told what they saw
PLAN_S = 30      # until every machine has told its figures and the plan stands
ONE_S, FINAL_S = 40, 60 # a measurement is not begun with less left
COMMON = ["--threads", "1", "--no-give-way"]


class Machine:
    def __init__(self, name, slowdown=1, mem=None, delay_ms=0):
        self.name, self.slowdown, self.mem, self.delay_ms = name, slowdown, mem, delay_ms

    def options(self):
        return [*COMMON, "--slowdown", self.slowdown, *(["--mem", self.mem, "--reader", "direct"] if self.mem else [])]


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
    "two-capped": ("two equal nodes that hold two thirds of the model each", "a::620M b::620M"),
    "two-capped-uneven": ("such two nodes, one three times as slow", "a::620M b:3:620M"),
    "three-capped": ("three equal nodes that hold two fifths each", "a::480M b::480M c::480M"),
    "three-capped-uneven": ("such three nodes, slowed by 1, 2 and 4", "a::480M b:2:480M c:4:480M"),
    "hub-capped": ("the coordinator's machine and two nodes, half of the model each", "hub::640M a::530M b::530M"),
    "one-streams": ("one machine that holds a third", "a::430M"),
    "stream-or-slow": ("one node that holds a third, and one that holds all and is four times as slow", "a::430M b:4"),
    "far": ("two nodes that hold two thirds, 5 ms away", "a::620M:5 b::620M:5"),
    "one-far": ("two near nodes and one 20 ms away, two thirds each", "a::620M b::620M c::620M:20"),
}


def stream(cluster, n_tokens, prompt=PROMPT):
    """(seconds to the first token, seconds between tokens, tokens of the prompt) of one answer."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(60)
        s.connect(str(cluster.state(cluster.coordinator) / "admin.sock"))
        began, times, said = time.perf_counter(), [], {}
        s.sendall(json.dumps({"cmd": "generate", "prompt": prompt, "max_tokens": n_tokens, "temperature": 0.0, "ignore_stop": True}).encode() + b"\n")
        for line in s.makefile("rb"):
            at = time.perf_counter()
            said = {**said, **json.loads(line)}
            if said.get("token", -1) >= 0:
                times.append(at)
            if "end" in said:
                break
    assert said.get("end") == "length" and len(times) == n_tokens, said
    return times[0] - began, [b - a for a, b in zip(times, times[1:])], len(said["prompt_ids"])


class Running:
    """A set-up's cluster: with the plan of the planner, or, with `forced`, [(machine, layers)] in ring order, in so many rounds, with such --streams."""

    def __init__(self, setup, tools, folder, forced=None, rounds=1, streams=None):
        folder.mkdir()
        self.tools = tools
        self.machines = {m.name: m for m in setup}
        self.cluster = cluster_module.Cluster(tools.hearth, tools.model, folder)
        try:
            self.start(forced, rounds, streams)
        except BaseException:
            self.cluster.close()
            raise

    def start(self, forced, rounds, streams):
        holders = list(self.machines.values()) if forced is None else [self.machines[n] for n, _ in forced]
        nodes = [m for m in holders if m.name != HUB]
        hub = self.machines.get(HUB, Machine(HUB))
        options = ["--cache", self.tools.cache, "--name", HUB, "--ctx", CTX, "--nodes", len(nodes), *hub.options(), *(["--no-node"] if hub not in holders else [])]
        if forced is None:
            options += ["--plan", "cost"]
        elif rounds == 1:
            options += ["--plan", "even", "--place", ",".join("%s=%d" % tuple(p) for p in forced)]
        else: # stages in the order of joining
            options += ["--split", ",".join(str(n) for _, n in forced), "--rounds", rounds]
        if streams:
            options += ["--streams", ",".join(map(str, streams))]
        if any(m.delay_ms for m in self.machines.values()):
            leg = 'rate = "1 Gbit/s"\ndelay = "%g ms"'
            via = Emulated(self.cluster, [m.name for m in nodes], {HUB: leg % 0, **{m.name: leg % m.delay_ms for m in nodes}})
            via.serve(*options)
            join, without = via.join, 2 # which says --threads itself
        else:
            self.cluster.serve(*options)
            join, without = self.cluster.join, 0
        for m in nodes:
            join(m.name, "--cache", self.tools.cache, *m.options()[without:])
            self.cluster.wait_status(lambda s: any(n["name"] == m.name for n in s["nodes"]), PLAN_S, m.name)
        self.status = self.cluster.wait_status((lambda s: s["ready"]) if forced else self.is_planned, PLAN_S, "the plan")

    def is_planned(self, status):
        """Every machine has told its figures, the plan that stands is made of them, and it is known how far each machine is away."""
        return status["ready"] and "plan" in status and all(n.get("profile") for n in status["nodes"]) and all(
            n["local"] or n.get("links", {}).get("to", {}).get("n", 0) >= PINGS for n in status["nodes"])

    def plan(self, status):
        stages = sorted((n for n in status["nodes"] if n.get("stage", -1) >= 0), key=lambda n: n["stage"])
        return [[n["name"], sum(e - b for b, e in n["layers"])] for n in stages]

    def figures(self):
        """What the coordinator knows, as a cluster file."""
        path = self.cluster.folder / "live.toml"
        self.cluster.command("plan", "--live", "--no-what-if", "--save", path, "--state", self.cluster.state(self.cluster.coordinator))
        return path.read_text()

    def close(self):
        self.cluster.close()


def predict(tools, figures, n_prompt, plan, rounds):
    """{"tpot_s", "ttft_s", "streams"} of a plan by the figures of a cluster; None: it cannot be."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as f:
        f.write(figures)
        f.flush()
        words = ["plan", tools.model, "--cluster", f.name, "--json", "--no-what-if", "--prompt", n_prompt, "--rounds", rounds,
            "--order", ",".join(n for n, _ in plan), "--layers", ",".join("%s=%d" % tuple(p) for p in plan)]
        p = cluster_module.Cluster(tools.hearth, tools.model, pathlib.Path()).command(*words, check=False)
    if p.returncode != 0:
        return None
    said = json.loads(p.stdout)
    return {"tpot_s": said["tpot_s"], "ttft_s": said["ttft_s"], "streams": [s["streams_percent"] for s in said["plan"]["stages"]]}


def parts(weights):
    """The model's layers, divided by weights."""
    left, out = N_LAYERS, []
    for i, w in enumerate(weights):
        take = min(left - (len(weights) - i - 1), max(1, round(left * w / sum(weights[i:])))) if i + 1 < len(weights) else left
        out.append(take)
        left -= take
    return out


def forced_plans(setup, base, base_rounds):
    """[[plan, rounds]] without the chosen one, the likeliest first."""
    slow = {m.name: m.slowdown for m in setup}
    plans = [[base, 3 - base_rounds]] if len(base) > 1 else []
    for by in (1, 2, 4):
        for i, j in itertools.permutations(range(len(base)), 2):
            if base[i][1] > by:
                plans.append([[[name, k - by * (a == i) + by * (a == j)] for a, (name, k) in enumerate(base)], base_rounds])
    plans += [[[[m.name, N_LAYERS]], 1] for m in setup]
    for size in (2, 3):
        for order in itertools.permutations(setup, size):
            if any(m.name == HUB for m in order[1:]):
                continue # the coordinator's machine is the first stage, if it is one
            cuts = [[1] * size, [1 / slow[m.name] for m in order], [2 ** -i for i in range(size)], [4 ** -i for i in range(size)]]
            for weights in cuts if size > 2 else [(n, N_LAYERS - n) for n in range(1, N_LAYERS)]:
                for rounds in (1, 2):
                    plans.append([[list(p) for p in zip((m.name for m in order), parts(weights))], rounds])
    out = []
    for p in plans:
        if p != [base, base_rounds] and p not in out:
            out.append(p)
    return out


class Tools:
    def __init__(self):
        self.hearth = cluster_module.BIN
        self.model = made.made("streamed", *made.STREAMED)
        self.cache = ROOT / "build/bench/planner.cache"

    def probe(self):
        """Measures this machine while nothing else runs, for all that follow."""
        cluster_module.Cluster(self.hearth, self.model, pathlib.Path()).command("probe", self.model, *COMMON[:2], "--cache", self.cache, "--fresh")


def answer(running, n_tokens, prompt=PROMPT):
    ttft_s, gaps, _ = stream(running.cluster, n_tokens, prompt)
    return {"tpot_s": sum(gaps) / len(gaps), "ttft_s": ttft_s}


def started(setup, tools, folder, row, forced, rounds):
    """A cluster that has a plan by force, with warm weights and links; windows are those that suit it by the figures of the last promise."""
    p = row["promises"][-1]
    guess = predict(tools, p["figures"], p["n_prompt"], forced, rounds)
    r = Running(setup, tools, folder, forced, rounds, guess and guess["streams"])
    try:
        assert r.plan(r.status) == [list(p) for p in forced], (r.plan(r.status), forced)
        stream(r.cluster, 3)
    except BaseException:
        r.close()
        raise
    return r


def promised(setup, tools, folder):
    """The machine is measured, the cluster plans by itself; then what it knows is written down and it answers, in turns."""
    tools.probe()
    with contextlib.closing(Running(setup, tools, folder)) as r:
        plan, said = r.plan(r.status), r.status["plan"]
        figures, answers, firsts = [r.figures()], [], []
        for _ in range(WARM):
            n_prompt = stream(r.cluster, TOKENS)[2]
            time.sleep(TOLD_S)
        for _ in range(PAIRS):
            figures.append(r.figures())
            answers.append(stream(r.cluster, TOKENS))
            firsts += [answers[-1][0], stream(r.cluster, 2)[0]]
    out = {"plan": plan, "rounds": said["rounds"], "said_s": said["predicted_ms_per_token"] / 1e3, "left_out": said["left_out"], "all_figures": figures,
        "figures": figures[-1], "n_prompt": n_prompt,
        "measured": {"tpot_s": paired.median([sum(a[1]) / len(a[1]) for a in answers]), "ttft_s": paired.median(firsts)}}
    predict_round(tools, out)
    return out


def predict_round(tools, p):
    first, *others = [predict(tools, f, p["n_prompt"], p["plan"], p["rounds"]) for f in p["all_figures"]]
    p["predicted_first"] = first
    p["predicted"] = {k: paired.median([o[k] for o in others]) for k in ("tpot_s", "ttft_s")}


def ms(x):
    return "-" if x is None else "%.1f" % (1e3 * x)


class Bench:
    def __init__(self, tools, seconds):
        self.tools = tools
        self.end = time.monotonic() + seconds
        self.rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}

    def save(self):
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.with_suffix(".new").write_text(json.dumps(self.rows, indent=1))
        RESULTS.with_suffix(".new").replace(RESULTS)

    def has(self, seconds):
        return time.monotonic() + seconds <= self.end

    def promise(self, name, folder):
        row = self.rows.setdefault(name, {"promises": [], "date": datetime.date.today().isoformat(), "forced": [], "to_force": None, "finals": []})
        p = promised(machines(SETUPS[name][1]), self.tools, folder)
        row["promises"].append(p)
        self.save()
        print("%s: %s in %d rounds: TPOT %s predicted (%s said, %s first), %s measured; TTFT %s (%s first), %s" % (name, p["plan"], p["rounds"], ms(p["predicted"]["tpot_s"]),
            ms(p["said_s"]), ms(p["predicted_first"]["tpot_s"]), ms(p["measured"]["tpot_s"]), ms(p["predicted"]["ttft_s"]), ms(p["predicted_first"]["ttft_s"]),
            ms(p["measured"]["ttft_s"])), flush=True)

    def compare(self, name, n_forced, folders):
        """Tries other plans beside the chosen one; False: time is over."""
        setup, row = machines(SETUPS[name][1]), self.rows[name]
        if row["to_force"] is None:
            row["chosen"] = chosen(row)
            row["to_force"] = self.choose(forced_plans(setup, *chosen(row)), row, n_forced)
            self.save()
        if not row["to_force"] and not wants_finals(row):
            return True
        if not self.has(ONE_S):
            return False
        with contextlib.closing(started(setup, self.tools, next(folders), row, *chosen(row))) as own:
            while row["to_force"]:
                if not self.has(ONE_S / 3):
                    return False
                self.force(row, own, *row["to_force"].pop(0), setup, next(folders))
                self.save()
            while wants_finals(row):
                if not self.has(FINAL_S):
                    return False
                row["finals"] += self.final(row, own, setup, folders)
                self.save()
        return True

    def force(self, row, own, plan, rounds, setup, folder):
        guess, beside = self.predict(row, plan, rounds), None
        try:
            with contextlib.closing(started(setup, self.tools, folder, row, plan, rounds)) as r:
                both = (own, r) if len(row["forced"]) % 2 else (r, own)
                got = {id(x): answer(x, TRY_TOKENS) for x in both}
                got, beside = got[id(r)], got[id(own)]
        except (AssertionError, TimeoutError) as e:
            got = {"error": str(e)[-300:]}
        row["forced"].append({"plan": plan, "rounds": rounds, "predicted": guess, "measured": got, "beside": beside})
        print("  %s in %d: %s predicted, %s, chosen %s; TTFT %s, %s %s" % (plan, rounds, ms(guess["tpot_s"]), ms(got.get("tpot_s")), ms(beside and beside["tpot_s"]),
            ms(guess["ttft_s"]), ms(got.get("ttft_s")), got.get("error", "")), flush=True)

    def final(self, row, own, setup, folders):
        """The chosen plan and the best others side by side, forwards and backwards: pairs of times per token."""
        best = [(f["plan"], f["rounds"]) for f in sorted(fitting(row), key=lambda f: f["measured"]["tpot_s"] / f["beside"]["tpot_s"])[:FINALS]]
        with contextlib.ExitStack() as stack:
            others = [stack.enter_context(contextlib.closing(started(setup, self.tools, next(folders), row, *p))) for p in best]
            turn, times = [own, *others], []
            for i in range(TURNS):
                got = {id(x): answer(x, TOKENS, SHORT)["tpot_s"] for x in (turn if i % 2 == 0 else turn[::-1])}
                times.append([got[id(x)] for x in turn])
        out = [{"plan": p[0], "rounds": p[1], "pairs": [[t[0], t[1 + i]] for t in times]} for i, p in enumerate(best)]
        for f in out:
            print("  final %s in %d: chosen %s, other %s, ratio %.3f" % (f["plan"], f["rounds"], ms(paired.median([a for a, b in f["pairs"]])), ms(paired.median([b for a, b in f["pairs"]])),
                paired.median([a / b for a, b in f["pairs"]])), flush=True)
        return out

    def predict(self, row, plan, rounds):
        """By the figures of each round: the median."""
        all_of = [predict(self.tools, p["figures"], p["n_prompt"], plan, rounds) for p in row["promises"]]
        return None if None in all_of else {k: paired.median([g[k] for g in all_of]) for k in ("tpot_s", "ttft_s")}

    def choose(self, plans, row, n):
        """The likeliest, and others evenly from those that are left."""
        guesses = [(self.predict(row, *p), p) for p in plans]
        order = [p for g, p in sorted((x for x in guesses if x[0] and x[0]["tpot_s"] < SLOW_S), key=lambda x: x[0]["tpot_s"])]
        likely, rest = order[:round(LIKELY * n)], order[round(LIKELY * n):]
        k = n - len(likely)
        return likely + [rest[i * len(rest) // k] for i in range(min(k, len(rest)))]

    def predict_again(self):
        """Predictions of what was measured, by the figures and the model of now."""
        for row in self.rows.values():
            for p in row["promises"]:
                predict_round(self.tools, p)
            for f in row["forced"]:
                f["predicted"] = self.predict(row, f["plan"], f["rounds"])
        self.save()

    def run(self, names, n_forced):
        """False: time is over before all is measured. First a promise of each set-up, then plans by force, then the other promises."""
        with tempfile.TemporaryDirectory(prefix="hearth-planner-") as top:
            folders = (pathlib.Path(top) / str(i) for i in itertools.count())
            for n_rounds in range(1, ROUNDS + 1):
                for name in names:
                    if len(self.rows.get(name, {"promises": []})["promises"]) < n_rounds:
                        if not self.has(ONE_S):
                            return False
                        self.promise(name, next(folders))
                for name in names if n_forced else []:
                    if not self.compare(name, n_forced, folders):
                        return False
        return True


def fitting(row):
    return [f for f in row["forced"] if f.get("beside")]


def chosen(row):
    """(plan, rounds) that the planner took most often, when others began to be compared with it."""
    if "chosen" in row:
        return tuple(row["chosen"])
    all_of = [(p["plan"], p["rounds"]) for p in row["promises"]]
    return max(all_of, key=all_of.count)


def middle(row, what, key):
    """Of the rounds, "predicted" or "measured": the median. The machine's own speed varies from minute to minute, for both alike."""
    return paired.median([p[what][key] for p in row["promises"]])


def deviation(row, key, what="predicted"):
    return middle(row, what, key) / middle(row, "measured", key) - 1


def wants_finals(row):
    """Not yet compared; or another plan seems to be faster, by less than what tells more than the machine's moods."""
    found = against_others(row)
    return bool(fitting(row)) and (found is None or (found[0] > DOUBTFUL and len(row["finals"]) < DOUBTS * FINALS))


def against_others(row):
    """(the chosen plan's time through that of the fastest other one, that one, the ratio's 95 % interval), of pairs in the same seconds; None: there are none."""
    ratios = {}
    for f in row["finals"]:
        ratios.setdefault(json.dumps([f["plan"], f["rounds"]]), []).extend(a / b for a, b in f["pairs"])
    if not ratios:
        return None
    best = max(ratios, key=lambda p: paired.median(ratios[p]))
    return paired.median(ratios[best]), json.loads(best), paired.interval(ratios[best])[1:3]


def summary(rows):
    ok = True
    rows = {n: r for n, r in rows.items() if r["promises"]}
    if not rows:
        return False
    for key, word in (("tpot_s", "TPOT"), ("ttft_s", "TTFT")):
        own = sorted(abs(deviation(r, key)) for r in rows.values())
        others = [abs(f["predicted"][key] / f["measured"][key] - 1) for r in rows.values() for f in fitting(r)]
        print("%s of %d chosen plans: predicted and measured differ by %.1f %% at the median (limit %.0f %%), %.1f %% at most%s" % (word, len(own), 100 * paired.median(own),
            100 * DEVIATION_MAX, 100 * own[-1], "; of %d others by %.1f %%" % (len(others), 100 * paired.median(others)) if others else ""))
        ok = ok and paired.median(own) <= DEVIATION_MAX
    for name, r in rows.items():
        found = against_others(r)
        if found:
            print("%s: the chosen plan takes %.3f (%.3f to %.3f) of the best of %d others" % (name, found[0], *found[2], len(fitting(r))))
            ok = ok and found[2][0] <= WORSE_MAX
    return ok


def words(plan, rounds):
    return ", ".join("%s %d" % tuple(p) for p in plan) + ("" if rounds == 1 else "; %d rounds" % rounds)


def cpu():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "an unknown processor"


def table(rows):
    out = ["| set-up | chosen plan | TPOT: predicted / measured, ms | | TTFT: predicted / measured, ms | | through the best other plan |", "|---|---|---:|---:|---:|---:|---|"]
    for name, r in rows.items():
        (plan, rounds), found = chosen(r), against_others(r)
        both = ["%s / %s | %+.1f %%" % (ms(middle(r, "predicted", k)), ms(middle(r, "measured", k)), 100 * deviation(r, k)) for k in ("tpot_s", "ttft_s")]
        out.append("| %s | %s | %s | %s | %s |" % (SETUPS[name][0], words(plan, rounds), *both,
            "" if not found else "%.3f (%.3f to %.3f) of %d: %s" % (found[0], *found[2], len(fitting(r)), words(*found[1]))))
    out.append("")
    for key, word in (("tpot_s", "TPOT"), ("ttft_s", "TTFT")):
        others = [abs(f["predicted"][key] / f["measured"][key] - 1) for r in rows.values() for f in fitting(r)]
        own = [abs(deviation(r, key)) for r in rows.values()]
        first = paired.median([abs(deviation(r, key, "predicted_first")) for r in rows.values()])
        out.append("%s: median deviation of the %d chosen plans %.1f %%, at most %.0f %% wanted; before the first answer, by what probes had found, %.1f %%%s.\n" % (word, len(own),
            100 * paired.median(own), 100 * DEVIATION_MAX, 100 * first, "; of the %d others, each measured once, %.1f %%" % (len(others), 100 * paired.median(others)) if others else ""))
    found = [against_others(r) for r in rows.values() if against_others(r)]
    if found:
        out.append("Against the others: %d of %d chosen plans are the fastest or within %.0f %% of it, and of the others %d by the interval." % (
            sum(f[0] <= WORSE_MAX for f in found), len(found), 100 * (WORSE_MAX - 1), sum(f[0] > WORSE_MAX >= f[2][0] for f in found)))
    dates = sorted({r["date"] for r in rows.values()})
    out.append("\n%d cores of %s, %s." % (os.cpu_count(), cpu(), " to ".join(sorted({dates[0], dates[-1]}))))
    return "\n".join(out)


def write(rows):
    text = DOC.read_text()
    head, rest = text.split(BEGIN)
    DOC.write_text(head + BEGIN + "\n\n" + table(rows) + "\n\n" + END + rest.split(END)[1])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default=",".join(SETUPS))
    p.add_argument("--force", type=int, default=0, metavar="N", help="other plans that are tried")
    p.add_argument("--seconds", type=float, default=1e9, metavar="S", help="stop before so many have passed")
    p.add_argument("--fresh", default="", metavar="NAME,...", help="set-ups to measure anew")
    p.add_argument("--again", default="", metavar="NAME,...", help="set-ups to plan anew; the other plans' times are kept")
    p.add_argument("--predict", action="store_true", help="predict all anew")
    p.add_argument("--no-measuring", action="store_true", help="only show (and write) the results so far")
    p.add_argument("--write", action="store_true", help="put the table into docs/planner.md")
    args = p.parse_args()
    bench = Bench(Tools(), args.seconds)
    for name in filter(None, args.fresh.split(",")):
        bench.rows.pop(name, None)
    for name in filter(None, args.again.split(",")):
        bench.rows[name]["promises"] = []
    if args.predict:
        bench.predict_again()
    is_all = args.no_measuring or bench.run(args.only.split(","), args.force)
    rows = {n: bench.rows[n] for n in SETUPS if n in bench.rows}
    ok = summary(rows)
    if args.write:
        write(rows)
    sys.exit(2 if not is_all else not ok)


if __name__ == "__main__":
    main()
