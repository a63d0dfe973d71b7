package timeline

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/test/property"
	"github.com/gorovod/gorovod/test/transcript"
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
// The output is the records added to the file. "lost n=5" tells the recorder of dropped events; "limit n=1" sets how
// many tensors have a track.
func TestRecords(t *testing.T) {
	transcript.Walk(t, "testdata/records", func(t *testing.T, path string) {
		f := &memFile{}
		out, err := newArrayFile(f)
		if err != nil {
			t.Fatal(err)
		}
		r := newRecorder(out, time.UnixMicro(1_700_000_000_000_000), nil)
		shown := 0
		transcript.Run(t, path, func(t *testing.T, d *transcript.Command) string {
			var n int
			switch d.Cmd {
			case "events":
				for line := range strings.Lines(d.Input) {
					e := parseEvent(t, d, line)
					r.record(&e)
				}
			case "lost":
				d.ScanArg(t, "n", &n)
				r.freeCrowd()
				r.tell(int64(n))
			case "limit":
				d.ScanArg(t, "n", &r.limit)
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

func parseEvent(t *testing.T, d *transcript.Command, line string) event {
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
	property.Check(t, func(t *property.T) {
		f := &memFile{}
		out, err := newArrayFile(f)
		if err != nil {
			t.Fatal(err)
		}
		r := newRecorder(out, time.UnixMicro(0), nil)
		n := t.Int("events", 0, 200)
		for range n {
			r.record(&event{
				at:    int64(t.Int("at", 0, 1_000_000)),
				kind:  kind(t.Int("kind", int(cycleStart), int(opEnd))),
				name:  property.Pick(t, "name", []string{"a", "b", "\xff\x00\"\\"}),
				text:  property.Pick(t, "text", []string{"", "ALLREDUCE", "<\"\x80\u2028"}),
				rank:  int32(t.Int("rank", math.MinInt32, math.MaxInt32)),
				dtype: tensor.DType(t.Int("dtype", 0, tensor.NumDTypes)),
				ndim:  uint8(t.Int("ndim", 0, maxDims+1)),
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
