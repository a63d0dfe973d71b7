#!/usr/bin/env bash
# Runs one case of each Python front end that is installed. It installs nothing, and names what is missing.
# PYTHON is a Python with torch; the default is the one that scripts/prepare.sh has found.
set -uo pipefail
cd "$(dirname "$0")/.."

failed=0
smoke() { # MODULE PYTHON FILE…
  local module=$1 python=$2
  shift 2
  if ! "$python" -c "import importlib.util as u, sys; sys.exit(not u.find_spec('$module'))" 2>/dev/null; then
    echo "-- left out: $python has no $module"
    return
  fi
  echo "-- $module: $python"
  "$python" scripts/python_tests.py --smoke --logs build/test-logs-smoke "$@" || failed=1
}

smoke torch "${PYTHON:-$(cat build/python 2>/dev/null || echo /usr/bin/python3)}" test/python/test_*.py
smoke jax build/jax/bin/python test/jax/test_*.py
for python in $(cat build/tensorflows 2>/dev/null || echo build/tensorflow/bin/python); do # with Keras 3, and with Keras 2
  smoke tensorflow "$python" test/tensorflow/test_*.py
done
exit "$failed"
