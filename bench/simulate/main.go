// Command simulate counts what jobs of thousands of ranks cost their busiest host. All ranks are in this process, and
// run the engine's own code; nothing is extrapolated.
//
//   - agreement: what it takes to agree on a training step, with and without the response cache: frames between the
//     hosts' leaders, bytes on a leader's link, and the coordinator's work.
//   - small: what one allreduce of a small tensor costs, agreement and data.
//   - large: what the data of one allreduce costs.
//   - launcher: connections and bytes at the launcher's rendezvous: for the start, for the figures of the metrics and
//     the page, and while all ranks wait for one. Every rank is a whole world of package world, over loopback, and
//     holds some 30 file descriptors.
//
// Run it as
//
//	go run ./bench/simulate [-only small,large] [-ranks 4096] [-plot docs/lab/simulation.svg] \
//		[-costs docs/lab/costs.svg]
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// options are the command line.
type options struct {
	only        []string
	ranks       int
	plot, costs string
}

// parts are what -only can name, in their order.
var parts = []string{"agreement", "small", "large", "launcher"}

func main() {
	var o options
	only := flag.String("only", strings.Join(parts, ","), "what to simulate")
	flag.IntVar(&o.ranks, "ranks", 4096, "the most ranks to simulate, at least 16; larger shapes are left out")
	flag.StringVar(&o.plot, "plot", "", "draw the figures of agreement into this SVG `file`, too")
	flag.StringVar(&o.costs, "costs", "", "draw the other figures into this SVG `file`, too")
	flag.Parse()
	o.only = strings.Split(*only, ",")
	if err := o.check(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(2)
	}
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(1)
	}
}

// check refuses a command line that would simulate nothing, or something else than the user has asked for.
func (o *options) check(args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", args[0])
	}
	for _, part := range o.only {
		if !slices.Contains(parts, part) {
			return fmt.Errorf("-only %s: it is none of %s", part, strings.Join(parts, ", "))
		}
	}
	if least := shapes[0].hosts * shapes[0].perHost; o.ranks < least {
		return fmt.Errorf("-ranks %d: the smallest shape has %d ranks", o.ranks, least)
	}
	return nil
}

func (o *options) run() error {
	if slices.Contains(o.only, "agreement") {
		rows, err := table(o.ranks)
		if err == nil && o.plot != "" {
			err = picture(rows, o.plot)
		}
		if err != nil {
			return err
		}
	}
	var c curves
	for _, t := range []struct {
		part  string
		print func(most int) error
	}{{"small", c.printSmall}, {"large", c.printLarge}, {"launcher", c.printLauncher}} {
		if slices.Contains(o.only, t.part) {
			if err := t.print(o.ranks); err != nil {
				return err
			}
		}
	}
	if o.costs != "" {
		return c.draw(o.costs)
	}
	return nil
}

// shapes vary one of hosts, ranks per host and tensors at a time.
var shapes = []shape{
	{hosts: 2, perHost: 8, tensors: 100}, {hosts: 8, perHost: 8, tensors: 100}, {hosts: 64, perHost: 8, tensors: 100},
	{hosts: 512, perHost: 8, tensors: 100},
	{hosts: 64, perHost: 1, tensors: 100}, {hosts: 64, perHost: 16, tensors: 100}, {hosts: 64, perHost: 64,
		tensors: 100},
	{hosts: 64, perHost: 8, tensors: 10}, {hosts: 64, perHost: 8, tensors: 1000},
}

// table simulates each shape, and prints its costs.
func table(ranks int) ([]row, error) {
	var rows []row
	fmt.Println("| ranks | hosts | tensors | cache | frames | up, bytes per link | down, bytes per link | " +
		"coordinator's steps | its time |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	for _, s := range shapes {
		if s.hosts*s.perHost > ranks {
			continue
		}
		for _, s.cached = range []bool{false, true} {
			c, err := simulate(s)
			if err != nil {
				return nil, err
			}
			rows = append(rows, row{s, c})
			fmt.Printf("| %d | %d | %d | %v | %d | %d | %d | %d | %v |\n", s.hosts*s.perHost, s.hosts,
				s.tensors, s.cached, c.frames, c.linkUp, c.linkDown, c.requests, c.work.Round(10*time.Microsecond))
		}
	}
	return rows, nil
}
