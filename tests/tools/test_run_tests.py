"""tools/run_tests.py: what counts as passed, failed and skipped, on real cmocka programs that misbehave."""
import importlib.util
import pathlib
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load():
    spec = importlib.util.spec_from_file_location("runner_under_test", ROOT / "tools" / "run_tests.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


runner = load()

HEAD = """#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>
static void good(void **s) { (void)s; }
static void bad(void **s) { (void)s; assert_int_equal(1, 2); }
static void skipped(void **s) { (void)s; print_message("skip: no such device\\n"); skip(); }
static void crashes(void **s) { (void)s; raise(9); }
static void hangs(void **s) { (void)s; for (;;) pause(); }
static int leave(void **s) { (void)s; return 0; }
static int broken(void **s) { (void)s; return -1; }
int main(void)
{
	(void)good; (void)bad; (void)skipped; (void)crashes; (void)hangs; (void)leave; (void)broken;
	const struct CMUnitTest tests[] = {%s};
	int code = cmocka_run_group_tests(tests, NULL, %s);
	%s
	return code;
}
"""


@pytest.fixture
def program(tmp_path):
    def build(tests, teardown="NULL", end=""):
        (tmp_path / "t.c").write_text(HEAD % (", ".join("cmocka_unit_test(%s)" % t for t in tests), teardown, end))
        subprocess.run(["gcc", "-w", "-include", "signal.h", "-o", tmp_path / "t", tmp_path / "t.c", "-lcmocka"], check=True)
        return tmp_path / "t"
    return build


def test_each_test_of_a_program_is_counted(program):
    r = runner.cmocka(program(["good", "good", "bad", "skipped"]))
    assert (r.passed, r.failed, len(r.skips)) == (2, 1, 1)
    assert "no such device" in r.skips[0]
    assert "0x1 != 0x2" in r.output


def test_a_program_that_passes_shows_nothing(program):
    r = runner.cmocka(program(["good"]))
    assert (r.passed, r.failed, r.output) == (1, 0, "")


def test_a_crash_is_a_failure_though_all_lines_say_ok(program):
    r = runner.cmocka(program(["good", "crashes", "good"]))
    assert r.failed == 1
    assert "SIGKILL" in r.output


def test_a_nonzero_exit_is_a_failure_though_all_lines_say_ok(program):
    r = runner.cmocka(program(["good"], end="return 7;"))
    assert (r.passed, r.failed) == (1, 1)
    assert "exit code 7" in r.output


def test_an_early_exit_is_a_failure(program, tmp_path):
    (tmp_path / "quiet").write_text("#!/bin/sh\necho 1..3\necho ok 1 - a\n")
    (tmp_path / "quiet").chmod(0o755)
    r = runner.cmocka(tmp_path / "quiet")
    assert (r.passed, r.failed) == (1, 1)
    assert "announced" in r.output


def test_silence_is_a_failure(tmp_path):
    r = runner.cmocka("/bin/true")
    assert (r.passed, r.failed) == (0, 1)


def test_a_hanging_program_is_killed(program):
    r = runner.cmocka(program(["good", "hangs"]), timeout=1)
    assert r.failed == 1
    assert "timed out" in r.output


def is_alive(pid):
    try:
        return pathlib.Path("/proc/%d/stat" % pid).read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_child_that_stays_is_killed_with_its_program(tmp_path):
    script = tmp_path / "forks"
    script.write_text("#!/bin/sh\nsleep 600 &\necho $! >%s\nexit 0\n" % (tmp_path / "pid"))
    script.chmod(0o755)
    assert runner.command("forks", [str(script)]).passed == 1
    pid = int((tmp_path / "pid").read_text())
    end = time.monotonic() + 10
    while is_alive(pid):
        assert time.monotonic() < end, "the child is still alive"
        time.sleep(0.01)


def test_a_missing_command_is_a_failure():
    r = runner.command("nothing", ["/no/such/command"])
    assert (r.passed, r.failed) == (0, 1)


def test_nothing_run_is_no_success():
    class Args:
        only = None
        fuzz_seconds = 0
    assert runner.Runner(Args()).close() == 1


def test_all_is_every_suite_but_the_long_ones():
    assert set(runner.LONG) < set(runner.SUITES)
    assert runner.chosen(["all"]) == [n for n in runner.SUITES if n not in runner.LONG]
    assert runner.chosen(["tidy", "build", *runner.LONG]) == ["build", "tidy", *runner.LONG]
    for n in runner.SUITES:
        assert callable(getattr(runner.Runner, "suite_" + n.replace("-", "_")))


def test_pytest_counts_in_a_scratch_folder_of_its_own(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import os, pathlib, pytest\n"
        "def test_good(tmp_path): pathlib.Path(os.environ['NOTE']).write_text(str(tmp_path))\n"
        "def test_bad(): assert 1 == 2\n"
        "def test_skipped(): pytest.skip('no such device')\n")
    note = tmp_path / "note"
    r = runner.pytest([str(tmp_path)], 60, "some tests", {"NOTE": str(note)})
    assert (r.name, r.passed, r.failed, len(r.skips)) == ("some tests", 1, 1, 1)
    assert "no such device" in r.skips[0] and "some tests: exit code 1" in r.output
    assert "hearth-tests-" in note.read_text() and not pathlib.Path(note.read_text()).exists()


def test_pytest_without_a_test_to_run_is_no_failure_but_a_late_one_is(tmp_path):
    (tmp_path / "test_late.py").write_text("import time\ndef test_late(): time.sleep(600)\n")
    assert runner.pytest([str(tmp_path), "-k", "nothing"], 60).failed == 0
    r = runner.pytest([str(tmp_path)], 3)
    assert r.failed == 1 and "timed out" in r.output
