#!/usr/bin/env bash
# Runs the wheel under other Pythons and PyTorches: scripts/matrix.sh dist/gorovod-….whl [SYSTEM…]
#
# A system is a Debian release, whose own Python and PyTorch are used, or RELEASE:VERSION for that PyTorch from PyPI
# (several GB). Each release is a chroot under build/chroots, made by debootstrap when it is needed first: some 400 MB
# and about a minute each. Every Torch test runs on 2 ranks, and the demo. What happened goes to build/matrix/SYSTEM.json
# (see scripts/compatibility.py).
#
# Needs root, for chroot; says so and ends well where it is not.
set -euo pipefail
wheel=$(realpath "$1")
shift
cd "$(dirname "$0")/.."
systems=("$@")
[ $# -gt 0 ] || systems=(bullseye bookworm trixie sid)
PACKAGES=(python3-setuptools python3-torch libtorch-dev python3-pytest python3-numpy python3-cloudpickle python3-pip python3-venv g++)

skip() { echo "matrix: skipped: $*"; exit 0; }
[ "$(id -u)" = 0 ] || skip "making a chroot needs root"
command -v apt-get >/dev/null || skip "this is no Debian: debootstrap and a mirror are taken from its package manager"
command -v debootstrap >/dev/null || {
  apt-get -qq install -y --no-install-recommends debootstrap >/dev/null 2>&1 ||
    { apt-get -qq update && apt-get -qq install -y --no-install-recommends debootstrap >/dev/null; }
} || skip "debootstrap cannot be installed"

# In a mount namespace of its own: whatever happens, no mount stays behind.
if [ -z "${GOROVOD_MATRIX_INSIDE:-}" ]; then
  unshare --mount --propagation private true 2>/dev/null || skip "mounting is not allowed here"
  GOROVOD_MATRIX_INSIDE=1 exec unshare --mount --propagation private "$PWD/scripts/matrix.sh" "$wheel" "${systems[@]}"
fi

# The first Debian mirror that this machine's apt is set up with.
mirror() {
  apt-get indextargets --format '$(SITE) $(ORIGIN)$(LABEL)' 'Created-By: Packages' 2>/dev/null |
    awk '$2 == "DebianDebian" {print $1; exit}'
}

# apt resolves what debootstrap cannot: dependencies with alternatives.
make_chroot() {
  local release=$1 room=$2 site log=build/chroots/$1.log
  site=$(mirror)
  [ -n "$site" ] || skip "apt knows no Debian mirror"
  echo "matrix: making $room"
  rm -rf "$room" "$room.part"
  {
    debootstrap --variant=minbase "$release" "$room.part" "$site" &&
      chroot "$room.part" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install -y --no-install-recommends "${PACKAGES[@]}" &&
      rm -rf "$room.part"/var/cache/apt/archives/*.deb
  } >"$log" 2>&1 || { tail -n 20 "$log"; return 1; }
  mv "$room.part" "$room"
}

test_in() {
  local system=$1 release=${1%%:*} torch= room
  [[ $system != *:* ]] || torch=${system#*:}
  room=$PWD/build/chroots/$release
  [ -d "$room" ] || make_chroot "$release" "$room"
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
  cp -L /etc/hosts "$room/etc/" # Gloo looks names up
  mkdir -p "$room/etc/ssl/certs" # pip needs the network, as it is here
  cp -L /etc/resolv.conf "$room/etc/"
  [ ! -f /etc/pip.conf ] || cp -L /etc/pip.conf "$room/etc/"
  cp -L /etc/ssl/certs/ca-certificates.crt "$room/etc/ssl/certs/"
  local failed=0
  chroot "$room" /work/scripts/matrix_inside.sh "$system" "$torch" </dev/null || failed=1
  mkdir -p build/matrix
  cp "$room/work/found.json" "build/matrix/${system/:/-}.json"
  rm -rf build/matrix/"${system/:/-}"-logs
  cp -r "$room/work/build/test-logs" build/matrix/"${system/:/-}"-logs
  umount --recursive --lazy "$room/proc" "$room/sys" "$room/dev"
  return "$failed"
}

mkdir -p build/chroots
failed=()
for system in "${systems[@]}"; do
  if test_in "$system"; then echo "matrix: $system passed"; else failed+=("$system"); fi
done
[ ${#failed[@]} -eq 0 ] || { echo "matrix: failed: ${failed[*]}"; exit 1; }
