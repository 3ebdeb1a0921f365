"""What a shell sees of the program: exit codes, which stream, help and version."""
import re
import subprocess

import pytest

from cluster import BIN as HEARTH, PATIENCE, ROOT

pytestmark = pytest.mark.covering

COMMANDS = ["run", "serve", "invite", "join", "revoke", "drain", "status", "inspect", "tokenize", "trace", "sim", "emulate", "cache", "probe", "plan", "doctor"]

FAULTS = re.findall(r'^\tX\(FAULT_\w+, "([\w-]+)"', (ROOT / "sim" / "faults.h").read_text(), re.M)


def hearth(*args):
    return subprocess.run([HEARTH, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30 * PATIENCE, cwd="/")


def test_no_command_is_wrong_usage_and_shows_the_help():
    p = hearth()
    assert (p.returncode, p.stdout) == (2, "") and p.stderr.startswith("usage: hearth COMMAND")


def test_help_lists_every_command_and_the_exit_codes():
    for word in ("--help", "-h", "help"):
        p = hearth(word)
        assert (p.returncode, p.stderr) == (0, "")
        assert [line.split()[0] for line in p.stdout.splitlines() if line.startswith("  ")] == COMMANDS
        assert "130 interrupted" in p.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(command):
    p = hearth(command, "--help")
    assert (p.returncode, p.stderr) == (0, "")
    assert p.stdout.startswith("usage: hearth %s" % command) and "--config FILE" in p.stdout
    assert all(len(line) <= 110 for line in p.stdout.splitlines()[1:])
    assert p.stdout.splitlines()[2][0].isupper() or command in ("trace", "sim", "cache")  # a sentence, and no summary
    for words in (("help", command), ("--help", command)):
        assert hearth(*words).stdout == p.stdout


def test_the_help_says_which_action_an_option_is_for():
    trace, sim = (" ".join(hearth(command, "--help").stdout.split()) for command in ("trace", "sim"))
    assert "--seconds N generate, record: how long the trace is" in trace and "show: what the file is" in trace
    assert "--seeds A..B check: the seeds to run" in sim and "--svg FILE run: draw who does what" in sim


def test_version_shows_the_arithmetic():
    p = hearth("--version")
    assert p.returncode == 0 and re.fullmatch(r"hearth \d+\.\d+\.\d+\ncanonical arithmetic \d+\n", p.stdout)


@pytest.mark.parametrize("args, words", [
    (["srve"], "hearth: unknown command srve, did you mean serve?\ntry `hearth --help`\n"),
    (["\x1b[31m"], "hearth: unknown command ?[31m\ntry `hearth --help`\n"),
    (["run", "m", "--treads", "3"], "hearth run: unknown option --treads, did you mean --threads?\ntry `hearth run --help`\n"),
    (["run", "m", "-n", "x"], "hearth run: --max-tokens: got x, want an integer from 1 to 2147483647\ntry `hearth run --help`\n"),
    (["run", "m", "-n", "0"], "hearth run: --max-tokens: got 0, want an integer from 1 to 2147483647\ntry `hearth run --help`\n"),
    (["sim", "run"], "hearth sim: SCENARIO is missing: a TOML file, see sim/scenarios/\ntry `hearth sim --help`\n"),
    (["sim", "run", "x", "--seeds", "1..3"], "hearth sim: --seeds is for `hearth sim check`\ntry `hearth sim --help`\n"),
    (["sim", "--svg", "x", "check"], "hearth sim: --svg is for `hearth sim run`\ntry `hearth sim --help`\n"),
    (["sim", "check", "--seeds", "0"], "hearth sim: --seeds 0 (want A..B or A, numbers from 1)\ntry `hearth sim --help`\n"),
    (["sim", "check", "--json", "--show"], "hearth sim: --json prints the summary of all seeds: without --show or --shrink\ntry `hearth sim --help`\n"),
    (["sim", "check", "--json", "--shrink", "1"], "hearth sim: --json prints the summary of all seeds: without --show or --shrink\ntry `hearth sim --help`\n"),
    (["trace", "generate", "W1", "--format", "csv"], "hearth trace: --format is for `hearth trace show`\ntry `hearth trace --help`\n"),
    (["trace", "show", "x", "--seconds=5"], "hearth trace: --seconds is for `hearth trace generate` and `hearth trace record`\ntry `hearth trace --help`\n"),
    (["emulate"], "hearth emulate: TOPOLOGY is missing: devices and links, a TOML file\ntry `hearth emulate --help`\n"),
    (["cache"], "hearth cache: ACTION is missing: want one of ls, gc, verify\ntry `hearth cache --help`\n"),
    (["run", "m", "--slots", "2"], "hearth run: `hearth run` has no option --slots: it belongs to `hearth serve`\ntry `hearth run --help`\n"),
    (["serve", "m", "--cache-max", "3G"], "hearth serve: `hearth serve` has no option --cache-max: it belongs to `hearth join`, `hearth cache`\ntry `hearth serve --help`\n"),
    (["help", "rnu"], "hearth: unknown command rnu, did you mean run?\ntry `hearth --help`\n"),
    (["run", "--attach", "m", "-p", "x"], "hearth run: --attach asks the coordinator, which has its model: leave MODEL out\ntry `hearth run --help`\n"),
    (["run", "m", "--system", "s"], "hearth run: --system is a turn of a conversation: want --chat, too\ntry `hearth run --help`\n"),
    (["run", "--attach", "-p", "x", "--tp", "1:1"],
     "hearth run: --attach asks the coordinator, whose --place says which machines share layers: leave out --tp and what is about it\ntry `hearth run --help`\n"),
    (["run", "m", "--tp-mode", "mixed"], "hearth run: --tp-mode and --tp-payload are for layers that are shared: want --tp, too\ntry `hearth run --help`\n"),
    (["run", "m", "--tp-payload", "q8"], "hearth run: --tp-mode and --tp-payload are for layers that are shared: want --tp, too\ntry `hearth run --help`\n"),
    (["serve", "m", "--tp-mode", "mixed"],
     "hearth serve: --tp-mode and --tp-payload are for layers that are shared: want --place with a group, such as b+c=30, too\ntry `hearth serve --help`\n"),
    (["serve", "m", "--place", "a=1,b=2", "--tp-payload", "q8"],
     "hearth serve: --tp-mode and --tp-payload are for layers that are shared: want --place with a group, such as b+c=30, too\ntry `hearth serve --help`\n"),
    (["tokenize", "m", "--system", "s"], "hearth tokenize: --system is a turn of a conversation: want --chat, too\ntry `hearth tokenize --help`\n"),
    (["sim", "check", "--faults", "qqqqqq"], "hearth sim: --faults: no class qqqqqq (want some of %s, or none)\ntry `hearth sim --help`\n" % ", ".join(FAULTS)),
    (["inspect"], "hearth inspect: MODEL is missing: the model, a GGUF file\ntry `hearth inspect --help`\n"),
])
def test_wrong_usage_is_exit_2_and_two_lines(args, words):
    p = hearth(*args)
    assert (p.returncode, p.stdout, p.stderr) == (2, "", words)


def test_an_invite_as_an_argument_is_refused_unrepeated():
    p = hearth("join", "--model", "m", "hearth:TOPSECRET")
    assert p.returncode == 2 and "every user of this machine" in p.stderr and "TOPSECRET" not in p.stderr


@pytest.mark.parametrize("text, words", [("", "no invite was given"), ("nonsense", "invite: does not begin with hearth://"), (None, "cannot read the invite: Is a directory")])
def test_a_wrong_invite_file_is_named(tmp_path, text, words):
    path = tmp_path / "invite"
    path.mkdir() if text is None else path.write_text(text)
    p = hearth("join", "--state", str(tmp_path / "state"), "--cache", str(tmp_path / "cache"), "--invite-file", str(path))
    assert (p.returncode, p.stderr) == (1, "hearth join: %s: %s\n" % (path, words))


def test_a_node_s_directory_is_no_coordinator_s(tmp_path):
    p = hearth("status", "--state", str(tmp_path))
    assert (p.returncode, p.stderr) == (1, "hearth status: no coordinator is running with state directory %s: start it with hearth serve\n" % tmp_path)
    hearth("join", "--state", str(tmp_path / "node"), "--cache", str(tmp_path / "cache"))
    for args in (["status"], ["invite"], ["run", "--attach", "-p", "x"]):
        p = hearth(*args, "--state", str(tmp_path / "node"))
        assert (p.returncode, p.stdout) == (1, "")
        assert "is the state directory of a node: `hearth %s` is for the machine where hearth serve runs" % args[0] in p.stderr


def test_an_empty_cache_says_so(tmp_path):
    for action, words in (("ls", "0 models, 0 MiB"), ("gc", "0 MiB freed"), ("verify", "0 models")):
        p = hearth("cache", action, "--cache", str(tmp_path / "none"))
        assert (p.returncode, p.stdout, p.stderr) == (0, "%s: %s\n" % (tmp_path / "none", words), "")


def test_a_wrong_config_file_is_exit_1_with_its_place(tmp_path):
    path = tmp_path / "home.toml"
    path.write_text("[compute]\ntreads = 1\n")
    p = hearth("run", "m", "--config", str(path))
    assert (p.returncode, p.stdout) == (1, "")
    assert p.stderr == "hearth run: %s:2: unknown key compute.treads, did you mean compute.threads?\n" % path


def test_the_example_file_is_printed():
    p = hearth("example-config")
    assert p.returncode == 0 and p.stdout == (ROOT / "cluster.example.toml").read_text()


def test_a_full_disk_is_an_error():
    with open("/dev/full", "w") as full:
        for args in (["--help"], ["--version"], ["example-config"], ["run", "--help"]):
            assert subprocess.run([HEARTH, *args], stdout=full, stderr=subprocess.PIPE, timeout=30 * PATIENCE).returncode == 1
