"""`hearth sim check` as a user sees it. That the seeds hold is the suite `sim` of tools/run_tests.py."""
import json
import re
import subprocess

from cluster import BIN as HEARTH, PATIENCE, ROOT

HOME = ROOT / "sim" / "scenarios" / "home.toml"


def check(*words):
    return subprocess.run([HEARTH, "sim", "check", *map(str, words)], capture_output=True, text=True, timeout=120 * PATIENCE)


def summary(*words):
    ran = check(*words, "--json")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(ran.stdout)


def test_the_history_does_not_depend_on_the_jobs():
    one, two = summary("--seeds", "1..12", "--jobs", 1), summary("--seeds", "1..12", "--jobs", 3)
    assert one["seeds"] == 12 and one["history"] == two["history"] and one["faults"] == two["faults"]
    assert summary("--seeds", "2..13")["history"] != one["history"]


def test_a_seed_is_a_minute_or_more():
    got = summary("--seeds", "1..10")
    assert got["virtual_s"] >= 600 and got["failed"] == 0


def test_classes_and_windows_leave_faults_out():
    assert sum(n for n, _ in summary("--seeds", "1..10", "--faults", "none")["faults"].values()) == 0
    some = summary("--seeds", "1..30", "--faults", "crash,reset")["faults"]
    assert some["crash"][0] > 0 and some["reset"][0] > 0 and some["pause"][0] == 0
    assert sum(n for n, _ in summary("--seeds", "1..10", "--window", "0..0.5")["faults"].values()) == 0


def test_show_prints_what_happens():
    ran = check("--seeds", 3, "--show")
    assert ran.returncode == 0
    assert re.search(r"^ +\d+\.\d{6}  PLAN \d+ of \d+ stages$", ran.stdout, re.M)
    assert re.search(r"request 0: token 0 is \d+$", ran.stdout, re.M)
    assert re.search(r"^seed 3: history [0-9a-f]{16}, \d+ events$", ran.stdout, re.M)


def test_a_scenario_gives_its_own_cluster():
    ran = check(HOME, "--seeds", "1..2", "--show")
    assert ran.returncode == 0 and "laptop-anna" in ran.stdout
    assert summary(HOME, "--seeds", "1..5")["failed"] == 0


def test_a_seed_that_holds_cannot_be_shrunk():
    ran = check("--shrink", 1, "--faults", "none")
    assert ran.returncode == 1 and "seed 1 does not fail" in ran.stderr


def test_wrong_words_are_code_2():
    for words, said in ((("--seeds", "0"), "--seeds 0"), (("--seeds", "5..4"), "--seeds 5..4"), (("--seeds", "x"), "--seeds x"),
                        (("--faults", "crush"), "did you mean crash?"), (("--window", "3"), "--window 3")):
        ran = check(*words)
        assert ran.returncode == 2 and said in ran.stderr, (words, ran.stderr)
