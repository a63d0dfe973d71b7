"""Compares the package's public names and signatures with Horovod's.

    python scripts/compare_api.py [--write] FILE…

FILE is a table of Horovod's names, such as test/python/api_torch.txt, which says how to read it, or of the project that
its first line names. Every name is printed
with a tick, or with its differences. The names that only this package has follow. Exits with 1 if something differs.
Additions, such as further arguments with defaults at the end, are no differences, but are listed.

--write puts the result into docs/api.md, between the marks of the table.
"""

import argparse
import ast
import importlib
import inspect
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "api.md"
WIDTH = 140  # columns of a line

SAME = "✓"


def parameters(signature):
    """Return ``[(name, kind, default's text or None)]`` of a signature in source form."""
    arguments = ast.parse(f"def f{signature}: pass").body[0].args
    assert not arguments.posonlyargs and not arguments.kwonlyargs, signature
    defaults = [None] * (len(arguments.args) - len(arguments.defaults)) + [ast.unparse(d) for d in arguments.defaults]
    result = [(a.arg, inspect.Parameter.POSITIONAL_OR_KEYWORD, d) for a, d in zip(arguments.args, defaults)]
    if arguments.vararg:
        result.append((arguments.vararg.arg, inspect.Parameter.VAR_POSITIONAL, None))
    if arguments.kwarg:
        result.append((arguments.kwarg.arg, inspect.Parameter.VAR_KEYWORD, None))
    return result


def differences(theirs, ours, names):
    """Return the differences that a caller would notice, and our additions. Both are lists of texts.

    theirs: as :func:`parameters` returns it. ours: a list of inspect.Parameter. names: the names that the defaults use.
    """
    wrong, more = [], []
    for i, (name, kind, default) in enumerate(theirs):
        mine = next((p for p in ours if p.name == name), None)
        if mine is None:
            wrong.append(f"no argument {name}")
            continue
        if kind is not mine.kind:
            wrong.append(f"{name} is {mine.kind.description}")
        elif ours.index(mine) != i:
            wrong.append(f"{name} is at place {ours.index(mine) + 1}")
        if default is None:
            if mine.default is not mine.empty:
                more.append(f"{name} may be left out")
        elif mine.default is mine.empty:
            wrong.append(f"{name} has no default")
        elif mine.default != eval(default, names):
            wrong.append(f"the default of {name} is {mine.default!r}")
    known = {name for name, _, _ in theirs}
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for mine in ours:
        if mine.name not in known:
            needed = mine.default is mine.empty and mine.kind not in variable
            (wrong if needed else more).append(f"further argument {mine}".split(":")[0])
    return wrong, more


def example(module, function):
    """Return an example of what ``function`` returns."""
    if not module.is_initialized():
        module.init()
    if function == "DistributedGradientTape":
        import tensorflow as tf

        return module.DistributedGradientTape(tf.GradientTape())
    import torch

    return module.DistributedOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0))


def look_up(module, path):
    """Return what ``path`` names, and whether it is a method. The first argument of a method does not count."""
    value, owner = module, None
    for part in path.split("."):
        if part.endswith("()"):
            value = example(module, part[:-2])
            continue
        owner, value = value, getattr(value, part)
    if inspect.isclass(owner):
        return value, inspect.isfunction(inspect.getattr_static(owner, path.rpartition(".")[2], None))
    return value, False


def compare(module, line):
    """Compare one line of a table. Return the differences and our additions."""
    path, base, signature = re.fullmatch(r"((?:[\w.]|\(\)\.)+)(?:: (\w+))?(\(.*\))?", line).groups()
    try:
        value, is_method = look_up(module, path)
    except AttributeError:
        return ["missing"], []
    if base is not None:
        return ([] if issubclass(value, eval(base)) else [f"is no {base}"]), []
    if signature is None:
        return [], []
    ours = list(inspect.signature(value).parameters.values())
    return differences(parameters(signature), ours[1:] if is_method else ours, vars(module))


def read(file):
    """Return ``[(module's name, its lines)]`` of the file."""
    sections = []
    for line in file.read_text().splitlines():
        if line.startswith("["):
            sections.append((line.strip("[]"), []))
        elif line and not line.startswith("#"):
            sections[-1][1].append(line)
    return sections


def report(file):
    """Return the result as Markdown, and the number of names that differ."""
    lines, same, wrong = [], 0, 0
    project = re.search(r"names of (\w+)", file.read_text())[1]
    for module_name, names in read(file):
        module = importlib.import_module(module_name)
        lines += [f"### `{module_name}`", "", f"| {project} | here |", "|---|---|"]
        for name in names:
            problems, more = compare(module, name)
            same, wrong = same + (not problems), wrong + bool(problems)
            verdict = "; ".join(problems) if problems else "; ".join([SAME, *more])
            lines.append(f"| `{name}` | {verdict} |")
        top_level = {re.match(r"\w+", name)[0] for name in names}
        only_here = sorted(set(getattr(module, "__all__", ())) - top_level)
        if only_here:
            names = ", ".join(f"`{name}`" for name in only_here)
            lines += ["", *textwrap.wrap(f"Only here: {names}.", WIDTH, break_on_hyphens=False)]
        lines.append("")
    lines.insert(0, f"{same} of {same + wrong} names are as in {project}.\n")
    return "\n".join(lines), wrong


def section(file, text):
    begin, end = f"<!-- begin {file.stem} -->", f"<!-- end {file.stem} -->"
    return begin, end, f"{begin}\n{text}\n{end}"


def write(file, text):
    begin, end, new = section(file, text)
    page = PAGE.read_text()
    if begin not in page:
        sys.exit(f"{PAGE} has no line {begin}")
    PAGE.write_text(page[: page.index(begin)] + new + page[page.index(end) + len(end) :])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true", help="into docs/api.md")
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT / "python"))
    failed = 0
    for file in args.files:
        text, wrong = report(file)
        print(text)
        failed += wrong
        if args.write:
            write(file, text)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
