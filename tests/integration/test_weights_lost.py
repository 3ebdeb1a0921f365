"""A node's model file that cannot be read any more: the error names file and offset, and the cluster goes on as after a lost node."""
import os
import re
import shutil
import subprocess

import pytest
from cluster import IS_SANITIZED, ROOT

pytestmark = pytest.mark.skipif(IS_SANITIZED, reason="a sanitizer's memory is not the program's")

PROMPT, N = "The sea is", 12


@pytest.fixture(scope="module")
def failing_disk(tmp_path_factory):
    path = tmp_path_factory.mktemp("preload") / "failing_disk.so"
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-o", str(path), str(ROOT / "tests/integration/failing_disk.c"), "-ldl"], check=True)
    return path


class TwoNodes:
    """A coordinator without layers, a node that can hold everything, and one that reads a file of its own, most of it for every token."""

    def __init__(self, cluster, path, reader, env=None):
        self.cluster, self.path = cluster, path
        self.wanted = cluster.run_alone(PROMPT, n=N)
        cluster.serve("--no-node", "--nodes", "2", "--slots", "1", "--ctx", "256", "--prefill-chunk", "16")
        cluster.join("whole")
        self.node = cluster.join("reads", "--mem", "64M", "--reader", reader, model=path, env=env)
        cluster.wait_ready()
        self.assert_answers()

    def assert_answers(self):
        got = self.cluster.run(PROMPT, n=N)
        assert got["output_ids"] == self.wanted["output_ids"] and got["logits_hash"] == self.wanted["logits_hash"]

    def state(self):
        return next(n for n in self.cluster.status()["nodes"] if n["name"] == "reads")

    def assert_lost_and_alive(self, words):
        """The request that met the failure is answered by the other node; status says what happened to this one, file and offset included."""
        self.assert_answers()
        n = self.state()
        assert n["state"] == "cannot load" and re.search(re.escape(str(self.path)) + ".*" + words, n["detail"]), n
        assert self.node.is_running()
        assert re.search(r"node reads cannot read its weights: %s.*%s" % (re.escape(str(self.path)), words), self.cluster.processes["coordinator"].log())
        self.assert_answers()


@pytest.fixture
def own_file(cluster, tmp_path):
    path = tmp_path / "own.gguf"
    shutil.copy(cluster.model, path)
    return path


@pytest.mark.parametrize("reader", ["mmap", "direct"])
def test_a_file_cut_short_costs_a_node_and_no_answer(cluster, own_file, reader):
    """It is another model's now: the node says so and leaves in order."""
    two = TwoNodes(cluster, own_file, reader)
    os.truncate(own_file, own_file.stat().st_size // 10)
    two.assert_answers()
    assert two.node.wait_exit(20) == 1
    assert "%s changed while in use: has " % own_file in two.node.log()
    two.assert_answers()


@pytest.mark.parametrize("reader", ["mmap", "direct"])
def test_a_disk_that_fails_costs_the_node_its_part_and_comes_back(cluster, own_file, tmp_path, failing_disk, reader):
    when = tmp_path / "fails"
    two = TwoNodes(cluster, own_file, reader, {"LD_PRELOAD": str(failing_disk), "FAILING_DISK_WHEN": str(when), "FAILING_DISK_NAME": own_file.name})
    when.touch()
    two.assert_lost_and_alive(r"offset \d+: Input/output error")
    when.unlink()
    # When its pause is over it is counted on again: here as soon as the other one goes.
    cluster.processes["whole"].stop()
    cluster.wait_status(lambda s: s["ready"] and two.state()["state"] == "ready", 60, "the node that was lost")
    two.assert_answers()


@pytest.mark.parametrize("reader", ["mmap", "direct"])
def test_an_unmounted_file_stays_until_the_node_ends(cluster, tmp_path, reader):
    """What is open cannot be unmounted; with --lazy only its name goes."""
    place = tmp_path / "mounted"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128m", "hearth-test", str(place)], capture_output=True).returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        path = place / "own.gguf"
        shutil.copy(cluster.model, path)
        two = TwoNodes(cluster, path, reader)
        assert subprocess.run(["umount", str(place)], capture_output=True).returncode != 0
        subprocess.run(["umount", "--lazy", str(place)], check=True)
        assert not path.exists()
        two.assert_answers()
        assert two.state()["state"] == "ready" and two.node.is_running()
        two.node.stop()
        cluster.wait_status(lambda s: s["ready"] and len(s["nodes"]) >= 1, 60, "a plan without it")
        two.assert_answers()
        p = cluster.command("join", "--model", path, "--state", cluster.state("reads"), check=False)
        assert p.returncode == 1 and str(path) in p.stderr and "No such file" in p.stderr
    finally:
        subprocess.run(["umount", "--lazy", str(place)], capture_output=True)
