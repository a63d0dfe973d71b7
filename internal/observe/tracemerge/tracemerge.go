// Package tracemerge is gorovod trace merge: it makes one trace, for Perfetto and Chrome, of the timelines of a job's
// ranks. It aligns the ranks' clocks, and draws arrows from the last rank that came to an operation to the ranks that
// waited for it.
//
// It reads each file twice. The first time, the file's operations go into a file of their own (spool.go), so that
// memory depends neither on the files' lengths nor on the clocks' differences. Then it joins the operations of all
// ranks by their numbers:
//
//	timeline ── scan ──▶ spool ──┐
//	timeline ── scan ──▶ spool ──┼─ join ──▶ clocks (clock.go), then arrows (arrows.go)
//	timeline ── scan ──▶ spool ──┘
//	timeline ── scan ──▶ records with the job's time (write.go)
//
// Only programs import this package.
package tracemerge

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// Options say what to merge.
type Options struct {
	Files  []string
	Output string
	// MinWait is the shortest wait that gets an arrow.
	MinWait time.Duration
}

// Report says what the trace has.
type Report struct {
	Ranks []*Rank
	// Missing are the ranks without a file, by the number of the world.
	Missing map[uint64][]int
	// CutOff are the files that end too early to say whose they are. Their ranks count as missing.
	CutOff []string
	// Arrows counts the arrows. Undecided counts operations without arrows, because the clocks do not tell which rank
	// came last.
	Arrows, Operations, Undecided int64
}

// Rank is one file.
type Rank struct {
	Rank, Size int
	Host       string
	Generation uint64
	File       string
	Clock      Clock
	Events     int64 // records that have a time
	Dropped    int64 // events that the rank dropped
	Open       int   // phases that have no end
	Damaged    int64 // lines that are no records
	Torn       bool  // the file ends in the middle
	Last       int64 // operations to which this rank came last, as far as the clocks tell
	Caused     int64 // µs in which at least one operation waited for this rank, added up over the other ranks
	tensors    map[int]string
	began, end int64 // µs since 1970, by the rank's own clock
	job        string
	spools     map[int]*spool // by process set
}

// Who names the rank.
func (r *Rank) Who() string { return fmt.Sprintf("rank %d on %s", r.Rank, r.Host) }

// Merge writes the trace. It replaces a file only once everything has been written; into a device or a pipe it writes.
func Merge(o Options) (*Report, error) {
	rep := &Report{Missing: map[uint64][]int{}}
	defer func() {
		for _, r := range rep.Ranks {
			for _, s := range r.spools {
				s.close()
			}
		}
	}()
	for _, name := range o.Files {
		if same(name, o.Output) {
			return nil, fmt.Errorf("%s is to be read and to be written: name another file with -o", name)
		}
		r, err := read(name)
		switch {
		case errors.Is(err, errEmpty) || errors.Is(err, errCutOff):
			rep.CutOff = append(rep.CutOff, name)
			if len(rep.CutOff) < len(o.Files) {
				continue
			}
			fallthrough // no file is left
		case err != nil:
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		rep.Ranks = append(rep.Ranks, r)
	}
	if err := rep.order(); err != nil {
		return nil, err
	}
	if err := rep.align(); err != nil {
		return nil, err
	}
	if err := save(o.Output, func(w io.Writer) error { return rep.write(w, o.MinWait) }); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Output, err)
	}
	return rep, nil
}

func same(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// order sorts the files, checks that they belong to one job, and finds the missing ranks.
func (rep *Report) order() error {
	slices.SortStableFunc(rep.Ranks, func(a, b *Rank) int {
		if a.Generation != b.Generation {
			if a.Generation < b.Generation {
				return -1
			}
			return 1
		}
		return a.Rank - b.Rank
	})
	for i, r := range rep.Ranks {
		if i == 0 || rep.Ranks[i-1].Generation != r.Generation {
			rep.absent(r.Generation)
			continue
		}
		before := rep.Ranks[i-1]
		switch {
		case before.job != r.job || before.Size != r.Size:
			return fmt.Errorf("%s and %s are of different jobs: %s of %d, and %s of %d", before.File, r.File,
				before.Who(), before.Size, r.Who(), r.Size)
		case before.Rank == r.Rank:
			return fmt.Errorf("%s and %s are both of rank %d: give one of them", before.File, r.File, r.Rank)
		}
	}
	return nil
}

// absent notes the ranks of a world without a file.
func (rep *Report) absent(generation uint64) {
	have, size := map[int]bool{}, 0
	for _, r := range rep.Ranks {
		if r.Generation == generation {
			have[r.Rank], size = true, r.Size
		}
	}
	for r := range size {
		if !have[r] {
			rep.Missing[generation] = append(rep.Missing[generation], r)
		}
	}
}

// worlds are the files of each world, in order. rep.order has sorted them.
func (rep *Report) worlds() (worlds [][]*Rank) {
	for i, r := range rep.Ranks {
		if i == 0 || rep.Ranks[i-1].Generation != r.Generation {
			worlds = append(worlds, nil)
		}
		worlds[len(worlds)-1] = append(worlds[len(worlds)-1], r)
	}
	return worlds
}

// Text is the report as text for people.
func (rep *Report) Text(output string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d operations, %d arrows", output, rep.Operations, rep.Arrows)
	if rep.Undecided > 0 {
		fmt.Fprintf(&b, "; for %d operations the clocks do not tell who came last", rep.Undecided)
	}
	b.WriteString("\n")
	for i, world := range rep.worlds() {
		if len(rep.worlds()) > 1 {
			fmt.Fprintf(&b, "world %d\n", i+1)
		}
		for _, r := range world {
			fmt.Fprintf(&b, "  %s: clock %s", r.Who(), r.Clock)
			if r.Last > 0 {
				fmt.Fprintf(&b, "; last in %d operations, others waited %v for it", r.Last,
					time.Duration(r.Caused)*time.Microsecond)
			}
			for _, note := range r.notes() {
				fmt.Fprintf(&b, "; %s", note)
			}
			b.WriteString("\n")
		}
		if missing := rep.Missing[world[0].Generation]; len(missing) > 0 {
			fmt.Fprintf(&b, "  no file of ranks %s\n", list(missing))
		}
	}
	for _, name := range rep.CutOff {
		fmt.Fprintf(&b, "  %s is left out: %v\n", name, errCutOff)
	}
	return b.String()
}

// mostListed is how many ranks a line has room for.
const mostListed = 16

func list(ranks []int) string {
	var words []string
	for i, r := range ranks {
		if i == mostListed {
			words = append(words, fmt.Sprintf("and %d more", len(ranks)-i))
			break
		}
		words = append(words, fmt.Sprint(r))
	}
	return strings.Join(words, ", ")
}

// notes say what is wrong with the file.
func (r *Rank) notes() (notes []string) {
	if r.Torn {
		notes = append(notes, "the file ends in the middle")
	}
	if r.Damaged > 0 {
		notes = append(notes, fmt.Sprintf("%d damaged lines left out", r.Damaged))
	}
	if r.Dropped > 0 {
		notes = append(notes, fmt.Sprintf("%d events are not in its file", r.Dropped))
	}
	if r.Open > 0 {
		notes = append(notes, fmt.Sprintf("%d phases had not ended", r.Open))
	}
	return notes
}
