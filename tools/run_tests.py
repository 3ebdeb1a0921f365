#!/usr/bin/env python3
"""Builds and runs Hearth's tests, and counts them.

    python3 tools/run_tests.py SUITE... [--only TEXT] [--fuzz-seconds N]
    python3 tools/run_tests.py all          what `make check` runs: every suite but the long ones

A cmocka program counts each of its tests (TAP), and one failure more when it crashes, times out, or exits non-zero although
all its lines say ok. pytest counts each test (JUnit XML). A command (a build, a fuzz target, tidy) is one test. Output is
shown for failures only; the reasons of skips always. The last line is `N passed, N failed, N skipped`; exit 1 when anything
failed or nothing ran.

Needs nothing but Python's own library: it runs before anything is installed by pip.
"""
import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = "build/models/SmolLM2-135M-Instruct.Q4_1.gguf"
JOBS = 2
SIM_SEEDS = 1000
HOME, HOME_SEEDS = "sim/scenarios/home.toml", 200
LONG = ["recovery-long", "big-model", "integration-asan"]  # what `make test-long` runs
QEMU = ["qemu-aarch64-static", "-cpu", "max"]
OUTPUT_SHOWN = 200  # last lines of what failed
SLOWEST_SHOWN = 8
PYTEST_SECONDS = 2400  # several times what they take alone: others may use the machine

# Tests of code that several threads share: what includes one of these runs under ThreadSanitizer as well.
THREAD_HEADERS = re.compile(
    r'#include\s+[<"](pthread\.h|threads\.h|stdatomic\.h|kernels/pool\.h|engine/(?:worker|engine|crew|stage_work)\.h|net/[a-z_]*\.h|[a-z/]*_runtime\.h)[>"]')


# Not detect_stack_use_after_return: gcc 12 then misaligns locals of 64 bytes' alignment, such as libsodium's hash states.
ASAN_ENV = {"ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1:allocator_may_return_null=1", "UBSAN_OPTIONS": "print_stacktrace=1"}

# Of other folders, what pins numbers that every machine must get: also run on the emulated one.
CROSS_TOO = ("test_network.c", "test_network_faults.c")

# Tests of a whole model's numbers: minutes under a sanitizer, over code that smaller tests of the same folder run there.
NUMBERS_ONLY = {"tests/engine/test_smollm2.c": "compares numbers of the whole model; under sanitizers test_engine runs the same code",
                "tests/engine/test_expert_logits.c": "compares numbers of whole models; under sanitizers test_experts runs the same code"}


@dataclasses.dataclass
class Result:
    name: str
    passed: int = 0
    failed: int = 0
    skips: list = dataclasses.field(default_factory=list)  # "test: reason"
    output: str = ""
    seconds: float = 0.0
    slowest: list = dataclasses.field(default_factory=list)  # (seconds, test)


@dataclasses.dataclass
class Ran:
    code: int  # negative: the signal that ended it
    output: str
    timed_out: bool
    seconds: float

    def why(self):
        if self.timed_out:
            return "timed out after %.0f s and was killed" % self.seconds
        if self.code < 0:
            try:
                return "killed by %s" % signal.Signals(-self.code).name
            except ValueError:
                return "killed by signal %d" % -self.code
        return "exit code %d" % self.code


def run(argv, timeout, env=None):
    """Runs a command in a process group of its own, which is killed when it takes too long or leaves children behind."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as out:
        try:
            p = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                 env={**os.environ, **(env or {})}, start_new_session=True)
        except OSError as e:
            return Ran(127, "%s: %s\n" % (argv[0], e.strerror), False, 0.0)
        timed_out = False
        try:
            p.wait(timeout)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            try:
                os.killpg(p.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            p.wait()
        out.seek(0)
        text = out.read().decode("utf-8", "replace")
    return Ran(p.returncode, text, timed_out, time.monotonic() - start)


def parse_tap(text):
    """Returns (names that passed, names that failed, [(name, reason)] skipped, whether the plan was met)."""
    passed, failed, skipped = [], [], []
    planned, said = None, ""
    for line in text.splitlines():
        m = re.match(r"1\.\.(\d+)", line)
        if m:
            planned = (planned or 0) + int(m.group(1))
            continue
        m = re.match(r"(not )?ok (\d+)(?: # SKIP (.*)| - (.*))?$", line)
        if not m:
            if re.match(r"\s*#?\s*skip", line, re.I):
                said = re.sub(r"^\s*#?\s*skip(ped)?:?\s*", "", line, flags=re.I)
            continue
        if m.group(3) is not None:
            skipped.append((m.group(3), said or "the test gave no reason"))
        elif m.group(1):
            failed.append(m.group(4) or m.group(2))
        else:
            passed.append(m.group(4) or m.group(2))
        said = ""
    met = planned is not None and planned == len(passed) + len(failed) + len(skipped)
    return passed, failed, skipped, met


def cmocka(binary, label="", prefix=(), env=None, timeout=300):
    """One cmocka program."""
    name = "%s%s" % (binary, label)
    ran = run([*prefix, str(binary)], timeout, {"CMOCKA_MESSAGE_OUTPUT": "TAP", **(env or {})})
    passed, failed, skipped, met = parse_tap(ran.output)
    r = Result(name, len(passed), len(failed), ["%s %s: %s" % (name, n, why) for n, why in skipped], seconds=ran.seconds)
    if ran.timed_out or ran.code < 0 or (ran.code != 0 and not failed):
        r.failed += 1
        r.output = "%s: %s\n" % (name, ran.why())
    elif not met:
        r.failed += 1
        r.output = "%s: did not run all the tests it announced\n" % name
    if r.failed:
        r.output = ran.output + r.output
    return r


def command(name, argv, timeout=600, env=None):
    """One command as one test; it fails by its exit code."""
    ran = run(argv, timeout, env)
    r = Result(name, seconds=ran.seconds)
    if ran.code == 0 and not ran.timed_out:
        r.passed = 1
    else:
        r.failed = 1
        r.output = "%s%s: %s\n" % (ran.output, " ".join(map(str, argv)), ran.why())
    return r


def commit():
    p = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return p.stdout.strip() or "unknown"


def skip(name, reason):
    return Result(name, skips=["%s: %s" % (name, reason)])


def pytest(paths, timeout=PYTEST_SECONDS, name="pytest", env=None):
    """Scratch of its own: other runs on this machine keep theirs. Short, because a socket's path has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="hearth-tests-") as scratch:
        return pytest_in(pathlib.Path(scratch), paths, timeout, name, env)


def pytest_in(scratch, paths, timeout, name, env):
    python = ROOT / "build/venv/bin/python"
    setup = run(["sh", "tools/venv.sh", "tools/requirements.txt"], 300)
    if setup.code != 0:
        return Result(name, failed=1, output=setup.output, seconds=setup.seconds)
    xml_path = scratch / "junit.xml"
    ran = run([str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", "--basetemp=%s" % (scratch / "t"),
               "--junitxml=%s" % xml_path, *paths], timeout, env)
    r = Result(name, seconds=ran.seconds)
    if xml_path.exists():
        for case in xml.etree.ElementTree.parse(xml_path).getroot().iter("testcase"):
            kinds = {child.tag: child for child in case}
            r.slowest.append((float(case.get("time", 0)), case.get("name")))
            if "failure" in kinds or "error" in kinds:
                r.failed += 1
            elif "skipped" in kinds:
                r.skips.append("%s %s: %s" % (case.get("classname"), case.get("name"), kinds["skipped"].get("message")))
            else:
                r.passed += 1
    r.slowest = sorted(r.slowest, reverse=True)[:SLOWEST_SHOWN]
    if ran.timed_out or (ran.code not in (0, 5) and r.failed == 0):
        r.failed += 1
    if r.failed:
        r.output = "%s%s: %s\n" % (ran.output, name, ran.why())
    return r


class Runner:
    def __init__(self, args):
        self.args = args
        self.results = []

    def report(self, r):
        self.results.append(r)
        word = "FAIL" if r.failed else "skip" if not r.passed else "ok"
        counts = "%d passed" % r.passed + (", %d failed" % r.failed if r.failed else "") + (
            ", %d skipped" % len(r.skips) if r.skips else "")
        print("%-4s %-62s %-24s %6.1f s" % (word, r.name, counts, r.seconds), flush=True)
        if r.slowest:
            print("     slowest: %s" % ", ".join("%s %.0f s" % (name, s) for s, name in r.slowest), flush=True)
        if r.failed:
            lines = r.output.splitlines()
            if len(lines) > OUTPUT_SHOWN:
                print("     ... %d lines left out" % (len(lines) - OUTPUT_SHOWN))
            print("\n".join("     " + line for line in lines[-OUTPUT_SHOWN:]), flush=True)
        return r

    def each(self, jobs):
        """Runs the callables, JOBS at once; reports each as it ends."""
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            for f in concurrent.futures.as_completed([pool.submit(j) for j in jobs]):
                self.report(f.result())

    def head(self, text):
        print("\n== %s" % text, flush=True)

    def make(self, name, *words, timeout=1800):
        return self.report(command(name, ["make", "--no-print-directory", "-j%d" % JOBS, *words], timeout)).failed == 0

    # Suites, in the order they run.

    def sources(self, keep=lambda path: True):
        found = [p.relative_to(ROOT) for p in sorted((ROOT / "tests").glob("*/test_*.c"))]
        return [p for p in found if keep(p) and (not self.args.only or self.args.only in str(p))]

    def run_units(self, label, config, keep=lambda path: True, make=(), prefix=(), env=None, timeout=300):
        """Builds the tests that `keep` wants in one configuration, and runs them."""
        base = pathlib.Path("build") / config
        binaries = [base / p.with_suffix("") for p in self.sources(keep)]
        if not binaries:
            self.report(skip(label, "no test is of this kind"))
            return
        if self.make("build %s" % label, *make, *map(str, binaries)):
            self.each([lambda b=b: cmocka(b, "", prefix, env, timeout) for b in binaries])

    def suite_build(self):
        self.head("build")
        if self.make("build", "all"):
            # A second make must find nothing to do: else dependencies are wrong.
            self.report(command("a second make does nothing", ["make", "--no-print-directory", "-q", "all"]))

    def suite_tidy(self):
        self.head("tidy")
        self.report(command("tidy", [sys.executable, "tools/tidy.py"]))

    def suite_units(self):
        self.head("unit tests")
        self.run_units("unit tests", "")

    def suite_clang(self):
        self.head("clang")
        if self.make("build all (clang)", "CC=clang", "all"):
            # The arithmetic must give the same bits whoever compiles it.
            self.run_units("kernels (clang)", "clang", lambda p: p.parts[1] == "kernels", ["CC=clang"])

    def sanitized(self, keep=lambda path: True):
        """What a sanitizer is to run: what it leaves out is reported as skipped."""
        for p in self.sources(keep):
            if str(p) in NUMBERS_ONLY:
                self.report(skip(str(p), NUMBERS_ONLY[str(p)]))
        return lambda p: keep(p) and str(p) not in NUMBERS_ONLY

    def suite_asan(self):
        self.head("unit tests under AddressSanitizer and UndefinedBehaviorSanitizer")
        self.run_units("ASan, UBSan", "address-undefined", self.sanitized(), make=["SAN=address,undefined"], env=ASAN_ENV, timeout=600)

    def suite_tsan(self):
        self.head("tests with threads under ThreadSanitizer")
        # Some kernels place mappings where ThreadSanitizer wants its shadow; without address randomisation they do not.
        prefix = ["setarch", platform.machine(), "-R"]
        if shutil.which("setarch") is None or run([*prefix, "true"], 10).code != 0:
            prefix = []
        env = {"TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1:allocator_may_return_null=1"}
        keep = self.sanitized(lambda p: THREAD_HEADERS.search((ROOT / p).read_text()))
        self.run_units("TSan", "thread", keep, ["SAN=thread"], prefix, env, 600)

    def suite_fuzz(self):
        seconds = self.args.fuzz_seconds
        self.head("fuzz targets, %s each" % ("%d s" % seconds if seconds else "corpus and 20,000 runs"))
        names = [p.stem for p in sorted((ROOT / "tests/fuzz").glob("fuzz_*.c")) if not self.args.only or self.args.only in p.stem]
        if not names:
            self.report(skip("fuzz", "no fuzz target"))
        elif self.make("build fuzz targets", "FUZZ=1", "fuzz-binaries"):
            self.each([lambda n=n: self.fuzz(n, seconds) for n in names])

    def fuzz(self, name, seconds):
        """One target: first every file of its corpus, then new inputs. In make check the seed and the count are fixed."""
        target = name[len("fuzz_"):]
        corpus = ROOT / "tests/fuzz/corpus" / target
        crashes = ROOT / "build/fuzz/crashes"
        crashes.mkdir(parents=True, exist_ok=True)
        grown = ROOT / "build/fuzz/corpus" / target
        grown.mkdir(parents=True, exist_ok=True)
        limits = ["-max_total_time=%d" % seconds] if seconds else ["-verbosity=0", "-seed=1", "-runs=20000", "-max_total_time=5"]
        dirs = [str(d) for d in ([grown] if seconds else []) + ([corpus] if corpus.is_dir() else [])]
        with tempfile.TemporaryDirectory() as scratch:
            # libFuzzer writes what it finds into its first folder: never into the committed corpus.
            argv = ["build/fuzz/bin/%s" % name, *limits, "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1",
                    "-artifact_prefix=%s/%s-" % (crashes, target), *(dirs if seconds else [scratch, *dirs])]
            env = {"UBSAN_OPTIONS": "print_stacktrace=1"}
            return command("%s (%d files)" % (name, len(list(corpus.glob("*"))) if corpus.is_dir() else 0), argv,
                           (seconds or 10) * 3 + 60, env)

    def suite_sim(self):
        self.head("simulated clusters: %d seeds, %d of a home, past failures, deliberate bugs" % (SIM_SEEDS, HOME_SEEDS))
        if not self.make("build", "all"):
            return
        self.report(self.sim_check(SIM_SEEDS))
        self.report(self.sim_check(HOME_SEEDS, HOME))
        past = [l.split("#")[0].split() for l in (ROOT / "tests/sim/past_seeds.txt").read_text().splitlines()]
        for words in filter(None, past):
            self.report(command("sim check of past seed %s" % " ".join(words), ["build/bin/hearth", "sim", "check", "--seeds", *words]))
        self.report(cmocka("tests/sim/bugs.py", "", [sys.executable], timeout=1800))

    def sim_check(self, n_seeds, *scenario):
        """Many seeds; and none of the fault classes may be rare, or nothing recover: else the seeds prove little."""
        words = ["sim", "check", *scenario, "--seeds", "1..%d" % n_seeds]
        ran = run(["build/bin/hearth", *words, "--json"], 900)
        r = Result(" ".join(words), seconds=ran.seconds)
        try:
            got = json.loads(ran.output.splitlines()[-1])
            rare = {k: n for k, (n, done) in got["faults"].items() if n * 50 < n_seeds}
            weak = [k for k in ("double_losses", "recovered", "replanned") if got[k] == 0]
            print("%d seeds, %.0f s of virtual time in %.0f s; seeds with an answer that went on after a loss %d, with a double loss %d" % (
                got["seeds"], got["virtual_s"], got["seconds"], got["recovered"], got["double_losses"]))
        except (ValueError, KeyError, IndexError):
            rare, weak = {}, ["no summary"]
        if ran.code != 0 or ran.timed_out or rare or weak:
            r.failed = 1
            r.output = "%s\n%s\nclasses drawn in under 2 %% of seeds: %s; missing: %s\ncommit %s\n" % (ran.output, ran.why(), rare, weak, commit())
        else:
            r.passed = 1
        return r

    def suite_cross(self):
        self.head("aarch64, emulated")
        if platform.machine() == "aarch64":
            self.report(skip("aarch64", "this machine is one: the plain build is the test"))
            return
        for tool in ("aarch64-linux-gnu-gcc", QEMU[0]):
            if shutil.which(tool) is None:
                self.report(Result("aarch64", failed=1, output="%s not found: make setup\n" % tool))
                return
        if not self.make("build all (aarch64)", "CROSS=aarch64", "all") or not self.make("build", "all"):
            return
        self.run_units("kernels (aarch64)", "aarch64", lambda p: p.parts[1] in ("base", "kernels") or p.name in CROSS_TOO, ["CROSS=aarch64"], QEMU,
                       timeout=600)
        self.report(self.same_history())
        self.each([lambda h=h: self.same_hash(*h) for h in (
            ("x86-64, fastest", ["build/bin/hearth"], []), ("x86-64, portable", ["build/bin/hearth"], ["--simd", "portable"]),
            ("aarch64", [*QEMU, "build/aarch64/bin/hearth"], []))])

    def same_history(self):
        """Ten seeds of the simulator on the other machine: not an event may differ."""
        words = ["sim", "check", "--seeds", "1..10", "--json"]
        here, there = run(["build/bin/hearth", *words], 300), run([*QEMU, "build/aarch64/bin/hearth", *words], 600)
        r = Result("history of ten simulated clusters, x86-64 and aarch64", seconds=here.seconds + there.seconds)
        try:
            same = json.loads(here.output)["history"] == json.loads(there.output)["history"]
        except (ValueError, KeyError):
            same = False
        r.passed, r.failed = int(same), int(not same)
        if not same:
            r.output = "x86-64: %s\n%s\naarch64: %s\n%s\n" % (here.output, here.why(), there.output, there.why())
        return r

    def same_hash(self, machine, program, options):
        """A short answer of the demo model: the pinned ids and logits_hash, whatever computes them."""
        name = "logits_hash of a short run (%s)" % machine
        if not (ROOT / MODEL).exists():
            return skip(name, "%s is not there: make model" % MODEL)
        golden = json.loads((ROOT / "tests/golden/cross_hash.json").read_text())
        ran = run([*program, "run", MODEL, *golden["args"], *options, "--json"], 600)
        r = Result(name, seconds=ran.seconds)
        try:
            got = json.loads(ran.output)
            wrong = {k: (got.get(k), golden[k]) for k in ("canon_version", "output_ids", "logits_hash") if got.get(k) != golden[k]}
        except ValueError:
            wrong = {"output": ran.output}
        if ran.code != 0 or wrong:
            r.failed = 1
            r.output = "%s\n%s\n(got, wanted): %s\n" % (ran.output, ran.why(), wrong)
        else:
            r.passed = 1
        return r

    def suite_integration(self):
        self.head("integration tests")
        only = ["-k", self.args.only] if self.args.only else []
        self.report(pytest(["tests", "-m", "not long", *only]))

    def sanitized_integration(self, name, options, timeout):
        """The same tests on the sanitizers' build; tests/integration/conftest.py says how what they find is found."""
        if self.make("build all (ASan, UBSan)", "SAN=address,undefined", "all"):
            only = ["-k", self.args.only] if self.args.only else []
            env = {"HEARTH_BIN": str(ROOT / "build/address-undefined/bin/hearth"), **ASAN_ENV}
            self.report(pytest(["tests/integration", *options, *only], timeout, name, env))

    def suite_recovery_long(self):
        self.head("answers over lost machines, every case")
        self.report(pytest(["tests/integration/test_recovery.py"], 5400, "pytest test_recovery.py"))

    def suite_big_model(self):
        self.head("a model of 40 GB on small machines")
        if self.make("build", "all"):
            self.report(pytest(["tests/integration/test_big_model.py", "-s"], 3 * 3600, "pytest test_big_model.py"))

    def suite_integration_covering(self):
        self.head("integration tests under AddressSanitizer and UndefinedBehaviorSanitizer, a covering part")
        self.sanitized_integration("pytest -m covering (ASan, UBSan)", ["-m", "covering"], PYTEST_SECONDS)

    def suite_integration_asan(self):
        self.head("integration tests under AddressSanitizer and UndefinedBehaviorSanitizer, all of them")
        self.sanitized_integration("pytest (ASan, UBSan)", ["-m", "not long"], 5400)

    def close(self):
        passed = sum(r.passed for r in self.results)
        failed = sum(r.failed for r in self.results)
        skips = [s for r in self.results for s in r.skips]
        print()
        for s in skips:
            print("skipped: %s" % s)
        for r in self.results:
            if r.failed:
                print("failed: %s" % r.name)
        print("%d passed, %d failed, %d skipped" % (passed, failed, len(skips)), flush=True)
        return 1 if failed or not passed else 0


SUITES = [n[len("suite_"):].replace("_", "-") for n in vars(Runner) if n.startswith("suite_")]
NEEDS_MODEL = ["cross", "integration", "recovery-long", "big-model", "integration-covering", "integration-asan"]


def chosen(words):
    """The suites that the words of the command line mean, in the order of their definition."""
    return [n for n in SUITES if n in words or ("all" in words and n not in LONG)]


def main():
    p = argparse.ArgumentParser(description="Builds and runs Hearth's tests, and counts them.")
    p.add_argument("suites", nargs="+", choices=[*SUITES, "all"], metavar="SUITE", help=", ".join([*SUITES, "all"]))
    p.add_argument("--only", help="only tests whose path or name contains this")
    p.add_argument("--fuzz-seconds", type=int, default=0, help="fuzz each target for this long (default: a fixed number of runs)")
    args = p.parse_args()
    os.chdir(ROOT)
    runner = Runner(args)
    start = time.monotonic()
    for name in chosen(args.suites):
        if name in NEEDS_MODEL and not (ROOT / MODEL).exists() and os.environ.get("HEARTH_NO_MODEL") is None:
            runner.report(command("fetch the demo model", ["sh", "tools/model.sh"], 900))
        try:
            getattr(runner, "suite_" + name.replace("-", "_"))()
        except Exception:  # a bug of the runner must not read as success, nor hide the other suites
            runner.report(Result(name, failed=1, output=traceback.format_exc()))
    print("\n%.0f s" % (time.monotonic() - start))
    return runner.close()


if __name__ == "__main__":
    sys.exit(main())
