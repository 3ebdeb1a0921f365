"""A memory cgroup of one test or measurement, whichever version this machine has."""
import os
import pathlib
import re
import subprocess


def _own_path(pattern):
    """This process's cgroup of the hierarchy whose line in /proc/self/cgroup matches."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if re.fullmatch(pattern, controllers if number != "0" else "v2"):
            return path.lstrip("/")
    return None


def _mount(kind, option):
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        _, where, fs, options = line.split()[:4]
        if fs == kind and (option is None or option in options.split(",")):
            return pathlib.Path(where)
    return None


def _places():
    """(version, folder in which a group may be made), the likeliest first."""
    v1, v2 = _mount("cgroup", "memory"), _mount("cgroup2", None)
    if v1:
        own = _own_path(r"(.*,)?memory(,.*)?")
        yield from ((1, v1 / p) for p in ([own] if own else []) + [""])
    if v2:
        own = _own_path("v2")
        yield from ((2, v2 / p) for p in ([own] if own else []) + [""])


class MemoryCgroup:
    """with MemoryCgroup(bytes) as g: subprocess.run(..., preexec_fn=g.enter). Raises Unavailable, with the reason, where there is none."""

    class Unavailable(Exception):
        pass

    def __init__(self, limit_bytes):
        self.folder = None
        reasons = []
        for version, parent in _places():
            folder = parent / ("hearth-test-%d-%d" % (os.getpid(), id(self)))
            try:
                if version == 2 and "memory" not in (parent / "cgroup.subtree_control").read_text().split():
                    if "memory" not in (parent / "cgroup.controllers").read_text().split():
                        raise OSError("cgroup v2 without a memory controller")
                    (parent / "cgroup.subtree_control").write_text("+memory")
                folder.mkdir()
                self.folder, self.version = folder, version
                self._write("memory.limit_in_bytes" if version == 1 else "memory.max", limit_bytes)
                if version == 2 and (folder / "memory.swap.max").exists():
                    self._write("memory.swap.max", 0)
                return
            except OSError as e:
                reasons.append("%s: %s" % (parent, e))
                self.close()
        raise self.Unavailable("no memory cgroup can be made here: %s" % ("; ".join(reasons) or "none is mounted"))

    def _write(self, name, value):
        (self.folder / name).write_text(str(value))

    def _read(self, name):
        return (self.folder / name).read_text()

    def enter(self):
        """In the child, before it becomes the program."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def n_killed(self):
        text = self._read("memory.oom_control" if self.version == 1 else "memory.events")
        m = re.search(r"^oom_kill (\d+)$", text, re.M)
        return int(m.group(1)) if m else 0

    def highest(self):
        """The most that was ever charged, the page cache included."""
        try:
            return int(self._read("memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"))
        except OSError:
            return 0  # memory.peak came with Linux 5.19

    def close(self):
        if self.folder is not None and self.folder.exists():
            try:
                self.folder.rmdir()
            except OSError:
                pass
        self.folder = None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def run(group, argv, **options):
    return subprocess.run([str(a) for a in argv], preexec_fn=group.enter, **options)
