package main

// The command starts at gorovod_entry, before Go's runtime: the Makefile gives the linker this symbol as the entry.
// Otherwise the runtime would end the program with a dump of its own if a limit on the address space (ulimit -v) leaves
// it too little room. If there is room for half of its reservations, the runtime even starts, and overwrites the
// program's memory at low addresses. And the runtime opens /dev/null in place of a closed stdout, so that what is
// printed there would be lost without an error.

// wanted is the address space that the runtime and the launcher reserve, in bytes. They use little of it: 585 MiB to
// find free pages, 512 MiB to find pages to give back, two arenas with their map, stacks.
//
//lint:ignore U1000 gorovod_entry uses it
const wanted = 1400 << 20

// refusal is the message of gorovod_entry.
//
//lint:ignore U1000 gorovod_entry uses it
var refusal = "gorovod: it cannot start: the limit on its address space (ulimit -v) is below the 1400 MiB that " +
	"Go's runtime reserves at its start, and hardly uses. `ulimit -v unlimited` lifts the limit; to bound the " +
	"memory that is used, take a cgroup (systemd-run -p MemoryMax=..., docker run --memory)\n"
