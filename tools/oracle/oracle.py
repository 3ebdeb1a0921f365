"""Calls build/oracle/bin/llama_oracle; reads the metadata of a GGUF file. Importing it goes on in oracle_setup.sh's Python."""
import hashlib
import json
import os
import struct
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.join(ROOT, "build/oracle/bin/llama_oracle")
MODEL = os.path.join(ROOT, "build/models/SmolLM2-135M-Instruct.Q4_1.gguf")
VOCABS = os.path.join(ROOT, "build/oracle/llama.cpp/models")
SPECIAL = 1 << 31

PYTHON = os.path.join(ROOT, "build/oracle/venv/bin/python")
if os.path.realpath(sys.prefix) != os.path.realpath(os.path.dirname(os.path.dirname(PYTHON))):
    os.execv(PYTHON, [PYTHON] + sys.argv)  # what oracle_setup.sh installed


def records(texts, special=False):
    """texts: strings or bytes, or (text, special) pairs."""
    out = []
    for t in texts:
        text, flag = t if isinstance(t, tuple) else (t, special)
        data = text if isinstance(text, bytes) else text.encode()
        out.append(struct.pack("<I", len(data) | (SPECIAL if flag else 0)) + data)
    return b"".join(out)


def call(*args, stdin=b""):
    return subprocess.run([BIN, *args], input=stdin, stdout=subprocess.PIPE, check=True).stdout.decode()


def info(cpu):
    return json.loads(call(cpu, "info"))


def tokenize(model, texts, special=False):
    out = call("haswell", "tokenize", model, "special" if special else "plain", stdin=records(texts, special))
    return [[int(x) for x in line.split(", ")] if line else [] for line in out.split("\n")[:-1]]


def logits(model, texts, n, cache, cpu):
    return [json.loads(line) for line in call(cpu, "logits", model, str(n), cache, stdin=records(texts)).splitlines()]


def sha256(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            h.update(block)
    return h.hexdigest()


def metadata(path):
    """The key-value section as a dict; strings stay bytes."""
    with open(path, "rb") as f:
        def scalar(code):
            return struct.unpack("<" + code, f.read(struct.calcsize(code)))[0]

        def value(kind):
            if kind == 8:
                return f.read(scalar("Q"))
            if kind == 9:
                elem, n = scalar("I"), scalar("Q")
                return [value(elem) for _ in range(n)]
            return scalar("BbHhIif?..QqdX"[kind])
        f.read(8)
        _, n_kv = scalar("Q"), scalar("Q")
        return {f.read(scalar("Q")).decode(): value(scalar("I")) for _ in range(n_kv)}
