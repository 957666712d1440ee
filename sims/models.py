"""The table of model shapes: what of a decoder decides its time, its memory and its KV cache.

Published configuration files, reduced to the ten numbers that matter. Parameters, KV bytes and operations follow
from them; nothing is typed in twice.
"""

from dataclasses import dataclass

from sims.gpus import Gpu
from workbench.errors import InputError, unknown_name


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """A Llama-family decoder: grouped-query attention, gated MLP, RMS norm.

    bytes_per_weight   2 for bf16
    num_gpus           tensor-parallel group it is served on
    window_tokens      sliding attention window, None: full attention. A query sees at most that many keys
    """

    name: str
    num_layers: int
    hidden: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    intermediate: int
    vocab: int
    max_context_tokens: int
    tied_embeddings: bool = False
    qkv_bias: bool = False
    bytes_per_weight: int = 2
    num_gpus: int = 1
    window_tokens: int | None = None
    source: str = ""

    @property
    def layer_weights(self) -> int:
        """Matrix entries of one layer."""
        q = self.hidden * self.num_heads * self.head_size
        kv = 2 * self.hidden * self.num_kv_heads * self.head_size
        return 2 * q + kv + 3 * self.hidden * self.intermediate

    @property
    def parameters(self) -> int:
        """Every parameter, norms and biases included."""
        embeddings = self.vocab * self.hidden * (1 if self.tied_embeddings else 2)
        bias = (self.num_heads + 2 * self.num_kv_heads) * self.head_size if self.qkv_bias else 0
        return self.num_layers * (self.layer_weights + 2 * self.hidden + bias) + embeddings + self.hidden

    @property
    def weight_bytes(self) -> float:
        return float(self.parameters * self.bytes_per_weight)

    @property
    def kv_bytes_per_token(self) -> float:
        """K and V of one token over all layers, at the width of the weights."""
        return float(2 * self.num_layers * self.num_kv_heads * self.head_size * self.bytes_per_weight)

    @property
    def dense_flop_per_token(self) -> float:
        """Multiply-adds of the layers' matrices for one token, two operations each; the output layer is apart."""
        return 2.0 * self.num_layers * self.layer_weights

    @property
    def output_flop_per_sample(self) -> float:
        """The output layer, run only for rows that draw a token."""
        return 2.0 * self.vocab * self.hidden

    @property
    def attention_flop_per_pair(self) -> float:
        """Scores and weighted sum for one query against one key, all heads and layers."""
        return 4.0 * self.num_layers * self.num_heads * self.head_size

    def kv_capacity_tokens(self, gpu: Gpu, *, memory_share: float = 0.9, activation_bytes: float = 2e9) -> int:
        """Tokens whose KV fits the group beside the weights. Raises `InputError` where the model itself does not fit.

        memory_share: the part of memory the server may use (0.9 is vLLM's default); activation_bytes: kept per GPU.
        """
        room = self.num_gpus * (memory_share * gpu.memory_bytes - activation_bytes) - self.weight_bytes
        if room < self.kv_bytes_per_token * 16:
            raise InputError(
                f"{self.name} needs {self.weight_bytes / 1e9:.1f} GB for weights and does not fit {self.num_gpus} x "
                f"{gpu.name} ({memory_share:.0%} of {gpu.memory_bytes / 1e9:.0f} GB each); use more GPUs or a smaller "
                "model"
            )
        return int(room // self.kv_bytes_per_token)


MODELS: dict[str, ModelShape] = {
    model.name: model
    for model in (
        ModelShape(
            name="Llama-3-8B",
            num_layers=32,
            hidden=4096,
            num_heads=32,
            num_kv_heads=8,
            head_size=128,
            intermediate=14336,
            vocab=128256,
            max_context_tokens=8192,
            source="config.json of meta-llama/Meta-Llama-3-8B; 8,030,261,248 parameters",
        ),
        ModelShape(
            name="Llama-2-7B",
            num_layers=32,
            hidden=4096,
            num_heads=32,
            num_kv_heads=32,
            head_size=128,
            intermediate=11008,
            vocab=32000,
            max_context_tokens=4096,
            source="config.json of meta-llama/Llama-2-7b-hf; 6,738,415,616 parameters",
        ),
        ModelShape(
            name="Llama-3-70B",
            num_layers=80,
            hidden=8192,
            num_heads=64,
            num_kv_heads=8,
            head_size=128,
            intermediate=28672,
            vocab=128256,
            max_context_tokens=8192,
            num_gpus=4,
            source="config.json of meta-llama/Meta-Llama-3-70B; 70,553,706,496 parameters",
        ),
        ModelShape(
            name="Qwen2.5-7B",
            num_layers=28,
            hidden=3584,
            num_heads=28,
            num_kv_heads=4,
            head_size=128,
            intermediate=18944,
            vocab=152064,
            max_context_tokens=32768,
            qkv_bias=True,
            source="config.json of Qwen/Qwen2.5-7B; 7,615,616,512 parameters",
        ),
        ModelShape(
            name="SmolLM2-135M",
            num_layers=30,
            hidden=576,
            num_heads=9,
            num_kv_heads=3,
            head_size=64,
            intermediate=1536,
            vocab=49152,
            max_context_tokens=8192,
            tied_embeddings=True,
            source="config.json of HuggingFaceTB/SmolLM2-135M-Instruct; 134,515,008 parameters",
        ),
    )
}


def model_named(name: str) -> ModelShape:
    """The model shape of that name. Raises `InputError` naming the nearest ones."""
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    return MODELS[name]
