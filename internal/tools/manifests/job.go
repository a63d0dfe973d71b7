// Package manifests writes the Kubernetes manifests of a job: plain YAML, the same bytes for the same job, ready for
// kubectl, kustomize or a chart. It talks to no cluster. Only the program imports it.
package manifests

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// The kinds of jobs.
const (
	IndexedJob = "job"      // batch/v1, which needs no installation
	JobSet     = "jobset"   // jobset.x-k8s.io/v1alpha2
	MPIJob     = "mpijob"   // kubeflow.org/v2beta1
	TrainJob   = "trainjob" // trainer.kubeflow.org/v1alpha1
)

// Kinds lists the kinds of jobs.
var Kinds = []string{IndexedJob, JobSet, MPIJob, TrainJob}

// DefaultRuntime is the name of the ClusterTrainingRuntime that render prints with a TrainJob.
const DefaultRuntime = "horovod-distributed"

// port is where the launchers of all pods meet the launcher of pod 0.
const port = 29500

// Job is a user's description of a job.
type Job struct {
	Kind, Name string
	Namespace  string   // empty: kubectl decides
	Image      string   // of all pods
	Command    []string // the program of each process
	Nodes      int      // pods with processes
	Least      int      // pods with which an elastic job can go on; 0: the job is not elastic
	Grace      int      // seconds that a pod has after SIGTERM; 0: Kubernetes' default
	Slots      int      // processes in a pod; 0: as many as it has GPUs, or else whole CPUs
	GPUs       int      // per pod
	CPU        string   // per pod, as a quantity; empty for no limit
	Memory     string   // per pod, as a quantity; empty for no limit
	Env        []Env    // of all processes
	Restarts   int      // how often the whole job may start again
	Secret     string   // the name of an existing Secret; empty: print a placeholder
	Claim      string   // the name of a PersistentVolumeClaim for checkpoints; empty for none
	Runtime    string   // the name of an existing ClusterTrainingRuntime; empty: print one
	Metrics    int      // the port of the page of metrics for Prometheus; 0: no page
	MetricsTLS string   // the name of a Secret with the page's certificate; empty: TLS's, if there is one
	TLS        string   // the name of a Secret with the launchers' and processes' certificate; empty: none
	User       string   // the user of the programs in an MPIJob's image, whose home is /home/USER; empty: root
	Apart      bool     // print a TrainingRuntime for this job alone, not the ClusterTrainingRuntime that jobs share
}

// maxLabel is the longest label in the domain name system, in characters.
const maxLabel = 63

// maxName is the longest name of a job or mpijob, in characters. The longest name made from it, NAME-worker-65535, is a
// label in the domain name system.
const maxName = 50

// maxName is the longest name of j, in characters. JobSet refuses a name with which the name of its last pod, such as
// NAME-node-0-65535-abcde, would be no label in the domain name system.
func (j *Job) maxName() int {
	if j.Kind != JobSet && j.Kind != TrainJob {
		return maxName
	}
	return maxLabel - len(fmt.Sprintf("-node-0-%d-abcde", max(j.Nodes, 1)-1))
}

// MaxNodes and maxSlots are the same limits as horovodrun's.
const (
	MaxNodes = 1 << 16
	maxSlots = 1 << 16
	maxGrace = 1_000_000 // seconds
)

var (
	label     = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)
	subdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	quantity  = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?(m|k|Ki|[MGTPE]i?)?$`)
	cores     = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?|[0-9]+m)$`)
	user      = regexp.MustCompile(`^[a-z_][-a-z0-9_]{0,31}$`)
	variable  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// image is the grammar of container images: [HOST[:PORT]/]NAME[/NAME…][:TAG][@DIGEST].
var image = regexp.MustCompile(`^(([a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*|` +
	`\[[a-fA-F0-9:]+\])(:[0-9]+)?/)?` +
	`[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*` +
	`(:[A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?` +
	`(@[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?$`)

// Check says what is wrong with j.
func (j *Job) Check() error {
	switch {
	case !slices.Contains(Kinds, j.Kind):
		return fmt.Errorf("unknown kind %q: one of %s is needed", j.Kind, strings.Join(Kinds, ", "))
	case j.Nodes == 0:
		return errors.New("--nodes is missing: say how many pods run processes")
	case j.Nodes < 1 || j.Nodes > MaxNodes:
		return fmt.Errorf("--nodes %d: a number from 1 to %d is needed", j.Nodes, MaxNodes)
	case len(j.Name) > j.maxName() || !label.MatchString(j.Name):
		return fmt.Errorf("name %q: a letter is needed first, then letters, digits and dashes, all in lower case, and "+
			"at most %d of them, since pods are named after it", j.Name, j.maxName())
	case j.Namespace != "" && (len(j.Namespace) > 63 || !subdomain.MatchString(j.Namespace) ||
		strings.Contains(j.Namespace, ".")):
		return fmt.Errorf("--namespace %q: this can be no name of a namespace", j.Namespace)
	case j.Image == "":
		return errors.New("--image is missing: name the container image of all pods, such as " +
			"registry:5000/team/mnist:1")
	case !image.MatchString(j.Image):
		return fmt.Errorf("--image %q: the name of a container image is needed, such as registry:5000/team/mnist:1",
			j.Image)
	case len(j.Command) == 0 || j.Command[0] == "":
		return fmt.Errorf("no command: write it after --, such as -- python train.py")
	case j.Least != 0 && (j.Least < 1 || j.Least > j.Nodes):
		return fmt.Errorf("--min-nodes %d: a number from 1 to %d, which --nodes says, is needed", j.Least, j.Nodes)
	case j.Least != 0 && j.Kind == TrainJob:
		return fmt.Errorf("--min-nodes: Kubeflow Trainer does not let the pods of a %s come and go: use the kind "+
			"%s, %s or %s", TrainJob, IndexedJob, JobSet, MPIJob)
	case j.Grace < 0 || j.Grace > maxGrace:
		return fmt.Errorf("--grace %d: a number of seconds from 1 to %d is needed", j.Grace, maxGrace)
	case j.Grace > 0 && j.Kind == TrainJob && j.Runtime != "":
		return errors.New("--grace is a matter of the runtime: leave --runtime out, or set it up in " + j.Runtime)
	case j.Slots < 0 || j.Slots > maxSlots:
		return fmt.Errorf("--slots %d: a number from 1 to %d is needed", j.Slots, maxSlots)
	case j.GPUs < 0 || j.GPUs > maxSlots:
		return fmt.Errorf("--gpus %d: a number from 0 to %d is needed", j.GPUs, maxSlots)
	case j.Restarts < 0 || j.Restarts > 1000:
		return fmt.Errorf("--restarts %d: a number from 0 to 1000 is needed", j.Restarts)
	case j.CPU != "" && (!cores.MatchString(j.CPU) || zero(j.CPU)):
		return fmt.Errorf("--cpu %q: a number such as 8, 0.5 or 500m is needed", j.CPU)
	case j.Memory != "" && (!quantity.MatchString(j.Memory) || strings.HasSuffix(j.Memory, "m") || zero(j.Memory)):
		return fmt.Errorf("--memory %q: a size such as 64Gi or 500M is needed", j.Memory)
	case j.Runtime != "" && j.Kind != TrainJob:
		return fmt.Errorf("--runtime is for the kind %s: a %s has none", TrainJob, j.Kind)
	case j.Runtime != "" && (j.Restarts > 0 || j.Claim != "" || j.TLS != ""):
		return fmt.Errorf("--restarts, --checkpoints and --tls are matters of the runtime: leave --runtime out for a "+
			"runtime that has them, or set them up in %s", j.Runtime)
	case j.User != "" && j.Kind != MPIJob:
		return fmt.Errorf("--user is for the kind %s, whose pods need an sshd: a %s runs as whoever its image says",
			MPIJob, j.Kind)
	case j.User != "" && (!user.MatchString(j.User) || j.User == "root"):
		return fmt.Errorf("--user %q: the name of a user of the image other than root is needed", j.User)
	case j.Secret != "" && j.Kind == MPIJob && j.Metrics == 0:
		return fmt.Errorf("--secret: an %s has no use for it without --metrics-port: its operator makes keys for ssh",
			MPIJob)
	}
	if err := j.checkMetrics(); err != nil {
		return err
	}
	names := map[string]string{"--secret": j.Secret, "--checkpoints": j.Claim, "--runtime": j.Runtime,
		"--metrics-tls": j.MetricsTLS, "--tls": j.TLS}
	for option, name := range names {
		if name != "" && (len(name) > 253 || !subdomain.MatchString(name)) {
			return fmt.Errorf("%s %q: this can be no name of an object", option, name)
		}
	}
	return j.checkEnv()
}

// launchers are programs that start processes on several hosts. In a pod horovodrun does that.
var launchers = []string{"torchrun", "mpirun", "mpiexec", "srun"}

// checkCommand says what is wrong with the command, which may have options of horovodrun in front.
func (j *Job) checkCommand(launcher Launcher) error {
	command := j.Command
	if strings.HasPrefix(command[0], "-") {
		var err error
		if command, err = launcher(j); err != nil {
			return err
		}
	}
	switch program := path.Base(command[0]); {
	case program == "horovodrun" || program == "gorovod":
		return fmt.Errorf("the command begins with %s: leave that out, the manifest adds horovodrun", command[0])
	case slices.Contains(launchers, program):
		return fmt.Errorf("the command begins with %s: horovodrun, which the manifest adds, starts the processes: "+
			"write the program alone, such as -- python train.py", command[0])
	}
	return nil
}

// own are the variables that the manifests set, or that Kubernetes sets.
var own = []string{nodesVariable, slotsVariable, rankVariable, secretVariable, keyVariable, indexVariable}

// Sets reports whether the manifests set a variable themselves.
func (j *Job) Sets(name string) bool {
	return slices.Contains(own, name) || name == checkpointVariable ||
		j.Metrics > 0 && slices.Contains(j.metricsOwn(), name) ||
		j.TLS != "" && (name == tlsVariable || slices.Contains(certificateVariables, name))
}

func (j *Job) checkEnv() error {
	seen := map[string]bool{}
	for _, e := range j.Env {
		switch {
		case !variable.MatchString(e.Name):
			return fmt.Errorf("--env %s=…: this can be no name of a variable", e.Name)
		case e.Name == checkpointVariable && j.Claim == "":
			return fmt.Errorf("--env %s=…: no volume is mounted there, so the checkpoints would go with the pod: give "+
				"--checkpoints NAME in its place", e.Name)
		case slices.Contains(certificateVariables, e.Name) && j.TLS == "":
			return fmt.Errorf("--env %s=…: no Secret is mounted there: give --tls NAME in its place", e.Name)
		case j.Sets(e.Name):
			return fmt.Errorf("--env %s=…: the manifest sets this variable itself", e.Name)
		case seen[e.Name]:
			return fmt.Errorf("--env %s=… is given twice", e.Name)
		}
		seen[e.Name] = true
	}
	return nil
}

// zero reports whether a quantity is zero.
func zero(quantity string) bool { return strings.Trim(quantity, "0.kKMGTPEim") == "" }

// slots is how many processes a pod has, for kinds of jobs in which horovodrun cannot count them.
func (j *Job) slots() int {
	switch {
	case j.Slots > 0:
		return j.Slots
	case j.GPUs > 0:
		return j.GPUs
	}
	whole := 0
	if !strings.HasSuffix(j.CPU, "m") {
		fmt.Sscan(j.CPU, &whole) // reads the whole part; without a limit it stays 0
	} else {
		fmt.Sscan(strings.TrimSuffix(j.CPU, "m"), &whole)
		whole /= 1000
	}
	return max(1, whole)
}
