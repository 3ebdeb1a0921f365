"""--mem: the cap is kept, whatever does not fit is read again and again, and no bit of the answer changes."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import made
import memory_cgroup
import pytest
from cluster import BIN, IS_SANITIZED, PATIENCE

pytestmark = pytest.mark.skipif(IS_SANITIZED, reason="a sanitizer's memory is not the program's")

MIB = 1 << 20
CAP = made.STREAMED_CAP_MIB * MIB
ROOM = 32 * MIB  # memory that is no file's stays so far below the cap
READERS = ["auto", "mmap", "direct"]


def run(model, *options, n=3, prompt="the", check=True, **how):
    argv = [BIN, "run", model, "-p", prompt, "-n", n, "--json", *options]
    p = subprocess.run([str(a) for a in argv], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60 * PATIENCE, **how)
    if not check:
        return p
    assert p.returncode == 0, p.stderr
    return json.loads(p.stdout)


@pytest.fixture(scope="module")
def wanted(streamed_model):
    """What the model answers without a cap."""
    return run(streamed_model)


def assert_kept(memory, cap):
    assert memory["cap"] == cap
    assert memory["highest_bytes"] <= cap
    assert memory["anon_bytes"] <= cap - ROOM


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("reader", READERS)
def test_a_cap_of_a_fifth_is_kept_and_changes_no_bit(streamed_model, wanted, reader, threads):
    got = run(streamed_model, "--mem", "%dM" % (CAP // MIB), "--reader", reader, "--threads", threads)
    assert got["output_ids"] == wanted["output_ids"] and got["logits_hash"] == wanted["logits_hash"]
    m = got["memory"]
    assert_kept(m, CAP)
    streamed = m["layers"]["streamed_bytes"] + m["head"]["streamed_bytes"]
    assert streamed >= 3 * CAP
    if reader != "auto":
        assert m["layers"]["reader"] == reader
    # Every streamed unit once for each token, and no more than a window ahead.
    windows = m["layers"]["window_bytes"] + m["head"]["window_bytes"]
    assert abs(m["decode"]["read_bytes"] - 2 * streamed) <= windows
    assert m["decode"]["wasted_bytes"] == 0
    assert m["decode"]["stall_ms"] > 0 and m["decode"]["read_bytes_per_s"] > 0


def test_a_prompt_in_chunks_reads_each_unit_once_a_chunk(streamed_model):
    got = run(streamed_model, "--mem", "200M", "--prefill-chunk", 16, "--no-logits-hash", prompt=" the" * 64, n=1)
    m = got["memory"]
    n_chunks = (len(got["prompt_ids"]) + 15) // 16
    assert n_chunks >= 3
    streamed, head = m["layers"]["streamed_bytes"], m["head"]["streamed_bytes"]
    assert m["prefill"]["read_bytes"] <= n_chunks * streamed + head + m["layers"]["window_bytes"] + m["head"]["window_bytes"]
    assert got["output_ids"] == run(streamed_model, "--prefill-chunk", 64, "--no-logits-hash", prompt=" the" * 64, n=1)["output_ids"]


def test_a_cap_that_holds_everything_reads_nothing_twice(streamed_model, wanted):
    got = run(streamed_model, "--mem", "2G")
    m = got["memory"]
    assert got["logits_hash"] == wanted["logits_hash"]
    assert m["layers"]["streamed_units"] == 0 and m["head"]["streamed_units"] == 0
    assert m["decode"]["read_bytes"] == 0 and m["decode"]["stall_ms"] == 0
    assert_kept(m, 2048 * MIB)


@pytest.mark.parametrize("reader", READERS)
def test_in_a_cgroup_of_the_cap_and_64_mib_it_is_not_killed(streamed_model, wanted, reader):
    try:
        group = memory_cgroup.MemoryCgroup(CAP + 64 * MIB)
    except memory_cgroup.MemoryCgroup.Unavailable as e:
        pytest.skip(str(e))
    with group:
        got = run(streamed_model, "--mem", "%dM" % (CAP // MIB), "--reader", reader, preexec_fn=group.enter)
        assert group.n_killed() == 0
        assert got["logits_hash"] == wanted["logits_hash"]
        assert_kept(got["memory"], CAP)


def test_a_context_that_does_not_fit_is_refused_with_the_arithmetic(streamed_model):
    p = run(streamed_model, "--mem", "128M", "--ctx", 8000, check=False)
    assert p.returncode == 1 and p.stdout == ""
    parts = re.search(r"program ([\d.]+) MiB, frames ([\d.]+), kept states ([\d.]+), computing ([\d.]+), KV cache ([\d.]+), weights at least ([\d.]+), "
                      r"together ([\d.]+) MiB; a context of (\d+) tokens would fit", p.stderr)
    assert parts and "--mem of 128.0 MiB does not hold a context of 8000 tokens" in p.stderr
    *addends, total = map(float, parts.groups()[:7])
    assert abs(sum(addends) - total) < 0.5 and total > 128
    fits = int(parts.group(8))
    assert run(streamed_model, "--mem", "128M", "--ctx", fits - 64, n=1)["memory"]["ctx"] == fits - 64


def test_the_context_that_was_chosen_is_printed(streamed_model):
    argv = [BIN, "run", streamed_model, "-p", "the", "-n", "2", "--mem", "128M"]
    p = subprocess.run([str(a) for a in argv], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60 * PATIENCE)
    assert p.returncode == 0
    assert re.search(r"context \d+ tokens within 128\.0 MiB; per token [\d.]+ MB read from disk at \d+ MB/s, [\d.]+ ms of waiting for it", p.stderr)


def test_the_cap_may_stand_in_the_config_file(model, tmp_path):
    config = tmp_path / "hearth.toml"
    config.write_text('[compute]\nmem = "90M"\nreader = "direct"\n')
    m = run(model, "--config", config)["memory"]
    assert m["cap"] == 90 * MIB and m["layers"]["reader"] == "direct"
    config.write_text('[compute]\nmem = "15M"\n')
    p = run(model, "--config", config, check=False)
    assert p.returncode == 2 or p.returncode == 1
    assert "compute.mem: got 15M, want a size such as 3G or 900M, from 16M to 1P" in p.stderr


def highest(process):
    return int(re.search(r"^VmHWM:\s+(\d+) kB", pathlib.Path("/proc/%d/status" % process.pid).read_text(), re.M).group(1)) * 1024


def test_every_machine_of_a_cluster_keeps_its_own_cap(cluster):
    wanted = cluster.run_alone("The sea is", n=12)
    serve = cluster.serve("--mem", "90M", "--nodes", "1", "--slots", "2", http=True)
    node = cluster.join("a", "--mem", "64M")
    cluster.wait_ready()
    for _ in range(3):
        got = cluster.run("The sea is", n=12)
        assert got["output_ids"] == wanted["output_ids"] and got["logits_hash"] == wanted["logits_hash"]
    assert highest(serve) <= 90 * MIB
    assert highest(node) <= 64 * MIB
    assert "streamed by" in node.log()
    # Both say where their weights are, and what the disk costs them.
    s = cluster.wait_status(lambda s: all(n.get("weights", {}).get("read_bytes", 0) > 0 for n in s["nodes"]), 20, "reports of both machines")
    for n in s["nodes"]:
        w = n["weights"]
        assert w["reader"] in ("mmap", "direct") and w["pinned_bytes"] + w["window_bytes"] > 0 and w["streamed_bytes"] > 0
        assert 0 < w["read_bytes_per_step"] <= 1.5 * w["streamed_bytes"] + w["window_bytes"]
        assert w["stall_ms_per_step"] >= 0 and w["read_bytes_per_s"] > 0
    told = cluster.command("status", "--state", cluster.state(cluster.coordinator)).stdout
    assert re.search(r"^a: [\d.]+ MiB of weights pinned.*, [\d.]+ streamed by (mmap|direct) through [\d.]+; per step [\d.]+ MB at \d+ MB/s, [\d.]+ ms of waiting", told, re.M)


@pytest.mark.parametrize("how", [["--split", "8,6", "--rounds", "2"], ["--place", "a=8,b=6"]])
def test_what_a_machine_streams_may_be_given_by_hand(cluster, streamed_model, how):
    """More than it must leaves a larger window; what fits as a whole is not streamed, whatever was given."""
    cluster.model = streamed_model
    wanted = cluster.run_alone("the", n=3)
    cluster.serve("--no-node", "--nodes", "2", "--slots", "1", "--ctx", "128", "--prefill-chunk", "16", *how, "--streams", "75,50")
    cluster.join("a", "--mem", "300M", "--reader", "direct")
    cluster.wait_status(lambda s: len(s["nodes"]) == 1, 20, "the first stage")
    cluster.join("b")
    status = cluster.wait_status(lambda s: s["ready"] and s["nodes"][0].get("weights"), 30, "where weights are")
    w = next(n["weights"] for n in status["nodes"] if n["name"] == "a")
    whole = w["pinned_bytes"] + w["streamed_bytes"]
    assert abs(w["planned_streamed_share"] - 0.75) < 0.001 and 0.75 <= w["streamed_bytes"] / whole < 0.85
    assert w["window_bytes"] > whole / 5
    assert "planned_streamed_share" not in next(n for n in status["nodes"] if n["name"] == "b").get("weights", {})
    assert cluster.run("the", n=3)["logits_hash"] == wanted["logits_hash"]


@pytest.mark.parametrize("words, error", [
    (["--streams", "50"], "--streams is about the stages of --split or --place: give one of them too, or leave it to the plan"),
    (["--split", "10,20", "--streams", "50"], "--streams has 1 percentages, --split has 2 stages"),
    (["--place", "a=10,b=20", "--streams", "0,5,6"], "--streams has 3 percentages, --place has 2 stages"),
    (["--place", "a+b=10,c=20", "--streams", "1,5"], "--streams: stage 0 is shared by 2 machines, and each of them reads as little as must be: say 0 there"),
])
def test_streams_that_fit_no_stage_are_refused_at_the_start(cluster, words, error):
    bad = cluster.command("serve", cluster.model, "--state", cluster.state("x"), "--no-http", "--listen", "127.0.0.1:0", *words, check=False)
    assert (bad.returncode, bad.stderr.splitlines()[-1]) == (1, "hearth serve: " + error)


def test_a_node_that_cannot_hold_its_part_says_what_takes_the_memory(cluster):
    cluster.serve("--nodes", "1", "--ctx", "8192", "--slots", "8")
    node = cluster.join("a", "--mem", "90M")
    cluster.processes["coordinator"].wait_log(r"--mem leaves [\d.]+ MiB for a stage.*KV cache [\d.]+ MiB for 8 slots of 8192 tokens")
    assert node.is_running()


@pytest.mark.parametrize("reader", ["mmap", "direct"])
def test_a_file_cut_short_fails_the_request_and_not_the_process(cluster, streamed_model, tmp_path, reader):
    path = tmp_path / "copy.gguf"
    shutil.copy(streamed_model, path)
    cluster.model = path
    serve = cluster.serve("--mem", "200M", "--reader", reader, "--slots", "1")
    cluster.wait_ready()
    cluster.run("the", n=2)
    os.truncate(path, path.stat().st_size // 2)
    p = cluster.run_raw("the", n=2, check=False)
    assert p.returncode == 1 and "changed while in use" in p.stderr + p.stdout
    assert serve.is_running()
