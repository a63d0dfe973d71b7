package manifests

import (
	"fmt"
	"maps"
	"strconv"
)

// The variables about the page of metrics, and the values that the manifests give them.
const (
	metricsVariable     = "GOROVOD_METRICS"
	tokenVariable       = "GOROVOD_METRICS_TOKEN"
	tokenFileVariable   = "GOROVOD_METRICS_TOKEN_FILE"
	certificateVariable = "GOROVOD_METRICS_CERT"
	certKeyVariable     = "GOROVOD_METRICS_KEY"
	tlsVariable         = "GOROVOD_TLS"

	tokenKey = "metrics-token" // the Secret's key
	tlsPath  = "/etc/gorovod-tls"
)

// TokenPlaceholder is the Secret's content until a user fills it in. It is no valid token, so no job starts with it.
const TokenPlaceholder = "PUT A TOKEN HERE"

// The labels of the pod that has the page, in addition to those of all pods. roleLabel also marks an MPIJob's workers.
const (
	indexLabel = "batch.kubernetes.io/job-completion-index"
	roleLabel  = "training.kubeflow.org/job-role"
)

// checkMetrics says what is wrong with the page of metrics.
func (j *Job) checkMetrics() error {
	taken := port
	if j.Kind == MPIJob {
		taken = sshPort
	}
	encrypted, certified := false, j.MetricsTLS != "" || j.TLS != ""
	for _, e := range j.Env {
		encrypted = encrypted || e.Name == tlsVariable && e.Value == "1"
	}
	switch {
	case j.Metrics < 0 || j.Metrics > 65535:
		return fmt.Errorf("--metrics-port %d: a number from 1 to 65535 is needed", j.Metrics)
	case j.Metrics == taken:
		return fmt.Errorf("--metrics-port %d: the pods need this port themselves", j.Metrics)
	case j.Metrics == 0 && j.MetricsTLS != "":
		return fmt.Errorf("--metrics-tls is for the page of metrics: give --metrics-port, too")
	case j.Metrics > 0 && j.Runtime != "":
		return fmt.Errorf("--metrics-port is a matter of the runtime, whose pods have the port and the token: leave "+
			"--runtime out for a runtime that has them, or set them up in %s", j.Runtime)
	case j.Metrics > 0 && encrypted && !certified:
		return fmt.Errorf("--env %s=1: then the page of metrics needs a certificate, too: give --metrics-tls NAME, or "+
			"--tls NAME in its place", tlsVariable)
	}
	return nil
}

// metricsOwn are the variables that the manifests set, or that would contradict them, if there is a page.
func (j *Job) metricsOwn() []string {
	return []string{metricsVariable, tokenVariable, tokenFileVariable, certificateVariable, certKeyVariable}
}

// metricsOption makes the launcher open the page for other pods, too. Those need the token.
func (j *Job) metricsOption() []string {
	if j.Metrics == 0 {
		return nil
	}
	return []string{"--metrics-port", ":" + strconv.Itoa(j.Metrics)}
}

// metricsEnv is the launcher's environment for the page.
func (j *Job) metricsEnv() (env []Env) {
	if j.Metrics > 0 {
		env = append(env, Env{Name: tokenFileVariable, Value: secretPath + "/" + tokenKey})
	}
	if path := j.pageCertificate(); path != "" {
		env = append(env, Env{Name: certificateVariable, Value: path + "/tls.crt"},
			Env{Name: certKeyVariable, Value: path + "/tls.key"})
	}
	return env
}

// pageCertificate is the folder with the page's certificate: one of its own, or that of all processes; empty for none.
func (j *Job) pageCertificate() string {
	switch {
	case j.Metrics > 0 && j.MetricsTLS != "":
		return tlsPath
	case j.Metrics > 0 && j.TLS != "":
		return certificatePath
	}
	return ""
}

// metricsPorts is the page's port, for a container that may have the page.
func (j *Job) metricsPorts() []containerPort {
	if j.Metrics == 0 {
		return nil
	}
	return []containerPort{{Name: "metrics", ContainerPort: j.Metrics}}
}

// metricsService leads to the one pod that has the page: pod 0, or an MPIJob's launcher. The Service has the
// annotations by which Prometheus finds the page: if all pods had them, Prometheus would report the other pods as down.
func (j *Job) metricsService() object[serviceSpec] {
	about := j.metadata(j.Name + "-metrics")
	about.Annotations = map[string]string{"prometheus.io/scrape": "true", "prometheus.io/path": "/metrics",
		"prometheus.io/port": strconv.Itoa(j.Metrics)}
	if j.pageCertificate() != "" {
		about.Annotations["prometheus.io/scheme"] = "https"
	}
	pod := j.mpiPods("launcher")
	if j.Kind != MPIJob {
		pod = maps.Clone(j.pods())
		pod[indexLabel] = "0"
	}
	return object[serviceSpec]{APIVersion: "v1", Kind: "Service", Metadata: about, Spec: &serviceSpec{
		ClusterIP: "None", PublishNotReady: true, Selector: pod, Ports: []servicePort{{"metrics", j.Metrics}}}}
}
