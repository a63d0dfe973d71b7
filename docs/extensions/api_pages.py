"""The directive ``api``: what a module of the Python package exports, from its source.

    ```{api} horovod.torch
    ```

It reads the sources and imports nothing. So it needs neither PyTorch nor TensorFlow nor JAX, and shows defaults and
types as they are written. Docstrings are in Google's style. The names that every front end takes from
``horovod.common`` stand on one page, ``{api} horovod.common``, and the pages of front ends link to it. A public name
without a docstring, or one that cannot be found, is a warning, which `make docs` makes an error.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Optional

import griffe
from docutils import nodes
from docutils.parsers.rst import Parser
from docutils.utils import new_document
from sphinx.ext.napoleon import Config
from sphinx.ext.napoleon.docstring import GoogleDocstring
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

SOURCES = Path(__file__).resolve().parents[2] / "python"
STYLE = Config(napoleon_use_rtype=False, napoleon_use_param=True, napoleon_preprocess_types=True)
# The constants, which have no docstring of their own.
CONSTANTS = {
    "Average": "Reduce to the average of the ranks' tensors. On integers it truncates towards zero.",
    "Sum": "Reduce to the sum of the ranks' tensors.",
    "Min": "Reduce to the least of the ranks' elements. NaN wins.",
    "Max": "Reduce to the greatest of the ranks' elements. NaN wins.",
    "Product": "Reduce to the product of the ranks' tensors.",
    "Adasum": "Reduce by Adasum, which scales gradients by how much they agree.",
    "global_process_set": "The process set of all ranks.",
}
# Modules take names over from here by assignment (rank = basics.rank), or import them when asked. A function without a
# docstring has that of the function of its name here (load_model.__doc__ = _load_model.__doc__).
ELSEWHERE = (
    "horovod.common.basics.HorovodBasics",
    "horovod._keras._tensorflow.TensorFlow",
    "horovod._keras._framework.Framework",
    "horovod._keras.elastic",
    "horovod._keras.saving",
    "horovod.tensorflow.sync_batch_norm",
    "horovod.tensorflow.sparse._embedding",
    "horovod.torch",
)
logger = logging.getLogger(__name__)


def package() -> griffe.Object:
    """The sources of ``horovod``, read once."""
    if not hasattr(package, "read"):
        package.read = griffe.load("horovod", search_paths=[SOURCES], resolve_aliases=True)
    return package.read


def at(path: str) -> griffe.Object:
    """The object at ``horovod.x.y``."""
    inside = path.partition(".")[2]
    return package()[inside] if inside else package()


def target(found: Any) -> Any:
    return found.final_target if found.is_alias else found


def exported(module: str) -> list[str]:
    names = set()
    for name in at(module).exports or []:
        if isinstance(name, str):
            names.add(name)
        else:  # __all__ += other.__all__
            names.update(exported(name.canonical_path.rpartition(".")[0]))
    if not names:
        names = {name for name, member in at(module).members.items() if member.is_exported}
    return sorted(names, key=lambda name: (name.lower(), name))


def resolve(module: str, name: str) -> Optional[griffe.Object]:
    """What ``module.name`` is. ``rank = _basics.rank`` is a method of HorovodBasics, for example."""
    members = at(module).members
    found = target(members[name]) if name in members else None
    copied = found is not None and found.is_attribute and str(found.value).endswith("." + name)
    if found is not None and docstring(found) and not copied:
        return found
    for scope in ELSEWHERE:
        if name in at(scope).members:
            candidate = target(at(scope).members[name])
            if candidate.is_function or candidate.is_class:
                return candidate
    return found


def docstring(found: Any) -> str:
    """Its own, or that of the class that it extends, or of the function of the same name ELSEWHERE."""
    if found.docstring:
        return inspect.cleandoc(found.docstring.value)
    if found.is_function:
        same = [target(at(scope).members[found.name]) for scope in ELSEWHERE if found.name in at(scope).members]
        return next((inspect.cleandoc(one.docstring.value) for one in same if one.docstring), "")
    bases = [target(base) for base in found.resolved_bases] if found.is_class else []
    return next((text for text in map(docstring, bases) if text), "")


def methods(found: Any) -> dict[str, Any]:
    """The public methods of a class, those that it inherits inside this package among them."""
    members = {name: target(member) for name, member in found.all_members.items() if not name.startswith("_")}
    return {name: member for name, member in sorted(members.items()) if member.is_function and member.docstring}


def is_common(found: Any) -> bool:
    return found.path.startswith("horovod.common.")


def common_names() -> dict[str, Any]:
    """The names that every front end takes from horovod.common."""
    names = {}
    for module in ("horovod.torch", "horovod.tensorflow", "horovod.jax"):
        for name in exported(module):
            found = resolve(module, name)
            if found is not None and (is_common(found) or name in CONSTANTS):
                names.setdefault(name, found)
    init = at("horovod.common.basics.HorovodBasics").members["init"]
    return dict(sorted({**names, "init": init}.items(), key=lambda item: item[0].lower()))


def signature(found: Any, method: bool) -> str:
    """The parameters as they are written, with the result."""
    parts, star = [], False
    parameters = list(found.parameters)
    if method and parameters and not found.labels & {"staticmethod"}:
        parameters = parameters[1:]
    for parameter in parameters:
        kind = parameter.kind.value
        text = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "") + parameter.name
        if kind == "keyword-only" and not star:
            parts.append("*")
        star = star or kind in ("keyword-only", "variadic positional")
        if parameter.annotation is not None:
            text += f": {parameter.annotation}"
        if parameter.default is not None and not text.startswith("*"):
            text += f" = {parameter.default}" if parameter.annotation is not None else f"={parameter.default}"
        parts.append(text)
    result = getattr(found, "returns", None)
    return f"({', '.join(parts)})" + (f" -> {result}" if result is not None else "")


class Api(SphinxDirective):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        module = self.arguments[0]
        self.lines: list[str] = []
        for file in SOURCES.rglob("*.py"):
            self.env.note_dependency(str(file))
        if module == "horovod.common":
            self.add(".. py:currentmodule:: hvd", "")
            for name, found in common_names().items():
                self.describe("hvd", name, found)
        else:
            self.add(f".. py:module:: {module}", "")
            self.module(module)
        node = nodes.section()
        node.document = self.state.document
        self.parse(node)
        return node.children

    def add(self, *lines: str) -> None:
        self.lines += lines

    def module(self, module: str) -> None:
        shared = []
        for name in exported(module):
            found = resolve(module, name)
            if found is None:
                logger.warning("%s.%s: its definition is not found", module, name, location=self.env.docname)
            elif is_common(found) or name in CONSTANTS:
                shared.append(name)
            elif not found.is_module:
                self.describe(module, name, found)
        if shared:
            links = ", ".join(f":py:obj:`~hvd.{name}`" for name in shared)
            self.add(f"As in :doc:`every front end </reference/common>`: {links}.", "")

    def describe(self, scope: str, name: str, found: Any, indent: str = "") -> None:
        """A function, class or constant of a module, or a method of a class, which is indented."""
        doc = docstring(found) or CONSTANTS.get(name, "")
        method = bool(indent)
        if not doc and not method:
            logger.warning("%s.%s has no docstring", scope, name, location=self.env.docname)
        if found.is_class:
            init = found.all_members.get("__init__")
            kind, call = "class", signature(target(init), True).partition(" -> ")[0] if init is not None else ""
        elif found.is_function:
            inside = method or (found.parent is not None and found.parent.is_class)
            kind, call = ("method" if method else "function"), signature(found, inside)
        else:
            kind, call = "data", ""
        self.add(f"{indent}.. py:{kind}:: {name}{call}", "")
        text = "\n".join(GoogleDocstring(doc, STYLE).lines())  # one of these lines may hold several
        self.add(*(f"{indent}   {line}" for line in text.splitlines()), "")
        if found.is_class:
            for child_name, child in methods(found).items():
                self.describe(f"{scope}.{name}", child_name, child, indent + "   ")

    def parse(self, node: nodes.Node) -> None:
        """Reads the lines as reStructuredText, also in a page of Markdown."""
        document = new_document(self.get_source_info()[0], self.state.document.settings)
        document.reporter = self.state.document.reporter
        Parser().parse("\n".join(self.lines) + "\n", document)
        node += document.children


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("api", Api)
    return {"parallel_read_safe": True}
