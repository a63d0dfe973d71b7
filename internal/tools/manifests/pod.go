package manifests

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gorovod/gorovod/internal/base/auth"
)

// The variables by which a pod's horovodrun finds its place and proves that it belongs to the job.
const (
	nodesVariable      = "PET_NNODES"
	slotsVariable      = "PET_NPROC_PER_NODE"
	rankVariable       = "PET_NODE_RANK"
	indexVariable      = "JOB_COMPLETION_INDEX"
	secretVariable     = "GOROVOD_SECRET_FILE"
	keyVariable        = "HOROVOD_SECRET_KEY"
	checkpointVariable = "GOROVOD_CHECKPOINT_DIR"
)

// Where the volumes are mounted, and the keys in the Secret.
const (
	secretPath     = "/etc/gorovod"
	secretKey      = "key"
	checkpointPath = "/checkpoints"
	// certificatePath has the certificate of all launchers and processes.
	certificatePath = "/etc/gorovod-certificate"
)

// certificateVariables name the certificate of a process, its key and the CAs.
var certificateVariables = []string{auth.CertVariable, auth.KeyVariable, auth.CAVariable}

// labels are on every object of the job, and on its pods.
func (j *Job) labels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": "gorovod", instanceLabel: j.Name}
}

// pods are the labels that choose the job's pods and no others.
func (j *Job) pods() map[string]string {
	if j.Kind == TrainJob { // a TrainJob's pods have the labels of its JobSet
		return map[string]string{"jobset.sigs.k8s.io/jobset-name": j.Name}
	}
	return j.labels()
}

// mpiPods are the labels that choose the pods of an MPIJob with a role; the operator names the roles.
func (j *Job) mpiPods(role string) map[string]string {
	chosen := maps.Clone(j.pods())
	chosen[roleLabel] = role
	return chosen
}

func (j *Job) metadata(name string) metadata {
	return metadata{Name: name, Namespace: j.Namespace, Labels: j.labels()}
}

// needsSecret reports whether the job needs a Secret.
func (j *Job) needsSecret() bool { return j.Kind != MPIJob || j.Metrics > 0 }

// secretName is the name of the Secret with the launchers' shared key, and the token for readers of the metrics.
func (j *Job) secretName() string {
	if j.Secret != "" {
		return j.Secret
	}
	return j.Name
}

// command is the command of a pod.
func (j *Job) command(options ...string) []string {
	line := slices.Concat([]string{"horovodrun"}, options, j.metricsOption())
	for _, word := range j.Command {
		line = append(line, literal(word))
	}
	return line
}

// literal escapes text for a manifest, because Kubernetes replaces $(NAME) and $$ in commands and values.
func literal(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// env is the environment of the processes: first the variables of the kind of job, then the user's.
func (j *Job) env(first ...Env) []Env {
	first = append(first, j.metricsEnv()...)
	if j.TLS != "" {
		for i, file := range []string{"tls.crt", "tls.key", "ca.crt"} {
			first = append(first, Env{Name: certificateVariables[i], Value: certificatePath + "/" + file})
		}
	}
	if j.Claim != "" {
		first = append(first, Env{Name: checkpointVariable, Value: checkpointPath})
	}
	for _, e := range j.Env {
		first = append(first, Env{Name: e.Name, Value: literal(e.Value)})
	}
	return first
}

// resources are the limits of a pod; nil for none.
func (j *Job) resources() *resources {
	limits := map[string]string{}
	for name, value := range map[string]string{"cpu": j.CPU, "memory": j.Memory} {
		if value != "" {
			limits[name] = value
		}
	}
	if j.GPUs > 0 {
		limits["nvidia.com/gpu"] = strconv.Itoa(j.GPUs)
	}
	if len(limits) == 0 {
		return nil
	}
	return &resources{Limits: limits}
}

// volumes are the volumes of a pod's processes and launcher. shm: mount /dev/shm for data loaders and NCCL, which need
// more than a container's usual 64 MiB. keys: mount the Secret, and the certificate of the metrics.
func (j *Job) volumes(shm, keys bool) (mounts []mount, volumes []volume) {
	if shm {
		mounts = append(mounts, mount{Name: "shm", MountPath: "/dev/shm"})
		volumes = append(volumes, volume{Name: "shm", EmptyDir: &emptyDir{Medium: "Memory"}})
	}
	if keys {
		mounts = append(mounts, mount{Name: "secret", MountPath: secretPath, ReadOnly: true})
		volumes = append(volumes, volume{Name: "secret", Secret: &secretVolume{SecretName: j.secretName()}})
	}
	if keys && j.MetricsTLS != "" {
		mounts = append(mounts, mount{Name: "tls", MountPath: tlsPath, ReadOnly: true})
		volumes = append(volumes, volume{Name: "tls", Secret: &secretVolume{SecretName: j.MetricsTLS}})
	}
	if j.TLS != "" {
		mounts = append(mounts, mount{Name: "certificate", MountPath: certificatePath, ReadOnly: true})
		volumes = append(volumes, volume{Name: "certificate", Secret: &secretVolume{SecretName: j.TLS}})
	}
	if j.Claim != "" {
		mounts = append(mounts, mount{Name: "checkpoints", MountPath: checkpointPath})
		volumes = append(volumes, volume{Name: "checkpoints", Claim: &claim{ClaimName: j.Claim}})
	}
	return mounts, volumes
}

// confined takes from a container the rights that training does not need. The image's program may still run as root.
func confined() *securityContext {
	return &securityContext{Capabilities: &capabilities{Drop: []string{"ALL"}}, Seccomp: seccomp{"RuntimeDefault"}}
}

// node is the pod of an indexed Job. It runs a launcher for the pod's processes.
func (j *Job) node() podTemplate {
	env := []Env{{Name: nodesVariable, Value: j.nodes()}}
	if j.Slots > 0 {
		env = append(env, Env{Name: slotsVariable, Value: strconv.Itoa(j.Slots)})
	}
	env = append(env, Env{Name: secretVariable, Value: secretPath + "/" + secretKey})
	mounts, volumes := j.volumes(true, true)
	no := false
	return podTemplate{
		Metadata: &metadata{Labels: maps.Clone(j.labels())},
		Spec: podSpec{
			Subdomain:      j.Name,
			RestartPolicy:  "Never",
			ServiceLinks:   &no,
			AutomountToken: &no,
			Grace:          j.Grace,
			Containers: []container{{
				Name: "node", Image: j.Image, Command: j.command(), Env: j.env(env...),
				Ports:           append([]containerPort{{Name: "meet", ContainerPort: port}}, j.metricsPorts()...),
				Resources:       j.resources(),
				SecurityContext: confined(),
				Mounts:          mounts,
			}},
			Volumes: volumes,
		},
	}
}
