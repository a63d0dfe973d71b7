package k8s

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/tools/manifests"
)

// render returns the output of gorovod k8s render.
func render(t *testing.T, args ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	if _, err := manifests.Main("gorovod k8s", append([]string{"render"}, args...), &out, nil); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return out.Bytes()
}

// few and many are options of a job: as few as possible, and all.
var (
	few  = []string{"--image", "registry/mnist", "--nodes", "2", "--", "python", "train.py"}
	many = []string{"--image", "registry.example:5000/mnist@sha256:" +
		"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "--nodes", "4", "--slots", "2",
		"--gpus", "2", "--cpu", "7.5", "--memory", "64Gi", "--env", "A=yes",
		"--env", "B=1: $(x) \"\u00fc\"\n", "--namespace", "team", "--restarts", "3",
		"--checkpoints", "disk", "--metrics-port", "9400", "--metrics-tls", "cert", "--tls", "own", "--",
		"python", "train.py", "--lr", "0.1", "# $$", "yes"}
)

// A cluster accepts everything that render prints.
func TestManifestsAreValid(t *testing.T) {
	for _, kind := range manifests.Kinds {
		for name, options := range map[string][]string{"few": few, "many": many} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				var kinds []string
				for _, d := range documents(t, render(t, append([]string{kind, "mnist"}, options...)...)) {
					kind, problems := check(t, d)
					for _, p := range problems {
						t.Errorf("%s: %v\n%s", kind, p, d)
					}
					kinds = append(kinds, kind)
				}
				for _, want := range []string{"NetworkPolicy", "PodDisruptionBudget"} {
					if !slices.Contains(kinds, want) {
						t.Errorf("there is no %s: %v", want, kinds)
					}
				}
			})
		}
	}
}

// fault is a mistake in the manifests of a kind of job, with the expected error.
type fault struct {
	kind, old, new, want string
	byOperator           bool // the definition's schema allows it, and the operator refuses it
}

var faults = []fault{
	{"job", "completions:", "completion:", "unknown field", false},
	{"job", "minAvailable: 2", "minAvailable: [2]", "minAvailable", false},
	{"jobset", "replicatedJobs:", "replicatedJob:", "unknown field", false},
	{"jobset", "replicas: 1", "replicas: one", "replicas", false},
	{"mpijob", "cleanPodPolicy: All", "cleanPodPolicy: Most", "Unsupported value", true},
	{"mpijob", "slotsPerWorker: 1", "slotsPerWorker: \"1\"", "slotsPerWorker", false},
	{"trainjob", "    torch: {}", "    torch: {}\n    jax: {}", "Only one of the policy", false},
	{"trainjob", "numNodes: 2", "numNodes: two", "numNodes", false},
}

// spoilt returns the manifests with the mistake.
func (f *fault) spoilt(t *testing.T) string {
	t.Helper()
	text := string(render(t, append([]string{f.kind, "mnist"}, few...)...))
	spoilt := strings.Replace(text, f.old, f.new, 1)
	if spoilt == text {
		t.Fatalf("%s has no %q:\n%s", f.kind, f.old, text)
	}
	return spoilt
}

// The checks find each of these faults, which a cluster would refuse.
func TestFaultsAreSeen(t *testing.T) {
	for _, f := range faults {
		var said []string
		for _, d := range documents(t, []byte(f.spoilt(t))) {
			_, problems := check(t, d)
			for _, p := range problems {
				said = append(said, p.Error())
			}
		}
		if !strings.Contains(strings.Join(said, "\n"), f.want) {
			t.Errorf("%s with %q: said %q, which has no %q", f.kind, f.new, said, f.want)
		}
	}
}

// The manifests that the main module's tests keep are valid, too.
func TestKeptManifestsAreValid(t *testing.T) {
	files, err := filepath.Glob("../../internal/tools/manifests/testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range documents(t, text) {
			if kind, problems := check(t, d); len(problems) > 0 {
				t.Errorf("%s: %s: %v", file, kind, problems)
			}
		}
	}
}
