"""Tensor-parallel groups of real processes on the loopback address: the bits of one machine, whatever the cut and whoever is lost."""
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys

import pytest

from cluster import IS_SANITIZED, MEMORY_ROOM_KIB, ROOT, wait_until
from emulated import Emulated

PROMPT = "Once upon a time"
LOCAL = socket.gethostname()  # the coordinator's own node


def ready_with(cluster, n_members):
    return cluster.wait_status(lambda s: s["ready"] and sum("stage" in n for n in s["nodes"]) == n_members, 60, "a plan of %d machines" % n_members)


def group(cluster, place, names, *options, **how):
    cluster.serve("--place", place, "--nodes", len(names), *([] if LOCAL in place else ["--no-node"]), *options)
    for name in names:
        cluster.join(name, "--threads", "1", **how)
    return ready_with(cluster, len(names) + (LOCAL in place))


def same(a, b):
    assert a["output_ids"] == b["output_ids"]
    assert a["logits_hash"] == b["logits_hash"]
    assert a["logits_hash"]


@pytest.mark.deadline(240)
@pytest.mark.parametrize("place, names", [
    ("a:2+b:1=30", "ab"),
    ("a:3+b:2*+c:1=30", "abc"),
    ("a=7,b:1+c:1=16,d=7", "abcd"),
    ("%s:1+a:1=30" % LOCAL, "a"),
    ("a:1+%s:1=30" % LOCAL, "a"),
], ids=["two", "three", "in a ring", "led by the coordinator's", "with the coordinator's"])
def test_a_group_gives_one_hash(cluster, place, names):
    alone = cluster.run_alone(PROMPT, n=6)
    group(cluster, place, names)
    for _ in range(2):
        same(cluster.run(PROMPT, n=6), alone)


@pytest.mark.deadline(240)
@pytest.mark.parametrize("mode", ["mixed", "mixed-star", "reduce", "reduce-scatter", "mixed-ring", "reduce-ring"])
def test_members_that_send_sums_give_the_same_hash(cluster, mode):
    alone = cluster.run_alone(PROMPT, n=6)
    group(cluster, "a:2+b:1+c:1=30", "abc", "--tp-mode", mode)
    for _ in range(2):
        same(cluster.run(PROMPT, n=6), alone)


@pytest.mark.parametrize("shape, type_, mode, why", [
    ("heads=4,kv_heads=2", "F16", "reduce", "a head of 64 values lies in lanes of several members: gather or mixed will do"),
    ("heads=4,kv_heads=2,experts=6,experts_used=2", "Q4_0", "mixed", "experts belong to members whole: only gather will do")], ids=["heads", "experts"])
def test_a_mode_that_the_model_cannot_have_is_refused_at_the_start(cluster, tmp_path, shape, type_, mode, why):
    """Not when the last machine is there, again and again."""
    subprocess.run([sys.executable, ROOT / "tools/make_tiny_model.py", tmp_path / "vocab.gguf"], check=True)
    subprocess.run([ROOT / "tools/make_model", "--vocab-from", tmp_path / "vocab.gguf", "--shape", "layers=3,hidden=256,ffn=256," + shape,
                    "--type", type_, "-o", tmp_path / "made.gguf"], check=True, stderr=subprocess.DEVNULL)
    for words in (("run", "-p", "x", "--tp", "1:1"), ("serve", "--place", "a=1,b:2+c:1=2", "--state", cluster.state("x"), "--no-http", "--listen", "127.0.0.1:0")):
        ran = cluster.command(words[0], tmp_path / "made.gguf", *words[1:], "--tp-mode", mode, check=False)
        assert ran.returncode == 1 and ran.stderr.rstrip().endswith(why) and "--tp-mode: " in ran.stderr, ran.stderr


def test_a_star_is_refused_with_a_mode_that_has_sums(cluster):
    ran = cluster.command("serve", cluster.model, "--place", "a+b*=30", "--tp-mode", "mixed", "--no-http", "--listen", "127.0.0.1:0", check=False)
    assert ran.returncode == 1 and "b* passes on what is gathered: with --tp-mode mixed each member is sent something else" in ran.stderr


@pytest.mark.deadline(240)
def test_rounded_sums_are_those_of_one_process(cluster):
    alone = cluster.run_alone(PROMPT, "--tp", "2:1", "--tp-mode", "mixed-scatter", "--tp-payload", "q8", n=6)
    group(cluster, "a:2+b:1=30", "ab", "--tp-mode", "mixed-scatter", "--tp-payload", "q8")
    same(cluster.run(PROMPT, n=6), alone)


@pytest.mark.deadline(240)
def test_members_that_cannot_reach_each_other_do_it_through_the_coordinator(cluster):
    alone = cluster.run_alone(PROMPT, n=6)
    group(cluster, "a:2+b:1+c:1=30", "abc", listen="127.0.0.2:0")
    same(cluster.run(PROMPT, n=6), alone)


@pytest.mark.covering
@pytest.mark.deadline(240)
@pytest.mark.parametrize("place, names, mode", [("a=10,b:2+c:1=20", "abc", ()), ("a=10,b=20", "ab", ()),
                                                ("a:2+b:1+c:1=30", "abc", ("--tp-mode", "reduce-ring"))],
                         ids=["a group", "one machine", "a ring of members"])
def test_the_output_head_may_be_where_the_last_layers_are(cluster, place, names, mode):
    """With a hash all logits travel, without one the best candidates: the tokens are those of a head of the coordinator's own."""
    words = (("--temp", 0), ("--temp", 0.9, "--top-k", 40, "--seed", 7), ("--temp", 0.9, "--top-k", 0, "--seed", 7))
    alone, short = [cluster.run_alone(PROMPT, "--no-logits-hash", *w, n=12) for w in words], cluster.run_alone(PROMPT, n=4)
    group(cluster, place, names, "--head", "last", *mode)
    for w, one in zip(words, alone):
        assert cluster.run(PROMPT, "--no-logits-hash", *w, n=12)["output_ids"] == one["output_ids"]
    same(cluster.run(PROMPT, n=4), short)


@pytest.mark.deadline(240)
def test_an_answer_survives_who_had_rows_of_the_output_head(cluster):
    words = ("--temp", 0, "--no-logits-hash")
    alone = cluster.run_alone(PROMPT, *words, n=100)
    cluster.serve("--place", "a:2+b:1=30", "--nodes", 2, "--no-node", "--dead-after", 800, "--head", "last")
    for name in "abc":
        cluster.join(name, "--threads", "1", "--dead-after", 800)
    ready_with(cluster, 2)
    before = cluster.status()["tokens"]
    run = cluster.start_run("run", PROMPT, "--json", *words, n=100)
    wait_until(lambda: cluster.status()["tokens"] - before >= 10, 60, "token 10")
    cluster.processes["b"].send(signal.SIGKILL)
    assert run.wait_exit(120) == 0, run.log()
    assert json.loads(run.out())["output_ids"] == alone["output_ids"]
    assert cluster.status()["recovered"] == 1


@pytest.mark.covering
@pytest.mark.deadline(240)
def test_prompts_in_chunks_and_several_streams_at_once(cluster):
    prompts = (PROMPT, "One two three four five six seven", "A")
    alone = [cluster.run_alone(p, n=6) for p in prompts]
    group(cluster, "a:2+b:3=30", "ab", "--prefill-chunk", 3)
    running = [cluster.start_run("run%d" % i, p, "--json", n=6) for i, p in enumerate(prompts)]
    for p, one in zip(running, alone):
        assert p.wait_exit(60) == 0
        same(json.loads(p.out()), one)


@pytest.mark.deadline(240)
@pytest.mark.parametrize("victim, loss", [("a", signal.SIGKILL), ("b", signal.SIGKILL), ("b", signal.SIGSTOP)], ids=["kill the lead", "kill", "stop"])
def test_an_answer_survives_a_lost_member(cluster, victim, loss):
    """The lead, or another one; somebody stands by, and computes the group's layers again."""
    alone = cluster.run_alone(PROMPT, "--temp", 0, n=100)
    cluster.serve("--place", "a:2+b:1=30", "--nodes", 2, "--no-node", "--dead-after", 800)
    for name in "abc":
        cluster.join(name, "--threads", "1", "--dead-after", 800)
    ready_with(cluster, 2)
    before = cluster.status()["tokens"]
    run = cluster.start_run("run", PROMPT, "--json", "--temp", 0, n=100)
    wait_until(lambda: cluster.status()["tokens"] - before >= 10, 60, "token 10")
    assert run.is_running()
    cluster.processes[victim].send(loss)
    assert run.wait_exit(120) == 0, run.log()
    same(json.loads(run.out()), alone)
    assert cluster.status()["recovered"] == 1
    same(cluster.run(PROMPT, "--temp", 0, n=100), alone)


@pytest.mark.deadline(240)
def test_the_others_take_the_part_of_a_member_that_is_lost_or_drained(cluster):
    """Nobody stands by: two of three cut the layers anew, then one has them alone."""
    alone = cluster.run_alone(PROMPT, "--temp", 0, n=60)
    group(cluster, "a:2+b:1+c:1=30", "abc", "--dead-after", 800)
    run = cluster.start_run("run", PROMPT, "--json", "--temp", 0, n=60)
    wait_until(lambda: cluster.status()["tokens"] >= 10, 60, "token 10")
    assert run.is_running()
    cluster.processes["c"].send(signal.SIGKILL)
    assert run.wait_exit(120) == 0, run.log()
    same(json.loads(run.out()), alone)
    assert cluster.status()["recovered"] == 1
    parts = {n["name"]: (n["group"]["share"], n["group"]["of"]) for n in cluster.status()["nodes"] if "group" in n}
    assert parts == {"a": (2, 3), "b": (1, 3)}
    run = cluster.start_run("again", PROMPT, "--json", "--temp", 0, n=60)
    wait_until(lambda: cluster.status()["tokens"] >= 70, 60, "token 10 of the next answer")
    cluster.command("drain", "a", "--state", cluster.state("coordinator"))
    assert run.wait_exit(120) == 0, run.log()
    same(json.loads(run.out()), alone)
    status = ready_with(cluster, 1)
    assert all("group" not in n for n in status["nodes"])


@pytest.mark.deadline(240)
def test_a_group_goes_on_when_two_of_it_cannot_hear_each_other_any_more(cluster):
    """Both still reach the coordinator, who passes on what they send each other, until they can again."""
    alone = cluster.run_alone(PROMPT, "--temp", 0, n=60)
    e = Emulated(cluster, "ab", rest='[network]\ndelay = "0.2 ms"')
    e.serve("--place", "a:2+b:1=30", "--nodes", 2, "--no-node", "--dead-after", 800)
    for name in "ab":
        e.join(name, "--dead-after", 800)
    ready_with(cluster, 2)
    wait_until(lambda: any(p["open"] for pair, p in e.pairs().items() if set(pair) == set("ab")), 20, "a direct link")
    run = cluster.start_run("run", PROMPT, "--json", "--temp", 0, n=60)
    wait_until(lambda: cluster.status()["tokens"] >= 10, 60, "token 10")
    assert run.is_running()
    e.send("cut a b blackhole")
    assert run.wait_exit(120) == 0, run.log()
    same(json.loads(run.out()), alone)
    assert cluster.status()["recovered"] >= 1
    relayed = lambda: sum(n["relayed_frames"] for n in cluster.status()["nodes"])
    assert relayed() > 0
    e.send("heal")
    same(cluster.run(PROMPT, "--temp", 0, n=60), alone)


def node_of(status, name):
    return next(n for n in status["nodes"] if n["name"] == name)


def wait_passed(cluster, names, n_exchanges, n_tokens):
    """Waits until members have told of so many tokens and of every exchange of their forwards; returns the status."""
    def are_told(s):
        groups = [node_of(s, n)["group"] for n in names]
        return all(g["tokens"] == n_tokens and g["exchanges"] == g["forwards"] * n_exchanges for g in groups)
    return cluster.wait_status(are_told, 20, "the members' reports")


# SmolLM2: 9 heads of 64 by 3 KV heads, hidden_dim 576, ffn_dim 1536, 30 layers; o and down are Q4_1, whose inputs go as blocks of 32 int8 and one f32.
def payload_of(heads, ffn, rows):
    """Bytes of one member's contributions to a token: inputs of o and down that are its own, outputs that are."""
    assert heads * 64 % 32 == 0 and ffn % 32 == 0
    return 30 * ((heads * 64 + ffn) // 32 * 36 + 2 * rows * 4)


@pytest.mark.deadline(240)
def test_members_send_the_bytes_that_the_rules_name(cluster):
    """Three members in equal shares: a third of the heads, columns and rows each. Every contribution goes to both others."""
    group(cluster, "a:1+b:1+c:1=30", "abc")
    got = cluster.run(PROMPT, n=8)
    n_tokens = len(got["prompt_ids"]) + len(got["output_ids"]) - 1
    status = wait_passed(cluster, "abc", 30 * 4, n_tokens)
    for name in "abc":
        g = node_of(status, name)["group"]
        assert g["part_bytes"] == 2 * n_tokens * payload_of(3, 512, 192)
        is_lead = name == "a"
        assert g["start_bytes"] == (2 * (n_tokens * 576 * 4 + g["forwards"] * 28) if is_lead else 0)
        assert g["frames"] == 2 * (g["exchanges"] + (g["forwards"] if is_lead else 0))
        assert g["overhead"] == g["frames"] * (40 + 21)
    text = cluster.command("status", "--state", cluster.state("coordinator")).stdout
    payload = 2 * payload_of(3, 512, 192) / 1024
    assert "b: is in a group of 3, with 1 of 3 parts of each layer; sends the others %.1f KiB a token, and %.1f of headers and encryption\n" % (
        payload, g["overhead"] / n_tokens / 1024) in text


@pytest.mark.deadline(240)
def test_members_of_a_ring_send_the_next_one_what_the_rule_names(cluster):
    """Lanes of down's sum: 0 to 2, 3 and 4, 5 to 7. Of each output two nodes start; a's hop with those of c carries four, as nothing of them can be
    joined, the others' (lanes 0 to 4 and 3 to 7) two. Then two hops with a third of the outputs each."""
    group(cluster, "a:1+b:1+c:1=30", "abc", "--tp-mode", "mixed-ring")
    got = cluster.run(PROMPT, n=8)
    n_tokens = len(got["prompt_ids"]) + len(got["output_ids"]) - 1
    status = wait_passed(cluster, "abc", 30 * (2 + 4), n_tokens)
    for name, n_nodes in (("a", 2 + 4), ("b", 2 + 2), ("c", 2 + 2)):
        g = node_of(status, name)["group"]
        gathered = 2 * (payload_of(3, 0, 192) - 30 * 192 * 4)
        assert g["part_bytes"] == n_tokens * (gathered + 30 * (n_nodes + 2) * 192 * 4)
        assert g["frames"] == g["forwards"] * (30 * (2 * 2 + 4) + (2 if name == "a" else 0))


@pytest.mark.deadline(240)
@pytest.mark.parametrize("wire", ["f32", "bf16"])
def test_members_that_share_experts_give_one_hash(cluster, tmp_path, wire):
    """Two of six experts each: of those that a token chooses, often none is a member's, which then has nothing to send."""
    subprocess.run([sys.executable, ROOT / "tools/make_tiny_model.py", tmp_path / "vocab.gguf"], check=True)
    cluster.model = tmp_path / "made.gguf"
    subprocess.run([ROOT / "tools/make_model", "--vocab-from", tmp_path / "vocab.gguf", "--shape",
                    "layers=3,hidden=256,heads=4,kv_heads=2,ffn=256,experts=6,experts_used=2", "--type", "Q4_0", "-o", cluster.model],
                   check=True, stderr=subprocess.DEVNULL)
    alone = cluster.run_alone("the other side", "--wire", wire, n=10)
    group(cluster, "a:1+b:1+c:1=3", "abc", "--wire", wire)
    got = cluster.run("the other side", n=10)
    same(got, alone)
    wait_passed(cluster, "abc", 3 * 3, len(got["prompt_ids"]) + len(got["output_ids"]) - 1)


BLOCK = 256 << 10


def join_without(cluster, name):
    path = cluster.folder / ("%s.invite" % name)
    argv = [] if cluster.state(name).exists() else ["--invite-file", path]
    if argv:
        path.touch(0o600)
        path.write_text(cluster.invite() + "\n")
    return cluster.start(name, "join", "--state", cluster.state(name), "--name", name, "--listen", "127.0.0.1:0", "--cache",
                         cluster.folder / ("cache-%s" % name), "--threads", "1", "--no-probe", *argv)


def fetched(cluster, name):
    """Bytes that a member has fetched since it began, when it has all it wants."""
    def look():
        blocks = {n["name"]: n for n in cluster.status()["nodes"]}[name].get("blocks", {})
        return blocks if blocks.get("state") == "complete" else None
    return wait_until(look, 60, "the blocks of %s" % name)["bytes_fetched"]


@pytest.mark.deadline(240)
def test_members_without_the_file_fetch_their_parts_of_it(cluster, tmp_path):
    """Of seven matrices in each layer a member needs its rows, and a block more of each, on average. Who then has more to do fetches what it
    lacks, and a second start nothing."""
    n_layers, hidden, ffn, kv = 3, 512, 4096, 256
    subprocess.run([sys.executable, ROOT / "tools/make_tiny_model.py", tmp_path / "vocab.gguf"], check=True)
    cluster.model = tmp_path / "made.gguf"
    subprocess.run([ROOT / "tools/make_model", "--vocab-from", tmp_path / "vocab.gguf", "--shape", "layers=%d,hidden=%d,heads=8,kv_heads=4,ffn=%d" % (
        n_layers, hidden, ffn), "--type", "F16", "-o", cluster.model], check=True, stderr=subprocess.DEVNULL)
    layers = n_layers * 2 * hidden * (3 * ffn + 2 * hidden + 2 * kv)
    alone = cluster.run_alone("the other side", n=6)
    cluster.serve("--place", "a:3+b:1=%d" % n_layers, "--nodes", 2, "--no-node")
    for name in "ab":
        join_without(cluster, name)
    ready_with(cluster, 2)
    same(cluster.run("the other side", n=6), alone)
    got = {name: fetched(cluster, name) for name in "ab"}
    for name, share in (("a", 3), ("b", 1)):
        part = layers * share // 4
        assert part <= got[name] <= part + (9 * n_layers + 1) * BLOCK, (part, got)  # with norms, and the header
    cluster.processes["b"].stop()
    ready_with(cluster, 1)
    same(cluster.run("the other side", n=6), alone)
    assert layers <= fetched(cluster, "a") <= layers + 2 * BLOCK, "what it lacked"
    join_without(cluster, "b")
    ready_with(cluster, 2)
    same(cluster.run("the other side", n=6), alone)
    assert fetched(cluster, "b") == 0


@pytest.mark.deadline(240)
def test_members_keep_their_memory_caps(cluster):
    """Each its own, of which one holds all of its part, and one streams."""
    caps = {"a": 160, "b": 72}
    alone = cluster.run_alone(PROMPT, n=6)
    cluster.serve("--place", "a:1+b:2=30", "--nodes", 2, "--no-node", "--slots", 1, "--ctx", 512, "--prefill-chunk", 8)
    for name in "ab":
        cluster.join(name, "--threads", "1", "--mem", "%dM" % caps[name])
    ready_with(cluster, 2)
    same(cluster.run(PROMPT, n=6), alone)
    for name in "ab":
        peak = int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/%d/status" % cluster.processes[name].pid).read_text())[1])
        assert peak <= caps[name] * 1024 + MEMORY_ROOM_KIB
    weights = {n["name"]: n["weights"] for n in cluster.status()["nodes"] if "weights" in n}
    assert weights["a"]["streamed_bytes"] == 0 < weights["b"]["streamed_bytes"], weights


@pytest.mark.skipif(IS_SANITIZED, reason="a sanitizer's memory is not the program's")
@pytest.mark.deadline(240)
def test_a_part_that_a_cap_does_not_hold_is_refused_with_what_it_takes(cluster):
    cluster.serve("--place", "a:1+b:1=30", "--nodes", 2, "--no-node")
    cluster.join("a", "--threads", "1")
    cluster.join("b", "--threads", "1", "--mem", "64M")
    cluster.processes["b"].wait_log(r"cannot take its part: --mem leaves [\d.]+ MiB for a stage", 60)
