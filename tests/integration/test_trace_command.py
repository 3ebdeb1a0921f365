"""hearth trace: what it writes it reads, its quantiles are the profiles', and what is wrong is said with file and line."""
import json
import subprocess

import pytest

from cluster import BIN as HEARTH, PATIENCE


def trace(*args, stdin=b""):
    return subprocess.run([HEARTH, "trace", *map(str, args)], input=stdin, capture_output=True, timeout=60 * PATIENCE)


def summary(*args, stdin=b""):
    p = trace(*args, "--json", stdin=stdin)
    assert (p.returncode, p.stderr) == (0, b"")
    return json.loads(p.stdout)


# At 5 s from probe to probe each sees a draw of its own: the table of docs/traces.md, as its header says. Within 5 %: the rounding of the
# table, and three standard errors of 100,000 draws.
@pytest.mark.parametrize("profile, p50, p90", [("W0", .25, .344), ("W1", 2.04, 3.63), ("W2", 3.02, 19.6), ("W3", 6.12, 8.29),
                                               ("W4", 21.9, 109.7), ("W5", 85, 385), ("W5b", 3.68, 237.5)])
def test_a_generated_trace_has_the_quantiles_of_its_profile(tmp_path, profile, p50, p90):
    out = tmp_path / "x.csv"
    made = summary("generate", profile, "--seconds", 500000, "--interval-ms", 5000, "-o", out)
    assert made["n"] == 100000 and made["n_lost"] == 0
    assert made["rtt_ms"]["p50"] == pytest.approx(p50, rel=.05) and made["rtt_ms"]["p90"] == pytest.approx(p90, rel=.05)
    assert summary("show", out) == made
    assert summary("show", "-", stdin=out.read_bytes()) == made


def test_the_same_seed_writes_the_same_bytes_and_the_header_says_how():
    a, b, c = (trace("generate", "w2", "--seconds", 50, "--seed", s) for s in (7, 7, 8))
    assert a.returncode == 0 and a.stdout == b.stdout != c.stdout
    lines = a.stdout.decode().splitlines()
    assert lines[:3] == ["# hearth trace generate W2 --seconds 50 --interval-ms 1000 --seed 7", "# typical Wi-Fi", "t_s,rtt_ms,lost"]
    assert len(lines) == 53 and lines[3].startswith("0,")


def test_a_link_in_use_is_spared_power_save(tmp_path):
    idle = summary("generate", "W5b", "--seconds", 2000, "-o", tmp_path / "a.csv")
    busy = summary("generate", "W5b", "--seconds", 100, "--interval-ms", 50, "-o", tmp_path / "b.csv")
    assert idle["rtt_ms"]["p90"] > 200 and busy["rtt_ms"]["p99"] < 10


def test_a_restart_loses_and_w9_has_one_straggler(tmp_path):
    restart = summary("generate", "W8", "--seconds", 300, "-o", tmp_path / "a.csv")
    assert 45 <= restart["n_lost"] <= 121
    straggler = summary("generate", "W9", "-o", tmp_path / "b.csv")
    other = summary("generate", "W9", "--station", 1, "-o", tmp_path / "c.csv")
    assert straggler["rtt_ms"]["p50"] > 40 > 4 > other["rtt_ms"]["p50"]


def test_every_format_is_known_by_its_looks(tmp_path):
    ping = (b"PING 10.0.0.1 (10.0.0.1) 56(84) bytes of data.\n[1700000000.5] 64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=2.5 ms\n"
            b"[1700000002.5] 64 bytes from 10.0.0.1: icmp_seq=3 ttl=64 time=4.5 ms\n")
    got = summary("show", "-", stdin=ping)
    assert (got["format"], got["n"], got["n_lost"], got["rtt_ms"]["max"]) == ("ping -D output", 3, 1, 4.5)
    got = summary("show", "-", stdin=b"1\n2\n3\n")
    assert (got["format"], got["n"], got["rate_mbit"]) == ("mahimahi delivery trace", 3, 12)
    got = summary("show", "-", stdin=b"# table\n-8192 0 8192\n")
    assert (got["format"], got["sigmas"]["min"], got["sigmas"]["max"]) == ("tc-netem distribution table", -1, 1)
    assert summary("show", "-", "--format", "netem", stdin=b"1\n2\n")["n"] == 2
    text = trace("show", "-", stdin=ping).stdout.decode()
    assert text.startswith("standard input: ping -D output\n") and "3 in 3.0 s, 1 lost (33.33 %)" in text


def test_what_is_wrong_is_said_with_file_and_line(tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_bytes(b"t_s,rtt_ms\n0,1\n1,\xff\x1b[31m\n")
    p = trace("show", bad)
    assert (p.returncode, p.stdout) == (1, b"")
    assert p.stderr.decode() == 'hearth trace: %s:3: rtt_ms "??[31m" is not a number\n' % bad
    assert trace("show", tmp_path / "missing").returncode == 1
    assert trace("show", tmp_path).returncode == 1
    assert trace("show", "-").returncode == 1
    p = trace("generate", "W1", "-o", tmp_path / "no" / "such.csv")
    assert p.returncode == 1 and b"No such file" in p.stderr


@pytest.mark.parametrize("args, words", [
    ([], "ACTION is missing"), (["sow"], "want one of generate, show, record"), (["generate"], "PROFILE is missing"), (["show"], "FILE is missing"), (["record"], "FOLDER is missing"),
    (["generate", "W11"], "no profile W11 (want W0 to W9, or W5b)"), (["generate", "W1", "--json"], "give --output FILE"),
    (["generate", "W1", "--seconds", "0"], "want an integer from 1 to 10000000"), (["show", "x", "--format", "xml"], "csv, ping, mahimahi, netem"),
])
def test_wrong_usage_is_exit_2(args, words):
    p = trace(*args)
    assert (p.returncode, p.stdout) == (2, b"") and words in p.stderr.decode() and p.stderr.decode().endswith("try `hearth trace --help`\n")


def test_a_recording_without_a_coordinator_leaves_no_folder(tmp_path):
    p = trace("record", tmp_path / "traces", "--state", tmp_path / "state", "--seconds", 1)
    assert (p.returncode, p.stdout) == (1, b"") and not (tmp_path / "traces").exists()


def test_too_many_samples_are_refused_before_memory_is_taken():
    p = trace("generate", "W1", "--seconds", 10000000, "--interval-ms", 1)
    assert p.returncode == 1 and b"at most 8388608" in p.stderr


def test_a_full_disk_is_an_error():
    for args in (["generate", "W1"], ["show", "-"]):
        with open("/dev/full", "w") as full:
            p = subprocess.run([HEARTH, "trace", *args], input=b"1\n2\n", stdout=full, stderr=subprocess.PIPE, timeout=60 * PATIENCE)
            assert p.returncode == 1
    p = trace("generate", "W1", "-o", "/dev/full")
    assert p.returncode == 1 and b"No space left" in p.stderr
