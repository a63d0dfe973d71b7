package overview

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/observe/feed"
)

// TestTables: what ranks tell of sparse tables is added up, the largest table first.
func TestTables(t *testing.T) {
	j := New()
	j.Form(3, 0, func() int { return 3 }, nil)
	now := time.Now()
	if text, _ := json.Marshal(j.snapshot(now)); strings.Contains(string(text), `"tables"`) {
		t.Errorf("a job without tables: %s", text)
	}
	for rank := range 2 {
		n := uint64(1 + rank)
		f := &feed.Figures{}
		f.SetTables([]feed.Table{{Name: "small", Rows: n, Bytes: n},
			{Name: "users", Set: 2, Rows: 10 * n, Bytes: 100 * n, Hottest: 100000 * n, Pulls: n, PullTime: 2e9 * n,
				Pushes: 1, PushTime: 1e9 * n}})
		j.take(now, rank, 0, "a", f)
	}
	want := []Table{{2, "users", 30, 300, 2, 1.5, 0.15}, {0, "small", 3, 3, 0, 0, 0}}
	if got := j.snapshot(now).Tables; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
