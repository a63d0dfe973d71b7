package roster

import (
	"fmt"
	"testing"
)

// Every rank checks the places of all ranks.
func BenchmarkPlaces(b *testing.B) {
	const hosts, local = 512, 8
	var members Members
	for h := range hosts {
		name := fmt.Sprintf("node%04d", h)
		for l := range local {
			members = append(members, Member{Host: name, Claim: Claim{l, local, h, hosts}})
		}
	}
	for b.Loop() {
		if err := members.CheckClaims(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(members)), "ns/rank")
}
