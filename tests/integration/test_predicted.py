"""bench/predicted_bench.py's machinery, on one small ring and few tokens: what it measures and predicts, not how well."""
import os
import subprocess
import sys

import pytest

from cluster import ROOT

sys.path.insert(0, str(ROOT / "bench"))
import emulated_ring as rings  # noqa: E402
import predicted_bench as bench  # noqa: E402


@pytest.fixture(scope="module")
def calibrate(tmp_path_factory):
    library = ROOT / "build/libhearth.a"
    if not library.exists():
        pytest.skip("build/libhearth.a is not there: run make first")
    program = tmp_path_factory.mktemp("bench") / "calibrate"
    subprocess.run([os.environ.get("CC", "gcc"), "-std=c11", "-O2", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-I.", "-o", program, "bench/calibrate.c", library,
        "-lpcre2-8", "-lsodium", "-lpthread", "-lm"], cwd=ROOT, check=True, timeout=120)
    return program


def test_a_calibration_times_each_range_and_the_head(calibrate, model):
    c = rings.Calibration(calibrate, model, [100, 0, 0], [20, 10])
    try:
        for n in (1, 5):
            got = c.tokens(n)
            assert [len(r) for r in got["ranges"]] == [n, n] and len(got["head"]) == len(got["hand_over"]) == n
            assert min(got["ranges"][0] + got["ranges"][1] + got["head"] + got["hand_over"]) > 0
        ranges_us, head_us = bench.computing_us([got])
        assert ranges_us[0] > ranges_us[1] and head_us > 0
    finally:
        c.close()
    assert c.popen.returncode == 0


@pytest.mark.parametrize("arguments, line, words", [
    (["0", "20,11"], "", "the ranges are not all of the model's layers"), (["0,0", "20,10"], "", "want one pause"), (["0", "30,"], "", "not a list"),
    (["0", ",".join(["1"] * 30)], "", "too many numbers"), (["0", "30"], "0", "not a list"), (["0", "30"], "1,2", "want one number"), (["4"], "", "usage")])
def test_a_calibration_refuses_what_it_cannot_do(calibrate, model, arguments, line, words):
    p = subprocess.run([calibrate, model, *arguments], capture_output=True, text=True, timeout=60, input=line)
    assert p.returncode == 1 and words in p.stderr and p.stdout == ""


@pytest.mark.deadline(240)
def test_a_ring_is_measured_and_predicted(calibrate, hearth, model, tmp_path):
    """The coordinator's own layers, then two nodes on W1 that reach only it: both what is direct and what is relayed."""
    topology = rings.Topology("small", "small", {"a": "W1", "b": "W1"}, [10, 12, 8], relayed=True)
    row = bench.measure(topology, bench.Tools(hearth, calibrate, model), tmp_path, chunks=2, tokens=6)
    assert row["n"] == row["predicted_n"] == 2 * 5
    assert row["hops"] == 3
    for got in (row["measured_ms"], row["predicted_ms"]):
        # Four transits of the air at some tenths of a millisecond at the least, and computing, of which a part may have been faster than its median.
        assert row["computing_ms"] / 4 < got["p50"] <= got["p90"]
    text = (tmp_path / "small/scenario.toml").read_text()
    assert text.count("cut = true") == 1 and text.count("offset = ") == 2 and text.count("[[request]]") == 2
    assert bench.table({"small": row}).count("\n| small | 10, 12, 8 | 10 |") == 1


def test_quantiles_are_nearest_ranks():
    assert [bench.quantile([4, 1, 3, 2], p) for p in (0, .25, .5, .51, .9, 1)] == [1, 1, 2, 3, 4, 4]


def test_parts_share_the_time_of_a_median_token():
    """Four tokens, of which one was computed while the machine was slow."""
    ranges_us, head_us = bench.computing_us([{"ranges": [[10, 10], [30, 30]], "head": [20, 20]}, {"ranges": [[10, 70], [30, 210]], "head": [20, 140]}])
    assert [*ranges_us, head_us] == [10, 30, 20]


class FakeLoad:
    def __init__(self, busy):
        self.busy = list(busy)

    def start(self):
        pass

    def cores(self):
        return self.busy.pop(0)


def test_rounds_alternate_and_busy_ones_are_done_again():
    said = []
    work = [lambda n: said.append("a%d" % n) or len(said), lambda n: said.append("b%d" % n) or len(said)]
    rounds, n_done = bench.alternate(work, FakeLoad([0, 1.5, .1, .2]), 3, 7)
    assert said == ["a7", "b7"] + ["a7", "b7", "b7", "a7"] * 2
    assert n_done == 4 and rounds == [(0, [3, 4]), (.1, [7, 8]), (.2, [10, 9])]


def test_the_quietest_rounds_count_when_none_was_quiet():
    rounds, n_done = bench.alternate([lambda n: n], FakeLoad([.9, .3, .8, .5, .7, .6]), 2, 1)
    assert n_done == bench.ROUNDS_MAX * 2 and [busy for busy, _ in rounds] == [.3, .5]


def test_the_verdict_is_the_median_over_topologies():
    rows = {str(i): {"measured_ms": {"p50": 10, "p90": 20}, "predicted_ms": {"p50": p50, "p90": p90}} for i, (p50, p90) in enumerate([(9, 20), (10.5, 30), (14, 26)])}
    assert [(what, round(d, 6), limit) for what, d, limit in bench.verdicts(rows)] == [("p50", .1, .10), ("p90", .3, .25)]
