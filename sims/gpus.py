"""The table of accelerators: what the data sheet promises, with where each number comes from.

Peaks are data-sheet values for dense bf16 (no sparsity); how much of them a step really reaches is the business of
`sims.step_cost`. Idle power is rarely published: those entries are stated as assumptions, and only energy depends on
them.
"""

from dataclasses import dataclass

from workbench.errors import InputError, unknown_name

GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One accelerator. All peaks are of one device.

    peak_flop_per_s       dense bf16 tensor throughput, floating-point operations a second
    bandwidth_bytes_per_s device memory
    memory_bytes          device memory
    num_multiprocessors   streaming multiprocessors or compute units: what a wave of tiles is counted in
    power_idle_w, power_peak_w   at rest, and the board limit
    link_bytes_per_s      to its peers in one server, one direction, all links together
    host_bytes_per_s      to host memory (PCIe), one direction
    source                where each number is published; "assumed" marks what is not
    """

    name: str
    peak_flop_per_s: float
    bandwidth_bytes_per_s: float
    memory_bytes: float
    num_multiprocessors: int
    power_idle_w: float
    power_peak_w: float
    link_bytes_per_s: float
    host_bytes_per_s: float
    source: str

    def __post_init__(self) -> None:
        for name in ("peak_flop_per_s", "bandwidth_bytes_per_s", "memory_bytes", "power_peak_w", "host_bytes_per_s"):
            if not 0.0 < getattr(self, name) < float("inf"):
                raise InputError(f"Gpu.{name} must be in (0, inf), got {getattr(self, name)}")
        if not 0.0 <= self.power_idle_w <= self.power_peak_w:
            raise InputError(f"Gpu.power_idle_w must be in [0, power_peak_w = {self.power_peak_w}]")


GPUS: dict[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        Gpu(
            name="A100-80G",
            peak_flop_per_s=312e12,
            bandwidth_bytes_per_s=2039e9,
            memory_bytes=80 * GIB,
            num_multiprocessors=108,
            power_idle_w=60.0,
            power_peak_w=400.0,
            link_bytes_per_s=300e9,
            host_bytes_per_s=32e9,
            source="NVIDIA A100 Tensor Core GPU data sheet (SXM4 80 GB): 312 TFLOP/s bf16, 2,039 GB/s, 400 W, "
            "NVLink 600 GB/s both ways, PCIe gen 4 64 GB/s both ways; idle power assumed",
        ),
        Gpu(
            name="H100",
            peak_flop_per_s=989.4e12,
            bandwidth_bytes_per_s=3350e9,
            memory_bytes=80 * GIB,
            num_multiprocessors=132,
            power_idle_w=70.0,
            power_peak_w=700.0,
            link_bytes_per_s=450e9,
            host_bytes_per_s=64e9,
            source="NVIDIA H100 Tensor Core GPU data sheet (SXM5 80 GB): 1,979 TFLOP/s bf16 with sparsity, half of it "
            "dense (989.4 in the Hopper architecture paper), 3.35 TB/s, 700 W, NVLink 900 GB/s both ways, PCIe gen 5 "
            "128 GB/s both ways; idle power assumed",
        ),
        Gpu(
            name="H200",
            peak_flop_per_s=989.4e12,
            bandwidth_bytes_per_s=4800e9,
            memory_bytes=141e9,
            num_multiprocessors=132,
            power_idle_w=75.0,
            power_peak_w=700.0,
            link_bytes_per_s=450e9,
            host_bytes_per_s=64e9,
            source="NVIDIA H200 Tensor Core GPU data sheet (SXM): compute as H100, 4.8 TB/s, 141 GB, 700 W; idle power "
            "assumed",
        ),
        Gpu(
            name="L4",
            peak_flop_per_s=121e12,
            bandwidth_bytes_per_s=300e9,
            memory_bytes=24 * GIB,
            num_multiprocessors=58,
            power_idle_w=16.0,
            power_peak_w=72.0,
            link_bytes_per_s=32e9,
            host_bytes_per_s=32e9,
            source="NVIDIA L4 Tensor Core GPU data sheet: 242 TFLOP/s bf16 with sparsity, half of it dense, 300 GB/s, "
            "24 GB, 72 W, PCIe gen 4 x16 (no NVLink: peers go over PCIe); idle power assumed",
        ),
        Gpu(
            name="MI300X",
            peak_flop_per_s=1307.4e12,
            bandwidth_bytes_per_s=5300e9,
            memory_bytes=192e9,
            num_multiprocessors=304,
            power_idle_w=140.0,
            power_peak_w=750.0,
            link_bytes_per_s=448e9,
            host_bytes_per_s=64e9,
            source="AMD Instinct MI300X data sheet: 1,307.4 TFLOP/s bf16 dense, 5.3 TB/s, 192 GB, 750 W, Infinity "
            "Fabric 896 GB/s both ways, PCIe gen 5 x16; idle power assumed",
        ),
    )
}


def gpu_named(name: str) -> Gpu:
    """The accelerator of that name. Raises `InputError` naming the nearest ones."""
    if name not in GPUS:
        raise unknown_name("GPU", name, GPUS)
    return GPUS[name]
