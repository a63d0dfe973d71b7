// Package roster holds what the ranks of a world tell one another about themselves when they meet, and conclusions that
// are the same on all ranks: which rank is where, which ranks may share a host, and whether the claimed places are
// possible.
//
// It does no I/O. Package world exchanges the members.
package roster

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/base/printable"
)

// Members are the members of a world, by rank. All ranks have the same list.
type Members []Member

// Decode decodes the ranks' messages, by rank.
func Decode(sent [][]byte) (Members, error) {
	members := make(Members, len(sent))
	for r, b := range sent {
		if err := members[r].decode(b, &members[max(0, r-1)]); err != nil {
			return nil, fmt.Errorf("what rank %d says of itself: %w", r, err)
		}
	}
	return members, nil
}

// Describe names a rank in messages.
func (members Members) Describe(rank int) string {
	if rank < 0 || rank >= len(members) {
		return fmt.Sprintf("rank %d", rank)
	}
	return fmt.Sprintf("rank %d on host %s (pid %d)", rank, printable.Text(members[rank].Host), members[rank].PID)
}

// RankOfMPI returns the rank of a process of MPI; -1 if it is not in the world.
func (members Members) RankOfMPI(process int) int {
	for r := range members {
		if members[r].MPIRank == process {
			return r
		}
	}
	return -1
}
