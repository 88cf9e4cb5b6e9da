"""Student's t, standard library only: the regularised incomplete beta function and its inversion."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_TINY = 1e-300
_PRECISION = 1e-15
_MANY_DF = 1e7  # beyond it t and the normal distribution agree to all digits that matter


def t_tail(t: float, df: float) -> float:
    """P(T > t) for Student's t with `df` > 0 degrees of freedom; `df` may be fractional or infinite."""
    if df > _MANY_DF:
        return NormalDist().cdf(-t)
    half = 0.5 * _incomplete_beta(df / 2, 0.5, df / (df + t * t), t * t / (df + t * t))
    return half if t >= 0 else 1 - half


@lru_cache(maxsize=4096)
def t_quantile(p: float, df: float) -> float:
    """The value that Student's t stays below with probability `p` in (0, 1)."""
    if not 0 < p < 1 or not df > 0:
        raise ValueError(f"no t quantile at p={p} with {df} degrees of freedom")
    if p < 0.5:
        return -t_quantile(1 - p, df)
    if df > _MANY_DF:
        return NormalDist().inv_cdf(p)
    tail, low, high = 1 - p, 0.0, 1.0
    while t_tail(high, df) > tail:
        low, high = high, high * 2
    t = (low + high) / 2
    while high - low > 1e-12 * high:
        excess = t_tail(t, df) - tail
        low, high = (t, high) if excess > 0 else (low, t)
        newton = t + excess / _t_density(t, df)
        if abs(newton - t) <= 1e-13 * t:
            return newton
        t = newton if low < newton < high else (low + high) / 2
    return (low + high) / 2


def _t_density(t: float, df: float) -> float:
    scale = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
    return math.exp(scale - (df + 1) / 2 * math.log1p(t * t / df))


def _incomplete_beta(a: float, b: float, x: float, y: float) -> float:
    """I_x(a, b) by its continued fraction, on the side where that converges fast; `y` is 1 − x without its rounding."""
    if x <= 0 or y <= 0:
        return 0.0 if x <= 0 else 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(y))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, y) / b


def _fraction(a: float, b: float, x: float) -> float:
    """Lentz's method. The number of terms grows with the root of the larger parameter."""
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 100 + int(10 * math.sqrt(max(a, b)))):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away_from_zero(1 + term * d)
            c = _away_from_zero(1 + term / c)
            value *= d * c
        if abs(d * c - 1) < _PRECISION:
            break
    return value


def _away_from_zero(x: float) -> float:
    return x if abs(x) > _TINY else _TINY


def f_tail(f: float, df1: float, df2: float) -> float:
    """P(F > f) for Snedecor's F: how likely a ratio of two variances as large as this is by chance."""
    if f <= 0:
        return 1.0
    df2 = min(df2, _MANY_DF)
    share = df1 * f / (df1 * f + df2)
    return _incomplete_beta(df2 / 2, df1 / 2, df2 / (df1 * f + df2), share)
