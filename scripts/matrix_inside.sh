#!/usr/bin/env bash
# scripts/matrix.sh runs this in a chroot that has the wheel and the tests in /work: matrix_inside.sh SYSTEM TORCH
#
# Writes /work/found.json. Exit status 1 if a test or the demo failed, or a PyTorch that is not supported is not refused.
set -euo pipefail
system=$1
torch=$2
cd /work
export PYTHONDONTWRITEBYTECODE=1 GIT_PYTHON_REFRESH=quiet
unset PYTHONPATH GOROVOD_LIBRARY

# There is an environment for each PyTorch. The one for Debian's PyTorch sees the system's packages.
venv=/opt/venv-${torch:-debian}
if [ ! -e "$venv/.complete" ]; then
  rm -rf "$venv"
  if [ -z "$torch" ]; then
    python3 -m venv --system-site-packages "$venv"
  else
    python3 -m venv "$venv"
    case $torch in
    1.* | 2.[0-2].*) numpy="numpy<2" ;; # these versions were built for NumPy 1
    *) numpy=numpy ;;
    esac
    echo "matrix: installing PyTorch $torch from PyPI, up to 1 GB"
    "$venv/bin/pip" install --quiet --no-cache-dir --no-deps "torch==$torch"
    # What it asks for, but for NVIDIA's libraries and Triton; of those only the CUDA runtime, which says that there is no GPU.
    mapfile -t wanted < <("$venv/bin/python" - <<'PY'
import importlib.metadata
import re

for wanted in importlib.metadata.requires("torch") or ():
    name, _, condition = wanted.partition(";")
    runtime = re.match(r"nvidia-cuda-runtime.*|cuda-toolkit\[.*==(\d+)", name.strip())
    if runtime:
        print(f"nvidia-cuda-runtime=={runtime[1]}.*" if runtime[1] else re.sub(r"[() ]", "", name))
    elif "extra" not in condition and not re.match("nvidia|cuda|triton", name):
        print(wanted)
PY
    )
    "$venv/bin/pip" install --quiet --no-cache-dir "${wanted[@]}" "$numpy" pytest cloudpickle setuptools
    "$venv/bin/python" scripts/stand_ins.py
  fi
  touch "$venv/.complete"
fi
"$venv/bin/pip" install --quiet --no-index --no-deps --force-reinstall ./*.whl
# If Keras 3 runs on this PyTorch, its tests run, too.
if [ -z "$torch" ] && [ ! -e "$venv/.keras" ] && python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' &&
  "$venv/bin/python" -c 'import sys, torch; sys.exit(int(torch.__version__.split(".")[0]) < 2)'; then
  echo "matrix: installing Keras"
  if "$venv/bin/pip" install --quiet --no-cache-dir keras==3.15.1; then
    touch "$venv/.keras"
  else
    echo "matrix: Keras cannot be installed: its tests are left out"
  fi
fi
export PATH=$venv/bin:$PATH HOROVODRUN=$venv/bin/horovodrun
python -c "import sys, torch; print('matrix: Python', sys.version.split()[0], 'PyTorch', torch.__version__)"

# found TESTS DEMO: writes the row of the table.
found() {
  python - "$system" "$@" <<'PY'
import datetime
import json
import os
import platform
import sys

import torch

system, tests, demo = sys.argv[1:]
print(
    json.dumps(
        {
            "system": f"Debian {system.split(':')[0]}" + (", PyTorch of PyPI" if ":" in system else ""),
            "glibc": os.confstr("CS_GNU_LIBC_VERSION").split()[1],
            "Python": platform.python_version(),
            "PyTorch": torch.__version__,
            "tests on 2 ranks": tests,
            "demo on 2 ranks": demo,
            "date": datetime.date.today().isoformat(),
        }
    )
)
PY
}

# A PyTorch that is too old is refused with an error. The launcher needs no PyTorch, and works.
if ! python -c "import torch; assert [int(n) for n in torch.__version__.split('.')[:2]] >= [1, 13]" 2>/dev/null; then
  refusal=$(python -c "import horovod.torch" 2>&1 | tail -n 1) || true
  [[ $refusal == "ImportError: horovod.torch needs PyTorch "* ]] || { echo "matrix: $refusal"; exit 1; }
  jobs=$(horovodrun -np 2 python -c "import horovod; print(horovod.__version__)" | wc -l)
  [ "$jobs" = 2 ] || { echo "matrix: horovodrun failed"; exit 1; }
  echo "matrix: $refusal"
  found "refused: this PyTorch is too old" "none; horovodrun works" >found.json
  mkdir -p build/test-logs
  exit 0
fi

status=0
if [ -z "$torch" ]; then
  tests=(test/test_upstream.py $(ls test/python/test_*.py | grep -v tensorflow)) part=
else
  tests=(--together test/python/test_{basics,native,torch_ops,torch_gradients,torch_optimizer,process_sets,sync_batch_norm,join,sharded_embedding}.py)
  part="part: "
fi
python scripts/python_tests.py --ranks 2 "${tests[@]}" | tee build/tests.log || status=1
demo=passed
horovodrun -np 2 python examples/pytorch_digits.py || { demo=failed status=1; }
found "$part$(tail -n 1 build/tests.log)" "$demo" >found.json
[ -z "$torch" ] || rm -rf "$venv"
exit "$status"
