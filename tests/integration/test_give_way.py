"""The machine's owner comes first: a node whose machine is short of memory keeps less of its weights there, and no bit of the answer changes."""
import os
import pathlib
import re
import subprocess

import pytest
from cluster import IS_SANITIZED, ROOT

pytestmark = pytest.mark.skipif(IS_SANITIZED, reason="a sanitizer's memory is not the program's")

PROMPT, N = "The sea is", 12
SHORT = "some avg10=23.00 avg60=9.00 avg300=2.00 total=1\nfull avg10=9.00 avg60=0.00 avg300=0.00 total=1\n"


def resident(process):
    return int(re.search(r"^VmRSS:\s+(\d+) kB", pathlib.Path("/proc/%d/status" % process.pid).read_text(), re.M).group(1)) * 1024


@pytest.fixture(scope="module")
def short_memory(tmp_path_factory):
    path = tmp_path_factory.mktemp("preload") / "short_memory.so"
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-o", str(path), str(ROOT / "tests/integration/short_memory.c"), "-ldl"], check=True)
    return path


@pytest.mark.parametrize("options", [(), ("--mem", "120M"), ("--no-give-way",)])
def test_a_node_gives_way_to_programs_that_are_short_of_memory(cluster, tmp_path, short_memory, options):
    pressure = tmp_path / "pressure"
    pressure.write_text(SHORT.replace("23", "0"))
    wanted = cluster.run_alone(PROMPT, n=N)

    def assert_answers():
        got = cluster.run(PROMPT, n=N)
        assert got["output_ids"] == wanted["output_ids"] and got["logits_hash"] == wanted["logits_hash"]

    cluster.serve("--no-node", "--nodes", "1", "--slots", "1", "--ctx", "256", "--prefill-chunk", "16", "--no-give-way")
    node = cluster.join("a", "--keep-mem", "4", "--cache", tmp_path / "cache", *options, probe=options == (), env={"LD_PRELOAD": str(short_memory), "SHORT_MEMORY_PRESSURE": str(pressure)})
    cluster.wait_ready()
    assert_answers()
    if options == ():  # the planner must know; without a cap nothing said what this machine may take
        cluster.wait_status(lambda s: s["nodes"][0].get("profile"), 60, "that the node measures itself")
        assert cluster.status()["nodes"][0]["profile"]["memory_cap_bytes"] == 0
    before = resident(node)
    pressure.write_text(SHORT)
    if "--no-give-way" in options:
        assert_answers()
        assert "short of memory" not in node.log()
        return
    node.wait_log(r"other programs are short of memory .*waited for some 23 % of the time.*weights take ([\d.]+) of ([\d.]+) MiB")
    s = cluster.wait_status(lambda s: s["nodes"][0].get("weights", {}).get("withheld_bytes", 0) > 0, 20, "that the node gives way")
    w = s["nodes"][0]["weights"]
    assert w["pinned_bytes"] > 0 and w["streamed_bytes"] > 0 and w["withheld_bytes"] > 15 << 20
    assert_answers()
    if options == ():
        told = cluster.status()["nodes"][0]["profile"]
        room = told["memory_cap_bytes"] - told["memory_reserved_bytes"]
        assert w["pinned_bytes"] + w["window_bytes"] <= room < w["pinned_bytes"] + w["streamed_bytes"] + (12 << 20)  # with its KV cache and buffers
    assert resident(node) < before - (w["withheld_bytes"] * 3 // 4)
    told = cluster.command("status", "--state", cluster.state(cluster.coordinator)).stdout
    assert re.search(r"^a: .*gives way to programs that are short of memory: holds [\d.]+ of [\d.]+ MiB$", told, re.M), told


def test_members_of_a_group_give_way_between_turns_and_answers_go_on(cluster, tmp_path, short_memory):
    pressure = tmp_path / "pressure"
    pressure.write_text(SHORT.replace("23", "0"))
    wanted = cluster.run_alone(PROMPT, n=60)
    cluster.serve("--place", "a:1+b:2=30", "--no-node", "--nodes", "2", "--slots", "2", "--ctx", "512", "--prefill-chunk", "16", "--no-give-way")
    nodes = [cluster.join(name, env={"LD_PRELOAD": str(short_memory), "SHORT_MEMORY_PRESSURE": str(pressure)}) for name in "ab"]
    cluster.wait_ready()
    epoch = cluster.status()["plan_epoch"]
    cluster.start_run("beside", PROMPT, n=400)  # another forward is under way all the time
    pressure.write_text(SHORT)
    while not all("weights: " in n.log() for n in nodes):  # both have loaded theirs anew
        got = cluster.run(PROMPT, n=60)
        assert got["output_ids"] == wanted["output_ids"] and got["logits_hash"] == wanted["logits_hash"]
    assert cluster.status()["plan_epoch"] == epoch
