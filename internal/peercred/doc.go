// Package peercred tells which process is at the other end of a Unix socket, as the kernel has it.
package peercred
