package job

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/base/logging"
	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/flags"
	"github.com/gorovod/gorovod/internal/launch/nodes"
	"github.com/gorovod/gorovod/internal/launch/output"
	"github.com/gorovod/gorovod/internal/launch/placement"
	"github.com/gorovod/gorovod/internal/launch/remote"
	"github.com/gorovod/gorovod/internal/launch/spawn"
)

// defaultNodesTimeout is how long the nodes wait for one another: a cluster may take minutes to find room for a pod.
const defaultNodesTimeout = 10 * time.Minute

// LaunchNodes is this node's part of a job of several nodes, each with a launcher.
func LaunchNodes(f *flags.Flags, name string, input []byte, open Opener) (code int, why output.Report, err error) {
	self, err := f.Self()
	if err != nil {
		return ending.UsageCode, why, err
	}
	path, code, err := spawn.FindCommand(f.Command[0], os.Getenv("PATH"))
	if err != nil {
		return code, why, err
	}
	if err := checkSecret(f.Place.Count, os.Getenv); err != nil {
		return ending.UsageCode, why, err
	}
	if f.Place.Elastic {
		return launchFleet(f, name, path, input, self, open)
	}
	if f.Place.Count == 1 {
		return launchAt(f, name, path, input, []nodes.Node{self}, open)
	}
	key, err := nodesKey(os.Getenv)
	if err != nil {
		return ending.UsageCode, why, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	limit := defaultNodesTimeout
	if f.StartTimeout != nil {
		limit = f.ConnectTimeout()
	}
	waiting, cancel := context.WithTimeoutCause(ctx, limit, context.DeadlineExceeded)
	defer cancel()
	say := func(text string) { logging.Warn(name, text) }
	early := sync.OnceFunc(spawn.WithoutRanks(say))
	defer early()
	if f.Place.Rank > 0 {
		conn, err := nodes.Join(waiting, *f.Place, self.Host, self.Slots, key, say)
		if err != nil {
			return 1, why, interrupted(ctx, err)
		}
		stop()
		early()
		code, err := serveNode(conn, say)
		return code, why, err
	}
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", f.Place.Port))
	if err != nil {
		return 1, why, fmt.Errorf("this is node 0, at which the others meet: %w: --master-port says another port", err)
	}
	g := nodes.Gather(l, *f.Place, self, key, replaceNode, say)
	defer g.Close()
	all, err := g.Wait(waiting)
	if err != nil {
		return 1, why, interrupted(ctx, err)
	}
	g.Close()
	stop()
	early()
	return launchAt(f, name, path, input, all, open)
}

// interrupted returns err; if a signal has ended ctx, it returns an error that says so.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted before all nodes had met")
	}
	return err
}

// nodesKey is the secret by which the launchers of a job recognise one another.
func nodesKey(getenv func(string) string) ([]byte, error) {
	if file := getenv(flags.SecretFileVariable); file != "" {
		key, err := config.ReadKey(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flags.SecretFileVariable, err)
		}
		return key, nil
	}
	if text := getenv(spawn.SecretVariable); text != "" {
		key, err := config.ParseKey(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", spawn.SecretVariable, err)
		}
		return key, nil
	}
	return nil, fmt.Errorf("the nodes share no secret by which to know one another: set %s, on all nodes, to a file "+
		"with the same one. `openssl rand -hex 32` makes it", flags.SecretFileVariable)
}

// checkSecret refuses a secret that cannot be one. A single node needs none, but must not hide a mistake until there
// are more.
func checkSecret(count int, getenv func(string) string) error {
	if count == 1 && getenv(flags.SecretFileVariable) == "" && getenv(spawn.SecretVariable) == "" {
		return nil
	}
	_, err := nodesKey(getenv)
	return err
}

// launchAt runs the job on all nodes, from node 0.
func launchAt(f *flags.Flags, name, path string, input []byte, all []nodes.Node, open Opener) (code int,
	why output.Report, err error) {
	names := nodes.Names(all)
	lines := map[string]*remote.Line{}
	var hosts []placement.Host
	total := 0
	for i, n := range all {
		hosts = append(hosts, placement.Host{Name: names[i], Slots: n.Slots})
		total += n.Slots
		if n.Conn != nil {
			lines[names[i]] = remote.NodeLine(n, names[i])
		}
	}
	defer func() {
		for _, l := range lines {
			l.End()
		}
	}()
	np := f.NumProc
	if np == 0 {
		np = total
	}
	slots, err := placement.Assign(hosts, np)
	if err != nil {
		return ending.UsageCode, why, err
	}
	if last := slots[len(slots)-1].Host; last != names[len(names)-1] {
		return ending.UsageCode, why,
			fmt.Errorf("-np %d leaves nodes without a process: %s would be the last of %d nodes "+
				"with one. Start fewer nodes, or give --nproc-per-node", np, last, len(all))
	}
	if err := spawn.CheckRemotes(len(lines), len(slots)); err != nil {
		return ending.UsageCode, why, err
	}
	if err := spawn.CheckLimits(slots[0].LocalSize); err != nil {
		return ending.UsageCode, why, err
	}
	for _, note := range f.Notes(len(all) > 1) {
		logging.Warn(name, note)
	}
	j := newJob(f, name, path, slots, input)
	j.Local = func(host string) bool { return host == names[0] }
	j.Apart, j.Settings = true, f.Settings(os.Environ())
	j.Remote.Timeout = flags.DefaultStartTimeout
	j.Remote.Open = func(host string) (*remote.Line, error) { return lines[host], nil }
	return runJob(j, open)
}

// replaceNode ends the connection of a node in whose place another one has come.
func replaceNode(conn *auth.Sealed) { remote.TurnAway(conn, replacedText) }

// serveNode obeys node 0 until the job is over. It returns the job's exit code.
func serveNode(conn *auth.Sealed, say func(text string)) (code int, err error) {
	a, code, err := remote.ServeNode(conn, nil, ending.New(spawn.LedTerms), say)
	switch {
	case err != nil:
		return 1, err
	case a.Over != nil:
		return *a.Over, nil
	case a.TurnedAway != "":
		return 1, errors.New(a.TurnedAway)
	case !a.Took() && a.Gone || code == ending.UsageCode:
		return 1, errors.New("node 0 has given up before the job began; its own output says why")
	case a.Gone:
		return 1, errors.New("node 0 is gone, and has not said how the job ended")
	}
	return code, nil
}
