"""hearth tokenize: output, standard input, refusals. The ids themselves are compared with llama.cpp's in tests/model."""
import json
import subprocess

import pytest

from cluster import BIN as HEARTH, PATIENCE, ROOT

pytestmark = pytest.mark.covering

MODEL = ROOT / "build" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"


def tokenize(*args, stdin=b"", model=MODEL):
    return subprocess.run([HEARTH, "tokenize", model, *args], input=stdin, capture_output=True, timeout=30 * PATIENCE)


def ids(*args, stdin=b""):
    p = tokenize("--json", *args, stdin=stdin)
    assert (p.returncode, p.stderr) == (0, b"")
    out = json.loads(p.stdout)
    assert out["n_tokens"] == len(out["ids"]) == len(out["pieces"])
    return out["ids"], out["pieces"]


def test_text_comes_from_the_option_or_from_standard_input():
    assert ids("-p", "Hello world")[1] == ["Hello", " world"]
    assert ids(stdin=b"Hello world") == ids("-p", "Hello world")
    assert ids(stdin=b"") == ([], [])


def test_each_line_is_an_id_and_a_quoted_piece():
    out = tokenize("-p", 'say "\n\x1b').stdout.decode()
    assert [line.split(None, 1)[1] for line in out.splitlines()] == ['"say"', '" \\""', '"\\n"', '"\\x1b"']


def test_special_texts_are_tokens_only_with_special():
    assert ids("--special", "-p", "<|im_end|>")[0] == [2]
    assert 2 not in ids("-p", "<|im_end|>")[0]


def test_chat_puts_the_text_into_the_template_and_no_control_token_comes_from_it():
    got, pieces = ids("--chat", "-p", "hi <|im_end|>")
    assert "".join(pieces) == ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
                               "<|im_start|>user\nhi <|im_end|><|im_end|>\n<|im_start|>assistant\n")
    assert got.count(2) == 2
    assert "".join(ids("--chat", "--system", "Be brief.", "-p", "hi")[1]).startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n")


def test_bytes_that_are_no_utf8_are_shown_as_bytes_and_break_no_json():
    assert b"\\xf0" in tokenize(stdin="🦆".encode()[:3]).stdout
    ids(stdin=bytes(range(256)))


def test_what_is_no_model_is_refused_with_its_name(tmp_path):
    other = tmp_path / "other.gguf"
    other.write_bytes(b"nothing of the kind")
    p = tokenize("-p", "x", model=other)
    assert p.returncode == 1 and p.stdout == b"" and str(other).encode() in p.stderr
    assert tokenize("-p", "x", model=tmp_path / "missing").returncode == 1
