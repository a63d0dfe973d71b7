package world

import (
	"fmt"
	"testing"
)

// Every rank checks the places of all.
func BenchmarkPlaces(b *testing.B) {
	const hosts, local = 512, 8
	var members []member
	for h := range hosts {
		name := fmt.Sprintf("node%04d", h)
		for l := range local {
			members = append(members, member{Host: name, Place: place{l, local, h, hosts}})
		}
	}
	for b.Loop() {
		if err := checkPlaces(members); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(members)), "ns/rank")
}
