"""Checks docstrings: each public name of a module has its arguments, its result, and an example that runs."""

import doctest
import importlib
import inspect
import re
from pathlib import Path

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def public(module):
    """The functions and classes that ``module`` exports, by name."""
    module = importlib.import_module(module)
    members = {name: getattr(module, name) for name in module.__all__}
    return {name: m for name, m in members.items() if inspect.isroutine(m) or inspect.isclass(m)}


def section(text, title):
    """What stands under ``title:`` in a docstring."""
    found = re.search(rf"^{title}:\n((?:    .*\n|\n)+)", text + "\n", re.MULTILINE)
    return found[1] if found else ""


def parameters(member):
    try:
        signature = inspect.signature(member)
    except ValueError:
        return set(), None
    names = {name for name in signature.parameters if name not in ("self", "_")}
    return names, signature.return_annotation


def lacks(name, member):
    """What the docstring of a public function or class does not have."""
    text = inspect.getdoc(member) or ""
    names, result = parameters(member)
    if inspect.isclass(member) and "__init__" not in vars(member) and not text.count("Args:"):
        names = set()
    told = {
        argument.strip()
        for line in re.findall(r"^    (\w[\w, ]*):", section(text, "Args"), re.MULTILINE)
        for argument in line.split(",")
    }
    missing = [f"{name}: Args has no {argument}" for argument in sorted(names - told)]
    missing += [f"{name}: Args has {argument}, which there is not" for argument in sorted(told - names)]
    if inspect.isroutine(member) and result not in (None, "None", inspect.Signature.empty):
        missing += [] if section(text, "Returns") else [f"{name}: no Returns"]
    return missing + ([] if ">>>" in section(text, "Example") else [f"{name}: no Example"])


def fails(name, member, names, folder):
    """What goes wrong in the examples of ``member``, run with ``names``, in an empty folder."""
    said = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    text = inspect.getdoc(member) or ""
    test = doctest.DocTestParser().get_doctest(text, dict(names), name, getattr(member, "__module__", ""), 0)
    with_folder = Path.cwd()
    try:
        import os

        os.chdir(folder)
        runner.run(test, out=said.append)
    finally:
        os.chdir(with_folder)
    return "".join(said)
