package tracemerge

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// operation is one operation in a rank's timeline. Times are µs since 1970 by the rank's own clock; 0 if the file does
// not have them.
type operation struct {
	order     uint64 // its place in the order of its process set
	track     int    // the tensor, by the file's own numbers
	ahead     bool   // its result came with the agreement
	came      int64  // when this rank submitted the tensor
	agreed    int64  // when this rank heard that all ranks have submitted
	began     int64  // when the execution began
	ended     int64
	symmetric bool // it cannot end on any rank before it has begun on all
}

// mostOpen is how many operations of a process set may wait in memory for their end.
const mostOpen = 1 << 14

// reader follows the phases of one file.
type reader struct {
	*Rank
	first  bool // no record has been read yet
	known  bool // the record that names the file's rank has been read
	phases map[int]*phase
	queues map[int][]*operation // by process set: operations in their order, which are not in the spool yet
}

// phase is what a tensor is doing.
type phase struct {
	depth       int
	negotiating bool
	came        int64
	op          *operation // the agreed operation, until it ends
}

// read reads the file for the first time.
func read(path string) (*Rank, error) {
	r := &reader{Rank: &Rank{File: path, tensors: map[int]string{}, spools: map[int]*spool{}}, first: true,
		phases: map[int]*phase{}, queues: map[int][]*operation{}}
	torn, damaged, err := scan(path, r.take)
	if err == nil && !r.known {
		switch {
		case torn && damaged == 0:
			err = errCutOff
		case r.first:
			err = errors.New("it is no timeline of gorovod: it has no records")
		default:
			err = errNobodys
		}
	}
	if err != nil {
		r.closeSpools()
		return nil, err
	}
	r.Torn, r.Damaged = torn, damaged
	for _, p := range r.phases {
		r.Open += p.depth
	}
	for set := range r.queues {
		r.spill(set, true)
	}
	for _, s := range r.spools {
		if s.err != nil {
			r.closeSpools()
			return nil, fmt.Errorf("a temporary file: %w", s.err)
		}
	}
	return r.Rank, nil
}

func (r *Rank) closeSpools() {
	for _, s := range r.spools {
		s.close()
	}
}

// errCutOff: no more than the file's beginning is there.
var errCutOff = errors.New("it ends before the record that says whose file it is")

// errNobodys: Horovod's own timelines, and those of rank 0 alone, do not name their rank.
var errNobodys = errors.New("it does not say which rank wrote it: give the timeline a name with {rank}, such as " +
	"--timeline-filename 'trace-{rank}.json'; then each rank writes a file that can be merged")

// take reads a record.
func (r *reader) take(rec *record) error {
	if r.first {
		r.first = false
		var args struct {
			Began *int64 `json:"start_time_since_epoch_in_micros"`
		}
		if rec.Ph != "M" || rec.Name != "process_name" || json.Unmarshal(rec.Args, &args) != nil || args.Began == nil {
			return errors.New("it is no timeline of gorovod: its first record does not say when it began")
		}
		r.began, r.end = *args.Began, *args.Began
		return nil
	}
	if rec.Ph == "M" {
		return r.about(rec)
	}
	if !r.known {
		return errNobodys
	}
	if rec.TS == nil {
		return nil
	}
	at := r.began + *rec.TS
	r.end = max(r.end, at)
	r.Events++
	if rec.Ph != "i" {
		r.phase(rec, at)
	}
	return nil
}

// about reads a record without a time.
func (r *reader) about(rec *record) error {
	switch rec.Name {
	case "gorovod_rank":
		var own struct {
			Rank, Size int
			Generation uint64
			Host, Job  string
		}
		if err := json.Unmarshal(rec.Args, &own); err != nil || own.Size < 1 || own.Rank < 0 || own.Rank >= own.Size ||
			own.Size > mostRanks {
			return errors.New("the record that says whose file it is makes no sense")
		}
		r.known = true
		r.Rank.Rank, r.Size, r.Generation, r.Host, r.job = own.Rank, own.Size, own.Generation, own.Host, own.Job
	case "process_name":
		var args struct{ Name string }
		if json.Unmarshal(rec.Args, &args) == nil {
			r.tensors[rec.PID] = args.Name
		}
	case "process_labels":
		var args struct{ Dropped int64 }
		if json.Unmarshal(rec.Args, &args) == nil {
			r.Dropped = args.Dropped
		}
	}
	return nil
}

// mostRanks limits how much work a damaged file can cause.
const mostRanks = 1 << 20

// phase follows a tensor.
func (r *reader) phase(rec *record, at int64) {
	p := r.phases[rec.PID]
	if p == nil {
		p = &phase{}
		r.phases[rec.PID] = p
	}
	switch rec.Ph {
	case "B":
		p.depth++
		switch {
		case strings.HasPrefix(rec.Name, "NEGOTIATE_"):
			p.negotiating, p.came, p.op = true, 0, nil
		case p.depth == 1 && p.op != nil:
			p.op.began = at
			p.op.symmetric = !p.op.ahead && (rec.Name == "ALLREDUCE" || rec.Name == "ADASUM")
		}
	case "X":
		var args struct{ Own int }
		if p.negotiating && json.Unmarshal(rec.Args, &args) == nil && args.Own == 1 {
			p.came = at
		}
	case "E":
		p.depth = max(0, p.depth-1)
		switch {
		case p.negotiating:
			p.negotiating = false
			r.agreed(p, rec, at)
		case p.depth == 0 && p.op != nil:
			p.op.ended = at
			p.op = nil
		}
	}
}

// agreed notes that all ranks have submitted an operation.
func (r *reader) agreed(p *phase, rec *record, at int64) {
	var args struct {
		Set   int
		Order uint64
		Ahead int
	}
	if json.Unmarshal(rec.Args, &args) != nil || args.Order == 0 {
		return
	}
	p.op = &operation{order: args.Order, track: rec.PID, ahead: args.Ahead == 1, came: p.came, agreed: at}
	r.queues[args.Set] = append(r.queues[args.Set], p.op)
	if len(r.queues[args.Set])%1024 == 0 {
		r.spill(args.Set, false)
	}
}

// spill moves operations to the spool, in their order: with all, every operation; otherwise those that have ended.
func (r *reader) spill(set int, all bool) {
	s := r.spools[set]
	if s == nil {
		s = &spool{}
		r.spools[set] = s
	}
	q := r.queues[set]
	for len(q) > 0 && (all || q[0].ended != 0 || len(q) > mostOpen) {
		s.add(q[0])
		q = q[1:]
	}
	r.queues[set] = append([]*operation(nil), q...)
}
