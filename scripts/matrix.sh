#!/usr/bin/env bash
# Runs the wheel under other releases' Python and PyTorch, each in a chroot made by
# debootstrap under build/chroots: scripts/matrix.sh dist/gorovod-….whl [SUITE…]
#
# Needs root, for chroot; says so and ends well where it is not. The first run fetches
# some 300 MB per suite; later ones take the chroot as it is.
set -euo pipefail
wheel=$(realpath "$1")
shift
cd "$(dirname "$0")/.."
suites=("${@:-trixie}") # trixie: Python 3.13, torch 2.6

skip() { echo "matrix: skipped: $*"; exit 0; }
[ "$(id -u)" = 0 ] || skip "making a chroot needs root"
command -v apt-get >/dev/null || skip "this is no Debian: debootstrap and a mirror are taken from its package manager"
command -v debootstrap >/dev/null || {
  apt-get -qq install -y --no-install-recommends debootstrap >/dev/null 2>&1 ||
    { apt-get -qq update && apt-get -qq install -y --no-install-recommends debootstrap >/dev/null; }
} || skip "debootstrap cannot be installed"

# In a mount namespace of its own: whatever happens, no mount stays behind.
if [ -z "${GOROVOD_MATRIX_INSIDE:-}" ]; then
  GOROVOD_MATRIX_INSIDE=1 exec unshare --mount --propagation private "$PWD/scripts/matrix.sh" "$wheel" "${suites[@]}"
fi

# The first Debian mirror that this machine's apt is set up with.
mirror() {
  apt-get indextargets --format '$(SITE) $(ORIGIN)$(LABEL)' 'Created-By: Packages' 2>/dev/null |
    awk '$2 == "DebianDebian" {print $1; exit}'
}

make_chroot() {
  local suite=$1 room=$2 site
  site=$(mirror)
  [ -n "$site" ] || skip "apt knows no Debian mirror"
  echo "matrix: making $room"
  rm -rf "$room" "$room.part"
  debootstrap --variant=minbase --include=python3-torch,python3-pytest,python3-numpy,python3-cloudpickle,python3-pip \
    "$suite" "$room.part" "$site" >build/chroots/"$suite".log 2>&1 || { tail -n 20 build/chroots/"$suite".log; return 1; }
  mv "$room.part" "$room"
}

test_in() {
  local suite=$1 room=$PWD/build/chroots/$1
  [ -d "$room" ] || make_chroot "$suite" "$room"
  mount --rbind /proc "$room/proc"
  mount --rbind /sys "$room/sys"
  mount --rbind /dev "$room/dev"
  mount -t tmpfs tmpfs "$room/dev/shm" # its own: tests look for what is left there

  # The wheel's files, not the checkout's; only tests and examples come from there.
  rm -rf "$room/work"
  mkdir -p "$room/work/build" "$room/work/test"
  cp -r test/test_*.py test/python "$room/work/test/"
  cp -r examples scripts "$room/work/"
  cp "$wheel" "$room/work/"
  chroot "$room" /bin/bash -euo pipefail -c '
    export PYTHONDONTWRITEBYTECODE=1 HOROVODRUN=/usr/local/bin/horovodrun
    unset PYTHONPATH GOROVOD_LIBRARY
    cd /work
    pip install --quiet --break-system-packages --root-user-action ignore --no-index --no-deps --force-reinstall ./*.whl
    python3 -c "import sys, torch; print(\"matrix: Python\", sys.version.split()[0], \"torch\", torch.__version__)"
    python3 scripts/python_tests.py --ranks 2,3
    horovodrun -np 2 python3 examples/pytorch_digits.py
  ' </dev/null
  umount --recursive --lazy "$room/proc" "$room/sys" "$room/dev"
}

mkdir -p build/chroots
for suite in "${suites[@]}"; do
  test_in "$suite"
  echo "matrix: $suite passed"
done
