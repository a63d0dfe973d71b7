package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"image/color"
	"os"
	"strings"

	"github.com/gorovod/gorovod/internal/tools/chart"
)

// readSeparate reads the JSON of another run, whose Horovod the pictures show beside this run's contenders. Horovod is
// measured in a run of its own because its background threads disturb the others. The ranks must be as many as in this
// run; the caption says what else may differ.
func readSeparate(file string, ranks int) (*Report, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &Report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s is no JSON of gorovod bench: %w", file, err)
	}
	switch {
	case r.Version != reportVersion:
		return nil, fmt.Errorf("%s has version %d of the report, and this program reads %d: measure again with --json",
			file, r.Version, reportVersion)
	case r.Ranks != ranks:
		return nil, fmt.Errorf("%s is of %d ranks, and this run of %d", file, r.Ranks, ranks)
	}
	for _, p := range r.Peers {
		if isHorovod(p.Name) && len(r.of(p.Name, TaskAllreduce)) > 0 {
			return r, nil
		}
	}
	return nil, errors.New(file + " has no figures of Horovod: measure them with --horovod and --json")
}

func isHorovod(peer string) bool { return strings.HasPrefix(peer, peerHorovod+"-") }

// of returns a contender's results for a task.
func (r *Report) of(peer, task string) (results []Result) {
	for _, x := range r.Results {
		if x.Peer == peer && x.Task == task {
			results = append(results, x)
		}
	}
	return results
}

// drawn is a contender as the pictures show it.
type drawn struct {
	run      *Report // that measured it
	peer     string
	name     string
	colour   color.RGBA
	separate bool // from another run: dashed lines, hollow bars
}

// drawn returns the contenders of this run, and then the Horovod of the separate run.
func (r *Report) drawn() (all []drawn) {
	next := func(run *Report, peer, name string) {
		all = append(all, drawn{run, peer, name, colours[len(all)%len(colours)], run != r})
	}
	for _, p := range r.Peers {
		next(r, p.Name, label(p.Name))
	}
	if r.separate != nil {
		for _, p := range r.separate.Peers {
			if isHorovod(p.Name) {
				next(r.separate, p.Name, p.Name+" (separate run)")
			}
		}
	}
	return all
}

// line returns an empty line for the contender.
func (d *drawn) line() chart.Line {
	return chart.Line{Name: d.name, Colour: d.colour, Dashed: d.separate}
}
