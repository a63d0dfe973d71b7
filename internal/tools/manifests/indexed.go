package manifests

import "strconv"

// With exitUsage, exitNotExecutable and exitNotFound horovodrun says that the command line makes no sense, so another
// start does not help. exitLeft is the code of a pod that left an elastic job after SIGTERM.
const (
	exitUsage         = 2
	exitNotExecutable = 126
	exitNotFound      = 127
	exitLeft          = 143
)

// onExit is a rule for a pod whose horovodrun has ended with one of the codes.
func onExit(action string, codes ...int) podFailureRule {
	return podFailureRule{Action: action,
		OnExitCodes: &exitCodes{ContainerName: "node", Operator: "In", Values: codes}}
}

// indexed is the Job.
func (j *Job) indexed() object[jobSpec] {
	return object[jobSpec]{APIVersion: "batch/v1", Kind: "Job", Metadata: j.metadata(j.Name), Spec: j.jobSpec()}
}

// jobSpec is the Job's specification. What starts again after a failure depends on the kind:
//
//	job      all pods. If one fails, all fail, so a restart costs as many failures as there are pods.
//	jobset   all pods, by the JobSet's controller.
//	elastic  the pod that failed, or was drained, evicted or deleted; only the former counts as a failure. When pod 0
//	         has succeeded, the job has.
func (j *Job) jobSpec() *jobSpec {
	spec := &jobSpec{Completions: j.Nodes, Parallelism: j.Nodes, CompletionMode: "Indexed", Template: j.node()}
	refused := onExit("FailJob", exitUsage, exitNotExecutable, exitNotFound)
	switch {
	case j.Least > 0:
		spec.BackoffPerIndex = &j.Restarts
		spec.PodFailurePolicy = &podFailure{Rules: []podFailureRule{
			{Action: "Ignore", OnPodConditions: []podCondition{{"DisruptionTarget", "True"}}},
			onExit("Ignore", exitLeft), refused}}
		spec.SuccessPolicy = &success{Rules: []successRule{{SucceededIndexes: "0"}}}
	case j.Kind == JobSet:
		spec.BackoffLimit = new(int)
	default:
		failures := j.Restarts * j.Nodes
		spec.BackoffLimit = &failures
		if j.Restarts > 0 {
			spec.PodFailurePolicy = &podFailure{Rules: []podFailureRule{refused}}
		}
	}
	return spec
}

// nodes is the number of pods, in the form for horovodrun.
func (j *Job) nodes() string {
	if j.Least > 0 {
		return strconv.Itoa(j.Least) + ":" + strconv.Itoa(j.Nodes)
	}
	return strconv.Itoa(j.Nodes)
}

// jobSet is a JobSet with one indexed Job. Its controller starts all pods again if one fails, and makes the Service.
// The pods of an elastic job start again one by one.
func (j *Job) jobSet() object[jobSetSpec] {
	spec := &jobSetSpec{
		Network: &jobSetNetwork{EnableDNSHostnames: true, PublishNotReady: true, Subdomain: j.Name},
		ReplicatedJobs: []replicatedJob{{Name: "node", Replicas: 1,
			Template: jobTemplate{Metadata: &metadata{Labels: j.labels()}, Spec: j.jobSpec()}}},
	}
	if j.Restarts > 0 && j.Least == 0 {
		spec.FailurePolicy = &maxRestarts{j.Restarts}
	}
	return object[jobSetSpec]{APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: "JobSet", Metadata: j.metadata(j.Name),
		Spec: spec}
}
