"""The table of certificates, in the order in which they build on each other."""

from workbench.analysis.certificate import Certificate
from workbench.analysis.certificates import (
    clamp,
    coupled,
    delay,
    entropy,
    entropy_gain,
    gain_interval,
    integral_law,
    max_varentropy,
    pi_jury,
    pi_lyapunov,
    pruning,
    scheduler,
    switching,
    two_cycle,
    unmasking,
    varying_gain,
)

CERTIFICATES: tuple[Certificate, ...] = (
    *entropy_gain.CERTIFICATES,
    *max_varentropy.CERTIFICATES,
    *integral_law.CERTIFICATES,
    *clamp.CERTIFICATES,
    *pi_jury.CERTIFICATES,
    *varying_gain.CERTIFICATES,
    *pi_lyapunov.CERTIFICATES,
    *delay.CERTIFICATES,
    *switching.CERTIFICATES,
    *gain_interval.CERTIFICATES,
    *two_cycle.CERTIFICATES,
    *coupled.CERTIFICATES,
    *scheduler.CERTIFICATES,
    *entropy.CERTIFICATES,
    *pruning.CERTIFICATES,
    *unmasking.CERTIFICATES,
)
