#!/bin/sh
# A C compiler and linker for the C library of 2012 (glibc 2.17): zig's. MACHINE is x86_64 or aarch64, this machine by default.
# -s: no tables for a debugger.
exec "$(dirname "$0")/../build/wheel-tools/bin/python" -m ziglang cc -s -target "${MACHINE:-$(uname -m)}-linux-gnu.2.17" "$@"
