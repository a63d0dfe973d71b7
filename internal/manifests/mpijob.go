package manifests

import "strconv"

// hostfile is where the operator lists the workers.
const hostfile = "/etc/mpi/hostfile"

// sshPort is where the workers' sshd listens.
const sshPort = 22

// mpiJob is an MPIJob: a launcher pod, which reaches the worker pods by ssh. Without a command a worker runs sshd: the
// operator sees to that, and to the keys.
func (j *Job) mpiJob() object[mpiJobSpec] {
	no := false
	processes := []string{"-np", strconv.Itoa(j.Nodes * j.slots()), "--hostfile", hostfile}
	if j.Least > 0 { // horovodrun finds the operator's script by itself
		processes = []string{"--min-np", strconv.Itoa(j.Least * j.slots()), "--max-np",
			strconv.Itoa(j.Nodes * j.slots())}
	}
	own, ownVolumes := j.volumes(false, j.Metrics > 0)
	mounts, volumes := j.volumes(true, false)
	launcher := podTemplate{
		Metadata: &metadata{Labels: j.labels()},
		Spec: podSpec{ServiceLinks: &no, AutomountToken: &no, Grace: j.Grace, Containers: []container{{
			Name: "launcher", Image: j.Image, Command: j.command(processes...), Env: j.env(), Ports: j.metricsPorts(),
			SecurityContext: confined(), Mounts: own,
		}}, Volumes: ownVolumes},
	}
	worker := podTemplate{
		Metadata: &metadata{Labels: j.labels()},
		Spec: podSpec{ServiceLinks: &no, AutomountToken: &no, Grace: j.Grace, Containers: []container{{
			Name: "worker", Image: j.Image, Resources: j.resources(),
			Ports:     []containerPort{{Name: "ssh", ContainerPort: sshPort}},
			Readiness: &probe{TCP: &tcpSocket{sshPort}, Period: 1},
			Mounts:    mounts,
		}}, Volumes: volumes},
	}
	return object[mpiJobSpec]{APIVersion: "kubeflow.org/v2beta1", Kind: "MPIJob", Metadata: j.metadata(j.Name),
		Spec: &mpiJobSpec{
			SlotsPerWorker: j.slots(), LauncherCreation: "WaitForWorkersReady",
			RunPolicy: runPolicy{CleanPodPolicy: "All", BackoffLimit: j.Restarts},
			Replicas:  mpiPods{Launcher: mpiReplicas{1, launcher}, Worker: mpiReplicas{j.Nodes, worker}},
		}}
}
