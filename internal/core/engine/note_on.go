//go:build drivingnotes

package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// noting says that this build notes what its drivers do, for a transcript.
// At the end of an engine the notes go to the folder GOROVOD_DRIVING_NOTES, in a file for each rank.
const noting = true

// notes are rows in the order in which they began. An actor's equal events in a
// row are one row, with the number of each answer. Equal notes of the seat, which
// several threads make, are one row while they are close together.
type notes struct {
	mu    sync.Mutex
	first time.Time
	rows  []row
	last  map[string]int // the latest row of each actor
}

type row struct {
	begin        time.Duration
	actor, event string
	answers      []answer
}

type answer struct {
	action string
	times  int
}

func (n *notes) add(actor, event, action string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.last == nil {
		n.first, n.last = time.Now(), make(map[string]int)
	}
	at, ok := n.last[actor]
	if ok && n.rows[at].event != event {
		ok = false
		for i := len(n.rows) - 1; actor == "seat" && i >= max(0, len(n.rows)-6); i-- {
			if n.rows[i].actor == actor && n.rows[i].event == event {
				at, ok = i, true
				break
			}
		}
	}
	if !ok {
		at = len(n.rows)
		n.rows = append(n.rows, row{begin: time.Since(n.first), actor: actor, event: event})
	}
	n.last[actor] = at
	n.rows[at].count(action)
}

func (r *row) count(action string) {
	for i := range r.answers {
		if r.answers[i].action == action {
			r.answers[i].times++
			return
		}
	}
	r.answers = append(r.answers, answer{action, 1})
}

func (r *row) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%.3fms %s: %s ->", r.begin.Seconds()*1000, r.actor, r.event)
	for i, a := range r.answers {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, " %s", a.action)
		if a.times > 1 {
			fmt.Fprintf(&b, " x%d", a.times)
		}
	}
	return b.String()
}

func (n *notes) facts(facts ...fact) string {
	var b strings.Builder
	for _, f := range facts {
		switch v := f.value.(type) {
		case bool:
			if v {
				b.WriteString(" " + f.name)
			}
		default:
			fmt.Fprintf(&b, " %s=%v", f.name, v)
		}
	}
	return b.String()
}

func (n *notes) save(o *Options) {
	dir := os.Getenv("GOROVOD_DRIVING_NOTES")
	if dir == "" {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "job%s\n", n.facts(fact{"spin", o.Spin}, fact{"spare", o.SpareCores}, fact{"onehost", o.OneHost}))
	for i := range n.rows {
		fmt.Fprintln(&b, n.rows[i].String())
	}
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("rank%d", o.Rank)), []byte(b.String()), 0o666); err != nil {
		panic(err)
	}
}
