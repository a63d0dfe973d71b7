"""Checks docstrings: each public name of a module has its arguments, result, errors, and an example that runs."""

import ast
import builtins
import doctest
import importlib
import inspect
import os
import re
import textwrap
from pathlib import Path

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def public(name):
    """The functions and classes of a module, by name: those of ``__all__``, or the public ones that it defines."""
    module = importlib.import_module(name)
    if hasattr(module, "__all__"):
        members = {name: getattr(module, name) for name in module.__all__}
    else:
        own = {name: m for name, m in vars(module).items() if getattr(m, "__module__", "") == module.__name__}
        members = {name: m for name, m in own.items() if not name.startswith("_")}
    return {name: m for name, m in members.items() if inspect.isroutine(m) or inspect.isclass(m)}


def of(modules):
    """The public functions and classes of several modules, by their full names."""
    return {f"{module}.{name}": member for module in modules for name, member in public(module).items()}


def methods(member):
    """The public methods that this package gives a class, except those that Keras calls (``on_epoch_end``)."""
    if not inspect.isclass(member):
        return {}
    found = {}
    for cls in reversed(member.__mro__):
        if cls.__module__.startswith("horovod."):
            found.update({name: m for name, m in vars(cls).items() if inspect.isroutine(m) and name[0] != "_"})
    return {name: getattr(member, name) for name in found if not name.startswith("on_")}


def section(text, title):
    """The text under ``title:`` in a docstring."""
    found = re.search(rf"^{title}:\n((?:    .*\n|\n)+)", text + "\n", re.MULTILINE)
    return found[1] if found else ""


def parameters(member):
    try:
        signature = inspect.signature(member)
    except ValueError:
        return set(), None
    # Ray adds _ray_trace_ctx to the methods of a class once somebody has made an actor of it.
    names = {name for name in signature.parameters if name not in ("self", "_", "_ray_trace_ctx")}
    return names, signature.return_annotation


def raised(member):
    """The exceptions that the body of a function raises by name, apart from those of functions inside it."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(member))))
    except (OSError, TypeError, SyntaxError):
        return set()
    found, rest = set(), list(getattr(tree.body[0], "body", []))
    if isinstance(rest[-1], ast.Raise) and len(rest) <= 2:
        return set()  # a method that derived classes replace
    while rest:
        node = rest.pop()
        if isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            continue
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            found.add(node.exc.func.id)
        rest += ast.iter_child_nodes(node)
    return {name for name in found if hasattr(builtins, name) or name.endswith(("Error", "Interrupt", "Exception"))}


def lacks_sections(name, member):
    """Complaints about the Args, Returns and Raises of a docstring."""
    text = inspect.getdoc(member) or ""
    if not text:
        return [f"{name}: no docstring"]
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
    if inspect.isroutine(member):
        if result not in (None, "None", "NoReturn", inspect.Signature.empty):
            missing += [] if section(text, "Returns") else [f"{name}: no Returns"]
        errors = section(text, "Raises")
        missing += [f"{name}: Raises has no {error}" for error in sorted(raised(member)) if error not in errors]
    return missing


def lacks(name, member):
    """Complaints about the docstrings of a public function or class and its methods. Methods need no Example."""
    missing = lacks_sections(name, member)
    for method, function in methods(member).items():
        missing += lacks_sections(f"{name}.{method}", function)
    example = section(inspect.getdoc(member) or "", "Example")
    return missing + ([] if ">>>" in example else [f"{name}: no Example"])


def fails(name, member, names, folder):
    """The failures of the examples of ``member`` and its methods, run with ``names`` in ``folder``."""
    said = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)  # pytest -v is not its -v
    with_folder = Path.cwd()
    try:
        os.chdir(folder)
        for part, of_part in {"": member, **methods(member)}.items():
            text = inspect.getdoc(of_part) or ""
            module = getattr(of_part, "__module__", "")
            runner.run(
                doctest.DocTestParser().get_doctest(text, dict(names), f"{name}.{part}", module, 0), out=said.append
            )
    finally:
        os.chdir(with_folder)
    return "".join(said)
