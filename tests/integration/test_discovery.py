"""Discovery by real avahi-daemons, between machines that are network namespaces (lan.py). Skipped where those cannot be had.

`make check` does not install avahi-daemon: on Debian that starts it, and a test suite has no business to change what a machine announces.
"""
import json
import re
import signal

import pytest

import lan as lan_module
from cluster import Cluster, wait_until

missing = lan_module.missing()
pytestmark = pytest.mark.skipif(missing is not None, reason="discovery between machines is not tested: %s" % missing)


@pytest.fixture
def lan(tmp_path):
    with lan_module.Lan(tmp_path, 2) as network:
        yield network


@pytest.fixture
def clusters(request, lan, hearth, tiny_model, tmp_path):
    """The program on each machine, with home directories of its own."""
    all_ = []
    for m in lan.machines:
        folder = tmp_path / ("home%d" % m.number)
        folder.mkdir()
        all_.append(Cluster(m.wrapper(hearth), tiny_model, folder))
    request.node.hearth_clusters = all_
    yield all_
    for c in all_:
        c.close()


def serve(c, *options):
    p = c.serve("--no-node", "--nodes", "1", *options, listen="0.0.0.0:7433")
    return p, re.search(r"fingerprint (\S+)", p.log()).group(1)


def invite(c, *options):
    return json.loads(c.command("invite", "--state", c.state(c.coordinator), "--json", *options).stdout)


def join(c, url, *options, name="pi"):
    return c.join(name, *options, invite=url, listen="0.0.0.0:7434")


def test_a_node_without_an_address_finds_its_coordinator(clusters):
    here, there = clusters
    p, fingerprint = serve(here, "--name", "kitchen")
    p.wait_log(r'announced on the local network as "kitchen"')
    one = invite(here, "--no-address")
    assert one["invite"].startswith("hearth:///join/1/") and one["fingerprint"] == fingerprint
    node = join(there, one["invite"])
    node.wait_log(r"coordinator kitchen \(%s\) announces itself at 10\.77\.0\.1:7433" % fingerprint)
    here.wait_ready()


def test_a_node_finds_its_coordinator_at_another_address_than_it_had(clusters, lan):
    here, there = clusters
    p, _ = serve(here, "--advertise", "10.77.0.1:7433")
    p.wait_log("announced on the local network")
    node = join(there, invite(here)["invite"])
    here.wait_ready()
    node.stop()
    lan.machines[0].run("ip", "addr", "del", "10.77.0.1/24", "dev", "eth0")
    lan.machines[0].run("ip", "addr", "add", "10.77.0.77/24", "dev", "eth0")
    wait_until(lambda: "Registering new address record for 10.77.0.77" in lan.machines[0].log(), 20, "the new address")
    node = join(there, None)
    node.wait_log(r"the coordinator announces itself at 10\.77\.0\.77:7433, too")
    here.wait_ready()


def test_doctor_tells_who_is_there_and_tries_it(clusters):
    here, there = clusters
    p, fingerprint = serve(here, "--name", "kitchen")
    p.wait_log("announced on the local network")
    report = json.loads(there.command("doctor", "--json", "--state", there.state("x")).stdout)
    found = [(f["check"], f["level"], f["found"]) for f in report["findings"]]
    assert ("coordinator", "ok", "kitchen (%s) announces itself at 10.77.0.1:7433" % fingerprint) in found
    assert ("reachability", "ok", "a program answers at 10.77.0.1:7433") in found


def test_liars_cannot_keep_a_node_from_its_coordinator(clusters, lan):
    """Five hundred coordinators with names that move a terminal, and three that claim the real one's fingerprint where nobody is."""
    here, there = clusters
    p, fingerprint = serve(here)
    p.wait_log("announced on the local network")
    one = invite(here, "--no-address")
    short = fingerprint.replace("-", "")
    packets = [lan_module.announcement(b"fake%d\x1b[2J" % i, [b"id=%064x" % (i + 1), b"name=\x1b[2Jfake\xff", b"proto=1"], "10.77.0.2")
               for i in range(500)]
    packets += [lan_module.announcement(b"liar%d" % i, [b"id=" + short.encode() + b"00" * 24], "10.77.0.2", port=9 + i, subtypes=[b"_k" + short.encode()])
                for i in range(3)]
    sender = lan.machines[1].argv("python3", lan_module.__file__.replace("lan.py", "send_mdns.py"), "10.77.0.2")
    lan_module.subprocess.run(sender, input="\n".join(b.hex() for b in packets) + "\n", text=True, check=True)
    node = join(there, one["invite"])
    here.wait_ready()
    assert "\x1b" not in node.log() and "fake" not in node.log()


def test_a_daemon_that_hangs_delays_nobody(clusters, lan):
    here, there = clusters
    for m in lan.machines:
        m.signal_avahi(signal.SIGSTOP)
    p, _ = serve(here)  # returns when the admin socket answers
    node = join(there, invite(here)["invite"])
    here.wait_ready()
    assert "cannot look for the coordinator on the local network: avahi-daemon does not answer" in node.log()
    lan.machines[0].signal_avahi(signal.SIGCONT)
    p.wait_log("announced on the local network as", 60)
    assert p.stop() == 0


def test_without_discovery_nothing_is_announced_and_nobody_looked_for(clusters):
    here, there = clusters
    p, _ = serve(here, "--no-discovery")
    quiet = invite(here, "--no-address")["invite"]
    node = join(there, quiet, "--no-discovery")
    assert node.wait_exit() == 1
    assert "the invite names no address, and its coordinator was not found on this network" in node.log()
    node = join(there, invite(here)["invite"], "--no-discovery")
    here.wait_ready()
    assert "local network" not in p.log() + node.log()[node.log().index("names no address"):].replace("local network first", "")


def test_link_local_ipv6_addresses_are_enough(clusters, lan):
    here, there = clusters
    for m in lan.machines:
        m.run("ip", "-4", "addr", "flush", "dev", "eth0")
    p = here.serve("--no-node", "--nodes", "1", listen="[::]:7433")
    p.wait_log("announced on the local network")
    node = there.join("pi", invite=invite(here, "--no-address")["invite"], listen="[::]:7434")
    node.wait_log(r"announces itself at \[fe80::[0-9a-f:]+%eth0\]:7433")
    here.wait_ready()
