#!/usr/bin/env bash
# Builds deploy/Containerfile without root's rights and without a registry of images, and runs the demo in the image:
# scripts/image.sh dist/gorovod-….whl. The image goes to build/image/gorovod.tar.
#
# BASE      the image to build on; default: one that mmdebstrap makes of Debian's packages (RELEASE, default bookworm)
# PACKAGES  more packages of Debian
# NP        ranks of the demo, default 2
#
# As root it does all this as a user that it makes. In the end it removes this user and all that the user has left. Needs
# buildah and, without BASE, mmdebstrap; as root it installs them by apt-get.
set -euo pipefail
cd "$(dirname "$0")/.."
wheel=${1:?the wheel is needed: scripts/image.sh dist/gorovod-….whl}
release=${RELEASE:-bookworm}

die() { echo "image: $*" >&2; exit 1; }
. scripts/chroots.sh # mirror

# build WORK: makes the image from the files in the folder WORK, and runs the demo. It runs as an ordinary user.
build() {
  cd "$1"
  local base=${BASE:-localhost/gorovod-base:$release} container
  if [ -z "${BASE:-}" ]; then
    echo "image: making a base of Debian $release"
    mmdebstrap --quiet --mode=unshare --variant=minbase --include=ca-certificates "$release" base.tar "$MIRROR"
    container=$(buildah from scratch)
    buildah add --quiet "$container" base.tar / >/dev/null
    buildah commit --quiet --rm "$container" "$base" >/dev/null
    rm base.tar
  fi
  echo "image: building as $(id -un), user $(id -u)"
  buildah build --isolation chroot --quiet --build-arg BASE="$base" --build-arg PACKAGES="${PACKAGES:-}" \
    -f deploy/Containerfile -t localhost/gorovod .
  buildah push --quiet localhost/gorovod oci-archive:gorovod.tar:gorovod >/dev/null
  echo "image: build/image/gorovod.tar, $(($(stat -c %s gorovod.tar) >> 20)) MiB"
  container=$(buildah from localhost/gorovod)
  buildah run --isolation chroot "$container" -- bash -c 'echo "image: the demo runs as $(id -un), with $(python --version)"'
  buildah run --isolation chroot "$container" -- \
    horovodrun -np "${NP:-2}" python /opt/gorovod/examples/pytorch_digits.py
  buildah rm "$container" >/dev/null
}

if [ "$wheel" = inside ]; then
  build "$2"
  exit
fi

needs_base=$([ -n "${BASE:-}" ] || echo yes)
command -v buildah newuidmap ${needs_base:+mmdebstrap} >/dev/null || {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || die "buildah, uidmap and mmdebstrap are needed: install them"
  echo "image: apt-get install buildah uidmap mmdebstrap"
  apt-get -qq install -y --no-install-recommends buildah uidmap mmdebstrap >/dev/null
}
[ -z "$needs_base" ] || MIRROR=$(mirror)
[ -n "${BASE:-}${MIRROR:-}" ] || die "apt knows no Debian mirror: give an image of Debian by BASE"

# Other users may enter, because in a user namespace the user has another id.
work=$(mktemp -d "${TMPDIR:-/var/tmp}/gorovod-image.XXXXXX")
chmod 755 "$work"
user=
# finish removes files, images, the user, and what buildah keeps for this user in /tmp. All processes have ended before,
# with the child of this one.
finish() {
  if [ -z "$user" ]; then
    buildah unshare rm -rf "$work/home" "$work/run" "$work/tmp" 2>/dev/null || true
  elif uid=$(id -u "$user"); then
    rm -rf --one-file-system "/tmp/containers-user-$uid" "/tmp/podman-run-$uid" "/tmp/storage-run-$uid"
    userdel "$user"
  fi
  rm -rf --one-file-system "$work"
}
trap finish EXIT
mkdir -p "$work"/{home,run,tmp,context/dist}
chmod 700 "$work/run"
cp "$wheel" "$work/context/dist/"
cp -r deploy examples scripts "$work/context/"

as=()
if [ "$(id -u)" = 0 ]; then
  user=gorovod-image-$$
  useradd --no-create-home --home-dir "$work/home" --shell /bin/bash "$user" # also assigns a range of subordinate ids
  chown -R "$user" "$work"
  as=(unshare --pid --fork --kill-child --mount-proc runuser -u "$user" --)
fi
"${as[@]}" env -i HOME="$work/home" XDG_RUNTIME_DIR="$work/run" TMPDIR="$work/tmp" PATH="$PATH" LANG=C.UTF-8 \
  BASE="${BASE:-}" MIRROR="${MIRROR:-}" RELEASE="$release" PACKAGES="${PACKAGES:-}" NP="${NP:-2}" \
  bash "$work/context/scripts/image.sh" inside "$work/context" </dev/null
mkdir -p build/image
cp "$work/context/gorovod.tar" build/image/
