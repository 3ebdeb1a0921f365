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

With --results FILE pairs of several runs add up: `--seconds-total 220` ends a run early, and `--seconds-total 0` only tells what there is.
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
BESIDE_MIB = 8   # of a cgroup, beside the cap: page tables, sockets
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


def device_read(path):
    """Bytes ever read from the block device of a file: what a run took from the disk, page faults included, when nobody else reads."""
    dev = os.stat(path).st_dev
    stat = pathlib.Path("/sys/dev/block/%d:%d/stat" % (os.major(dev), os.minor(dev)))
    return int(stat.read_text().split()[2]) * 512 if stat.exists() else 0


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


def kept(what, args, **setup):
    """The pairs so far of a comparison, where there is a file for them."""
    if args.results is None:
        return None
    return paired.Kept(args.results, what, {"model": args.model.name, "threads": args.threads, **setup}, args.seconds_total)


def numbers(out):
    """What is kept of a run of Hearth."""
    return {"decode_tps": out["timings"]["decode_tps"], "memory": out["memory"]}


def streaming(model, args, reader):
    """Disk and time of one reader; returns whether both limits hold."""
    def beside():
        rate = alone(model, reader, args.cap - 40, args.seconds)  # MiB, about what the run has for weights: the rate does not depend on it
        return {"rate": rate, "compute_s": token_s(hearth(model, 12, "--threads", args.threads))}

    capped = ["--threads", args.threads, "--mem", "%dM" % args.cap, "--reader", reader]
    pairs = paired.alternate(args.pairs, lambda: numbers(hearth(model, args.tokens, *capped)), beside, kept(reader, args, cap=args.cap, tokens=args.tokens))
    if not pairs:
        return True
    mb = [out["memory"]["decode"]["read_bytes_per_token"] / 1e6 for out, _ in pairs]
    disk = [x * 1e6 * out["decode_tps"] / other["rate"] for x, (out, other) in zip(mb, pairs)]
    time = [1 / out["decode_tps"] / max(other["compute_s"], x * 1e6 / other["rate"]) for x, (out, other) in zip(mb, pairs)]
    detail = "%s: %.0f of %.0f MB/s, %.1f MB a token, %.2f tok/s, computing alone %.2f tok/s, " % (
        reader, paired.median(x * out["decode_tps"] for x, (out, _) in zip(mb, pairs)), paired.median(other["rate"] for _, other in pairs) / 1e6,
        paired.median(mb), paired.median(out["decode_tps"] for out, _ in pairs), 1 / paired.median(other["compute_s"] for _, other in pairs))
    ok = paired.report("disk", disk, at_least=LIMITS["disk"], detail=detail)
    return paired.report("time", time, at_most=LIMITS["time"], detail=reader + ": ") and ok


def fits(model, args):
    size = model.stat().st_size // MIB

    def run(*options):
        return numbers(hearth(model, args.tokens_fits, "--threads", args.threads, *options, is_warm=True))
    run()
    pairs = paired.alternate(args.pairs, lambda: run("--mem", "%dM" % (size * 2)), run, kept("fits", args, tokens=args.tokens_fits))
    for capped, _ in pairs:
        if capped["memory"]["decode"]["read_bytes"] != 0:
            sys.exit("a cap of twice the model does not hold it")
    return paired.report("fits", [a["decode_tps"] / b["decode_tps"] for a, b in pairs], at_least=LIMITS["fits"])


def llama(model, args):
    """In a cgroup of half the model; Hearth's cap is a little below. Both begin with the file on the disk alone."""
    limit = model.stat().st_size // 2

    def ours():
        with memory_cgroup.MemoryCgroup(limit) as group:
            out = hearth(model, args.tokens, "--threads", args.threads, "--mem", "%dM" % (limit // MIB - BESIDE_MIB), group=group)
            return {**numbers(out), "killed": group.n_killed(), "highest": group.highest()}

    def theirs():
        forget(model)
        with memory_cgroup.MemoryCgroup(limit) as group:
            before = device_read(model)
            argv = [ORACLE, "best", "bench", model, "1", str(args.tokens), "1", str(args.threads)]
            p = subprocess.run(argv, stdout=subprocess.PIPE, check=True, preexec_fn=group.enter)
            return {"decode_tps": json.loads(p.stdout)["decode_tps"], "read_bytes": device_read(model) - before, "killed": group.n_killed()}

    pairs = paired.alternate(args.pairs, ours, theirs, kept("llama", args, limit=limit, beside=BESIDE_MIB, tokens=args.tokens))
    if not pairs:
        return True
    n_killed = sum(x["killed"] for pair in pairs for x in pair)
    detail = "hearth %.2f tok/s and %.0f MB a token, llama.cpp %.2f tok/s and %.0f MB for each of its tokens, in %d MiB, %d killed, " % (
        paired.median(a["decode_tps"] for a, _ in pairs), paired.median(a["memory"]["decode"]["read_bytes_per_token"] for a, _ in pairs) / 1e6,
        paired.median(b["decode_tps"] for _, b in pairs), paired.median(b["read_bytes"] for _, b in pairs) / 1e6 / (args.tokens + 2), limit // MIB, n_killed)
    return paired.report("llama.cpp", [a["decode_tps"] / b["decode_tps"] for a, b in pairs], at_least=LIMITS["llama"], detail=detail) and n_killed == 0


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
    parser.add_argument("--results", type=pathlib.Path, metavar="FILE", help="append each pair to this file, and count those of earlier runs")
    parser.add_argument("--seconds-total", type=float, default=float("inf"), help="of one comparison: no pair begins later (with --results: go on in another run)")
    args = parser.parse_args()
    what = args.what or ["mmap", "direct", "fits", "llama"]
    model = args.model = args.model or made.made("streamed", *made.STREAMED)
    build_reader()
    if "llama" in what and not ORACLE.exists():
        subprocess.run(["sh", ROOT / "tools/oracle/oracle_setup.sh"], check=True, stdout=subprocess.DEVNULL)
    ok = True
    for name in what:
        try:
            ok &= streaming(model, args, name) if name in ("mmap", "direct") else {"fits": fits, "llama": llama}[name](model, args)
        except memory_cgroup.MemoryCgroup.Unavailable as e:
            print("%s SKIPPED: %s" % (name, e))
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
