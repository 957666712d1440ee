"""Times the kernels: `python -m kernels.bench` on a GPU, `python -m kernels.bench --cpu` on this machine's cores.

GPU: `logit_stats` and paged attention against their torch twin, torch.compile and the measured copy bandwidth, each checked
against float64 on the device first. CPU: the C++ ops against torch. Prints a table and writes one JSON with `--out`.
Without a GPU the GPU check says so and exits 0. The engine is timed by `workbench bench live`.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

from kernels import dispatch, reference


@dataclass(frozen=True)
class Timing:
    name: str
    median_s: float
    bytes_per_s: float | None = None  # of the data the op must move at least
    copy_frac: float | None = None  # the same over the measured copy bandwidth


def time_s(run: Callable[[], object], repeats: int, device: str) -> float:
    """Median seconds of one call, after two to warm up."""
    for _ in range(2):
        run()
    times = []
    for _ in range(repeats):
        if device == "cuda":
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            run()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 1e3)
        else:
            began = time.perf_counter()
            run()
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def copy_bandwidth(device: str, num_bytes: int) -> float:
    """Bytes read and written per second by a copy."""
    source = torch.empty(num_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * num_bytes / time_s(lambda: target.copy_(source), 20, device)


def check_stats(ops: dispatch.Ops, z: torch.Tensor) -> float:
    """Largest error of H in nats against float64 on the same device."""
    rows = min(8, z.shape[0])
    found = ops.logit_stats(z[:rows], torch.ones(rows, device=z.device), **key(rows, z.device))
    log_p = z[:rows].double().log_softmax(dim=1)
    return float((found.entropy_raw_nats.double() + (log_p.exp() * log_p).sum(dim=1)).abs().max())


def key(rows: int, device: torch.device | str) -> dict:
    index = torch.arange(rows, device=device)
    return {"seed": 1, "request_id": index, "token_index": index}


def gpu() -> tuple[list[Timing], dict[str, float]]:
    device = "cuda"
    copy = copy_bandwidth(device, 1 << 30)
    ops, torch_ops = dispatch.backend("triton"), dispatch.backend("torch")
    timings, errors = [Timing("copy", (2 << 30) / copy, copy, 1.0)], {}

    def add(name: str, run: Callable[[], object], num_bytes: int) -> None:
        seconds = time_s(run, 20, device)
        timings.append(Timing(name, seconds, num_bytes / seconds, num_bytes / seconds / copy))

    for rows, n in ((1, 128_256), (32, 128_256), (1024, 128_256)):
        z = torch.randn(rows, n, device=device) * 3
        t = torch.full((rows,), 0.8, device=device)
        errors[f"logit_stats {rows}x{n} entropy_nats"] = check_stats(ops, z)
        add(f"logit_stats {rows}x{n}", lambda z=z, t=t, r=rows: ops.logit_stats(z, t, **key(r, device)), z.nbytes)
        add(f"logsumexp torch {rows}x{n}", lambda z=z: torch.logsumexp(z, dim=1), z.nbytes)
        compiled = torch.compile(lambda x: torch.logsumexp(x, dim=1), dynamic=False)
        add(f"logsumexp torch.compile {rows}x{n}", lambda z=z, c=compiled: c(z), z.nbytes)
        if rows <= 32:
            add(
                f"logit_stats torch {rows}x{n}",
                lambda z=z, t=t, r=rows: torch_ops.logit_stats(z, t, **key(r, device)),
                z.nbytes,
            )
    for rows, context in ((64, 8192), (1, 8192)):
        blocks = context // 16
        k, v = (torch.randn(rows * blocks, 16, 8, 128, device=device, dtype=torch.bfloat16) for _ in range(2))
        q = torch.randn(rows, 32, 128, device=device, dtype=torch.bfloat16)
        table = torch.randperm(rows * blocks, device=device).view(rows, blocks).int()
        length = torch.full((rows,), context, dtype=torch.int32, device=device)
        found = ops.paged_attention(q[:2], k, v, table[:2], length[:2], scale=0.09)
        exact = reference.paged_attention(
            q[:2].double().float(), k.float(), v.float(), table[:2], length[:2], scale=0.09
        )
        errors[f"paged_attention {rows}x{context}"] = float((found.out.float() - exact.out).abs().max())
        arguments = (q, k, v, table, length)
        add(
            f"paged_attention {rows}x{context}",
            lambda a=arguments: ops.paged_attention(*a, scale=0.09),
            k.nbytes + v.nbytes,
        )
    return timings, errors


def cpu(repeats: int) -> tuple[list[Timing], dict[str, float]]:
    ops, torch_ops = dispatch.backend("cpu"), dispatch.backend("torch")
    timings, errors = [], {}
    copy = copy_bandwidth("cpu", 256 << 20)
    timings.append(Timing("copy", (512 << 20) / copy, copy, 1.0))

    def add(name: str, run: Callable[[], object], num_bytes: int) -> None:
        seconds = time_s(run, repeats, "cpu")
        timings.append(Timing(name, seconds, num_bytes / seconds, num_bytes / seconds / copy))

    for rows in (1, 8, 32):
        z = torch.randn(rows, 49_152) * 3
        errors[f"logit_stats {rows} entropy_nats"] = check_stats(ops, z)
        for one in (ops, torch_ops):
            add(
                f"logit_stats {one.implementation} {rows}x49152",
                lambda z=z, o=one, r=rows: o.logit_stats(
                    z, torch.full((r,), 0.8), **key(r, "cpu"), sampler="inverse_cdf"
                ),
                z.nbytes,
            )
        for size_out, size_in in ((960, 576), (3072, 576), (576, 1536), (49_152, 576)):
            weight, x = torch.randn(size_out, size_in).bfloat16(), torch.randn(rows, size_in).bfloat16()
            for one in (ops, torch_ops):
                packed = one.linear_prepack(weight)
                add(
                    f"linear {one.implementation} {rows}x{size_in}x{size_out}",
                    lambda o=one, x=x, p=packed: o.linear(x, p),
                    weight.nbytes,
                )
    for context in (150, 1000):
        blocks = -(-context // 16)
        k, v = (torch.randn(32 * blocks, 16, 3, 64).bfloat16() for _ in range(2))
        q, length = torch.randn(32, 9, 64).bfloat16(), torch.full((32,), context, dtype=torch.int32)
        table = torch.randperm(32 * blocks).view(32, blocks).int()
        num_bytes = 2 * 32 * context * 3 * 64 * 2
        for one in (ops, torch_ops):
            add(
                f"paged_attention {one.implementation} 32x{context}",
                lambda o=one, a=(q, k, v, table, length): o.paged_attention(*a, scale=0.125),
                num_bytes,
            )
    return timings, errors


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels.bench", description=__doc__.split("\n")[0])
    parser.add_argument("--cpu", action="store_true", help="time the C++ ops on this machine's cores")
    parser.add_argument("--repeats", type=int, default=15, help="timed calls per op on the CPU")
    parser.add_argument("--out", help="write the figures to this JSON file")
    arguments = parser.parse_args()
    if not arguments.cpu and not torch.cuda.is_available():
        print("no GPU here: nothing was measured; `python -m kernels.bench --cpu` times the CPU kernels")
        return 0
    torch.manual_seed(0)
    timings, errors = cpu(arguments.repeats) if arguments.cpu else gpu()

    from rich.console import Console
    from rich.table import Table

    table = Table("op", "median", "GB/s", "of copy")
    for t in timings:
        table.add_row(t.name, f"{t.median_s * 1e3:.3f} ms", f"{t.bytes_per_s / 1e9:.1f}", f"{t.copy_frac:.0%}")
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    for name, error in errors.items():
        print(f"{name}: largest error {error:.2e}")
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump({"timings": [asdict(t) for t in timings], "errors": errors}, file, indent=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
