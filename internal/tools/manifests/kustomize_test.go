package manifests

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A base can be written again, also with other options. It holds the manifests that render prints.
func TestBase(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "base")
	for _, nodes := range []string{"3", "2"} {
		line := strings.Fields("jobset n --image i --nodes " + nodes)
		if text := rendered(t, append(line, "-o", dir, "--", "train")...); text != "" {
			t.Errorf("with -o render printed %q", text)
		}
		printed, next, _ := strings.Cut(rendered(t, append(line, "--", "train")...), "# Next,")
		if !strings.Contains(next, "kubectl apply -f n.yaml") {
			t.Errorf("render ends with %q, not with the next command", next)
		}
		if got, want := read(t, dir, manifestsFile), mark+printed; got != want {
			t.Errorf("%s holds\n%s\nand render prints\n%s", manifestsFile, got, want)
		}
	}
	if text := read(t, dir, kustomizationFile); !strings.Contains(text, "resources:\n  - manifests.yaml\n") {
		t.Errorf("%s:\n%s", kustomizationFile, text)
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A file of another author stays, and then nothing is written.
func TestBaseKeepsOthersFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, kustomizationFile), []byte("resources: []\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	code, err := Main("gorovod k8s", strings.Fields("render job n --image i --nodes 2 -o "+dir+" -- x"), &out, nil)
	if err == nil || code != 1 || !strings.Contains(err.Error(), kustomizationFile+" is there, and render has not") {
		t.Errorf("exit code %d, error %v", code, err)
	}
	if text := read(t, dir, kustomizationFile); text != "resources: []\n" {
		t.Errorf("%s is now %q", kustomizationFile, text)
	}
	if _, err := os.Stat(filepath.Join(dir, manifestsFile)); err == nil {
		t.Errorf("%s was written", manifestsFile)
	}
}

// A base that could not be written whole leaves the files as they were, and can be written again.
func TestBaseAfterAFailure(t *testing.T) {
	dir := t.TempDir()
	line := strings.Fields("render job n --image i --nodes 2 -o " + dir + " -- x")
	for _, name := range []string{namesFile, manifestsFile, kustomizationFile} {
		stands := partial(dir, name) // for a full disk, which refuses one file
		if err := os.MkdirAll(filepath.Join(stands, "in the way"), 0o777); err != nil {
			t.Fatal(err)
		}
		if code, err := Main("gorovod k8s", line, io.Discard, nil); err == nil || code != 1 {
			t.Fatalf("%s could not be written: %d, %v", name, code, err)
		}
		if err := os.RemoveAll(stands); err != nil {
			t.Fatal(err)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
	}
	if err := os.WriteFile(partial(dir, namesFile), []byte("# Wri"), 0o666); err != nil { // as SIGKILL leaves it
		t.Fatal(err)
	}
	for range 2 {
		if _, err := Main("gorovod k8s", line, io.Discard, nil); err != nil {
			t.Fatal(err)
		}
		if left, _ := os.ReadDir(dir); len(left) != 3 || !strings.HasPrefix(read(t, dir, namesFile), mark) {
			t.Errorf("there are %v", left)
		}
	}
}

// The TrainJob of a base comes with a runtime of its own, because overlays give each object a namespace.
func TestBaseBelongsToNamespaces(t *testing.T) {
	dir := t.TempDir()
	rendered(t, strings.Fields("trainjob n --image i --nodes 2 -o "+dir+" -- x")...)
	text := read(t, dir, manifestsFile)
	if strings.Contains(text, "Cluster") || !strings.Contains(text, "kind: TrainingRuntime") {
		t.Errorf("%s has a ClusterTrainingRuntime, or no TrainingRuntime:\n%s", manifestsFile, text)
	}
}
