"""The choice of a backend is explicit; `kernels` is ours; nothing here switches the floating-point mode."""

import importlib.util
import logging
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

import kernels
from kernels import dispatch
from kernels.cpu import build

REPOSITORY = Path(__file__).resolve().parents[2]


def test_backends_say_what_runs():
    assert dispatch.backend("torch").implementation == "torch"
    assert dispatch.backend("cpu").implementation.split("-")[0] in ("cpu", "torch, no compiler")
    with pytest.raises(ValueError, match="backend must be one of torch, cpu, triton, got 'cuda'"):
        dispatch.backend("cuda")


def test_import_kernels_is_ours_and_transformers_finds_none():
    assert Path(kernels.__file__).parent == REPOSITORY / "kernels"
    script = (
        "import kernels, transformers\n"
        "from transformers.utils import is_kernels_available\n"
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "c = LlamaConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=8)\n"
        "LlamaForCausalLM(c)\n"
        "print(is_kernels_available(), kernels.__file__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    available, path = done.stdout.split()[-2:]
    assert available == "False"
    assert Path(path).parent == REPOSITORY / "kernels"


def test_kernels_imports_nothing_of_ours():
    for path in (REPOSITORY / "kernels").rglob("*.py"):
        for line in path.read_text().splitlines():
            words = line.split()
            if words[:1] in (["import"], ["from"]) and len(words) > 1:
                assert words[1].split(".")[0] not in ("workbench", "controllers", "sims"), f"{path.name}: {line}"


def test_numpy_twins_need_no_torch():
    script = "import sys, kernels.philox, kernels.reference_numpy, kernels.selection_numpy\nassert 'torch' not in sys.modules\n"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=REPOSITORY)


def test_no_compiler_falls_back_to_torch_and_says_so_once(monkeypatch, caplog, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    build.extension.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            first, second = dispatch.backend("cpu"), dispatch.backend("cpu")
        assert first.implementation == second.implementation == "torch, no compiler"
        assert first.fused_decoder is None
        said = [record.message for record in caplog.records if "C++" in record.message]
        assert len(said) == 1
        assert "\n" not in said[0]
        assert (
            first.logit_stats(torch.zeros(1, 4), torch.zeros(1), seed=0, request_id=[0], token_index=[0]).token_id == 0
        )
        assert not any(path.name.startswith("build-") for path in tmp_path.rglob("*"))  # nothing half-built stays
    finally:
        build.extension.cache_clear()


def subnormals_survive() -> bool:
    tiny, tiny32 = np.float64(5e-324), np.nextafter(np.float32(0), np.float32(1))
    return bool(
        tiny > 0 and tiny * 1.0 > 0 and np.nextafter(0, 1) > 0 and tiny32 * np.float32(1.0) > 0
        and bool((torch.full((4096,), float(tiny32)) * 1.0 > 0).all())
    )  # fmt: skip


def test_flush_to_zero_stays_off(ops):
    z = torch.randn(64, 4096)
    ops.logit_stats(z, torch.ones(64), seed=0, request_id=torch.arange(64), token_index=torch.arange(64))
    ops.linear(torch.randn(8, 64).bfloat16(), ops.linear_prepack(torch.randn(96, 64).bfloat16()))
    ops.swiglu(torch.randn(64, 4096))
    seen = [subnormals_survive()]
    workers = [threading.Thread(target=lambda: seen.append(subnormals_survive())) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert seen == [True] * 5
    assert importlib.util.find_spec("kernels") is not None


def test_bench_without_a_gpu_says_so_and_exits_0():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    done = subprocess.run([sys.executable, "-m", "kernels.bench"], capture_output=True, text=True, cwd=REPOSITORY)
    assert done.returncode == 0
    assert done.stdout.startswith("no GPU here")
