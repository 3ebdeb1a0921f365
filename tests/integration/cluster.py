"""A coordinator and nodes as processes of this machine, for tests (fixtures in conftest.py) and benchmarks."""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("HEARTH_BIN", ROOT / "build/bin/hearth")).resolve()  # the program under test
POLL_S = 0.02


def is_sanitized(path):
    return path.exists() and b"__asan_init" in path.read_bytes()


IS_SANITIZED = is_sanitized(BIN)
# Deadlines are written for a quiet machine. Others may use this one, too; and AddressSanitizer's build takes several times as long.
PATIENCE = 8 if IS_SANITIZED else 3
# What its allocator keeps back of freed memory (ASAN_OPTIONS in conftest.py), when a test measures that memory was given back.
MEMORY_ROOM_KIB = 128 * 1024 if IS_SANITIZED else 0


def wait_until(condition, seconds, what):
    """Polls until condition() gives something true, and returns that; TimeoutError names `what` after `seconds` times PATIENCE."""
    seconds *= PATIENCE
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= end:
            raise TimeoutError("waited %g s for %s" % (seconds, what))
        time.sleep(POLL_S)


def free_port():
    """A TCP port of the loopback address that nobody has now. Prefer port 0 where the program can tell which it took."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Process:
    """One running hearth; its standard output and error go to files, so that no full pipe ever stops it."""

    def __init__(self, name, argv, folder, env=None):
        self.name = name
        self.out_path = folder / ("%s.out" % name)
        self.log_path = folder / ("%s.log" % name)
        with open(self.out_path, "ab") as out, open(self.log_path, "ab") as log:
            self.popen = subprocess.Popen([str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=out, stderr=log,
                                          env={**os.environ, **(env or {})}, start_new_session=True)

    @property
    def pid(self):
        return self.popen.pid

    def log(self):
        return self.log_path.read_text(errors="replace")

    def out(self):
        return self.out_path.read_text(errors="replace")

    def is_running(self):
        return self.popen.poll() is None

    def wait_log(self, pattern, seconds=20):
        """Waits for a line of the log that matches, and returns the match; fails at once when the process ends before."""
        def look():
            m = re.search(pattern, self.log(), re.M)
            if m is None and not self.is_running():
                m = re.search(pattern, self.log(), re.M)
                assert m, "%s ended with code %s before its log said %r" % (self.name, self.popen.returncode, pattern)
            return m
        return wait_until(look, seconds, "%r in the log of %s" % (pattern, self.name))

    def wait_exit(self, seconds=20):
        """Waits for the end; returns the exit code, negative for a signal."""
        return self.popen.wait(seconds * PATIENCE)

    def send(self, signum):
        self.popen.send_signal(signum)

    def stop(self, seconds=20):
        """SIGTERM, as an operator would; returns the exit code."""
        if self.is_running():
            self.send(signal.SIGTERM)
        return self.wait_exit(seconds)

    def end(self):
        """SIGTERM, then once more (leave at once), then SIGKILL: an orderly end when it can have one."""
        for _ in range(2):
            if self.is_running():
                self.send(signal.SIGCONT)
                self.send(signal.SIGTERM)
                try:
                    self.popen.wait(10)
                except subprocess.TimeoutExpired:
                    pass
        self.kill()

    def kill(self):
        """SIGKILL to it and its children; waits. Works on a stopped process too."""
        try:
            os.killpg(self.popen.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.popen.wait()

    def memory_kib(self):
        """Resident memory now."""
        status = pathlib.Path("/proc/%d/status" % self.pid).read_text()
        return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.M).group(1))

    def n_descriptors(self):
        return len(os.listdir("/proc/%d/fd" % self.pid))

    def connections(self):
        """{(own port, other port)} of its established TCP connections, as the kernel sees them: also of a stopped process."""
        folder, own = "/proc/%d/fd" % self.pid, set()
        for fd in os.listdir(folder):
            try:
                own.add(os.readlink("%s/%s" % (folder, fd)))
            except FileNotFoundError:
                pass  # closed meanwhile
        out = set()
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
            f = line.split()
            if f[3] == "01" and "socket:[%s]" % f[9] in own:
                out.add((int(f[1].split(":")[1], 16), int(f[2].split(":")[1], 16)))
        return out


def n_links(a, b):
    """How many connections two processes have with each other, open at both ends."""
    return len(a.connections() & {(there, here) for here, there in b.connections()})


class Cluster:
    """Starts things, remembers them, and kills them in close(). Each name has a state directory under `folder`."""

    def __init__(self, hearth, model, folder):
        self.hearth = pathlib.Path(hearth)
        self.model = pathlib.Path(model)
        self.folder = pathlib.Path(folder)
        self.processes = {}

    def state(self, name):
        return self.folder / ("state-%s" % name)

    def start(self, name, *argv, env=None):
        """Starts `hearth ARGV`; a name can be used again after its process ended, and keeps its state directory."""
        old = self.processes.get(name)
        assert old is None or not old.is_running(), "%s is running" % name
        p = Process(name, [self.hearth, *argv], self.folder, env)
        self.processes[name] = p
        return p

    def command(self, *argv, seconds=60, check=True, stdin=None):
        """Runs `hearth ARGV` to its end; returns subprocess.CompletedProcess with text."""
        p = subprocess.run([str(self.hearth), *map(str, argv)], input=stdin, capture_output=True, text=True, timeout=seconds * PATIENCE,
                           stdin=subprocess.DEVNULL if stdin is None else None)
        if check:
            assert p.returncode == 0, "hearth %s: exit code %d\n%s%s" % (argv[0], p.returncode, p.stdout, p.stderr)
        return p

    # The coordinator

    def serve(self, *options, name="coordinator", http=False, port=0, listen=None, seconds=60, probe=False):
        """Starts the coordinator on ports of the loopback address, and waits until it takes commands. http: True, or a port."""
        self.coordinator = name
        if not {"--plan", "--split"} & set(options):
            options = ("--plan", "even", *options) # these machines are equal, and one alone would be the fastest
        web = ["--http", "127.0.0.1:%d" % (0 if http is True else http)] if http else ["--no-http"]
        p = self.start(name, "serve", self.model, "--state", self.state(name), "--listen", listen or "127.0.0.1:%d" % port,
                       *([] if probe else ["--no-probe"]), *web, *options)

        def ready():
            assert p.is_running(), "serve ended with code %s:\n%s" % (p.popen.returncode, p.log())
            return self.command("status", "--state", self.state(name), "--json", check=False).returncode == 0
        wait_until(ready, seconds, "the coordinator's admin socket")
        return p

    def status(self):
        return json.loads(self.command("status", "--state", self.state(self.coordinator), "--json").stdout)

    def wait_ready(self, seconds=60):
        """Waits until a plan is ready, and returns the status."""
        def ready():
            s = self.status()
            return s if s.get("ready") else None
        return wait_until(ready, seconds, "a ready plan")

    def wait_status(self, condition, seconds, what):
        """Waits until condition(status) is true, and returns that status."""
        def look():
            s = self.status()
            return s if condition(s) else None
        return wait_until(look, seconds, what)

    def invite(self):
        """Returns the invite's URL."""
        return json.loads(self.command("invite", "--state", self.state(self.coordinator), "--json").stdout)["invite"]

    # Nodes

    def join(self, name, *options, invite=None, listen="127.0.0.1:0", probe=False, model=None, env=None):
        """Starts a node: with an invite of its own the first time, as the member it is later. probe: it may measure this machine."""
        argv = ["join", "--model", model or self.model, "--state", self.state(name), "--name", name, "--listen", listen, *([] if probe else ["--no-probe"]), *options]
        if invite is not None or not self.state(name).exists():
            path = self.folder / ("%s.invite" % name)
            path.touch(0o600)
            path.write_text((invite or self.invite()) + "\n")
            argv += ["--invite-file", path]
        return self.start(name, *argv, env=env)

    # Requests

    def run(self, prompt, *options, n=8, seconds=60):
        """One request to the cluster, through the coordinator's socket; returns the parsed JSON."""
        return json.loads(self.run_raw(prompt, "--json", *options, n=n, seconds=seconds).stdout)

    def run_raw(self, prompt, *options, n=8, seconds=60, check=True):
        return self.command("run", "--attach", "--state", self.state(self.coordinator), "-p", prompt, "-n", n, *options,
                            seconds=seconds, check=check)

    def run_alone(self, prompt, *options, n=8, seconds=120):
        """The same in one process, without a cluster: what the cluster must equal."""
        return json.loads(self.command("run", self.model, "-p", prompt, "-n", n, "--json", *options, seconds=seconds).stdout)

    def start_run(self, name, prompt, *options, n=8):
        """A request in the background, as a Process: its standard output grows as tokens come."""
        return self.start(name, "run", "--attach", "--state", self.state(self.coordinator), "-p", prompt, "-n", n, *options)

    def logs(self, cap):
        for p in self.processes.values():
            for path in (p.log_path, p.out_path):
                data = path.read_bytes()
                if data:
                    code = "running" if p.is_running() else "exit code %s" % p.popen.returncode
                    yield "%s (%s)" % (path.name, code), data[-cap:].decode("utf-8", "replace")

    def close(self):
        if IS_SANITIZED:  # a leak is reported at an orderly end
            running = [p for p in self.processes.values() if p.is_running()]
            threads = [threading.Thread(target=p.end) for p in running]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        for p in self.processes.values():
            p.kill()
        # UndefinedBehaviorSanitizer writes to standard error, whatever its log_path; one of the last moments would go unseen.
        found = [p for p in self.processes.values() if IS_SANITIZED and ": runtime error: " in p.log()]
        assert found == [], "\n".join(p.log()[-4000:] for p in found)


class Relay:
    """A TCP relay on the loopback address that a test can cut: what a bad network does to a link between two processes."""

    def __init__(self, target_port):
        self.target_port = target_port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.lock = threading.Lock()
        self.pairs = []
        self.is_dropping = False
        self.is_closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                a, _ = self.listener.accept()
            except OSError:
                return
            try:
                b = socket.create_connection(("127.0.0.1", self.target_port))
            except OSError:
                a.close()
                continue
            with self.lock:
                self.pairs.append((a, b))
            for src, dst in ((a, b), (b, a)):
                threading.Thread(target=self._pump, args=(src, dst), daemon=True).start()

    def _pump(self, src, dst):
        try:
            while data := src.recv(65536):
                if not self.is_dropping:
                    dst.sendall(data)
        except OSError:
            pass
        for s in (src, dst):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def drop(self):
        """From now on bytes vanish; nobody is told."""
        self.is_dropping = True

    def pass_again(self):
        """New connections work again; those that lost bytes are cut."""
        self.cut()
        self.is_dropping = False

    def cut(self):
        """Closes what is open."""
        with self.lock:
            pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for s in pair:
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                s.close()

    def close(self):
        self.listener.close()
        self.cut()
