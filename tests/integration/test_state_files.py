"""State directories that are damaged, open to others, or in use: a clear error each time, and nothing lost."""
import subprocess
import sys

import pytest

from cluster import ROOT, free_port


@pytest.fixture
def cluster(cluster, tmp_path):
    """The same with a tiny model: what is computed does not matter here."""
    cluster.model = tmp_path / "tiny.gguf"
    subprocess.run([sys.executable, ROOT / "tools/make_tiny_model.py", cluster.model], check=True)
    cluster.port = free_port()  # a node looks for its coordinator where it was
    return cluster


def serve_and_join(cluster):
    """The coordinator and node a, for the first time or again; returns the status once both compute."""
    cluster.serve("--threads", "1", port=cluster.port)
    cluster.join("a", "--threads", "1")
    return cluster.wait_status(lambda s: s["ready"] and sum("stage" in n for n in s["nodes"]) == 2, 20, "a plan of two stages")


def with_a_member(cluster):
    """A cluster that node a has joined; everything is stopped again. Returns a's NodeID."""
    node_id = [n["id"] for n in serve_and_join(cluster)["nodes"] if not n["local"]][0]
    assert cluster.processes["a"].stop() == 0
    assert cluster.processes["coordinator"].stop() == 0
    return node_id


def serve_fails(cluster, *words):
    p = cluster.command("serve", cluster.model, "--state", cluster.state("coordinator"), "--listen", "127.0.0.1:0", "--no-http", check=False, seconds=20)
    assert p.returncode == 1
    for w in words:
        assert str(w) in p.stderr
    assert p.stderr.count("\n") <= 2, p.stderr


def join_fails(cluster, *words):
    p = cluster.command("join", "--model", cluster.model, "--state", cluster.state("a"), "--listen", "127.0.0.1:0", check=False)
    assert p.returncode == 1
    for w in words:
        assert str(w) in p.stderr


def test_a_damaged_store_is_refused_and_the_members_are_there_once_it_is_whole(cluster):
    node_id = with_a_member(cluster)
    db = cluster.state("coordinator") / "cluster.db"
    whole = db.read_bytes()
    row = whole.find(bytes.fromhex(node_id))  # the table comes before its index
    assert row > 0
    flipped = bytearray(whole)
    flipped[row + 70] ^= 1  # id 32, public key 32, psk 32: a bit of the psk
    newer = bytearray(whole)
    newer[63] = 9  # user_version, big-endian, in the file's header
    for data, words in ((b"", "empty"), (whole[:5000], "damaged"), (bytes(flipped), "damaged"), (b"no database at all" * 100, "not a cluster file"),
                        (bytes(newer), "version 9")):
        db.write_bytes(data)
        serve_fails(cluster, db, words)
        assert db.read_bytes() == data
    db.unlink()
    db.mkdir(0o700)
    serve_fails(cluster, db, "not a regular file")
    db.rmdir()
    db.write_bytes(whole)
    db.chmod(0o644)
    serve_fails(cluster, db, "want 0600")
    db.chmod(0o600)
    assert [n["id"] for n in serve_and_join(cluster)["nodes"] if not n["local"]] == [node_id]


def test_a_state_directory_that_others_may_enter_is_refused(cluster):
    with_a_member(cluster)
    for name, fails in (("coordinator", serve_fails), ("a", join_fails)):
        cluster.state(name).chmod(0o755)
        fails(cluster, cluster.state(name), "want 0700")
        cluster.state(name).chmod(0o700)


def test_a_second_program_on_one_state_directory_is_refused(cluster):
    cluster.serve("--threads", "1")
    serve_fails(cluster, cluster.state("coordinator"), "already in use by process %d" % cluster.processes["coordinator"].pid)
    cluster.wait_ready()


def test_a_store_that_another_program_has_open_is_refused(cluster):
    with_a_member(cluster)
    db = cluster.state("coordinator") / "cluster.db"
    code = "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1])\nc.execute('BEGIN IMMEDIATE')\nprint('locked', flush=True)\nsys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code, db], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as p:
        assert p.stdout.readline() == "locked\n"
        serve_fails(cluster, db, "in use by another program")
        p.stdin.close()
    serve_and_join(cluster)


def test_a_damaged_membership_or_key_is_refused(cluster):
    with_a_member(cluster)
    membership, key = cluster.state("a") / "membership", cluster.state("a") / "node.key"
    for path, at, words in ((membership, 20, "remove it to join anew"), (membership, -40, "remove it to join anew"), (key, 60, "damaged")):
        whole = path.read_bytes()
        flipped = bytearray(whole)
        flipped[at] ^= 1
        path.write_bytes(bytes(flipped))
        join_fails(cluster, path, words)
        path.write_bytes(whole)
    serve_and_join(cluster)
