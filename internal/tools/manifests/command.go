package manifests

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gorovod/gorovod/internal/base/commandline"
)

// Command is gorovod k8s.
var Command = &commandline.Command{
	Name:  "k8s",
	Usage: "render KIND NAME --image IMAGE --nodes N [options] -- command…",
	About: "Print the Kubernetes manifests of a job",
	Detail: `KIND is job (an indexed Job, which needs nothing in the cluster), jobset, mpijob or trainjob. The manifests of a
job called NAME come on stdout, for kubectl apply -f -, kustomize or your own tools. The same arguments always give
the same bytes. The command asks no cluster anything.

Beside the job there are a headless Service (job), a Secret with a placeholder for the key that the pods share (not
mpijob), a NetworkPolicy, a PodDisruptionBudget, and the ClusterTrainingRuntime horovod-distributed (trainjob). With
--metrics-port a Service NAME-metrics leads Prometheus to the page, and the Secret has a placeholder for its token.`,
	Examples: []commandline.Example{
		{Line: "gorovod k8s render job mnist --image registry/mnist --nodes 4 --gpus 8 -- python train.py",
			About: "An indexed Job of 4 pods with 8 GPUs and 8 processes each."},
		{Line: "gorovod k8s render trainjob mnist --image registry/mnist --nodes 4 --slots 4 -- python train.py",
			About: "A TrainJob of Kubeflow Trainer, with 4 processes in each pod."},
		{Line: "gorovod k8s render job mnist --image registry/mnist --nodes 4 -o base -- python train.py",
			About: "The folder base, for kustomize."},
	},
	Grammar: func() any { return &options{} },
	Words:   append([]string{"render"}, Kinds...),
}

// options are the options of the command line.
type options struct {
	Action string   `arg:"" optional:""`
	Kind   string   `arg:"" optional:""`
	Name   string   `arg:"" optional:""`
	Rest   []string `arg:"" optional:""`

	Image       string   `placeholder:"IMAGE" help:"Container image of all pods, with gorovod in it. Required."`
	Nodes       *int     `placeholder:"N" help:"Number of pods that run processes. Required."`
	MinNodes    *int     `placeholder:"N" help:"Make the job elastic: it goes on while at least N pods are left, and takes in those that come (not trainjob). Default: it is not elastic."`
	Grace       *int     `placeholder:"SECONDS" help:"Seconds that a pod has to end after SIGTERM: in an elastic job more than there are between two commits. Default: 30, Kubernetes' own."`
	Slots       *int     `placeholder:"N" help:"Processes in each pod. Default: one for each GPU, otherwise for each whole CPU of the limit."`
	GPUs        int      `name:"gpus" placeholder:"N" help:"GPUs of each pod (nvidia.com/gpu). Default: 0."`
	CPU         string   `name:"cpu" placeholder:"QUANTITY" help:"Limit of CPUs of each pod, such as 8. Default: none."`
	Memory      string   `placeholder:"QUANTITY" help:"Limit of memory of each pod, such as 64Gi. Default: none."`
	Env         []string `placeholder:"NAME=VALUE" sep:"none" help:"Variable of all processes; may be given several times. Default: none."`
	Namespace   string   `placeholder:"NAME" help:"Namespace that the manifests name. Default: none; kubectl says it."`
	Restarts    int      `placeholder:"N" help:"How often the whole job may start again after a failure. Default: 0."`
	Secret      string   `placeholder:"NAME" help:"Secret that is in the cluster already, with the key as its entry key. Default: none; a placeholder is printed."`
	Checkpoints string   `placeholder:"NAME" help:"PersistentVolumeClaim that all pods mount at /checkpoints (GOROVOD_CHECKPOINT_DIR). Default: none."`
	Runtime     string   `placeholder:"NAME" help:"ClusterTrainingRuntime that is in the cluster already (trainjob). Default: none; horovod-distributed is printed."`
	MetricsPort *int     `placeholder:"PORT" help:"Show what the job does to Prometheus at this port of pod 0 (mpijob: of the launcher). The Secret then has a token, too. Default: no page."`
	MetricsTLS  string   `name:"metrics-tls" placeholder:"NAME" help:"Secret of the type kubernetes.io/tls that is in the cluster already, with the certificate of the page of metrics. Default: none; no TLS."`
	TLS         string   `name:"tls" placeholder:"NAME" help:"Secret of the type kubernetes.io/tls that is in the cluster already, with a certificate for all launchers and processes and, as ca.crt, the CA that must have signed it: they use TLS, and accept no others. Default: none."`
	User        string   `placeholder:"NAME" help:"User as which the programs of the image run, with the home /home/NAME (mpijob): the pods then need no rights of root. Default: root."`
	Output      string   `short:"o" placeholder:"DIR" help:"Write the manifests into this folder, as a base for kustomize: a kustomization.yaml, and what it names. Default: they are printed."`
}

// Launcher reads the options of horovodrun at the beginning of a job's command, and returns the command without them.
// It refuses options that contradict the job's manifests.
type Launcher func(*Job) (command []string, err error)

// Main runs gorovod k8s with args. It returns the exit code. launcher may be nil if the job's command has no options of
// horovodrun.
func Main(name string, args []string, stdout io.Writer, launcher Launcher) (code int, err error) {
	var o options
	var command []string
	if i := slices.Index(args, "--"); i >= 0 {
		args, command = args[:i], args[i+1:]
	}
	help, err := Command.Parse(name, &o, args)
	if err != nil {
		return exitUsage, err
	}
	text := []byte(help)
	if help == "" {
		j, err := o.job(command)
		if err == nil {
			err = j.checkCommand(launcher)
		}
		if err != nil {
			return exitUsage, err
		}
		if o.Output != "" {
			if err := j.WriteBase(o.Output); err != nil {
				return 1, err
			}
			return 0, nil
		}
		if text, err = j.Render(); err != nil {
			return 1, err
		}
	}
	if _, err := stdout.Write(text); err != nil {
		return 1, err
	}
	return 0, nil
}

// job makes the Job whose processes run command.
func (o *options) job(command []string) (*Job, error) {
	switch {
	case o.Action != "render":
		return nil, errors.New("render is needed: gorovod k8s render KIND NAME --image IMAGE --nodes N -- command…")
	case o.Name == "":
		return nil, fmt.Errorf("a kind (%s) and a name are needed after render", strings.Join(Kinds, ", "))
	case len(o.Rest) > 0 && command == nil:
		return nil, fmt.Errorf("%s: write -- before the command", o.Rest[0])
	case len(o.Rest) > 0:
		return nil, fmt.Errorf("%s: only a kind and a name come after render", o.Rest[0])
	}
	j := &Job{Kind: o.Kind, Name: o.Name, Namespace: o.Namespace, Image: o.Image, Command: command,
		GPUs: o.GPUs, CPU: o.CPU, Memory: o.Memory, Restarts: o.Restarts, Secret: o.Secret,
		Claim: o.Checkpoints, Runtime: o.Runtime, User: o.User, MetricsTLS: o.MetricsTLS, TLS: o.TLS}
	for _, n := range []struct {
		option string
		given  *int
		to     *int
	}{{"--nodes", o.Nodes, &j.Nodes}, {"--min-nodes", o.MinNodes, &j.Least}, {"--grace", o.Grace, &j.Grace},
		{"--slots", o.Slots, &j.Slots}, {"--metrics-port", o.MetricsPort, &j.Metrics}} {
		switch {
		case n.given == nil:
		case *n.given == 0: // in a Job it would stand for an option that was not given
			return nil, fmt.Errorf("%s 0: a number from 1 on is needed", n.option)
		default:
			*n.to = *n.given
		}
	}
	for _, e := range o.Env {
		name, value, given := strings.Cut(e, "=")
		if !given {
			return nil, fmt.Errorf("--env %s: NAME=VALUE is needed", e)
		}
		j.Env = append(j.Env, Env{Name: name, Value: value})
	}
	return j, j.Check()
}
