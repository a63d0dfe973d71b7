package stall

import "encoding/binary"

// view is one rank's answer, as far as it came.
type view struct {
	answer
	silent     bool // the rank has not answered
	unreadable bool // the rank's answer cannot be understood
	at         map[key]Phase
	marks      map[uint32]bool // of operations that are not in at
	unknown    int             // the number of further operations that it waits for, of which nothing is known
	joined     map[int]bool    // the sets that it has joined
}

func viewOf(a answer) view {
	v := view{answer: a, at: make(map[key]Phase, len(a.Waiting)), joined: map[int]bool{},
		unknown: a.More - len(a.Marks)/markSize}
	for i := range a.Waiting {
		w := &a.Waiting[i]
		if w.joined() {
			v.joined[w.Set] = true
		} else {
			v.at[w.key()] = w.Phase
		}
	}
	if len(a.Marks) > 0 {
		v.marks = make(map[uint32]bool, len(a.Marks)/markSize)
		for m := a.Marks; len(m) > 0; m = m[markSize:] {
			v.marks[binary.LittleEndian.Uint32(m)] = true
		}
	}
	return v
}

// phase says how far an operation has come on the rank; listed reports whether the rank waits for it.
func (v *view) phase(k key) (p Phase, listed bool) {
	if p, listed = v.at[k]; !listed && len(v.marks) > 0 {
		listed = v.marks[k.mark()]
	}
	return p, listed
}

// place says where the rank's program is, as a part of a sentence; empty if not known.
func (v *view) place() string {
	if v.At == "" {
		return ""
	}
	return ", in " + v.At
}

// viewFrom decodes a rank's answer: p is nil if it has sent nothing.
func viewFrom(p []byte) view {
	if p == nil {
		return view{silent: true}
	}
	a, err := decode(p)
	if err != nil {
		return view{unreadable: true}
	}
	return viewOf(a)
}

// stalled is an operation of this rank that has waited too long, with its phase on each member of its set, by world
// rank.
type stalled struct {
	Waiting
	waits   []int // ranks that have submitted it
	absent  []int // ranks that have not
	unsure  []int // ranks that may have: their answers do not say
	unready []int // ranks whose input is not there yet
	silent  []int // ranks that have not answered
	done    []int // ranks that no longer wait for it, though it is executing
	// executing: all have submitted it, so nobody is missing.
	executing bool
}

// diagnose finds the phase of w on each of the members. views are by world rank.
func diagnose(w Waiting, members []int, views []view) stalled {
	t := stalled{Waiting: w}
	k := w.key()
	for _, r := range members {
		v := &view{silent: true}
		if r >= 0 && r < len(views) {
			v = &views[r]
		}
		phase, listed := v.phase(k)
		switch {
		case v.silent:
			t.silent = append(t.silent, r)
		case listed && phase == Unready:
			t.unready = append(t.unready, r)
		case listed && phase == Refused: // it has made the call, and no longer waits
		case listed:
			t.waits = append(t.waits, r)
			t.executing = t.executing || phase == Executing
		case v.joined[w.Set]:
		case v.unreadable || v.unknown > 0:
			t.unsure = append(t.unsure, r)
		default:
			t.absent = append(t.absent, r)
		}
	}
	if t.executing {
		t.done, t.absent = t.absent, nil
	} else if len(t.silent)+len(t.unready)+len(t.unsure)+len(t.absent) == 0 {
		t.executing = true
	}
	return t
}

// hopeless reports whether t calls for a shutdown once it has waited long enough. An execution whose peers all answer
// may only be slow.
func (t *stalled) hopeless() bool { return !t.executing || len(t.silent) > 0 }
