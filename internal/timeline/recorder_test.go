package timeline

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/gorovod/gorovod/internal/tensor"
)

var kinds = map[string]kind{
	"cycle-start":     cycleStart,
	"negotiate-start": negotiateStart,
	"rank-ready":      rankReady,
	"negotiate-end":   negotiateEnd,
	"op-start":        opStart,
	"activity-start":  activityStart,
	"activity-end":    activityEnd,
	"op-end":          opEnd,
}

// TestRecords plays the scenarios in testdata/records. A line of "events" is
//
//	µs kind [tensor [operation, activity or rank]]
//
// and what comes out are the records added to the file. "lost n=5" tells the
// recorder of dropped events; "limit n=1" sets how many tensors have a track.
func TestRecords(t *testing.T) {
	datadriven.Walk(t, "testdata/records", func(t *testing.T, path string) {
		f := &memFile{}
		out, err := newArrayFile(f)
		if err != nil {
			t.Fatal(err)
		}
		r := newRecorder(out, time.UnixMicro(1_700_000_000_000_000))
		shown := 0
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var n int
			switch d.Cmd {
			case "events":
				for line := range strings.Lines(d.Input) {
					e := parseEvent(t, d, line)
					r.record(&e)
				}
			case "lost":
				d.ScanArgs(t, "n", &n)
				r.freeCrowd()
				r.tell(int64(n))
			case "limit":
				d.ScanArgs(t, "n", &r.limit)
			default:
				d.Fatalf(t, "unknown command")
			}
			if err := out.flush(); err != nil {
				t.Fatal(err)
			}
			var all []json.RawMessage
			if err := json.Unmarshal(f.data, &all); err != nil {
				t.Fatal(err)
			}
			fresh := all[shown:]
			shown = len(all)
			var b strings.Builder
			for _, record := range fresh {
				fmt.Fprintf(&b, "%s\n", record)
			}
			if r.skipped > 0 {
				fmt.Fprintf(&b, "skipped: %d\n", r.skipped)
			}
			return b.String()
		})
		var all []record
		if err := json.Unmarshal(f.data, &all); err != nil {
			t.Fatal(err)
		}
		checkNested(t, all)
	})
}

func parseEvent(t *testing.T, d *datadriven.TestData, line string) event {
	words := strings.Fields(line)
	e := event{dtype: tensor.Float32, ndim: 1, dims: [maxDims]int64{5}}
	k, ok := kinds[words[1]]
	if _, err := fmt.Sscan(words[0], &e.at); err != nil || !ok {
		d.Fatalf(t, "bad event %q: %v", line, err)
	}
	e.at *= 1000
	e.kind = k
	if len(words) > 2 {
		e.name = words[2]
	}
	if len(words) > 3 && k == rankReady {
		if _, err := fmt.Sscan(words[3], &e.rank); err != nil {
			d.Fatalf(t, "bad rank %q: %v", line, err)
		}
	} else if len(words) > 3 {
		e.text = words[3]
	}
	return e
}

// TestAnyEventsGiveAWellNestedFile feeds events in no sensible order.
func TestAnyEventsGiveAWellNestedFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &memFile{}
		out, err := newArrayFile(f)
		if err != nil {
			t.Fatal(err)
		}
		r := newRecorder(out, time.UnixMicro(0))
		n := rapid.IntRange(0, 200).Draw(t, "events")
		for range n {
			r.record(&event{
				at:    rapid.Int64Range(0, 1_000_000).Draw(t, "at"),
				kind:  kind(rapid.IntRange(int(cycleStart), int(opEnd)).Draw(t, "kind")),
				name:  rapid.SampledFrom([]string{"a", "b", "\xff\x00\"\\"}).Draw(t, "name"),
				text:  rapid.SampledFrom([]string{"", "ALLREDUCE", "<\"\x80\u2028"}).Draw(t, "text"),
				rank:  rapid.Int32().Draw(t, "rank"),
				dtype: tensor.DType(rapid.Uint8Range(0, tensor.NumDTypes).Draw(t, "dtype")),
				ndim:  rapid.Uint8Range(0, maxDims+1).Draw(t, "ndim"),
			})
		}
		if err := out.close(); err != nil {
			t.Fatal(err)
		}
		var all []record
		if err := json.Unmarshal(f.data, &all); err != nil {
			t.Fatalf("%v in %q", err, f.data)
		}
		checkNested(t, all)
	})
}
