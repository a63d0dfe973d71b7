// Package peercred tells which process is at the other end of a Unix socket, according to the kernel.
package peercred
