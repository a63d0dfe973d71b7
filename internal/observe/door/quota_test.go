package door

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

func TestQuota(t *testing.T) {
	q, from := newQuotas(), sourceOf("192.0.2.1:1")
	now, taken := time.Unix(1e9, 0), 0
	for range 1000 {
		if q.take(from, now) {
			taken++
		}
	}
	if taken < perSource.burst || taken > perSource.burst+2 {
		t.Errorf("%d requests at a time", taken)
	}
	if !q.take(sourceOf("192.0.2.2:1"), now) {
		t.Error("a source has used up another's quota")
	}
	taken = 0
	for i := range 1000 {
		if q.take(from, now.Add(time.Duration(i)*perSource.cost/2)) {
			taken++
		}
	}
	if taken < 490 || taken > 510 {
		t.Errorf("%d requests in the time for 500", taken)
	}
}

// TestQuotasOfManySources sends requests from many sources, all at a time and as fast as overall allows. quotas
// remember a fixed number of them, whether these have used one request or all.
func TestQuotasOfManySources(t *testing.T) {
	q, now, taken := newQuotas(), time.Unix(1e9, 0), 0
	send := func(i int) {
		t.Helper()
		if q.take(sourceOf(fmt.Sprintf("10.0.%d.%d:1", i/256, i%256)), now) {
			taken++
		}
		if len(q.spent) > mostSources {
			t.Fatalf("%d sources are remembered", len(q.spent))
		}
	}
	for i := range 10000 {
		send(i)
	}
	if taken < overall.burst || taken > overall.burst+2 {
		t.Errorf("%d requests at a time", taken)
	}
	taken = 0
	for i := range 10000 {
		for range 1 + i%2*perSource.burst {
			now = now.Add(overall.cost / 2)
			send(i)
		}
	}
	if all := 10000 * (2 + perSource.burst) / 2; taken < all*4/10 || taken > all*51/100 {
		t.Errorf("%d of %d requests in the time for half of them", taken, all)
	}
}

func TestSourceOf(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:80":          "192.0.2.1/32",
		"[::ffff:192.0.2.1]:80": "192.0.2.1/32",
		"[2001:db8::1:2:3]:80":  "2001:db8::/64",
		"[2001:db8:0:0:f::]:80": "2001:db8::/64",
		"[fe80::1%eth0]:80":     "fe80::/64",
	} {
		if got := sourceOf(remote); got != netip.MustParsePrefix(want) {
			t.Errorf("%s is from %v, want %s", remote, got, want)
		}
	}
	for _, remote := range []string{"", "@", "localhost:80"} {
		if got := sourceOf(remote); got.IsValid() {
			t.Errorf("%q is from %v", remote, got)
		}
	}
}
