package k8s

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	jsonyaml "sigs.k8s.io/yaml"

	"github.com/gorovod/gorovod/internal/tools/manifests"
)

const chartDir = "../../deploy/helm/gorovod"

// key is a key as openssl makes it.
var key = strings.Repeat("0123456789abcdef", 4)

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// template returns the output of helm template NAME --namespace team -f VALUES, without the notes.
func template(t *testing.T, name, values string) (string, error) {
	t.Helper()
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	c := load(t)
	whole, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{Name: name, Namespace: "team",
		IsInstall: true, Revision: 1}, chartutil.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(c, whole)
	if err != nil {
		return "", err
	}
	var stream strings.Builder
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if text := files[file]; strings.HasSuffix(file, ".yaml") && strings.TrimSpace(text) != "" {
			stream.WriteString("---\n" + text + "\n")
		}
	}
	return stream.String(), nil
}

// objects returns the objects of a stream, by their kinds.
func objects(t *testing.T, stream string) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, d := range documents(t, []byte(stream)) {
		var o map[string]any
		if err := jsonyaml.Unmarshal(d, &o); err != nil {
			t.Fatal(err)
		}
		kind := fmt.Sprint(o["kind"])
		name, _ := o["metadata"].(map[string]any)["name"].(string)
		for _, part := range []string{"metrics", "launcher"} {
			if strings.HasSuffix(name, "-"+part) {
				kind += " of the " + part
			}
		}
		all[kind] = o
	}
	return all
}

// The chart makes the objects that render prints, except for the labels by which Helm recognises its own objects.
func TestChartIsWhatRenderPrints(t *testing.T) {
	const strange = `B: "1: $(x) \"\u00fc\"\n"`
	for _, c := range []struct {
		kinds   []string
		options string
		values  string
	}{
		{manifests.Kinds, "--nodes 2 --restarts 1", "nodes: 2\nrestarts: 1"},
		{manifests.Kinds, "--nodes 4 --slots 2 --gpus 2 --cpu 7.5 --memory 64Gi --restarts 3 --checkpoints disk " +
			"--env A=7 --env C=true --env D=1000000 --env E=0.5",
			"nodes: 4\nslots: 2\ngpus: 2\ncpu: 7.5\nmemory: 64Gi\nrestarts: 3\ncheckpoints: disk\n" +
				"env: {E: 0.5, D: 1000000, A: 7, C: true}"},
		{[]string{"job", "jobset", "mpijob"}, "--nodes 3", "nodes: 3"},
		{[]string{"job", "jobset", "mpijob"}, "--nodes 6 --min-nodes 2 --slots 3 --restarts 4 --grace 90",
			"nodes: 6\nminNodes: 2\nslots: 3\nrestarts: 4\ngrace: 90"},
		{[]string{"job", "trainjob"}, "--nodes 6 --grace 90", "nodes: 6\ngrace: 90"},
		{[]string{"mpijob"}, "--nodes 3 --user trainer", "nodes: 3\nuser: trainer"},
		{[]string{"mpijob"}, "--nodes 3 --min-nodes 1 --user me", "nodes: 3\nminNodes: 1\nuser: me"},
		{[]string{"mpijob"}, "--nodes 3 --cpu 4.5", "nodes: 3\ncpu: 4.5"},
		{[]string{"mpijob"}, "--nodes 3 --cpu 2500m", "nodes: 3\ncpu: 2500m"},
		{[]string{"mpijob"}, "--nodes 3 --cpu 500m", "nodes: 3\ncpu: 500m"},
		{[]string{"mpijob"}, "--nodes 1000 --cpu 1000", "nodes: 1000\ncpu: 1000"},
		{[]string{"mpijob"}, "--nodes 3 --cpu 4 --gpus 8", "nodes: 3\ncpu: \"4\"\ngpus: 8"},
		{manifests.Kinds, "--nodes 2 --metrics-port 9400", "nodes: 2\nmetricsPort: 9400"},
		{manifests.Kinds, "--nodes 2 --metrics-port 9400 --metrics-tls cert --checkpoints disk --env GOROVOD_TLS=1",
			"nodes: 2\nmetricsPort: 9400\nmetricsTLS: cert\ncheckpoints: disk\nenv: {GOROVOD_TLS: 1}"},
		{manifests.Kinds, "--nodes 2 --metrics-port 9400 --tls cert", "nodes: 2\nmetricsPort: 9400\ntls: cert"},
		{manifests.Kinds, "--nodes 2 --metrics-port 9400 --tls cert --metrics-tls page",
			"nodes: 2\nmetricsPort: 9400\ntls: cert\nmetricsTLS: page"},
		{manifests.Kinds, "--nodes 2 --tls cert", "nodes: 2\ntls: cert"},
		{[]string{"trainjob"}, "--nodes 65536 --runtime there", "nodes: 65536\nruntime: there"},
	} {
		for _, kind := range c.kinds {
			t.Run(kind+" "+c.options, func(t *testing.T) {
				values := c.values + "\nkind: " + kind + "\nimage: registry/mnist:1\n" +
					"command: [python, train.py, \"# $$\", \"yes\", \"$(A)\", \"a b\\n\"]\n"
				args := append([]string{kind, "mnist", "--namespace", "team", "--image", "registry/mnist:1"},
					strings.Fields(c.options)...)
				if kind != manifests.MPIJob || strings.Contains(c.options, "--metrics-port") {
					values += "secret: keys\n"
					args = append(args, "--secret", "keys")
				}
				if !strings.Contains(values, "env:") {
					values += "env: {" + strange + "}\n"
					args = append(args, "--env", "B=1: $(x) \"\u00fc\"\n")
				} else {
					args = sortEnv(args)
				}
				text, err := template(t, "mnist", values)
				if err != nil {
					t.Fatal(err)
				}
				valid(t, text)
				args = append(args, "--", "python", "train.py", "# $$", "yes", "$(A)", "a b\n")
				got, want := objects(t, text), objects(t, string(render(t, args...)))
				for kind, o := range got {
					labels := o["metadata"].(map[string]any)["labels"].(map[string]any)
					if labels["app.kubernetes.io/managed-by"] != "Helm" || labels["helm.sh/chart"] != "gorovod-0.1.0" {
						t.Errorf("%s has the labels %v", kind, labels)
					}
					delete(labels, "app.kubernetes.io/managed-by")
					delete(labels, "helm.sh/chart")
				}
				if a, b := asJSON(t, got), asJSON(t, want); a != b {
					t.Errorf("the chart gives\n%s\nand render\n%s", a, b)
				}
			})
		}
	}
}

// sortEnv puts the variables of a command line into the order of their names, which is the order of Helm's maps.
func sortEnv(args []string) []string {
	var env, others []string
	for i := 0; i < len(args); i++ {
		if args[i] == "--env" {
			env = append(env, args[i+1])
			i++
		} else {
			others = append(others, args[i])
		}
	}
	slices.Sort(env)
	for _, e := range env {
		others = append(others, "--env", e)
	}
	return others
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Values for which render has no option come to the right place in the manifest.
func TestChartsOwnValues(t *testing.T) {
	const more = "labels: {kueue.x-k8s.io/queue-name: night}\npodAnnotations: {note: here}\n" +
		"pod: {nodeSelector: {zone: a}, tolerations: [{operator: Exists}], priorityClassName: low}\n"
	for _, kind := range manifests.Kinds {
		t.Run(kind, func(t *testing.T) {
			values := "image: i\ncommand: [train]\nnodes: 2\nname: other\nkind: " + kind + "\n" + more
			if kind != manifests.MPIJob {
				values += "key: " + key + "\n"
			}
			text, err := template(t, "release", values)
			if err != nil {
				t.Fatal(err)
			}
			valid(t, text)
			all := objects(t, text)
			for _, o := range all {
				about := o["metadata"].(map[string]any)
				labels := about["labels"].(map[string]any)
				name, _, _ := strings.Cut(about["name"].(string), "-")
				if name != "other" || labels["kueue.x-k8s.io/queue-name"] != "night" {
					t.Errorf("%v has %v", o["kind"], about)
				}
			}
			if secret := all["Secret"]; (kind == manifests.MPIJob) != (secret == nil) ||
				secret != nil && secret["stringData"].(map[string]any)["key"] != key {
				t.Errorf("the Secret is %v", secret)
			}
			for _, want := range []string{"note: here", "zone: a", "operator: Exists", "priorityClassName: low"} {
				if !strings.Contains(text, want) {
					t.Errorf("there is no %q in\n%s", want, text)
				}
			}
			if strings.Contains(text, "release") {
				t.Errorf("the release's name is in\n%s", text)
			}
		})
	}
}

// The chart takes the longest names that a job can have.
func TestChartTakesLongNames(t *testing.T) {
	const rest = "\nimage: i\ncommand: [train]\nkey: 0123456789abcdef0123456789abcdef\n"
	for values, most := range map[string]int{"kind: job\nnodes: 65536": 50, "kind: jobset\nnodes: 10": 48,
		"kind: trainjob\nnodes: 100": 47, "kind: jobset\nnodes: 1000": 46, "kind: jobset\nnodes: 65536": 44} {
		name := strings.Repeat("n", most)
		for release, given := range map[string]string{name: "", "n": "\nname: " + name} {
			if _, err := template(t, release, values+rest+given); err != nil {
				t.Errorf("%s, name of %d characters: %v", values, most, err)
			}
		}
	}
}

// Options of horovodrun may stand before the program, and the program keeps its own.
func TestChartTakesOptions(t *testing.T) {
	const rest = "\nimage: i\nnodes: 2\n"
	for _, values := range []string{
		"kind: job\ncommand: [--verbose, -x, A=1, --timeline-filename=t, --dashboard, x, --nnodes, '7']\nkey: " + key,
		"kind: job\ncommand: [--, -np, '7']\nkey: " + key,
		"kind: jobset\nminNodes: 1\ncommand: [--leave-on, /f, --reset-limit, '3', x, mpirun]\nkey: " + key,
		"kind: mpijob\ncommand: [--mpi, --mpi-args=-v, x]",
	} {
		if _, err := template(t, "n", values+rest); err != nil {
			t.Errorf("%s: %v", values, err)
		}
	}
}

// The chart refuses values that no job can have. The error names the value.
func TestChartRefuses(t *testing.T) {
	const good = "image: i\ncommand: [train]\nnodes: 2\nkey: 0123456789abcdef0123456789abcdef\n"
	for _, c := range []struct{ name, values, want string }{
		{"n", "command: [train]\nnodes: 2\n", "missing property 'image'"},
		{"n", "image: i\nnodes: 2\n", "missing property 'command'"},
		{"n", "image: i\ncommand: [train]\n", "missing property 'nodes'"},
		{"n", good + "node: 2", "'node' not allowed"},
		{"n", good + "kind: pod", "at '/kind'"},
		{"n", good + "nodes: 0", "at '/nodes'"},
		{"n", good + "nodes: many", "at '/nodes'"},
		{"n", good + "nodes: 1.5", "at '/nodes'"},
		{"n", good + "image: a b", "at '/image'"},
		{"n", good + "image: registry/Mnist", "at '/image'"},
		{"n", good + "image: https://registry/mnist", "at '/image'"},
		{"n", good + "command: []", "at '/command'"},
		{"n", good + "command: ['']", "command: its first word is empty"},
		{"n", good + "command: train", "at '/command'"},
		{"n", good + "command: [/usr/bin/horovodrun, x]", "leave /usr/bin/horovodrun out"},
		{"n", good + "command: [torchrun, x]", "command: leave torchrun out: horovodrun"},
		{"n", good + "command: [-np, '4', x]", "command: -np: before the program only options"},
		{"n", good + "command: [--verbose, -x, A=1, --nnodes=7, x]", "command: --nnodes: before"},
		{"n", good + "command: [--bogus, x]", "command: --bogus: before"},
		{"n", good + "command: [--help]", "command: --help: before"},
		{"n", good + "command: [--mpi, x]", "command: --mpi: before"},
		{"n", good + "command: [--reset-limit, '3', x]", "command: --reset-limit: before"},
		{"n", good + "command: [--verbose, --, srun, x]", "command: leave srun out"},
		{"n", good + "minNodes: 1\ncommand: [--blacklist-cooldown-range, '2', '30', torchrun, x]",
			"leave torchrun out"},
		{"n", good + "minNodes: 1\ncommand: [--blacklist-cooldown-range, '2,30', torchrun, x]",
			"leave torchrun out"},
		{"n", good + "command: [-x, A=1]", "there is no program after the options"},
		{"n", good + "gpus: 99999999999", "at '/gpus'"},
		{"n", good + "grace: 9223372036854775807", "at '/grace'"},
		{"n", good + "minNodes: 3", "minNodes 3: at most nodes, 2"},
		{"n", good + "kind: trainjob\nminNodes: 1", "use the kind job, jobset or mpijob"},
		{"n", good + "grace: -1", "at '/grace'"},
		{"n", good + "slots: -1", "at '/slots'"},
		{"n", good + "gpus: -1", "at '/gpus'"},
		{"n", good + "cpu: 0", "at '/cpu'"},
		{"n", good + "cpu: 0.0m", "at '/cpu'"},
		{"n", good + "cpu: 8Gi", "at '/cpu'"},
		{"n", good + "memory: 64GB", "at '/memory'"},
		{"n", good + "memory: 500m", "at '/memory'"},
		{"n", good + "restarts: 1001", "at '/restarts'"},
		{"n", good + "key: PUT-64-HEXADECIMAL-DIGITS-HERE", "at '/key'"},
		{"n", good + "key: abcd", "at '/key'"},
		{"n", good + "secret: A_b", "at '/secret'"},
		{"n", good + "checkpoints: A_b", "at '/checkpoints'"},
		{"n", good + "env: {1A: x}", "invalid propertyName '1A'"},
		{"n", good + "env: {A: [x]}", "at '/env/A'"},
		{"n", good + "pod: {containers: []}", "'containers' not allowed"},
		{"1n", good, `name "1n": a letter is needed`},
		{"n.m", good, `name "n.m": a letter is needed`},
		{strings.Repeat("n", 51), good, "at most 50"},
		{strings.Repeat("n", 49), good + "kind: jobset", "at most 48"},
		{strings.Repeat("n", 48), good + "kind: trainjob\nnodes: 11", "at most 47"},
		{strings.Repeat("n", 45), good + "kind: jobset\nnodes: 65536", "at most 44"},
		{"n", good + "kind: jobset\nname: " + strings.Repeat("n", 49), "at '/name'"},
		{"n", good + "kind: jobset\nnodes: 101\nname: " + strings.Repeat("n", 47), "at '/name'"},
		{"n", "image: i\ncommand: [train]\nnodes: 2\n", "secret or key is needed"},
		{"n", good + "secret: s", "give one of the two"},
		{"n", good + "kind: mpijob", "no use for them"},
		{"n", good + "command: [horovodrun, train]", "leave horovodrun out"},
		{"n", good + "runtime: r", "runtime is for the kind trainjob"},
		{"n", good + "user: me", "user is for the kind mpijob"},
		{"n", good + "user: root", "at '/user'"},
		{"n", good + "kind: trainjob\nruntime: r\nrestarts: 1", "restarts is a matter of the runtime"},
		{"n", good + "kind: trainjob\nruntime: r\npod: {schedulerName: s}", "pod is a matter of the runtime"},
		{"n", good + "metricsPort: 65536", "at '/metricsPort'"},
		{"n", good + "metricsPort: 9400", "readers of the metrics need a token"},
		{"n", good + "metricsPort: 9400\nmetricsToken: short", "at '/metricsToken'"},
		{"n", good + "metricsToken: 0123456789abcdef", "give metricsPort, too"},
		{"n", good + "metricsPort: 29500\nmetricsToken: 0123456789abcdef", "the pods need this port themselves"},
		{"n", "image: i\ncommand: [train]\nnodes: 2\nsecret: s\nmetricsPort: 9400\nmetricsToken: 0123456789abcdef",
			"secret and metricsToken"},
		{"n", good + "metricsPort: 9400\nmetricsToken: 0123456789abcdef\nenv: {GOROVOD_TLS: 1}", "give metricsTLS"},
		{"n", good + "metricsPort: 9400\nmetricsToken: 0123456789abcdef\nenv: {GOROVOD_METRICS: 1}",
			"the chart sets this variable itself"},
		{"n", good + "env: {GOROVOD_TLS_CA: /x}", "give tls in its place"},
		{"n", good + "tls: cert\nenv: {GOROVOD_TLS: 0}", "the chart sets this variable itself"},
		{"n", good + "kind: trainjob\nruntime: there\ntls: cert", "tls is a matter of the runtime"},
		{"n", good + "env: {GOROVOD_CHECKPOINT_DIR: /x}", "no volume is mounted there"},
		{"n", good + "env: {PET_NNODES: 9}", "env.PET_NNODES: the chart sets this variable itself"},
	} {
		// The last of equal keys counts, as with several files of values.
		var values strings.Builder
		lines := strings.Split(strings.TrimSpace(c.values), "\n")
		for i, line := range lines {
			name, _, _ := strings.Cut(line, ":")
			if !slices.ContainsFunc(lines[i+1:], func(l string) bool { return strings.HasPrefix(l, name+":") }) {
				values.WriteString(line + "\n")
			}
		}
		if text, err := template(t, c.name, values.String()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %q: error %v; %q is needed. Rendered:\n%s", c.name, values.String(), err, c.want, text)
		}
	}
}

// helm lint finds nothing, and each value is in values.yaml and has a description.
func TestChartIsLinted(t *testing.T) {
	values, err := chartutil.ReadValues([]byte("image: i\ncommand: [train]\nnodes: 2\nsecret: s\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range lint.AllWithKubeVersion(chartDir, values, "team", nil).Messages {
		if m.Severity > support.InfoSev {
			t.Error(m)
		}
	}
	c := load(t)
	var schema struct {
		Properties map[string]struct{ Description string }
	}
	if err := json.Unmarshal(c.Schema, &schema); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range schema.Properties {
		if p.Description == "" {
			t.Errorf("values.schema.json: %s has no description", name)
		}
		said := strings.Contains(string(text), "\n"+name+":") || strings.Contains(string(text), "\n# "+name+":")
		if name != "global" && !said {
			t.Errorf("values.yaml lacks %s", name)
		}
	}
	for name := range c.Values {
		if _, known := schema.Properties[name]; !known {
			t.Errorf("values.schema.json lacks %s", name)
		}
	}
}
