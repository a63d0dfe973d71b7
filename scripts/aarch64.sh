#!/usr/bin/env bash
# Runs a command as root of a Debian for 64-bit Arm, under QEMU: scripts/aarch64.sh COMMAND…
#
# The system is build/aarch64/root: Debian's packages for arm64, unpacked there and never installed here (220 MB to
# download, 1 GB on disk). The folder build/aarch64/work is /work in it. The kernel runs its programs, and the programs
# that they start, under QEMU. The rule for that (binfmt_misc) exists only in this script's namespace: nothing on this
# machine changes.
#
# Exit status 77 if this machine cannot run it; the last line says why.
set -euo pipefail
cd "$(dirname "$0")/.."
home=$PWD/build/aarch64
PACKAGES=(python3 python3-pip python3-torch python3-numpy python3-cloudpickle python3-pytest coreutils bash)
# How the kernel recognises an ELF file for 64-bit Arm: its first bytes, and the bits of these that count.
MAGIC='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
MASK='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'

skip() { echo "aarch64: not run: $*"; exit 77; }

# apt_arm64 ARGUMENT…: runs apt-get as on an arm64 machine with no packages installed.
apt_arm64() {
  mkdir -p "$home"/apt/{lists,archives}/partial
  : >"$home/apt/status"
  apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$home/apt" -o Dir::State::lists="$home/apt/lists" \
    -o Dir::State::status="$home/apt/status" -o Dir::Cache="$home/apt" -o Dir::Cache::archives="$home/apt/archives" \
    -o APT::Sandbox::User=root "$@"
}

# make_root fills build/aarch64/root, unless it is there.
make_root() {
  [ ! -d "$home/root" ] || return 0
  rm -rf "$home/root.part" "$home/qemu"
  mkdir -p "$home/root.part" "$home/qemu"
  apt_arm64 update && apt_arm64 install --download-only -y --no-install-recommends "${PACKAGES[@]}" || return 1
  for package in "$home"/apt/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x -C "$home/root.part" --no-same-owner --keep-directory-symlink
  done
  # The packages' own scripts, which do not run here, would do this.
  ln -sf aarch64-linux-gnu/blas/libblas.so.3 "$home/root.part/usr/lib/libblas.so.3"
  ln -sf aarch64-linux-gnu/lapack/liblapack.so.3 "$home/root.part/usr/lib/liblapack.so.3"
  [ -e "$home/root.part/bin/sh" ] || ln -s bash "$home/root.part/bin/sh"
  echo "root:x:0:0:root:/root:/bin/bash" >"$home/root.part/etc/passwd"
  echo "127.0.0.1 localhost" >"$home/root.part/etc/hosts"
  mkdir -p "$home"/root.part/{proc,sys,dev,tmp,root,work}
  (cd "$home/qemu" && { apt-get -qq download qemu-user-static || { apt-get -qq update && apt-get -qq download qemu-user-static; }; } 2>/dev/null) || return 1
  dpkg-deb --fsys-tarfile "$home"/qemu/*.deb | tar -x -C "$home/qemu" --strip-components=3 ./usr/bin/qemu-aarch64-static
  rm -rf "$home"/apt "$home"/qemu/*.deb
  mv "$home/root.part" "$home/root"
}

# enter is the part of this script that runs inside the namespaces.
enter() {
  mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
  # P: a program sees the name by which it was called. F: QEMU need not be in the other system.
  echo ":aarch64:M::$MAGIC:$MASK:$home/qemu/qemu-aarch64-static:PF" >/proc/sys/fs/binfmt_misc/register
  mount --rbind /proc "$home/root/proc"
  mount --rbind /dev "$home/root/dev"
  mount --rbind /sys "$home/root/sys"
  mount --bind "$home/work" "$home/root/work"
  mount -t tmpfs tmpfs "$home/root/tmp"
  mount -t tmpfs tmpfs "$home/root/dev/shm" # its own, so that leftovers show
  exec env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root chroot "$home/root" "$@"
}

if [ "${GOROVOD_AARCH64_INSIDE:-}" ]; then
  enter "$@"
fi
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || skip "this is no Debian: its packages are taken by its package manager"
unshare --user --map-root-user --mount sh -c 'mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc' 2>/dev/null ||
  skip "a namespace cannot have a rule for foreign programs of its own here: Linux 6.7 or later is needed, and user namespaces"
[ -d "$home/root" ] || echo "aarch64: downloading Debian for arm64, with PyTorch and QEMU, into $home: 500 MB"
make_root >"$home.log" 2>&1 || { tail -n 5 "$home.log"; skip "Debian's packages for arm64 cannot be had, see $home.log"; }
mkdir -p "$home/work"
GOROVOD_AARCH64_INSIDE=1 exec unshare --user --map-root-user --mount --propagation private "$PWD/scripts/aarch64.sh" "$@"
