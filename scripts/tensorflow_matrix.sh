#!/usr/bin/env bash
# Runs the TensorFlow tests with the wheel, on 2 ranks, under every minor version of TensorFlow from
# 2.12 to the newest that PyPI has for this Python: scripts/tensorflow_matrix.sh dist/gorovod-….whl [VERSION…]
#
# Each version gets a virtual environment, which is removed afterwards; a download of some 250 MB a version. The table
# goes to build/tensorflow-matrix.md. Copy it to docs/compatibility.md by hand. Exit status 1 if a version failed.
set -euo pipefail
wheel=$(realpath "$1")
shift
cd "$(dirname "$0")/.."
root=$PWD
python=${PYTHON:-python3}
table=$root/build/tensorflow-matrix.md

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/test" "$work/build"
cp -r test/python test/tensorflow "$work/test/"
cp -r scripts "$work/"

# Prints the newest patch of each minor version, oldest first.
versions() {
  "$python" -m pip index versions tensorflow-cpu 2>/dev/null |
    sed -n 's/^Available versions: //p' | tr -d ' ' | tr , '\n' | grep -E '^2\.[0-9]+\.[0-9]+$' | sort -V |
    awk -F. '$2 >= 12 {newest[$2] = $0; if (!seen[$2]++) order[++n] = $2} END {for (i = 1; i <= n; i++) print newest[order[i]]}'
}

# Runs the tests with the wheel on 2 ranks, under the Python of a virtual environment.
on_ranks() (
  cd "$work" && unset PYTHONPATH GOROVOD_LIBRARY
  HOROVODRUN=${HOROVODRUN:-$1/bin/horovodrun} "$1/bin/python" scripts/python_tests.py --ranks 2 --together \
    test/tensorflow/test_{tensorflow_{ops,gradients,tables,table_saves,training},keras_*}.py
)

# Runs jobs whose ranks run operations in opposite orders with one thread, and jobs of which a rank is killed.
orders_and_deaths() (
  cd "$work" && unset PYTHONPATH GOROVOD_LIBRARY
  HOROVODRUN=${HOROVODRUN:-$1/bin/horovodrun} "$1/bin/python" -m pytest -q test/tensorflow/test_tensorflow_jobs.py \
    -k "opposite_orders or rank_that_dies"
)

# Prints a log's first failure, or else its last line without the time.
outcome() {
  awk '/^(E  |FAIL)/ && !failure {failure = substr($0, 1, 100)} {last = $0}
    END {sub(/ in [0-9.]+s.*/, "", last); sub(/, 0 failed/, "", last); sub(/, [0-9]+ deselected/, "", last)
      print failure || last !~ /^[0-9]+ passed/ ? "**failed**: " failure : last}'
}

# Tests one version; prints the table's line, and everything else to a log.
try() {
  local version=$1 venv=$work/venv log=$root/build/tensorflow-matrix-$1.log facts result
  echo "tensorflow matrix: TensorFlow $version: a download of 250 MB, and some minutes of tests; output: ${log#"$root/"}" >&2
  rm -rf "$venv"
  "$python" -m venv "$venv"
  if ! "$venv/bin/python" -m pip install --quiet "tensorflow-cpu==$version" pytest cloudpickle >"$log" 2>&1; then
    facts="| | " result="cannot be installed |"
  else
    "$venv/bin/python" -m pip install --quiet --no-index --no-deps "$wheel" >>"$log" 2>&1
    facts=$("$venv/bin/python" -c 'import importlib.metadata as m, platform
print("| Python", platform.python_version(), "| Keras", m.version("keras"), "NumPy", m.version("numpy"))')
    result="$(on_ranks "$venv" 2>&1 | tee -a "$log" | outcome) | $(orders_and_deaths "$venv" 2>&1 | tee -a "$log" | outcome)"
  fi
  echo "| $version $facts | $result | $(date +%F) |"
}

mkdir -p build
[ $# -gt 0 ] || mapfile -t list < <(versions)
[ $# -eq 0 ] || list=("$@")
[ "${#list[@]}" -gt 0 ] || { echo "tensorflow matrix: PyPI names no TensorFlow for $("$python" --version)"; exit 1; }
{
  echo "| TensorFlow | Python | with | operations, gradients, training, Keras on 2 ranks | opposite orders, dying ranks | date |"
  echo "|---|---|---|---|---|---|"
} | tee "$table"
for version in "${list[@]}"; do try "$version" | tee -a "$table"; done
! grep -q failed "$table"
