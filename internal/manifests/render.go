package manifests

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Render returns the manifests, as documents of one YAML stream. j must have passed Check.
func (j *Job) Render() ([]byte, error) {
	var out bytes.Buffer
	for _, d := range j.documents() {
		text, err := encode(d.object)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n" + d.comment)
		out.Write(text)
	}
	return out.Bytes(), nil
}

// encode is v as YAML, with the manifests' indentation.
func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	var tree yaml.Node
	if err := tree.Encode(v); err != nil {
		return nil, err
	}
	quote(&tree)
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(&tree); err != nil {
		return nil, err
	}
	err := e.Close()
	return out.Bytes(), err
}

// quote quotes texts that are special in YAML 1.1, which many programs read: = is its default value, and << its merge
// key. The encoder quotes the others.
func quote(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && (n.Value == "=" || n.Value == "<<") {
		n.Tag, n.Style = "!!str", yaml.DoubleQuotedStyle
	}
	for _, child := range n.Content {
		quote(child)
	}
}

// document is an object, and a comment above it.
type document struct {
	comment string
	object  any
}

// documents are the objects in the order in which a cluster should get them: the job comes last, after everything that
// it needs.
func (j *Job) documents() (all []document) {
	if j.Kind == IndexedJob {
		all = append(all, document{object: j.service()})
	}
	if j.Metrics > 0 {
		all = append(all, document{object: j.metricsService()})
	}
	if j.needsSecret() && j.Secret == "" {
		all = append(all, document{j.secretComment(), j.secret()})
	}
	all = append(all, document{object: j.policy()})
	for _, b := range j.budgets() {
		all = append(all, document{object: b})
	}
	switch j.Kind {
	case IndexedJob:
		return append(all, document{object: j.indexed()})
	case JobSet:
		return append(all, document{object: j.jobSet()})
	case MPIJob:
		return append(all, document{object: j.mpiJob()})
	}
	if j.Runtime == "" {
		all = append(all, document{object: j.runtime()})
	}
	return append(all, document{object: j.trainJob()})
}

func (j *Job) secretComment() string {
	namespace := ""
	if j.Namespace != "" {
		namespace = " --namespace " + j.Namespace
	}
	var entries []string
	for _, name := range slices.Sorted(maps.Keys(j.secret().StringData)) {
		entries = append(entries, "--from-literal="+name+"=$(openssl rand -hex 32)")
	}
	what := "A placeholder: the job does not start with it. Put a key into its place, which"
	switch {
	case len(entries) > 1:
		what = "Placeholders: no job starts with them. Put a key and a token into their places, each as"
	case j.Kind == MPIJob:
		what = "A placeholder: the job does not start with it. Put a token into its place, which"
	}
	return fmt.Sprintf(`# %[4]s "openssl rand -hex 32" makes,
# or keep it out of files: leave this document out by --secret %[1]s, and make the Secret by
#   kubectl create secret generic %[1]s%[2]s %[3]s
`, j.secretName(), namespace, strings.Join(entries, " \\\n#     "), what)
}
