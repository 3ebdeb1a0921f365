"""`hearth doctor` on real processes: this machine, a membership, a running cluster; and, between network namespaces, what a guest Wi-Fi does."""
import json
import os
import subprocess

import pytest

import lan as lan_module
from cluster import Cluster, free_port, wait_until


def doctor(c, *options, state, check=None):
    p = c.command("doctor", "--json", "--no-discovery", "--state", state, "--cache", c.folder / "cache", *options, check=False)
    report = json.loads(p.stdout)
    assert p.returncode == (1 if report["problems"] else 0), p.stderr
    assert report["ok"] == (report["problems"] == 0) and p.stderr == ""
    return [f for f in report["findings"] if check is None or f["check"] == check]


def levels(findings):
    return [f["level"] for f in findings]


def test_it_looks_at_this_machine_and_changes_nothing(tiny_cluster):
    c = tiny_cluster
    state = c.folder / "none"
    found = {f["check"] for f in doctor(c, state=state)}
    assert {"memory", "processor", "state directory", "state disk", "cache disk", "clock", "firewall", "port 7433"} <= found
    assert not state.exists() and not (c.folder / "cache").exists()
    text = c.command("doctor", "--no-discovery", "--state", state, check=False).stdout
    assert text.count("\n") > 8 and text.splitlines()[-1].endswith(("warnings.", "warning.", "about."))


def test_a_state_directory_that_others_may_enter_is_a_problem(tiny_cluster):
    c = tiny_cluster
    state = c.folder / "open"
    state.mkdir(mode=0o755)
    [f] = doctor(c, state=state, check="state directory")
    assert f["level"] == "problem" and "chmod 700 %s" % state in f["advice"]


def test_the_way_to_a_coordinator_is_tried(tiny_cluster):
    c = tiny_cluster
    c.serve("--no-node")
    address = "127.0.0.1:%d" % c.status()["port"]
    assert levels(doctor(c, "--to", address, state=c.state("x"), check="reachability")) == ["ok"]
    [link] = doctor(c, "--to", address, state=c.state("x"), check="link")
    assert "median of 12" in link["found"]
    [f] = doctor(c, "--to", "127.0.0.1:%d" % free_port(), state=c.state("x"), check="reachability")
    assert f["level"] == "problem" and "nothing listens" in f["found"]
    # Strangers like these are nothing that a coordinator minds.
    c.join("a")
    c.wait_ready()


def test_a_membership_is_proved_while_no_node_uses_it(tiny_cluster):
    c = tiny_cluster
    c.serve("--no-node", "--nodes", "1", "--advertise", "127.0.0.1:%d" % free_port())
    address = "127.0.0.1:%d" % c.status()["port"]
    invite = c.invite().split("/")
    node = c.join("a", invite="/".join([*invite[:2], address, *invite[3:]]))
    node.wait_log("joined the cluster|cannot reach the coordinator")
    assert node.is_running()
    node.kill()
    [f] = doctor(c, state=c.state("a"), check="reachability")
    assert f["level"] == "problem"  # the addresses of the membership are the advertised ones, where nobody is


def test_keys_versions_and_round_trips_are_tried_with_the_membership(tiny_cluster):
    c = tiny_cluster
    c.serve("--no-node", "--nodes", "1")
    node = c.join("a")
    c.wait_ready()
    [f] = doctor(c, state=c.state("a"), check="membership")
    assert f["level"] == "ok" and "in use by the node" in f["found"]
    assert node.stop() == 0
    [f] = doctor(c, state=c.state("a"), check="membership")
    assert f["level"] == "ok" and "takes its membership" in f["found"]
    [f] = doctor(c, state=c.state("a"), check="link")
    assert "median of 20" in f["found"]
    assert "within 0.1 s of the coordinator's" in [f["found"] for f in doctor(c, state=c.state("a"), check="clock")]
    c.command("revoke", "a", "--state", c.state(c.coordinator))
    [f] = doctor(c, state=c.state("a"), check="membership")
    assert f["level"] == "problem" and "revoked" in f["advice"]


def test_a_running_cluster_is_looked_at(tiny_cluster):
    c = tiny_cluster
    [f] = doctor(c, "--live", state=c.state("nowhere"), check="cluster")
    assert f["level"] == "problem" and "hearth serve" in f["found"]
    c.serve("--no-node", "--nodes", "2", "--plan", "even")
    for name in ("a", "b"):
        c.join(name)
    c.wait_ready()
    c.run("Hello", n=4)
    found = doctor(c, "--live", state=c.state(c.coordinator))
    assert levels(f for f in found if f["check"] == "cluster") == ["ok"]
    assert sorted(f["found"] for f in found if f["check"] == "node") == ["a: ready", "b: ready"]
    reached = [f for f in found if f["check"] == "reachability"]
    assert levels(reached) == ["ok", "ok"] and "answers at 127.0.0.1:" in reached[0]["found"]
    assert ["direct" in f["found"] or "straight" in f["found"] for f in found if f["check"] == "node to node"] == [True]
    links = [f["found"] for f in found if f["check"] == "link"]
    assert any("and the coordinator: round trip" in text for text in links), links
    c.processes["b"].stop()
    c.wait_status(lambda s: [n["state"] for n in s["nodes"] if n["name"] == "b"] == ["absent"], 20, "b to leave")
    found = doctor(c, "--live", state=c.state(c.coordinator))
    assert any(f["check"] == "node" and f["found"].startswith("b: is not connected") and "hearth join" in f["advice"] for f in found)


missing = lan_module.missing()


@pytest.mark.skipif(missing is not None, reason="a guest Wi-Fi cannot be made here: %s" % missing)
def test_client_isolation_of_an_access_point_is_named(request, hearth, tiny_model, tmp_path):
    with lan_module.Lan(tmp_path, 3) as lan:
        clusters = []
        for m in lan.machines:
            (tmp_path / ("home%d" % m.number)).mkdir()
            clusters.append(Cluster(m.wrapper(hearth), tiny_model, tmp_path / ("home%d" % m.number)))
        request.node.hearth_clusters = clusters
        try:
            for m in lan.machines[1:]:  # as an access point does it: stations reach the wire, and not each other
                lan.machines[0].run("bridge", "link", "set", "dev", "port%d" % m.number, "isolated", "on")
            here, one, two = clusters
            here.serve("--no-node", "--nodes", "2", "--plan", "even", listen="0.0.0.0:7433")
            for c, name in ((one, "one"), (two, "two")):
                c.join(name, invite=here.invite(), listen="0.0.0.0:7434")
            here.wait_ready()
            here.run("Hello", n=4)
            relayed = [f for f in doctor(here, "--live", state=here.state("coordinator")) if f["check"] == "node to node"]
            assert levels(relayed) == ["warning"] and "client isolation" in relayed[0]["advice"]
            [f] = doctor(one, "--to", "10.77.0.3:7434", state=one.state("x"), check="reachability")
            assert f["level"] == "problem" and "client isolation" in f["advice"]
            [f] = doctor(one, "--to", "10.77.0.1:7433", state=one.state("x"), check="reachability")
            assert f["level"] == "ok"
            lan.machines[1].signal_avahi(19)  # SIGSTOP: doctor says so and goes on
            text = one.command("doctor", "--state", one.state("x"), check=False).stdout
            assert "not available: avahi-daemon does not answer" in text
        finally:
            for c in clusters:
                c.close()
