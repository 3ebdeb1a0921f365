"""Files of tools/make_model, kept in build/models/made/ from one run to the next.

A file's name has a hash of its words and of the tool's sources: a changed tool makes it anew. Of one name only the newest is kept.
"""
import fcntl
import hashlib
import json
import subprocess

from cluster import ROOT

MADE = ROOT / "build/models/made"
DEMO = ROOT / "build/models/SmolLM2-135M-Instruct.Q4_1.gguf"
SOURCES = ("make_model", "made_shapes.py", "made_blocks.py", "gguf_header.py")

# At most 700 MB of which at least three times a cap of 128 MiB is streamed; its largest tensor alone, 107 MB, is most of such a cap.
STREAMED = ("--shape", "1B", "--layers", "14", "--type", "Q4_0", "--seed", "1")
STREAMED_CAP_MIB = 128


def command(words):
    return [str(ROOT / "tools/make_model"), "--vocab-from", str(DEMO), *map(str, words)]


def sizes(*words):
    """What `--dry-run` tells of them."""
    return json.loads(subprocess.run([*command(words), "--dry-run"], capture_output=True, text=True, check=True).stdout)


def made(name, *words):
    """The path of the file; made now when it is not there. Two that want it at once make it once."""
    h = hashlib.sha256(json.dumps(words).encode())
    for source in SOURCES:
        h.update((ROOT / "tools" / source).read_bytes())
    path = MADE / ("%s-%s.gguf" % (name, h.hexdigest()[:16]))
    MADE.mkdir(parents=True, exist_ok=True)
    with open(MADE / (".%s.lock" % name), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            for old in MADE.glob("%s-*.gguf" % name):
                old.unlink()
            subprocess.run([*command(words), "-o", str(path)], check=True, capture_output=True, text=True)
    return path
