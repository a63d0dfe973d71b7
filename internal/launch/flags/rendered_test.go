package flags

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/launch/ending"
	"github.com/gorovod/gorovod/internal/tools/manifests"
)

// A rendered command may have the options of horovodrun that leave the manifest its say. All others are refused, by
// horovodrun's own grammar.
func TestOptionsInARenderedCommand(t *testing.T) {
	t.Setenv("HOROVOD_ELASTIC_TIMEOUT", "no number")
	for _, c := range []struct{ kind, command, want string }{
		{"job", "-x A=1 --verbose --timeline-filename t.json --dashboard python --nnodes 7", ""},
		{"job", "--verb -- -strange -np 3", ""},
		{"trainjob", "--log-level DEBUG --start-timeout 900 x", ""},
		{"mpijob", "--mpi --mpi-args=-v x", ""},
		{"job --min-nodes 1", "--reset-limit 3 --leave-on /f --blacklist-cooldown-range 2 30 x", ""},
		{"mpijob --min-nodes 1", "--slots-per-host 3 --elastic-timeout 20 x", ""},
		{"job", "-np 4 python", "-np in the command: render's --nodes, --slots"},
		{"job", "-np 0 x", "-np in the command"},
		{"mpijob", "-np 4 x", "-np in the command"},
		{"job", "-np x", "-np x: a whole number is needed"},
		{"job", "-np", "-np: a value is missing"},
		{"job", "--nnodes 7 x", "--nnodes in the command: render's --nodes says"},
		{"job", "--nn 7 x", "--nnodes in the command"},
		{"job", "-Ha:2 x", "--hosts in the command: the job's hosts are its pods"},
		{"jobset", "--hostfile f x", "-hostfile in the command"},
		{"job", "--host-discovery-script d x", "--host-discovery-script in the command"},
		{"mpijob --min-nodes 1", "--min-np 2 x", "--min-np in the command"},
		{"job", "--bogus x", "unknown option --bogus"},
		{"job", "--jsrun x", "--jsrun is not supported"},
		{"job", "--mpi x", "--mpi in the command: this job has a launcher in each pod"},
		{"mpijob --min-nodes 1", "--mpi x", "MPI cannot carry an elastic job"},
		{"mpijob", "--leave-on /f x", "--leave-on in the command: it is for jobs with a launcher in each pod"},
		{"job", "--leave-on /f x", "--leave-on is for elastic jobs"},
		{"job", "--reset-limit 3 x", "--reset-limit is for elastic jobs"},
		{"job --min-nodes 1", "--reset-limit -3 x", "--reset-limit -3: a number"},
		{"job", "--help", "--help in the command: no job starts with it"},
		{"job", "--version x", "--version in the command"},
		{"job", "--metrics-port 9400 x", "give --metrics-port to render, before --"},
		{"job", "--autotune --no-autotune x", "--autotune and --no-autotune: one of them"},
		{"job", "--log-level LOUD x", "--log-level LOUD"},
		{"job", "--cache-capacity -1 x", "--cache-capacity -1"},
		{"job", "--verbose", "no command"},
		{"job", "--verbose -- torchrun train.py", "begins with torchrun"},
		{"job", "-x A=1 gorovod run x", "begins with gorovod"},
		{"job", "-x PET_NNODES=3 x", "-x PET_NNODES in the command: the manifest sets this variable itself"},
	} {
		kind, options, _ := strings.Cut(c.kind, " ")
		args := strings.Fields("render " + kind + " n --image i --nodes 2 " + options + " -- " + c.command)
		var out bytes.Buffer
		code, err := manifests.Main("gorovod k8s", args, &out, Rendered)
		switch {
		case c.want == "" && (err != nil || code != 0):
			t.Errorf("%s -- %s: %v", c.kind, c.command, err)
		case c.want != "" && (err == nil || code != ending.UsageCode || !strings.Contains(err.Error(), c.want) ||
			out.Len() > 0):
			t.Errorf("%s -- %s: exit code %d, %v; %q is needed", c.kind, c.command, code, err, c.want)
		}
	}
}

// The chart has lists of the options that may stand in every job's command, since it cannot ask horovodrun.
func TestTheChartKnowsTheOptions(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/helm/gorovod/templates/check.yaml")
	if err != nil {
		t.Fatal(err)
	}
	others := slices.Concat(onlyOfMPIJobs.options, neverOfMPIJobs.options,
		[]string{"slots-per-host", "elastic-timeout", "reset-limit", "blacklist-cooldown-range"})
	for _, c := range conflicts {
		others = append(others, c.options...)
	}
	var switches, valued []string
	for _, o := range Command.Options() {
		if slices.ContainsFunc(others, func(name string) bool { return slices.Contains(o.Names, "--"+name) }) {
			continue
		}
		names := o.Names
		if o.Off != "" {
			names = append(names, o.Off)
		}
		if o.Values() == 0 || slices.Contains(names, DashboardOption) {
			switches = append(switches, names...)
		} else {
			valued = append(valued, names...)
		}
	}
	for variable, names := range map[string][]string{"switches": switches, "valued": valued} {
		want := "{{- $" + variable + ` := list "` + strings.Join(names, `" "`) + "\" }}\n"
		if !strings.Contains(string(text), want) {
			t.Errorf("check.yaml needs the line\n%s", want)
		}
	}
}
