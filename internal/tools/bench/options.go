package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/base/commandline"
	"github.com/gorovod/gorovod/internal/tools/chart"
)

// The contenders, in the order of the tables.
const (
	PeerGo      = "go"      // this engine through package hvd
	peerPython  = "python"  // this engine through horovod.torch
	peerGloo    = "gloo"    // torch.distributed
	peerOpenMPI = "openmpi" // a C program
	peerHorovod = "horovod" // upstream's; one contender for each controller of it
)

// label is a contender's name for people. Contenders of upstream's Horovod have its controller in their name.
func label(name string) string {
	switch name {
	case PeerGo:
		return "gorovod (Go)"
	case peerPython:
		return "gorovod (Python)"
	case peerGloo:
		return "torch gloo"
	case peerOpenMPI:
		return "Open MPI"
	}
	return name
}

// labels is label for a list such as "python, gloo".
func labels(names string) string {
	all := strings.Split(names, ", ")
	for i := range all {
		all[i] = label(all[i])
	}
	return strings.Join(all, ", ")
}

var allPeers = []string{PeerGo, peerPython, peerGloo, peerOpenMPI, peerHorovod}

// options are the options of gorovod bench.
type options struct {
	NumProc int      `name:"num-proc" short:"n" onedash:"np" aliases:"np" default:"2" placeholder:"N" help:"Number of ranks. Default: 2."`
	Quick   bool     `help:"Measure fewer sizes, and set the default of --time to 20. Default: all sizes."`
	Time    *float64 `placeholder:"SECONDS" help:"Seconds that the run may take in all; at least a quarter of them is for measuring. Default: 90, counted from when all jobs have started."`
	MaxSize int      `name:"max-size" default:"256" placeholder:"MIB" help:"Size of the largest tensor, in MiB. Default: 256."`
	BERT    bool     `name:"bert" help:"Measure the gradients of BERT-large, too. Each rank of each contender needs 1.3 GB for them. Default: off."`
	Peers   []string `placeholder:"NAME,..." words:"go,python,gloo,openmpi,horovod" help:"What to measure: go, python, gloo, openmpi, horovod. Default: all that are found."`
	Python  string   `env:"PYTHON" placeholder:"FILE" help:"A Python with torch, for the peers python and gloo. Default: $$PYTHON, or python3."`
	Horovod string   `placeholder:"FILE" help:"A Python with Horovod itself and torch, for the peer horovod. Default: leave that peer out."`
	Mpicc   string   `default:"mpicc" placeholder:"FILE" help:"Open MPI's compiler; its mpirun must be beside it. Default: mpicc."`
	JSON    string   `name:"json" placeholder:"FILE" help:"Write all figures to FILE, as JSON. Default: no file."`
	Plot    string   `placeholder:"FILE" help:"Draw time and bandwidth over the size into FILE, which ends in .svg or .png. Default: no picture."`
	Summary string   `placeholder:"FILE" help:"Draw time over the size, and the gradients of ResNet-50, into FILE, which ends in .svg or .png. Default: no picture."`
	Open    bool     `help:"Show the picture when it is drawn, by xdg-open or open. Default: off; without --plot it is a file of the folder for temporary files."`
	Verbose bool     `short:"v" help:"Show what the jobs print. Default: off."`

	tiny bool // for tests: do the least work
}

// Command is gorovod bench.
var Command = &commandline.Command{
	Name:  "bench",
	Usage: "[options]",
	About: "Measure this machine, this engine and its peers",
	Detail: "The machine's limits, the allreduce of this engine (float32, sum, in place) and that of its peers take " +
		"turns in one run.",
	Examples: []commandline.Example{
		{Line: "gorovod bench --quick", About: "Some sizes on 2 ranks, in a little more than 20 seconds."},
		{Line: "gorovod bench --plot bench.svg", About: "All sizes, in two minutes, and a picture."},
		{Line: "gorovod bench -n 4 --peers go,gloo --json bench.json", About: "This engine beside gloo on 4 ranks; " +
			"all figures go into a file."},
	},
	Grammar: func() any { return &options{} },
}

// parse parses and checks the arguments. help is the text to print if the user asked for help.
func parse(name string, args []string) (o *options, help string, err error) {
	o = &options{}
	if help, err = Command.Parse(name, o, args); err != nil || help != "" {
		return nil, help, err
	}
	return o, "", o.check()
}

func (o *options) check() error {
	if o.Open && o.Plot == "" {
		o.Plot = filepath.Join(os.TempDir(), fmt.Sprintf("gorovod-bench-%d.svg", os.Getuid()))
	}
	switch {
	case o.NumProc < 1 || o.NumProc > 1024:
		return fmt.Errorf("--num-proc %d: a number from 1 to 1024 is needed", o.NumProc)
	case o.Time != nil && !(*o.Time >= 1 && *o.Time <= 86400):
		return fmt.Errorf("--time %v: a number of seconds from 1 to 86400 is needed", *o.Time)
	case o.MaxSize < 1 || o.MaxSize > 4096:
		return fmt.Errorf("--max-size %d: a number of MiB from 1 to 4096 is needed", o.MaxSize)
	}
	for option, file := range map[string]string{"--plot": o.Plot, "--summary": o.Summary} {
		if file == "" {
			continue
		}
		if err := chart.Check(file); err != nil {
			return fmt.Errorf("%s %w", option, err)
		}
	}
	for _, p := range o.Peers {
		if !slices.Contains(allPeers, p) {
			return fmt.Errorf("--peers: %q is none of %s", p, strings.Join(allPeers, ", "))
		}
	}
	if len(o.Peers) > 0 && !slices.Contains(o.Peers, PeerGo) {
		return errors.New("--peers: go must be among them, because its ranks measure the machine, too")
	}
	if o.wants(peerHorovod) && o.Horovod == "" && len(o.Peers) > 0 {
		return errors.New("--peers horovod: say with --horovod which Python has it")
	}
	return nil
}

// wants reports whether a contender is measured if it is found.
func (o *options) wants(peer string) bool { return len(o.Peers) == 0 || slices.Contains(o.Peers, peer) }

// insists reports whether a contender that is not found is an error.
func (o *options) insists(peer string) bool { return slices.Contains(o.Peers, peer) }

// deadline is when measuring ends, in a run that began at begin and whose jobs had started at started. --time is for
// everything, but at least a quarter of it is for measuring, so that there are results to show.
func (o *options) deadline(begin, started time.Time) time.Time {
	switch {
	case o.Time != nil:
		all := time.Duration(*o.Time * float64(time.Second))
		if least := started.Add(all / 4); least.After(begin.Add(all)) {
			return least
		}
		return begin.Add(all)
	case o.Quick:
		return started.Add(20 * time.Second)
	}
	return started.Add(90 * time.Second)
}
