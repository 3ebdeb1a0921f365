"""`hearth inspect` as a person and a script call it: text, JSON, exit codes."""
import json
import subprocess
import sys

import pytest
from cluster import PATIENCE, ROOT

pytestmark = pytest.mark.covering


@pytest.fixture
def inspect(hearth):
    return lambda *argv: subprocess.run([hearth, "inspect", *map(str, argv)], capture_output=True, text=True, timeout=30 * PATIENCE)


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.gguf"
    subprocess.run([sys.executable, ROOT / "tools/make_tiny_model.py", "--untied", path], check=True)
    return path


def test_a_tiny_model_is_described_in_text_and_json(inspect, tiny):
    ran = inspect(tiny)
    assert ran.returncode == 0 and ran.stderr == ""
    assert ran.stdout.startswith("%s\n  name             tiny llama\n" % tiny)
    assert ran.stdout.endswith("\nHearth can run it.\n")
    ran = inspect(tiny, "--json", "--tensors")
    assert ran.returncode == 0
    said = json.loads(ran.stdout)
    assert said["runs"] is True and said["problems"] == []
    assert said["bytes"] == tiny.stat().st_size
    assert said["tensors"][-1]["name"] == "output.weight" and said["tensors"][-1]["dims"] == [64, 320]


def test_what_is_no_model_is_an_error_that_says_where(inspect, tiny, tmp_path):
    ran = inspect(tmp_path / "none.gguf")
    assert ran.returncode == 1 and ran.stdout == ""
    assert ran.stderr == "hearth inspect: %s: cannot open: No such file or directory\n" % (tmp_path / "none.gguf")
    tiny.write_bytes(tiny.read_bytes()[:5000])
    ran = inspect(tiny)
    assert ran.returncode == 1 and ran.stdout == ""
    assert "byte " in ran.stderr and str(tiny) in ran.stderr
    assert inspect(tmp_path).returncode == 1


def test_a_model_hearth_cannot_run_is_described_with_exit_code_0(inspect, tiny):
    tiny.write_bytes(tiny.read_bytes().replace(b"\5\0\0\0\0\0\0\0llama", b"\5\0\0\0\0\0\0\0lloma", 1))
    ran = inspect(tiny)
    assert ran.returncode == 0
    assert "Hearth cannot run it:\n  - architecture \"lloma\" is not supported" in ran.stdout


def test_without_a_model_it_is_a_usage_error(inspect):
    assert inspect().returncode == 2


def test_smollm2_runs(inspect, model):
    said = json.loads(inspect(model, "--json").stdout)
    assert said["runs"] is True
    assert said["parameters"] == 134515008
    assert said["hparams"]["n_layers"] == 30 and said["hparams"]["head_dim"] == 64
    assert {t["type"]: t["tensors"] for t in said["types"]} == {"f32": 61, "q4_1": 210, "q8_0": 1}
