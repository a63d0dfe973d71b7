package manifests

import "maps"

const trainerVersion = "trainer.kubeflow.org/v1alpha1"

// runtime is a runtime of Kubeflow Trainer for horovodrun. Trainer gives its pods the variables of its torch runtime,
// so torchrun works in it, too. The runtime that jobs share belongs to no namespace and has no job's settings; a job
// that mounts a volume, shows metrics or starts again needs a runtime of its own.
func (j *Job) runtime() object[runtimeSpec] {
	labels := map[string]string{"trainer.kubeflow.org/framework": "torch"}
	step := map[string]string{"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
	mounts, volumes := j.volumes(true, j.Metrics > 0)
	no := false
	pod := podTemplate{Spec: podSpec{RestartPolicy: "Never", ServiceLinks: &no, AutomountToken: &no,
		Grace: j.Grace,
		Containers: []container{{Name: "node", Image: j.Image, Ports: j.metricsPorts(),
			SecurityContext: confined(), Mounts: mounts}},
		Volumes: volumes}}
	spec := jobSetSpec{
		Network: &jobSetNetwork{EnableDNSHostnames: true, PublishNotReady: true},
		ReplicatedJobs: []replicatedJob{{Name: "node", Template: jobTemplate{Metadata: &metadata{Labels: step},
			Spec: runtimeJobSpec{Template: pod}}}}}
	about := metadata{Name: DefaultRuntime, Labels: labels}
	if j.Restarts > 0 {
		spec.FailurePolicy = &maxRestarts{j.Restarts}
	}
	if j.ownRuntime() {
		about = j.metadata(j.Name)
		maps.Copy(about.Labels, labels)
	}
	return object[runtimeSpec]{APIVersion: trainerVersion, Kind: j.runtimeRef().Kind, Metadata: about,
		Spec: &runtimeSpec{MLPolicy: mlPolicy{NumNodes: 1}, Template: jobSetTemplate{spec}}}
}

// ownRuntime reports whether the job must have its own runtime: it shares none, or the shared one lacks something that
// the job needs.
func (j *Job) ownRuntime() bool {
	return j.Runtime == "" && (j.Apart || j.Grace > 0 || j.Restarts > 0 || j.Claim != "" || j.Metrics > 0 ||
		j.TLS != "")
}

// runtimeRef is the runtime that the TrainJob uses.
func (j *Job) runtimeRef() reference {
	switch {
	case j.Runtime != "":
		return reference{j.Runtime, "ClusterTrainingRuntime"}
	case j.ownRuntime():
		return reference{j.Name, "TrainingRuntime"}
	}
	return reference{DefaultRuntime, "ClusterTrainingRuntime"}
}

// trainJob is the TrainJob. The key comes by a variable, because every version of TrainJob can set variables, while
// versions differ in how to mount a Secret into one job.
func (j *Job) trainJob() object[trainJobSpec] {
	key := Env{Name: keyVariable, ValueFrom: &envSource{keySelector{Name: j.secretName(), Key: secretKey}}}
	return object[trainJobSpec]{APIVersion: trainerVersion, Kind: "TrainJob",
		Metadata: j.metadata(j.Name),
		Spec: &trainJobSpec{
			RuntimeRef: j.runtimeRef(),
			Trainer: trainer{Image: j.Image, Command: j.command(), NumNodes: j.Nodes, NumProcPerNode: j.Slots,
				Env: j.env(key), Resources: j.resources()},
		}}
}
