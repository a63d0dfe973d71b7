#!/usr/bin/env bash
# schedulers.sh [PYTHON]: jobs that others start, for real, each with what every rank must find: srun and sbatch (a Slurm of its
# own, as root), mpirun of Open MPI and of MPICH, torchrun, and horovodrun inside these. What is not installed is
# skipped, with the reason. Needs a build, and a Python with torch.
set -uo pipefail
cd "$(dirname "$0")/.."
top=$PWD
python=${1:-${PYTHON:-$(cat build/python 2> /dev/null || echo python3)}}
export PYTHONPATH=$top/python GOROVOD_LIBRARY=$top/build/libgorovod.so HOROVOD_GLOO_TIMEOUT_SECONDS=60 OMP_NUM_THREADS=1
horovodrun=$top/build/horovodrun
place=("$python" "$top/test/schedulers/place.py")
failed=0

# check NAME EXPECTED COMMAND…: every line "place …" of the command's output, sorted, must be as expected, whatever
# a launcher puts before it.
check() {
  local name=$1 expected=$2 out status=0 got
  shift 2
  out=$(timeout 150 "$@" 2>&1) || status=$?
  got=$(grep -o 'place .*' <<< "$out" | tr -d '\r' | sort)
  if [ "$status" = 0 ] && [ "$got" = "$expected" ]; then
    echo "ok      $name"
  else
    echo "FAILED  $name: status $status, got:"
    printf '%s\n-- expected:\n%s\n-- all of the output:\n%s\n' "$got" "$expected" "$(tail -n 40 <<< "$out")"
    failed=$((failed + 1))
  fi
}

# ranks N HOSTS [True]: the lines of N ranks spread over so many hosts, as equally as they go; whether MPI is used.
ranks() {
  local n=$1 hosts=$2 mpi=${3:-False} r per=$(($1 / $2))
  for ((r = 0; r < n; r++)); do
    echo "place $r $n $((r % per)) $per $((r / per)) $hosts sum $((n * (n + 1) / 2)) mpi $mpi"
  done | sort
}

have() {
  command -v "$1" > /dev/null && return
  echo "skipped $2: $1 is not installed"
  return 1
}

if [ "${IN_SLURM:-}" != 1 ]; then
  if have mpirun.openmpi "jobs of Open MPI"; then
    openmpi=(mpirun.openmpi --allow-run-as-root --oversubscribe)
    check "mpirun of Open MPI" "$(ranks 3 1)" "${openmpi[@]}" -n 3 "${place[@]}"
    check "mpirun of Open MPI, over MPI" "$(ranks 3 1 True)" "${openmpi[@]}" -n 3 -x HOROVOD_CONTROLLER=mpi "${place[@]}"
    check "mpirun of Open MPI, over MPI, one thread" "$(ranks 2 1 True)" "${openmpi[@]}" -n 2 -x HOROVOD_CONTROLLER=mpi -x HOROVOD_MPI_THREADS_DISABLE=1 "${place[@]}"
    check "horovodrun in mpirun of Open MPI" "$(ranks 2 1)" "${openmpi[@]}" -n 1 "$horovodrun" -np 2 "${place[@]}"
    [[ $(mpirun --version 2>&1) != *Open\ MPI* ]] || check "horovodrun --mpi" "$(ranks 2 1 True)" "$horovodrun" -np 2 --mpi "${place[@]}"
  fi
  if have mpirun.mpich "jobs of MPICH"; then
    check "mpirun of MPICH" "$(ranks 3 1)" mpirun.mpich -n 3 "${place[@]}"
    check "mpirun of MPICH, over MPI" "$(ranks 3 1 True)" mpirun.mpich -n 3 -genv HOROVOD_CPU_OPERATIONS mpi "${place[@]}"
    check "mpirun of MPICH, over MPI, one thread" "$(ranks 2 1 True)" mpirun.mpich -n 2 -genv HOROVOD_CONTROLLER mpi -genv HOROVOD_MPI_THREADS_DISABLE 1 "${place[@]}"
    check "horovodrun in mpirun of MPICH" "$(ranks 2 1)" mpirun.mpich -n 1 "$horovodrun" -np 2 "${place[@]}"
  fi
  if "$python" -c 'import torch.distributed.run' 2> /dev/null; then
    check "torchrun" "$(ranks 3 1)" "$python" -m torch.distributed.run --standalone --nproc_per_node 3 "$top/test/schedulers/place.py"
  else
    echo "skipped torchrun: $python has no torch.distributed.run"
  fi
  dir=$(mktemp -u "${TMPDIR:-/tmp}/gorovod-slurm.XXXXXX")
  IN_SLURM=1 scripts/slurm.sh "$dir" "$0" "$python"
  case $? in
    0) ;;
    77) echo "skipped jobs of Slurm: see above" ;;
    *) failed=$((failed + 1)) ;;
  esac
  [ "$failed" = 0 ]
  exit
fi

cd "$(mktemp -d)" || exit 1 # sbatch and srun work where they are called
check "srun, 2 nodes" "$(ranks 4 2)" srun -N2 -n4 "${place[@]}"
check "srun, 1 task" "place 0 1 0 1 0 1 sum 1 mpi False" srun -n1 "${place[@]}"
check "srun, another step of another shape" "$(ranks 2 1)" srun -N1 -n2 "${place[@]}"
check "srun with PMI2" "$(ranks 4 2)" srun -N2 -n4 --mpi=pmi2 "${place[@]}"
check "horovodrun in srun" "$(ranks 2 1)" srun -N1 -n1 -c2 "$horovodrun" -np 2 "${place[@]}"
printf '#!/bin/bash\n%s %s\necho srun:\nsrun %s %s\n' "${place[@]}" "${place[@]}" > job.sh
check "sbatch: alone in its shell, a job by srun" "$( (ranks 1 1; ranks 4 2) | sort)" bash -c 'sbatch -W -N2 -n4 -o job.out job.sh > job.id; status=$?; cat job.out; exit $status'
if command -v mpirun.openmpi > /dev/null; then
  printf '#!/bin/bash\nmpirun.openmpi --allow-run-as-root --oversubscribe -n 2 %s %s\n' "${place[@]}" > mpi.sh
  check "sbatch: mpirun of Open MPI" "$(ranks 2 1)" bash -c 'sbatch -W -N1 -n2 -o mpi.out mpi.sh > mpi.id; status=$?; cat mpi.out; exit $status'
fi
rm -rf "$PWD"
[ "$failed" = 0 ]
