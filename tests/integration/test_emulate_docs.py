"""docs/emulate.md, typed as it stands there: its topology, its cluster, its faults."""
import json
import re
import shlex
import subprocess

import pytest

from cluster import PATIENCE, ROOT, wait_until
from emulated import free_subnet

DOCS = (ROOT / "docs/emulate.md").read_text()


def blocks():
    """The indented blocks of the page."""
    return [re.sub(r"^    ", "", b.strip("\n"), flags=re.M) for b in re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+", DOCS, re.M)]


@pytest.fixture
def typed(cluster):
    """Runs lines of the page in the test's folder: the subnet is a free one, the model where it is, everything else as it is written."""
    subnet = free_subnet()

    def translate(line):
        return line.replace("127.77.", "127.%d." % subnet).replace("model.gguf", str(cluster.model))

    def words(line):
        out = shlex.split(translate(line))
        assert out[0] == "hearth"
        for i, w in enumerate(out[:-1]):
            if w in ("--state", "--control"):
                out[i + 1] = str(cluster.folder / out[i + 1])
        return [str(cluster.folder / w) if w == "home.toml" else w for w in out[1:]]

    cluster.translate, cluster.words, cluster.subnet = translate, words, subnet
    return cluster


def commands():
    return [line for b in blocks() for line in b.split("\n") if line.startswith("hearth ")]


@pytest.mark.deadline(180)
def test_the_page_works_as_it_is_written(typed):
    topology = next(b for b in blocks() if b.startswith("# home.toml"))
    (typed.folder / "home.toml").write_text("subnet = %d\n" % typed.subnet + typed.translate(topology) + "\n")
    emulate, serve, join_laptop, join_pi, run, cut, heal = commands()
    relay = typed.start("emulate", *typed.words(emulate))
    wait_until(lambda: (typed.folder / "emulate.sock").exists() or not relay.is_running(), 20, "the relay")
    typed.coordinator = "hub"
    typed.start("hub", *typed.words(serve), "--no-http")
    hub_state = str(typed.folder / "hub")

    def status():
        p = typed.command("status", "--state", hub_state, "--json", check=False)
        return json.loads(p.stdout) if p.returncode == 0 else None
    wait_until(status, 60, "the coordinator")
    for join in (join_laptop, join_pi):
        invite, node = (part.strip() for part in join.split("|"))
        url = typed.command(*typed.words(invite)).stdout
        words = typed.words(node)
        words[words.index("-")] = "--invite-file"
        name = words[words.index("--name") + 1]
        path = typed.folder / ("%s.invite" % name)
        path.touch(0o600)
        path.write_text(url)
        typed.start(name, *words[:2], str(path), *words[2:], "--threads", "1")
    wait_until(lambda: status()["ready"], 60, "a plan")
    alone = typed.command("run", typed.model, "-n", 16, "-p", "Once upon a time").stdout
    assert typed.command(*typed.words(run)).stdout == alone
    assert "blackhole" in typed.command(*typed.words(cut)).stdout
    pairs = json.loads(typed.command("emulate", "--control", typed.folder / "emulate.sock", "--send", "status", "--json").stdout)["pairs"]
    assert any(p["fault"]["silent_out"] for p in pairs if {p["from"], p["to"]} == {"laptop", "pi"})
    assert {p["from"] for p in pairs if p["to"] == "hub" and p["open"] >= 2} == {"laptop", "pi"}
    assert "healed" in typed.command(*typed.words(heal)).stdout
    # What it says it prints, it prints: every address of the page.
    for i in (1, 2, 3):
        assert "127.%d.0.%d:7434" % (typed.subnet, i) in relay.out()
    assert "laptop at 127.%d.2.3" % typed.subnet in relay.out()


def test_the_tables_name_every_key_and_command(hearth):
    """A key that the parser suggests or the page names is known to both."""
    parser = (ROOT / "sim/shell/topology.c").read_text()
    keys = set(re.findall(r'\{"(\w+)", set_', parser)) - {"network", "access_point", "device", "link"}
    named = set(re.findall(r"`(\w+)`", DOCS))
    assert keys <= named, keys - named
    words = (ROOT / "sim/shell/emulate_words.c").read_text()
    verbs = set(re.findall(r'\{"(\w+)", do_', words))
    assert verbs == {"cut", "heal", "slow", "freeze", "status", "help"}
    assert all(re.search(r"`%s\b" % v, DOCS) for v in verbs)


def test_an_error_names_file_and_line(hearth, tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text('[[device]]\nname = "a"\nat = "127.0.0.1:1"\nprofil = "W1"\n')
    p = subprocess.run([str(hearth), "emulate", str(path)], capture_output=True, text=True, timeout=20 * PATIENCE)
    assert p.returncode == 1
    assert "bad.toml:4: device: unknown key profil, did you mean profile?" in p.stderr
