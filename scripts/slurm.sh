#!/usr/bin/env bash
# slurm.sh DIR COMMAND…: runs COMMAND beside a small Slurm of its own on this machine: munged, slurmctld and two
# slurmd of two cores each (gv1, gv2). Its files are in DIR, which must not exist. At the end it ends the daemons and
# removes DIR. Needs root, and Debian's slurmctld, slurmd, slurm-client and munge. Exit status 77: one of these is missing.
set -euo pipefail

dir=$1
shift
for program in munged slurmctld slurmd srun; do
  if ! command -v "$program" > /dev/null && [ ! -x "/usr/sbin/$program" ]; then
    echo "slurm.sh: $program is not installed (packages slurmctld, slurmd, slurm-client, munge)" >&2
    exit 77
  fi
done
if [ "$(id -u)" != 0 ]; then
  echo "slurm.sh: only root can start slurmd" >&2
  exit 77
fi
export PATH=$PATH:/usr/sbin
mkdir -m 755 "$dir" "$dir/tmp" "$dir/tmp/gv1" "$dir/tmp/gv2" "$dir/ctld" "$dir/gv1" "$dir/gv2"

pids=()
cleanup() {
  local pid
  for pid in "${pids[@]}"; do kill "$pid" 2> /dev/null || true; done
  for pid in "${pids[@]}"; do
    for _ in {1..50}; do
      kill -0 "$pid" 2> /dev/null || continue 2
      sleep 0.1
    done
    kill -9 "$pid" 2> /dev/null || true
  done
  rm -rf "$dir"
}
trap cleanup EXIT

# munged gets a key and a socket of its own, so a munged that runs already is left alone.
head -c 1024 /dev/urandom > "$dir/munge.key"
chmod 400 "$dir/munge.key"
munged --foreground --force --key-file="$dir/munge.key" --socket="$dir/munge.socket" --pid-file="$dir/munge.pid" \
  --log-file="$dir/munge.log" --seed-file="$dir/munge.seed" > /dev/null 2>&1 &
pids+=($!)

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
host=$(hostname -s)
cat > "$dir/slurm.conf" << CONF
ClusterName=gorovod
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
CredType=cred/munge
StateSaveLocation=$dir/ctld
SlurmctldPidFile=$dir/slurmctld.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdSpoolDir=$dir/%n
SlurmdPidFile=$dir/%n.pid
SlurmdLogFile=$dir/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SwitchType=switch/none
TmpFS=$dir/tmp/%n
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
InactiveLimit=0
KillWait=5
NodeName=gv1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$(free_port) CPUs=2 State=UNKNOWN
NodeName=gv2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$(free_port) CPUs=2 State=UNKNOWN
PartitionName=all Nodes=gv1,gv2 Default=YES MaxTime=INFINITE State=UP
CONF
printf 'IgnoreSystemd=yes\nCgroupPlugin=cgroup/v1\n' > "$dir/cgroup.conf"
export SLURM_CONF=$dir/slurm.conf

slurmctld -D -c > "$dir/slurmctld.out" 2>&1 &
pids+=($!)
for node in gv1 gv2; do
  slurmd -D -c -N "$node" > "$dir/$node.out" 2>&1 &
  pids+=($!)
done

for _ in {1..150}; do
  idle=$(sinfo -h -t idle -o %D 2> /dev/null || true)
  [ "${idle:-0}" = 2 ] && break
  sleep 0.2
done
if [ "${idle:-0}" != 2 ]; then
  echo "slurm.sh: the nodes do not come up:" >&2
  tail -n 20 "$dir"/*.out "$dir"/*.log >&2 || true
  exit 1
fi
"$@"
