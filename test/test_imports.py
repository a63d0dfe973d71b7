"""Which module of the package imports which: never in a circle, and front ends only what stands below them.

Every import counts: those in functions, those for types only, and ``importlib.import_module`` and ``__import__`` with
a name of ours. That a module's packages are imported before it does not count: it is how Python finds the module.
"""

import ast
import os
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "python" / "horovod"

pytestmark = pytest.mark.skipif("HOROVOD_RANK" in os.environ, reason="one process")

# What each package may import besides itself. A longer name wins: horovod.tensorflow.keras is not horovod.tensorflow.
BELOW = {
    "horovod.common": set(),
    "horovod._upstream": set(),
    "horovod._gpu_report": {"horovod.common", "horovod.torch"},
    "horovod._program": {"horovod._upstream", "horovod.common"},
    "horovod.runner": {"horovod._program", "horovod.common"},
    "horovod.torch": {"horovod.common"},
    "horovod.jax": {"horovod.common"},
    # horovod.tensorflow takes optimizers of Keras, too, and its elastic state a model.
    "horovod.tensorflow": {"horovod.common", "horovod._keras"},
    "horovod._keras": {"horovod.common", "horovod.torch", "horovod.jax", "horovod.tensorflow"},
    "horovod.keras": {"horovod.common", "horovod._keras"},
    "horovod.tensorflow.keras": {"horovod.common", "horovod._keras", "horovod.tensorflow"},
    "horovod.data": set(),
    "horovod.tensorflow.data": {"horovod.tensorflow", "horovod.runner"},
    "horovod.spark": {"horovod.common", "horovod.data", "horovod.runner", "horovod", "horovod._program"},
    "horovod.spark.tensorflow": {"horovod.tensorflow.data", "horovod.spark"},
    "horovod.spark.torch": {"horovod.torch", "horovod.spark"},
    "horovod.spark.lightning": {"horovod.torch", "horovod.data", "horovod.spark.torch", "horovod.spark"},
    "horovod.spark.keras": {"horovod.tensorflow", "horovod.tensorflow.keras", "horovod.spark"},
    "horovod.spark.data_loaders": {"horovod.data", "horovod.spark", "horovod.spark.torch"},
    "horovod.ray": {"horovod.common", "horovod.runner", "horovod", "horovod._program"},
    "horovod.mxnet": set(),
    "horovod": {"horovod.runner", "horovod._upstream"},
}


def module_name(root, file):
    parts = file.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules_of(root):
    """Every module of the package in folder ``root``, with its source."""
    return {module_name(root, file): file for file in sorted(root.rglob("*.py"))}


def imported(tree, importer, is_package, modules):
    """The modules that ``tree``, the source of ``importer``, imports, each with its line."""
    package = importer if is_package else importer.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                # A module, or a name that the package itself has.
                yield (f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules else base), node.lineno
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and node.args:
                yield text_of(node.args[0]), node.lineno


def text_of(argument):
    """The text of a module's name; what is put in when the program runs is ``*``."""
    if isinstance(argument, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "*" for part in argument.values)
    return str(argument.value) if isinstance(argument, ast.Constant) else "*"


def ours(target, root):
    return target == root.name or target.startswith(f"{root.name}.")


def import_graph(root):
    """For each module of the package in ``root`` what it imports of this package, with the line of each import.

    Fails where that is not there.
    """
    modules = modules_of(root)
    graph = {}
    for name, file in modules.items():
        tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
        found = {}
        for target, line in imported(tree, name, file.name == "__init__.py", modules):
            if ours(target, root) and "*" in target:
                matching = [m for m in modules if m.startswith(target.partition("*")[0])]
            else:
                matching = [target] if target in modules else []
            assert matching or not ours(target, root), f"{name}:{line} imports {target}, which there is not"
            for one in matching:
                found.setdefault(one, line)
        graph[name] = found
    return graph


def circles(graph):
    """Modules that import one another, directly or by way of others: lists of them."""
    reaches = {}
    for start in graph:
        seen, todo = set(), list(graph[start])
        while todo:
            module = todo.pop()
            if module not in seen:
                seen.add(module)
                todo += graph[module]
        reaches[start] = seen
    found = {tuple(sorted(m for m in reaches[s] if s in reaches[m])) for s in graph if s in reaches[s]}
    return sorted(found)


def lines_of(graph, circle):
    return [f"{a}:{line} imports {b}" for a in circle for b, line in graph[a].items() if b in circle]


def package_of(module):
    return max((p for p in BELOW if module == p or module.startswith(f"{p}.")), key=len)


def test_no_circle():
    graph = import_graph(PACKAGE)
    assert len(graph) > 80, "the package was not found"
    assert [lines_of(graph, circle) for circle in circles(graph)] == []


def test_each_package_imports_only_what_stands_below_it():
    wrong = [
        f"{module}:{line} imports {target}"
        for module, targets in import_graph(PACKAGE).items()
        for target, line in targets.items()
        if package_of(target) not in {package_of(module), *BELOW[package_of(module)]}
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("from pack import b", "from pack import a"),
        ("import pack.b", "def f():\n    from pack.a import x"),
        ("from pack.b import y", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import a"),
        ("from .b import y", "import importlib\nimportlib.import_module('pack.a')"),
        ("from . import b", "__import__(f'pack.{name}')"),
    ],
)
def test_circles_are_found(a, b, tmp_path):
    root = tmp_path / "pack"
    root.mkdir()
    for name, text in (("__init__", ""), ("a", a), ("b", b), ("c", "from pack import a, b")):
        (root / f"{name}.py").write_text(text)
    assert ("pack.a", "pack.b") in circles(import_graph(root)) or ("pack.a", "pack.b", "pack.c") in circles(
        import_graph(root)
    )
    (root / "b.py").write_text("import os")
    assert circles(import_graph(root)) == []
