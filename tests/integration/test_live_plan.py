"""Plans by cost: machines that measured themselves, one of them slowed down (--slowdown)."""


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
