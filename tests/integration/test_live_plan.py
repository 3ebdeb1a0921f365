"""Plans by cost: machines that measured themselves, slowed down (--slowdown): one of them, or both so far that sharing layers pays."""
import json
import signal
import struct

import pytest

from cluster import wait_until
from made import made


def holders(status):
    return sorted(n["name"] for n in status["nodes"] if "stage" in n)


def is_planned(status):
    return status["ready"] and "plan" in status and all("profile" in n for n in status["nodes"])


def test_a_slow_machine_is_left_out_until_it_is_needed(cluster):
    cluster.serve("--plan", "cost", "--no-node", "--nodes", "2", "--threads", "1", probe=True)
    kept = ["--cache", cluster.folder / "cache"]  # measured now, once for both
    cluster.join("fast", "--threads", "1", *kept, probe=True)
    cluster.join("slow", "--threads", "1", "--slowdown", "8", *kept, probe=True)
    first = cluster.wait_status(is_planned, 90, "machines that have measured themselves")
    assert holders(first) == ["fast"]
    assert "slow" in first["plan"]["left_out"] and "fast" not in first["plan"]["left_out"]
    rates = {n["name"]: n["profile"]["rates"][0]["decode_bytes_per_s"] for n in first["nodes"]}
    assert rates["fast"] > 4 * rates["slow"]
    text = cluster.command("status", "--state", cluster.state("coordinator")).stdout
    assert "ms a token are predicted; left out: slow (" in text

    answer = cluster.run("Once upon a time", n=6)
    assert answer["output_ids"] == cluster.run_alone("Once upon a time", n=6)["output_ids"]

    cluster.command("drain", "fast", "--state", cluster.state("coordinator"))
    then = cluster.wait_status(lambda s: is_planned(s) and holders(s) == ["slow"], 60, "the slow machine")
    assert then["plan"]["predicted_ms_per_token"] > 4 * first["plan"]["predicted_ms_per_token"]
    assert cluster.run("Once upon a time", n=6)["output_ids"] == answer["output_ids"]


def test_without_figures_everybody_gets_as_many_layers(cluster):
    cluster.serve("--plan", "cost", "--no-node", "--nodes", "2", "--threads", "1")
    for name in "ab":
        cluster.join(name, "--threads", "1", "--cache", cluster.folder / "cache")  # in which nobody has measured anything
    status = cluster.wait_ready()
    assert holders(status) == ["a", "b"]
    assert "plan" not in status
    cluster.processes["coordinator"].wait_log("layers are split evenly: ")


# Layers of 9 MB each: what is saved by sharing one is several times what an exchange takes.
BIG_LAYERS = ("--shape", "layers=6,hidden=1024,ffn=4096,heads=16,kv_heads=8", "--type", "Q4_0", "--seed", "3")


def measure_with(cluster, visit_ns, decode_bps, disk_bps=None):
    """Machines that take their figures from the cache all have these (engine/probe_cache.h has the file)."""
    cluster.command("probe", cluster.model, "--cache", cluster.folder / "cache", "--threads", "1")
    (path,) = (cluster.folder / "cache").glob("probe-*")
    data = bytearray(path.read_bytes())
    at = 8 + 2 + struct.unpack_from("<H", data, 8)[0] + 8 + 12  # behind magic, version, key, time and threads
    struct.pack_into("<Q", data, at, visit_ns)
    if disk_bps:
        struct.pack_into("<QQ", data, at + 8, disk_bps, disk_bps)
    at += 24 + 2 + struct.unpack_from("<H", data, at + 24)[0]
    for i in range(data[at]):
        struct.pack_into("<Q", data, at + 2 + 17 * i, decode_bps)
    path.write_bytes(data)


@pytest.mark.deadline(240)
def test_machines_form_a_group_by_themselves_and_one_of_them_is_lost(cluster):
    """Two that are as slow as each other, next to each other."""
    cluster.model = made("shared", *BIG_LAYERS)
    alone = cluster.run_alone("Once upon a time", n=100)
    measure_with(cluster, 10000, 10**9)
    serve = ["--plan", "cost", "--no-node", "--nodes", "2", "--threads", "1", "--dead-after", "800"]
    cluster.serve(*serve)
    for name in "ab":
        cluster.join(name, "--threads", "1", "--slowdown", "4", "--dead-after", "800", "--cache", cluster.folder / "cache")
    status = cluster.wait_status(lambda s: is_planned(s) and sum("group" in n for n in s["nodes"]) == 2, 120, "a group of two")
    assert "a+b share layers: " in status["plan"]["groups"]
    text = cluster.command("status", "--state", cluster.state("coordinator")).stdout
    assert status["plan"]["groups"] in text
    cluster.processes["coordinator"].wait_log("share layers: ")

    before = status["tokens"]
    run = cluster.start_run("run", "Once upon a time", "--json", n=100)
    wait_until(lambda: cluster.status()["tokens"] - before >= 6, 60, "token 6")
    assert run.is_running()
    cluster.processes["b"].send(signal.SIGKILL)
    assert run.wait_exit(60) == 0, run.log()
    answer = json.loads(run.out())
    assert answer["output_ids"] == alone["output_ids"] and answer["logits_hash"] == alone["logits_hash"]
    assert all("group" not in n for n in cluster.wait_status(is_planned, 60, "a plan of one")["nodes"])


@pytest.mark.deadline(240)
def test_no_groups_leaves_layers_whole(cluster):
    cluster.model = made("shared", *BIG_LAYERS)
    measure_with(cluster, 10000, 10**9)
    cluster.serve("--plan", "cost", "--no-node", "--nodes", "2", "--threads", "1", "--no-groups")
    for name in "ab":
        cluster.join(name, "--threads", "1", "--slowdown", "4", "--cache", cluster.folder / "cache")
    status = cluster.wait_status(is_planned, 60, "a plan by cost")
    assert all("group" not in n for n in status["nodes"]) and status["plan"]["groups"] == ""


@pytest.mark.deadline(240)
def test_a_node_keeps_the_window_that_its_plan_counts_on(cluster):
    """One that holds half of its layers, and one that computes four times as long: in two rounds the first reads ahead while the other computes."""
    cluster.model = made("windows", "--shape", "layers=12,hidden=1024,ffn=4096,heads=16,kv_heads=8", "--type", "Q4_0", "--seed", "3")
    alone = cluster.run_alone("Once upon a time", n=6)
    measure_with(cluster, 10000, 10**9, disk_bps=150 * 10**6)
    cluster.serve("--plan", "cost", "--rounds", "2", "--no-node", "--nodes", "2", "--threads", "1", "--slots", "1", "--ctx", "128", "--no-groups")
    kept = ["--threads", "1", "--cache", cluster.folder / "cache"]
    cluster.join("capped", "--mem", "210M", "--reader", "direct", *kept)
    cluster.join("slow", "--slowdown", "4", *kept)

    def is_kept(s):
        """Left to itself it keeps two slots, of about a hundred units."""
        kept = next((n.get("weights") for n in s["nodes"] if n["name"] == "capped"), None)
        return is_planned(s) and holders(s) == ["capped", "slow"] and kept and kept["window_bytes"] * 10 > kept["pinned_bytes"] + kept["streamed_bytes"]

    status = cluster.wait_status(is_kept, 30, "a plan in two rounds and the window it counts on")
    (kept,) = (n["weights"] for n in status["nodes"] if n["name"] == "capped")
    whole = kept["pinned_bytes"] + kept["streamed_bytes"]
    assert kept["planned_streamed_share"] <= kept["streamed_bytes"] / whole < kept["planned_streamed_share"] + 0.05
    assert cluster.run("Once upon a time", n=6)["logits_hash"] == alone["logits_hash"]
