#!/usr/bin/env bash
# Removes build/ and dist/, but never what a chroot has mounted.
set -euo pipefail
cd "$(dirname "$0")/.."

if grep -q " $PWD/build/" /proc/mounts; then
  echo "something is mounted under build/ (a chroot in use?); unmount it first:" >&2
  grep " $PWD/build/" /proc/mounts >&2
  exit 1
fi
rm -rf build dist
