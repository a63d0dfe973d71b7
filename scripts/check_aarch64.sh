#!/usr/bin/env bash
# Runs the wheel for 64-bit Arm under QEMU: scripts/check_aarch64.sh dist/release/gorovod-…_aarch64.whl PROGRAM
#
# First the Go tests of the assembly kernels run. Then pip installs the wheel in a Debian for arm64, and jobs of two
# ranks use it. PROGRAM is this machine's gorovod of the same checkout. It starts the ranks, because the launcher has to
# reap its descendants' orphans (PR_SET_CHILD_SUBREAPER), which QEMU does not support. The wheel's launcher only prints
# its version. Exit status 77 if there can be no such Debian here (scripts/aarch64.sh says why).
set -euo pipefail
wheel=$(realpath "$1")
program=$(realpath "$2")
cd "$(dirname "$0")/.."
scripts/aarch64.sh true

room=build/aarch64/work
rm -rf "$room"
mkdir -p "$room/native"
cp "$program" "$room/native/horovodrun"
cp "$wheel" scripts/check_aarch64.py "$room/"
echo "check_aarch64: the kernels' tests and two ranks under QEMU, some minutes"
GOOS=linux GOARCH=arm64 CGO_ENABLED=0 go test -c -o "$room/reduce.test" ./internal/core/reduce
scripts/aarch64.sh sh -c 'cd /work && ./reduce.test -test.short'
scripts/aarch64.sh sh -ec '
  cd /work
  python3 -m pip install --quiet --no-index --no-deps --force-reinstall --break-system-packages --root-user-action=ignore --no-warn-script-location *.whl
  gorovod --version
  for transport in shm tcp; do
    GOROVOD_TRANSPORT=$transport native/horovodrun -np 2 python3 check_aarch64.py
  done
  left=$(ls /dev/shm)
  [ -z "$left" ] || { echo "left in /dev/shm: $left"; exit 1; }
'
echo "$(basename "$wheel"): two ranks have worked under QEMU, over shared memory and over TCP"
