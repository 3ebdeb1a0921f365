"""`hearth revoke`: the links go at once, at both ends, whatever the revoked machine does; its key is worth nothing afterwards."""
import re
import shutil
import signal

import pytest

from cluster import IS_SANITIZED, free_port, n_links, wait_until

N_LONG = 20 if IS_SANITIZED else 60  # tokens of the answer under way
PROMPT = "Once upon a time"  # its answer does not end before tests do what they do in the middle of it


def wait_stages(cluster, n, direct=False):
    """A ready plan of n stages; `direct`: whose hops are links between nodes."""
    def condition(s):
        found = [m for m in s["nodes"] if "stage" in m]
        return s["ready"] and len(found) == n and not (direct and any(m["next_link"] == "relay" for m in found))
    status = cluster.wait_status(condition, 60, "a plan of %d stages" % n)
    return [m["name"] for m in sorted((m for m in status["nodes"] if "stage" in m), key=lambda m: m["stage"])]


def same(a, b):
    assert [a[k] for k in ("output_ids", "logits_hash")] == [b[k] for k in ("output_ids", "logits_hash")]


def in_order(log, *patterns):
    """The log has lines that match, one after the other."""
    at = 0
    for pattern in patterns:
        m = re.compile(pattern, re.M).search(log, at)
        assert m, "%r comes not after the others in\n%s" % (pattern, log)
        at = m.end()


def n_refusals(process, whom):
    return len(re.findall(r"cannot reach %s at " % whom, process.log()))


def is_refused(cluster, process, name, times=3):
    """It dials in vain again and again, and the coordinator shows nobody new."""
    before = n_refusals(process, "the coordinator")
    wait_until(lambda: n_refusals(process, "the coordinator") >= before + times, 60, "%s to be refused" % process.name)
    assert "joined the cluster" not in process.log()[process.log().rfind("cannot reach the coordinator"):]
    nodes = cluster.status()["nodes"]
    assert n_links(process, cluster.processes["coordinator"]) == 0
    return [n for n in nodes if n["name"] == name and n["state"] == "ready"]


@pytest.mark.covering
def test_a_revoked_node_loses_its_direct_links_though_it_does_nothing(cluster):
    """Three nodes in a ring; the middle one is stopped, so that whatever is closed, the others close. An answer is under way, and goes on."""
    coordinator = cluster.serve("--no-node", "--nodes", "2")
    for name in "abc":
        cluster.join(name, "--threads", "1", "--log", "debug")
    first, victim, last = wait_stages(cluster, 3, direct=True)
    before, whole = cluster.run(PROMPT, n=4), cluster.run(PROMPT, n=N_LONG)["text"]
    p = {name: cluster.processes[name] for name in "abc"}
    wait_until(lambda: all(n_links(p[victim], p[n]) == 1 for n in (first, last)), 10, "one link a hop: for a moment there are both ends'")
    assert n_links(p[victim], coordinator) in (2, 3)  # control, data and, while blocks of the model are spoken of, those
    client = cluster.start_run("client", PROMPT, n=N_LONG)
    wait_until(lambda: len(client.out()) >= 5, 30, "the answer to begin")

    p[victim].send(signal.SIGSTOP)
    cluster.command("revoke", victim, "--state", cluster.state("coordinator"))
    wait_until(lambda: not n_links(p[victim], coordinator), 2, "the coordinator to close its links")
    wait_until(lambda: not n_links(p[victim], p[first]) and not n_links(p[victim], p[last]), 2, "the neighbours to close theirs")
    assert "silent for" not in coordinator.log()  # of the neighbours' logs: below

    # The others go on under a new plan, with a link of their own, and with the answer.
    assert client.wait_exit(60) == 0 and client.out().strip() == whole.strip()
    assert wait_stages(cluster, 2, direct=True) == [first, last]
    same(cluster.run(PROMPT, n=4), before)
    wait_until(lambda: n_links(p[first], p[last]) == 1, 10, "one link between the others")
    in_order(coordinator.log(), "ready: 30 layers on 3 machines", r"node %s is lost \(it was revoked\)" % victim, "ready: 30 layers on 2 machines")
    for name in (first, last):
        in_order(p[name].log(), "%s was revoked: its link is closed" % victim, "loading layers")
        assert "a direct link to a neighbour was lost" not in p[name].log()  # what a node says of one that fell silent

    # Awake again, it learns of it, and tries them all with the keys it still holds.
    p[victim].send(signal.SIGCONT)
    p[victim].wait_log("control link to the coordinator lost")
    p[victim].wait_log("a direct link to a neighbour was lost")
    p[victim].wait_log("is this machine still a member")
    assert is_refused(cluster, p[victim], victim) == []
    for name in (first, last):
        wait_until(lambda: n_refusals(p[victim], name) >= 1, 60, "%s to refuse it" % name)
        assert n_links(p[victim], p[name]) == 0
    assert {n["name"] for n in cluster.status()["nodes"]} >= {first, last}
    assert cluster.status()["ready"]
    same(cluster.run(PROMPT, n=4), before)


def test_a_revoked_key_is_refused_from_an_old_state_directory(cluster):
    port = free_port()
    cluster.serve("--nodes", "0", port=port)
    for name in "ab":
        cluster.join(name, "--threads", "1", "--log", "debug")
    wait_stages(cluster, 3)
    shutil.copytree(cluster.state("b"), cluster.state("old"))
    before = cluster.run(PROMPT, n=4)
    cluster.command("revoke", "b", "--state", cluster.state("coordinator"))
    wait_stages(cluster, 2)
    cluster.processes["b"].kill()

    def old_is_refused():
        return is_refused(cluster, cluster.join("old", "--threads", "1", "--log", "debug"), "old") == []
    assert old_is_refused()
    cluster.processes["old"].kill()

    # A coordinator that starts anew knows it, too.
    assert cluster.processes["coordinator"].stop() == 0
    cluster.serve("--nodes", "0", port=port)
    wait_stages(cluster, 2)
    assert old_is_refused()
    cluster.processes["old"].kill()

    # Invited again, the machine has another secret: the one of the copy stays void, beside the member and after it.
    (cluster.state("b") / "membership").unlink()
    cluster.join("b", "--threads", "1", invite=cluster.invite())
    wait_stages(cluster, 3)
    assert old_is_refused()
    assert cluster.processes["b"].is_running() and cluster.status()["ready"]
    same(cluster.run(PROMPT, n=4), before)
    cluster.processes["old"].kill()


def test_nodes_refuse_a_coordinator_that_forgot_a_revocation(cluster):
    """Its state directory comes back from a copy: it would take the revoked key again, and its members do not take it."""
    port = free_port()
    coordinator = cluster.serve("--nodes", "0", port=port)
    for name in "ab":
        cluster.join(name, "--threads", "1", "--log", "debug")
    wait_stages(cluster, 3)
    b_id, = [n["id"] for n in cluster.status()["nodes"] if n["name"] == "b"]
    assert coordinator.stop() == 0
    shutil.copytree(cluster.state("coordinator"), cluster.folder / "copy")
    cluster.serve("--nodes", "0", port=port)
    wait_stages(cluster, 3)
    cluster.command("revoke", "b", "--state", cluster.state("coordinator"))
    wait_stages(cluster, 2)
    cluster.processes["b"].kill()
    cluster.processes["a"].wait_log("loading layers")
    assert cluster.processes["coordinator"].stop() == 0

    shutil.rmtree(cluster.state("coordinator"))
    shutil.copytree(cluster.folder / "copy", cluster.state("coordinator"))
    cluster.serve("--nodes", "0", port=port)
    a = cluster.processes["a"]
    a.wait_log("the coordinator's member epoch is older than ours", seconds=60)
    a.kill()  # it has that on disk
    a = cluster.join("a", "--threads", "1", "--log", "debug")
    wait_until(lambda: a.log().count("the coordinator's member epoch is older than ours") >= 3, 60, "the refusal after a restart")
    assert [n["name"] for n in cluster.status()["nodes"] if n["state"] == "ready" and not n["local"]] == []
    cluster.command("revoke", b_id[:8], "--state", cluster.state("coordinator"))  # what it forgot; now both are as far
    wait_stages(cluster, 2)
