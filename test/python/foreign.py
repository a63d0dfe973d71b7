"""Finds gorovod's functions, classes and names in the attributes and tables of other modules."""

import os
import re
import subprocess
import sys
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

OURS = "/horovod/"


def is_ours(value):
    if isinstance(value, types.ModuleType):
        return False
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if isinstance(value, types.MethodType):
        value = value.__func__
    if isinstance(value, types.FunctionType):
        return OURS in value.__code__.co_filename
    if isinstance(value, str):
        return value.startswith("Horovod")
    kind = value if isinstance(value, type) else type(value)
    return any(str(vars(base).get("__module__", "")).startswith("horovod.") for base in kind.__mro__)


def tables(value, depth=2):
    """The keys and values of a table, and those of the tables in it, ``depth`` levels deep."""
    if isinstance(value, dict) and type(value).__module__ in ("builtins", "collections"):
        members = [*value.keys(), *value.values()]
    elif type(value) in (list, tuple, set, frozenset):
        members = list(value)
    else:
        return
    for member in members:
        yield member
        if depth > 1:
            yield from tables(member, depth - 1)


def found():
    """The places that hold something of gorovod's, as ``module.attribute`` or ``module.class.attribute``."""
    places = set()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("horovod", "__main__", "foreign") or not isinstance(module, types.ModuleType):
            continue
        for attribute, value in list(vars(module).items()):
            if attribute == "modules" or attribute == "__warningregistry__":
                continue
            if is_ours(value) or any(map(is_ours, tables(value))):
                places.add(f"{name}.{attribute}")
            elif isinstance(value, type) and value.__module__ == name:
                for inner, member in list(vars(value).items()):
                    if is_ours(member) or any(map(is_ours, tables(member))):
                        places.add(f"{name}.{attribute}.{inner}")
    return places


# Places where public interfaces of Python and the frameworks keep what callers register.
BY_PUBLIC_INTERFACES = re.compile(
    r"_?ctypes\._pointer_type_cache"
    r"|typing\._overload_registry"  # of typing.overload
    r"|torch\.distributed\.rendezvous\._rendezvous_handlers"  # register_rendezvous_handler; see test_patches.py
    r"|jax\.(_src\.)?interpreters\.(ad\.primitive_(jvps|transposes)|partial_eval\.dce_rules)"
    r"|[0-9a-f]{40}\._Horovod\w+\.__doc__"  # of the module that tf.load_op_library makes
)


def check_patches(program, patched):
    """Run ``program``, Python that uses a front end, and check that it changes exactly the places in ``patched``.

    The places of public interfaces do not count. With all patches off it must change no other place. docs/patches.md
    must name each place.
    """
    program += "\nimport runpy\nprint('places', *runpy.run_path(sys.argv[1])['found']())\n"
    places = {}
    for without in ("", "all"):
        result = subprocess.run(
            [sys.executable, "-c", "import sys\n" + program, __file__],
            env={**os.environ, "GOROVOD_WITHOUT_PATCHES": without, "PYTHONPATH": str(ROOT / "python")},
            stdout=subprocess.PIPE,
            text=True,
            timeout=200,
            check=True,
        )
        (line,) = (line for line in result.stdout.splitlines() if line.startswith("places"))
        places[without] = {place for place in line.split()[1:] if not BY_PUBLIC_INTERFACES.fullmatch(place)}
    unlisted, missing = places[""] - set(patched), set(patched) - places[""]
    assert not unlisted and not missing, f"not expected: {unlisted}, missing: {missing}"
    assert places["all"] == set(), places["all"]
    page = (ROOT / "docs" / "patches.md").read_text(encoding="utf-8")
    unlisted = [place for place in patched if place.rpartition(".")[2] not in page]
    assert unlisted == [], unlisted
