package world

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/gorovod/gorovod/test/cluster"
)

// TestContractOverMPIAndHosts is TestContractOverMPI with two ranks on each of two hosts, which mpirun reaches by ssh.
func TestContractOverMPIAndHosts(t *testing.T) {
	if os.Getenv(mpiRoleVariable) != "" {
		return // this is a rank
	}
	if raceDetector {
		t.Skip("MPI's threads are not the race detector's")
	}
	if testing.Short() {
		t.Skip("TestContractOverMPI has the same cases on one host")
	}
	for _, m := range cluster.Mpiruns {
		t.Run(m.Name, func(t *testing.T) {
			c := cluster.New(t, 2)
			types := 1 // TestContractOverMPI runs another type on one host
			if os.Getenv(mpiAllVariable) != "" {
				types = 2
			}
			env := append(contractVariables(types, 0), mpiRoleVariable+"=contract",
				mpiMeetVariable+"=at "+c.Hosts[0].Address)
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute) // alone it takes 10 s
			defer cancel()
			out, err := runRanks(c.Mpirun(ctx, t, m, 2, false, env, asMPIRank...), "contract", env)
			kept := contractKept(t, 4, out, err)
			t.Logf("%s over two hosts: %d cases done, %d refused", m.Name, kept.done, kept.refused)
		})
	}
}
