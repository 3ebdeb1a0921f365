"""One copy of the model: nodes that have no file fetch what they need, keep it, compare it, and give it to each other.

The answers are those of one process with the file, by the hash of all logits."""
import json
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from cluster import n_links, wait_until

PROMPT = "The capital of France is"
MIB = 1 << 20


def cache(cluster, name):
    return cluster.folder / ("cache-%s" % name)


def join_without(cluster, name, *options, at=None):
    """Starts a node that has no model file, with a cache of its own, or one `at` a given place."""
    argv = ["join", "--state", cluster.state(name), "--name", name, "--listen", "127.0.0.1:0", "--cache", at or cache(cluster, name), "--threads", "1", "--no-probe", *options]
    if not cluster.state(name).exists():
        path = cluster.folder / ("%s.invite" % name)
        path.touch(0o600)
        path.write_text(cluster.invite() + "\n")
        argv += ["--invite-file", path]
    return cluster.start(name, *argv)


def weights(cluster, name):
    """The file with holes in a node's cache."""
    (path,) = cache(cluster, name).glob("*/weights")
    return path


def on_disk(path):
    return path.stat().st_blocks * 512


def blocks_of(cluster, name):
    return node_of(cluster.status(), name).get("blocks", {})


def node_of(status, name):
    return {n["name"]: n for n in status["nodes"]}.get(name, {})


def ask(cluster):
    got, want = cluster.run(PROMPT, n=8), cluster.run_alone(PROMPT, n=8)
    assert (got["output_ids"], got["logits_hash"]) == (want["output_ids"], want["logits_hash"])


def fetched(cluster, name, seconds=60):
    """Waits until a node has said how its layers came; returns the bytes that it has fetched since it began."""
    cluster.processes[name].wait_log(r"loading layers", seconds)
    return wait_until(lambda: blocks_of(cluster, name).get("state") == "complete" and blocks_of(cluster, name), seconds, "the blocks of %s" % name)["bytes_fetched"]


@pytest.mark.covering
def test_three_nodes_without_the_file_answer_as_one_with_it(cluster):
    cluster.serve("--no-node", "--nodes", "3")
    for name in "abc":
        join_without(cluster, name)
    cluster.wait_ready()
    ask(cluster)
    size = cluster.model.stat().st_size
    for name in "abc":
        path = weights(cluster, name)
        assert path.stat().st_size == size
        assert 0.1 * size < on_disk(path) < 0.4 * size  # a third of the layers, and no embedding
        assert path.stat().st_mode & 0o777 == 0o600
        assert cache(cluster, name).stat().st_mode & 0o777 == 0o700
        assert abs(fetched(cluster, name) - on_disk(path)) < 2 * MIB


def test_the_output_head_comes_with_the_last_layers(cluster):
    cluster.serve("--no-node", "--place", "a=15,b:2+c:1=15", "--head", "last")
    for name in "abc":
        join_without(cluster, name)
    cluster.wait_ready()
    ask(cluster)


def test_a_second_start_moves_no_bytes(cluster):
    cluster.serve("--no-node", "--nodes", "1")
    join_without(cluster, "a")
    cluster.wait_ready()
    assert fetched(cluster, "a") > 50 * MIB
    cluster.processes["a"].stop()
    cluster.wait_status(lambda s: not s["ready"], 30, "the node to be gone")
    before = len(cluster.processes["a"].log())
    p = join_without(cluster, "a")
    cluster.wait_ready()
    assert fetched(cluster, "a") == 0
    assert "every block was here already" in p.log()[before:]
    ask(cluster)


def test_a_node_with_the_same_file_uses_it_and_gives_to_others(cluster):
    cluster.serve("--no-node", "--nodes", "2", "--upload-max", "1M")  # the coordinator's link is slow
    cluster.join("full", "--threads", "1")
    cluster.wait_status(lambda s: node_of(s, "full").get("state") == "ready", 30, "the node with the file")
    p = join_without(cluster, "a")
    cluster.wait_ready(90)
    said = p.wait_log(r"fetched (4\d|3\d)\.\d MiB .* ([\d.]+) MiB so far from full", 90)
    assert float(said.group(2)) > 20
    ask(cluster)
    assert not (cluster.folder / "cache-full").exists()


def test_the_source_may_vanish_in_the_middle(cluster):
    """A member that gives blocks is killed, then the coordinator: the fetch goes on with what is left, from where it was."""
    cluster.serve("--no-node", "--nodes", "1", "--upload-max", "8M")
    join_without(cluster, "a")
    cluster.wait_status(lambda s: node_of(s, "a").get("blocks", {}).get("bytes_done", 0) > 8 * MIB, 60, "some blocks")
    status = cluster.status()
    port = status["port"]
    done = node_of(status, "a")["blocks"]["bytes_done"]
    cluster.processes["coordinator"].kill()
    cluster.serve("--no-node", "--nodes", "1", port=port)
    cluster.wait_ready(90)
    ask(cluster)
    assert on_disk(weights(cluster, "a")) > 50 * MIB
    assert done > 0
    text = cluster.processes["a"].log()
    assert "segfault" not in text and cluster.processes["a"].is_running()


def test_a_member_that_gives_blocks_may_be_killed(cluster):
    cluster.serve("--no-node", "--nodes", "2", "--upload-max", "1M")
    cluster.join("full", "--threads", "1", "--upload-max", "4M")
    p = join_without(cluster, "a")
    p.wait_log("loading layers", 60)
    wait_until(lambda: on_disk(weights(cluster, "a")) > 8 * MIB, 60, "blocks of both")
    assert n_links(p, cluster.processes["full"]) >= 1
    cluster.processes["full"].kill()
    have = on_disk(weights(cluster, "a"))
    wait_until(lambda: on_disk(weights(cluster, "a")) > have + 3 * MIB, 60, "blocks from the coordinator alone")
    assert p.is_running()


def flip(path, at):
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)
        f.seek(at)
        f.write(bytes([byte[0] ^ 0x10]))


def data_offset(path):
    """Somewhere in the weights that is no hole, and not in the header."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.lseek(fd, 8 * MIB if path.stat().st_size > 40 * MIB else 0, os.SEEK_DATA) + 300 * 1024
    finally:
        os.close(fd)


@pytest.mark.covering
def test_a_flipped_bit_in_the_cache_is_found_and_fetched_again(cluster):
    cluster.serve("--no-node", "--nodes", "1")
    join_without(cluster, "a")
    cluster.wait_ready()
    cluster.processes["a"].stop()
    path = weights(cluster, "a")
    good = cluster.command("cache", "verify", "--cache", cache(cluster, "a"), "--json")
    assert json.loads(good.stdout)["good"] is True
    flip(path, data_offset(path))
    p = join_without(cluster, "a")
    cluster.wait_ready()
    p.wait_log(r"is damaged: its hash differs: it is fetched again")
    assert 0 < fetched(cluster, "a") <= MIB  # the one block
    ask(cluster)
    p.stop()
    flip(path, data_offset(path))
    bad = cluster.command("cache", "verify", "--cache", cache(cluster, "a"), "--json", check=False)
    model = json.loads(bad.stdout)["models"][0]
    assert (bad.returncode, model["blocks_damaged"], model["blocks_freed"]) == (1, 1, 1)
    again = cluster.command("cache", "verify", "--cache", cache(cluster, "a"))
    assert "0 damaged" in again.stdout


def test_a_full_cache_is_an_error_with_its_arithmetic_and_not_the_end(cluster):
    cluster.serve("--no-node", "--nodes", "1")
    p = join_without(cluster, "a", "--cache-max", "10M")
    p.wait_log("joined the cluster")
    status = cluster.wait_status(lambda s: node_of(s, "a").get("state") == "cannot load", 60, "the refusal")
    assert "the cache is full" in node_of(status, "a")["detail"] and "--cache-max" in node_of(status, "a")["detail"]
    assert p.is_running()
    cluster.processes["a"].stop()
    join_without(cluster, "a")
    cluster.wait_ready()
    ask(cluster)


def test_a_full_disk_is_an_error_that_names_it(cluster):
    disk = cluster.folder / "small"
    disk.mkdir(0o700)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=30m,mode=0700", "none", disk], capture_output=True).returncode != 0:
        pytest.skip("no right to mount a small disk")
    try:
        cluster.serve("--no-node", "--nodes", "1")
        p = join_without(cluster, "a", at=disk)
        status = cluster.wait_status(lambda s: node_of(s, "a").get("state") == "cannot load", 60, "the refusal")
        assert "the disk" in node_of(status, "a")["detail"] and p.is_running()
        p.end()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_the_least_recently_used_model_makes_room(cluster, tmp_path):
    cluster.serve("--no-node", "--nodes", "1")
    join_without(cluster, "a")
    cluster.wait_ready()
    cluster.processes["a"].stop()
    listed = json.loads(cluster.command("cache", "ls", "--cache", cache(cluster, "a"), "--json").stdout)
    (model,) = listed["models"]
    assert model["name"] == cluster.model.name and model["bytes"] > 50 * MIB and not model["in_use"]
    assert "1 model" in cluster.command("cache", "ls", "--cache", cache(cluster, "a")).stdout
    kept = cluster.command("cache", "gc", "--cache", cache(cluster, "a"), "--cache-max", "200M", "--json")
    assert json.loads(kept.stdout)["removed"] == []
    p = join_without(cluster, "a")
    cluster.wait_ready()
    assert json.loads(cluster.command("cache", "ls", "--cache", cache(cluster, "a"), "--json").stdout)["models"][0]["in_use"]
    assert json.loads(cluster.command("cache", "gc", "--cache", cache(cluster, "a"), "--json").stdout)["removed"] == []
    p.stop()
    gone = json.loads(cluster.command("cache", "gc", "--cache", cache(cluster, "a"), "--json").stdout)
    assert gone["bytes_freed"] > 50 * MIB and gone["removed"][0]["name"] == cluster.model.name
    assert list(cache(cluster, "a").glob("*/weights")) == []


def test_two_nodes_of_one_machine_may_share_a_cache(cluster):
    cluster.serve("--no-node", "--nodes", "2")
    for name in "ab":
        join_without(cluster, name, at=cluster.folder / "shared")
    cluster.wait_ready()
    ask(cluster)
    (path,) = (cluster.folder / "shared").glob("*/weights")
    assert on_disk(path) < 0.8 * cluster.model.stat().st_size
    cluster.processes["b"].kill()  # its layers go to the other, which may find its blocks here
    cluster.wait_status(lambda s: not s["ready"], 30, "the loss")


def test_progress_is_shown_on_both_sides(cluster):
    cluster.serve("--no-node", "--nodes", "1", "--upload-max", "4M")
    p = join_without(cluster, "a")
    b = wait_until(lambda: (lambda b: b.get("state") == "fetching" and b["bytes_done"] > MIB and b.get("left_s") and b)(blocks_of(cluster, "a")), 60, "progress")
    assert b["bytes_done"] < b["bytes_total"] <= cluster.model.stat().st_size
    assert 1 * MIB < b["bytes_per_s"] < 8 * MIB
    assert 0 < b["left_s"] < 60
    text = cluster.command("status", "--state", cluster.state("coordinator")).stdout
    assert "a: fetches the model: " in text and " s left" in text
    p.wait_log(r"fetching the model: \d+ of \d+ MiB, [\d.]+ MiB/s, \d+ s left", 30)


def test_who_was_revoked_gets_no_more(cluster):
    cluster.serve("--no-node", "--nodes", "2", "--upload-max", "1M")
    cluster.join("full", "--threads", "1", "--upload-max", "1M")
    p = join_without(cluster, "a")
    p.wait_log("loading layers", 60)
    wait_until(lambda: n_links(p, cluster.processes["full"]) >= 2, 60, "a link to the node with the file")
    cluster.command("revoke", "a", "--state", cluster.state("coordinator"))
    wait_until(lambda: n_links(p, cluster.processes["full"]) == 0 and n_links(p, cluster.processes["coordinator"]) == 0, 20, "its links to end")
    have = on_disk(weights(cluster, "a"))
    p.wait_log(r"cannot reach the coordinator", 30)
    assert on_disk(weights(cluster, "a")) <= have + MIB


def test_another_model_file_is_refused_as_before(cluster, tiny_model):
    cluster.serve("--no-node", "--nodes", "1")
    invite = cluster.invite()
    path = cluster.folder / "a.invite"
    path.touch(0o600)
    path.write_text(invite + "\n")
    p = cluster.start("a", "join", "--model", tiny_model, "--state", cluster.state("a"), "--name", "a", "--listen", "127.0.0.1:0", "--invite-file", path)
    assert p.wait_exit(30) == 1
    assert "this machine's model file is not the coordinator's" in p.log() and "leave --model out to fetch" in p.log()


def test_a_leave_in_the_middle_of_a_fetch_is_prompt(cluster):
    cluster.serve("--no-node", "--nodes", "1", "--upload-max", "2M")
    p = join_without(cluster, "a")
    cluster.wait_status(lambda s: node_of(s, "a").get("blocks", {}).get("bytes_done", 0) > 2 * MIB, 60, "some blocks")
    p.send(signal.SIGTERM)
    assert p.wait_exit(15) == 0


def test_who_has_the_file_does_not_wait_for_one_that_fetches(cluster):
    """A machine with the file that comes while another loads its layers computes at once; the other is taken up when it has its part."""
    cluster.serve("--no-node", "--nodes", "1", "--upload-max", "4M")
    a = join_without(cluster, "a")
    cluster.wait_status(lambda s: node_of(s, "a").get("blocks", {}).get("bytes_done", 0) > 2 * MIB, 60, "some blocks")
    cluster.join("full", "--threads", "1")
    cluster.wait_ready(90)
    assert node_of(cluster.status(), "a")["state"] == "fetching"
    ask(cluster)
    cluster.wait_status(lambda s: s["ready"] and node_of(s, "a").get("stage", -1) is not None and node_of(s, "a").get("layers"), 60, "both machines")
    ask(cluster)
    assert "to take them over when they are here" in a.log()


@pytest.mark.covering
def test_answers_do_not_wait_for_a_newcomers_download(cluster):
    cluster.serve("--upload-max", "4M")
    cluster.wait_ready()
    epoch = cluster.status()["plan_epoch"]
    p = join_without(cluster, "a")
    said = cluster.processes["coordinator"].wait_log(r"node a fetches layers (\d+) to (\d+), to take them over when they are there", 60)
    cluster.wait_status(lambda s: node_of(s, "a").get("blocks", {}).get("bytes_done", 0) > 2 * MIB, 60, "some blocks")
    status = cluster.status()
    assert (status["ready"], status["plan_epoch"], node_of(status, "a")["state"]) == (True, epoch, "fetching")
    ask(cluster)
    p.kill()  # it vanishes in the middle
    cluster.wait_status(lambda s: node_of(s, "a")["state"] == "absent", 30, "the loss")
    ask(cluster)
    assert cluster.status()["plan_epoch"] == epoch
    had = on_disk(weights(cluster, "a"))
    p = join_without(cluster, "a")
    cluster.wait_status(lambda s: s["ready"] and s["plan_epoch"] > epoch, 60, "the plan with both")
    ask(cluster)
    assert had > 2 * MIB and fetched(cluster, "a") <= on_disk(weights(cluster, "a")) - had + MIB  # and only the rest came
    p.wait_log("loading layers %s to %s of" % said.groups())


def own_copy(cluster):
    """The cluster serves a copy of the model's file, which a test may spoil."""
    cluster.model = pathlib.Path(shutil.copy(cluster.model, cluster.folder / "own.gguf"))
    return cluster.model


@pytest.mark.covering
def test_a_file_is_read_once_on_a_machine(cluster):
    """The first start reads it, while this machine answers; later ones, and other machines' programs on it, know it."""
    own_copy(cluster)
    known = cluster.folder / "known-of"
    first = cluster.serve("--cache", known)
    cluster.wait_ready()
    first.wait_log(r"reading own.gguf once, to know its blocks: [\d.]+ of [\d.]+ GB, \d+ MB/s, \d+ s left")
    first.stop()
    length = len(first.log())
    again = cluster.serve("--cache", known)
    full = cluster.join("full", "--threads", "1", "--cache", known)
    full.wait_log("joined the cluster")
    cluster.wait_status(lambda s: node_of(s, "full").get("state") == "ready", 30, "the node with the file")
    assert "reading own.gguf" not in again.log()[length:] + full.log()
    again.stop()
    full.end()
    said = json.loads(cluster.command("cache", "verify", "--cache", known, "--json").stdout)
    assert [(pathlib.Path(f["path"]).name, f["blocks_damaged"], f["gone"]) for f in said["files"]] == [("own.gguf", 0, False)]
    flip(cluster.model, 50 * MIB)  # another file now, by its time of change
    assert "another file: forgotten" in cluster.command("cache", "verify", "--cache", known).stdout


def test_a_file_that_changes_under_the_coordinator_is_given_to_nobody(cluster):
    path = own_copy(cluster)
    serving = cluster.serve("--no-node", "--nodes", "1", "--upload-max", "8M")
    a = join_without(cluster, "a")
    cluster.wait_status(lambda s: node_of(s, "a").get("blocks", {}).get("bytes_done", 0) > 4 * MIB, 60, "some blocks")
    good = path.read_bytes()
    with open(path, "r+b") as f:
        f.seek(len(good) - 8 * MIB)
        f.write(b"\0" * (8 * MIB))
    serving.wait_log(r"own.gguf: is not what it was when this program read it \(block \d+ at byte \d+ differs\)", 60)
    assert not cluster.status()["ready"]
    with open(path, "r+b") as f:
        f.write(good)
    cluster.wait_ready(100)
    assert a.is_running() and serving.is_running()
    a.stop()
    good = json.loads(cluster.command("cache", "verify", "--cache", cache(cluster, "a"), "--json").stdout)
    assert good["good"] and good["models"][0]["blocks_damaged"] == 0  # nothing that differed was kept


def test_what_is_computed_with_is_not_thrown_out_for_what_may_come(cluster):
    """A cache that holds a machine's part, and not the next one beside it: the fetch fails, the answers do not."""
    serving = cluster.serve("--no-node", "--nodes", "2")
    cluster.join("full", "--threads", "1")
    cluster.wait_status(lambda s: node_of(s, "full").get("state") == "ready", 60, "the machine with the file")
    b = join_without(cluster, "b", "--cache-max", "44M")
    epoch = cluster.wait_ready()["plan_epoch"]
    had = on_disk(weights(cluster, "b"))
    cluster.join("more", "--threads", "1")  # thirds now: layers 10 to 19 instead of 15 to 29
    serving.wait_log(r"node b cannot fetch its layers: .*the cache is full", 60)
    ask(cluster)
    assert cluster.status()["plan_epoch"] == epoch
    assert on_disk(weights(cluster, "b")) >= had and b.is_running()
