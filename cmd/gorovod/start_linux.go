package main

// The command starts at gorovod_entry, before Go's runtime: the Makefile gives the linker this symbol as the entry.
// Otherwise the runtime would end the program with a dump of its own where a limit on the address space (ulimit -v)
// leaves it no room. With room for half of it, the runtime even starts, and overwrites what the program has at low
// addresses.

// wanted is what the runtime and the launcher reserve, of which they use hardly any: 585 MiB to find free pages, 512
// MiB to find pages to give back, two arenas with their map, stacks.
//
//lint:ignore U1000 gorovod_entry uses it
const wanted = 1400 << 20

// refusal is what gorovod_entry says.
//
//lint:ignore U1000 gorovod_entry uses it
var refusal = "gorovod: it cannot start: the limit on its address space (ulimit -v) is below the 1400 MiB that " +
	"Go's runtime reserves at its start, and hardly uses. `ulimit -v unlimited` lifts the limit; to bound the " +
	"memory that is used, take a cgroup (systemd-run -p MemoryMax=..., docker run --memory)\n"
