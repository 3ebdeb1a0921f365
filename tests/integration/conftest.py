"""Fixtures of the integration tests, which run the program itself as a user would: a coordinator and nodes as processes.

    def test_three_nodes_answer(cluster):
        cluster.serve("--no-node", "--nodes", "3")
        for name in ("a", "b", "c"):
            cluster.join(name)
        cluster.wait_ready()
        assert cluster.run("Hello", n=8)["output_ids"] == ...

Every process a test started is killed when it ends; the logs of a test that failed are part of its report. Nothing sleeps:
tests wait for a condition with a deadline (cluster.wait_until), and each test has one itself (120 s, or @pytest.mark.deadline(n)).

The program may be a sanitizer's build (HEARTH_BIN): then every process writes what the sanitizer finds into one folder, every process that a test
leaves running is ended in order, so that leaks are found, and a test fails that leaves a report. Tests marked `covering` are enough
to go through every part of the program once.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import cluster as cluster_module  # noqa: E402
import made as made_module  # noqa: E402

DEADLINE_S = 120
# Nothing under test announces itself on the network of whoever runs the tests (test_discovery.py has a bus of its own).
os.environ["DBUS_SYSTEM_BUS_ADDRESS"] = "unix:path=/nonexistent/bus"
# Nor does it leave anything in that user's cache; what is known of the model's file is shared between tests, as between any programs of a machine.
CACHE = tempfile.TemporaryDirectory(prefix="hearth-cache-")
os.environ["XDG_CACHE_HOME"] = CACHE.name
LOG_SHOWN = 6000  # bytes of each log, its end


class SanitizerReports:
    """What sanitizers say of the processes under test."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hearth-reports-"))
        for name, options in (("ASAN_OPTIONS", "quarantine_size_mb=32"), ("UBSAN_OPTIONS", "print_stacktrace=1")):
            os.environ[name] = ":".join(filter(None, [os.environ.get(name), options, "log_path=%s/report" % self.folder]))

    def take(self):
        """Returns the text of the reports since the last time."""
        texts = []
        for path in sorted(self.folder.iterdir()):
            texts.append("%s:\n%s" % (path.name, path.read_text(errors="replace")))
            path.unlink()
        return "\n".join(texts)


def pytest_configure(config):
    config.addinivalue_line("markers", "deadline(seconds): how long the test may take, instead of %d" % DEADLINE_S)
    config.addinivalue_line("markers", "covering: of the tests that a sanitizer's build runs in `make check`")
    config.addinivalue_line("markers", "long: not in `make check`, only in `make test-long`")
    config.hearth_reports = SanitizerReports()


def pytest_sessionfinish(session):
    text = session.config.hearth_reports.take()
    if text:  # of a process that outlived its test: a module's
        print("\n%s\na sanitizer's report after the last test" % text)
        session.exitstatus = 1


def pytest_unconfigure(config):
    shutil.rmtree(config.hearth_reports.folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def no_sanitizer_report(request):
    """Set up before any cluster of the test, hence checked when that is closed."""
    yield
    text = request.config.hearth_reports.take()
    if text:
        pytest.fail("a sanitizer reports:\n%s" % text, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    marker = item.get_closest_marker("deadline")
    seconds = (marker.args[0] if marker else DEADLINE_S) * cluster_module.PATIENCE

    def late(signum, frame):
        raise TimeoutError("the test took longer than its deadline of %d s" % seconds)

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        for c in getattr(item, "hearth_clusters", []):
            for name, text in c.logs(LOG_SHOWN):
                report.sections.append((name, text))
    return report


@pytest.fixture(scope="session")
def hearth():
    """Path of the program under test: HEARTH_BIN, or the plain build."""
    path = cluster_module.BIN
    assert path.exists(), "%s is not there: run make first" % path
    return path


@pytest.fixture(scope="session")
def model():
    """Path of the demo model."""
    path = cluster_module.ROOT / "build/models/SmolLM2-135M-Instruct.Q4_1.gguf"
    if not path.exists():
        pytest.skip("%s is not there: make model" % path.relative_to(cluster_module.ROOT))
    return path


@pytest.fixture(scope="session")
def streamed_model(model):
    """Path of a model of several times its cap (made.STREAMED_CAP_MIB), made once and kept in build/models/made/."""
    return made_module.made("streamed", *made_module.STREAMED)


@pytest.fixture
def cluster(request, tmp_path, hearth, model):
    """A cluster of processes with state directories of their own."""
    c = cluster_module.Cluster(hearth, model, tmp_path)
    request.node.hearth_clusters = [*getattr(request.node, "hearth_clusters", []), c]
    yield c
    c.close()


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    subprocess.run([sys.executable, cluster_module.ROOT / "tools/make_tiny_model.py", "--ctx", "32768", path], check=True)
    return path


@pytest.fixture
def tiny_cluster(request, hearth, tiny_model, tmp_path):
    """A cluster of one test's own."""
    c = cluster_module.Cluster(hearth, tiny_model, tmp_path)
    request.node.hearth_clusters = [c]
    yield c
    c.close()
