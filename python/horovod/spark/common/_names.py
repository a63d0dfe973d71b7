"""Names of columns that Spark would take for something else: with points, spaces or backticks."""

from __future__ import annotations

from typing import Any


def quoted(name: str) -> str:
    """The name of a column as Spark's expressions have it, whatever characters it consists of."""
    return "`" + name.replace("`", "``") + "`"


def numbered(df: Any) -> Any:
    """The data frame with the columns c0, c1 and so on: mapInArrow does not take names with points."""
    return df.toDF(*(f"c{place}" for place in range(len(df.columns))))
