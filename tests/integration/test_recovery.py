"""Answers over lost machines: killed, stopped, or cut off, at the first token, in the middle, and late, in each position of the ring, greedy, drawn
from a seed, and drawn from a seed that the coordinator chose: the client's text is, byte for byte, what it would have been.

`make check` runs the twelve cases of COVERING; `make test-long` all of them. Each case leaves its figures in build/recovery/ (bench/recovery_table.py)."""
import itertools
import json
import os
import pathlib
import re
import signal

import pytest

from cluster import ROOT, wait_until
from emulated import Emulated

PROMPT = "Once upon a time"
N = 240
LOSSES = ["kill", "stop", "cut"]
TOKENS = [1, 17, 200]
POSITIONS = [0, 1, 2]
SAMPLING = {"greedy": ["--temp", "0"], "seeded": ["--temp", "0.8", "--seed", "5"], "drawn": ["--temp", "0.8"]}
DEAD_MS = "800"  # of silence, instead of 8,000: all cases but one

# Each loss meets each token, position and way to sample; one case waits out the silence that users have.
COVERING = {("kill", 1, 0, "greedy"), ("kill", 17, 1, "seeded"), ("kill", 200, 2, "drawn"), ("kill", 1, 2, "seeded"),
            ("stop", 1, 1, "drawn"), ("stop", 17, 2, "greedy"), ("stop", 200, 0, "seeded"), ("stop", 17, 0, "drawn"),
            ("cut", 1, 2, "drawn"), ("cut", 17, 0, "greedy"), ("cut", 200, 1, "seeded"), ("cut", 200, 1, "greedy")}
PATIENT = ("stop", 17, 2, "greedy")


def cases():
    for case in itertools.product(LOSSES, TOKENS, POSITIONS, SAMPLING):
        marks = [] if case in COVERING else [pytest.mark.long]
        yield pytest.param(*case, marks=marks, id="-".join(map(str, case)))


def three_stages(cluster):
    """Waits for them; returns their names in ring order."""
    status = cluster.wait_status(lambda s: s["ready"] and sum("stage" in n for n in s["nodes"]) == 3, 60, "three stages")
    return [n["name"] for n in sorted((n for n in status["nodes"] if "stage" in n), key=lambda n: n["stage"])]


def three_nodes(cluster, case):
    """Starts a coordinator and three nodes and, when one is to be cut off, the relay between all of them; returns the relay, and how a node starts."""
    dead = [] if case == PATIENT else ["--dead-after", DEAD_MS]
    relay = Emulated(cluster, "abc") if case[0] == "cut" else None
    (relay or cluster).serve("--no-node", "--nodes", "3", *dead)
    join = lambda name: relay.join(name, *dead) if relay else cluster.join(name, "--threads", "1", *dead)
    for name in "abc":
        join(name)
    return relay, join


def lose(cluster, loss, victim, relay):
    if loss == "kill":
        cluster.processes[victim].kill()
    elif loss == "stop":
        cluster.processes[victim].send(signal.SIGSTOP)
    else:
        relay.send("cut %s * blackhole" % victim)


def bring_back(cluster, loss, victim, relay, join):
    if loss == "kill":
        join(victim)
    elif loss == "stop":
        cluster.processes[victim].send(signal.SIGCONT)
    else:
        relay.send("heal")


def ask_up_to(cluster, token, options):
    """An answer under way of which so many tokens have come, and how many more than that; a drawn one may end before, then another is asked for."""
    for _ in range(5):
        before = cluster.status()["tokens"]
        p = cluster.start_run("client-%d" % len(cluster.processes), PROMPT, "--json", *options, n=N)
        wait_until(lambda: cluster.status()["tokens"] - before >= token or not p.is_running(), 60, "token %d" % token)
        if p.is_running():
            return p, cluster.status()["tokens"] - before
    raise AssertionError("no answer came to token %d" % token)


AGAIN = re.compile(r"layers (\d+) to (\d+) are computed again for (\d+) positions|(every layer) is computed again for (\d+)|(nothing of it was done)|(nothing but)")


def computed_again(log):
    """[(first layer, last layer, positions)] of each time that an answer went on; None for layers: all."""
    return [(int(m[1]), int(m[2]), int(m[3])) if m[1] else (None, None, int(m[5])) if m[4] else (0, 0, 0) for m in AGAIN.finditer(log)]


def leave_figures(case, got, lost_at, log):
    """The pause is the longest time between two tokens as the client saw them, and beside it the mean of the others."""
    t, folder = got["timings"], ROOT / "build/recovery"
    folder.mkdir(parents=True, exist_ok=True)
    figures = dict(zip(("loss", "token", "position", "how"), case), silence="8 s" if case == PATIENT else "0.8 s", lost_at=lost_at, tokens=len(got["output_ids"]),
                   pause_ms=t["longest_gap_ms"], token_ms=(t["decode_ms"] - t["longest_gap_ms"]) / max(t["decode_tokens"] - 1, 1), again=computed_again(log))
    (folder / ("%s.json" % "-".join(map(str, case)))).write_text(json.dumps(figures) + "\n")


ALONE = {}  # what the clusters of all cases must equal, by temperature and seed


def answer_alone(cluster, temp, seed):
    if (temp, seed) not in ALONE:
        ALONE[temp, seed] = cluster.run_alone(PROMPT, "--temp", temp, "--seed", seed, n=N)
    return ALONE[temp, seed]


@pytest.mark.deadline(240)
@pytest.mark.parametrize("loss,token,position,how", cases())
def test_an_answer_survives(cluster, loss, token, position, how):
    relay, join = three_nodes(cluster, (loss, token, position, how))
    for _ in range(5):
        victim = three_stages(cluster)[position]
        recovered, logged = cluster.status()["recovered"], len(cluster.processes["coordinator"].log())
        p, lost_at = ask_up_to(cluster, token, SAMPLING[how])
        lose(cluster, loss, victim, relay)
        assert p.wait_exit(120) == 0, p.log()
        got = json.loads(p.out())
        want = answer_alone(cluster, SAMPLING[how][1], "0" if how == "greedy" else got["seed"])
        assert (got["text"], got["output_ids"], got["logits_hash"]) == (want["text"], want["output_ids"], want["logits_hash"])
        if lost_at + 40 < len(want["output_ids"]) or cluster.status()["recovered"] > recovered:
            break
        bring_back(cluster, loss, victim, relay, join)  # it had ended before the loss was felt
    assert cluster.status()["recovered"] > recovered
    log = cluster.processes["coordinator"].log()[logged:]
    assert "an answer goes on" in log
    leave_figures((loss, token, position, how), got, lost_at, log)
    cluster.processes[victim].kill()


# What passes --keep-mem. A row of SmolLM2 has 2,304 bytes: a MiB holds 455 of them, so the end of this prompt and the whole answer are on disk.
LONG_PROMPT = "Once upon a time " * 130
ROW_ON_DISK = 576 * 4 + 24


def spoil_kept_states(process):
    """Overwrites the nameless file that a node keeps states in; as its user, one can."""
    folder = pathlib.Path("/proc/%d/fd" % process.pid)
    found = [f for f in folder.iterdir() if os.readlink(f).endswith("(deleted)") and "/state-" in os.readlink(f)]
    assert len(found) == 1, [os.readlink(f) for f in folder.iterdir()]
    with open(found[0], "r+b") as f:
        size = f.seek(0, os.SEEK_END)
        f.seek(0)
        f.write(bytes(size))
    return size


@pytest.mark.deadline(240)
@pytest.mark.parametrize("damaged", [False, True])
def test_an_answer_survives_from_states_on_disk(cluster, damaged):
    cluster.serve("--no-node", "--nodes", "3", "--dead-after", DEAD_MS)
    for name in "abc":
        cluster.join(name, "--threads", "1", "--dead-after", DEAD_MS, "--keep-mem", "1", "--keep-disk", "1M")
    status = cluster.wait_status(lambda s: s["ready"] and sum("stage" in n for n in s["nodes"]) == 3, 60, "three stages")
    ring = [n["name"] for n in sorted((n for n in status["nodes"] if "stage" in n), key=lambda n: n["stage"])]
    assert all(n["kept_disk_written"] == 0 for n in status["nodes"])
    before = status["tokens"]
    p = cluster.start_run("client", LONG_PROMPT, "--json", "--temp", "0", n=120)
    wait_until(lambda: cluster.status()["tokens"] - before >= 40, 120, "token 40")
    assert not [f for name in "abc" for f in cluster.state(name).glob("kept-*")]
    if damaged:
        assert all(spoil_kept_states(cluster.processes[name]) > 50 * ROW_ON_DISK for name in ring[:2])
    cluster.processes[ring[1]].kill()
    assert p.wait_exit(120) == 0, p.log()
    got, want = json.loads(p.out()), cluster.run_alone(LONG_PROMPT, "--temp", "0", n=120)
    assert (got["text"], got["output_ids"], got["logits_hash"]) == (want["text"], want["output_ids"], want["logits_hash"])
    first = lambda s: next(n for n in s["nodes"] if n["name"] == ring[0])
    # The first stage fed the lost one's layers from what it had kept: with the tail, from disk, more than the rows of 40 tokens.
    s = cluster.wait_status(lambda s: first(s)["kept_disk_read"] >= (1 if damaged else 40 * ROW_ON_DISK), 20, "the report of what was read")
    assert s["recovered"] >= 1
    assert first(s)["kept_disk_written"] % ROW_ON_DISK == 0 and first(s)["kept_disk_bytes_per_token"] > 0
    text = cluster.command("status", "--state", cluster.state("coordinator")).stdout
    assert "%s: writes " % ring[0] in text and "of kept states per token to disk" in text
    log = cluster.processes[ring[0]].log()
    assert log.count("kept states cannot be read back from disk") == (1 if damaged else 0), log


@pytest.mark.deadline(120)
def test_without_keep_disk_nothing_is_written(cluster):
    cluster.serve("--nodes", "1")
    cluster.join("a", "--threads", "1", "--keep-mem", "0")
    cluster.wait_ready()
    cluster.run("Once upon a time", n=8)
    assert [(n["kept_disk_written"], n["kept_disk_read"], n["kept_disk_bytes_per_token"]) for n in cluster.status()["nodes"]] == [(0, 0, 0)] * 2
    assert "to disk" not in cluster.command("status", "--state", cluster.state("coordinator")).stdout
