#!/usr/bin/env bash
# Runs the wheel under other Pythons and PyTorches: scripts/matrix.sh dist/gorovod-….whl [SYSTEM…]
#
# A SYSTEM is a Debian release, for its own Python and PyTorch: every test of PyTorch runs there on 2 ranks, and so does
# the demo. RELEASE:VERSION is that PyTorch from PyPI (up to 1 GB, deleted after the test), without NVIDIA's libraries
# (scripts/stand_ins.py): the tests of operations, gradients, optimizers and process sets run there, and the demo. Each
# release is a chroot (scripts/chroots.sh). The results go to build/matrix/SYSTEM.json (see scripts/compatibility.py).
#
# Needs root, for chroot; without root it says so, and ends with status 0.
set -euo pipefail
wheel=$(realpath "$1")
shift
cd "$(dirname "$0")/.."
systems=("$@")
[ $# -gt 0 ] || systems=(bullseye bookworm trixie sid)
. scripts/chroots.sh
in_a_namespace "$wheel" "${systems[@]}"

test_in() {
  local system=$1 release=${1%%:*} torch= room
  [[ $system != *:* ]] || torch=${system#*:}
  room=$PWD/build/chroots/$release
  have_chroot "$release"
  enter "$room"

  # The package's files are the wheel's. Only tests and examples are the checkout's.
  rm -rf "$room/work"
  mkdir -p "$room/work/build" "$room/work/test" "$room/work/docs"
  cp -r test/test_*.py test/python "$room/work/test/"
  cp -r examples scripts "$room/work/"
  cp docs/patches.md "$room/work/docs/"
  cp "$wheel" "$room/work/"
  online "$room"
  local failed=0
  FLAKY_TESTS=${FLAKY_TESTS:+/work/build/flaky.txt} chroot "$room" /work/scripts/matrix_inside.sh "$system" "$torch" </dev/null || failed=1
  [ ! -f "$room/work/build/flaky.txt" ] || sed "s/^/$system: /" "$room/work/build/flaky.txt" >>"$FLAKY_TESTS"
  mkdir -p build/matrix
  cp "$room/work/found.json" "build/matrix/${system/:/-}.json"
  rm -rf build/matrix/"${system/:/-}"-logs
  cp -r "$room/work/build/test-logs" build/matrix/"${system/:/-}"-logs
  leave "$room"
  return "$failed"
}

failed=()
for system in "${systems[@]}"; do
  if test_in "$system"; then echo "matrix: $system passed"; else failed+=("$system"); fi
done
[ ${#failed[@]} -eq 0 ] || { echo "matrix: failed: ${failed[*]}"; exit 1; }
