#!/usr/bin/env python3
"""Checks what a compiler does not: who includes whom, what the cores call, and a few rules of style.

    python3 tools/tidy.py [--root DIR] [--objects DIR]

Prints one line per finding; exit 1 when there is one. Long functions are warnings only. What is checked:
- include rules (RULES below), and that each .c file includes its own header first;
- the cores call nothing with a side effect, followed function by function through the objects (needs a build, compiled with
  -ffunction-sections);
- nothing but fmaf comes from libm; no mutable globals outside MUTABLE_ALLOWED;
- file names unique in the tree; no file of more than 1,000 lines; no trailing white space; no note of work to be done;
- the environment is read in cli/ only;
- the text that each deliberate bug of BUGS_FILE replaces stands once in its file, so that the edit follows the code.
"""
import argparse
import collections
import pathlib
import re
import runpy
import subprocess
import sys

LINES_MAX = 1000
FUNCTION_LINES = 70
BUGS_FILE = "tests/sim/bugs.py"

HPARAMS = "model/hparams.h"

# folder: what its files may include besides their own folder. An entry with a dot is one file.
RULES = {
    "base": [],
    "kernels": ["base"],
    "proto": ["base"],
    "model": ["base"],
    "net": ["base", "proto"],
    "engine": ["base", "kernels", "model"],
    "partition": ["base", HPARAMS],
    "flow": ["base", "proto"],
    "blocks": ["base", "proto"],
    "blocks/shell": ["blocks", "base", "proto", "net"],
    "coordinator": ["base", "proto", "flow", "partition", HPARAMS],
    "node": ["base", "proto", "flow", "partition", HPARAMS],
    "coordinator/shell": ["coordinator", "base", "proto", "flow", "partition", "net", "engine", "model", "kernels", "blocks",
                          "blocks/shell"],
    "node/shell": ["node", "base", "proto", "flow", "partition", "net", "engine", "model", "kernels", "blocks", "blocks/shell"],
    "sim": ["coordinator", "node", "flow", "partition", "proto", "base", "blocks", "engine", "model", "kernels"],
    "sim/shell": ["sim", "coordinator", "node", "flow", "partition", "proto", "base", "engine", "model", "kernels", "net"],
}
FREE = ("cli", "tests", "bench", "tools")  # may include anything
CORES = ("coordinator", "node", "flow", "partition", "blocks")
PURE_FILES = re.compile(r"^sim/(network|profiles|trace(?!_set\.))\w*\.(c|h|o)$")  # pure like a core; trace_set opens arenas for them

# Headers of the system that a core has no use for; what slips through is caught by what its objects call.
CORE_SYSTEM = {"assert.h", "errno.h", "float.h", "inttypes.h", "limits.h", "stdalign.h", "stdarg.h", "stdbool.h", "stddef.h",
               "stdint.h", "stdio.h", "stdlib.h", "stdnoreturn.h", "string.h", "math.h", "ctype.h"}
CORE_HASHES = {"blocks": {"sodium.h"}}  # a block is its hash; which of sodium's functions have a side effect, the objects tell

# Functions from outside the tree without a side effect (on memory they were not given). abort is an assertion's.
PURE = set("""
memcpy memmove memset memcmp memchr memrchr memmem strlen strnlen strcmp strncmp strchr strrchr strstr strspn strcspn strpbrk
strcpy strncpy strcat strncat stpcpy strcasecmp strncasecmp strtol strtoul strtoll strtoull strtod strtof __isoc99_sscanf
snprintf vsnprintf qsort bsearch abs labs fmaf isalnum isalpha isdigit isspace isxdigit tolower toupper __ctype_b_loc
__ctype_tolower_loc __ctype_toupper_loc __errno_location
assert_fail __assert_fail __stack_chk_fail _GLOBAL_OFFSET_TABLE_ abort __tls_get_addr
__popcountdi2
sodium_memcmp sodium_memzero sodium_is_zero sodium_bin2hex sodium_hex2bin sodium_increment sodium_compare
""".split())
PURE_PATTERN = re.compile(r"^(__(mem|st[rp]|snprintf|vsnprintf)\w*_chk|protobuf_c_\w+|crypto_\w+)$")
# They draw from the system's random source.
IMPURE_PATTERN = re.compile(r"^crypto_\w*_(keypair|keygen|random)$|^crypto_pwhash")

LIBM = set("""
acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 exp10 expm1 fabs fdim floor fma fmax fmin fmod
frexp hypot ilogb j0 j1 jn ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint nextafter
nexttoward pow pow10 remainder remquo rint round roundeven scalb scalbln scalbn sin sincos sinh sqrt tan tanh tgamma trunc y0 y1 yn
""".split())
LIBM |= {n + s for n in LIBM for s in "fl"}
LIBM_ALLOWED = {"fmaf"}

# object: its variables that may change, each with its reason.
MUTABLE_ALLOWED = {
}
CLI_MUTABLE = re.compile(r"^cli/")  # a signal handler can reach nothing else

SOURCE = re.compile(r"\.(c|h|py|sh|proto)$")
TEXT = re.compile(r"\.(c|h|py|sh|proto|md|toml|txt|mk)$|(^|/)(Makefile|run|make_model|\.clang-format|\.gitignore)$")
# Spelled so that this file does not find itself.
UNDONE = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
ENVIRONMENT = re.compile(r"\b(secure_)?get" r"env\s*\(")


class Tidy:
    def __init__(self, root, objects):
        self.root = root
        self.objects = objects
        self.findings = []
        self.warnings = []

    def find(self, where, what):
        self.findings.append("%s: %s" % (where, what))

    def files(self):
        """What git tracks or would track; every file when the tree is no checkout."""
        p = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=self.root, capture_output=True, text=True)
        if p.returncode == 0 and p.stdout:
            names = p.stdout.splitlines()
        else:
            names = [str(p.relative_to(self.root)) for p in self.root.rglob("*") if p.is_file()]
        return sorted(n for n in names if not n.startswith("build/") and (self.root / n).is_file())

    # Text

    def check_names(self, names):
        seen = collections.defaultdict(list)
        for n in names:
            if SOURCE.search(n) and pathlib.PurePath(n).name not in ("conftest.py", "__init__.py"):
                seen[pathlib.PurePath(n).name].append(n)
        for same in seen.values():
            if len(same) > 1:
                self.find(same[0], "file name is not unique in the tree: also %s" % ", ".join(same[1:]))

    def check_text(self, name, text):
        lines = text.splitlines()
        if SOURCE.search(name) and len(lines) > LINES_MAX:
            self.find(name, "%d lines, at most %d: two files" % (len(lines), LINES_MAX))
        for i, line in enumerate(lines, 1):
            if line != line.rstrip() and not name.endswith(".md"):
                self.find("%s:%d" % (name, i), "trailing white space")
            if UNDONE.search(line):
                self.find("%s:%d" % (name, i), "a note of work to be done")
        if text and not text.endswith("\n"):
            self.find(name, "no newline at the end")
        if re.search(r"\.[ch]$", name):
            self.check_c(name, lines)

    def check_c(self, name, lines):
        top = name.split("/")[0]
        for i, line in enumerate(lines, 1):
            if top not in ("cli", "tests", "bench") and ENVIRONMENT.search(line):
                self.find("%s:%d" % (name, i), "the environment is read in cli/ only")
        begin = None
        for i, line in enumerate(lines, 1):
            if line == "{":
                begin = i
            elif line == "}" and begin is not None:
                if i - begin - 1 > FUNCTION_LINES:
                    self.warnings.append("%s:%d: a function of %d lines (a flat switch or an unrolled kernel may)" % (
                        name, begin, i - begin - 1))
                begin = None

    # Includes

    def check_includes(self, name, text, known):
        folder = str(pathlib.PurePath(name).parent)
        if name.split("/")[0] in FREE:
            rule = None
        elif folder in RULES:
            rule = RULES[folder]
        else:
            self.find(name, "no include rule for %s/ (tools/tidy.py, RULES)" % folder)
            return
        own_header = re.sub(r"\.c$", ".h", name)
        first = None
        for i, line in enumerate(text.splitlines(), 1):
            m = re.match(r'\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', line)
            if not m:
                continue
            where = "%s:%d" % (name, i)
            target, system = m.groups()
            first = first or target or system
            if system:
                if (folder in CORES or PURE_FILES.search(name)) and system not in CORE_SYSTEM | CORE_HASHES.get(folder, set()):
                    self.find(where, "a core file includes <%s>" % system)
                continue
            generated = re.sub(r"\.pb-c\.h$", ".proto", target)
            if target not in known and generated not in known and not name.startswith("tools/"):
                self.find(where, '"%s" is no file of the tree (paths start at its root)' % target)
                continue
            if rule is None:
                continue
            of = str(pathlib.PurePath(target).parent)
            if of != folder and of not in rule and target not in rule:
                self.find(where, '%s/ may not include "%s" (may: %s)' % (folder, target, ", ".join(rule) or "only libc"))
        # Own header first, or one of the same folder that includes it: the inside it keeps from others (x_state.h).
        if name.endswith(".c") and own_header in known and first != own_header:
            inside = self.root / (first or "")
            if str(pathlib.PurePath(first or "").parent) == folder and inside.is_file() and '#include "%s"' % own_header in inside.read_text():
                return
            self.find(name, 'its own header "%s" is not included first' % own_header)

    # Objects

    def check_objects(self):
        objs = {str(p.relative_to(self.objects)): p for p in sorted(self.objects.rglob("*.o"))}
        # What a removed file left behind is not the program's.
        objs = {n: p for n, p in objs.items() if n.startswith("gen/") or (self.root / n).with_suffix(".c").exists()}
        objs = {n: p for n, p in objs.items() if not n.startswith("tests/")}
        if not objs:
            self.find(self.objects, "no object files: run make first")
            return
        graph = Graph()
        for name, path in objs.items():
            graph.add(name, path)
        for (name, section), section_refs in graph.refs.items():
            for symbol in section_refs:
                if symbol in LIBM - LIBM_ALLOWED and symbol not in graph.defined:
                    self.find(name, "%s of libm is called in %s (base/fmath has our own)" % (symbol, section))
        for name, symbols in graph.mutable.items():
            for symbol in symbols:
                base = re.sub(r"\.\d+$", "", symbol)
                if name.startswith("gen/") or CLI_MUTABLE.match(name) or base in MUTABLE_ALLOWED.get(name, ()):
                    continue
                self.find(name, "mutable global %s" % base)
        for path in graph.impure_paths([n for n in objs if str(pathlib.PurePath(n).parent) in CORES or PURE_FILES.search(n)]):
            self.find(path[0], "a core calls what has a side effect: %s" % " -> ".join(path[1:]))

    def check_bugs(self):
        for name, (path, text, _) in runpy.run_path(str(self.root / BUGS_FILE))["BUGS"].items():
            file = self.root / path
            n = file.read_text(encoding="utf-8").count(text) if file.is_file() else 0
            if n != 1:
                self.find(BUGS_FILE, "%s: what it replaces stands %d times in %s, wanted once" % (name, n, path))

    def run(self):
        names = self.files()
        known = set(names)
        self.check_names(names)
        for n in names:
            if not TEXT.search(n):
                continue
            try:
                text = (self.root / n).read_text(encoding="utf-8")
            except UnicodeDecodeError:
                if SOURCE.search(n):
                    self.find(n, "not UTF-8")
                continue
            if n.startswith("tests/fuzz/corpus/") or n.startswith("tests/golden/"):
                continue
            self.check_text(n, text)
            if re.search(r"\.[ch]$", n):
                self.check_includes(n, text, known)
        if BUGS_FILE in known:
            self.check_bugs()
        self.check_objects()


class Graph:
    """Who refers to what: sections of objects (one function or one variable's table each), by their relocations."""

    def __init__(self):
        self.refs = {}     # (object, section): names it refers to, "=section" for one of the same object
        self.defined = {}  # global symbol: (object, section)
        self.mutable = {}  # object: its writable variables

    def add(self, name, path):
        sections = {}
        local = {}
        self.mutable[name] = []
        headers = subprocess.run(["readelf", "-SWs", path], capture_output=True, text=True, check=True).stdout
        flags = {}
        for m in re.finditer(r"^\s*\[\s*(\d+)\] (\S+)\s+\S+\s+[0-9a-f]+ [0-9a-f]+ [0-9a-f]+ [0-9a-f]+\s+([A-Za-z]*) ", headers, re.M):
            sections[m.group(1)] = m.group(2)
            flags[m.group(1)] = m.group(3)
        for m in re.finditer(r"^\s*\d+: [0-9a-f]+\s+\S+ (\w+)\s+(\w+)\s+\w+\s+(\w+) (\S+)$", headers, re.M):
            kind, bind, index, symbol = m.groups()
            if index == "COM":
                self.mutable[name].append(symbol)
            if index not in sections:
                continue
            section = sections[index]
            local[symbol] = section
            if bind in ("GLOBAL", "WEAK"):
                self.defined[symbol] = (name, section)
            if kind in ("OBJECT", "TLS") and "W" in flags[index] and not section.startswith(".data.rel.ro"):
                self.mutable[name].append(symbol)
        relocations = subprocess.run(["readelf", "-rW", path], capture_output=True, text=True, check=True).stdout
        section = None
        for line in relocations.splitlines():
            m = re.match(r"Relocation section '\.rela(\.\S+)'", line)
            if m:
                section = m.group(1)
                continue
            m = re.match(r"[0-9a-f]+\s+[0-9a-f]+ R_\S+\s+[0-9a-f]+ (\S+)", line)
            if not m or section is None or section.startswith((".debug", ".eh_frame", ".note")):
                continue
            symbol = m.group(1).split("@")[0]
            if symbol.startswith(".") and symbol in sections.values():
                symbol = "=" + symbol
            elif symbol in local and self.defined.get(symbol, (None,))[0] != name:
                symbol = "=" + local[symbol]
            self.refs.setdefault((name, section), set()).add(symbol)

    def impure_paths(self, roots):
        """From each core object the shortest way to each function with a side effect: [object, section, ..., function]."""
        seen = {}
        queue = collections.deque()
        for key in sorted(self.refs):
            if key[0] in roots:
                seen[key] = [key[0], plain(key[1])]
                queue.append(key)
        found = {}
        while queue:
            key = queue.popleft()
            for symbol in sorted(self.refs.get(key, ())):
                if symbol.startswith("="):
                    target = (key[0], symbol[1:])
                elif symbol in self.defined:
                    target = self.defined[symbol]
                elif (symbol in PURE or PURE_PATTERN.match(symbol)) and not IMPURE_PATTERN.match(symbol):
                    continue
                else:
                    found.setdefault((seen[key][0], symbol), seen[key] + [symbol])
                    continue
                if symbol in PURE:  # assert_fail is ours, and prints
                    continue
                if target not in seen:
                    seen[target] = seen[key] + [plain(target[1])]
                    queue.append(target)
        return list(found.values())


def plain(section):
    """The function's name from its section's; without -ffunction-sections only the section."""
    return re.sub(r"^\.text\.(unlikely\.|startup\.|hot\.)?", "", section)


def main():
    p = argparse.ArgumentParser(description="Checks include rules, purity of the cores and rules of style.")
    p.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    p.add_argument("--objects", type=pathlib.Path, help="object folder (default: build/obj of the root)")
    args = p.parse_args()
    tidy = Tidy(args.root, args.objects or args.root / "build/obj")
    tidy.run()
    for w in tidy.warnings:
        print("warning: %s" % w)
    for f in tidy.findings:
        print(f)
    print("tidy: %d findings, %d warnings" % (len(tidy.findings), len(tidy.warnings)))
    return 1 if tidy.findings else 0


if __name__ == "__main__":
    sys.exit(main())
