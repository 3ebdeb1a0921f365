"""Machines of a local network, as network namespaces of this one: each with a D-Bus and an avahi-daemon of its own, joined by one Ethernet.

    with Lan(tmp_path, 2) as lan:
        lan.command(0, "serve", ...)      # argv of a program on the first machine, for subprocess or Cluster.hearth

Needs root, dbus-daemon and avahi-daemon; missing() says what is not there. Nothing of it is seen outside the namespaces.
"""
import os
import shutil
import signal
import socket
import struct
import subprocess

from cluster import wait_until

BUS = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>custom</type><listen>unix:path=%s</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/></policy></busconfig>
"""
AVAHI = """[server]
host-name=machine%d
use-ipv4=yes
use-ipv6=yes
allow-interfaces=eth0
enable-dbus=yes
[publish]
publish-workstation=no
[rlimits]
"""


def missing():
    """Why there can be no such network here; None when there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("dbus-daemon", "avahi-daemon", "ip", "unshare", "nsenter"):
        if shutil.which(program) is None:
            return "%s is not installed" % program
    p = subprocess.run(["unshare", "--net", "--mount", "sh", "-c",
                        "mount -t tmpfs tmpfs /run && ip link add veth0 type veth peer name veth1"], capture_output=True, text=True)
    return None if p.returncode == 0 else "no network namespace can be made: %s" % p.stderr.strip()


class Machine:
    def __init__(self, folder, number):
        self.number = number
        self.folder = folder / ("machine%d" % number)
        self.folder.mkdir()
        self.bus = self.folder / "bus"
        self.daemons = []
        script = "mount -t tmpfs tmpfs /run && mkdir /run/avahi-daemon && ip link set lo up && echo ready && exec sleep 100000"
        self.holder = subprocess.Popen(["unshare", "--net", "--mount", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout.readline() == "ready\n"

    def argv(self, *argv):
        """A command on this machine."""
        return ["nsenter", "-t", str(self.holder.pid), "--net", "--mount", "env", "DBUS_SYSTEM_BUS_ADDRESS=unix:path=%s" % self.bus, *map(str, argv)]

    def run(self, *argv):
        subprocess.run(self.argv(*argv), check=True, capture_output=True)

    def wrapper(self, program):
        """A file that runs `program` on this machine: what a Cluster takes for hearth."""
        path = self.folder / "on-this-machine"
        path.write_text("#!/bin/sh\nexec %s \"$@\"\n" % " ".join("'%s'" % word for word in self.argv(program)))
        path.chmod(0o755)
        return path

    def start_daemons(self):
        for name, text in (("bus.conf", BUS % self.bus), ("avahi.conf", AVAHI % self.number)):
            (self.folder / name).write_text(text)
        for words in (["dbus-daemon", "--nofork", "--nopidfile", "--config-file", self.folder / "bus.conf"],
                      ["avahi-daemon", "--no-drop-root", "--no-chroot", "--no-rlimits", "-f", self.folder / "avahi.conf"]):
            log = open(self.folder / (words[0] + ".log"), "wb")
            self.daemons.append(subprocess.Popen(self.argv(*words), stdin=subprocess.DEVNULL, stdout=log, stderr=log))
            log.close()
            wait_until(self.bus.exists, 20, "the bus of machine %d" % self.number)
        wait_until(lambda: "Server startup complete" in self.log(), 20, "avahi-daemon of machine %d: %s" % (self.number, self.log()))

    def log(self):
        path = self.folder / "avahi-daemon.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def signal_avahi(self, signum):
        self.daemons[1].send_signal(signum)

    def close(self):
        for p in [*reversed(self.daemons), self.holder]:
            p.send_signal(signal.SIGCONT)
            p.kill()
            p.wait()
        self.holder.stdout.close()


class Lan:
    """Machine i has 10.77.0.(i+1), behind one bridge, which is in the first machine's namespace."""

    def __init__(self, folder, n):
        self.machines = []
        try:
            for i in range(n):
                self.machines.append(Machine(folder, i))
            self.connect()
            for m in self.machines:
                m.start_daemons()
        except BaseException:
            self.close()
            raise

    def connect(self):
        first = self.machines[0]
        first.run("ip", "link", "add", "bridge0", "type", "bridge")
        first.run("ip", "link", "set", "bridge0", "up")
        for m in self.machines:
            port = "port%d" % m.number
            first.run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(m.holder.pid))
            first.run("ip", "link", "set", port, "master", "bridge0", "up")
            m.run("ip", "addr", "add", "10.77.0.%d/24" % (m.number + 1), "dev", "eth0")
            m.run("ip", "link", "set", "eth0", "up")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        for m in self.machines:
            m.close()


def dns_name(*labels):
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def announcement(instance, txt, address, port=7433, ttl=4500, subtypes=()):
    """An mDNS response that announces a coordinator: what anybody on the network can send."""
    service = (b"_hearth", b"_tcp", b"local")
    full, host = dns_name(instance, *service), dns_name(b"liar", b"local")
    data = b"".join(bytes([len(s)]) + s for s in txt)
    records = [(dns_name(*service), 12, 0x0001, full), (full, 33, 0x8001, struct.pack(">HHH", 0, 0, port) + host), (full, 16, 0x8001, data),
               (host, 1, 0x8001, socket.inet_aton(address))]
    records += [(dns_name(s, b"_sub", *service), 12, 0x0001, full) for s in subtypes]
    body = b"".join(name + struct.pack(">HHIH", kind, cls, ttl, len(value)) + value for name, kind, cls, value in records)
    return struct.pack(">HHHHHH", 0, 0x8400, 0, len(records), 0, 0) + body
