"""A coordinator and nodes whose every connection goes through `hearth emulate` (docs/emulate.md), from one topology."""
import json
import os
import random
import socket

from cluster import wait_until

PORT = 7434
HUB = "hub"


SUBNETS = iter(random.Random(os.getpid()).sample(range(2, 255), 253) * 100)


def free_subnet():
    """N of 127.N.x.x that no other relay of this machine has now, and that was not had just before."""
    for n in SUBNETS:
        with socket.socket() as s:
            try:
                s.bind(("127.%d.0.1" % n, PORT))
                return n
            except OSError:
                pass
    raise OSError("no free subnet")


class Emulated:
    """Devices HUB (the coordinator) and `names`, with what `device` (TOML; or a dictionary of it by name) and `rest` say of each device and of
    the links."""

    def __init__(self, cluster, names, device="", rest="", seed=1):
        self.cluster = cluster
        self.names = [HUB, *names]
        self.subnet = free_subnet()
        self.socket = cluster.folder / "emulate.sock"
        self.topology = cluster.folder / "topology.toml"
        lines = ["seed = %d" % seed, "subnet = %d" % self.subnet]
        of = device if isinstance(device, dict) else dict.fromkeys(names, device)
        for name in self.names:
            lines += ["[[device]]", 'name = "%s"' % name, 'at = "%s:%d"' % (self.own(name), PORT), of.get(name, "")]
        self.topology.write_text("\n".join([*lines, rest, ""]))
        self.relay = cluster.start("emulate", "emulate", self.topology, "--control", self.socket, "--json")
        wait_until(lambda: self.socket.exists() or not self.relay.is_running(), 20, "the relay")
        assert self.relay.is_running(), self.relay.log()

    def number(self, name):
        return self.names.index(name) + 1

    def own(self, name):
        """Where a device really listens."""
        return "127.%d.255.%d" % (self.subnet, self.number(name))

    def address(self, name):
        """Where everybody reaches it, through the relay; and where what it dials has to come from."""
        return "127.%d.0.%d" % (self.subnet, self.number(name))

    def pair(self, a, b):
        """b as a sees it, whatever address a dials from."""
        return "127.%d.%d.%d" % (self.subnet, self.number(a), self.number(b))

    def serve(self, *options, **more):
        return self.cluster.serve("--advertise", "%s:%d" % (self.address(HUB), PORT), *options, listen="%s:%d" % (self.own(HUB), PORT), **more)

    def join(self, name, *options, **more):
        return self.cluster.join(name, "--threads", "1", "--from", self.address(name), *options, listen="%s:%d" % (self.own(name), PORT), **more)

    def send(self, command, check=True):
        """Gives the relay a command; returns its answer."""
        p = self.cluster.command("emulate", "--control", self.socket, "--send", command, "--json", check=check)
        return json.loads(p.stdout)

    def pairs(self):
        """{(from, to): statistics} of the pairs that spoke."""
        return {(p["from"], p["to"]): p for p in self.send("status")["pairs"]}

    def events(self):
        return [json.loads(line) for line in self.relay.out().splitlines()]
