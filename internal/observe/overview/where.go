package overview

import (
	"fmt"
	"slices"
	"time"

	"github.com/gorovod/gorovod/internal/base/printable"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// Where is where the program of a late rank is. Names of functions and files can be secrets, so only readers who may
// see a rank's output see it.
type Where struct {
	Rank   int      `json:"rank"`
	Text   string   `json:"text"`   // in a sentence
	Frames []string `json:"frames"` // the outermost first; some in between may be missing
}

// stackAt is a stack that a rank has told.
type stackAt struct {
	at     time.Time
	frames []feed.Frame
}

// recentStacks is the number of stacks, a second apart, that show where a rank is. mostInspected is the number of ranks
// that are asked for stacks.
const (
	recentStacks  = 4
	mostInspected = 4
)

// SetInspect sets the function that asks ranks for their stacks, from their next figures on. f must not block.
func (j *Job) SetInspect(f func(ranks []int)) {
	j.mu.Lock()
	j.inspect = f
	j.mu.Unlock()
}

// stand notes where the rank's program is. Without a stack it forgets all stacks, because nobody has waited for the
// rank.
func (r *rank) stand(now time.Time, frames []feed.Frame) {
	if len(frames) == 0 {
		r.stacks = nil
		return
	}
	var before []feed.Frame
	if n := len(r.stacks); n > 0 {
		before = r.stacks[n-1].frames
	}
	if common(before, frames) < max(len(before), len(frames)) {
		r.moved = now
	}
	r.stacks = append(r.stacks, stackAt{now, frames})
	r.stacks = r.stacks[max(0, len(r.stacks)-recentStacks):]
}

// common returns the number of functions, from the outermost on, that are the same. Their lines may differ.
func common(a, b []feed.Frame) int {
	n := 0
	for n < min(len(a), len(b)) && a[n].File == b[n].File && a[n].Func == b[n].Func {
		n++
	}
	return n
}

// where says where the program is of the first of these ranks that has told it, or returns nil if none has.
func (j *Job) where(now time.Time, ranks []int) *Where {
	for _, i := range ranks {
		r := &j.ranks[i]
		if len(r.stacks) == 0 {
			continue
		}
		last := r.stacks[len(r.stacks)-1]
		if now.Sub(last.at) >= silence {
			continue
		}
		w := &Where{Rank: i, Text: r.stay(last)}
		for _, f := range last.frames {
			w.Frames = append(w.Frames, function(f))
		}
		return w
	}
	return nil
}

// stay says where the rank is, and since when if it has been there.
func (r *rank) stay(last stackAt) string {
	in, same := last.frames[len(last.frames)-1], len(last.frames)
	for _, s := range r.stacks {
		same = min(same, common(s.frames, last.frames))
	}
	switch {
	case len(r.stacks) == 1:
		return fmt.Sprintf("its program is in %s.", function(in))
	case !r.moved.After(r.stacks[0].at):
		return fmt.Sprintf("its program has been in %s for %s.", function(in), seconds(last.at.Sub(r.moved)))
	case same == 0 || same == len(last.frames):
		return fmt.Sprintf("its program is in %s now.", function(in))
	}
	return fmt.Sprintf("its program is in %s now, and has been in %s all the time.", function(in),
		function(last.frames[same-1]))
}

// function is a function for people.
func function(f feed.Frame) string {
	return printable.Text(fmt.Sprintf("%s (%s:%d)", f.Func, f.File, f.Line))
}

// blames notes the ranks that the sentence blames, so that the job asks these where they are.
func (j *Job) blames(ranks ...int) { j.blamed = slices.Clone(ranks[:min(len(ranks), mostInspected)]) }
