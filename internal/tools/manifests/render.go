package manifests

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Render returns the manifests, as documents of one YAML stream, and after them a comment with the commands that start
// the job. j must have passed Check.
func (j *Job) Render() ([]byte, error) {
	stream, err := j.stream()
	if err != nil {
		return nil, err
	}
	return append(stream, j.next()...), nil
}

// stream is the documents of Render.
func (j *Job) stream() ([]byte, error) {
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
	add := func(comment string, object any) { all = append(all, document{comment, object}) }
	if j.Kind == IndexedJob {
		add("# The names by which the pods find one another.\n", j.service())
	}
	if j.Metrics > 0 {
		add("# Where Prometheus finds the page of the job's metrics.\n", j.metricsService())
	}
	if j.needsSecret() && j.Secret == "" {
		add(j.secretComment(), j.secret())
	}
	add("# Ranks listen on ports that the kernel chooses, so only the job's own pods may reach them.\n", j.policy())
	for _, b := range j.budgets() {
		add("# A drain of a node waits while it would leave fewer pods than these.\n", b)
	}
	switch j.Kind {
	case IndexedJob:
		add(j.jobComment(), j.indexed())
	case JobSet:
		add(j.jobComment(), j.jobSet())
	case MPIJob:
		add(j.jobComment(), j.mpiJob())
	default:
		if j.Runtime == "" {
			add("# How jobs of gorovod start: all TrainJobs that name this runtime share it.\n", j.runtime())
		}
		add(j.jobComment(), j.trainJob())
	}
	return all
}

func (j *Job) jobComment() string {
	if j.Least > 0 {
		return fmt.Sprintf("# The job: %d pods. It goes on while %d of them are left.\n", j.Nodes, j.Least)
	}
	return fmt.Sprintf("# The job: %d pods, which start together and end together.\n", j.Nodes)
}

// next is a comment with the commands by which the user starts the job and reads its output.
func (j *Job) next() string {
	namespace := ""
	if j.Namespace != "" {
		namespace = " --namespace " + j.Namespace
	}
	fill := ""
	if j.needsSecret() && j.Secret == "" {
		fill = "  # with the placeholders filled in"
	}
	return fmt.Sprintf(`# Next, with these lines in %[1]s.yaml:
#   kubectl apply -f %[1]s.yaml%[3]s
#   kubectl logs%[2]s -f -l app.kubernetes.io/instance=%[1]s --all-containers --prefix
`, j.Name, namespace, fill)
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
