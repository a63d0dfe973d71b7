#!/bin/sh
# A C compiler and linker for the C library of 2012 (glibc 2.17): zig's. MACHINE is x86_64 or aarch64, this machine by default.
# It links without tables for a debugger. Go's -g would undo zig's -s, so the linker is told.
strip=-Wl,--strip-all
for argument; do
  case $argument in -c | -E | -S) strip= ;; esac
done
exec "$(dirname "$0")/../build/wheel-tools/bin/python" -m ziglang cc -target "${MACHINE:-$(uname -m)}-linux-gnu.2.17" "$@" $strip
