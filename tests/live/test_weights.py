import contextlib
import json
import os
import pickle
import shutil
import struct
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from kernels.dispatch import backend
from tests.live.forward import prefill_logits
from tests.live.tiny import reference_logits, save, tiny_reference, write_gguf
from workbench.errors import InputError
from workbench.live.decoder import Decoder
from workbench.live.weights import load_model, unpermute_rotary

IDS = [5, 90, 17, 3, 3, 44, 8, 61, 20, 33, 71, 2, 9]


def logits_of(path: Path) -> torch.Tensor:
    return prefill_logits(Decoder(load_model(path, "fp32"), backend("torch")), IDS)


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize(
    ("family", "architecture", "permute"),
    [("llama", "llama", True), ("qwen2", "qwen2", False), ("qwen3", "qwen3", False)],
)
def test_gguf_and_safetensors_of_one_model_agree(tmp_path: Path, family: str, architecture: str, permute: bool) -> None:
    model = tiny_reference(family)
    ours = logits_of(write_gguf(model, tmp_path / "m.gguf", architecture, permute))
    torch.testing.assert_close(ours, logits_of(save(model, tmp_path / "m")), atol=1e-6, rtol=0)
    torch.testing.assert_close(ours, reference_logits(model, IDS), atol=1e-4, rtol=0)


@pytest.mark.usefixtures("own_cache")
def test_a_missing_unpermutation_would_show(tmp_path: Path) -> None:
    """The guard of the test above: rows left in the wrong order give other logits."""
    model = tiny_reference("llama")
    wrong = logits_of(write_gguf(model, tmp_path / "m.gguf", "llama", permute=False))
    assert (wrong - reference_logits(model, IDS)).abs().max() > 0.1


@pytest.mark.parametrize(("num_heads", "head_dim"), [(9, 64), (3, 64), (8, 8), (2, 8), (1, 2)])
def test_unpermute_is_the_inverse_of_llama_cpp_order(num_heads: int, head_dim: int) -> None:
    from tests.live.tiny import llama_cpp_order

    rows = np.arange(num_heads * head_dim * 3, dtype=np.float32).reshape(-1, 3)
    assert np.array_equal(unpermute_rotary(llama_cpp_order(rows, num_heads), num_heads), rows)


@pytest.mark.usefixtures("own_cache")
def test_unknown_architecture_is_refused_by_name(tmp_path: Path) -> None:
    path = write_gguf(tiny_reference("llama"), tmp_path / "m.gguf", "falcon", permute=True)
    with pytest.raises(InputError, match="falcon"):
        load_model(path, "fp32")


def test_conversion_is_cached_by_content_and_dtype(tmp_path: Path, own_cache: Path) -> None:
    path = write_gguf(tiny_reference("llama"), tmp_path / "m.gguf", "llama", permute=True)
    first = load_model(path, "fp32").directory
    made = (first / "model.safetensors").stat().st_mtime_ns
    assert load_model(path, "fp32").directory == first
    assert (first / "model.safetensors").stat().st_mtime_ns == made
    assert load_model(path, "bf16").directory != first
    assert first.is_relative_to(own_cache)
    assert not list(first.parent.glob(".*")), "no half-written directory is left"


@pytest.mark.usefixtures("own_cache")
class TestDamagedGGUF:
    """Damaged copies: refused in moments, naming file, tensor and sizes, without allocating what the file claims."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return write_gguf(tiny_reference("llama"), tmp_path / "model.gguf", "llama", permute=True)

    @staticmethod
    def refusal(path: Path) -> str:
        began = time.perf_counter()
        tracemalloc.start()
        with pytest.raises(InputError) as caught:
            load_model(path, "fp32")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert time.perf_counter() - began < 5.0
        assert peak < 20e6 + 3 * path.stat().st_size
        message = str(caught.value)
        assert str(path) in message
        assert "\n" not in message
        return message

    @staticmethod
    def at_tensor(data: bytearray, name: str) -> int:
        """Offset just behind a tensor's name in the tensor table: there stands its number of dimensions."""
        key = struct.pack("<Q", len(name)) + name.encode()
        return data.index(key) + len(key)

    def test_cut_short(self, path: Path) -> None:
        data = path.read_bytes()
        path.write_bytes(data[:-4096])
        message = self.refusal(path)
        assert "bytes" in message
        assert "tensor" in message

    def test_a_million_dimensions(self, path: Path) -> None:
        data = bytearray(path.read_bytes())
        place = self.at_tensor(data, "blk.0.attn_q.weight")
        data[place : place + 4] = struct.pack("<I", 500_000)
        path.write_bytes(data)
        message = self.refusal(path)
        assert "blk.0.attn_q.weight" in message
        assert "500000" in message

    def test_a_product_that_wraps(self, path: Path) -> None:
        data = bytearray(path.read_bytes())
        place = self.at_tensor(data, "blk.0.attn_q.weight")
        data[place + 4 : place + 20] = struct.pack("<QQ", 2**33, 2**33)
        path.write_bytes(data)
        message = self.refusal(path)
        assert "blk.0.attn_q.weight" in message
        assert str(2**66 * 4) in message

    def test_offset_past_the_end(self, path: Path) -> None:
        data = bytearray(path.read_bytes())
        place = self.at_tensor(data, "blk.0.attn_q.weight")
        data[place + 24 : place + 32] = struct.pack("<Q", 2**40)
        path.write_bytes(data)
        assert "blk.0.attn_q.weight" in self.refusal(path)

    @pytest.mark.parametrize("place", [8, 16], ids=["tensor count", "metadata count"])
    def test_counts_beyond_the_file(self, path: Path, place: int) -> None:
        data = bytearray(path.read_bytes())
        data[place : place + 8] = struct.pack("<Q", 2**62)
        path.write_bytes(data)
        assert "count" in self.refusal(path)

    def test_a_weight_that_is_nan(self, tmp_path: Path) -> None:
        model = tiny_reference("llama")
        model.model.layers[1].mlp.down_proj.weight.data[3, 5] = float("nan")
        message = self.refusal(write_gguf(model, tmp_path / "nan.gguf", "llama", permute=True))
        assert "blk.1.ffn_down.weight" in message
        assert "[3, 5]" in message

    def test_random_damage_never_escapes_as_another_error(self, path: Path) -> None:
        original = path.read_bytes()
        rng = np.random.default_rng(0)
        header = original.index(b"output_norm.weight") + 64
        for _ in range(60):
            data = bytearray(original)
            for place in rng.integers(0, header, 3):
                data[place] = rng.integers(0, 256)
            path.write_bytes(data)
            with contextlib.suppress(InputError):  # anything else fails the test
                load_model(path, "fp32")

    def test_empty_and_foreign_files(self, tmp_path: Path) -> None:
        for content in (b"", b"GGUF", b"GGUF\x03\x00\x00\x00", b"PK\x03\x04" * 50):
            path = tmp_path / "m.gguf"
            path.write_bytes(content)
            with pytest.raises(InputError, match=r"m\.gguf"):
                load_model(path, "fp32")


class TestDamagedSafetensors:
    @pytest.fixture
    def directory(self, tmp_path: Path, tiny_llama_directory: Path) -> Path:
        return shutil.copytree(tiny_llama_directory, tmp_path / "model")

    @pytest.fixture
    def sharded(self, tmp_path: Path) -> Path:
        directory = save(tiny_reference("llama"), tmp_path / "sharded", max_shard_size="200KB")
        assert len(list(directory.glob("*.safetensors"))) >= 2
        return directory

    @staticmethod
    def refusal(directory: Path) -> str:
        with pytest.raises(InputError) as caught:
            load_model(directory, "fp32")
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def test_shards_load_as_one_file_does(self, sharded: Path, directory: Path) -> None:
        torch.testing.assert_close(logits_of(sharded), logits_of(directory), atol=0, rtol=0)

    def test_a_missing_shard(self, sharded: Path) -> None:
        gone = sorted(sharded.glob("*.safetensors"))[1]
        gone.unlink()
        assert gone.name in self.refusal(sharded)

    def test_a_shard_cut_short(self, sharded: Path) -> None:
        cut = sorted(sharded.glob("*.safetensors"))[0]
        cut.write_bytes(cut.read_bytes()[:-4096])
        message = self.refusal(sharded)
        assert cut.name in message
        assert "tensor 'model." in message
        assert "bytes" in message

    def test_a_tensor_dropped(self, directory: Path) -> None:
        file = directory / "model.safetensors"
        tensors = load_file(file)
        del tensors["model.layers.1.mlp.up_proj.weight"]
        save_file(tensors, file)
        message = self.refusal(directory)
        assert "model.layers.1.mlp.up_proj.weight" in message
        assert "[96, 64]" in message

    def test_a_tensor_too_many(self, directory: Path) -> None:
        file = directory / "model.safetensors"
        save_file({**load_file(file), "model.layers.0.self_attn.q_proj.bias": torch.zeros(64)}, file)
        assert "model.layers.0.self_attn.q_proj.bias" in self.refusal(directory)

    def test_a_wrong_shape(self, directory: Path) -> None:
        config = json.loads((directory / "config.json").read_text())
        (directory / "config.json").write_text(json.dumps({**config, "vocab_size": 98}))
        message = self.refusal(directory)
        assert "[97, 64]" in message
        assert "[98, 64]" in message

    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_a_weight_that_is_not_finite(self, directory: Path, value: float) -> None:
        file = directory / "model.safetensors"
        tensors = load_file(file)
        tensors["model.layers.0.self_attn.v_proj.weight"][1, 2] = value
        save_file(tensors, file)
        message = self.refusal(directory)
        assert "model.layers.0.self_attn.v_proj.weight" in message
        assert "[1, 2]" in message

    def test_a_pickle_is_never_opened(self, directory: Path, tmp_path: Path) -> None:
        mark = tmp_path / "ran"

        class Bomb:
            def __reduce__(self):
                return (os.mkdir, (str(mark),))

        for name in ("model.safetensors", "pytorch_model.bin"):
            (directory / "model.safetensors").unlink(missing_ok=True)
            (directory / name).write_bytes(pickle.dumps(Bomb()))
            assert "safetensors" in self.refusal(directory)
            assert not mark.exists()

    def test_a_header_that_lies(self, directory: Path) -> None:
        file = directory / "model.safetensors"
        for length in (0, 1, 2**40, 2**63 + 1):
            file.write_bytes(struct.pack("<Q", length) + b'{"a":1}' * 10)
            assert "not a safetensors file" in self.refusal(directory)

    def test_a_directory_without_weights(self, directory: Path) -> None:
        (directory / "model.safetensors").unlink()
        assert "no model.safetensors" in self.refusal(directory)


def test_embeddings_tied_without_and_with_an_output_layer_agree_and_untied_without_one_is_refused(
    tmp_path: Path,
) -> None:
    without = save(tiny_reference("llama-tied"), tmp_path / "without")
    tensors = load_file(without / "model.safetensors")
    assert "lm_head.weight" not in tensors
    given = shutil.copytree(without, tmp_path / "with")
    save_file({**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"].clone()}, given / "model.safetensors")
    torch.testing.assert_close(logits_of(without), logits_of(given), atol=0, rtol=0)
    other = shutil.copytree(without, tmp_path / "other")
    save_file({**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"] + 1}, other / "model.safetensors")
    with pytest.raises(InputError, match="weight differs"):
        load_model(other, "fp32")
    untied = shutil.copytree(without, tmp_path / "untied")
    config = json.loads((untied / "config.json").read_text())
    (untied / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    with pytest.raises(InputError, match=r"lm_head\.weight"):
        load_model(untied, "fp32")


def test_names_that_do_not_exist_offer_what_does(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="smollm2"):
        load_model("smolm2", "fp32")
    with pytest.raises(InputError, match="no such file"):
        load_model(tmp_path / "nowhere", "fp32")
    with pytest.raises(InputError, match="bf16"):
        load_model("smollm2", "fp61")
