package world

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/gorovod/gorovod/test/netns"
)

// If one host can reach the other, but not the other way round, as behind a firewall, all ranks get an error that says
// which rank cannot reach which, and what to check.
func TestOneWayFirewall(t *testing.T) {
	if asRole(t, func(w *World) {
		_, err := add(w, "x", 1)
		fmt.Println("told", err)
	}) {
		return
	}
	hosts := netns.Two(t, "")
	hosts[0].Wall(t)
	ranks := startRanks(t, hosts, "rank", 1, "HOROVOD_GLOO_TIMEOUT_SECONDS=3")
	for r, p := range ranks {
		text, err := p.line("told")
		if err != nil ||
			!regexp.MustCompile(
				`rank 0 on host localhost \(pid \d+\) cannot connect to rank 1 on host localhost \(pid \d+\): .*10\.77\.0\.2:\d+.*; is there a firewall\?.*gorovod doctor`).MatchString(text) {
			t.Errorf("rank %d was told %q, %v", r, text, err)
		}
	}
}
