"""Checks that PySpark is installed, and new enough. Otherwise importing this module raises ImportError."""

import re
import sys

_OLDEST = (3, 5)
_WANTED = f"horovod.spark needs PySpark {'.'.join(map(str, _OLDEST))} or later: pip install 'gorovod[spark]'"

try:
    import pyspark
except ModuleNotFoundError as e:
    if e.name != "pyspark":
        raise
    raise ModuleNotFoundError(f"{_WANTED}. PySpark is not installed in {sys.executable}.", name="pyspark") from None

_found = getattr(pyspark, "__version__", None)
_where = getattr(pyspark, "__file__", None) or ", ".join(pyspark.__path__)
if _found is None:  # such as a folder of that name beside the program
    raise ModuleNotFoundError(
        f"{_WANTED}. What Python finds as 'pyspark', {_where}, is something else.", name="pyspark"
    )
if tuple(map(int, re.findall(r"\d+", _found)[:2])) < _OLDEST:
    raise ImportError(f"{_WANTED}. This is PySpark {_found}, {_where}.", name="pyspark")
