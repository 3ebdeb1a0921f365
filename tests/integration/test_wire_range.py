"""A hidden state that the wire type cannot carry: an error with layer and value for whom it concerns, and nothing for anybody else.

The model is tiny, and one token is loud: its state leaves f16's range at one layer. What the others say does not depend on it.
"""
import json
import re
import subprocess
import sys
import threading

import pytest

from cluster import Cluster, ROOT
from test_http import Api, events

LAYER = 2
FINE = "hello"
FAULT = re.compile(r"layer %d: output of position (\d+) is out of f16's range \(got (-?\d+(?:\.\d+)?), at most 65504\): use another wire type" % LAYER)


def make_model(path, *options):
    subprocess.run([sys.executable, ROOT / "tools/make_tiny_model.py", "--untied", *options, path], check=True)
    return path


@pytest.fixture(scope="module")
def loud(hearth, tmp_path_factory):
    """(model, loud text, position of the loud token in an answer to FINE): that token is the third of the greedy answer to FINE."""
    folder = tmp_path_factory.mktemp("loud")
    # A loud token that nobody says leaves what the loud layer does to all of them.
    said = Cluster(hearth, make_model(folder / "quiet.gguf", "--loud", "319:%d" % LAYER), folder).run_alone(FINE, "--wire", "f16", n=3)
    token = said["output_ids"][2]
    assert token not in said["output_ids"][:2] + said["prompt_ids"]
    model = make_model(folder / "loud.gguf", "--loud", "%d:%d" % (token, LAYER))
    assert Cluster(hearth, model, folder).run_alone(FINE, "--wire", "f16", n=3)["output_ids"] == said["output_ids"]
    return model, token, len(said["prompt_ids"]) + 2


@pytest.fixture
def tiny(request, hearth, loud, tmp_path):
    c = Cluster(hearth, loud[0], tmp_path)
    request.node.hearth_clusters = [c]
    yield c
    c.close()


@pytest.fixture
def loud_from_the_start(request, hearth, tmp_path):
    """A cluster for a model whose token 125, a z, is loud before any layer."""
    model = make_model(tmp_path / "z.gguf", "--loud", "125:-1")
    c = Cluster(hearth, model, tmp_path)
    request.node.hearth_clusters = [c]
    yield c
    c.close()


def fault_of(text):
    """(position, value) of the fault a message names, which is one."""
    m = FAULT.search(text)
    assert m, text
    assert 65504 < abs(float(m.group(2))) < 100000
    return int(m.group(1)), m.group(2)


def test_run_names_layer_and_value_and_prints_what_came_before(tiny, loud):
    p = tiny.command("run", tiny.model, "-p", FINE, "-n", "8", "--wire", "f16", "--json", check=False)
    said = json.loads(p.stdout)
    assert p.returncode == 1 and said["stop_reason"] == "error" and len(said["output_ids"]) == 3
    assert fault_of(said["error"])[0] == loud[2] and fault_of(p.stderr) == fault_of(said["error"])
    p = tiny.command("run", tiny.model, "-p", FINE, "-n", "8", "--wire", "f16", check=False)
    assert p.returncode == 1 and p.stdout.strip() and fault_of(p.stderr) == fault_of(said["error"])
    for wire in ("f32", "bf16", "q8"):
        assert len(tiny.run_alone(FINE, "--wire", wire, n=8)["output_ids"]) > 3


@pytest.mark.covering
def test_a_cluster_names_the_node_too_and_serves_the_next_request(tiny, loud):
    alone = tiny.command("run", tiny.model, "-p", FINE, "-n", "8", "--wire", "f16", check=False)
    tiny.serve("--no-node", "--nodes", "2", "--wire", "f16")
    for name in "ab":
        tiny.join(name, "--threads", "1")
    status = tiny.wait_ready()
    guilty, = [n for n in status["nodes"] if any(begin <= LAYER < end for begin, end in n["layers"])]
    assert guilty["layers"] == [[2, 4]]
    for _ in range(2):
        p = tiny.run_raw(FINE, n=8, check=False)
        assert p.returncode == 1 and "node %s (layers 2 to 3): " % guilty["name"] in p.stderr
        assert fault_of(p.stderr) == fault_of(alone.stderr)
        assert tiny.run(FINE, n=3)["logits_hash"] == tiny.run_alone(FINE, "--wire", "f16", n=3)["logits_hash"]
    status = tiny.status()
    assert status["ready"] and status["buffers_used"] == 0 and status["active"] == 0
    for name in "ab":
        assert tiny.processes[name].is_running()


def test_another_wire_type_serves_the_same_request(tiny):
    tiny.serve("--no-node", "--nodes", "2", "--wire", "bf16")
    for name in "ab":
        tiny.join(name, "--threads", "1")
    tiny.wait_ready()
    assert tiny.run(FINE, n=8)["logits_hash"] == tiny.run_alone(FINE, "--wire", "bf16", n=8)["logits_hash"]


@pytest.mark.covering
def test_the_api_says_it_whole_or_in_a_stream_and_others_hear_nothing_of_it(tiny, loud):
    api = Api(tiny.serve("--nodes", "1", "--wire", "f16", "--threads", "1", http=True), tiny.model.stem)
    tiny.join("a", "--threads", "1")
    tiny.wait_ready()
    alone = tiny.command("run", tiny.model, "-p", FINE, "-n", "8", "--wire", "f16", check=False)

    status, error = api.post("/v1/completions", prompt=FINE, temperature=0, max_tokens=8)
    assert (status, error["error"]["code"], error["error"]["type"]) == (500, "not_finite", "server_error")
    assert fault_of(error["error"]["message"]) == fault_of(alone.stderr)
    status, error = api.post("/v1/completions", prompt=[loud[1]], temperature=0, max_tokens=8)
    assert status == 500 and fault_of(error["error"]["message"])[0] == 0

    evs = events(api.stream("/v1/completions", prompt=FINE, temperature=0, max_tokens=8).read())
    assert evs[-1]["error"]["code"] == "not_finite" and fault_of(evs[-1]["error"]["message"]) == fault_of(alone.stderr)
    assert "".join(e["choices"][0]["text"] for e in evs[:-1]) != ""

    # Beside each other, in the same batches: an answer without the loud token, of which there are enough.
    seed, want = next((seed, body["choices"]) for seed, (status, body) in (
        (seed, api.post("/v1/completions", prompt="the cat", seed=seed, max_tokens=60)) for seed in range(50)) if status == 200)
    results = []
    threads = [threading.Thread(target=lambda: results.append(api.post("/v1/completions", prompt=FINE, temperature=0, max_tokens=8))) for _ in range(3)]
    for t in threads:
        t.start()
    got = api.complete(prompt="the cat", seed=seed, max_tokens=60)["choices"]
    for t in threads:
        t.join()
    assert got == want
    assert [(s, fault_of(e["error"]["message"])) for s, e in results] == [(500, fault_of(alone.stderr))] * 3
    api.wait_quiet()
    assert api.call("GET", "/health")[1]["status"] == "ok"


def test_an_embedding_out_of_range_ends_its_own_request_only(loud_from_the_start):
    c = loud_from_the_start
    fault = r"embedding: output of position %d is out of f16's range \(got -?130048, at most 65504\): use another wire type"
    p = c.command("run", c.model, "-p", "ab z", "-n", "8", "--wire", "f16", check=False)
    assert p.returncode == 1 and re.search(fault % 3, p.stderr)
    assert c.run_alone("ab z", "--wire", "bf16", n=8)["output_ids"]
    api = Api(c.serve("--nodes", "1", "--wire", "f16", "--threads", "1", http=True), c.model.stem)
    c.join("a", "--threads", "1")
    c.wait_ready()
    seed, want = next((seed, body["choices"]) for seed, (status, body) in (
        (seed, api.post("/v1/completions", prompt="the cat", seed=seed, max_tokens=60)) for seed in range(50)) if status == 200)
    results = []

    def ask():
        for _ in range(10):
            results.append(api.post("/v1/completions", prompt="ab z", max_tokens=8))
    threads = [threading.Thread(target=ask) for _ in range(3)]
    for t in threads:
        t.start()
    got = [api.complete(prompt="the cat", seed=seed, max_tokens=60)["choices"] for _ in range(3)]
    for t in threads:
        t.join()
    assert got == [want] * 3
    assert len(results) == 30
    for status, error in results:
        assert (status, error["error"]["code"]) == (500, "not_finite") and re.search(fault % 3, error["error"]["message"])
