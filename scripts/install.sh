#!/usr/bin/env bash
# Installs this checkout into the active environment: PYTHON, or else the virtual environment that is active, conda's, or
# the python3 in PATH. Refuses a Python whose packages the system's package manager keeps.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "install: $*" >&2; }
die() { say "$*"; exit 1; }

if [ -n "${PYTHON:-}" ]; then
  python=$PYTHON
elif [ -n "${VIRTUAL_ENV:-}" ]; then
  python=$VIRTUAL_ENV/bin/python
elif [ -n "${CONDA_PREFIX:-}" ]; then
  python=$CONDA_PREFIX/bin/python
else
  python=$(command -v python3) || die "there is no python3 in PATH: name yours by PYTHON=/path/to/python"
fi
"$python" -c pass 2>/dev/null || die "$python does not run: name a Python by PYTHON=/path/to/python"
python=$("$python" -c 'import sys; print(sys.executable)') # pyenv's python is a script

own='python3 -m venv --system-site-packages ~/gorovod-venv && . ~/gorovod-venv/bin/activate && make install'
"$python" - <<'PY' || die "the system's package manager keeps the packages of $python. Make an environment of your own: $own"
import os, sys, sysconfig
marker = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
sys.exit(sys.prefix == sys.base_prefix and os.path.exists(marker))
PY
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' ||
  die "$python is $("$python" --version): gorovod needs Python 3.9 or later; name one by PYTHON=/path/to/python"
"$python" -m pip --version >/dev/null 2>&1 ||
  die "$python has no pip. Install it with: $python -m ensurepip (or, on Debian: apt-get install python3-pip python3-venv)"

say "gorovod and cloudpickle into $("$python" -c 'import sys; print(sys.prefix)'), the environment of $python"
unset PYTHONPATH # the checkout's package would hide the installed one
"$python" -m pip install .
"$python" - <<'PY' || say "this Python has none of PyTorch, TensorFlow and JAX yet; for PyTorch: $python -m pip install torch"
import importlib.util, sys
sys.exit(not any(importlib.util.find_spec(name) for name in ("torch", "tensorflow", "jax")))
PY
say "done: $(cd / && "$python" -c 'import horovod; print(horovod.__version__, horovod.__path__[0])')"
