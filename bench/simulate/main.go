// Command simulate counts what it costs many ranks on many hosts to agree on a
// training step: frames between the hosts' leaders, bytes on a leader's link, and
// the coordinator's work, with and without the response cache. All ranks are in
// this process, and use the engine's own boards, caches and coordinator.
//
//	go run ./bench/simulate [-ranks 4096] [-plot docs/lab/simulation.svg]
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	ranks := flag.Int("ranks", 4096, "the most ranks to simulate, at least 16; larger shapes of the table are left out")
	file := flag.String("plot", "", "draw the figures into this SVG file, too")
	flag.Parse()
	if err := check(*ranks, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(2)
	}
	rows, err := table(*ranks)
	if err == nil && *file != "" {
		err = picture(rows, *file)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(1)
	}
}

// check refuses a command line that would simulate nothing, or something else than the user has asked for.
func check(ranks int, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", args[0])
	}
	if least := shapes[0].hosts * shapes[0].perHost; ranks < least {
		return fmt.Errorf("-ranks %d: the smallest shape has %d ranks", ranks, least)
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
