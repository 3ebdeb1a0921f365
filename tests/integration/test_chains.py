"""Two chains of two machines each, as `hearth serve --replicas 2` deals them: both answer at once, the loss of one machine is its own chain's affair,
and an answer whose chain is gone goes on in the other one, with the very same text."""
import json

import pytest

from cluster import wait_until

PROMPT = "Once upon a time"
N = 160


def two_chains(cluster):
    """Returns the names in each chain, in ring order."""
    cluster.serve("--no-node", "--nodes", "4", "--replicas", "2")
    for name in "abcd":
        cluster.join(name, "--threads", "1")
    status = cluster.wait_status(lambda s: len(s.get("chains", [])) == 2 and all(c["ready"] for c in s["chains"]), 90, "two chains")
    assert [c["stages"] for c in status["chains"]] == [2, 2]
    chains = [[], []]
    for n in sorted(status["nodes"], key=lambda n: n["stage"]):
        chains[n["chain"]].append(n["name"])
    return chains


def two_answers(cluster):
    """Two answers under way, one in each chain."""
    answers = [cluster.start_run("client-%d" % i, PROMPT, "--json", "--temp", "0.8", "--seed", str(7 + i), n=N) for i in range(2)]
    wait_until(lambda: [c["active"] for c in cluster.status()["chains"]] == [1, 1], 60, "an answer in each chain")
    wait_until(lambda: cluster.status()["tokens"] >= 10, 60, "ten tokens")
    return answers


def ends_as_alone(cluster, answers):
    for i, p in enumerate(answers):
        assert p.wait_exit(150) == 0, p.log()
        got = json.loads(p.out())
        want = cluster.run_alone(PROMPT, "--temp", "0.8", "--seed", str(7 + i), n=N)
        assert (got["text"], got["output_ids"], got["logits_hash"]) == (want["text"], want["output_ids"], want["logits_hash"])


@pytest.mark.deadline(240)
def test_a_loss_is_the_affair_of_its_chain(cluster):
    chains = two_chains(cluster)
    answers = two_answers(cluster)
    epochs = [c["plan_epoch"] for c in cluster.status()["chains"]]
    cluster.processes[chains[1][0]].kill()
    cluster.wait_status(lambda s: s["chains"][1]["plan_epoch"] != epochs[1] and s["chains"][1]["ready"], 60, "a new plan of the second chain")
    ends_as_alone(cluster, answers)
    status = cluster.status()
    assert status["chains"][0]["plan_epoch"] == epochs[0]
    assert status["recovered"] >= 1 and status["moved"] == 0


@pytest.mark.deadline(240)
def test_an_answer_moves_when_its_chain_is_gone(cluster):
    chains = two_chains(cluster)
    answers = two_answers(cluster)
    for name in chains[0]:
        cluster.processes[name].kill()
    cluster.wait_status(lambda s: s["moved"] == 1, 60, "an answer in the other chain")
    ends_as_alone(cluster, answers)
    status = cluster.status()
    assert not status["chains"][0]["ready"] and status["ready"]


@pytest.mark.deadline(240)
def test_machines_hold_what_the_placement_says(cluster):
    cluster.serve("--name", "desk", "--place", "c=12,desk=18/b=30")
    for name in "dcb":
        cluster.join(name, "--threads", "1")
    status = cluster.wait_status(lambda s: len(s.get("chains", [])) == 2 and all(c["ready"] for c in s["chains"]), 90, "two chains")
    at = {n["name"]: (n["chain"], n["stage"], n["layers"]) for n in status["nodes"] if "stage" in n}
    assert at == {"c": (0, 0, [[0, 12]]), "desk": (0, 1, [[12, 30]]), "b": (1, 0, [[0, 30]])}
    assert cluster.run(PROMPT, n=16)["output_ids"] == cluster.run_alone(PROMPT, n=16)["output_ids"]
    cluster.processes["b"].kill()  # d stands by
    cluster.wait_status(lambda s: s["chains"][1]["ready"] and any(n["name"] == "d" and n.get("chain") == 1 for n in s["nodes"]), 60, "d in its place")


def test_a_placement_that_does_not_hold_the_model_once_is_refused(cluster):
    for options, words in ((["--place", "a=15,b=14"], "chain 0 gives out 29 layers, the model has 30"), (["--place", "a=30", "--rounds", "2"], "leave out --rounds"),
                           (["--place", "a=30/a=30"], "a is named twice")):
        p = cluster.command("serve", cluster.model, "--state", cluster.state("x"), "--no-http", "--listen", "127.0.0.1:0", *options, check=False)
        assert p.returncode != 0 and words in p.stderr, p.stderr
