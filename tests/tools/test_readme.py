"""What README.md and SECURITY.md say about files must be so."""
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["README.md", "SECURITY.md"])
def test_every_file_it_names_exists(name):
    text = (ROOT / name).read_text()
    named = set(re.findall(r"`((?:base|kernels|model|engine|proto|net|flow|partition|coordinator|node|cli|tools|tests)/[\w/.]*\w\.\w+)`",
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
