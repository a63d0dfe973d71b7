package membership

import (
	"fmt"
	"testing"
	"time"
)

// The first decisions of a job take a time that is proportional to the number of hosts. If each host were compared with
// each other, 100,000 of them would take minutes.
func TestManyHosts(t *testing.T) {
	const many = 100_000
	var hosts []Host
	for i := range many {
		hosts = append(hosts, Host{Name: fmt.Sprintf("host-%d", i), Slots: 1})
	}
	s := New(Config{NP: 2, Min: 1, Max: many, Timeout: time.Minute, Patience: time.Minute,
		Random: func() float64 { return 0 }})
	began := time.Now()
	actions := s.Hosts(0, hosts)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("%d hosts took %v", many, took)
	}
	for i, a := range actions {
		if start, ok := a.(Start); !ok || start.Worker != i || start.Host != hosts[i].Name || start.Place.Rank != i ||
			start.Place.Size != many {
			t.Fatalf("action %d is %v", i, a)
		}
	}
	if len(actions) != many {
		t.Errorf("%d actions", len(actions))
	}
	s.Hosts(time.Second, hosts[:1]) // all others are taken away
	if len(s.actions) != 0 || s.staying() != 1 {
		t.Errorf("%d workers stay", s.staying())
	}
}
