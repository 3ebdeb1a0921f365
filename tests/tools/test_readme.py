"""What README.md and SECURITY.md say about files must be so."""
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["README.md", "SECURITY.md"])
def test_every_file_it_names_exists(name):
    text = (ROOT / name).read_text()
    named = set(re.findall(r"`((?:bench|docs|base|kernels|model|engine|proto|net|flow|partition|coordinator|node|cli|tools|tests)/[\w/.]*\w\.\w+)`",
                           text)) | set(re.findall(r"\]\(([\w./-]+)\)", text))
    missing = sorted(n for n in named if not (ROOT / n).exists())
    assert missing == []


def test_the_tour_names_functions_of_the_files_beside_them():
    readme = (ROOT / "README.md").read_text()
    tour = readme[readme.index("## Follow one token"):readme.index("Everything the cores decide")]
    steps = re.split(r"\n\d\. ", tour)[1:]
    assert len(steps) >= 8
    missing = []
    for step in steps:
        files = re.findall(r"`([a-z0-9_]+/[\w/.]+\.[ch])`", step)
        text = "".join((ROOT / f).read_text() for f in files)
        for name in re.findall(r"`([a-z]\w*_\w+)`", step):
            if not re.search(r"\b%s\(" % name, text):
                missing.append((name, files))
    assert missing == []


def test_the_first_line_a_reader_types_installs_three_packages():
    assert "    apt-get install -y git make ca-certificates\n" in (ROOT / "README.md").read_text()


def test_every_package_of_the_readme_is_one_that_setup_installs():
    readme = (ROOT / "README.md").read_text()
    setup = (ROOT / "tools" / "setup.sh").read_text()
    table = readme[readme.index("| Debian package | for |"):]
    table = table[:table.index("\n\n")]
    packages = set(re.findall(r"\b(lib[\w.+-]+|protobuf-c-compiler|gcc[\w-]*|clang|qemu-user-static|python3[\w-]*|binutils)\b",
                              "\n".join(line.split("|")[1] for line in table.splitlines()[2:])))
    assert len(packages) > 10
    assert sorted(p for p in packages if not re.search(r"\b%s\b" % re.escape(p), setup)) == []


README = (ROOT / "README.md").read_text()


def test_the_commands_it_lists_are_those_of_the_program():
    table = (ROOT / "cli" / "commands.c").read_text()
    shown = re.findall(r'^\t\{"([a-z-]+)", FOR_\w+, "([^"]*)"', table, re.M)
    hidden = ["example-config"]
    rows = re.findall(r"^\| `hearth (\w+)([^`]*)` \|", README[README.index("## Commands"):], re.M)
    assert sorted(name for name, _ in rows) == sorted(name for name, _ in shown if name not in hidden)
    for name, words in rows:
        assert words.strip().split(" -p")[0] in dict(shown)[name], (name, words)


def test_the_ports_it_lists_are_the_defaults():
    options = (ROOT / "cli" / "option_table.c").read_text()
    rows = re.findall(r"^\| (\d+) \| [^|]*?(all addresses|loopback only) \(`(\w+) (--\w+)`\)", README, re.M)
    assert len(rows) == 3
    for port, where, command, flag in rows:
        host = "0.0.0.0" if where == "all addresses" else "127.0.0.1"
        entry = [e for e in re.split(r"\n\t\{", options) if '.flag = "%s"' % flag in e and "FOR_%s" % command.upper() in e]
        assert len(entry) == 1 and '.preset = "%s:%s"' % (host, port) in entry[0], (port, entry)


@pytest.mark.parametrize("name", ["README.md", "docs/http-api.md"])
def test_every_option_it_names_is_one(name):
    options = (ROOT / "cli" / "option_table.c").read_text()
    flags = set(re.findall(r'\.flag = "(--[\w-]+)"', options)) | {"--help"}
    text = (ROOT / name).read_text()
    # A line that calls another program has that program's options.
    ours = "\n".join(line for line in text.splitlines() if not re.search(r"python3? |apt-get|dpkg", line))
    named = set(re.findall(r"(?<![\w-])(--[a-z][\w-]+)", ours))
    assert len(named) > 2 and named - flags == set()


def test_every_make_target_and_script_it_names_is_there():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"(?:`| {4})make ([a-z][a-z-]*)", README))
    assert targets >= {"demo", "check", "setup", "help", "tidy"}
    assert [t for t in sorted(targets) if not re.search(r"^%s:" % t, makefile, re.M)] == []
    scripts = set(re.findall(r"(?:python3|sh) ((?:bench|tools)/[\w/.]+)", README))
    assert [s for s in sorted(scripts) if not (ROOT / s).exists()] == []


def test_make_help_lists_every_target_that_is_for_people():
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.M).group(1).split()
    internal = {"all", "help", "distclean", "venv", "unit-binaries", "fuzz-binaries"}
    helped = set(re.findall(r"^\t@echo 'make ([\w-]+)", makefile, re.M))
    assert helped == set(phony) - internal


def test_make_check_runs_what_it_says():
    words = re.search(r"runs all tests: ([^.]*)\.", README).group(1)
    runner = (ROOT / "tools" / "run_tests.py").read_text()
    for word, suite in (("the plain build", "units"), ("sanitizers", "asan"), ("fuzz targets", "fuzz"), ("clang", "clang"), ("emulated aarch64", "cross")):
        assert word in words and "def suite_%s(" % suite in runner


def test_the_weight_types_it_lists_are_those_that_have_products():
    text = re.search(r"weight types other than ([\w, ]+)\.", flat("What is not there yet")).group(1)
    kernels = (ROOT / "kernels" / "kernels.c").read_text() + (ROOT / "kernels" / "weight_block.c").read_text()
    for name in re.split(r", | and ", text):
        assert re.search(r"\bDTYPE_%s\b" % name, kernels), name


def test_the_api_document_is_linked_and_names_the_parameters_that_are_read():
    assert "](docs/http-api.md)" in README
    text = (ROOT / "docs" / "http-api.md").read_text()
    table = text[text.index("| parameter |"):text.index("## The same answer again")]
    named = set(re.findall(r"`([a-z_]+)(?:\.[a-z_]+)?`", "\n".join(row.split("|")[1] for row in table.splitlines() if row.startswith("|"))))
    source = (ROOT / "coordinator" / "shell" / "openai_request.c").read_text()
    assert named == set(re.findall(r'^\t\{"(\w+)", (?:BOTH|CHAT|COMPLETION), ', source, re.M))


def section(title):
    return README[README.index("\n## %s\n" % title):].split("\n## ")[1]


def flat(title):
    return " ".join(section(title).split())


def test_the_folders_of_the_tour_are_those_that_have_sources():
    listed = set(re.findall(r"(?:^ {4}| {2,})([a-z]+(?:/shell)?)/(?= |:)", section("Follow one token"), re.M))
    have = {str(f.parent.relative_to(ROOT)) for d in ROOT.iterdir() if d.is_dir() and d.name not in ("build", "tests", "bench", "tools") for f in d.rglob("*.c")}
    assert listed | {"sim/shell"} == have


def test_the_section_on_memory_tells_of_rounds():
    text = flat("Models bigger than memory")
    options = (ROOT / "cli" / "option_table.c").read_text()
    assert "`hearth serve big.gguf --rounds K`" in text and "bits do not change" in text
    assert re.search(r'"--rounds".*FOR_SERVE,', options)
    assert "| `rounds` |" in (ROOT / "docs" / "scenarios.md").read_text()
    assert "ms of waiting for the disk" in (ROOT / "cli" / "status.c").read_text()


def test_what_it_says_is_not_there_is_not():
    text = flat("What is not there yet")
    sources = [f for d in ("kernels", "engine", "net", "partition", "cli", "coordinator", "model") for f in (ROOT / d).rglob("*.[ch]")]
    code = "\n".join(f.read_text() for f in sources)
    for what, sign in (("NEON", "arm_neon.h"), ("io_uring", "liburing.h"), ("No GPU", "cuda")):
        assert what in text and sign not in code
    assert "tensor-parallel groups lack" in text and "## What is not there yet" in (ROOT / "docs" / "groups.md").read_text()
    assert set(re.findall(r"`(\w+)`(?= \(also| and `qwen| *,|, with)", text)) == set(re.findall(r'\[ARCH_\w+\] = "(\w+)"', code))
    for there in ("--mem", "AVX-512", "copy", "experts are", "iscovery", "measures"):
        assert there not in text


def test_its_text_is_wrapped_and_its_links_lead_somewhere():
    prose = [line for line in README.splitlines() if not line.startswith(("|", "    "))]
    assert max(len(line) for line in prose) <= 130
    headings = {re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^## (.*)$", README, re.M)}
    assert set(re.findall(r"\]\(#([^)]*)\)", README)) <= headings


def test_each_document_is_linked_from_it():
    assert [f.name for f in (ROOT / "docs").glob("*.md") if "](docs/%s)" % f.name not in README] == []


def test_a_command_line_stands_in_it_once():
    lines = [line.strip() for line in re.findall(r"^ {4,}((?:build/bin/)?hearth .*|make .*|python3 .*|curl .*)$", README, re.M)]
    assert len(lines) > 15 and sorted(set(lines)) == sorted(lines)
