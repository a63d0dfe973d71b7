#!/usr/bin/env bash
# Runs programs of other projects over the wheel: scripts/ecosystem.sh dist/gorovod-….whl dist/compat/horovod-….whl [NAME…]
#
# The environments are those of `scripts/prepare.sh ecosystem`; test/ecosystem/programs.py has the programs and their
# names. The results go to build/ecosystem, and as a table to docs/ecosystem.md (see scripts/ecosystem_table.py). Exit
# status 1 if a program failed for a reason that is not in programs.py.
set -euo pipefail
wheels=("$(realpath "$1")" "$(realpath "$2")")
shift 2
cd "$(dirname "$0")/.."
python=${PYTHON:-$(cat build/python)}
unset PYTHONPATH GOROVOD_LIBRARY

for venv in build/ecosystem/*/bin/python; do
  echo "ecosystem: installing the wheels into ${venv%/bin/python}"
  "$venv" -m pip install --quiet --no-index --no-deps --force-reinstall "${wheels[@]}"
done
status=0
"$python" test/ecosystem/run.py "$@" || status=$?
"$python" scripts/ecosystem_table.py build/ecosystem/found/*.json
exit "$status"
