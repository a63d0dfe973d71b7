package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"github.com/gorovod/gorovod/internal/tools/bench"
)

// allreduceShapes are the jobs whose allreduces are simulated, by the number of hosts.
var allreduceShapes = []shape{{hosts: 2, perHost: 8}, {hosts: 8, perHost: 8}, {hosts: 64, perHost: 8},
	{hosts: 512, perHost: 8}}

// launcherShapes are the jobs that are started. All ranks of one are in this process.
var launcherShapes = []shape{{hosts: 2, perHost: 8, tensors: 10}, {hosts: 4, perHost: 8, tensors: 10},
	{hosts: 8, perHost: 8, tensors: 10}, {hosts: 16, perHost: 8, tensors: 10}, {hosts: 32, perHost: 8, tensors: 10}}

// filesPerRank is about how many descriptors a rank of a started job holds.
const filesPerRank = 30

// curves are the figures over the number of ranks.
type curves struct {
	allreduces []allreduceCost
	launchers  []launcherRow
}

// allreduceCost is one row of the tables of allreduces.
type allreduceCost struct {
	shape
	what  string
	bytes int
	traffic
}

type launcherRow struct {
	shape
	launcherCost
}

const allreduceHead = "\n| ranks | hosts | tensor | what travels | messages | " +
	"the busiest host sends: messages, bytes | gets |\n|---|---|---|---|---|---|---|\n"

func (a *allreduceCost) print() {
	fmt.Printf("| %d | %d | %s | %s | %d | %d, %s | %d, %s |\n", a.hosts*a.perHost, a.hosts, bench.Size(a.bytes),
		a.what, a.messages, a.most.sent, amount(a.most.out), a.most.received, amount(a.most.in))
}

// smallBytes is a loss, or a flag that says whether to stop.
const smallBytes = 4

func (c *curves) printSmall(most int) error {
	fmt.Print(allreduceHead)
	for _, s := range allreduceShapes {
		if s.hosts*s.perHost > most {
			continue
		}
		t, err := simulateSmall(s, smallBytes)
		if err != nil {
			return err
		}
		c.add(allreduceCost{s, usualJourney, smallBytes, t})
		for what, ask := range []int{smallBytes, 0} {
			bytes, t, err := simulateAhead(s, ask)
			if err != nil {
				return err
			}
			c.add(allreduceCost{s, []string{oneJourney, mostOneJourney}[what], bytes, t})
		}
	}
	return nil
}

// The parts of the simulation that a row can belong to.
const (
	usualJourney   = "agreement, then data"
	oneJourney     = "data with the marks"
	mostOneJourney = "data with the marks, as much as may"
	largeData      = "data"
)

func (c *curves) add(a allreduceCost) {
	a.print()
	c.allreduces = append(c.allreduces, a)
}

// largeBytes are a small bucket of gradients, and one for which the algorithms for long tensors are chosen.
var largeBytes = []int{1 << 20, 16 << 20}

func (c *curves) printLarge(most int) error {
	fmt.Print(allreduceHead)
	for _, bytes := range largeBytes {
		for _, s := range allreduceShapes {
			if s.hosts*s.perHost > most {
				continue
			}
			t, err := simulateLarge(s, bytes)
			if err != nil {
				return err
			}
			c.add(allreduceCost{s, largeData, bytes, t})
		}
	}
	return nil
}

func (c *curves) printLauncher(most int) error {
	fmt.Print("\n| ranks | hosts | connections | start: in, out | first figures: in, out | later ones: in, out | " +
		"a wait: in, out |\n|---|---|---|---|---|---|---|\n")
	for _, s := range launcherShapes {
		if s.hosts*s.perHost > most {
			continue
		}
		var files syscall.Rlimit
		syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files)
		if need := filesPerRank * s.hosts * s.perHost; files.Cur < uint64(need) {
			fmt.Fprintf(os.Stderr, "simulate: %d ranks are not started: they need about %d open files, and %d are "+
				"allowed\n", s.hosts*s.perHost, need, files.Cur)
			continue
		}
		l, err := simulateLauncher(s, true)
		if err != nil {
			return err
		}
		fmt.Printf("| %d | %d | %d |", s.hosts*s.perHost, s.hosts, l.connections)
		for _, p := range []passedBytes{l.start, l.whole, l.news, l.wait} {
			fmt.Printf(" %s, %s |", amount(p.in), amount(p.out))
		}
		fmt.Println()
		c.launchers = append(c.launchers, launcherRow{s, l})
	}
	return nil
}

// amount writes a number of bytes with three figures and its unit.
func amount(bytes int) string {
	v, units := float64(bytes), []string{"B", "kB", "MB", "GB"}
	at := 0
	for ; v >= 999.5 && at < len(units)-1; at++ {
		v /= 1000
	}
	return strconv.FormatFloat(v, 'g', 3, 64) + " " + units[at]
}
