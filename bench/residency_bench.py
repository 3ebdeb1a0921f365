#!/usr/bin/env python3
"""Models bigger than memory: how much of the disk `hearth run --mem` uses, and what that gives against llama.cpp in the same memory.

Four comparisons, each in alternating pairs (paired.py), on a model of tools/make_model that is far larger than its cap:

  disk      bytes streamed per second of a token's time, over what the same reader reaches alone on this disk (residency_reader.c)
  time      a token's time over max(computing, bytes streamed / that rate); computing is a token without a cap
  fits      tokens per second with a cap that holds everything, over those without a cap; the file is in the page cache before
  llama.cpp tokens per second in a memory cgroup of half the model's size, over llama.cpp's in the same; both with the same threads, its
            weights in the mapped file (its other buffers would not fit)

The reader's own rate is measured next to each run, because a shared disk changes by the minute. A page that stayed in the page cache would be read by
the next run for nothing, and belongs to no cgroup: it is looked for.
"""
import argparse
import ctypes
import json
import mmap
import os
import pathlib
import subprocess
import sys

import paired

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/integration"))
import made  # noqa: E402
import memory_cgroup  # noqa: E402

HEARTH = ROOT / "build/bin/hearth"
READER = ROOT / "build/bench/residency_reader"
ORACLE = ROOT / "build/oracle/bin/llama_oracle"
MIB = 1 << 20
BESIDE_MIB = 24  # of a cgroup, beside the cap: page tables, sockets
STAYED_MAX = .01 # of a file that was dropped
LIMITS = {"disk": 0.95, "time": 1.05, "fits": 0.98, "llama": 2.0}


def build_reader():
    READER.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([os.environ.get("CC", "gcc"), "-std=c11", "-O3", "-D_GNU_SOURCE", "-I.", "-ffp-contract=off", "-o", READER, "bench/residency_reader.c",
                    "build/libhearth.a", "-lsodium", "-lm", "-lpthread"], cwd=ROOT, check=True)


def cached_part(fd):
    """Which part of a file the page cache has."""
    size = os.fstat(fd).st_size
    with mmap.mmap(fd, size, access=mmap.ACCESS_COPY) as m:
        first = ctypes.c_char.from_buffer(m)
        pages = (ctypes.c_ubyte * (-(-size // mmap.PAGESIZE)))()
        failed = ctypes.CDLL(None, use_errno=True).mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), pages)
        del first
    return 1 if failed else sum(x & 1 for x in bytes(pages)) / len(pages)


def forget(model):
    """Drops the file from the page cache: every measurement that reads begins on the disk."""
    fd = os.open(model, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    stayed = cached_part(fd)
    os.close(fd)
    if stayed > STAYED_MAX:
        sys.exit("%.0f %% of %s stay in the page cache: does another process map it?" % (100 * stayed, model))


def hearth(model, n, *options, group=None, is_warm=False):
    if not is_warm:
        forget(model)
    argv = [HEARTH, "run", model, "-p", "the", "-n", str(n + 1), "--json", "--no-logits-hash", "--ctx", "256", *map(str, options)]
    p = subprocess.run(argv, stdout=subprocess.PIPE, check=True, preexec_fn=group.enter if group else None)
    return json.loads(p.stdout)


def alone(model, reader, mib, seconds):
    forget(model)
    return json.loads(subprocess.run([READER, model, reader, str(mib), str(seconds)], stdout=subprocess.PIPE, check=True).stdout)["bytes_per_s"]


def token_s(out):
    return 1 / out["timings"]["decode_tps"]


def streaming(model, args, reader):
    """Disk and time of one reader; returns the pairs and whether both limits hold."""
    compute_s = paired.median(token_s(hearth(model, 32, "--threads", args.threads)) for _ in range(3))
    weights = args.cap - 40  # MiB, about what the run has for weights: the rate does not depend on it
    pairs = paired.alternate(args.pairs, lambda: hearth(model, args.tokens, "--threads", args.threads, "--mem", "%dM" % args.cap, "--reader", reader),
                             lambda: alone(model, reader, weights, args.seconds))
    disk, time = [], []
    for out, rate in pairs:
        read = out["memory"]["decode"]["read_bytes_per_token"]
        disk.append(read / token_s(out) / rate)
        time.append(token_s(out) / max(compute_s, read / rate))
    detail = "%s: %.0f of %.0f MB/s, %.1f MB a token, %.2f tok/s, computing alone %.2f tok/s, " % (
        reader, paired.median(o["memory"]["decode"]["read_bytes_per_token"] / token_s(o) for o, _ in pairs) / 1e6, paired.median(r for _, r in pairs) / 1e6,
        paired.median(o["memory"]["decode"]["read_bytes_per_token"] for o, _ in pairs) / 1e6, paired.median(o["timings"]["decode_tps"] for o, _ in pairs),
        1 / compute_s)
    ok = paired.report("disk", disk, at_least=LIMITS["disk"], detail=detail)
    ok &= paired.report("time", time, at_most=LIMITS["time"], detail=reader + ": ")
    return {"compute_s": compute_s, "pairs": [(o["timings"], o["memory"], r) for o, r in pairs]}, ok


def fits(model, args):
    size = model.stat().st_size // MIB

    def run(*options):
        return hearth(model, args.tokens_fits, "--threads", args.threads, *options, is_warm=True)
    run()
    pairs = paired.alternate(args.pairs, lambda: run("--mem", "%dM" % (size * 2)), run)
    for capped, _ in pairs:
        if capped["memory"]["decode"]["read_bytes"] != 0:
            sys.exit("a cap of twice the model does not hold it")
    ratios = [a["timings"]["decode_tps"] / b["timings"]["decode_tps"] for a, b in pairs]
    return ratios, paired.report("fits", ratios, at_least=LIMITS["fits"])


def llama(model, args):
    """In a cgroup of half the model; Hearth's cap is a little below."""
    limit = model.stat().st_size // 2
    killed = []

    def ours():
        with memory_cgroup.MemoryCgroup(limit) as group:
            options = ["--threads", args.threads, "--mem", "%dM" % (limit // MIB - BESIDE_MIB)]
            out = hearth(model, args.tokens, *options, group=group)
            killed.append(group.n_killed())
            return out["timings"]["decode_tps"]

    def theirs():
        forget(model)
        with memory_cgroup.MemoryCgroup(limit) as group:
            argv = [ORACLE, "best", "bench", model, "1", str(args.tokens), "1", str(args.threads)]
            p = subprocess.run(argv, stdout=subprocess.PIPE, check=True, preexec_fn=group.enter)
            killed.append(group.n_killed())
            return json.loads(p.stdout)["decode_tps"]

    pairs = paired.alternate(args.pairs, ours, theirs)
    n_killed = sum(killed)
    detail = "hearth %.2f tok/s, llama.cpp %.2f tok/s in %d MiB, %d killed, " % (*(paired.median(p[i] for p in pairs) for i in (0, 1)), limit // MIB, n_killed)
    return pairs, paired.report("llama.cpp", [a / b for a, b in pairs], at_least=LIMITS["llama"], detail=detail) and n_killed == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", help="of mmap, direct, fits, llama; default: all")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of each comparison (default 20; fewer than 6 make no interval of 95 %%)")
    parser.add_argument("--tokens", type=int, default=6, help="tokens of a run that streams")
    parser.add_argument("--tokens-fits", type=int, default=20, help="tokens of a run that holds everything")
    parser.add_argument("--seconds", type=float, default=1.5, help="of the reader alone")
    parser.add_argument("--cap", type=int, default=made.STREAMED_CAP_MIB, help="MiB")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--model", type=pathlib.Path, help="another model than the made one")
    args = parser.parse_args()
    what = args.what or ["mmap", "direct", "fits", "llama"]
    model = args.model or made.made("streamed", *made.STREAMED)
    build_reader()
    if "llama" in what and not ORACLE.exists():
        subprocess.run(["sh", ROOT / "tools/oracle/oracle_setup.sh"], check=True, stdout=subprocess.DEVNULL)
    results, ok = {}, True
    for name in what:
        if name in ("mmap", "direct"):
            results[name], holds = streaming(model, args, name)
        elif name == "fits":
            results[name], holds = fits(model, args)
        else:
            try:
                results[name], holds = llama(model, args)
            except memory_cgroup.MemoryCgroup.Unavailable as e:
                print("llama.cpp SKIPPED: %s" % e)
                holds = True
        ok &= holds
    (ROOT / "build/bench/residency.json").write_text(json.dumps(results, indent=1) + "\n")
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
