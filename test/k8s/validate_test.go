// Package k8s checks the manifests of gorovod k8s render by the rules of clusters: the schemas of custom resources as
// their projects ship them, and Kubernetes' own types. It is a module of its own, because Kubernetes' modules are
// large.
package k8s

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	mpi "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/v2beta1"
	mpivalidation "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/validation"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"go.yaml.in/yaml/v3"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	jsonyaml "sigs.k8s.io/yaml"
)

// types makes an empty object of each kind that manifests may have.
var types = map[string]func() any{
	"v1/Service":                                    func() any { return &core.Service{} },
	"v1/Secret":                                     func() any { return &core.Secret{} },
	"networking.k8s.io/v1/NetworkPolicy":            func() any { return &networking.NetworkPolicy{} },
	"policy/v1/PodDisruptionBudget":                 func() any { return &policy.PodDisruptionBudget{} },
	"batch/v1/Job":                                  func() any { return &batch.Job{} },
	"jobset.x-k8s.io/v1alpha2/JobSet":               func() any { return &jobset.JobSet{} },
	"kubeflow.org/v2beta1/MPIJob":                   func() any { return &mpi.MPIJob{} },
	"trainer.kubeflow.org/v1alpha1/TrainJob":        func() any { return &trainer.TrainJob{} },
	"trainer.kubeflow.org/v1alpha1/TrainingRuntime": func() any { return &trainer.TrainingRuntime{} },
	"trainer.kubeflow.org/v1alpha1/ClusterTrainingRuntime": func() any {
		return &trainer.ClusterTrainingRuntime{}
	},
}

// definitions are the files with the schemas of custom resources: a module, and the place in it.
var definitions = map[string][2]string{
	"MPIJob":                 {"github.com/kubeflow/mpi-operator", "manifests/base/kubeflow.org_mpijobs.yaml"},
	"JobSet":                 {"sigs.k8s.io/jobset", "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"},
	"TrainJob":               trainerFile("trainjobs"),
	"TrainingRuntime":        trainerFile("trainingruntimes"),
	"ClusterTrainingRuntime": trainerFile("clustertrainingruntimes"),
}

func trainerFile(plural string) [2]string {
	return [2]string{"github.com/kubeflow/trainer/v2", "manifests/base/crds/trainer.kubeflow.org_" + plural + ".yaml"}
}

// documents are the parts of a YAML stream, each as YAML.
func documents(t *testing.T, stream []byte) (all [][]byte) {
	t.Helper()
	d := yaml.NewDecoder(bytes.NewReader(stream))
	for {
		var n yaml.Node
		err := d.Decode(&n)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, stream)
		}
		text, err := yaml.Marshal(&n)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
}

// check returns a document's kind, and what is wrong with the document.
func check(t *testing.T, document []byte) (kind string, problems []error) {
	t.Helper()
	var about struct{ APIVersion, Kind string }
	if err := jsonyaml.Unmarshal(document, &about); err != nil {
		return "", []error{err}
	}
	make := types[about.APIVersion+"/"+about.Kind]
	if make == nil {
		return about.Kind, []error{fmt.Errorf("nobody knows %s %s", about.APIVersion, about.Kind)}
	}
	object := make()
	if err := jsonyaml.UnmarshalStrict(document, object); err != nil {
		problems = append(problems, err)
	}
	if job, ok := object.(*mpi.MPIJob); ok {
		mpi.SetDefaults_MPIJob(job)
		for _, e := range mpivalidation.ValidateMPIJob(job) {
			problems = append(problems, e)
		}
	}
	if file, custom := definitions[about.Kind]; custom {
		var object map[string]any
		if err := jsonyaml.Unmarshal(document, &object); err != nil {
			return about.Kind, []error{err}
		}
		_, version, _ := strings.Cut(about.APIVersion, "/")
		problems = append(problems, checkCustom(t, file, version, object)...)
	}
	return about.Kind, problems
}

// checkCustom checks an object as a cluster with the definition does: unknown fields, defaults, the schema, its rules,
// and lists whose entries must differ.
func checkCustom(t *testing.T, file [2]string, version string, object map[string]any) (problems []error) {
	t.Helper()
	v1 := definition(t, file)
	var crd apiextensions.CustomResourceDefinition
	if err := extensions.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(v1, &crd,
		nil); err != nil {
		t.Fatal(err)
	}
	whole, err := apiextensions.GetSchemaForVersion(&crd, version)
	if err != nil || whole == nil {
		t.Fatalf("%s has no schema of version %s: %v", file, version, err)
	}
	structural, err := schema.NewStructural(whole.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range pruning.PruneWithOptions(object, structural, true, schema.UnknownFieldPathOptions{
		TrackUnknownFieldPaths: true}) {
		problems = append(problems, fmt.Errorf("unknown field %s", path))
	}
	defaulting.Default(object, structural)
	validator, _, err := validation.NewSchemaValidator(whole.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	found := validation.ValidateCustomResource(nil, object, validator)
	found = append(found, listtype.ValidateListSetsAndMaps(nil, structural, object)...)
	rules := cel.NewValidator(structural, true, celconfig.PerCallLimit)
	broken, _ := rules.Validate(context.Background(), field.NewPath(""), structural, object, nil, math.MaxInt64)
	for _, e := range append(found, broken...) {
		problems = append(problems, e)
	}
	return problems
}

// definition reads a CustomResourceDefinition from a module.
func definition(t *testing.T, file [2]string) *extensions.CustomResourceDefinition {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", file[0]).Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), file[1]))
	if err != nil {
		t.Fatal(err)
	}
	var crd extensions.CustomResourceDefinition
	if err := jsonyaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	return &crd
}
