import pytest

from tests.live.engines.vllm_env import vllm_python
from workbench.live.session import LiveModel


@pytest.fixture(scope="session")
def smollm2_bf16() -> LiveModel:
    """Our own engine beside vLLM; skips where there is no vLLM to compare with."""
    vllm_python()
    return LiveModel.load("smollm2", dtype="bf16", backend="cpu")


@pytest.fixture(scope="session")
def prompts(smollm2_bf16: LiveModel) -> list[list[int]]:
    """32 built-in prompts as token ids."""
    from workbench.live.prompts import builtin_prompts

    assert smollm2_bf16.tokenizer is not None
    specs = builtin_prompts()
    return [smollm2_bf16.tokenizer.chat_prompt(specs[i % len(specs)].prompt or "").token_ids for i in range(32)]
