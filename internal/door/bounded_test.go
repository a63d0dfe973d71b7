package door

import (
	"testing"
	"time"
)

func TestQuota(t *testing.T) {
	var q quota
	now, taken := time.Unix(1e9, 0), 0
	for range 1000 {
		if q.take(now) {
			taken++
		}
	}
	if taken < burst || taken > burst+2 {
		t.Errorf("%d requests at a time", taken)
	}
	taken = 0
	for i := range 1000 {
		if q.take(now.Add(time.Duration(i) * requestCost / 2)) {
			taken++
		}
	}
	if taken < 490 || taken > 510 {
		t.Errorf("%d requests in the time for 500", taken)
	}
}
