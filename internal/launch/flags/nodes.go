package flags

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/launch/nodes"
	"github.com/gorovod/gorovod/internal/launch/notice"
)

// nodesVariable is --nnodes as a variable.
const nodesVariable = "PET_NNODES"

// SecretFileVariable names a file with the secret that the launchers of all nodes share.
const SecretFileVariable = "GOROVOD_SECRET_FILE"

// apart reports whether each node has a launcher. It is so if the user says so, or if the environment says so and the
// user names no other hosts. With -np the environment must ask for several nodes: if -np led away from them, each pod
// would run a job of its own. It warns if the user's hosts win over such an environment. given: -np was given.
func (f *Flags) apart(given bool, getenv func(string) string) bool {
	if f.NNodes != "" || f.NodeRank != nil || f.MasterAddr != "" || f.MasterPort != nil || f.NprocPerNode != "" ||
		f.RdzvID != "" || f.LeaveOn != "" {
		return true
	}
	several := asksForNodes(getenv)
	why := f.elsewhere(given)
	switch {
	case why != "" && several:
		f.Warnings = append(f.Warnings, fmt.Sprintf("%s=%s is not used: %s", nodesVariable, getenv(nodesVariable), why))
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
func (f *Flags) elsewhere(given bool) string {
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
func (f *Flags) checkNodes(getenv func(string) string) error {
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
	f.Place = &place
	switch {
	case place.Elastic:
		return notice.Check(f.LeaveNotice())
	case f.LeaveOn != "":
		return errors.New("--leave-on is for elastic jobs: give --nnodes MIN:MAX, too")
	}
	return nil
}

// Self describes this node.
func (f *Flags) Self() (n nodes.Node, err error) {
	n.Rank = f.Place.Rank
	if n.Host, err = os.Hostname(); err != nil {
		return n, err
	}
	name := "--nproc-per-node"
	if f.NprocPerNode == "" && os.Getenv(nodes.SlotsVariable) != "" {
		name = nodes.SlotsVariable
	}
	n.Slots, err = nodes.Count(name, f.Place.Slots, os.DirFS("/"), os.Getenv)
	return n, err
}

// Settings are the variables that the options set.
func (f *Flags) Settings(own []string) (set []string) {
	has := map[string]bool{}
	for _, e := range own {
		has[e] = true
	}
	for _, x := range f.Export {
		if name, _, given := strings.Cut(x, "="); !given {
			has[name+"="+os.Getenv(name)] = false
		}
	}
	for _, e := range f.Environ(own) {
		if !has[e] {
			set = append(set, e)
		}
	}
	return set
}

// LeaveNotice is where the notice to leave will be, empty for none, and the option or the variable that says so.
func (f *Flags) LeaveNotice() (name, where string) {
	if f.LeaveOn != "" {
		return "--leave-on", f.LeaveOn
	}
	return notice.LeaveVariable, os.Getenv(notice.LeaveVariable)
}

// FleetRules are the rules of the job. A number of nodes means that many times node 0's slots.
func (f *Flags) FleetRules(env []string, slots int) membership.Config {
	c := f.Membership(env)
	c.Fixed = f.Place.Count == 1
	c.Terms.Min, c.Terms.Slots = "--min-np", "check that nodes with enough slots have come"
	if f.MinNP == nil {
		c.Min, c.Terms.Min = f.Place.Least*slots, "--nnodes"
	}
	if f.NumProc == 0 {
		c.NP = c.Min
	}
	if f.MaxNP == nil {
		c.Max = f.Place.Count * slots
	}
	if f.BlacklistCooldown == nil {
		f.BlacklistCooldown = mpiJobCooldown
		c.Cooldown = f.cooldown()
	}
	return c
}
