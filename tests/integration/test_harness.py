"""The harness's own promises, which the other tests stand on."""
import signal
import socket
import subprocess
import time

import pytest

import cluster as cluster_module


def test_wait_until_returns_the_value_and_names_what_it_waited_for():
    assert cluster_module.wait_until(lambda: 7, 0, "seven") == 7
    with pytest.raises(TimeoutError, match="waited %g s for a miracle" % (0.05 * cluster_module.PATIENCE)):
        cluster_module.wait_until(lambda: None, 0.05, "a miracle")


def test_close_kills_even_a_stopped_process(tmp_path):
    c = cluster_module.Cluster("/bin/sleep", "none", tmp_path)
    p = c.start("sleeper", "600")
    p.send(signal.SIGSTOP)
    c.close()
    assert not p.is_running()
    assert p.popen.returncode == (-signal.SIGTERM if cluster_module.IS_SANITIZED else -signal.SIGKILL)


def test_wait_log_fails_at_once_when_the_process_ends(tmp_path):
    c = cluster_module.Cluster("/bin/false", "none", tmp_path)
    p = c.start("ends")
    start = time.monotonic()
    with pytest.raises(AssertionError, match="ended with code 1"):
        p.wait_log("never", seconds=30)
    assert time.monotonic() - start < 10


def test_logs_hold_what_a_process_said(tmp_path):
    c = cluster_module.Cluster("/bin/sh", "none", tmp_path)
    p = c.start("talker", "-c", "echo out; echo err >&2")
    assert p.wait_exit() == 0
    assert dict(c.logs(100)) == {"talker.log (exit code 0)": "err\n", "talker.out (exit code 0)": "out\n"}


@pytest.fixture
def echo_port():
    """A server that echoes, in a process of its own."""
    code = ("import socket, threading\n"
            "s = socket.create_server(('127.0.0.1', 0))\n"
            "print(s.getsockname()[1], flush=True)\n"
            "def echo(c):\n"
            "    while d := c.recv(4096):\n"
            "        c.sendall(d)\n"
            "    c.close()\n"
            "while True:\n"
            "    threading.Thread(target=echo, args=(s.accept()[0],), daemon=True).start()\n")
    p = subprocess.Popen(["python3", "-c", code], stdout=subprocess.PIPE, text=True)
    yield int(p.stdout.readline())
    p.kill()
    p.wait()
    p.stdout.close()


def test_a_relay_passes_drops_and_cuts(echo_port):
    relay = cluster_module.Relay(echo_port)
    a = socket.create_connection(("127.0.0.1", relay.port), timeout=10)
    a.sendall(b"hello")
    assert a.recv(5) == b"hello"

    relay.drop()
    a.sendall(b"lost")
    a.settimeout(0.2)
    with pytest.raises(TimeoutError):
        a.recv(4)

    relay.pass_again()
    a.settimeout(10)
    assert a.recv(4) == b""
    b = socket.create_connection(("127.0.0.1", relay.port), timeout=10)
    b.sendall(b"again")
    assert b.recv(5) == b"again"
    relay.close()
    assert b.recv(1) == b""


def test_descriptors_and_memory_of_a_process_can_be_read(tmp_path):
    c = cluster_module.Cluster("/bin/sleep", "none", tmp_path)
    p = c.start("sleeper", "600")
    assert p.n_descriptors() >= 3
    assert p.memory_kib() > 0
    c.close()


LEAKY = """#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
static volatile sig_atomic_t is_over;
static void on_term(int signum) { (void)signum; is_over = 1; }
int main(void)
{
	signal(SIGTERM, on_term);
	void *volatile p = malloc(1000);
	p = NULL;
	(void)p;
	if (write(1, "up\\n", 3) != 3)
		return 1;
	while (!is_over)
		usleep(1000);
	return 0;
}
"""


def test_what_a_sanitizer_says_of_a_process_is_found(request, tmp_path):
    """A leak is said at an orderly end only, which is why a cluster ends its processes in order when it is sanitized."""
    (tmp_path / "leaky.c").write_text(LEAKY)
    subprocess.run(["gcc", "-fsanitize=address", "-o", tmp_path / "leaky", tmp_path / "leaky.c"], check=True)
    assert cluster_module.is_sanitized(tmp_path / "leaky") and not cluster_module.is_sanitized(tmp_path / "none")
    c = cluster_module.Cluster(tmp_path / "leaky", "none", tmp_path)
    p = c.start("leaky")
    cluster_module.wait_until(lambda: p.out() == "up\n", 20, "the program to begin")
    p.end()
    text = request.config.hearth_reports.take()
    assert "LeakSanitizer: detected memory leaks" in text and "1000 byte(s)" in text
    assert request.config.hearth_reports.take() == ""
