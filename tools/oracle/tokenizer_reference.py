#!/usr/bin/env python3
"""Writes tests/golden/tokenizer_smollm2.json: odd lines with llama.cpp's ids, and where Hugging Face's tokenizers differ.

The same lines with the other vocabularies we claim to know go to build/oracle/golden/tokenizer_*.json: their files belong to
others and are not committed; test_tokenizer compares with what it finds there.
"""
import json
import os
import shutil
import subprocess

import oracle
import prompts
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def digits_then_gpt2():
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(True)])


def pattern(text):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(text), "isolated"), byte_level(False)])


SECOND_OPINION = {"smollm": digits_then_gpt2, "starcoder": digits_then_gpt2, "refact": digits_then_gpt2, "command-r": digits_then_gpt2,
                  "gpt-2": lambda: byte_level(True), "mpt": lambda: byte_level(True), "llama-bpe": lambda: pattern(LLAMA3), "qwen2": lambda: pattern(QWEN2)}


def hugging_face(meta):
    """The same vocabulary in the other library; control tokens stay text, user-defined ones are found."""
    pre = meta["tokenizer.ggml.pre"].decode()
    if pre not in SECOND_OPINION:
        return None
    tokens = [t.decode() for t in meta["tokenizer.ggml.tokens"]]
    merges = []
    for m in meta["tokenizer.ggml.merges"]:
        cut = m.index(b" ", 1)
        merges.append((m[:cut].decode(), m[cut + 1:].decode()))
    model = models.BPE({t: i for i, t in enumerate(tokens)}, merges, ignore_merges=pre == "llama-bpe")
    tok = Tokenizer(model)
    tok.pre_tokenizer = SECOND_OPINION[pre]()
    tok.decoder = decoders.ByteLevel()
    types = meta.get("tokenizer.ggml.token_type", [1] * len(tokens))
    tok.add_tokens([AddedToken(t, special=False, normalized=False) for t, kind in zip(tokens, types) if kind == 4])
    return tok


def write(path, model, shown, pre):
    lines = prompts.lines()
    meta = oracle.metadata(model)
    plain, special = oracle.tokenize(model, lines), oracle.tokenize(model, lines, special=True)
    tok = hugging_face(meta)
    types = meta.get("tokenizer.ggml.token_type", [1] * len(meta["tokenizer.ggml.tokens"]))
    bos = [meta["tokenizer.ggml.bos_token_id"]] if plain[0] else []
    rows, differ = [], 0
    for line, p, s in zip(lines, plain, special):
        row = {"text": line, "ids": p}
        # llama.cpp makes control tokens of some normal ones by their names ("</s>" of qwen2): there we follow the file, as Hugging Face does.
        if s != p and any(types[i] != 1 for i in s):
            row["special_ids"] = s
        elif s != p:
            row["special_ids_not_followed"] = s
        if tok is not None and bos + tok.encode(line, add_special_tokens=False).ids != p:
            row["hugging_face_ids"] = bos + tok.encode(line, add_special_tokens=False).ids
            differ += 1
        rows.append(row)
    head = {"about": "ids: llama.cpp's for the text, BOS as the file says; special_ids: with control tokens parsed, where that differs (not_followed: where it makes control tokens of what the file calls normal). hugging_face_ids: "
                     "where the second opinion differs; we follow llama.cpp. Made by tools/oracle/tokenizer_reference.py.",
            "llama_cpp": "v0.5.0 (node-llama-cpp 3.22.1)", "model": shown, "pre": pre, "second_opinion": "tokenizers 0.23.3" if tok else None,
            "hugging_face_differs": differ}
    with open(path, "w") as f:
        f.write(json.dumps(head, indent=1)[:-2] + ",\n \"lines\": [\n")
        f.write(",\n".join(json.dumps(r, separators=(",", ":")) for r in rows) + "\n]}\n")
    print(f"{pre}: {len(rows)} lines, Hugging Face differs in {differ if tok else '(none asked)'}")


def with_pre(source, target, pre):
    """A copy of a vocabulary file whose tokenizer.ggml.pre says something else."""
    data = open(source, "rb").read()
    key = b"tokenizer.ggml.pre"
    at = data.index(key) + len(key) + 4
    old = int.from_bytes(data[at:at + 8], "little")
    body = data[:at] + len(pre).to_bytes(8, "little") + pre.encode() + data[at + 8 + old:]
    # A vocabulary-only file has no tensor data, so nothing behind the header has to keep its alignment.
    open(target, "wb").write(body)


def main():
    os.makedirs(os.path.join(oracle.ROOT, "tests/golden"), exist_ok=True)
    out = os.path.join(oracle.ROOT, "build/oracle/golden")
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    write(os.path.join(oracle.ROOT, "tests/golden/tokenizer_smollm2.json"), oracle.MODEL, "build/models/" + os.path.basename(oracle.MODEL), "smollm")
    for name in ("gpt-2", "llama-bpe", "qwen2", "starcoder", "refact", "command-r", "mpt"):
        path = os.path.join(oracle.VOCABS, f"ggml-vocab-{name}.gguf")
        write(os.path.join(out, f"tokenizer_{name}.json"), path, os.path.relpath(path, oracle.ROOT), name)
    path = os.path.join(out, "vocab-default.gguf")
    with_pre(os.path.join(oracle.VOCABS, "ggml-vocab-gpt-2.gguf"), path, "default")
    write(os.path.join(out, "tokenizer_default.json"), path, os.path.relpath(path, oracle.ROOT), "default")
    test = "build/tests/model/test_tokenizer"
    subprocess.run(["make", "-s", test], cwd=oracle.ROOT, check=True)
    subprocess.run([os.path.join(oracle.ROOT, test)], cwd=oracle.ROOT, check=True)


if __name__ == "__main__":
    main()
