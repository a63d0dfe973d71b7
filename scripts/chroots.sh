# Sourced by scripts that run something in a chroot of another Debian release, build/chroots/RELEASE. debootstrap makes
# a chroot when a script first needs it: some 400 MB and about a minute. Where that is impossible, the script says what
# is missing, and ends with status 0. It works in a mount namespace of its own, so no mount stays behind.

PACKAGES=(python3-setuptools python3-torch libtorch-dev python3-pytest python3-numpy python3-cloudpickle python3-pip python3-venv g++)

skip() { echo "${0##*/}: skipped: $*"; exit 0; }

# in_a_namespace ARGUMENT…: runs this script again with these arguments, in a mount namespace, unless it is in one.
in_a_namespace() {
  [ "$(id -u)" = 0 ] || skip "making a chroot needs root"
  command -v apt-get >/dev/null || skip "this is no Debian: debootstrap and a mirror are taken from its package manager"
  command -v debootstrap >/dev/null || {
    echo "${0##*/}: apt-get install debootstrap"
    apt-get -qq install -y --no-install-recommends debootstrap >/dev/null 2>&1 ||
      { apt-get -qq update && apt-get -qq install -y --no-install-recommends debootstrap >/dev/null; }
  } || skip "debootstrap cannot be installed"
  [ -z "${CHROOTS_INSIDE:-}" ] || return 0
  unshare --mount --propagation private true 2>/dev/null || skip "mounting is not allowed here"
  CHROOTS_INSIDE=1 exec unshare --mount --propagation private "$PWD/scripts/${0##*/}" "$@"
}

# mirror: prints the first Debian mirror in this machine's configuration of apt.
mirror() {
  apt-get indextargets --format '$(SITE) $(ORIGIN)$(LABEL)' 'Created-By: Packages' 2>/dev/null |
    awk '$2 == "DebianDebian" {print $1; exit}'
}

# have_chroot RELEASE: makes build/chroots/RELEASE, unless it exists. apt installs what debootstrap cannot resolve:
# dependencies with alternatives.
have_chroot() {
  local release=$1 room=$PWD/build/chroots/$1 site log=build/chroots/$1.log
  [ ! -d "$room" ] || return 0
  mkdir -p build/chroots
  site=$(mirror)
  [ -n "$site" ] || skip "apt knows no Debian mirror"
  echo "${0##*/}: making $room with debootstrap: a download of 400 MB; output: $log"
  rm -rf "$room.part"
  {
    debootstrap --variant=minbase "$release" "$room.part" "$site" &&
      chroot "$room.part" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install -y --no-install-recommends "${PACKAGES[@]}" &&
      rm -rf "$room.part"/var/cache/apt/archives/*.deb
  } >"$log" 2>&1 || { tail -n 20 "$log"; return 1; }
  mv "$room.part" "$room"
}

# enter ROOM: mounts in the folder ROOM what programs need.
enter() {
  mount --rbind /proc "$1/proc"
  mount --rbind /sys "$1/sys"
  mount --rbind /dev "$1/dev"
  mount -t tmpfs tmpfs "$1/dev/shm" # its own: tests look for leftovers there
  cp -L /etc/hosts "$1/etc/" # Gloo looks names up
}

# online ROOM: gives apt and pip in the folder ROOM this machine's settings of the network.
online() {
  mkdir -p "$1/etc/ssl/certs"
  cp -L /etc/resolv.conf "$1/etc/"
  [ ! -f /etc/pip.conf ] || cp -L /etc/pip.conf "$1/etc/"
  cp -L /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/"
}

leave() { umount --recursive --lazy "$1/proc" "$1/sys" "$1/dev"; }
