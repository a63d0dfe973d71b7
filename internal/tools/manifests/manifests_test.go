package manifests

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/observe/door"
)

//go:generate go test -run TestKept -rewrite

var rewrite = flag.Bool("rewrite", false, "write testdata anew")

// kept are the command lines whose manifests are in testdata.
var kept = map[string]string{
	"job": "job mnist --image registry/mnist --nodes 4 --gpus 8 -- python train.py",
	"jobset": "jobset mnist --image registry/mnist --nodes 4 --cpu 16 --memory 64Gi --slots 4 --restarts 3 " +
		"-- python train.py",
	"mpijob": "mpijob mnist --image registry/mnist --nodes 4 --gpus 8 --checkpoints disk -- python train.py",
	"elastic": "job mnist --image registry/mnist --nodes 8 --min-nodes 2 --grace 120 --gpus 8 --restarts 3 " +
		"--checkpoints disk -- python train.py",
	"metrics": "job mnist --image registry/mnist --nodes 4 --gpus 8 --metrics-port 9400 --metrics-tls mnist-page " +
		"-- python train.py",
	"trainjob": "trainjob mnist --image registry/mnist --nodes 4 --gpus 8 -- python train.py",
}

func TestKept(t *testing.T) {
	for name, line := range kept {
		got := "# gorovod k8s render " + line + "\n" + rendered(t, strings.Fields(line)...)
		file := "testdata/" + name + ".yaml"
		if *rewrite {
			if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s is not what render prints; see what has changed with: go generate ./internal/tools/manifests",
				file)
		}
	}
}

func rendered(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if _, err := Main("gorovod k8s", append([]string{"render"}, args...), &out, nil); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return out.String()
}

// Each option changes the manifests as it should.
func TestOptions(t *testing.T) {
	base := "--image i --nodes 3"
	for _, c := range []struct{ line, has, lacks string }{
		{"job n " + base, "completions: 3", "namespace:"},
		{"job n --image i --nodes 010", "completions: 10", "completions: 8"},
		{"job n " + base, "backoffLimit: 0", "podFailurePolicy"},
		{"job n " + base + " --restarts 2", "backoffLimit: 6", "backoffLimit: 0"},
		{"job n " + base + " --namespace team", "namespace: team", "namespace: n"},
		{"job n " + base + " --namespace team", "secret generic n --namespace team", "TrainJob"},
		{"job n " + base + " --secret s", "secretName: s", "kind: Secret"},
		{"job n " + base + " --env A=1,b=2", "value: 1,b=2", "name: b"},
		{"job n " + base + " --env A=$(B)", "value: $$(B)", "value: $(B)"},
		{"job n " + base + " --min-nodes 2", `value: "2:3"`, "backoffLimit: 0"},
		{"job n " + base + " --min-nodes 2 --restarts 4", "backoffLimitPerIndex: 4", "minAvailable: 3"},
		{"job n " + base + " --min-nodes 3", `succeededIndexes: "0"`, "terminationGracePeriodSeconds"},
		{"jobset n " + base + " --min-nodes 1 --restarts 4", "backoffLimitPerIndex: 4", "maxRestarts"},
		{"mpijob n " + base + " --min-nodes 2 --gpus 2", "- --min-np\n                - \"4\"", "hostfile"},
		{"mpijob n " + base + " --min-nodes 2", "minAvailable: 2", "minAvailable: 3"},
		{"mpijob n " + base + " --min-nodes 2", "launcherCreationPolicy: AtStartup", "WaitForWorkersReady"},
		{"mpijob n " + base, "launcherCreationPolicy: WaitForWorkersReady", "AtStartup"},
		{"mpijob n " + base + " --min-nodes 2", "command: [gorovod, leave]", "HostKey"},
		{"mpijob n " + base, "mkdir -p /run/sshd && exec", "preStop"},
		{"mpijob n " + base + " --user trainer", "sshAuthMountPath: /home/trainer/.ssh", "/bin/sh"},
		{"mpijob n " + base + " --user trainer", "- HostKey=/home/trainer/.ssh/id_rsa", "/root"},
		{"mpijob n " + base + " --grace 60", "terminationGracePeriodSeconds: 60", "min-np"},
		{"trainjob n " + base + " --grace 60", "terminationGracePeriodSeconds: 60", "ClusterTrainingRuntime"},
		{"jobset n " + base + " --restarts 2", "maxRestarts: 2", "backoffLimit: 6"},
		{"mpijob n " + base, `"3"`, "HOROVOD_SECRET"},
		{"mpijob n " + base + " --cpu 4.5", `"12"`, "kind: Secret"},
		{"mpijob n " + base + " --cpu 2500m", `"6"`, "kind: Service"},
		{"mpijob n " + base + " --cpu 500m", `"3"`, "shareProcess"},
		{"mpijob n " + base + " --gpus 2 --cpu 8", `"6"`, `"24"`},
		{"mpijob n " + base + " --gpus 2 --slots 1", "slotsPerWorker: 1", "slotsPerWorker: 2"},
		{"trainjob n " + base, "name: horovod-distributed", "kind: TrainingRuntime"},
		{"trainjob n " + base + " --runtime r", "name: r", "kind: ClusterTrainingRuntime\nmetadata"},
		{"job n " + base + " --metrics-port 9400", "- --metrics-port\n            - :9400", "tls.crt"},
		{"job n " + base + " --metrics-port 9400", "--from-literal=metrics-token=", "https"},
		{"job n " + base + " --metrics-port 9400 --secret s",
			"batch.kubernetes.io/job-completion-index: \"0\"", "kind: Secret"},
		{"job n " + base, "kind: Secret", "prometheus.io"},
		{"jobset n " + base + " --metrics-port 9400", "prometheus.io/port: \"9400\"", "prometheus.io/scheme"},
		{"mpijob n " + base + " --metrics-port 9400", "training.kubeflow.org/job-role: launcher", "  key: PUT"},
		{"mpijob n " + base + " --metrics-port 9400 --metrics-tls c", "prometheus.io/scheme: https", "secretRef"},
		{"mpijob n " + base + " --metrics-port 9400 --secret s", "secretName: s", "kind: Secret"},
		{"trainjob n " + base + " --metrics-port 9400", "kind: TrainingRuntime", "ClusterTrainingRuntime"},
		{"job n " + base + " --tls c", "- name: GOROVOD_TLS_CA\n              value: /etc/gorovod-certificate/ca.crt",
			"GOROVOD_METRICS"},
		{"jobset n " + base + " --metrics-port 9400 --tls c", "value: /etc/gorovod-certificate/tls.crt",
			"/etc/gorovod-tls"},
		{"mpijob n " + base + " --metrics-port 9400 --tls c --metrics-tls d", "value: /etc/gorovod-tls/tls.crt",
			"name: GOROVOD_METRICS_KEY\n                  value: /etc/gorovod-certificate"},
		{"trainjob n " + base + " --tls c", "kind: TrainingRuntime", "ClusterTrainingRuntime"},
		{"trainjob n " + base + " --restarts 1", "kind: TrainingRuntime", "ClusterTrainingRuntime"},
		{"trainjob n " + base + " --checkpoints c --namespace team", "claimName: c", "horovod-distributed"},
	} {
		text := rendered(t, append(strings.Fields(c.line), "--", "train")...)
		if !strings.Contains(text, c.has) || strings.Contains(text, c.lacks) {
			t.Errorf("%s: %q is needed, and no %q:\n%s", c.line, c.has, c.lacks, text)
		}
	}
}

// A job's pods have names that are labels in the domain name system: of JobSet's, those with the highest number and the
// five characters that Kubernetes adds.
func TestLongestNames(t *testing.T) {
	for _, c := range []struct {
		kind        string
		nodes, most int
	}{
		{IndexedJob, 2, 50}, {IndexedJob, MaxNodes, 50}, {MPIJob, MaxNodes, 50},
		{JobSet, 1, 48}, {JobSet, 10, 48}, {JobSet, 11, 47}, {JobSet, 100, 47}, {JobSet, 101, 46}, {JobSet, 1000, 46},
		{JobSet, 10000, 45}, {JobSet, MaxNodes, 44}, {TrainJob, 10, 48}, {TrainJob, MaxNodes, 44},
	} {
		j := Job{Kind: c.kind, Name: strings.Repeat("n", c.most), Image: "i", Command: []string{"x"}, Nodes: c.nodes}
		if err := j.Check(); err != nil {
			t.Errorf("%s of %d nodes: %v", c.kind, c.nodes, err)
		}
		j.Name += "n"
		if want := fmt.Sprintf("at most %d", c.most); j.Check() == nil || !strings.Contains(j.Check().Error(), want) {
			t.Errorf("%s of %d nodes: %v, want %q", c.kind, c.nodes, j.Check(), want)
		}
	}
}

// A description that cannot become a job is refused, and the error names the option.
func TestRefusals(t *testing.T) {
	good := "--image i --nodes 2"
	for _, c := range []struct{ line, want string }{
		{"", "render is needed"},
		{"draw job n " + good + " -- x", "render is needed"},
		{"render", "a kind (job, jobset, mpijob, trainjob) and a name"},
		{"render pod n " + good + " -- x", `unknown kind "pod"`},
		{"render job N " + good + " -- x", `name "N"`},
		{"render job 1n " + good + " -- x", `name "1n"`},
		{"render job n- " + good + " -- x", `name "n-"`},
		{"render job " + strings.Repeat("n", 51) + " " + good + " -- x", "at most 50"},
		{"render job n " + good, "no command"},
		{"render job n " + good + " python train.py", "python: write -- before the command"},
		{"render job n m " + good + " -- x", "m: only a kind and a name"},
		{"render job n " + good + " -- horovodrun -np 4 x", "begins with horovodrun"},
		{"render job n " + good + " -- /usr/bin/horovodrun x", "begins with /usr/bin/horovodrun"},
		{"render job n " + good + " -- torchrun train.py", "begins with torchrun: horovodrun, which"},
		{"render mpijob n " + good + " -- /opt/bin/mpirun x", "begins with /opt/bin/mpirun"},
		{"render job n --nodes 2 -- x", "--image is missing"},
		{"render job n --image i -- x", "--nodes is missing"},
		{"render job n --image i --nodes 0 -- x", "--nodes 0: a number from 1 on"},
		{"render job n --image= --nodes 1 -- x", "--image: its value is empty: is a variable in the command not set?"},
		{"render job n --image i --nodes 1 --secret= -- x", "--secret: its value is empty"},
		{"render job n --image i --nodes 1 --image -- x", "--image: a value is missing"},
		{"render job n --image i --nodes 0x10 -- x", "--nodes 0x10: a whole number is needed"},
		{"render job n " + good + " --min-nodes 0 -- x", "--min-nodes 0: a number from 1 on"},
		{"render job n " + good + " --slots 0 -- x", "--slots 0: a number from 1 on"},
		{"render job n " + good + " --grace 0 -- x", "--grace 0: a number from 1 on"},
		{"render job n " + good + " --metrics-port 0 -- x", "--metrics-port 0: a number from 1 on"},
		{"render job n " + good + " --grace 9223372036854775807 -- x", "a number of seconds from 1 to 1000000"},
		{"render job n " + good + " --gpus 99999999999 -- x", "--gpus 99999999999: a number from 0 to 65536"},
		{"render job n --image i --nodes 65537 -- x", "--nodes 65537"},
		{"render job n --image i --nodes -1 -- x", "--nodes -1: a number from 1"},
		{"render job n " + good + " --slots=-1 -- x", "--slots -1"},
		{"render job n " + good + " --min-nodes 3 -- x", "--min-nodes 3: a number from 1 to 2"},
		{"render job n " + good + " --min-nodes=-1 -- x", "--min-nodes -1"},
		{"render trainjob n " + good + " --min-nodes 1 -- x", "use the kind job, jobset or mpijob"},
		{"render job n " + good + " --grace=-1 -- x", "--grace -1"},
		{"render trainjob n " + good + " --grace 1 --runtime r -- x", "--grace is a matter of the runtime"},
		{"render job n " + good + " --gpus=-1 -- x", "--gpus -1"},
		{"render job n " + good + " --restarts=-1 -- x", "--restarts -1"},
		{"render job n " + good + " --cpu 8Gi -- x", `--cpu "8Gi"`},
		{"render job n " + good + " --cpu 0 -- x", `--cpu "0"`},
		{"render job n " + good + " --memory 64GB -- x", `--memory "64GB"`},
		{"render job n " + good + " --memory 500m -- x", `--memory "500m"`},
		{"render job n " + good + " --env A -- x", "NAME=VALUE"},
		{"render job n " + good + " --env 1A=2 -- x", "no name of a variable"},
		{"render job n " + good + " --env A=1 --env A=2 -- x", "given twice"},
		{"render job n " + good + " --env PET_NNODES=9 -- x", "the manifest sets this variable itself"},
		{"render job n " + good + " --env GOROVOD_CHECKPOINT_DIR=/x -- x", "no volume is mounted there"},
		{"render mpijob n " + good + " --env GOROVOD_CHECKPOINT_DIR=/x -- x", "give --checkpoints NAME in its place"},
		{"render job n " + good + " --checkpoints c --env GOROVOD_CHECKPOINT_DIR=/x -- x", "the manifest sets this"},
		{"render job n " + good + " --metrics-port=-1 -- x", "--metrics-port -1: a number from 1 to 65535"},
		{"render job n " + good + " --metrics-port 29500 -- x", "--metrics-port 29500: the pods need this port"},
		{"render mpijob n " + good + " --metrics-port 2222 -- x", "--metrics-port 2222: the pods need this port"},
		{"render job n " + good + " --metrics-tls c -- x", "give --metrics-port, too"},
		{"render job n " + good + " --metrics-port 1 --metrics-tls C -- x", "no name of an object"},
		{"render job n " + good + " --metrics-port 1 --env GOROVOD_TLS=1 -- x", "give --metrics-tls NAME"},
		{"render job n " + good + " --tls c --env GOROVOD_TLS=0 -- x", "the manifest sets this variable"},
		{"render job n " + good + " --env GOROVOD_TLS_CERT=/x -- x", "give --tls NAME in its place"},
		{"render job n " + good + " --tls C -- x", "no name of an object"},
		{"render trainjob n " + good + " --tls c --runtime r -- x", "--tls are matters of the runtime"},
		{"render job n " + good + " --metrics-port 1 --env GOROVOD_METRICS=2 -- x", "the manifest sets this variable"},
		{"render trainjob n " + good + " --metrics-port 1 --runtime r -- x", "is a matter of the runtime"},
		{"render job n " + good + " --namespace A -- x", `--namespace "A"`},
		{"render job n " + good + " --secret A_b -- x", `--secret "A_b"`},
		{"render job n " + good + " --checkpoints A_b -- x", `--checkpoints "A_b"`},
		{"render job n " + good + " --runtime r -- x", "--runtime is for the kind trainjob"},
		{"render mpijob n " + good + " --secret s -- x", "no use for it"},
		{"render mpijob n " + good + " --user root -- x", `--user "root": the name of a user of the image other`},
		{"render mpijob n " + good + " --user a/b -- x", `--user "a/b"`},
		{"render job n " + good + " --user trainer -- x", "--user is for the kind mpijob"},
		{"render trainjob n " + good + " --runtime r --restarts 1 -- x", "matters of the runtime"},
		{"render job n " + good + " --nods 3 -- x", "--nods"},
	} {
		var out bytes.Buffer
		code, err := Main("gorovod k8s", strings.Fields(c.line), &out, nil)
		if err == nil || code != exitUsage || !strings.Contains(err.Error(), c.want) || out.Len() > 0 {
			t.Errorf("%s: error %v, exit code %d; %q is needed. Printed:\n%s", c.line, err, code, c.want, out.String())
		}
	}
}

func TestNoProgramHasAnEmptyName(t *testing.T) {
	args := []string{"render", "job", "n", "--image", "i", "--nodes", "2", "--", ""}
	_, err := Main("gorovod k8s", args, io.Discard, nil)
	if err == nil || !strings.Contains(err.Error(), "no command") {
		t.Error(err)
	}
}

// Options after -- belong to the command.
func TestCommandsKeepTheirOptions(t *testing.T) {
	text := rendered(t, "job", "n", "--image", "i", "--nodes", "2", "--", "train", "--nodes", "9", "--", "-x", "a$b")
	for _, want := range []string{"- --nodes\n", `- "9"`, "- --\n", "- -x\n", "- a$$b\n", "completions: 2"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q:\n%s", want, text)
		}
	}
}

// Only names that a container runtime can pull are images.
func TestImages(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0a", 32)
	for name, good := range map[string]bool{
		"mnist": true, "team/mnist:1.0": true, "registry.example:5000/team/mn__ist-x:V1" + digest: true,
		"localhost/a.b/c" + digest: true, "[2001:db8::1]:5000/mnist": true, "REGISTRY/mnist": true,
		"": false, "a b": false, "Mnist": false, "registry/Mnist": false, "https://registry/mnist": false, `"mnist"`: false,
		"mnist:1:2": false, "mnist:": false, "mnist@sha256:12": false, "/mnist": false, "mnist/": false, "a//b": false,
		"mnist:-1": false, "mnist\n": false, "a___b": false,
	} {
		j := Job{Kind: IndexedJob, Name: "n", Image: name, Command: []string{"x"}, Nodes: 1}
		if err := j.Check(); (err == nil) != good || err != nil && !strings.HasPrefix(err.Error(), "--image ") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Programs that read YAML 1.1, as Python's yaml does, take a plain = or << for something else than text.
func TestTextsThatAreSpecialInYAML(t *testing.T) {
	for _, kind := range Kinds {
		text := rendered(t, kind, "n", "--image", "i", "--nodes", "2", "--env", "A==", "--", "test", "=", "<<", "==")
		for _, want := range []string{`value: "="`, `- "="`, `- "<<"`, "- ==\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: there is no %q:\n%s", kind, want, text)
			}
		}
	}
}

// The placeholder is no token, so the job does not open the page with it.
func TestPlaceholderIsNoToken(t *testing.T) {
	file := t.TempDir() + "/token"
	if err := os.WriteFile(file, []byte(TokenPlaceholder), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{tokenFileVariable: file}
	if _, err := door.From("0.0.0.0:9400", func(name string) string { return env[name] }); err == nil {
		t.Error("a job would start with the placeholder for a token")
	}
}
