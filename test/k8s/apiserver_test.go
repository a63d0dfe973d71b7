package k8s

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	jsonyaml "sigs.k8s.io/yaml"

	"github.com/gorovod/gorovod/internal/tools/manifests"
)

// make k8s-apiserver sets both.
var (
	apiserver = flag.String("apiserver", "", "the program kube-apiserver, for TestAPIServer")
	etcd      = flag.String("etcd", "etcd", "the program etcd, for TestAPIServer")
)

// A real kube-apiserver accepts the definitions of the custom resources, and then everything that render prints, what
// the chart makes, and the example for kustomize. No controller runs, because this tests only what clusters accept.
func TestAPIServer(t *testing.T) {
	if *apiserver == "" {
		t.Skip("no -apiserver: make k8s-apiserver builds one")
	}
	c := start(t)
	t.Logf("kube-apiserver %s", c.version(t))
	for _, kind := range slices.Sorted(maps.Keys(definitions)) {
		c.define(t, definitions[kind])
		t.Logf("accepted: CustomResourceDefinition of %s", kind)
	}
	for name, stream := range streams(t) {
		t.Run(name, func(t *testing.T) { c.try(t, stream) })
	}
	t.Run("faults", func(t *testing.T) {
		for _, f := range faults {
			// The operator has to refuse what the schema of a definition does not. The server answers 500 to an object
			// that does not fit its type.
			if f.byOperator {
				continue
			}
			if code, said := c.applyFirst(t, f.spoilt(t)); code < 400 {
				t.Errorf("%s with %q: %d %s", f.kind, f.new, code, said)
			} else {
				t.Logf("refused: %s with %q: %s", f.kind, f.new, said)
			}
		}
	})
}

// streams returns all manifests, by their sources.
func streams(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, kind := range manifests.Kinds {
		for name, options := range map[string][]string{"few": few, "many": many} {
			all["render/"+kind+"/"+name] = string(render(t, append([]string{kind, "mnist"}, options...)...))
		}
		values := "image: i\ncommand: [train]\nnodes: 2\nrestarts: 2\ncpu: 4\nkind: " + kind + "\n"
		if kind != manifests.MPIJob {
			values += "key: " + key + "\n"
		}
		text, err := template(t, "mnist", values)
		if err != nil {
			t.Fatal(err)
		}
		all["helm/"+kind] = text
	}
	files, err := filepath.Glob("../../internal/tools/manifests/testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all["kept/"+filepath.Base(file)] = string(text)
	}
	all["kustomize"] = kustomize(t, overlay(t))
	return all
}

// try applies the objects of a stream as kubectl apply --server-side does, and deletes them again.
func (c *cluster) try(t *testing.T, stream string) {
	var paths []string
	for _, d := range documents(t, []byte(stream)) {
		path := c.path(t, d)
		kind := path[strings.LastIndex(path[:strings.LastIndex(path, "/")], "/")+1:]
		if code, said := c.apply(t, path, d); code != http.StatusCreated {
			t.Errorf("refused: %s: %d %s\n%s", kind, code, said, d)
			continue
		}
		t.Logf("accepted: %s", kind)
		paths = append(paths, path)
	}
	for _, path := range slices.Backward(paths) {
		if code, said := c.do(t, http.MethodDelete, path+"?propagationPolicy=Background", "", nil); code >= 300 {
			t.Errorf("%s is not deleted: %d %s", path, code, said)
		}
	}
}

// applyFirst applies the objects of a stream until one is refused, without keeping any, and returns the last answer.
func (c *cluster) applyFirst(t *testing.T, stream string) (code int, said string) {
	for _, d := range documents(t, []byte(stream)) {
		if code, said = c.apply(t, c.path(t, d)+"?dryRun=All", d); code >= 400 {
			break
		}
	}
	return code, said
}

// path is the server's path for the object of a document.
func (c *cluster) path(t *testing.T, document []byte) string {
	t.Helper()
	var o struct {
		APIVersion, Kind string
		Metadata         struct{ Name, Namespace string }
	}
	if err := jsonyaml.Unmarshal(document, &o); err != nil {
		t.Fatal(err)
	}
	root := "/apis/" + o.APIVersion
	if !strings.Contains(o.APIVersion, "/") {
		root = "/api/" + o.APIVersion
	}
	r := c.resource(t, root, o.Kind)
	if !r.Namespaced {
		return fmt.Sprintf("%s/%s/%s", root, r.Name, o.Metadata.Name)
	}
	namespace := "default"
	if o.Metadata.Namespace != "" {
		namespace = o.Metadata.Namespace
	}
	return fmt.Sprintf("%s/namespaces/%s/%s/%s", root, namespace, r.Name, o.Metadata.Name)
}
