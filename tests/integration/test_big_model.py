"""A made model of the shape of a 70B, about 40 GB, on machines much smaller: one process with 3 GB, four nodes with 2 GB each.

Not in `make check`. It wants 45 GB of free disk under build/; with less it takes as many layers as leave 10 GB free, and says so. The file is deleted
afterwards. What is shown: the answers, their time, how much was read, and the highest memory of each process.
"""
import json
import pathlib
import re
import shutil
import subprocess
import time

import made
import pytest
from cluster import BIN, IS_SANITIZED, ROOT

pytestmark = [pytest.mark.long, pytest.mark.skipif(IS_SANITIZED, reason="a sanitizer's memory is not the program's")]

GB = 10**9
GIB = 1 << 30
LAYERS = 80
N = 2        # tokens: each reads the file once
HOURS = 3600
LEAST_LAYERS = 8  # fewer are no big model


def words_that_fit(kind):
    """Words of the largest 70B-shaped model of this type that the disk has room for, or None."""
    free = shutil.disk_usage(ROOT / "build").free + sum(p.stat().st_size for p in made.MADE.glob("big-*"))  # of a run that did not come to its end
    whole = made.sizes("--shape", "70B", "--type", kind)
    layers = LAYERS
    if free < max(45 * GB, whole["bytes"] + 5 * GB):
        layers = int((free - 10 * GB - (whole["bytes"] - LAYERS * whole["layer_bytes"])) // whole["layer_bytes"])
        print("%.0f GB are free, 45 wanted: %d layers of %d" % (free / GB, layers, LAYERS))
    return ("--shape", "70B", "--type", kind, "--layers", min(layers, LAYERS)) if layers >= LEAST_LAYERS else None


@pytest.fixture(scope="module")
def big_model(model):
    words = words_that_fit("Q4_0")
    if words is None:
        pytest.skip("less than %d layers of a 70B leave 10 GB of the disk free" % LEAST_LAYERS)
    start = time.monotonic()
    path = made.made("big", *words)
    print("%s: %.1f GB, there after %.0f s" % (path.name, path.stat().st_size / GB, time.monotonic() - start))
    yield path
    path.unlink()


@pytest.fixture(scope="module")
def alone(big_model):
    """The answer of one process with 3 GB."""
    p = subprocess.run([str(BIN), "run", str(big_model), "-p", "the", "-n", str(N), "--mem", "3G", "--no-logits-hash", "--json"], capture_output=True, text=True,
                       stdin=subprocess.DEVNULL, timeout=HOURS)
    assert p.returncode == 0, p.stderr
    return json.loads(p.stdout)


@pytest.mark.deadline(HOURS)
def test_one_machine_with_3_gb_answers(alone, big_model):
    m = alone["memory"]
    print("one process, --mem 3G: %s" % json.dumps({"timings": alone["timings"], "memory": m}))
    assert len(alone["output_ids"]) == N
    assert m["highest_bytes"] <= m["cap"] == 3 * GIB
    streamed = m["layers"]["streamed_bytes"] + m["head"]["streamed_bytes"]
    assert streamed >= big_model.stat().st_size - 4 * GIB


def highest_bytes(p):
    status = pathlib.Path("/proc/%d/status" % p.pid).read_text()
    return 1024 * int(re.search(r"^VmHWM:\s+(\d+) kB", status, re.M).group(1))


@pytest.mark.deadline(2 * HOURS)
def test_four_nodes_with_2_gb_each_give_the_same_answer(request, hearth, big_model, alone, tmp_path):
    import cluster as cluster_module
    c = cluster_module.Cluster(hearth, big_model, tmp_path)
    request.node.hearth_clusters = [c]
    try:
        start = time.monotonic()
        c.serve("--no-node", "--nodes", "4", "--mem", "2G", "--ctx", "256", seconds=HOURS)
        c.wait_status(lambda s: "reading" not in s, HOURS, "the file's hash")  # which the nodes find known on this machine: each would read all of the file
        print("the coordinator knows the file's hash after %.0f s" % (time.monotonic() - start))
        nodes = [c.join(name, "--mem", "2G", "--threads", "1") for name in ("a", "b", "c", "d")]

        def ready():
            for p in nodes:
                assert p.is_running(), p.log()
            return c.status().get("ready")
        cluster_module.wait_until(ready, 600, "a ready plan")
        start = time.monotonic()
        got = c.run("the", n=N, seconds=HOURS)
        print("four nodes, --mem 2G each: %.0f s for a prompt and %d tokens, %s; highest %s MB" % (
            time.monotonic() - start, N, json.dumps(got["timings"]), [highest_bytes(p) // 10**6 for p in nodes]))
        for n in c.status()["nodes"]:
            print("%s: %s" % (n["name"], json.dumps(n["weights"])))
        assert got["output_ids"] == alone["output_ids"]
        for p in [*nodes, c.processes["coordinator"]]:
            assert highest_bytes(p) <= 2 * GIB
    finally:
        c.close()
