"""The same bits through any plan, and a cluster that outlives its nodes: real processes on the loopback address."""
import pathlib
import random
import signal
import socket
import threading

import pytest

from cluster import MEMORY_ROOM_KIB, Relay, free_port, wait_until

PROMPT = "Once upon a time"  # its answer does not end before tests do what they do in the middle of it
N_LAYERS = 30


def ready_with(cluster, n_stages):
    return cluster.wait_status(lambda s: s["ready"] and sum("stage" in n for n in s["nodes"]) == n_stages, 60, "a plan of %d stages" % n_stages)


def stages(status):
    return sorted((n for n in status["nodes"] if "stage" in n), key=lambda n: n["stage"])


def same(a, b):
    assert a["output_ids"] == b["output_ids"]
    assert a["logits_hash"] == b["logits_hash"]
    assert a["text"] == b["text"]
    assert a["logits_hash"]


def random_cut(rng, n):
    cuts = sorted(rng.sample(range(1, N_LAYERS), n - 1))
    return [b - a for a, b in zip([0, *cuts], [*cuts, N_LAYERS])]


def twenty_cuts(rng):
    """(layers of each stage, is the first one the coordinator's machine?) over 1, 2, 3 and 5 nodes."""
    cuts = [(random_cut(rng, n + local), local) for n in (1, 2, 3, 5) for local in (False, True) for _ in range(2)]
    return cuts + [([1, 29], False), ([29, 1], False), ([14, 1, 15], False), ([1, 29], True)]


@pytest.mark.deadline(300)
def test_every_cut_of_the_layers_gives_one_hash(cluster):
    """Twenty cuts drawn from a seed. Everything is killed and comes back, members as they were, with another split."""
    alone = cluster.run_alone("One two three", n=4)
    cuts, port = twenty_cuts(random.Random(2026)), free_port()
    assert len(cuts) == 20
    for cut, local in cuts:
        cluster.serve("--split", ",".join(map(str, cut)), "--nodes", "5", *([] if local else ["--no-node"]), port=port)
        for name in "abcde":
            cluster.join(name, "--threads", "1")
        status = ready_with(cluster, len(cut))
        assert [sum(end - begin for begin, end in s["layers"]) for s in stages(status)] == cut
        assert stages(status)[0]["local"] == local
        same(cluster.run("One two three", n=4), alone)
        for p in cluster.processes.values():
            p.kill()


def rounds_of(cut, k):
    """How many layers each stage runs in each round, as partition/plan.h says."""
    return [[(r + 1) * n // k - r * n // k for r in range(k)] for n in cut]


@pytest.mark.deadline(300)
def test_every_number_of_rounds_gives_one_hash(cluster):
    """Rounds that divide the layers and that do not, uneven stages, the coordinator's own node among them or not."""
    alone = cluster.run_alone("One two three", "--prefill-chunk", "3", n=6)
    port = free_port()
    for cut, k, local in [([15, 15], 2, True), ([20, 10], 3, False), ([7, 12, 11], 5, False), ([1, 28, 1], 4, True), ([10, 9, 11], 16, True), ([30], 4, True)]:
        cluster.serve("--split", ",".join(map(str, cut)), "--rounds", k, "--nodes", "3", "--prefill-chunk", "2", *([] if local else ["--no-node"]), port=port)
        for name in "abc":
            cluster.join(name, "--threads", "1")
        status = ready_with(cluster, len(cut))
        k = min(k, max(cut)) if len(cut) > 1 else 1  # no round in which nobody has a layer
        assert [[end - begin for begin, end in s["layers"]] for s in stages(status)] == rounds_of(cut, k)
        same(cluster.run("One two three", n=6), alone)
        for p in cluster.processes.values():
            p.kill()


def test_an_empty_stage_is_refused_by_name(cluster):
    bad = cluster.command("serve", cluster.model, "--state", cluster.state("x"), "--no-http", "--split", "10,0,20", check=False)
    assert bad.returncode == 2
    assert "0 for stage 1" in bad.stderr


@pytest.mark.parametrize("split, n", [("10,10", 20), ("10,10,11", 31)])
def test_a_split_of_another_number_of_layers_is_refused_at_the_start(cluster, split, n):
    bad = cluster.command("serve", cluster.model, "--state", cluster.state("x"), "--no-http", "--listen", "127.0.0.1:0", "--split", split, check=False)
    assert (bad.returncode, bad.stderr) == (1, "hearth serve: --split gives out %d layers, %s has 30\n" % (n, cluster.model))


@pytest.mark.skipif(pathlib.Path("/proc/sys/vm/overcommit_memory").read_text() == "1\n", reason="this kernel promises any memory")
def test_run_ends_at_once_where_its_layers_cannot_be_loaded(cluster):
    p = cluster.command("run", cluster.model, "-p", "x", "--ctx", 16777216, check=False, seconds=30)
    assert p.returncode == 1 and p.stdout == "" and "slots of 16777216 tokens" in p.stderr.splitlines()[-1]


def test_a_coordinator_that_waits_for_nodes_says_so(cluster):
    p = cluster.serve("--nodes", "1")
    p.wait_log("no plan: 0 of 1 joined nodes are here", 30)


def test_an_address_of_another_machine_cannot_be_listened_on(cluster):
    bad = cluster.command("serve", cluster.model, "--state", cluster.state("x"), "--no-http", "--listen", "192.0.2.1:7433", check=False)
    assert bad.returncode == 1 and "192.0.2.1:7433: not an address of this machine" in bad.stderr


def test_a_port_in_use_is_named_with_the_way_out(cluster):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        bad = cluster.command("serve", cluster.model, "--state", cluster.state("x"), "--no-http", "--listen", "127.0.0.1:%d" % port, check=False)
    assert (bad.returncode, bad.stderr.splitlines()[-1]) == (
        1, "hearth serve: tcp://127.0.0.1:%d: another program listens there: is Hearth running already? --listen HOST:PORT takes another port" % port)


def test_a_port_in_use_costs_no_invite(cluster):
    cluster.serve()
    invite = cluster.invite()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        bad = cluster.join("a", "--threads", "1", invite=invite, listen="127.0.0.1:%d" % s.getsockname()[1])
        assert bad.wait_exit(30) == 1
        assert "another program listens there: is Hearth running already? --listen HOST:PORT takes another port" in bad.log()
    cluster.join("a", "--threads", "1", invite=invite)
    ready_with(cluster, 2)


@pytest.mark.parametrize("wire", ["bf16", "q8", "f16"])
def test_each_wire_type_gives_what_run_gives_with_it(cluster, wire):
    alone = cluster.run_alone(PROMPT, "--wire", wire, "--prefill-chunk", "7", n=8)
    cluster.serve("--no-node", "--nodes", "2", "--wire", wire)
    cluster.join("a", "--threads", "1")
    cluster.join("b", "--threads", "2", "--simd", "portable")
    ready_with(cluster, 2)
    same(cluster.run(PROMPT, n=8), alone)


def test_chunks_threads_and_sampling_change_nothing(cluster):
    options = ["--temp", "0.8", "--top-k", "40", "--top-p", "0.95", "--min-p", "0.02", "--seed", "7"]
    alone = cluster.run_alone(PROMPT, *options, "--threads", "1", "--prefill-chunk", "512", n=12)
    for threads, chunk in ((2, 1), (4, 7), (1, 64)):
        same(cluster.run_alone(PROMPT, *options, "--threads", threads, "--prefill-chunk", chunk, n=12), alone)
    same(cluster.run_alone(PROMPT, *options, "--simd", "portable", "--prefill-chunk", "3", n=12), alone)
    cluster.serve("--nodes", "1", "--prefill-chunk", "2")
    cluster.join("a", "--threads", "1")
    ready_with(cluster, 2)
    same(cluster.run(PROMPT, *options, n=12), alone)


def test_serve_alone_answers(cluster):
    cluster.serve()
    status = cluster.wait_ready()
    assert [n["local"] for n in status["nodes"]] == [True]
    same(cluster.run(PROMPT, n=6), cluster.run_alone(PROMPT, n=6))


@pytest.mark.deadline(240)
def test_eight_clients_at_once_get_what_each_gets_alone(cluster):
    prompts = ["Count: one, two,", "The sea is", "Once upon a time", "def add(a, b):", "Bonjour, je", "2 + 2 =", "A recipe for bread:", "The moon"]
    options = [["--temp", "0.9", "--seed", str(i)] for i in range(8)]
    cluster.serve("--no-node", "--nodes", "3", "--slots", "8")
    for name in "abc":
        cluster.join(name, "--threads", "1")
    ready_with(cluster, 3)
    solo = [cluster.run(p, *o, n=16) for p, o in zip(prompts, options)]
    together = [None] * 8

    def ask(i):
        together[i] = cluster.run(prompts[i], *options[i], n=16)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for a, b in zip(solo, together):
        same(b, a)
    assert cluster.status()["buffers_used"] == 0


def three_nodes(cluster, *options):
    cluster.serve("--no-node", "--nodes", "3", *options)
    for name in "abc":
        cluster.join(name, "--threads", "1")
    ready_with(cluster, 3)


def ask_until(cluster, name, n_chars, *options, n=160):
    """An answer under way, of which so much text has come."""
    p = cluster.start_run(name, PROMPT, *options, n=n)
    wait_until(lambda: len(p.out()) >= n_chars or not p.is_running(), 30, "the answer to begin")
    assert p.is_running()
    return p


LONG_PROMPT = "word " * 2000
AT = {"prefill": None, "token 1": 1, "token 30": 60}  # characters that have come


def ask_at(cluster, at):
    """(an answer under way, its whole text when nothing goes wrong)"""
    if at == "prefill":
        whole = cluster.run_alone(LONG_PROMPT, n=8)
        p = cluster.start_run("client", LONG_PROMPT, n=8)
        cluster.wait_status(lambda s: s["active"] == 1, 10, "the prompt to be taken")
    else:
        whole = cluster.run_alone(PROMPT, n=160)
        p = ask_until(cluster, "client", AT[at])
    return p, whole["text"]


def ends_whole(p, text, seconds):
    assert p.wait_exit(seconds) == 0, p.log()
    assert p.out().strip() == text.strip()


@pytest.mark.deadline(240)
@pytest.mark.parametrize("victim,at", zip("abc", AT))
def test_an_answer_survives_a_killed_node(cluster, victim, at):
    three_nodes(cluster)
    before = cluster.run(PROMPT, n=4)
    kib, fds = cluster.processes["coordinator"].memory_kib(), cluster.processes["coordinator"].n_descriptors()
    p, text = ask_at(cluster, at)
    cluster.processes[victim].kill()
    ends_whole(p, text, 120)
    assert cluster.status()["recovered"] >= 1
    same(cluster.run(PROMPT, n=4), before)  # by two of them
    cluster.join(victim, "--threads", "1")
    ready_with(cluster, 3)
    same(cluster.run(PROMPT, n=4), before)
    status = cluster.status()
    assert status["buffers_used"] == 0 and status["active"] == 0
    wait_until(lambda: cluster.processes["coordinator"].n_descriptors() <= fds, 10, "the descriptors to be given back")
    assert cluster.processes["coordinator"].memory_kib() < kib + 8192 + MEMORY_ROOM_KIB


@pytest.mark.deadline(240)
@pytest.mark.parametrize("victim", ["b"])
def test_an_answer_survives_a_stopped_node(cluster, victim):
    three_nodes(cluster)
    before = cluster.run(PROMPT, n=4)
    p, text = ask_at(cluster, "token 1")
    cluster.processes[victim].send(signal.SIGSTOP)
    ends_whole(p, text, 120)
    assert "silent for 8000 ms" in cluster.processes["coordinator"].log()
    cluster.processes[victim].send(signal.SIGCONT)
    ready_with(cluster, 3)
    same(cluster.run(PROMPT, n=4), before)


@pytest.mark.deadline(240)
@pytest.mark.parametrize("at", ["prefill", "token 1"])
def test_an_answer_survives_a_silently_dropped_connection(cluster, at):
    port = free_port()
    relay = Relay(port)
    cluster.serve("--advertise", "127.0.0.1:%d" % relay.port, "--dead-after", "1000", port=port)
    cluster.join("a", "--threads", "1", "--dead-after", "1000")
    ready_with(cluster, 2)
    before = cluster.run(PROMPT, n=4)
    p, text = ask_at(cluster, at)
    relay.drop()
    ends_whole(p, text, 120)
    # Both ends notice: on a busy machine the node may be the first, and its end of the connection is what the coordinator sees then.
    assert "silent for 1000 ms" in cluster.processes["coordinator"].log() or "closed by this side" in cluster.processes["a"].log()
    relay.pass_again()
    ready_with(cluster, 2)
    same(cluster.run(PROMPT, n=4), before)
    relay.close()


def test_two_lost_at_once_and_one_more_while_recovering(cluster):
    three_nodes(cluster)
    p, text = ask_at(cluster, "token 1")
    cluster.processes["a"].kill()
    cluster.processes["b"].kill()
    cluster.join("a", "--threads", "1")
    wait_until(lambda: "an answer " in cluster.processes["coordinator"].log(), 30, "the answer to go on, or to begin again")
    cluster.processes["c"].kill()
    ends_whole(p, text, 120)


def test_an_answer_without_a_possible_plan_ends_with_an_error(cluster):
    cluster.serve("--no-node", "--split", "10,20", "--session-wait", "3")
    for name in "ab":
        cluster.join(name, "--threads", "1")
    ready_with(cluster, 2)
    p = ask_until(cluster, "client", 1)
    cluster.processes["b"].kill()
    assert p.wait_exit(20) == 1
    assert "gave up after 3 s" in p.log() and "1 of 2 stages of --split" in p.log()


def test_a_blocked_port_makes_a_relay(cluster):
    """Both nodes listen where nobody dials them (the address the coordinator sees is another): their steps go through the coordinator."""
    alone = cluster.run_alone(PROMPT, n=8)
    cluster.serve("--no-node", "--nodes", "2")
    for name in "ab":
        cluster.join(name, "--threads", "1", listen="127.0.0.2:0")
    ready_with(cluster, 2)
    same(cluster.run(PROMPT, n=8), alone)
    first = stages(cluster.status())[0]
    assert first["next_link"] == "relay" and first["relayed_frames"] > 0
    assert "relay through the coordinator" in cluster.command("status", "--state", cluster.state("coordinator")).stdout


def test_neighbours_find_their_direct_link(cluster):
    cluster.serve("--no-node", "--nodes", "2")
    for name in "ab":
        cluster.join(name, "--threads", "1")
    cluster.wait_status(lambda s: s["ready"] and stages(s)[0]["next_link"] == "direct", 30, "a direct link")
    cluster.run(PROMPT, n=4)
    assert stages(cluster.status())[0]["relayed_frames"] == 0


def test_a_drained_node_gives_its_layers_away_in_the_middle_of_an_answer(cluster):
    state = ["--state", cluster.state("coordinator")]
    three_nodes(cluster)
    p, text = ask_at(cluster, "token 1")
    cluster.command("drain", "b", *state)
    s = cluster.wait_status(lambda s: s["ready"] and len(stages(s)) == 2, 60, "its layers to move")
    assert [n["state"] for n in s["nodes"] if n["name"] == "b"] == ["drained"]
    ends_whole(p, text, 120)
    refused = cluster.command("drain", "nobody", *state, check=False)
    assert refused.returncode == 1 and "no member is called nobody" in refused.stderr
    cluster.command("drain", "a", *state)
    cluster.wait_status(lambda s: s["ready"] and len(stages(s)) == 1, 60, "the layers to move")
    refused = cluster.command("drain", "c", *state, check=False)
    assert refused.returncode == 1 and "nobody could take its layers" in refused.stderr
    cluster.command("drain", "b", "--undo", *state)
    ready_with(cluster, 2)
    same(cluster.run(PROMPT, n=8), cluster.run_alone(PROMPT, n=8))



def test_leaving_in_order_ends_no_answer(cluster):
    cluster.serve("--nodes", "0")
    cluster.join("a", "--threads", "1")
    ready_with(cluster, 2)
    expected = cluster.run(PROMPT, n=60)
    p = ask_until(cluster, "client", 5, n=60)
    assert cluster.processes["a"].stop(60) == 0
    assert p.wait_exit(60) == 0
    assert p.out().strip() == expected["text"].strip()
    ready_with(cluster, 1)
    same(cluster.run(PROMPT, n=60), expected)


def test_a_revoked_node_is_shut_out_for_good(cluster):
    cluster.serve()
    cluster.join("a", "--threads", "1")
    ready_with(cluster, 2)
    cluster.command("revoke", "a", "--state", cluster.state("coordinator"))
    status = ready_with(cluster, 1)
    assert [n["name"] for n in status["nodes"] if not n["local"]] == []
    cluster.processes["a"].wait_log("is this machine still a member")
    assert cluster.command("revoke", "a", "--state", cluster.state("coordinator"), check=False).returncode == 1


@pytest.mark.covering
def test_an_invite_is_used_once_and_never_shown(cluster):
    cluster.serve()
    invite = cluster.invite()
    cluster.join("a", "--threads", "1", invite=invite)
    ready_with(cluster, 2)
    p = cluster.join("b", "--threads", "1", invite=invite)
    assert p.wait_exit(30) == 1
    assert "joining failed" in p.log() and "an invite is for one machine, once: make a new one with `hearth invite`" in p.log()
    secret = invite.rsplit("/", 1)[1]
    for q in cluster.processes.values():
        assert secret not in q.log() + q.out()
    refused = cluster.command("join", invite, "--model", cluster.model, "--state", cluster.state("c"), check=False)
    assert refused.returncode == 2 and secret not in refused.stderr


@pytest.mark.covering
def test_a_foreign_model_file_is_refused(cluster, tmp_path):
    other = tmp_path / "other.gguf"
    data = bytearray(cluster.model.read_bytes())
    data[-1] ^= 1
    other.write_bytes(data)
    cluster.serve()
    cluster.model, model = other, cluster.model
    p = cluster.join("a", "--threads", "1")
    cluster.model = model
    assert p.wait_exit(30) == 1
    assert "model file is not the coordinator's" in p.log()
