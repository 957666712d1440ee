"""Both kinds of decoding on real models, in one live engine: a decoder for autoregressive requests, an encoder for masked ones.

    requests -> DiffusionEnginePlant -> MixedExecutor -> LiveExecutor (decoder) and MaskedRows (encoder)

Every step takes what the two models took, measured. Masked requests decode antibody variable domains from nothing.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.engine.clock import CountedClock
from workbench.engine.config import EngineConfig
from workbench.engine.diffusion import DiffusionEnginePlant
from workbench.engine.requests import RequestSpec
from workbench.live.executor import LiveExecutor
from workbench.live.kv_cache import allocate_kv_cache
from workbench.live.masked_model import MaskedModel
from workbench.live.session import LiveModel
from workbench.protocols import DecisionPoint
from workbench.unmasking.mixed_executor import MixedExecutor
from workbench.unmasking.model_predictor import ModelPredictor
from workbench.unmasking.rows import MaskedRows


def live_queue(
    decoder: LiveModel,
    encoder: MaskedModel,
    prompts: Sequence[str],
    masked_lengths: Sequence[int],
    *,
    max_tokens: int = 16,
    seed: int = 0,
    temperature: float = 1.0,
    controlled: frozenset[DecisionPoint] = frozenset({DecisionPoint.REVEAL}),
) -> tuple[DiffusionEnginePlant, LiveExecutor, MaskedRows]:
    """A live plant in which text prompts and masked sequences alternate, all arriving at once.

    A masked request has one prompt token (the begin token) beside its positions.
    """
    texts = [decoder.request(text, max_tokens).prompt.token_ids for text in prompts]
    count = len(texts) + len(masked_lengths)
    # Alternate the two kinds as long as both last: first all places, then who takes them.
    places = sorted(
        [(2 * i, False, i) for i in range(len(texts))] + [(2 * i + 1, True, i) for i in range(len(masked_lengths))]
    )
    diffuses = np.array([is_masked for _, is_masked, _ in places])
    prompt_ids = [[encoder.begin_id] if is_masked else list(texts[i]) for _, is_masked, i in places]
    output = np.array([masked_lengths[i] if is_masked else max_tokens for _, is_masked, i in places])
    requests = RequestSpec(
        arrival_s=np.zeros(count),
        prompt_tokens=np.array([len(ids) for ids in prompt_ids]),
        output_tokens=output,
        kind=diffuses.astype(np.int64),
        priority=np.zeros(count, dtype=np.int64),
        kind_names=("any", "diffusion"),
        length_known=False,
    )
    longest = int((requests.prompt_tokens + requests.output_tokens).max())
    config = EngineConfig(num_blocks=count * (longest // 16 + 2), block_size=16, max_context_tokens=longest + 1)
    model: Any = decoder.decoder
    cache = allocate_kv_cache(model.config, config.num_blocks, config.block_size, model.dtype, model.device)
    inner = LiveExecutor(model, cache, prompt_ids, seed=seed, temperature=temperature)
    predictor = ModelPredictor(encoder)
    rows = MaskedRows(diffuses, output, lambda request: predictor, seed=seed)
    plant = DiffusionEnginePlant(requests, MixedExecutor(inner, rows), CountedClock(), config, rows, controlled)
    return plant, inner, rows
