"""Layers shared among members: the same bits as one machine's, under a cap as well, and shares that are none."""
import re

import pytest

PROMPT = "The quick brown fox jumps over the lazy dog and"


@pytest.mark.covering
@pytest.mark.parametrize("options", [("--tp", "3:2:1"), ("--tp", "1:1:1:1:1:1:1"), ("--tp", "0:4:3"), ("--tp", "2:1", "--wire", "bf16"),
                                     ("--tp", "1:1", "--tp-mode", "mixed"), ("--tp", "3:2:1", "--tp-mode", "mixed-star"),
                                     ("--tp", "1:2:3", "--tp-mode", "mixed-scatter"), ("--tp", "1:3", "--tp-mode", "reduce"),
                                     ("--tp", "1:2:1", "--tp-mode", "reduce-scatter"), ("--tp", "3:1:2:1", "--tp-mode", "mixed-ring"),
                                     ("--tp", "1:2:1", "--tp-mode", "reduce-ring"), ("--tp", "1:1", "--mem", "150M", "--ctx", "256")])
def test_members_give_the_bits_of_one_machine(cluster, options):
    wire = options[2:] if "--wire" in options else ()
    alone, shared = cluster.run_alone(PROMPT, *wire), cluster.run_alone(PROMPT, *options)
    assert shared["output_ids"] == alone["output_ids"]
    assert shared["logits_hash"] == alone["logits_hash"]
    assert shared["tp"]["members"] == len(options[1].split(":"))
    per_layer = {"mixed": 3, "reduce": 2, "mixed-ring": 2 + 6, "reduce-ring": 8}.get(options[3] if "--tp-mode" in options else "", 4)
    assert shared["tp"]["exchanges"] % (per_layer * 30) == 0
    assert all(shared["tp"]["received_bytes"])


def test_members_share_the_output_head_too(cluster):
    for words, per_token in ((("--temp", 0, "--no-logits-hash"), 3 * 64 * 8), (("--temp", 1, "--top-k", 0, "--seed", 3, "--no-logits-hash"), 4 * 49152)):
        alone, shared = cluster.run_alone(PROMPT, *words), cluster.run_alone(PROMPT, "--tp", "3:2:1", "--head", "last", *words)
        assert shared["output_ids"] == alone["output_ids"]
        assert shared["tp"]["head_bytes"] == per_token * len(shared["output_ids"])
    alone, shared = cluster.run_alone(PROMPT, n=4), cluster.run_alone(PROMPT, "--tp", "3:0:1", "--head", "last", "--mem", "150M", "--ctx", "256", n=4)
    assert (shared["output_ids"], shared["logits_hash"]) == (alone["output_ids"], alone["logits_hash"])


def test_members_that_stream_keep_the_bits_and_the_cap(cluster):
    """Two members of one process read their rows again for each token. Columns by lanes cannot be streamed: they are refused before anything is read."""
    words = ("--ctx", "64", "--tp", "2:1")
    alone, shared = cluster.run_alone(PROMPT, n=4), cluster.run_alone(PROMPT, *words, "--mem", "56M", n=4)
    assert shared["logits_hash"] == alone["logits_hash"]
    memory = shared["memory"]
    assert memory["decode"]["read_bytes_per_token"] > 30e6 and memory["highest_bytes"] <= 56 << 20
    assert memory["parts"]["packed"] == 0
    for mode in ("mixed", "reduce"):
        ran = cluster.command("run", cluster.model, "-p", "x", *words, "--tp-mode", mode, "--mem", "56M", check=False)
        lanes, needed = re.search(r"columns by lanes ([\d.]+), .*that takes a cap of ([\d.]+) MiB", ran.stderr).groups()
        assert ran.returncode == 1 and float(lanes) > 15, ran.stderr
        fits = cluster.run_alone(PROMPT, *words, "--tp-mode", mode, "--mem", "%dM" % (float(needed) + 4), n=4)
        assert fits["logits_hash"] == alone["logits_hash"]
        assert abs(fits["memory"]["parts"]["packed"] / (1 << 20) - float(lanes)) < 0.1


def test_rounded_sums_are_the_same_in_every_run(cluster):
    options = ("--tp", "2:1", "--tp-mode", "mixed-scatter", "--tp-payload", "bf16")
    first, again, exact = cluster.run_alone(PROMPT, *options), cluster.run_alone(PROMPT, *options), cluster.run_alone(PROMPT, *options[:4])
    assert first["logits_hash"] == again["logits_hash"] != exact["logits_hash"]
    assert sum(first["tp"]["received_bytes"]) < sum(exact["tp"]["received_bytes"])
    for words, why in ((("--tp-payload", "f16", "--tp-mode", "mixed"), "cannot hold every sum"), (("--tp-payload", "q8"), "nothing is rounded")):
        ran = cluster.command("run", cluster.model, "-p", "x", "--tp", "1:1", *words, check=False)
        assert ran.returncode != 0 and why in ran.stderr, ran.stderr


def test_shares_that_are_none_are_refused(cluster):
    for shares, why in (("3", "shares nothing"), ("0:0", "shares nothing"), ("a:b", "no list of shares"), ("1:2:", "no list of shares"),
                        (":".join("1" * 17), "more than 16 shares"), ("1:99999999999999999999", "no list of shares")):
        ran = cluster.command("run", cluster.model, "-p", "x", "--tp", shares, check=False)
        assert ran.returncode != 0 and why in ran.stderr, ran.stderr
