#!/usr/bin/env bash
# Checks a wheel: what it needs of the system (auditwheel), then whether it works in a new
# virtual environment, away from the checkout: scripts/check_wheel.sh dist/gorovod-….whl PYTHON
#
# PYTHON is a Python with torch, which the environment sees. Tests and the demo run there from the wheel. Without PYTHON
# nothing of the wheel runs, because it may be for another machine.
set -euo pipefail
wheel=$(realpath "$1")
python=${2:-}
cd "$(dirname "$0")/.."
checkout=$PWD
tools=$PWD/build/wheel-tools/bin
built=$PWD/${GOROVOD_WHEEL_BUILD:-build/wheel}

# The platform in the file's name is the one that auditwheel finds.
audit=$("$tools/auditwheel" show --json "$wheel")
"$tools/python" - "$wheel" "$audit" <<'PY'
import json
import sys

name, found = sys.argv[1], json.loads(sys.argv[2])
promised = name.removesuffix(".whl").split("-")[-1].split(".")
assert found["overall_tag"] in promised, f"the tag says {promised}, auditwheel {found['overall_tag']}"
assert int(found["overall_tag"].split("_")[2]) <= 28, found["overall_tag"]
assert not found["external_libs"], found["external_libs"]
print(f"auditwheel: {found['overall_tag']}, symbols of", *sorted(found["versioned_symbols"]["libc.so.6"]))
PY

# The metadata is valid by PyPI's own rules, and complete.
"$tools/python" - "$wheel" <<'PY'
import json
import sys
import zipfile

from packaging.metadata import Metadata

# The wheel of 0.1.0 had 10.3 MB on 2026-11-22. All that is ever added may make it larger by 5 MB.
MOST = 15_300_000

archive = zipfile.ZipFile(sys.argv[1])
names = archive.namelist()
found = Metadata.from_email(archive.read(next(n for n in names if n.endswith(".dist-info/METADATA"))), validate=True)
assert found.summary and found.license_files == ["LICENSE", "internal/tools/notices/THIRD_PARTY_NOTICES.txt"], found
assert all(any(n.endswith(f".dist-info/licenses/{file}") for n in names) for file in found.license_files), names
bill = json.loads(archive.read(next(n for n in names if n.endswith(".dist-info/sboms/gorovod.cdx.json"))))
ids = {entry["license"]["id"] for c in bill["components"] for entry in c["licenses"]}
assert found.license_expression == " AND ".join(sorted(ids)), (found.license_expression, ids)
held = {n.rsplit("/", 1)[-1] for n in names}
assert {c["name"] for c in bill["components"] if c["type"] == "file"} <= held, bill
assert found.project_urls["Homepage"] and found.classifiers and found.description_content_type == "text/markdown", found
assert "horovodrun -np 2" in found.description and "](docs/" not in found.description
shared = {n.split("/data/", 1)[1] for n in names if ".data/data/" in n}
assert {"share/man/man1/horovodrun.1", "share/bash-completion/completions/gorovod", "share/zsh/site-functions/_gorovod"} <= shared, shared
size = sum(i.compress_size for i in archive.infolist())
assert size <= MOST, f"{size} bytes: more than {MOST}"
print(f"metadata {found.metadata_version}: {found.name} {found.version}, {len(found.description)} letters of description")
PY

if [ -z "$python" ]; then
  echo "$(basename "$wheel"): $(stat -c %s "$wheel") bytes, not run"
  exit
fi

room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
echo "its tests and the demo, in a new environment of $python"
"$python" -m venv --system-site-packages --without-pip "$room/venv"
"$tools/python" -m pip --python "$room/venv/bin/python" install --quiet --no-deps "$wheel"
cp -r test scripts examples "$room"
cat >"$room/use.py" <<'PY'
import sys
import warnings

warnings.simplefilter("error")
import horovod

warnings.simplefilter("default")
assert horovod.__file__.startswith(sys.prefix), horovod.__file__
assert horovod.__version__.startswith("0.28.1"), horovod.__version__
PY

unset GOROVOD_LIBRARY GOROVOD_WHEEL_BUILD PYTHONPATH # a rank warns about variables that it does not know
cd "$room"
export PATH=$room/venv/bin:$PATH HOROVODRUN=$room/venv/bin/horovodrun
gorovod --version
python use.py
python scripts/python_tests.py --ranks 2 test/python/test_{basics,fork,native,torch_ops}.py
horovodrun -np 2 python examples/pytorch_digits.py
# Beside it, the distribution that has only Horovod's name: there is no warning, and requirements of Horovod are met.
(cd "$checkout/compat" && "$tools/python" -m hatchling build -t wheel -d "$room/compat" >/dev/null)
"$tools/python" -m pip --python "$room/venv/bin/python" install --quiet --no-deps "$room"/compat/*.whl
python use.py
python -c 'from importlib.metadata import version; assert version("horovod") == "0.28.1+gorovod", version("horovod")'
"$tools/python" -m pip --python "$room/venv/bin/python" install --quiet --no-index 'horovod[pytorch]>0.24,<0.29'
# The same libraries, used by a C program.
echo "the C interface's tests"
(cd "$checkout" && GOROVOD_TEST_BUILD=$built scripts/go_tests.py -count=1 ./test/cabi)
echo "$(basename "$wheel"): $(stat -c %s "$wheel") bytes, good"
