"""Train an `MLPRouter` on recorded generations: small, seeded, and with probabilities that mean what they say.

Label of a question: the cheapest strategy that is right, by the data set's own mean cost; where none is right, the cheapest.
Loss: mean cross-entropy + `weight_decay` / 2 * |weights|^2, by L-BFGS from a seeded start. Calibration: the same fit on 5 folds;
one temperature is chosen on the held-out scores (Guo et al. 2017, "On calibration of modern neural networks").
Raises `InputError` for fewer than 20 questions or labels of one class only.
Source: ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from controllers.routing.descriptors import describe
from controllers.routing.mlp import NUM_FEATURES, NUM_STRATEGIES, MLPRouter
from workbench.errors import InputError
from workbench.protocols import Strategy
from workbench.routing.panel import Panel
from workbench.signals import FloatArray, IntArray

MIN_QUESTIONS = 20
NUM_FOLDS = 5


@dataclass(frozen=True)
class FittedMLP:
    router: MLPRouter
    calibration_error: float  # expected calibration error of the held-out probabilities, 5 bins
    held_out_accuracy: float  # share of held-out questions whose label was predicted
    majority_share: float  # what always predicting the commonest label would reach


def best_strategy(panel: Panel) -> IntArray:
    """[Q] the label of each question."""
    cost = panel.output_tokens.mean(axis=0)
    cost = cost + np.where(np.arange(NUM_STRATEGIES) == Strategy.STANDARD, 0.0, panel.probe_tokens.mean())
    order = np.argsort(cost, kind="stable")
    right = panel.correct[:, order]
    return order[np.where(right.any(axis=1), right.argmax(axis=1), 0)]


def fit_mlp(
    panels: Sequence[Panel], *, hidden: int = 6, weight_decay: float = 0.02, seed: int = 0, min_tokens: int = 16
) -> FittedMLP:
    """Fit on all given calibration panels together."""
    features = np.concatenate([describe(p.probe_entropy_nats, p.probe_tokens).features() for p in panels])
    labels = np.concatenate([best_strategy(p) for p in panels])
    if len(labels) < MIN_QUESTIONS:
        raise InputError(f"a router needs at least {MIN_QUESTIONS} calibration questions, got {len(labels)}")
    classes = np.unique(labels)
    if classes.size < 2:
        only = Strategy(int(classes[0])).name.lower()
        raise InputError(
            f"all {len(labels)} calibration questions are best answered {only}: there is nothing to learn; "
            f"use --router always-{only}, or calibrate on other tasks"
        )
    centre, scale = features.mean(axis=0), features.std(axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    x = (features - centre) / scale
    fold = np.random.default_rng((seed, 1)).permutation(len(labels)) % NUM_FOLDS
    held_out = np.empty((len(labels), NUM_STRATEGIES))
    for k in range(NUM_FOLDS):
        weights = _train(x[fold != k], labels[fold != k], hidden, weight_decay, seed)
        held_out[fold == k] = _scores(weights, x[fold == k], hidden)[0]
    temperature = float(
        np.exp(minimize_scalar(lambda u: _nll(held_out / np.exp(u), labels), bounds=(-3, 5), method="bounded").x)
    )
    w1, b1, w2, b2 = _unpack(_train(x, labels, hidden, weight_decay, seed), hidden)
    router = MLPRouter(
        centre=tuple(centre.tolist()),
        scale=tuple(scale.tolist()),
        hidden_weight=tuple(tuple(row) for row in w1.tolist()),
        hidden_bias=tuple(b1.tolist()),
        output_weight=tuple(tuple(row) for row in w2.tolist()),
        output_bias=tuple(b2.tolist()),
        temperature=temperature,
        min_tokens=min_tokens,
    )
    p = _softmax(held_out / temperature)
    counts = np.bincount(labels, minlength=NUM_STRATEGIES)
    return FittedMLP(
        router=replace(router),
        calibration_error=expected_calibration_error(p, labels),
        held_out_accuracy=float((p.argmax(axis=1) == labels).mean()),
        majority_share=float(counts.max() / counts.sum()),
    )


def expected_calibration_error(probabilities: FloatArray, labels: IntArray, num_bins: int = 5) -> float:
    """Mean over equal-count bins of |confidence - share right|, weighted by count."""
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == labels
    bins = np.array_split(np.argsort(confidence, kind="stable"), num_bins)
    return float(sum(abs(confidence[b].mean() - right[b].mean()) * len(b) for b in bins if len(b)) / len(labels))


def loss_and_gradient(
    flat: FloatArray, x: FloatArray, labels: IntArray, hidden: int, weight_decay: float
) -> tuple[float, FloatArray]:
    """Mean cross-entropy with weight decay on the weights (not the biases), and its gradient."""
    w1, _, w2, _ = _unpack(flat, hidden)
    scores, h = _scores(flat, x, hidden)
    n = len(labels)
    p = _softmax(scores)
    loss = _nll(scores, labels) + 0.5 * weight_decay * ((w1**2).sum() + (w2**2).sum())
    back = (p - np.eye(NUM_STRATEGIES)[labels]) / n
    back_h = (back @ w2) * (1.0 - h**2)
    gradient = [back_h.T @ x + weight_decay * w1, back_h.sum(axis=0), back.T @ h + weight_decay * w2, back.sum(axis=0)]
    return float(loss), np.concatenate([g.ravel() for g in gradient])


def _train(x: FloatArray, labels: IntArray, hidden: int, weight_decay: float, seed: int) -> FloatArray:
    size = hidden * NUM_FEATURES + hidden + NUM_STRATEGIES * hidden + NUM_STRATEGIES
    start = 0.5 * np.random.default_rng((seed, 0)).standard_normal(size)
    options = {"maxiter": 500, "gtol": 1e-6}
    fit = minimize(
        loss_and_gradient, start, (x, labels, hidden, weight_decay), jac=True, method="L-BFGS-B", options=options
    )
    return fit.x


def _unpack(flat: FloatArray, hidden: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    sizes = [hidden * NUM_FEATURES, hidden, NUM_STRATEGIES * hidden]
    w1, b1, w2, b2 = np.split(flat, np.cumsum(sizes))
    return w1.reshape(hidden, NUM_FEATURES), b1, w2.reshape(NUM_STRATEGIES, hidden), b2


def _scores(flat: FloatArray, x: FloatArray, hidden: int) -> tuple[FloatArray, FloatArray]:
    w1, b1, w2, b2 = _unpack(flat, hidden)
    h = np.tanh(x @ w1.T + b1)
    return h @ w2.T + b2, h


def _softmax(scores: FloatArray) -> FloatArray:
    weight = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weight / weight.sum(axis=1, keepdims=True)


def _nll(scores: FloatArray, labels: IntArray) -> float:
    top = scores.max(axis=1)
    log_sum = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
    return float((log_sum - scores[np.arange(len(labels)), labels]).mean())
