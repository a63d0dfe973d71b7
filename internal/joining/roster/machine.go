package roster

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
)

// Machine says where a process runs, as far as the kernel tells. Ranks with the same Network reach one another on
// loopback. Ranks with the same Processes can watch one another.
type Machine struct {
	Network, Processes string
}

// ThisMachine combines the kernel's boot id with the numbers of the process's namespaces, because two hosts can have
// the same numbers. A part that the kernel does not tell stays empty.
func ThisMachine() Machine {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	network, _ := os.Readlink("/proc/self/ns/net")
	processes, _ := os.Readlink("/proc/self/ns/pid")
	short := func(namespace string) string { // short, because every rank reads every other rank's
		sum := sha256.Sum256(append(boot, namespace...))
		return hex.EncodeToString(sum[:8])
	}
	return Machine{short(network), short(processes)}
}

// OneNetwork reports whether all ranks are on one host's network.
func (members Members) OneNetwork() bool {
	for r := range members {
		if members[r].Machine.Network != members[0].Machine.Network {
			return false
		}
	}
	return true
}
