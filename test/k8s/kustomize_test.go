package k8s

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/gorovod/gorovod/internal/tools/manifests"
)

// kustomize returns the output of kubectl kustomize DIR.
func kustomize(t *testing.T, dir string) string {
	t.Helper()
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := all.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// base writes a base for kustomize into the folder base of dir.
func base(t *testing.T, dir string, args ...string) {
	t.Helper()
	args = append([]string{"-o", filepath.Join(dir, "base")}, args...)
	if text := render(t, args...); len(text) > 0 {
		t.Errorf("with -o render prints %q", text)
	}
}

// valid fails the test unless the stream has documents and a cluster would accept all of them.
func valid(t *testing.T, stream string) {
	t.Helper()
	all := documents(t, []byte(stream))
	if len(all) < 3 {
		t.Errorf("there are %d documents", len(all))
	}
	for _, d := range all {
		if kind, problems := check(t, d); len(problems) > 0 {
			t.Errorf("%s: %v\n%s", kind, problems, d)
		}
	}
}

// An overlay renames everything consistently: each reference to an object or its pods has the new name.
func TestOverlaysRename(t *testing.T) {
	const changes = "resources: [../base]\nnamePrefix: my-\nnamespace: team\nimages:\n" +
		"  - {name: registry/mnist, newName: elsewhere/mnist, newTag: v2}\n"
	for _, kind := range manifests.Kinds {
		for _, more := range [][]string{nil, {"--restarts", "1", "--checkpoints", "disk"},
			{"--metrics-port", "9400"}} {
			t.Run(kind, func(t *testing.T) {
				dir := t.TempDir()
				base(t, dir, slices.Concat([]string{kind, "mnist"}, more, few)...)
				write(t, filepath.Join(dir, "over", "kustomization.yaml"), changes)
				text := kustomize(t, filepath.Join(dir, "over"))
				valid(t, text)
				for line := range strings.Lines(text) {
					field := strings.TrimSpace(line)
					switch {
					case strings.HasSuffix(field, "image: elsewhere/mnist:v2"), field == "namespace: team",
						!strings.Contains(field, "mnist"):
					case !strings.Contains(field, "my-mnist"):
						t.Errorf("%s: the overlay has not changed %q in\n%s", kind, field, text)
					}
				}
			})
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// example is the command that has written deploy/kustomize/base.
var example = strings.Fields("job mnist --image registry/mnist --nodes 4 --gpus 8 --secret mnist -- python train.py")

const examples = "../../deploy/kustomize"

// overlay copies the example's overlay beside a base that render has just written, with a key, and returns its folder.
func overlay(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	base(t, dir, example...)
	if err := os.CopyFS(filepath.Join(dir, "overlay"), os.DirFS(filepath.Join(examples, "overlay"))); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "overlay", "key"), key+"\n")
	return filepath.Join(dir, "overlay")
}

// The example's base is what render writes. A cluster accepts its overlay, with the user's key.
func TestExampleOverlay(t *testing.T) {
	dir := overlay(t)
	same(t, filepath.Join(dir, "../base"), filepath.Join(examples, "base"))
	text := kustomize(t, dir)
	valid(t, text)
	for _, want := range []string{"secretName: night-mnist-", "image: registry/mnist:v2", "subdomain: night-mnist",
		"topology.kubernetes.io/zone: zone-a", "namespace: team"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
}

// same fails the test unless two folders have the same files.
func same(t *testing.T, want, got string) {
	t.Helper()
	files := func(dir string) map[string]string {
		all := map[string]string{}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			all[e.Name()] = string(text)
		}
		return all
	}
	if !maps.Equal(files(want), files(got)) {
		t.Errorf("%s is not what this writes: gorovod k8s render %s -o %[1]s", got, strings.Join(example, " "))
	}
}
