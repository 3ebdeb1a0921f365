"""Made models (tools/make_model) through the program: described, run, the same answer again."""
import json
import subprocess
import sys

import made as made_module
import pytest
from cluster import PATIENCE, ROOT


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    subprocess.run([sys.executable, ROOT / "tools/make_tiny_model.py", folder / "vocab.gguf"], check=True)
    path = folder / "made.gguf"
    subprocess.run([ROOT / "tools/make_model", "--vocab-from", folder / "vocab.gguf", "--shape", "8B,layers=3,hidden=512,heads=8,kv_heads=2,ffn=1024",
                    "--type", "Q4_0", "-o", path], check=True, stderr=subprocess.DEVNULL)
    return path


@pytest.fixture
def call(hearth):
    return lambda *words: subprocess.run([hearth, *map(str, words)], capture_output=True, text=True, timeout=60 * PATIENCE)


def test_inspect_says_that_it_runs_and_what_it_is(call, made):
    said = json.loads(call("inspect", made, "--json").stdout)
    assert said["runs"] is True and said["problems"] == []
    assert said["name"] == "8B-like made of seed 1"
    assert said["bytes"] == made.stat().st_size


def test_its_answer_is_as_long_as_asked_for_and_no_token_for_ever(call, made):
    ran = call("run", made, "-p", "the", "-n", 200, "--json")
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert said["stop_reason"] == "length" and len(set(said["output_ids"])) > 40
    assert json.loads(call("run", made, "-p", "the", "-n", 200, "--threads", 1, "--json").stdout)["logits_hash"] == said["logits_hash"]


@pytest.mark.parametrize("kind", ["Q4_K_M", "Q5_K", "Q6_K", "BF16"])
def test_every_kind_of_weights_has_one_answer_by_every_instruction_set(call, tmp_path, kind):
    subprocess.run([sys.executable, ROOT / "tools/make_tiny_model.py", tmp_path / "vocab.gguf"], check=True)
    path = tmp_path / "made.gguf"
    subprocess.run([ROOT / "tools/make_model", "--vocab-from", tmp_path / "vocab.gguf", "--shape", "layers=2,hidden=512,heads=8,kv_heads=2,ffn=768",
                    "--type", kind, "-o", path], check=True, stderr=subprocess.DEVNULL)
    answers = {}
    for simd in ("portable", "avx2", "avx512"):
        ran = call("run", path, "-p", "the words of this prompt are more than a few", "-n", 20, "--simd", simd, "--json")
        if ran.returncode == 0:
            answers[simd] = json.loads(ran.stdout)["logits_hash"]
        else:
            assert "lacks" in ran.stderr or "do not exist here" in ran.stderr, ran.stderr
    assert "portable" in answers and len(set(answers.values())) == 1


def test_its_hidden_states_fit_f16(call, made):
    assert call("run", made, "-p", "the", "-n", 200, "--wire", "f16").returncode == 0


def test_the_model_for_streaming_is_small_for_a_disk_and_large_for_its_cap(streamed_model):
    told, cap = made_module.sizes(*made_module.STREAMED), made_module.STREAMED_CAP_MIB << 20
    assert streamed_model.stat().st_size == told["bytes"] <= 700e6
    assert told["bytes"] - cap >= 3 * cap and told["largest_tensor_bytes"] > cap / 4
    assert made_module.made("streamed", *made_module.STREAMED) == streamed_model


def test_the_shape_of_the_demo_model_takes_its_vocabulary(call, model, tmp_path):
    path = tmp_path / "135M.gguf"
    subprocess.run([ROOT / "tools/make_model", "--shape", "135M", "--type", "Q4_1", "--vocab-from", model, "-o", path], check=True,
                   stderr=subprocess.DEVNULL)
    real, made = (json.loads(call("inspect", p, "--json", "--tensors").stdout) for p in (model, path))
    assert made["runs"] is True
    assert [(t["name"], t["type"], t["dims"]) for t in sorted(made["tensors"], key=lambda t: t["name"])] == [
        (t["name"], t["type"], t["dims"]) for t in sorted(real["tensors"], key=lambda t: t["name"])]
    assert call("run", path, "--chat", "-p", "Hello", "-n", 4).returncode == 0
