#!/usr/bin/env bash
# Installs a wheel into an empty folder and uses it there, away from the checkout:
# scripts/check_wheel.sh dist/gorovod-….whl PYTHON
set -euo pipefail
wheel=$(realpath "$1")
python=$2
cd "$(dirname "$0")/.."

site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
build/tools/bin/python -m pip install --quiet --no-deps --target "$site" "$wheel"
cat >"$site/use.py" <<'PY'
import os
import sys

import torch

import horovod.torch as hvd

hvd.init()
total = hvd.allreduce(torch.tensor([hvd.rank() + 1]), op=hvd.Sum, name="x").item()
assert (hvd.size(), total) == (2, 3), (hvd.size(), total)
assert os.path.dirname(hvd.__file__).startswith(sys.argv[1]), hvd.__file__
hvd.shutdown()
PY
cd "$site"
unset GOROVOD_LIBRARY
export PYTHONPATH=$site
"$site/bin/gorovod" --version
"$site/bin/horovodrun" -np 2 "$python" use.py "$site"
echo "$(basename "$wheel"): installed and used on 2 ranks; $(stat -c %s "$wheel") bytes"
