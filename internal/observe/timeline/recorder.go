package timeline

import (
	"encoding/json"
	"strconv"
	"time"
)

// recorder turns events into records. It knows the phase of each tensor, so that the records are well nested even if
// events are missing: it leaves out an event that ends a phase which has not begun, and before it begins a phase it
// ends those that should have ended.
type recorder struct {
	out     *arrayFile
	own     bool              // the file has an Identity
	tensors map[string]*track // at most limit
	limit   int
	crowd   track             // of all other tensors; pid 0 until it is needed
	holder  string            // the tensor that crowd shows now, if its phase is not unknown
	skipped int64             // events of tensors that were left out because crowd was taken
	cycles  int64             // µs: the last cycle mark
	quoted  map[string]string // JSON of operations and activities
	buf     []byte            // the record in work
	err     error             // the first error of out
}

// track is the line of one tensor in the viewer, which shows it as a process.
type track struct {
	pid   int
	phase phase
	last  int64 // µs: the latest time of a record of this track

	// Another rank has asked for the next operation before this one has ended. The next negotiation is shown once this
	// operation has ended.
	early      bool
	earlyOp    string
	earlyRanks []int32
}

type phase uint8

const (
	unknown phase = iota
	negotiating
	topLevel
	activity
)

// maxTensors is how many tensors have a track of their own. Names that never come again (of unnamed operations) would
// otherwise fill memory and the viewer. All further tensors share one track, which shows one of them at a time.
const maxTensors = 8192

// maxQuoted limits the memory for names of operations and activities.
const maxQuoted = 1024

func newRecorder(out *arrayFile, began time.Time, own *Identity) *recorder {
	r := &recorder{
		out:     out,
		own:     own != nil,
		tensors: make(map[string]*track),
		limit:   maxTensors,
		quoted:  make(map[string]string),
	}
	r.buf = append(r.buf[:0], `{"name":"process_name","ph":"M","pid":0,"args":{"start_time_since_epoch_in_micros":`...)
	r.buf = strconv.AppendInt(r.buf, began.UnixMicro(), 10)
	r.write(`}}`)
	r.sortIndex(0)
	if own != nil {
		r.identify(own)
	}
	return r
}

// identify writes which rank's file it is.
func (r *recorder) identify(own *Identity) {
	r.buf = append(r.buf[:0], `{"name":"gorovod_rank","ph":"M","pid":0,"args":{"rank":`...)
	r.buf = strconv.AppendInt(r.buf, int64(own.Rank), 10)
	r.buf = append(r.buf, `,"size":`...)
	r.buf = strconv.AppendInt(r.buf, int64(own.Size), 10)
	r.buf = append(r.buf, `,"generation":`...)
	r.buf = strconv.AppendUint(r.buf, own.Generation, 10)
	r.buf = append(r.buf, `,"host":`...)
	r.buf = append(r.buf, encode(own.Host)...)
	r.buf = append(r.buf, `,"job":`...)
	r.buf = append(r.buf, encode(own.Job)...)
	r.write(`}}`)
}

// record writes the records for e. After an error it does nothing.
func (r *recorder) record(e *event) {
	if r.err != nil {
		return
	}
	if e.kind == cycleStart {
		r.cycles = max(r.cycles, e.at/1000)
		r.buf = append(r.buf[:0], `{"ph":"i","name":"CYCLE_START","ts":`...)
		r.buf = strconv.AppendInt(r.buf, r.cycles, 10)
		r.write(`,"s":"g"}`)
		return
	}
	t := r.track(e)
	if t == nil {
		return
	}
	t.last = max(t.last, e.at/1000)
	r.step(t, e)
}

// track finds or makes the track of e's tensor; nil if e is to be left out.
func (r *recorder) track(e *event) *track {
	if t := r.tensors[e.name]; t != nil {
		return t
	}
	crowd := &r.crowd
	if crowd.phase != unknown && r.holder == e.name {
		return crowd
	}
	full := len(r.tensors) == r.limit
	switch {
	case full && crowd.phase != unknown:
		r.skipped++
		return nil
	case e.kind != negotiateStart && e.kind != opStart:
		return nil // its phase has not begun
	case full:
		if crowd.pid == 0 {
			crowd.pid = r.limit + 1
			r.announce(crowd.pid, "(other tensors)")
		}
		r.holder = e.name
		return crowd
	}
	t := &track{pid: len(r.tensors) + 1}
	r.tensors[e.name] = t
	r.announce(t.pid, e.name)
	return t
}

// step is the state machine of one tensor.
func (r *recorder) step(t *track, e *event) {
	switch e.kind {
	case negotiateStart:
		switch t.phase {
		case unknown:
			r.begin(t, negotiating, e.text)
		case topLevel, activity:
			if !t.early {
				t.early, t.earlyOp, t.earlyRanks = true, e.text, t.earlyRanks[:0]
			}
		}
	case rankReady:
		switch {
		case r.own && e.rank == 0: // the coordinator of a process set is member 0, which has submitted
		case t.early:
			t.earlyRanks = append(t.earlyRanks, e.rank)
		case t.phase == negotiating:
			r.ready(t, e.rank, false)
		}
	case submitted:
		if t.phase == negotiating && !t.early {
			r.ready(t, e.rank, true)
		}
	case negotiateEnd:
		if t.early { // an OpEnd is missing
			r.unwind(t)
			r.startEarly(t)
		}
		if t.phase == negotiating {
			r.endNegotiation(t, e)
		}
	case opStart:
		r.unwind(t)
		r.startEarly(t)
		r.unwind(t)
		r.begin(t, topLevel, e.text)
	case activityStart:
		if t.phase == activity {
			r.end(t, topLevel)
		}
		if t.phase == topLevel {
			r.begin(t, activity, e.text)
		}
	case activityEnd:
		if t.phase == activity {
			r.end(t, topLevel)
		}
	case opEnd:
		if t.phase == activity {
			r.end(t, topLevel)
		}
		if t.phase == topLevel {
			r.endOp(t, e)
		}
		r.startEarly(t)
	}
}

// startEarly shows the early negotiation, if there is one. t must be in phase unknown.
func (r *recorder) startEarly(t *track) {
	if !t.early {
		return
	}
	t.early = false
	r.begin(t, negotiating, t.earlyOp)
	for _, rank := range t.earlyRanks {
		r.ready(t, rank, false)
	}
}

// unwind ends all phases that t is in.
func (r *recorder) unwind(t *track) {
	if t.phase == activity {
		r.end(t, topLevel)
	}
	if t.phase != unknown {
		r.end(t, unknown)
	}
}

// freeCrowd ends the phase on the shared track. Call it when events were lost, because the event that ends the phase
// may be among them.
func (r *recorder) freeCrowd() {
	r.crowd.early = false
	r.unwind(&r.crowd)
}

// tell writes into the file how many events are missing in all.
func (r *recorder) tell(n int64) {
	r.buf = append(r.buf[:0], `{"name":"process_labels","ph":"M","pid":0,"args":{"labels":"`...)
	r.buf = strconv.AppendInt(r.buf, n, 10)
	r.buf = append(r.buf, ` events dropped","dropped":`...)
	r.buf = strconv.AppendInt(r.buf, n, 10)
	r.write(`}}`)
}

// begin writes the B record of a phase.
func (r *recorder) begin(t *track, p phase, name string) {
	t.phase = p
	r.buf = append(r.buf[:0], `{"ph":"B","name":`...)
	if p == negotiating {
		r.buf = append(r.buf, `"NEGOTIATE_`...)
		r.buf = append(r.buf, r.quote(name)[1:]...)
	} else {
		r.buf = append(r.buf, r.quote(name)...)
	}
	r.place(t)
	r.write(`}`)
}

// end writes the E record of t's phase; outer is the phase around it.
func (r *recorder) end(t *track, outer phase) {
	t.phase = outer
	r.buf = append(r.buf[:0], `{"ph":"E"`...)
	r.place(t)
	r.write(`}`)
}

// endOp writes the E record of an operation, with the tensor's type and shape.
func (r *recorder) endOp(t *track, e *event) {
	if !e.dtype.Valid() {
		r.end(t, unknown)
		return
	}
	t.phase = unknown
	r.buf = append(r.buf[:0], `{"ph":"E"`...)
	r.place(t)
	r.buf = append(r.buf, `,"args":{"dtype":"`...)
	r.buf = append(r.buf, e.dtype.String()...)
	r.buf = append(r.buf, `","shape":"[`...)
	for i := range min(int(e.ndim), maxDims) {
		if i > 0 {
			r.buf = append(r.buf, `, `...)
		}
		r.buf = strconv.AppendInt(r.buf, e.dims[i], 10)
	}
	if e.ndim > maxDims {
		r.buf = append(r.buf, `, ...`...)
	}
	r.write(`]"}}`)
}

// endNegotiation writes the E record of a negotiation; in a file with an Identity, with the operation's number.
func (r *recorder) endNegotiation(t *track, e *event) {
	if !r.own {
		r.end(t, unknown)
		return
	}
	t.phase = unknown
	r.buf = append(r.buf[:0], `{"ph":"E"`...)
	r.place(t)
	r.buf = append(r.buf, `,"args":{"set":`...)
	r.buf = strconv.AppendInt(r.buf, int64(e.rank), 10)
	r.buf = append(r.buf, `,"order":`...)
	r.buf = strconv.AppendUint(r.buf, e.order, 10)
	if e.ahead {
		r.buf = append(r.buf, `,"ahead":1`...)
	}
	r.write(`}}`)
}

// ready writes the X record of a member that is ready. own: the member is this rank.
func (r *recorder) ready(t *track, rank int32, own bool) {
	r.buf = append(r.buf[:0], `{"ph":"X","name":"`...)
	r.buf = strconv.AppendInt(r.buf, int64(rank), 10)
	r.buf = append(r.buf, '"')
	r.place(t)
	if own {
		r.write(`,"dur":0,"args":{"own":1}}`)
		return
	}
	r.write(`,"dur":0}`)
}

// announce writes the records that name a track and sort it.
func (r *recorder) announce(pid int, name string) {
	r.buf = append(r.buf[:0], `{"name":"process_name","ph":"M","pid":`...)
	r.buf = strconv.AppendInt(r.buf, int64(pid), 10)
	r.buf = append(r.buf, `,"args":{"name":`...)
	r.buf = append(r.buf, encode(name)...)
	r.write(`}}`)
	r.sortIndex(pid)
}

func (r *recorder) sortIndex(pid int) {
	r.buf = append(r.buf[:0], `{"name":"process_sort_index","ph":"M","pid":`...)
	r.buf = strconv.AppendInt(r.buf, int64(pid), 10)
	r.buf = append(r.buf, `,"args":{"sort_index":`...)
	r.buf = strconv.AppendInt(r.buf, int64(pid), 10)
	r.write(`}}`)
}

// place appends time and track to the record.
func (r *recorder) place(t *track) {
	r.buf = append(r.buf, `,"ts":`...)
	r.buf = strconv.AppendInt(r.buf, t.last, 10)
	r.buf = append(r.buf, `,"pid":`...)
	r.buf = strconv.AppendInt(r.buf, int64(t.pid), 10)
}

// write ends the record in buf with tail and adds the record to the file.
func (r *recorder) write(tail string) {
	r.buf = append(r.buf, tail...)
	if err := r.out.add(r.buf); err != nil && r.err == nil {
		r.err = err
	}
}

// quote is encode with a cache, for the few strings that come again and again.
func (r *recorder) quote(s string) string {
	q, ok := r.quoted[s]
	if !ok {
		q = encode(s)
		if len(r.quoted) < maxQuoted {
			r.quoted[s] = q
		}
	}
	return q
}

// encode is s as JSON.
func encode(s string) string {
	b, _ := json.Marshal(s) // a string can always be encoded; invalid UTF-8 is replaced
	return string(b)
}
