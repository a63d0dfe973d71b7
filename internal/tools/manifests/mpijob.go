package manifests

import "strconv"

// hostfile is where the operator lists the workers.
const hostfile = "/etc/mpi/hostfile"

// sshPort is where the workers' sshd listens. Any user may listen there.
const sshPort = 2222

// mpiJob is an MPIJob: a launcher pod, which reaches the worker pods by ssh. The operator makes the keys.
//
// The launcher of an elastic job starts at once, and takes in each worker when it comes. Otherwise the launcher waits
// until all workers are ready. A worker of an elastic job that is drained, evicted or deleted commits before it ends.
func (j *Job) mpiJob() object[mpiJobSpec] {
	no := false
	creation, lifecycle := "WaitForWorkersReady", (*lifecycle)(nil)
	processes := []string{"-np", strconv.Itoa(j.Nodes * j.slots()), "--hostfile", hostfile}
	if j.Least > 0 { // horovodrun finds the operator's script by itself
		creation, lifecycle = "AtStartup", beforeStop("gorovod", "leave")
		processes = []string{"--min-np", strconv.Itoa(j.Least * j.slots()), "--max-np",
			strconv.Itoa(j.Nodes * j.slots())}
	}
	processes = append(processes, "--ssh-port", strconv.Itoa(sshPort))
	own, ownVolumes := j.volumes(false, j.Metrics > 0)
	mounts, volumes := j.volumes(true, false)
	launcher := podTemplate{
		Metadata: &metadata{Labels: j.labels()},
		Spec: podSpec{ServiceLinks: &no, AutomountToken: &no, Grace: j.Grace, Containers: []container{{
			Name: "launcher", Image: j.Image, Command: j.command(processes...), Env: j.env(), Ports: j.metricsPorts(),
			SecurityContext: confined(), Mounts: own,
		}}, Volumes: ownVolumes},
	}
	command, confinement := j.sshd()
	worker := podTemplate{
		Metadata: &metadata{Labels: j.labels()},
		Spec: podSpec{ServiceLinks: &no, AutomountToken: &no, Grace: j.Grace, Containers: []container{{
			Name: "worker", Image: j.Image, Command: command, Resources: j.resources(),
			Ports:           []containerPort{{Name: "ssh", ContainerPort: sshPort}},
			Readiness:       &probe{TCP: &tcpSocket{sshPort}, Period: 1},
			Lifecycle:       lifecycle,
			SecurityContext: confinement,
			Mounts:          mounts,
		}}, Volumes: volumes},
	}
	return object[mpiJobSpec]{APIVersion: "kubeflow.org/v2beta1", Kind: "MPIJob", Metadata: j.metadata(j.Name),
		Spec: &mpiJobSpec{
			SlotsPerWorker: j.slots(), SSHKeys: j.sshKeys(), LauncherCreation: creation,
			RunPolicy: runPolicy{CleanPodPolicy: "All", BackoffLimit: j.Restarts},
			Replicas:  mpiPods{Launcher: mpiReplicas{1, launcher}, Worker: mpiReplicas{j.Nodes, worker}},
		}}
}

// sshKeys is where the operator puts the keys: where ssh of the image's user looks for them. ssh requires that a user's
// key files are closed to other users. The operator's default, root's, are; another user's key files belong to root, so
// ssh does not require it of them.
func (j *Job) sshKeys() string {
	if j.User == "" {
		return ""
	}
	return "/home/" + j.User + "/.ssh"
}

// sshd is the command of a worker, and its container's confinement. Kubernetes mounts the folder of the keys writable
// for all, so StrictModes is off. An sshd of root uses the image's configuration. It needs capabilities, and a folder
// that Debian's service would make. An sshd of another user needs no rights beyond that user's.
func (j *Job) sshd() (command []string, confinement *securityContext) {
	if j.User == "" {
		return []string{"/bin/sh", "-c", "mkdir -p /run/sshd && exec /usr/sbin/sshd -De -p " + strconv.Itoa(sshPort) +
			" -o StrictModes=no"}, nil
	}
	return []string{"/usr/sbin/sshd", "-De", "-f", "/dev/null", "-p", strconv.Itoa(sshPort), "-o", "StrictModes=no",
		"-o", "PidFile=none", "-o", "HostKey=" + j.sshKeys() + "/id_rsa"}, confined()
}

// beforeStop makes Kubernetes run a command before it ends a container. The pod's grace period counts from the
// command's start.
func beforeStop(command ...string) *lifecycle { return &lifecycle{PreStop: hook{Exec: exec{command}}} }
