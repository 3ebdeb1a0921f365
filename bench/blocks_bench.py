#!/usr/bin/env python3
"""Blocks of a model against a plain LNK1 stream of the same number of bytes, in the same minute, over links of several rates.

    python3 bench/blocks_bench.py [--pairs N] [--model FILE] [--rates BITS,...]

Both ends are processes of this machine, the link a relay that passes no more than a rate; 0 is the loopback itself, where the processor is the limit
and everything that blocks cost beyond a stream shows (a hash, a read and a write of each byte). Alternating pairs; the threshold, 0.90 of the stream's
rate, is on the median ratio of each rate that a home has. Ends with 1 when one is below.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from paired import alternate, interval, median  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
PEER = ROOT / "build/bench/blocks_peer"
LEAST = 0.90
LIBS = "-lnng -ljansson -lsqlite3 -lprotobuf-c -lpcre2-8 -lsodium -lqrencode -lzstd -lmicrohttpd -lpthread -lm".split()


def build():
    PEER.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["gcc", "-std=c11", "-O2", "-D_GNU_SOURCE", "-I.", "-isystem", "build/gen", "-o", PEER, "bench/blocks_peer.c", "build/libhearth.a", *LIBS], cwd=ROOT,
                   check=True)


def start(*argv):
    """Starts a peer that prints its port; returns both."""
    p = subprocess.Popen([PEER, *map(str, argv)], stdout=subprocess.PIPE, text=True)
    return p, int(p.stdout.readline())


def run(*argv):
    out = subprocess.run([PEER, *map(str, argv)], stdout=subprocess.PIPE, text=True, check=True, timeout=400).stdout.split()
    return int(out[0]), float(out[1])


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--pairs", type=int, default=6)
    a.add_argument("--model", default=ROOT / "build/models/SmolLM2-135M-Instruct.Q4_1.gguf")
    a.add_argument("--layers", type=int, default=30)
    a.add_argument("--rates", default="0,940e6,300e6,100e6")
    args = a.parse_args()
    build()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hearth-blocks-"))
    processes, failed = [], False
    try:
        server, port = start("serve", args.model, folder)
        processes.append(server)
        for rate in map(float, args.rates.split(",")):
            at = port
            if rate > 0:
                relay, at = start("relay", port, rate)
                processes.append(relay)
            cache = folder / "cache"

            def blocks():
                shutil.rmtree(cache, ignore_errors=True)
                n, s = run("blocks", at, cache, args.layers)
                return n / s

            def stream():
                n, s = run("stream", at, n_bytes)
                return n / s

            n_bytes = run("blocks", at, cache, args.layers)[0]  # and the server's disk cache is warm
            shutil.rmtree(cache)
            pairs = alternate(args.pairs, blocks, stream)
            ratios = [b / s for b, s in pairs]
            low, high = interval(ratios)[1:3]
            name = "loopback, no relay" if rate == 0 else "%g Mbit/s" % (rate / 1e6)
            below = rate > 0 and median(ratios) < LEAST
            failed |= below
            print("%-20s %.1f MiB: blocks %7.1f MB/s, stream %7.1f MB/s, ratio %.3f [%.3f, %.3f]%s" % (name, n_bytes / 2**20, median([b for b, _ in pairs]) / 1e6,
                  median([s for _, s in pairs]) / 1e6, median(ratios), low, high, "  BELOW %.2f" % LEAST if below else ""), flush=True)
    finally:
        for p in processes:
            p.kill()
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
