"""`hearth probe` as a person and a script call it: figures of this machine, kept and shown again."""
import json
import os
import pathlib
import subprocess

import pytest
from cluster import PATIENCE, wait_until

pytestmark = [pytest.mark.covering, pytest.mark.deadline(240)]


@pytest.fixture
def probe(hearth, tmp_path):
    def run(*argv):
        return subprocess.run([hearth, "probe", "--cache", tmp_path / "cache", *map(str, argv)], capture_output=True, text=True, timeout=60 * PATIENCE)
    return run


def check_figures(said):
    assert 1 <= said["threads"] <= 256 and 1 <= said["cpus"]
    assert said["kernels"] in said["instruction_sets"] and "portable" in said["instruction_sets"]
    assert len(said["rates"]) > 0
    for rate in said["rates"]:
        assert 1e6 < rate["decode_bytes_per_s"] < 1e13, rate
        assert 1e6 < rate["prefill_flop_per_s"] < 1e15, rate
    assert 0 < said["visit_ns"] < 5e9
    assert 16e6 < said["memory_bytes"] < 2**50 and said["memory_available_bytes"] <= said["memory_bytes"]
    for way in ("mmap", "direct"):
        assert 0 <= said["disk_%s_bytes_per_s" % way] < 1e12
    load = pathlib.Path("/proc/loadavg").exists()
    assert ("load" in said["conditions"]) == load


def test_a_machine_is_measured_once_and_remembered(probe, tmp_path):
    ran = probe("--json")
    assert ran.returncode == 0, ran.stderr
    first = json.loads(ran.stdout)
    assert first["cached"] is False and first["seconds"] > 0
    print("measured in %.1f s" % first["seconds"])  # a figure to read, not to pass: others use this machine, too
    check_figures(first)
    assert [r["type"] for r in first["rates"]] == ["q4_k", "q6_k", "q8_0", "q4_0", "f16"]
    kept = list((tmp_path / "cache").iterdir())
    assert [oct(p.stat().st_mode & 0o777) for p in kept] == ["0o600"]

    second = json.loads(probe("--json").stdout)
    assert second["cached"] is True and second["seconds"] == 0
    for key in ("rates", "visit_ns", "threads_best", "measured_at_s"):
        assert second[key] == first[key]

    text = probe()
    assert text.returncode == 0 and "--fresh" in text.stdout and "q4_k" in text.stdout and "GB/s" in text.stdout

    kept[0].write_bytes(kept[0].read_bytes()[:40])  # damaged: as if it were not there
    assert json.loads(probe("--json").stdout)["cached"] is False


def test_a_models_own_types_are_measured_and_fresh_measures_again(probe, model):
    said = json.loads(probe(model, "--json", "--threads", "1").stdout)
    check_figures(said)
    assert said["threads"] == 1 and said["cached"] is False
    assert [r["type"] for r in said["rates"]] == ["q4_1", "q8_0"]
    again = json.loads(probe(model, "--json", "--threads", "1", "--fresh").stdout)
    assert again["cached"] is False and again["measured_at_s"] >= said["measured_at_s"]


def test_what_cannot_be_measured_is_said(probe, tmp_path):
    ran = probe(tmp_path / "none.gguf")
    assert ran.returncode == 1 and "none.gguf" in ran.stderr
    ran = probe("--mem", "16M")
    assert ran.returncode == 1 and "too few to measure with" in ran.stderr
    os.chmod(tmp_path / "cache", 0o755)  # others may look in: nothing is kept there, and it says so
    ran = probe("--json")
    assert ran.returncode == 0 and "not kept" in ran.stderr
    check_figures(json.loads(ran.stdout))


def node(cluster, name):
    return next((n for n in cluster.status()["nodes"] if n["name"] == name), {})


def test_a_node_tells_what_was_measured_of_its_machine(cluster, tmp_path):
    cache = tmp_path / "cache"
    measured = json.loads(cluster.command("probe", cluster.model, "--threads", 1, "--cache", cache, "--json", seconds=120).stdout)
    cluster.serve("--no-node", "--nodes", 1)
    cluster.join("a", "--threads", 1, "--cache", cache, "--mem", "1G")
    cluster.wait_ready()
    told = wait_until(lambda: node(cluster, "a").get("profile"), 20, "node a's profile")
    assert told["rates"] == measured["rates"] and told["visit_ns"] == measured["visit_ns"]
    assert told["memory_cap_bytes"] == 2**30 and 0 < told["memory_reserved_bytes"] < 2**30
    while "observed" not in node(cluster, "a"):  # half a second of computing, behind what its first report says
        cluster.run("One two three", n=100)
    print("measured %.2f GB/s, observed %.2f" % (measured["rates"][0]["decode_bytes_per_s"] / 1e9, node(cluster, "a")["observed"]["decode_bytes_per_s"] / 1e9))
    assert node(cluster, "a")["observed"]["decode_bytes_per_s"] > 1e6
    text = cluster.command("status", "--state", cluster.state("coordinator")).stdout
    assert "of late" in text
    assert "1.0 for Hearth" in text and "q4_1 weights" in text


def test_a_node_that_knows_nothing_of_its_machine_measures_it_when_it_has_nothing_to_do(cluster, tmp_path):
    cluster.serve("--no-node", "--nodes", 1)
    joined = cluster.join("a", "--threads", 1, "--cache", tmp_path / "cache", probe=True)
    cluster.wait_ready()
    assert "profile" not in node(cluster, "a")
    assert len(cluster.run("One two three", n=4)["output_ids"]) == 4  # joining and answering did not wait for it
    told = wait_until(lambda: node(cluster, "a").get("profile"), 60, "node a's profile")
    assert told["rates"][0]["decode_bytes_per_s"] > 1e6 and told["rates"][0]["type"] == "q4_1"
    joined.wait_log("this machine was measured")
    assert len(list((tmp_path / "cache").glob("probe-*"))) == 1
