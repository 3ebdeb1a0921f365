"""What the scripts of bench/ share: alternating pairs, the interval of their median, the verdict on a threshold."""
import json
import math
import pathlib
import sys
import time


class Kept:
    """Pairs in a file, a line of JSON each, so that short runs of a script add up to one measurement.

    A line belongs to what was measured and to its setup (a dict: model, options); others' lines in the same file are left alone. Nothing begins
    after `seconds` from now.
    """

    def __init__(self, path, what, setup, seconds=math.inf):
        self.path, self.key = pathlib.Path(path), {"what": what, "setup": setup}
        self.end = time.monotonic() + seconds
        lines = [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []
        self.pairs = [tuple(x["pair"]) for x in lines if {k: x[k] for k in self.key} == self.key]

    def is_over(self):
        return time.monotonic() >= self.end

    def add(self, pair):
        self.pairs.append(pair)
        with open(self.path, "a") as f:
            f.write(json.dumps({**self.key, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "pair": pair}) + "\n")


def alternate(n_pairs, a, b, kept=None):
    """[(a(), b())] n_pairs times, measured A B B A A B ..., so that a machine that slows down does so to both. Those kept count, and the
    order goes on from them; with a time that is over there may be fewer."""
    pairs = kept.pairs if kept else []
    while len(pairs) < n_pairs and not (kept and kept.is_over()):
        if len(pairs) % 2 == 0:
            x = a()
            y = b()
        else:
            y = b()
            x = a()
        if kept:
            kept.add((x, y))
        else:
            pairs.append((x, y))
        if sys.stderr.isatty():
            print("\rpair %d of %d" % (len(pairs), n_pairs), end="" if len(pairs) < n_pairs else "\r", file=sys.stderr, flush=True)
    return list(pairs)


def median(values):
    v = sorted(values)
    return (v[(len(v) - 1) // 2] + v[len(v) // 2]) / 2


def interval(ratios):
    """Median, the order statistics around it that hold the true median with at least 95 %, and with how much they do.

    P(true median outside) is twice the binomial tail below the lower one; below 6 values even the whole range is less than 95 %.
    """
    v, n = sorted(ratios), len(ratios)
    k = 0  # v[k] to v[n - 1 - k]: as narrow as 95 % allows
    while 2 * sum(math.comb(n, i) for i in range(k + 2)) / 2 ** n <= 0.05:
        k += 1
    covers = 1 - 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2 ** n
    return median(v), v[k], v[n - 1 - k], covers


def report(name, ratios, at_least=None, at_most=None, detail=""):
    """Prints a ratio's median, interval and verdict. It holds when the interval reaches the threshold; returns whether it does."""
    if not ratios:
        print("%-8s no pair yet" % name, flush=True)
        return True
    mid, low, high, covers = interval(ratios)
    line = "%-8s %sratio %.3f, %.0f %% interval %.3f to %.3f (%d pairs)" % (name, detail, mid, 100 * covers, low, high, len(ratios))
    holds = True
    if at_least is not None:
        holds = high >= at_least
        line += ": at least %.2f %s" % (at_least, "holds" if holds else "is MISSED")
    elif at_most is not None:
        holds = low <= at_most
        line += ": at most %.2f %s" % (at_most, "holds" if holds else "is MISSED")
    print(line, flush=True)
    return holds
