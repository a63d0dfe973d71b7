package faults

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// table has the measurements by phase and kind.
type table struct {
	mu       sync.Mutex
	worst    map[cell]time.Duration
	counts   map[cell]int
	harmless map[cell]int // of counts: the jobs that succeeded
	bad      map[cell]int
}

func newTable() *table {
	return &table{worst: map[cell]time.Duration{}, counts: map[cell]int{}, harmless: map[cell]int{},
		bad: map[cell]int{}}
}

// add notes an injection; took is 0 if the job succeeded.
func (t *table) add(c cell, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[c]++
	if took == 0 {
		t.harmless[c]++
	}
	t.worst[c] = max(t.worst[c], took)
}

func (t *table) failed(c cell) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bad[c]++
}

// String is the table in Markdown.
func (t *table) String() string {
	var b strings.Builder
	b.WriteString("| phase |")
	for i := range kinds {
		fmt.Fprintf(&b, " %s |", kinds[i].text)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(kinds)) + "\n| *bound* |")
	for i := range kinds {
		fmt.Fprintf(&b, " *%v s* |", kinds[i].bound.Seconds())
	}
	total := 0
	for p := range phases {
		fmt.Fprintf(&b, "\n| %s |", phases[p].text)
		for i := range kinds {
			c := cell{&kinds[i], p}
			total += t.counts[c]
			switch {
			case t.bad[c] > 0:
				fmt.Fprintf(&b, " %d failed |", t.bad[c])
			case t.counts[c] == 0:
				b.WriteString(" |")
			case t.harmless[c] == t.counts[c]:
				fmt.Fprintf(&b, " none (%d) |", t.counts[c])
			case t.harmless[c] > 0:
				fmt.Fprintf(&b, " %.2f s (%d), none (%d) |", t.worst[c].Seconds(), t.counts[c]-t.harmless[c],
					t.harmless[c])
			default:
				fmt.Fprintf(&b, " %.2f s (%d) |", t.worst[c].Seconds(), t.counts[c])
			}
		}
	}
	fmt.Fprintf(&b, "\n\n%d injections, %s.\n", total, time.Now().UTC().Format("2006-01-02"))
	return b.String()
}

// The table is between these lines of a page.
const begin, end = "<!-- faults: begin -->\n", "<!-- faults: end -->\n"

// write puts the table into a page.
func (t *table) write(name string) error {
	page, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no place for the table of faults", name)
	}
	return os.WriteFile(name, []byte(before+begin+"\n"+t.String()+"\n"+end+after), 0o666)
}
