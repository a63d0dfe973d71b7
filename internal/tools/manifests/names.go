package manifests

import "strings"

// transformers tell kustomize what it does not know about the job's objects: which fields name other objects, and where
// images are. With them, namePrefix, nameSuffix, images and generated Secrets work for all kinds of jobs.
type transformers struct {
	NameReference []nameReference `yaml:"nameReference"`
	Images        []fieldSpec     `yaml:",omitempty"`
}

// nameReference lists the fields that hold the name of an object of Kind.
type nameReference struct {
	Kind       string
	FieldSpecs []fieldSpec `yaml:"fieldSpecs"`
}

// fieldSpec is the field at Path in objects of Kind, or of all kinds.
type fieldSpec struct {
	Kind string `yaml:",omitempty"`
	Path string
}

// Paths in objects, which several of Kubernetes' own and custom kinds share.
const (
	jobSetPods   = "spec/replicatedJobs/template/spec/template/"
	volumeSecret = "spec/volumes/secret/secretName"
	volumeClaim  = "spec/volumes/persistentVolumeClaim/claimName"
)

func (j *Job) transformers() transformers {
	switch j.Kind {
	case IndexedJob:
		return transformers{NameReference: []nameReference{
			{"Service", []fieldSpec{{"Job", "spec/template/spec/subdomain"}}},
			{"Job", j.instances("Job", "spec/template/")},
		}}
	case JobSet:
		return transformers{NameReference: []nameReference{
			{"Secret", []fieldSpec{{"JobSet", jobSetPods + volumeSecret}}},
			{"PersistentVolumeClaim", []fieldSpec{{"JobSet", jobSetPods + volumeClaim}}},
			{"JobSet", append(j.instances("JobSet", "spec/replicatedJobs/template/", jobSetPods),
				fieldSpec{"JobSet", "spec/network/subdomain"}, fieldSpec{"JobSet", jobSetPods + "spec/subdomain"})},
		}}
	case MPIJob:
		const launcher, worker = "spec/mpiReplicaSpecs/Launcher/template/", "spec/mpiReplicaSpecs/Worker/template/"
		return transformers{NameReference: []nameReference{
			{"Secret", []fieldSpec{{"MPIJob", launcher + volumeSecret}}},
			{"PersistentVolumeClaim", []fieldSpec{{"MPIJob", launcher + volumeClaim},
				{"MPIJob", worker + volumeClaim}}},
			{"MPIJob", j.instances("MPIJob", launcher, worker)},
		}}
	}
	const runtimePods = "spec/template/spec/replicatedJobs/template/spec/template/"
	return transformers{
		NameReference: []nameReference{
			{"Secret", []fieldSpec{{"TrainJob", "spec/trainer/env/valueFrom/secretKeyRef/name"},
				{"TrainingRuntime", runtimePods + volumeSecret}}},
			{"PersistentVolumeClaim", []fieldSpec{{"TrainingRuntime", runtimePods + volumeClaim}}},
			{j.runtimeRef().Kind, []fieldSpec{{"TrainJob", "spec/runtimeRef/name"}}},
			{"TrainJob", j.instances("TrainJob")},
		},
		Images: []fieldSpec{{"TrainJob", "spec/trainer/image"}},
	}
}

// instanceLabel holds the job's name, on all objects of the job and most pods.
const instanceLabel = "app.kubernetes.io/instance"

// instances are the labels and selectors that hold the job's name: those of the job's objects, those of its pods (whose
// templates are at templates in objects of kind), and those that choose the pods.
func (j *Job) instances(kind string, templates ...string) []fieldSpec {
	label := func(key string) string { return strings.ReplaceAll(key, "/", `\/`) }
	all := []fieldSpec{{Path: "metadata/labels/" + label(instanceLabel)}}
	for _, template := range templates {
		all = append(all, fieldSpec{kind, template + "metadata/labels/" + label(instanceLabel)})
	}
	for key, value := range j.pods() {
		if value != j.Name {
			continue
		}
		all = append(all, fieldSpec{"NetworkPolicy", "spec/podSelector/matchLabels/" + label(key)},
			fieldSpec{"NetworkPolicy", "spec/ingress/from/podSelector/matchLabels/" + label(key)},
			fieldSpec{"PodDisruptionBudget", "spec/selector/matchLabels/" + label(key)})
		if kind == "Job" || j.Metrics > 0 {
			all = append(all, fieldSpec{"Service", "spec/selector/" + label(key)})
		}
	}
	return all
}
