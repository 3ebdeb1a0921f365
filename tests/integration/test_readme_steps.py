"""README.md's "Two machines in five steps", typed as they stand there: two home directories are two machines.

Only the ports are other ones, so that nobody's cluster on this machine is in the way.
"""
import http.client
import json
import os
import pty
import re
import shlex
import signal
import urllib.parse

import pytest

from cluster import PATIENCE, ROOT, Cluster, wait_until

README = (ROOT / "README.md").read_text()


def steps():
    """The commands of the section, in order, as lists of words."""
    section = README[README.index("## Two machines in five steps"):README.index("| port | who listens")]
    joined = re.sub(r"\\\n\s*", "", section)
    return [shlex.split(line) for line in re.findall(r"^ {7}(\S.*)$", joined, re.M)]


class Terminal:
    """A program with a terminal of its own, as a person has it."""

    def __init__(self, program, words, folder, env):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execve(program, words, env)
        os.set_blocking(self.fd, False)
        self.text = ""

    def shows(self, pattern):
        try:
            while data := os.read(self.fd, 65536):
                self.text += data.decode("utf-8", "replace")
        except OSError:
            pass  # nothing more yet, or ended
        return re.search(pattern, self.text)

    def wait(self, pattern):
        try:
            return wait_until(lambda: self.shows(pattern), 30, repr(pattern))
        except TimeoutError as e:
            raise AssertionError("%s; the terminal shows:\n%s" % (e, self.text)) from None

    def type(self, text):
        os.write(self.fd, text.encode())

    def is_over(self):
        self.shows("")
        return os.waitpid(self.pid, os.WNOHANG)[0] != 0

    def close(self):
        """In order, as a sanitizer's build wants it; a second Ctrl-C leaves at once."""
        try:
            for signum in (signal.SIGINT, signal.SIGINT, signal.SIGKILL):
                os.kill(self.pid, signum)
                try:
                    return wait_until(self.is_over, 5, "the end")
                except TimeoutError:
                    pass
        except (ProcessLookupError, ChildProcessError):
            pass  # it has ended, and was waited for
        finally:
            os.close(self.fd)


@pytest.fixture
def home(hearth, model, tmp_path):
    """Two machines, of which the first has the model, as ./model.gguf."""
    c = Cluster(hearth, "model.gguf", tmp_path)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    (tmp_path / "first" / "model.gguf").symlink_to(model.resolve())
    yield c
    c.close()


def environment(folder):
    env = {k: v for k, v in os.environ.items() if k not in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "HOME")}
    return {**env, "HOME": str(folder), "TERM": "dumb"}


def test_two_machines_in_five_steps(request, home, hearth, tmp_path, monkeypatch):
    serve, invite, join, status, ask, curl = steps()
    assert [w[:2] for w in (serve, invite, join, status)] == [["hearth", n] for n in ("serve", "invite", "join", "status")]
    first, second = tmp_path / "first", tmp_path / "second"
    terminals = []
    request.addfinalizer(lambda: [t.close() for t in terminals])

    def on(folder, words, *more):
        t = Terminal(hearth, [*words, *more], folder, environment(folder))
        terminals.append(t)
        return t

    def run(folder, words):
        monkeypatch.setenv("HOME", str(folder))
        monkeypatch.delenv("XDG_STATE_HOME", raising=False)
        return home.command(*words[1:], seconds=120).stdout

    # 1. It answers alone until somebody joins.
    # So small a model would stay on one machine as soon as both have been measured; when that is depends on the load.
    coordinator = on(first, serve, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--plan", "even")
    coordinator.wait("ready: 30 layers on 1 machine")
    port = int(coordinator.wait(r"http://127\.0\.0\.1:(\d+)/v1").group(1))
    ask += ["-n", "24"]
    alone = run(first, ask)
    assert len(alone.split()) > 5
    # 2. and 3.
    url = run(first, invite).splitlines()[-1]
    node = on(second, join, "--listen", "127.0.0.1:0")
    node.wait(r"invite \(not shown\): ")
    node.type(url + "\n")
    node.wait("joined the cluster")
    assert url[-20:] not in node.text
    coordinator.wait("ready: 30 layers on 2 machines")
    # 4.
    said = run(first, status)
    assert re.search(r" 0 to 14 .*this machine", said) and re.search(r" 15 to 29 .*to the coordinator", said)
    # 5. The same answer as from one machine.
    assert run(first, ask) == alone
    where = urllib.parse.urlparse(curl[1])
    assert curl[0] == "curl" and where.netloc == "127.0.0.1:7430" and curl[2] == "-H" and curl[4] == "-d"
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60 * PATIENCE)
    c.request("POST", where.path, json.dumps({**json.loads(curl[5]), "max_tokens": 24}), dict([curl[3].split(": ")]))
    r = c.getresponse()
    body = json.loads(r.read())
    assert r.status == 200, body
    assert body["choices"][0]["message"]["content"].strip() == alone.strip()

    # Ctrl-C lets it go in order; the next time the same command asks for nothing.
    node.type("\x03")
    node.wait("left the cluster")
    coordinator.wait(r"(?s)2 machines.*ready: 30 layers on 1 machine")
    node = on(second, join, "--listen", "127.0.0.1:0")
    node.wait("joined the cluster")
    assert "invite" not in node.text
    # `hearth revoke NODE` by its id: both have this machine's name.
    here = wait_until(lambda: re.search(r"\b([0-9a-f]{8}) +(?!absent)\w+ ", run(first, status)), 30, "the node in status")
    node_id = here.group(1)
    run(first, ["hearth", "revoke", node_id])
    node.wait("is this machine still a member")
    assert node_id not in run(first, status)
