"""`workbench bench sim`: how fast the simulator is, on one core, record level summary."""

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.console import JsonFlag, Output

TOKENS_TARGET, REQUESTS_TARGET = 2e6, 5500.0


def bench_sim(
    trace: Annotated[
        Path, typer.Option(help="Azure conversation trace, for its lengths; absent: the built-in generator.")
    ] = Path("../shared/data/traces/azure_llm_2023/AzureLLMInferenceTrace_conv.csv"),
    repeats: Annotated[int, typer.Option(help="The best of so many runs counts.", min=1)] = 3,
    sweep: Annotated[
        bool, typer.Option(help="Also a sweep on one and on two processes (ten minutes, idle cores).")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Decode tokens a second with 256 sequences and three controllers; requests a second on the vidur-like scenario.

    Time is processor time of this process, the compilation of the first run left out. Exit 1 where a target is missed.
    """
    from sims.speed import controlled_tokens_per_s, sweep_efficiency, vidur_like_requests_per_s

    out = Output(as_json)
    with out.progress("bench sim") as tell:
        tokens = controlled_tokens_per_s(repeats)
        tell(0.7)
        requests, notes = vidur_like_requests_per_s(trace if trace.is_file() else None, repeats)
        tell(1.0)
    figures = {
        "decode_tokens_per_s": tokens.per_s,
        "step_us": tokens.step_us,
        "mean_running": tokens.mean_running,
        "vidur_like_requests_per_s": requests.per_s,
        "vidur_like_step_us": requests.step_us,
        "vidur_like_mean_running": requests.mean_running,
    }
    if sweep:
        figures["sweep_points_per_s"], figures["sweep_efficiency_2"] = sweep_efficiency()
        out.say(
            f"sweep: {figures['sweep_points_per_s']:.2f} points/s on one process, {figures['sweep_efficiency_2']:.0%} of "
            "twice that on two"
        )
    out.say(
        f"controlled: {tokens.per_s:,.0f} decode tokens/s, {tokens.step_us:.0f} us a step of {tokens.mean_running:.0f} "
        f"sequences (target {TOKENS_TARGET:,.0f})"
    )
    out.say(
        f"vidur-like: {requests.per_s:,.0f} requests/s, {requests.step_us:.1f} us a step of {requests.mean_running:.0f} "
        f"sequences (target {REQUESTS_TARGET:,.0f}; Vidur measured 500 to 530 on such a machine); {notes}"
    )
    out.done(tokens.per_s >= TOKENS_TARGET and requests.per_s >= REQUESTS_TARGET, figures)
