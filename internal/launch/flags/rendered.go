package flags

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gorovod/gorovod/internal/base/commandline"
	"github.com/gorovod/gorovod/internal/launch/nodes"
	"github.com/gorovod/gorovod/internal/tools/manifests"
)

// conflict is options of horovodrun that no rendered command can have, by their names in the parser, and the reason.
type conflict struct {
	options []string
	why     string
}

// conflicts are the options that contradict every manifest.
var conflicts = []conflict{
	{[]string{"num-proc", "nproc-per-node", "min-np", "max-np"},
		"render's --nodes, --slots and --min-nodes say how many processes there are"},
	{[]string{"nnodes", "node-rank", "master-addr", "master-port"},
		"render's --nodes says how many pods there are, and the manifest says where they meet"},
	{[]string{"hosts", "hostfile", "host-discovery-script", "ssh-port"},
		"the job's hosts are its pods, and the manifest says how they meet"},
	{[]string{"metrics-port"},
		"give --metrics-port to render, before --: then the page has a port, a Service and a token"},
	{[]string{"help", "version", "check-build", "parsed", "input", "results", "report", "lifeline"},
		"no job starts with it"},
}

// onlyOfMPIJobs are the options that contradict the manifests of all other jobs.
var onlyOfMPIJobs = conflict{[]string{"mpi", "mpi-args", "binding-args"},
	"this job has a launcher in each pod, and mpirun is for jobs with one: use the kind mpijob"}

// neverOfMPIJobs are the options that contradict an MPIJob's manifests.
var neverOfMPIJobs = conflict{[]string{"rdzv-id", "leave-on"},
	"it is for jobs with a launcher in each pod, and an mpijob has one"}

// Rendered reads the options of horovodrun at the beginning of a job's command, as the job's pods will. It returns the
// command without them. It depends on nothing but j.
func Rendered(j *manifests.Job) (command []string, err error) {
	f := &Flags{}
	parser, _, err := Command.Parser("horovodrun", f)
	if err != nil {
		return nil, err
	}
	options, command, _, err := split(j.Command)
	if err != nil {
		return nil, err
	}
	if _, err := parser.Parse(options); err != nil {
		return nil, commandline.Plain(err, options)
	}
	against := append(slices.Clone(conflicts), onlyOfMPIJobs)
	if j.Kind == manifests.MPIJob {
		against[len(against)-1] = neverOfMPIJobs
	}
	for _, flag := range parser.Model.Flags {
		name := "--" + flag.Name
		if short := flag.Tag.Get("onedash"); short != "" {
			name = "-" + short
		}
		for _, c := range against {
			if flag.Set && slices.Contains(c.options, flag.Name) {
				return nil, fmt.Errorf("%s in the command: %s", name, c.why)
			}
		}
	}
	for _, x := range f.Export {
		if name, _, _ := strings.Cut(x, "="); j.Sets(name) {
			return nil, fmt.Errorf("-x %s in the command: the manifest sets this variable itself", name)
		}
	}
	if len(command) == 0 || command[0] == "" {
		return nil, errors.New("no command: write it after the options of horovodrun")
	}
	if err := checkOpposites(parser, options); err != nil {
		return nil, err
	}
	f.Place = &nodes.Place{Elastic: j.Least > 0}
	if f.MPI && f.IsElastic() {
		return nil, errors.New("--mpi and --min-nodes: MPI cannot carry an elastic job")
	}
	if f.LeaveOn != "" && !f.IsElastic() {
		return nil, errors.New("--leave-on is for elastic jobs: give --min-nodes to render, too")
	}
	return command, errors.Join(f.checkElasticNumbers(), f.checkNumbers(), f.checkExports(), f.checkLogLevel())
}
