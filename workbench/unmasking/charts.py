"""Pictures of the unmasking studies: line charts with intervals, panels of many, the order of revealing, an animation."""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from workbench.signals import FloatArray, IntArray
from workbench.unmasking.study import Chart

COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
    "#7f7f7f", "#8c564b", "#6a3d9a", "#b15928", "#1b9e77", "#a6cee3",
)  # fmt: skip
MARKERS = "osD^vP*X<>dph"


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    # The date would make two equal runs differ.
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()


def _draw(axes: Any, chart: Chart, small: bool, styles: dict[str, int]) -> None:
    for line in chart.series:
        index = styles.setdefault(line.name, len(styles)) if not line.guide else 0
        x, y = np.asarray(line.x, float), np.asarray(line.y, float)
        if line.guide:
            axes.plot(x, y, linestyle="--", linewidth=1.0, color="#555555", label=line.name)
            continue
        colour = COLOURS[index % len(COLOURS)]
        marker = MARKERS[index % len(MARKERS)]
        y = y if chart.floor is None else np.maximum(y, chart.floor)
        axes.plot(x, y, marker=marker, markersize=3 if small else 5, linewidth=1.2, color=colour, label=line.name)
        if line.half_width is not None:
            half = np.nan_to_num(np.asarray(line.half_width, float))
            least = chart.floor if chart.floor is not None else np.min(y[y > 0], initial=np.inf) / 10.0
            low = np.maximum(y - half, least) if chart.log_y else y - half
            if x.size == 1:  # a band needs two points
                axes.errorbar(x, y, yerr=[np.maximum(y - low, 0.0), half], color=colour, capsize=3, linewidth=1.0)
            else:
                axes.fill_between(x, low, y + half, color=colour, alpha=0.18, linewidth=0)
    if chart.log_x:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}" if value >= 0.01 else f"{value:.1e}")
    if chart.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(lambda value, _: "")
    axes.grid(alpha=0.3, linewidth=0.5, which="major")
    axes.set_title(chart.title, fontsize=9 if small else 11)


def line_chart(chart: Chart) -> bytes:
    """A PNG of one chart, the legend beside it."""
    figure = Figure(figsize=(8.2, 4.6), layout="constrained")
    axes = figure.subplots()
    _draw(axes, chart, False, {})
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    return _png(figure)


def panel_chart(charts: Sequence[Chart]) -> bytes:
    """A PNG of many small charts with one legend, in rows of three or four; a name has the same colour in all."""
    columns = 3 if len(charts) % 3 == 0 else 4
    rows = -(-len(charts) // columns)
    figure = Figure(figsize=(3.3 * columns, 2.9 * rows + 1.0), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    styles: dict[str, int] = {}
    handles: dict[str, Any] = {}
    for index, axes in enumerate(grid.flat):
        if index >= len(charts):
            axes.set_visible(False)
            continue
        _draw(axes, charts[index], True, styles)
        axes.tick_params(labelsize=7)
        if index // columns == rows - 1 or index + columns >= len(charts):
            axes.set_xlabel(charts[index].x_label, fontsize=8)
        if index % columns == 0:
            axes.set_ylabel(charts[index].y_label, fontsize=8)
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5, fontsize=8, frameon=False)
    return _png(figure)


def order_heat_map(revealed_at: IntArray, title: str) -> bytes:
    """Rows are runs, columns positions, colour the iteration in which a position was revealed."""
    runs = revealed_at.shape[0]
    figure = Figure(figsize=(9.0, 1.6 + min(0.14 * runs, 4.0)), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(revealed_at + 1, aspect="auto", interpolation="nearest", cmap="viridis", vmin=1)
    axes.set_xlabel("position")
    axes.set_ylabel("run")
    axes.set_title(title, fontsize=11)
    axes.yaxis.get_major_locator().set_params(integer=True)
    figure.colorbar(image, ax=axes, label="revealed in iteration", pad=0.01)
    return _png(figure)


def reveal_animation(frames: Sequence[tuple[FloatArray, IntArray]], seconds_per_frame: float = 0.35) -> bytes:
    """A GIF of one run, a frame an iteration: (entropy_nats [length], NaN where revealed; just_revealed [length] 0 or 1).

    Masked cells run from pale (certain) to dark blue (uncertain), revealed ones are white, those revealed now orange.
    """
    from PIL import Image, ImageDraw

    length = frames[0][0].shape[0]
    columns = min(length, 64)
    rows = -(-length // columns)
    cell = max(4, min(16, 900 // columns))
    top = max(float(np.nanmax([np.nanmax(h, initial=0.0) for h, _ in frames])), 1e-12)
    images = []
    step = max(1, len(frames) // 240)
    for index in [*range(0, len(frames), step), len(frames) - 1]:
        entropy, now = frames[index]
        share = np.clip(np.nan_to_num(entropy) / top, 0.0, 1.0)[:, None]
        colour = np.array([222.0, 235.0, 247.0]) * (1.0 - share) + np.array([8.0, 48.0, 107.0]) * share
        colour = np.where(np.isnan(entropy)[:, None], 255.0, colour)
        colour = np.where(now[:, None] > 0, np.array([230.0, 120.0, 0.0]), colour)
        pixels = np.full((rows * columns, 3), 238.0)
        pixels[:length] = colour
        block = np.kron(pixels.reshape(rows, columns, 3), np.ones((cell, cell, 1)))
        block[::cell] = block[:, ::cell] = 238.0
        image = Image.new("RGB", (columns * cell, rows * cell + 16), "white")
        image.paste(Image.fromarray(block.astype(np.uint8)), (0, 16))
        left = int(np.sum(~np.isnan(entropy)))
        ImageDraw.Draw(image).text(
            (2, 2), f"iteration {index + 1} of {len(frames)}, {left} masked before it", fill="black"
        )
        images.append(image)
    buffer = io.BytesIO()
    images[0].save(
        buffer,
        format="GIF",
        save_all=True,
        append_images=images[1:] + [images[-1]] * 4,
        duration=int(1000 * seconds_per_frame),
        loop=0,
    )
    return buffer.getvalue()
