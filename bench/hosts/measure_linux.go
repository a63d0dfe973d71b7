package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gorovod/gorovod/bench/hosts/network"
	"github.com/gorovod/gorovod/internal/base/load"
	"github.com/gorovod/gorovod/internal/tools/bench"
)

// result is what one cell has given.
type result struct {
	Cell cell `json:"cell"`
	// OneWay is half of the median round trip of a TCP message of 4 bytes between the first two hosts, in seconds,
	// while nothing else runs on them. Both ends sleep while they wait.
	OneWay   float64         `json:"one_way"`
	Load     float64         `json:"load_before"` // the load average of the last minute
	Seconds  float64         `json:"seconds"`
	Peers    []string        `json:"peers"`
	Outcomes []bench.Outcome `json:"outcomes"`
}

// works are what all contenders do in each cell, the cheap ones first: those that names lists, in its order, or all
// default ones that are no larger than most bytes.
func works(names []string, most int) (all []bench.Work, err error) {
	for _, name := range names {
		w, err := parseWork(name)
		if err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	if len(names) > 0 {
		return all, nil
	}
	for _, w := range defaultWorks() {
		if w.Bytes() <= most || w.List && w.Bytes() <= 2*most {
			all = append(all, w)
		}
	}
	return all, nil
}

func defaultWorks() (all []bench.Work) {
	for _, bytes := range []int{4, -4, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20, 4 << 20, 64 << 20} {
		if bytes < 0 {
			all = append(all, afterBarrier)
		} else {
			all = append(all, oneTensor(bytes))
		}
	}
	for _, name := range listNames {
		all = append(all, lists[name])
	}
	return all
}

// oneTensor is the work of one tensor, again and again.
func oneTensor(bytes int) bench.Work {
	w := bench.Work{Name: bench.Size(bytes), Sizes: []int{bytes / 4}, Inner: min(max(1, 512<<10/max(bytes, 1)), 16)}
	switch {
	case bytes == 4:
		w.Name, w.Inner = "4 B, in a loop", 32
	case bytes > 4<<10:
		w.Inner = min(w.Inner, 8)
	}
	return w
}

var afterBarrier = bench.Work{Name: "4 B after a barrier", Sizes: []int{1}, Inner: 1}

// lists are the works of many tensors, by their names on the command line.
var lists = map[string]bench.Work{
	"200x1KiB": {Name: "200 tensors of 1 KiB", Sizes: bench.Many(200, 256), Inner: 1, List: true},
	"1000x4B":  {Name: "1,000 tensors of 4 B", Sizes: bench.Many(1000, 1), Inner: 1, List: true},
	"resnet50": {Name: "ResNet-50's gradients", Sizes: bench.ResNet50(), Inner: 1, List: true},
}

var listNames = []string{"200x1KiB", "1000x4B", "resnet50"}

// parseWork reads a work's name on the command line: a size such as 64KiB, barrier for 4 B after one, or a list.
func parseWork(name string) (bench.Work, error) {
	if w, ok := lists[name]; ok {
		return w, nil
	}
	if name == "barrier" {
		return afterBarrier, nil
	}
	unit := 1
	digits := strings.TrimSuffix(name, "B")
	for suffix, size := range map[string]int{"Ki": 1 << 10, "Mi": 1 << 20} {
		if d, ok := strings.CutSuffix(digits, suffix); ok && digits != name {
			digits, unit = d, size
		}
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > 1<<30/unit || n*unit%4 != 0 {
		return bench.Work{}, fmt.Errorf("-works: %q is neither a size, such as 4, 64KiB or 16MiB, of whole floats and "+
			"at most 1024MiB, nor one of barrier, %s", name, strings.Join(listNames, ", "))
	}
	return oneTensor(n * unit), nil
}

// bound is the least time that the cell's links allow: the bytes that the busiest host must send, and two delays, one
// for what a host knows to come to others and one for what they make of it.
func (c cell) bound(bytes int) (link, delays float64) {
	if c.Rate > 0 {
		link = 2 * float64(c.Hosts-1) / float64(c.Hosts) * 8 * float64(bytes) / float64(c.Rate)
	}
	return link, 2 * c.Delay.Seconds()
}

func (o *options) measure(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "bench-hosts-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	j, err := newJobs(ctx, o, dir)
	if err != nil {
		return err
	}
	report := &report{Started: time.Now().UTC().Truncate(time.Second), Gorovod: version(), Machine: machine(),
		Cores: load.Now().Cores}
	end := time.Now().Add(o.time)
	var failures []error
	for i, c := range o.cells {
		fmt.Fprintf(os.Stderr, "hosts: %v (cell %d of %d)\n", c, i+1, len(o.cells))
		r, err := o.one(ctx, j, c, time.Now().Add(time.Until(end)/time.Duration(len(o.cells)-i)))
		if err != nil {
			err = fmt.Errorf("%v: %w", c, err)
		}
		if r == nil {
			return err
		}
		failures = append(failures, err)
		report.Cells = append(report.Cells, *r)
		if err := report.cell(os.Stdout, r); err != nil {
			return err
		}
	}
	return errors.Join(append(failures, o.write(report))...)
}

// one measures one cell. It begins nothing after until. With an error there is a result if some contenders have failed,
// but not all.
func (o *options) one(ctx context.Context, j *jobs, c cell, until time.Time) (*result, error) {
	begin := time.Now()
	dir, err := os.MkdirTemp(j.dir, "cell")
	if err != nil {
		return nil, err
	}
	j.network, err = network.New(dir, c.Hosts, network.Link{Rate: c.Rate, Delay: c.Delay})
	if err != nil {
		return nil, err
	}
	defer j.network.Close()
	j.cell = c
	r := &result{Cell: c, Load: load.Now().Average, Peers: o.peers}
	if r.OneWay, err = j.network.OneWay(); err != nil {
		return nil, err
	}
	contest := &bench.Contest{Dir: dir, Ranks: c.Hosts * c.Ranks, Works: o.works, Rounds: o.rounds, LongRounds: 2,
		Turn: o.turn, Most: 8 * time.Second, Until: until, Tell: func(format string, args ...any) {
			fmt.Fprintf(os.Stderr, "hosts: "+format+", %.0f s\n", append(args, time.Since(begin).Seconds())...)
		}}
	if o.verbose {
		contest.Show = io.Writer(os.Stderr)
	}
	for _, p := range o.peers {
		contest.Entrants = append(contest.Entrants, j.entrant(p))
	}
	if r.Outcomes, err = contest.Run(ctx); r.Outcomes == nil {
		return nil, err
	}
	r.Seconds = time.Since(begin).Seconds()
	return r, err
}

func (o *options) write(r *report) error {
	if o.json != "" {
		text, err := json.MarshalIndent(r, "", " ")
		if err == nil {
			err = os.WriteFile(o.json, append(text, '\n'), 0o666)
		}
		if err != nil {
			return err
		}
	}
	if o.page != "" {
		if err := r.into(o.page); err != nil {
			return err
		}
	}
	if o.plot != "" {
		return r.draw(o.plot)
	}
	return nil
}
