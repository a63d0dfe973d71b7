package manifests

// service gives the pods stable names. A JobSet, a TrainJob and an MPIJob have a Service from their controller.
func (j *Job) service() object[serviceSpec] {
	return object[serviceSpec]{APIVersion: "v1", Kind: "Service", Metadata: j.metadata(j.Name), Spec: &serviceSpec{
		ClusterIP: "None", PublishNotReady: true, Selector: j.pods(), Ports: []servicePort{{"meet", port}}}}
}

// Placeholder is the Secret's content until a user fills it in. It is no valid key, so no job starts with it.
const Placeholder = "PUT-64-HEXADECIMAL-DIGITS-HERE"

func (j *Job) secret() object[none] {
	entries := map[string]string{}
	if j.Kind != MPIJob { // an MPIJob's operator makes keys for ssh
		entries[secretKey] = Placeholder
	}
	if j.Metrics > 0 {
		entries[tokenKey] = TokenPlaceholder
	}
	return object[none]{APIVersion: "v1", Kind: "Secret", Metadata: j.metadata(j.secretName()), Type: "Opaque",
		StringData: entries}
}

// policy lets only the job's own pods reach the job's pods, because ranks listen on ports that the kernel chooses.
// Every pod may reach the port of the metrics, which needs a token, because the manifests do not know where Prometheus
// runs.
func (j *Job) policy() object[policySpec] {
	rules := []ingress{{From: []peer{{selector{j.pods()}}}}}
	if j.Metrics > 0 {
		rules = append(rules, ingress{Ports: []policyPort{{j.Metrics}}})
	}
	return object[policySpec]{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy", Metadata: j.metadata(j.Name),
		Spec: &policySpec{PodSelector: selector{j.pods()}, PolicyTypes: []string{"Ingress"}, Ingress: rules}}
}

// budgets make a drain wait until the job is over, or an elastic job has pods to spare. They count pods, because
// Kubernetes refuses percentages and maxUnavailable for pods whose controller cannot be scaled. An MPIJob has a second
// budget for its launcher, which no spare worker can replace.
func (j *Job) budgets() []object[budgetSpec] {
	pods := j.Nodes
	if j.Least > 0 {
		pods = j.Least
	}
	if j.Kind == MPIJob {
		return []object[budgetSpec]{j.budget(j.Name, pods, j.mpiPods("worker")),
			j.budget(j.Name+"-launcher", 1, j.mpiPods("launcher"))}
	}
	return []object[budgetSpec]{j.budget(j.Name, pods, j.pods())}
}

func (j *Job) budget(name string, pods int, labels map[string]string) object[budgetSpec] {
	return object[budgetSpec]{APIVersion: "policy/v1", Kind: "PodDisruptionBudget", Metadata: j.metadata(name),
		Spec: &budgetSpec{MinAvailable: pods, Selector: selector{labels}}}
}
