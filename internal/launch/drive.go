package launch

import (
	"errors"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/gorovod/gorovod/internal/base/commandline"
	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/launch/audience"
	"github.com/gorovod/gorovod/internal/launch/drive"
	"github.com/gorovod/gorovod/internal/launch/driver"
	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/flags"
	"github.com/gorovod/gorovod/internal/launch/job"
	"github.com/gorovod/gorovod/internal/launch/meeting"
	"github.com/gorovod/gorovod/internal/launch/output"
	"github.com/gorovod/gorovod/internal/launch/spawn"
	"github.com/gorovod/gorovod/internal/observe/overview"
)

// driveCommand is for programs that start the processes of an elastic job themselves. The list of commands does not
// show it.
var driveCommand = &commandline.Command{
	Name:  "drive",
	Usage: "[options]",
	About: "Drive an elastic job whose processes another program starts",
	Detail: `That program starts this one, and exchanges lines of JSON with it: requests on its stdin, events on its
stdout. The page "Writing a launcher" of the documentation lists them. When stdin ends, the job ends.`,
	Grammar: func() any { return &driveFlags{} },
}

// driveFlags holds the options of gorovod drive, which mean what those of horovodrun mean.
type driveFlags struct {
	MetricsPort string `placeholder:"[HOST:]PORT" help:"Show what the processes do at http://127.0.0.1:PORT/metrics, for Prometheus. Default: $$GOROVOD_METRICS, or nowhere."`
	Dashboard   string `placeholder:"[=[HOST:]PORT]" help:"Show the job on a page. Alone: at a free port of this host. Default: $$GOROVOD_DASHBOARD, or nowhere."`
}

// serveDrive is the subcommand. It blocks until the job is over.
func serveDrive(name string, args []string, stdin io.Reader, stdout io.Writer) (code int, err error) {
	o := &driveFlags{}
	args = slices.Clone(args)
	if i := slices.Index(args, flags.DashboardOption); i >= 0 {
		args[i] += "=" + flags.AnyPort
	}
	help, err := driveCommand.Parse(name, o, args)
	switch {
	case help != "":
		return show(name, help), nil
	case err != nil:
		return ending.UsageCode, err
	}
	var watch drive.Watch
	f := &flags.Flags{MetricsPort: o.MetricsPort, Dashboard: o.Dashboard}
	if watch.Certificates, err = flags.CheckedCertificates(f.Lookup); err != nil {
		return ending.UsageCode, err
	}
	var warnings safeLines
	a, err := audience.Open(f, "gorovod", 0, func(text string) { watch.Greeting = append(watch.Greeting, text) },
		warnings.add)
	if err != nil {
		return ending.UsageCode, err
	}
	defer a.Close()
	watch.Greeting = append(watch.Greeting, misspeltVariables(os.Environ())...)
	reported := false
	watch.Said, watch.Failed, watch.Serves = a.Note, a.Fail, a.Follow
	watch.Over = func(o driver.Outcome) (farewell []string) {
		code, text := job.Verdict(o)
		a.End(code, output.Report{Text: text}, nil)
		reported = true
		farewell = warnings.all()
		if text := a.Summary(); text != "" && code == 0 {
			farewell = append(farewell, text)
		}
		return farewell
	}
	var near *meeting.Point
	err = drive.Run(stdin, stdout, func(c drive.Config) (n drive.Network, err error) {
		if near, err = meetFor(c); err != nil {
			return n, err
		}
		return driveNetwork(c, near, func(peers []string) {
			a.Overview.Identify(overview.Identity{Peers: peers})
		}), nil
	}, watch)
	if near != nil {
		near.Close()
	}
	var wrong *drive.RequestError
	switch {
	case errors.As(err, &wrong):
		code = ending.UsageCode
	case err != nil:
		code = 1
	}
	if err != nil && !reported {
		a.Fail(err.Error())
		a.End(code, output.Report{}, err)
	}
	return code, err
}

// safeLines are lines that any goroutine may add.
type safeLines struct {
	mu    sync.Mutex
	lines []string
}

func (s *safeLines) add(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
}

func (s *safeLines) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}

// driveNetwork returns how the workers reach the driver (at near) and each epoch's rendezvous (at a meeting point like
// near). met is called with the addresses of each rendezvous.
func driveNetwork(c drive.Config, near *meeting.Point, met func(peers []string)) drive.Network {
	interfaces := c.Interfaces
	if near.Local {
		interfaces = []string{"lo"}
	}
	return drive.Network{
		Listeners: near.Listeners,
		Meet: func() ([]net.Listener, func(string) []string, error) {
			m, err := meetFor(c)
			if err != nil {
				return nil, nil, err
			}
			list := placeTexts(m.SeenFrom(c.Address))
			met(list)
			return m.Listeners, func(string) []string { return list }, nil
		},
		Environment: func(a membership.Start) map[string]string {
			set := job.SlotOf(a).Variables()
			maps.Copy(set, job.ElasticVariables(nil, a, near.SeenFrom(c.Address), interfaces))
			delete(set, spawn.SecretVariable) // the starter has it, and hands it to workers in private
			return set
		},
	}
}

// meetFor listens where the workers of a job can reach it: on loopback only, if that is where this host is known.
func meetFor(c drive.Config) (*meeting.Point, error) {
	if a, err := netip.ParseAddr(c.Address); err == nil && a.IsLoopback() && len(c.Interfaces) == 0 {
		return meeting.Here()
	}
	return meeting.Anywhere(c.Interfaces)
}

func placeTexts(addrs []netip.AddrPort) (list []string) {
	for _, a := range addrs {
		list = append(list, a.String())
	}
	return list
}
