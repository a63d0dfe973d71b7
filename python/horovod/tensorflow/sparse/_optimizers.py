"""The optimizers of sparse tables, with tensornet's names and arguments."""

from __future__ import annotations

import math
from typing import Any, Optional

from horovod.common import _tables


class Optimizer:
    """How the rank that has a row changes it. You may set ``learning_rate`` between steps, alike on all ranks."""

    kind: str

    def __init__(self, learning_rate: _tables.Rate, initial_scale: float, **numbers: float) -> None:
        self.learning_rate, self.initial_scale, self._numbers = learning_rate, initial_scale, numbers

    def __repr__(self) -> str:
        numbers = "".join(f", {name}={value}" for name, value in self._numbers.items())
        return f"{type(self).__name__}({self.learning_rate}, initial_scale={self.initial_scale}{numbers})"

    def _rate(self, pushes: int) -> float:
        """The learning rate after a number of pushes."""
        rate = self.learning_rate
        return float(rate(pushes) if callable(rate) else rate)

    def _options(self, dim: int) -> dict[str, Any]:
        """What :class:`_tables.Table` takes for it."""
        return {
            "optimizer": self.kind,
            "lr": self._rate,
            "init": "normal",
            "scale": self.initial_scale / math.sqrt(dim),
            **self._numbers,
        }


class AdaGrad(Optimizer):
    """Adagrad with one sum of squares for a row: ``g2sum += mean(g²); w -= lr * g / (epsilon + sqrt(g2sum))``.

    Args:
        learning_rate: a number, or a function of the number of pushes so far, such as a schedule of Keras.
        initial_g2sum: what the sum of a new row begins with.
        initial_scale: new rows are normal, with the standard deviation ``initial_scale / sqrt(dimension)``.
        epsilon: keeps from a division by 0.
        grad_decay_rate: must be 1.
        mom_decay_rate: must be 1.
        show_decay_rate: must be 0.98.
        show_threshold: must be 0: rows are not dropped.
        no_show_days: must be 1000.
        elimination_logic: must be 0.

    Raises:
        NotImplementedError: an argument has another value than it must have.

    Example:
        >>> sparse.AdaGrad(0.1, initial_scale=0.5)
        AdaGrad(0.1, initial_scale=0.5, initial_accumulator=0.0, eps=1e-08)
    """

    kind = "rowwise_adagrad"

    def __init__(
        self,
        learning_rate: _tables.Rate,
        initial_g2sum: float = 0,
        initial_scale: float = 1,
        epsilon: float = 1e-8,
        grad_decay_rate: float = 1,
        mom_decay_rate: float = 1,
        show_decay_rate: float = 0.98,
        show_threshold: float = 0,
        no_show_days: int = 1000,
        elimination_logic: int = 0,
    ) -> None:
        _only("AdaGrad", 1, "gradients and sums do not decay", grad_decay_rate=grad_decay_rate)
        _only("AdaGrad", 1, "gradients and sums do not decay", mom_decay_rate=mom_decay_rate)
        _only("AdaGrad", 0.98, _NO_STATISTICS, show_decay_rate=show_decay_rate)
        _only("AdaGrad", 0, _NO_STATISTICS, show_threshold=show_threshold)
        _only("AdaGrad", 1000, _NO_STATISTICS, no_show_days=no_show_days)
        _only("AdaGrad", 0, _NO_STATISTICS, elimination_logic=elimination_logic)
        super().__init__(learning_rate, initial_scale, initial_accumulator=float(initial_g2sum), eps=float(epsilon))


class Adam(Optimizer):
    """Adam for the rows that have a gradient. All rows count the same pushes.

    Args:
        learning_rate: a number, or a function of the number of pushes so far, such as a schedule of Keras.
        beta1: the decay of the mean of gradients.
        beta2: the decay of the mean of their squares.
        epsilon: keeps from a division by 0.
        initial_scale: new rows are normal, with the standard deviation ``initial_scale / sqrt(dimension)``.
        show_decay_rate: must be 0.98.

    Raises:
        NotImplementedError: ``show_decay_rate`` is another one.

    Example:
        >>> sparse.Adam(0.001)
        Adam(0.001, initial_scale=1, beta1=0.9, beta2=0.999, eps=1e-08)
    """

    kind = "adam"

    def __init__(
        self,
        learning_rate: _tables.Rate,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        initial_scale: float = 1,
        show_decay_rate: float = 0.98,
    ) -> None:
        _only("Adam", 0.98, _NO_STATISTICS, show_decay_rate=show_decay_rate)
        super().__init__(learning_rate, initial_scale, beta1=float(beta1), beta2=float(beta2), eps=float(epsilon))


class Ftrl(Optimizer):
    """FTRL-Proximal (McMahan et al., 2013).

    Args:
        learning_rate: a number above 0, or a function of the number of pushes so far, such as a schedule of Keras.
        beta: is added to the root of the sum of squares.
        lambda1: how much weights are drawn to 0; some become 0.
        lambda2: how much weights are made smaller.
        initial_scale: new rows are normal, with the standard deviation ``initial_scale / sqrt(dimension)``.
        show_decay_rate: must be 0.98.

    Raises:
        NotImplementedError: ``show_decay_rate`` is another one.

    Example:
        >>> sparse.Ftrl(0.05, lambda1=0.0)
        Ftrl(0.05, initial_scale=1, beta=1.0, l1=0.0, l2=1.0)
    """

    kind = "ftrl"

    def __init__(
        self,
        learning_rate: _tables.Rate,
        beta: float = 1,
        lambda1: float = 0.1,
        lambda2: float = 1,
        initial_scale: float = 1,
        show_decay_rate: float = 0.98,
    ) -> None:
        _only("Ftrl", 0.98, _NO_STATISTICS, show_decay_rate=show_decay_rate)
        super().__init__(learning_rate, initial_scale, beta=float(beta), l1=float(lambda1), l2=float(lambda2))


_NO_STATISTICS = "the table keeps no statistics of shows, and drops no rows"


def _only(optimizer: str, possible: float, why: str, **argument: Optional[float]) -> None:
    """NotImplementedError unless the one argument has the one possible value."""
    for name, value in argument.items():
        if value != possible:
            raise NotImplementedError(f"{optimizer}({name}={value}) is not possible: {why}; leave it at {possible}")
