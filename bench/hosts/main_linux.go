// Command hosts measures allreduce between hosts that are namespaces of this machine: this engine from Python and from
// Go, PyTorch's gloo, and Open MPI over TCP, by turns.
//
//	make bench-hosts                                       # the default cells, at most 10 minutes
//	make bench-hosts HOSTS=4 RANKS=1 RATE=1gbit DELAY=0    # one cell
//	make bench-hosts HOSTS=2,4,8 RANKS=1,2 RATE=1gbit,10gbit DELAY=0,200us,2ms   # all 36
//	make bench-hosts HOSTS=8 PEERS=go,gloo WORKS=4,64KiB,resnet50 ROUNDS=3       # some contenders and works
//
// A cell is a number of hosts, of ranks on each, a rate and a delay. For each cell it makes a network namespace, a host
// name, /dev/shm, /sys and /etc/hosts for each host, and a namespace for their switch (package network). It touches no
// other namespace, and writes no files but those that it is told to write and a folder in $TMPDIR. After its end,
// also by Ctrl-C or SIGKILL, none of its processes and namespaces is left; after a SIGKILL that folder may be. It needs
// root, in a container CAP_SYS_ADMIN and CAP_NET_ADMIN.
//
// docs/performance.md has the figures and says how to read them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/tools/bench"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

// interrupted is the cause of a run's end by a signal.
type interrupted struct{ signal syscall.Signal }

func (i *interrupted) Error() string { return fmt.Sprintf("interrupted (%v)", i.signal) }

func run(args []string) int {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hosts:", err)
		return 2
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() { cancel(&interrupted{(<-signals).(syscall.Signal)}) }()
	if err := o.measure(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "hosts:", err)
		var i *interrupted
		if errors.As(err, &i) {
			return 128 + int(i.signal)
		}
		return 1
	}
	return 0
}

// options are the command line.
type options struct {
	cells   []cell
	peers   []string
	python  string
	gorovod string
	base    string
	mpicc   string
	rounds  int
	turn    time.Duration
	time    time.Duration // for all cells
	works   []bench.Work
	json    string
	page    string
	plot    string
	verbose bool
}

// cell is one network, and how many ranks each of its hosts has.
type cell struct {
	Hosts int           `json:"hosts"`
	Ranks int           `json:"ranks_per_host"`
	Rate  int64         `json:"rate"`  // bits per second
	Delay time.Duration `json:"delay"` // one way, in nanoseconds
}

func (c cell) String() string {
	ranks := "1 rank"
	if c.Ranks > 1 {
		ranks = fmt.Sprintf("%d ranks", c.Ranks)
	}
	text := fmt.Sprintf("%d hosts of %s, %s", c.Hosts, ranks, rateText(c.Rate))
	if c.Delay > 0 {
		text += fmt.Sprintf(", %v one way", c.Delay)
	}
	return text
}

func rateText(rate int64) string {
	switch {
	case rate == 0:
		return "no limit"
	case rate%1e9 == 0:
		return fmt.Sprintf("%d Gbit/s", rate/1e9)
	}
	return fmt.Sprintf("%d Mbit/s", rate/1e6)
}

// defaults are the cells of a run without options.
var defaults = []cell{{4, 1, 1e9, 0}, {4, 1, 10e9, 0}, {4, 1, 1e9, 200 * time.Microsecond},
	{4, 1, 1e9, 2 * time.Millisecond}, {8, 1, 1e9, 0}}

// allPeers are the contenders, in the order of the tables.
var allPeers = []string{peerPython, peerAgain, peerBase, peerGo, peerBaseGo, peerGloo, peerOpenMPI}

const (
	peerPython  = "python"
	peerAgain   = "again" // python a second time, A/A
	peerBase    = "base"  // python of -base
	peerGo      = "go"
	peerBaseGo  = "base-go" // go of -base
	peerGloo    = "gloo"
	peerOpenMPI = "openmpi"
)

func parse(args []string) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("hosts", flag.ContinueOnError)
	hosts := f.String("hosts", "", "numbers of hosts, such as 2,4,8")
	ranks := f.String("ranks", "", "numbers of ranks on each host")
	rates := f.String("rate", "", "rates of a host's link, such as 1gbit,10gbit; 0 for no limit")
	delays := f.String("delay", "", "delays from a host to another, such as 0,200us,2ms")
	peers := f.String("peers", "", "contenders, of python, again (python once more, A/A), base, go, base-go, gloo, "+
		"openmpi; base and base-go need -base. All by default")
	f.StringVar(&o.base, "base", "", "a `folder`: another checkout, built, which takes turns as base and base-go")
	f.StringVar(&o.python, "python", "python3", "a `file`: a Python with torch and this package")
	f.StringVar(&o.gorovod, "gorovod", "build/gorovod", "a `file`: gorovod, with horovodrun beside it")
	f.StringVar(&o.mpicc, "mpicc", "mpicc", "a `file`: Open MPI's compiler, with mpirun beside it")
	f.IntVar(&o.rounds, "rounds", 5, "turns of each at each work, after one that does not count")
	f.DurationVar(&o.turn, "turn", 120*time.Millisecond, "about how long a turn takes, if several repetitions fit")
	f.DurationVar(&o.time, "time", 10*time.Minute, "about how long all cells may take; later rounds are left out then")
	named := f.String("works", "", "what is measured: sizes such as 4,64KiB,16MiB, barrier (4 B after one), "+
		strings.Join(listNames, ", ")+". The default is twelve works up to -max-size")
	most := f.Int("max-size", 64, "the largest tensor without -works, in `MiB`")
	f.StringVar(&o.json, "json", "", "write all figures to this `file`")
	f.StringVar(&o.page, "page", "", "write the tables into this `file`, between its lines <!-- bench-hosts: …")
	f.StringVar(&o.plot, "plot", "", "draw the times of the first two cells into this `file`, .svg or .png")
	f.BoolVar(&o.verbose, "v", false, "show what the jobs print")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	o.peers = split(*peers)
	based := func(p string) bool { return p == peerBase || p == peerBaseGo }
	for _, p := range o.peers {
		switch {
		case !slices.Contains(allPeers, p):
			return nil, fmt.Errorf("-peers: %q is none of %s", p, strings.Join(allPeers, ", "))
		case based(p) && o.base == "":
			return nil, fmt.Errorf("-peers %s: -base says which checkout that is", p)
		}
	}
	if len(o.peers) == 0 {
		o.peers = slices.DeleteFunc(slices.Clone(allPeers), func(p string) bool { return based(p) && o.base == "" })
	}
	if o.rounds < 1 || *most < 1 {
		return nil, errors.New("-rounds and -max-size need at least 1")
	}
	var err error
	if o.works, err = works(split(*named), *most<<20); err != nil {
		return nil, err
	}
	if o.plot != "" && !slices.ContainsFunc(o.works, func(w bench.Work) bool { return !w.List }) {
		return nil, errors.New("-plot draws the times of single tensors: -works has none")
	}
	o.cells, err = cells(*hosts, *ranks, *rates, *delays)
	return o, err
}

// cells are all combinations of what is given. What is not given is as in the first default cell; without anything
// they are the default cells.
func cells(hosts, ranks, rates, delays string) (all []cell, err error) {
	if hosts+ranks+rates+delays == "" {
		return defaults, nil
	}
	one := defaults[0]
	eachHosts, err := numbers("-hosts", hosts, one.Hosts, 2, 64)
	if err != nil {
		return nil, err
	}
	eachRanks, err := numbers("-ranks", ranks, one.Ranks, 1, 64)
	if err != nil {
		return nil, err
	}
	eachRate := []int64{one.Rate}
	for i, word := range split(rates) {
		if i == 0 {
			eachRate = nil
		}
		rate, err := parseRate(word)
		if err != nil {
			return nil, err
		}
		eachRate = append(eachRate, rate)
	}
	eachDelay := []time.Duration{one.Delay}
	for i, word := range split(delays) {
		if i == 0 {
			eachDelay = nil
		}
		delay, err := time.ParseDuration(word)
		if err != nil || delay < 0 || delay > time.Second {
			return nil, fmt.Errorf("-delay %s: a time from 0 to 1s is needed, such as 200us", word)
		}
		eachDelay = append(eachDelay, delay)
	}
	for _, h := range eachHosts {
		for _, r := range eachRanks {
			for _, rate := range eachRate {
				for _, d := range eachDelay {
					all = append(all, cell{h, r, rate, d})
				}
			}
		}
	}
	return all, nil
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func numbers(option, list string, otherwise, least, most int) ([]int, error) {
	if list == "" {
		return []int{otherwise}, nil
	}
	var all []int
	for _, word := range split(list) {
		n, err := strconv.Atoi(word)
		if err != nil || n < least || n > most {
			return nil, fmt.Errorf("%s %s: a number from %d to %d is needed", option, word, least, most)
		}
		all = append(all, n)
	}
	return all, nil
}

// parseRate reads bits per second as tc does: 100mbit, 10gbit; 0 is no limit.
func parseRate(word string) (int64, error) {
	unit := map[string]float64{"mbit": 1e6, "gbit": 1e9}
	for name, factor := range unit {
		if digits, ok := strings.CutSuffix(word, name); ok {
			if n, err := strconv.ParseFloat(digits, 64); err == nil && n > 0 && n*factor >= 1e6 && n*factor <= 1e12 {
				return int64(n * factor), nil
			}
		}
	}
	if word == "0" {
		return 0, nil
	}
	return 0, fmt.Errorf("-rate %s: a rate such as 100mbit or 10gbit is needed, or 0 for no limit", word)
}
