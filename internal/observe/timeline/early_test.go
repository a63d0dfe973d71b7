package timeline

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// If several ranks are ready for a tensor's next operation while the last one still runs, each rank gets a mark with a
// NegotiateStart of its own.
func TestAllEarlyRanksAreMarked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "timeline.json")
	tl := New()
	if err := tl.Start(path, false); err != nil {
		t.Fatal(err)
	}
	tl.OpStart("x", "ALLREDUCE")
	for _, rank := range []int{2, 0, 1} {
		tl.NegotiateStart("x", "ALLREDUCE")
		tl.RankReady("x", rank)
	}
	tl.OpEnd("x", 7, nil)
	tl.NegotiateEnd("x", Agreement{Order: 7})
	if err := tl.Stop(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var records []struct{ Name, Ph string }
	if err := json.Unmarshal(data, &records); err != nil {
		t.Fatal(err)
	}
	var ready []string
	for _, r := range records {
		if r.Ph == "X" {
			ready = append(ready, r.Name)
		}
	}
	if !slices.Equal(ready, []string{"2", "0", "1"}) {
		t.Errorf("ready: %q in\n%s", ready, data)
	}
}
