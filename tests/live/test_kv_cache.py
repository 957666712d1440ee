import pytest
import torch

from workbench.errors import InputError
from workbench.live.kv_cache import allocate_kv_cache
from workbench.live.session import LiveModel


def test_shape_and_bytes(tiny_llama: LiveModel) -> None:
    cache = allocate_kv_cache(tiny_llama.config, 7, 4, torch.float32, torch.device("cpu"))
    assert cache.num_blocks == 7
    assert cache.keys[0].shape == (7, 4, 2, 8)
    assert cache.bytes_per_token == 3 * 2 * 2 * 8 * 4


@pytest.mark.parametrize(("blocks", "size", "word"), [(2**40, 16, "GB"), (0, 16, "at least 1"), (4, 0, "at least 1")])
def test_too_little_memory_is_said_before_any_work(tiny_llama: LiveModel, blocks: int, size: int, word: str) -> None:
    with pytest.raises(InputError, match=word):
        allocate_kv_cache(tiny_llama.config, blocks, size, torch.float32, torch.device("cpu"))
