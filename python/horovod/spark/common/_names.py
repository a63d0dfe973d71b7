"""Names of columns that Spark would misread: with points, spaces or backticks."""

from __future__ import annotations

from typing import Any


def quoted(name: str) -> str:
    """A column's name in the form for Spark's expressions, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def numbered(df: Any) -> Any:
    """The data frame with the columns c0, c1 and so on, because mapInArrow does not accept names with points."""
    return df.toDF(*(f"c{place}" for place in range(len(df.columns))))
