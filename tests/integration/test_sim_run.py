"""hearth sim run: text, JSON, pictures, mistakes; every scenario of the tree runs; published figures are met where docs/published.md says so."""
import json
import re
import subprocess
import sys
import xml.etree.ElementTree

import pytest

from cluster import BIN as HEARTH, PATIENCE, ROOT

SCENARIOS = ROOT / "sim" / "scenarios"
HOME = SCENARIOS / "home.toml"
PUBLISHED = sorted((SCENARIOS / "published").glob("*.toml"))


def sim_run(*args):
    return subprocess.run([HEARTH, "sim", "run", *map(str, args)], capture_output=True, text=True, timeout=60 * PATIENCE)


def said(*args):
    ran = sim_run(*args, "--json")
    assert (ran.returncode, ran.stderr) == (0, "")
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def published():
    return {path.stem: said(path) for path in PUBLISHED}


def error(results, name):
    return results[name]["tpot_s"]["p50"] / results[name]["published"]["tpot_s"] - 1


def test_the_home_is_described_in_text():
    ran = sim_run(HOME)
    assert ran.returncode == 0 and ran.stderr == ""
    assert ran.stdout.startswith("home: four laptops and two Pis on one Wi-Fi")
    for words in ("Cost model (mean delays, idle cluster): TPOT ", "the program's cores over the simulated network", "  TTFT  ", "  TPOT  ", "tokens/s in all",
                  "laptop-chris", "Assumed, not measured or published:", "pi-attic.disk_read = 90 MB/s: SD card"):
        assert words in ran.stdout


def test_the_home_in_json_agrees_with_itself_and_with_the_next_run():
    a = said(HOME)
    assert a == said(HOME)
    assert [d["name"] for d in a["devices"]] == ["desk", "laptop-anna", "laptop-ben", "laptop-chris", "pi-kitchen", "pi-attic"]
    assert sum(s["layers"] for s in a["plan"]["stages"]) == 64
    assert len(a["requests"]) == 4 and a["failed"] == 0 and not a["timed_out"]
    assert a["tokens"] == sum(r["tokens"] for r in a["requests"]) == 60 + 3 * 40
    # The first request is alone: what the cost model predicts for mean delays.
    assert a["requests"][0]["tpot_s"] == pytest.approx(a["cost_model"]["tpot_s"], rel=.05)
    assert a["requests"][0]["ttft_s"] == pytest.approx(a["cost_model"]["ttft_s"], rel=.05)
    for d in a["devices"]:
        assert d["busy_s"] > 0 and d["idle_s"] > 0 and d["link_s"] > 0 and d["sent_bytes"] > 0


def test_pictures_are_well_formed(tmp_path):
    svg, trace = tmp_path / "home.svg", tmp_path / "home.json"
    assert sim_run(HOME, "--svg", svg, "--trace", trace).returncode == 0
    root = xml.etree.ElementTree.parse(svg).getroot()
    assert root.tag.endswith("svg") and len(list(root.iter())) > 100
    events = json.loads(trace.read_text())["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X", "i"}
    assert all(e["dur"] >= 0 for e in events if e["ph"] == "X")


def test_files_are_found_beside_the_scenario(tmp_path):
    (tmp_path / "mine.ping").write_text("".join("[%d.0] 64 bytes from 10.0.0.1: icmp_seq=%d ttl=64 time=%d.0 ms\n" % (100 + i, i + 1, 8 + 4 * (i % 2))
                                                for i in range(10)))
    text = HOME.read_text().replace('profile = "W2"', 'trace = "mine.ping"')
    assert text != HOME.read_text()
    (tmp_path / "x.toml").write_text(text)
    slower = said(tmp_path / "x.toml")
    assert slower["cost_model"]["hops_s"] != said(HOME)["cost_model"]["hops_s"]
    (tmp_path / "mine.ping").unlink()
    ran = sim_run(tmp_path / "x.toml")
    assert ran.returncode == 1 and re.search(r"x\.toml:\d+: device\.trace: .*mine\.ping: cannot open", ran.stderr)


def test_a_model_can_be_a_file(tmp_path, model):
    text = HOME.read_text()
    begin, end = text.index("[model]"), text.index("[serving]")
    (tmp_path / "x.toml").write_text(re.sub(r"layers = \{.*\}\n", "", text[:begin] + '[model]\nname = "smollm2"\ngguf = "%s"\n\n' % model + text[end:]))
    smol = said(tmp_path / "x.toml")
    assert sum(s["layers"] for s in smol["plan"]["stages"]) == 30
    inspected = json.loads(subprocess.run([HEARTH, "inspect", model, "--json"], capture_output=True, timeout=30 * PATIENCE).stdout)
    embedding = 49152 * 576 // 32 * 34
    assert smol["model_bytes"] == sum(inspected["layer_bytes"]) + embedding
    (tmp_path / "x.toml").write_text((tmp_path / "x.toml").read_text().replace('name = "smollm2"', 'name = "smollm2"\nlayers = 30'))
    ran = sim_run(tmp_path / "x.toml")
    assert ran.returncode == 1 and "with gguf want only name and wire" in ran.stderr


@pytest.mark.parametrize("change, line", [
    (("cpu_read = {", "cpu_reed = {"), r"x\.toml:\d+: device: unknown key cpu_reed, did you mean cpu_read\?"),
    (('memory = "12 GiB"', 'memory = "12 GB/s"'), r'x\.toml:\d+: device\.memory: got "12 GB/s", want a number and one of B, kB'),
    (("desk = 24", "desk = 25"), r"x\.toml: plan: 6 stages hold 65 layers, the model has 64"),
    (('memory = "8 GiB"', 'memory = "1 GiB"'), r"x\.toml: laptop-anna: 1\.074 GB of memory, less 0\.600 GB for the program, .* leave no room"),
])
def test_mistakes_are_one_sentence_with_the_place(tmp_path, change, line):
    text = HOME.read_text().replace(change[0], change[1], 1)
    (tmp_path / "x.toml").write_text(text)
    ran = sim_run(tmp_path / "x.toml")
    assert ran.returncode == 1 and ran.stdout == "" and re.search(line, ran.stderr), ran.stderr
    assert ran.stderr.count("\n") == 1


def test_with_less_memory_a_machine_streams_and_waits_for_its_disk(tmp_path):
    (tmp_path / "x.toml").write_text(HOME.read_text().replace('memory = "8 GiB"', 'memory = "5 GiB"', 1))
    less, before = said(tmp_path / "x.toml"), said(HOME)
    assert less["plan"]["stages"][1]["streamed_bytes"] > 0 == before["plan"]["stages"][1]["streamed_bytes"]
    assert less["devices"][1]["disk_s"] > 0 == before["devices"][1]["disk_s"]
    assert less["tpot_s"]["p50"] > before["tpot_s"]["p50"] - 1e-6  # all of it may be hidden; and when a step begins is a matter of nanoseconds


def test_wrong_usage_is_code_2():
    assert sim_run().returncode == 2
    ran = sim_run("/nowhere/x.toml")
    assert ran.returncode == 1 and "/nowhere/x.toml: cannot open" in ran.stderr
    ran = sim_run(HOME, "--svg", "/nowhere/x.svg")
    assert ran.returncode == 1 and "/nowhere/x.svg: cannot open" in ran.stderr


def test_petals_latency_effect_is_met(published):
    assert abs(error(published, "petals-t4-far")) < .05
    effect = {far: (published[far]["tpot_s"]["p50"] - published[near]["tpot_s"]["p50"]) /
              (published[far]["published"]["tpot_s"] - published[near]["published"]["tpot_s"]) - 1
              for near, far in (("petals-t4-near", "petals-t4-far"), ("petals-a100-slow", "petals-a100-far"))}
    assert abs(effect["petals-t4-far"]) < .05
    assert abs(effect["petals-a100-far"]) < .10


def test_the_order_of_systems_on_primas_testbed_is_reproduced(published):
    t = {name: p["tpot_s"]["p50"] for name, p in published.items()}
    assert t["prima-8b"] < t["exo-8b"] < t["dllama-8b"]
    for m in ("60b", "70b"):
        assert t["prima-%s-os" % m] < t["prima-%s" % m] < t["llama-cpp-%s" % m] / 10
    assert t["prima-70b"] < t["llama-cpp-70b"] < t["prima-no-halda-70b"]
    for name in ("llama-cpp-60b", "llama-cpp-70b", "prima-60b", "prima-60b-os", "prima-70b-os"):
        assert abs(error(published, name)) < .10, name
    # Our plans with the memory that the systems report beat what was published.
    assert t["prima-60b-os"] < .468 and t["prima-70b-os"] < .674


def test_the_order_of_primas_ablation_is_reproduced_at_every_size(published):
    t = {name: p["tpot_s"]["p50"] for name, p in published.items()}
    for size, prima, on_demand in (("8b", "prima-8b", "prima-no-prefetch-8b"), ("30b", "prima-30b", "prima-no-prefetch-30b"),
                                   ("60b", "prima-60b", "prima-no-prefetch-60b"), ("70b", "prima-70b-os", "prima-no-prefetch-70b-os")):
        streams = size in ("60b", "70b")
        assert t[prima] < t[on_demand] * .95 if streams else t[prima] == t[on_demand]
        assert t[on_demand] <= t["llama-cpp-" + size] / (10 if streams else 1)
        assert abs(error(published, on_demand)) < .14, on_demand


def test_a_page_cache_that_is_asked_ahead_does_not_explain_prima(tmp_path):
    """What docs/planner.md says of strict LRU."""
    for name, seconds in (("prima-60b", 3.4), ("prima-70b", 3.9)):
        text = (SCENARIOS / "published" / (name + ".toml")).read_text()
        (tmp_path / "x.toml").write_text(text.replace("[plan]\n", '[plan]\npolicy = "lru_ahead"\n'))
        assert said(tmp_path / "x.toml")["cost_model"]["tpot_s"] == pytest.approx(seconds, abs=.05)


def test_tpi_llms_all_reduce_is_the_slowest_link_twice(published):
    assert published["tpi-r-7b"]["cost_model"]["exchange_s"] == pytest.approx(.014, rel=1e-6)


def test_every_assumption_has_its_reason(published):
    for p in published.values():
        assert p["derived"] and all(d["why"] for d in p["derived"]), p["name"]
        assert p["published"]["source"]


def test_the_published_table_is_what_the_command_prints():
    printed = subprocess.run([sys.executable, ROOT / "bench" / "published_bench.py", "--hearth", HEARTH], capture_output=True, text=True,
                             timeout=120 * PATIENCE)
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout in (ROOT / "docs" / "published.md").read_text()
