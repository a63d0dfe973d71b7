package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
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

// works are what all contenders do in each cell, the cheap ones first.
func works(most int) (all []bench.Work) {
	one := func(name string, bytes, inner int) {
		if bytes <= most {
			all = append(all, bench.Work{Name: name, Sizes: []int{bytes / 4}, Inner: inner})
		}
	}
	one("4 B, in a loop", 4, 32)
	one("4 B after a barrier", 4, 1)
	one("1 KiB", 1<<10, 16)
	one("4 KiB", 4<<10, 16)
	one("16 KiB", 16<<10, 8)
	one("64 KiB", 64<<10, 8)
	one("1 MiB", 1<<20, 1)
	one("4 MiB", 4<<20, 1)
	one("64 MiB", 64<<20, 1)
	lists := []bench.Work{{Name: "200 tensors of 1 KiB", Sizes: bench.Many(200, 256)},
		{Name: "1,000 tensors of 4 B", Sizes: bench.Many(1000, 1)},
		{Name: "ResNet-50's gradients", Sizes: bench.ResNet50()}}
	for _, w := range lists {
		if w.Inner, w.List = 1, true; w.Bytes() <= 2*most {
			all = append(all, w)
		}
	}
	return all
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
	contest := &bench.Contest{Dir: dir, Ranks: c.Hosts * c.Ranks, Works: works(o.most), Rounds: o.rounds, LongRounds: 2,
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
