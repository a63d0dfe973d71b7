// Package roster is what the ranks of a world tell one another of themselves when they
// meet, and what follows from that alike on all of them: who is where, which of them share a
// host, and whether the places that they were told can be.
//
// It does no I/O. Package world exchanges the members.
package roster

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/printable"
)

// Members are those of a world, by rank. All ranks have the same list.
type Members []Member

// Decode reads what the ranks have sent, by rank.
func Decode(sent [][]byte) (Members, error) {
	members := make(Members, len(sent))
	for r, b := range sent {
		if err := members[r].decode(b, &members[max(0, r-1)]); err != nil {
			return nil, fmt.Errorf("what rank %d says of itself: %w", r, err)
		}
	}
	return members, nil
}

// Describe names a rank for people.
func (members Members) Describe(rank int) string {
	if rank < 0 || rank >= len(members) {
		return fmt.Sprintf("rank %d", rank)
	}
	return fmt.Sprintf("rank %d on host %s (pid %d)", rank, printable.Text(members[rank].Host), members[rank].PID)
}

// RankOfMPI is the rank of a process of MPI, -1 for a stranger.
func (members Members) RankOfMPI(process int) int {
	for r := range members {
		if members[r].MPIRank == process {
			return r
		}
	}
	return -1
}
