package tracemerge

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
)

// writer writes the trace in the object form of Chrome's format. otherData has the facts that are in no record.
type writer struct {
	out    *bufio.Writer
	base   int64 // µs since 1970 by the reference's clock: time 0 of the trace
	buf    []byte
	quoted map[string]string
	comma  bool
	arrows int64
}

// write writes the trace to f.
func (rep *Report) write(f io.Writer, min time.Duration) error {
	w := &writer{out: bufio.NewWriterSize(f, 1<<20), base: math.MaxInt64, quoted: map[string]string{}}
	for _, r := range rep.Ranks {
		w.base = minimum(w.base, r.Clock.at(r.began))
	}
	w.out.WriteString(`{"displayTimeUnit":"ms","traceEvents":[`)
	for i, r := range rep.Ranks {
		if err := w.rank(r, i+1, rep.world(r)); err != nil {
			return fmt.Errorf("%s: %w", r.File, err)
		}
	}
	numbers := map[*Rank]int{}
	for i, r := range rep.Ranks {
		numbers[r] = i + 1
	}
	for _, world := range rep.worlds() {
		if err := rep.arrows(world, min, func(a arrow) { w.arrow(a, numbers) }); err != nil {
			return err
		}
	}
	about, err := json.Marshal(rep.about(w.base))
	if err != nil {
		return err
	}
	fmt.Fprintf(w.out, "\n],\"otherData\":%s}\n", about)
	return w.out.Flush()
}

func minimum(a, b int64) int64 { return min(a, b) }

// world says which world a file belongs to, if there are several.
func (rep *Report) world(r *Rank) string {
	worlds := rep.worlds()
	for i, world := range worlds {
		if len(worlds) > 1 && world[0].Generation == r.Generation {
			return fmt.Sprintf(", world %d", i+1)
		}
	}
	return ""
}

// about is the trace's metadata.
func (rep *Report) about(base int64) map[string]any {
	var ranks []map[string]any
	for _, r := range rep.Ranks {
		about := map[string]any{"rank": r.Rank, "size": r.Size, "host": r.Host, "generation": r.Generation,
			"file": r.File, "clock": r.Clock.Basis, "offset_us": r.Clock.Offset, "drift_ppm": r.Clock.Drift * 1e6,
			"events": r.Events, "last_in_operations": r.Last, "others_waited_us": r.Caused}
		if !math.IsNaN(r.Clock.Error) {
			about["error_us"] = r.Clock.Error
		}
		if notes := r.notes(); len(notes) > 0 {
			about["notes"] = notes
		}
		ranks = append(ranks, about)
	}
	about := map[string]any{"ranks": ranks, "operations": rep.Operations, "arrows": rep.Arrows,
		"undecided": rep.Undecided, "start_time_since_epoch_in_micros": base}
	if len(rep.Missing) > 0 {
		about["ranks_without_file"] = rep.Missing
	}
	if len(rep.CutOff) > 0 {
		about["files_cut_off"] = rep.CutOff
	}
	return about
}

// rank writes the records of a file. The rank is the process pid, and each tensor is a thread.
func (w *writer) rank(r *Rank, pid int, world string) error {
	w.about("process_name", pid, 0, `"name":`+w.quote(r.Who()+world))
	w.about("process_sort_index", pid, 0, `"sort_index":`+strconv.Itoa(pid))
	w.about("process_labels", pid, 0, `"labels":`+w.quote("clock "+r.Clock.String()))
	for track, tensor := range r.tensors {
		w.about("thread_name", pid, track, `"name":`+w.quote(tensor))
	}
	open := map[int]int{}
	_, _, err := scan(r.File, func(rec *record) error {
		if rec.TS == nil || rec.Ph == "M" {
			return nil
		}
		switch rec.Ph {
		case "B":
			open[rec.PID]++
		case "E":
			if open[rec.PID] == 0 {
				return nil // the beginning of the phase was damaged
			}
			open[rec.PID]--
		case "X", "i":
		default:
			return nil
		}
		w.begin(rec.Ph, pid, rec.PID, r.Clock.at(r.began+*rec.TS))
		if rec.Name != "" {
			w.buf = append(append(w.buf, `,"name":`...), w.quote(rec.Name)...)
		}
		switch rec.Ph {
		case "X":
			w.buf = append(w.buf, `,"dur":0`...)
		case "i":
			w.buf = append(w.buf, `,"s":"p"`...)
		}
		if len(rec.Args) > 0 {
			w.buf = append(append(w.buf, `,"args":`...), rec.Args...)
		}
		return w.end()
	})
	for track, depth := range open {
		for range depth {
			w.begin("E", pid, track, r.Clock.at(r.end))
			w.buf = append(w.buf, `,"args":{"unfinished":true}`...)
			if e := w.end(); err == nil {
				err = e
			}
		}
	}
	return err
}

// arrow writes the two ends of an arrow: one in the phase in which the last rank came, one in the other rank's
// operation. The phase in which the other rank waited cannot be an end: it began earlier, and Perfetto draws an arrow
// from the earlier phase to the later one, whichever end is which.
func (w *writer) arrow(a arrow, numbers map[*Rank]int) {
	w.arrows++
	id := strconv.FormatInt(w.arrows, 10)
	w.begin("s", numbers[a.from], a.fromTrack, a.came)
	w.buf = append(w.buf, `,"cat":"wait","name":"waited for","id":`+id...)
	w.end()
	w.begin("f", numbers[a.to], a.toTrack, a.began)
	w.buf = append(w.buf, `,"bp":"e","cat":"wait","name":"waited for","id":`+id...)
	w.buf = append(w.buf, `,"args":{"waited_us":`...)
	w.buf = append(strconv.AppendInt(w.buf, a.came-a.waited, 10), '}')
	w.end()
}

// about writes a record without a time.
func (w *writer) about(what string, pid, tid int, args string) {
	w.buf = fmt.Appendf(w.buf[:0], `{"ph":"M","name":"%s","pid":%d,"tid":%d,"args":{%s}`, what, pid, tid, args)
	w.end()
}

func (w *writer) begin(ph string, pid, tid int, at int64) {
	w.buf = append(append(w.buf[:0], `{"ph":"`...), ph...)
	w.buf = strconv.AppendInt(append(w.buf, `","ts":`...), at-w.base, 10)
	w.buf = strconv.AppendInt(append(w.buf, `,"pid":`...), int64(pid), 10)
	w.buf = strconv.AppendInt(append(w.buf, `,"tid":`...), int64(tid), 10)
}

func (w *writer) end() error {
	if w.comma {
		w.out.WriteByte(',')
	}
	w.comma = true
	w.out.WriteByte('\n')
	w.buf = append(w.buf, '}')
	_, err := w.out.Write(w.buf)
	return err
}

// mostQuoted limits the memory for strings that come again and again.
const mostQuoted = 1024

func (w *writer) quote(s string) string {
	q, known := w.quoted[s]
	if !known {
		b, _ := json.Marshal(s)
		if q = string(b); len(w.quoted) < mostQuoted {
			w.quoted[s] = q
		}
	}
	return q
}
