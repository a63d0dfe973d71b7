package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gorovod/gorovod/internal/base/auth"
	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/launch/nodes"
	"github.com/gorovod/gorovod/internal/launch/notice"
	"github.com/gorovod/gorovod/internal/launch/placement"
	"github.com/gorovod/gorovod/internal/launch/remote"
	"github.com/gorovod/gorovod/internal/launch/spawn"
)

// secretFileVariable names a file with the secret that the launchers of all nodes share.
const secretFileVariable = "GOROVOD_SECRET_FILE"

// defaultNodesTimeout is how long the nodes wait for one another: a cluster may take minutes to find room for a pod.
const defaultNodesTimeout = 10 * time.Minute

// nodesVariable is --nnodes as a variable.
const nodesVariable = "PET_NNODES"

// apart reports whether each node has a launcher. It is so if the user says so, or if the environment says so and the
// user names no other hosts. With -np the environment must ask for several nodes: if -np led away from them, each pod
// would run a job of its own. It warns if the user's hosts win over such an environment. given: -np was given.
func (f *flags) apart(given bool, getenv func(string) string) bool {
	if f.NNodes != "" || f.NodeRank != nil || f.MasterAddr != "" || f.MasterPort != nil || f.NprocPerNode != "" ||
		f.RdzvID != "" || f.LeaveOn != "" {
		return true
	}
	several := asksForNodes(getenv)
	why := f.elsewhere(given)
	switch {
	case why != "" && several:
		f.warnings = append(f.warnings, fmt.Sprintf("%s=%s is not used: %s", nodesVariable, getenv(nodesVariable), why))
		return false
	case why != "":
		return false
	case given:
		return several
	}
	return getenv(nodesVariable) != "" || getenv("JOB_COMPLETION_INDEX") != ""
}

// elsewhere says why the job has the hosts of the user's choice; empty if the user has chosen none. given: -np was
// given.
func (f *flags) elsewhere(given bool) string {
	for _, o := range []struct {
		name  string
		given bool
	}{
		{"--hosts", f.Hosts != ""}, {"--hostfile", f.Hostfile != ""},
		{"--host-discovery-script", f.DiscoveryScript != ""},
	} {
		if o.given {
			return o.name + " says which hosts the job has"
		}
	}
	switch {
	case given && f.MPI:
		return "with --mpi it is mpirun that starts the processes"
	case given && f.Results != "":
		return "horovod.run has its processes on this host, unless it is given hosts"
	}
	return ""
}

// asksForNodes reports whether the environment says that this is one of several nodes, or of a number that changes. A
// rank inherits the variables of its own job, which say nothing about a job that it starts.
func asksForNodes(getenv func(string) string) bool {
	text := getenv(nodesVariable)
	n, err := strconv.Atoi(text)
	return text != "" && (err != nil || n != 1) && !inRank(getenv)
}

// inRank reports whether this launcher runs in a rank of a job of ours, torchrun's or mpirun's. srun is none of these:
// it may start one launcher on each node.
func inRank(getenv func(string) string) bool {
	return getenv("HOROVOD_RANK") != "" || getenv("TORCHELASTIC_RUN_ID") != "" ||
		getenv("OMPI_COMM_WORLD_RANK") != "" || getenv("PMI_RANK") != "" && getenv("SLURM_PROCID") == ""
}

// checkNodes finds this node's place.
func (f *flags) checkNodes(getenv func(string) string) error {
	if f.LeaveOn != "" && f.NNodes == "" && getenv(nodesVariable) == "" {
		return errors.New("--leave-on is for elastic jobs of which each node has a launcher, since only such a node " +
			"can leave by itself: give --nnodes MIN:MAX, or set PET_NNODES, too. In other jobs " +
			"--host-discovery-script says which hosts are to go")
	}
	for _, o := range []struct {
		name  string
		given bool
	}{
		{"--hosts", f.Hosts != ""}, {"--hostfile", f.Hostfile != ""},
		{"--host-discovery-script", f.DiscoveryScript != ""},
		{"--mpi", f.MPI},
	} {
		if o.given {
			return fmt.Errorf("%s and --nnodes: one of them. With --nnodes each node has a launcher", o.name)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	file, _ := os.ReadFile("/etc/hosts") // if /etc/hosts cannot be read, the short name must do
	asked := nodes.Asked{Nodes: f.NNodes, Rank: f.NodeRank, Port: f.MasterPort, Slots: f.NprocPerNode,
		Head: f.MasterAddr, ID: f.RdzvID, Elastic: f.MinNP != nil}
	place, found, err := nodes.Find(asked, getenv, nodes.FullName(host, string(file)))
	if err != nil {
		return err
	}
	if !found {
		return errors.New("--nnodes is missing: say how many nodes there are")
	}
	f.place = &place
	switch {
	case place.Elastic:
		return notice.Check(f.leaveOn())
	case f.LeaveOn != "":
		return errors.New("--leave-on is for elastic jobs: give --nnodes MIN:MAX, too")
	}
	return nil
}

// launchNodes is this node's part of a job of several nodes, each with a launcher.
func (f *flags) launchNodes(name string, input []byte) (code int, why report, err error) {
	self, err := f.self()
	if err != nil {
		return ending.UsageCode, why, err
	}
	path, code, err := spawn.FindCommand(f.command[0], os.Getenv("PATH"))
	if err != nil {
		return code, why, err
	}
	if err := checkSecret(f.place.Count, os.Getenv); err != nil {
		return ending.UsageCode, why, err
	}
	if f.place.Elastic {
		return f.launchFleet(name, path, input, self)
	}
	if f.place.Count == 1 {
		return f.launchAt(name, path, input, []nodes.Node{self})
	}
	key, err := nodesKey(os.Getenv)
	if err != nil {
		return ending.UsageCode, why, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	limit := defaultNodesTimeout
	if f.StartTimeout != nil {
		limit = f.startTimeout()
	}
	waiting, cancel := context.WithTimeoutCause(ctx, limit, context.DeadlineExceeded)
	defer cancel()
	say := func(text string) { warn(name, text) }
	early := sync.OnceFunc(spawn.WithoutRanks(say))
	defer early()
	if f.place.Rank > 0 {
		conn, err := nodes.Join(waiting, *f.place, self.Host, self.Slots, key, say)
		if err != nil {
			return 1, why, interrupted(ctx, err)
		}
		stop()
		early()
		code, err := serveNode(conn, say)
		return code, why, err
	}
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", f.place.Port))
	if err != nil {
		return 1, why, fmt.Errorf("this is node 0, at which the others meet: %w: --master-port says another port", err)
	}
	g := nodes.Gather(l, *f.place, self, key, replaceNode, say)
	defer g.Close()
	all, err := g.Wait(waiting)
	if err != nil {
		return 1, why, interrupted(ctx, err)
	}
	g.Close()
	stop()
	early()
	return f.launchAt(name, path, input, all)
}

// interrupted returns err; if a signal has ended ctx, it returns an error that says so.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted before all nodes had met")
	}
	return err
}

// self describes this node.
func (f *flags) self() (n nodes.Node, err error) {
	n.Rank = f.place.Rank
	if n.Host, err = os.Hostname(); err != nil {
		return n, err
	}
	name := "--nproc-per-node"
	if f.NprocPerNode == "" && os.Getenv(nodes.SlotsVariable) != "" {
		name = nodes.SlotsVariable
	}
	n.Slots, err = nodes.Count(name, f.place.Slots, os.DirFS("/"), os.Getenv)
	return n, err
}

// nodesKey is the secret by which the launchers of a job recognise one another.
func nodesKey(getenv func(string) string) ([]byte, error) {
	if file := getenv(secretFileVariable); file != "" {
		key, err := config.ReadKey(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", secretFileVariable, err)
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
		"with the same one. `openssl rand -hex 32` makes it", secretFileVariable)
}

// checkSecret refuses a secret that cannot be one. A single node needs none, but must not hide a mistake until there
// are more.
func checkSecret(count int, getenv func(string) string) error {
	if count == 1 && getenv(secretFileVariable) == "" && getenv(spawn.SecretVariable) == "" {
		return nil
	}
	_, err := nodesKey(getenv)
	return err
}

// launchAt runs the job on all nodes, from node 0.
func (f *flags) launchAt(name, path string, input []byte, all []nodes.Node) (code int, why report, err error) {
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
	for _, note := range f.notes(len(all) > 1) {
		warn(name, note)
	}
	j := f.job(name, path, slots, input)
	j.Local = func(host string) bool { return host == names[0] }
	j.Apart, j.Settings = true, f.settings(os.Environ())
	j.Remote.Timeout = defaultStartTimeout
	j.Remote.Open = func(host string) (*remote.Line, error) { return lines[host], nil }
	return f.launch(j)
}

// settings are the variables that the options set.
func (f *flags) settings(own []string) (set []string) {
	has := map[string]bool{}
	for _, e := range own {
		has[e] = true
	}
	for _, x := range f.Export {
		if name, _, given := strings.Cut(x, "="); !given {
			has[name+"="+os.Getenv(name)] = false
		}
	}
	for _, e := range f.environ(own) {
		if !has[e] {
			set = append(set, e)
		}
	}
	return set
}

// replaceNode ends the connection of a node in whose place another one has come.
func replaceNode(conn *auth.Sealed) { remote.TurnAway(conn, replacedText) }

// serveNode obeys node 0 until the job is over. It returns the job's exit code.
func serveNode(conn *auth.Sealed, say func(text string)) (code int, err error) {
	a, code, err := remote.ServeNode(conn, nil, say)
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
