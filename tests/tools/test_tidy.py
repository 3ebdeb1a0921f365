"""tools/tidy.py, fed a broken tree: each rule must find what breaks it, and nothing in a clean tree."""
import pathlib
import subprocess
import sys

import pytest

TIDY = pathlib.Path(__file__).resolve().parents[2] / "tools" / "tidy.py"


class Tree:
    def __init__(self, root):
        self.root = root
        self.write("base/err.h", "int err_ok(void);\n")
        self.write("base/err.c", '#include "base/err.h"\n\nint err_ok(void)\n{\n\treturn 0;\n}\n')

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def build(self):
        for c in self.root.rglob("*.c"):
            name = c.relative_to(self.root)
            obj = self.root / "build/obj" / name.with_suffix(".o")
            obj.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["gcc", "-O2", "-fPIE", "-fno-builtin", "-ffunction-sections", "-D_GNU_SOURCE", "-I.", "-c", "-o", obj,
                            name], cwd=self.root, check=True)

    def tidy(self):
        self.build()
        p = subprocess.run([sys.executable, TIDY, "--root", self.root], capture_output=True, text=True)
        assert p.returncode in (0, 1), p.stderr
        lines = p.stdout.splitlines()
        assert (p.returncode == 1) == (not lines[-1].startswith("tidy: 0 findings"))
        return lines[:-1]


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def one(lines, *words):
    assert len(lines) == 1, lines
    for w in words:
        assert w in lines[0]


def test_a_clean_tree_has_no_finding(tree):
    assert tree.tidy() == []


def test_base_may_not_include_upwards(tree):
    tree.write("net/loop.h", "int loop_run(void);\n")
    tree.write("base/up.h", '#include "net/loop.h"\n')
    one(tree.tidy(), "base/up.h:1", 'base/ may not include "net/loop.h"')


def test_coordinator_and_node_never_include_each_other(tree):
    tree.write("node/node.h", "int node_step(void);\n")
    tree.write("coordinator/shell/bad.h", '#include "node/node.h"\n')
    one(tree.tidy(), "coordinator/shell/bad.h:1")


def test_a_core_may_include_hparams_but_not_the_model(tree):
    tree.write("model/hparams.h", "struct hparams;\n")
    tree.write("model/model.h", "struct model;\n")
    tree.write("partition/plan.h", '#include "model/hparams.h"\n#include "model/model.h"\n')
    one(tree.tidy(), "partition/plan.h:2")


def test_a_core_may_not_include_threads(tree):
    tree.write("flow/credit.h", "#include <pthread.h>\n")
    one(tree.tidy(), "flow/credit.h:1", "<pthread.h>")


def test_an_include_must_start_at_the_root(tree):
    tree.write("base/log.h", '#include "err.h"\n')
    one(tree.tidy(), "base/log.h:1", "err.h")


def test_a_file_includes_its_own_header_first(tree):
    tree.write("base/err.c", '#include <stdio.h>\n#include "base/err.h"\n\nint err_ok(void)\n{\n\treturn 0;\n}\n')
    one(tree.tidy(), "base/err.c", "first")


def test_a_file_may_begin_with_the_inside_of_its_header(tree):
    tree.write("base/err_state.h", '#include "base/err.h"\n')
    tree.write("base/err.c", '#include "base/err_state.h"\n\nint err_ok(void)\n{\n\treturn 0;\n}\n')
    assert tree.tidy() == []


def test_a_folder_without_a_rule_is_a_finding(tree):
    tree.write("extras/thing.h", "struct thing;\n")
    one(tree.tidy(), "no include rule for extras/")


def test_file_names_are_unique(tree):
    tree.write("net/err.h", "struct x;\n")
    one(tree.tidy(), "not unique", "net/err.h")


def test_a_core_that_reads_the_clock_is_found_through_its_callee(tree):
    tree.write("base/clock.c", "#include <time.h>\n\nlong clock_wall(void);\nlong clock_twice(void);\nlong clock_wall(void)\n{\n"
               "\treturn time(NULL);\n}\n\nlong clock_twice(void)\n{\n\treturn 2;\n}\n")
    tree.write("node/pure.c", "long clock_twice(void);\nlong pure(void);\nlong pure(void)\n{\n\treturn clock_twice();\n}\n")
    assert tree.tidy() == [], "a pure function of a file with impure ones may be called"
    tree.write("node/timed.c", "long clock_wall(void);\nlong timed(void);\nlong timed(void)\n{\n\treturn clock_wall() + 1;\n}\n")
    one(tree.tidy(), "node/timed.o", "timed -> clock_wall -> time")


def test_a_core_that_allocates_in_a_static_function_is_found(tree):
    tree.write("coordinator/alloc.c", "#include <stdlib.h>\n\nvoid *grow(unsigned n);\n"
               "static __attribute__((noinline)) void *more(unsigned n)\n{\n\treturn malloc(n + 1);\n}\n\n"
               "void *grow(unsigned n)\n{\n\treturn more(n * 2);\n}\n")
    one(tree.tidy(), "coordinator/alloc.o", "malloc")


def test_a_core_may_use_memcpy_and_a_table(tree):
    tree.write("flow/table.c", "#include <string.h>\n\nvoid put(int *p);\nconst char *word(int i);\n"
               "static const char *const words[] = {\"a\", \"b\"};\n\n"
               "const char *word(int i)\n{\n\treturn words[i];\n}\n\nvoid put(int *p)\n{\n\tmemcpy(p, p + 8, 64);\n}\n")
    assert tree.tidy() == []


def test_shells_may_call_anything(tree):
    tree.write("node/shell/host.c", "#include <unistd.h>\n\nint host(void);\nint host(void)\n{\n\treturn getpid();\n}\n")
    assert tree.tidy() == []


def test_libm_is_refused_but_fmaf_is_not(tree):
    tree.write("kernels/norm.c", "#include <math.h>\n\nfloat norm(float x);\nfloat norm(float x)\n{\n\treturn fmaf(x, x, x);\n}\n")
    assert tree.tidy() == []
    tree.write("kernels/soft.c", "#include <math.h>\n\nfloat soft(float x);\nfloat soft(float x)\n{\n\treturn expf(x);\n}\n")
    one(tree.tidy(), "kernels/soft.o", "expf of libm")


@pytest.mark.parametrize("line", ["static int counter;", "int counter;", "static int counter = 3;", "_Thread_local int counter;"])
def test_mutable_globals_are_found(tree, line):
    tree.write("engine/count.c", "int next(void);\n%s\n\nint next(void)\n{\n\treturn ++counter;\n}\n" % line)
    one(tree.tidy(), "engine/count.o", "mutable global counter")


def test_a_hidden_static_is_found(tree):
    tree.write("engine/hidden.c", "int next(void);\nint next(void)\n{\n\tstatic int n;\n\treturn ++n;\n}\n")
    one(tree.tidy(), "engine/hidden.o", "mutable global n")


def test_the_environment_is_read_in_cli_only(tree):
    body = "#include <stdlib.h>\n\nchar *home(void);\nchar *home(void)\n{\n\treturn getenv(\"HOME\");\n}\n"
    tree.write("cli/home.c", body)
    assert tree.tidy() == []
    tree.write("net/house.c", body.replace("home", "house"))
    one(tree.tidy(), "net/house.c:6", "cli/ only")


def test_text_rules(tree):
    tree.write("base/a.h", "struct a; \n")
    tree.write("base/b.h", "// TO" "DO: later\n")
    tree.write("base/c.h", "struct c;")
    tree.write("base/d.h", "struct d;\n" * 1001)
    found = tree.tidy()
    assert len(found) == 4, found
    for line, words in zip(found, ("base/a.h:1: trailing", "base/b.h:1: a note", "base/c.h: no newline", "base/d.h: 1001 lines")):
        assert line.startswith(words)


def test_a_long_function_is_a_warning_only(tree):
    tree.write("base/long.c", "int f(int x);\nint f(int x)\n{\n" + "\tx++;\n" * 80 + "\treturn x;\n}\n")
    one(tree.tidy(), "warning: base/long.c:3", "81 lines")


def test_a_deliberate_bug_must_follow_the_code_it_edits(tree):
    tree.write("tests/sim/bugs.py", 'BUGS = {"too many": ("base/err.c", "\\treturn 0;\\n", "")}\n')
    assert tree.tidy() == []
    tree.write("tests/sim/bugs.py", 'BUGS = {"too many": ("base/err.c", "\\treturn 1;\\n", "")}\n')
    assert [l for l in tree.tidy() if "too many: what it replaces stands 0 times in base/err.c" in l]
