"""A model file that changes while it is in use: one clear error, no hang, and the other machines go on."""
import http.client
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from cluster import ROOT, wait_until

PROMPT = "The sea is"
CHANGED = "changed while in use"


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.gguf"
    subprocess.run([sys.executable, ROOT / "tools/make_tiny_model.py", path], check=True)
    return path


@pytest.fixture
def copy(tiny, tmp_path):
    """Another file with the same bytes."""
    path = tmp_path / "copy.gguf"
    shutil.copy(tiny, path)
    return path


def cut(path, keep=0.5):
    with open(path, "r+b") as f:
        f.truncate(int(path.stat().st_size * keep))


def write_in_place(path):
    before = path.stat()
    with open(path, "r+b") as f:
        f.seek(-1, 2)
        f.write(b"\x55")
    # A file system's clock may tick every 4 ms: the time of change must be another one.
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1000000000))


def replace(path):
    other = path.with_suffix(".new")
    other.write_bytes(b"something else")
    other.rename(path)


def join_with(cluster, name, path):
    before, cluster.model = cluster.model, path
    try:
        return cluster.join(name, "--threads", "1")
    finally:
        cluster.model = before


def wait_stages(cluster, n):
    return cluster.wait_status(lambda s: s["ready"] and sum("stage" in x for x in s["nodes"]) == n, 60, "a plan of %d stages" % n)


def three_stages(cluster, tiny, copy):
    """The coordinator's machine and b compute with one file, a with a copy of its own."""
    cluster.model = tiny
    cluster.serve("--threads", "1")
    join_with(cluster, "a", copy)
    cluster.join("b", "--threads", "1")
    wait_stages(cluster, 3)


@pytest.mark.parametrize("change", [cut, write_in_place])
def test_a_node_whose_file_changes_leaves_and_the_others_answer(cluster, tiny, copy, change):
    three_stages(cluster, tiny, copy)
    before = cluster.run(PROMPT, n=8)
    change(copy)
    meanwhile = cluster.run(PROMPT, n=8)
    assert meanwhile["output_ids"] == before["output_ids"] and meanwhile["logits_hash"] == before["logits_hash"]
    assert cluster.processes["a"].wait_exit(20) == 1
    assert CHANGED in cluster.processes["a"].log() and str(copy) in cluster.processes["a"].log()
    wait_stages(cluster, 2)
    after = cluster.run(PROMPT, n=8)
    assert after["output_ids"] == before["output_ids"] and after["logits_hash"] == before["logits_hash"]
    assert cluster.processes["b"].is_running() and cluster.processes["coordinator"].is_running()


def test_a_file_replaced_by_rename_is_harmless(cluster, tiny, copy):
    three_stages(cluster, tiny, copy)
    before = cluster.run(PROMPT, n=8)
    replace(copy)
    replace(tiny)
    after = cluster.run(PROMPT, n=8)
    assert after["output_ids"] == before["output_ids"] and after["logits_hash"] == before["logits_hash"]


def test_serve_answers_with_the_reason_when_its_own_file_changes(cluster, tiny):
    cluster.model = tiny
    server = cluster.serve("--threads", "1", http=True)
    cluster.wait_ready()
    cluster.run(PROMPT, n=8)
    cut(tiny)
    for _ in range(2):
        failed = cluster.run_raw(PROMPT, n=8, check=False)
        assert failed.returncode == 1
        assert CHANGED in failed.stderr and str(tiny) in failed.stderr
    port = int(server.wait_log(r"http://127\.0\.0\.1:(\d+)/v1").group(1))
    for path, ask in (("completions", {"prompt": PROMPT}), ("chat/completions", {"messages": [{"role": "user", "content": PROMPT}]})):
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        c.request("POST", "/v1/" + path, json.dumps({"model": "tiny", **ask}), {"Content-Type": "application/json"})
        r = c.getresponse()
        assert r.status == 500
        assert CHANGED in json.loads(r.read())["error"]["message"]
        c.close()
    assert server.stop() == 0


def test_an_answer_under_way_ends_with_an_error(cluster, model, tmp_path):
    """The demo model, so that it takes a while; whether a check finds it or a missing page is a matter of luck."""
    path = tmp_path / "copy.gguf"
    shutil.copyfile(model, path)
    p = cluster.start("run", "run", path, "-p", "The three largest cities of Italy are", "-n", "400", "--threads", "1")
    wait_until(lambda: len(p.out()) > 10 or not p.is_running(), 60, "the answer to begin")
    cut(path, 0.3)
    assert p.wait_exit(20) == 1
    assert CHANGED in p.log() and str(path) in p.log()


def test_a_page_that_is_gone_ends_the_program_with_one_line(cluster, tiny):
    """`hearth tokenize` maps the file, then waits for its text: the chat template that it looks up afterwards is gone."""
    p = subprocess.Popen([cluster.hearth, "tokenize", "--chat", tiny], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    proc = pathlib.Path("/proc/%d" % p.pid)
    wait_until(lambda: str(tiny) in (proc / "maps").read_text() and "State:\tS" in (proc / "status").read_text(), 20, "the model to be open")
    cut(tiny, 0)
    out, err = p.communicate(PROMPT, timeout=20)
    assert p.returncode == 1
    assert err.count("\n") == 1 and CHANGED in err and str(tiny) in err
