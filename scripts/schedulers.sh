#!/usr/bin/env bash
# schedulers.sh [PYTHON]: jobs that others start, for real, each with what every rank must find: srun and sbatch (a Slurm of its
# own, as root), mpirun of Open MPI and of MPICH, also with communicators of mpi4py and in C, torchrun, a stand-in for jsrun, and
# horovodrun inside these; and how they end when a rank dies. What is not installed is skipped, with the reason. Needs a
# build, and a Python with torch. WITHOUT_SLURM=1: all but Slurm.
set -uo pipefail
cd "$(dirname "$0")/.."
top=$PWD
python=${1:-${PYTHON:-$(cat build/python 2> /dev/null || echo python3)}}
export PYTHONPATH=$top/python GOROVOD_LIBRARY=$top/build/libgorovod.so HOROVOD_GLOO_TIMEOUT_SECONDS=60 OMP_NUM_THREADS=1
horovodrun=$top/build/horovodrun
programs=$top/test/schedulers
place=("$python" "$programs/place.py")
failed=0

# run COMMAND…: its output, in $out, and its exit status, in $status.
run() {
  status=0
  out=$(timeout -k 10 150 "$@" 2>&1) || status=$?
}

# report NAME OUTCOME DETAILS
report() {
  if [ "$2" = ok ]; then
    echo "ok      $1"
  else
    printf 'FAILED  %s: status %s, %s\n-- all of the output:\n%s\n' "$1" "$status" "$3" "$(tail -n 40 <<< "$out")"
    failed=$((failed + 1))
  fi
}

# check NAME EXPECTED COMMAND…: every line "place …" of the command's output, sorted, must be as expected, whatever
# a launcher puts before it.
check() {
  local name=$1 expected=$2 got outcome=wrong
  shift 2
  run "$@"
  got=$(grep -o 'place .*' <<< "$out" | tr -d '\r' | sort)
  [ "$status" != 0 ] || [ "$got" != "$(sort <<< "$expected")" ] || outcome=ok
  report "$name" "$outcome" "got:
$got
-- expected:
$expected"
}

# ends NAME REGEX COUNT COMMAND…: a job of death.py must come to an end by itself, with all of its processes, and so many lines of its
# output must match, or of what its ranks are told.
ends() {
  local name=$1 regex=$2 count=$3 outcome=wrong lines pid begin=$SECONDS
  shift 3
  export TOLD=$scratch/told
  : > "$TOLD"
  run "$@"
  for pid in $(sed -n 's/^pid //p' "$TOLD"); do # a launcher may go before them
    while kill -0 "$pid" 2> /dev/null && [ $((SECONDS - begin)) -lt 120 ]; do sleep 0.1; done
  done
  out+=$'\n'$(cat "$TOLD")
  lines=$(tr -d '\r' <<< "$out" | grep -cE "$regex")
  [ $((SECONDS - begin)) -ge 120 ] || [ "$lines" -lt "$count" ] || outcome=ok
  report "$name" "$outcome" "after $((SECONDS - begin)) s, $lines lines match $regex, $count are needed"
}

# ranks N HOSTS [True]: the lines of N ranks spread over so many hosts, as equally as they go; whether MPI is used.
ranks() {
  local n=$1 hosts=$2 mpi=${3:-False} r per=$(($1 / $2))
  for ((r = 0; r < n; r++)); do
    echo "place $r $n $((r % per)) $per $((r / per)) $hosts sum $((n * (n + 1) / 2)) mpi $mpi"
  done
}

have() {
  command -v "$1" > /dev/null && return
  echo "skipped $2: $1 is not installed"
  return 1
}

# each FORMAT: a line for each of 4 processes, r, whose numbers the format makes by arithmetic.
each() {
  local r
  for r in 0 1 2 3; do eval "echo \"place $1\""; done
}

torchrun=("$python" -m torch.distributed.run --standalone --nproc_per_node)

# Not every PyTorch's torchrun works under every Python.
torchrun_works() {
  local why
  why=$("${torchrun[@]}" 1 --no_python true 2>&1) && return
  echo "skipped torchrun: it does not run under $python: $(tail -n 1 <<< "$why")"
  return 1
}

# communicators MPI KIND MPIRUN…: hvd.init with communicators, from Python where there is mpi4py, and from C.
communicators() {
  local mpi=$1 kind=$2 case expected
  shift 2
  local all='0=0+1+2+3 1=0+2 2=1+3'
  declare -A expect=(
    [world]='world rank $r of 4' [after]='after rank $r of 4' [exits]='exits rank $r of 4'
    [again]='again rank $((3 - r)) of 4 was $r' [parts]='parts rank $((r / 2)) of 2 was $r'
    [several]="several rank \$r of 4 sets $all" [sets]="sets rank \$r of 4 sets $all 3=0+1 sum \$((2 + r % 2 * 2))"
    [single]='single refused' [stranger]='stranger refused'
  )
  if [ -d build/mpi4py ]; then
    for case in world after again parts several sets exits single stranger; do
      check "$mpi, mpi4py: $case" "$(each "${expect[$case]}")" env PYTHONPATH="$PYTHONPATH:$top/build/mpi4py" LD_LIBRARY_PATH="$(alias_of "$kind")" MPI4PY_MPIABI="$kind" \
        "$@" 4 "$python" "$programs/communicators.py" "$case"
    done
  else
    echo "skipped communicators of mpi4py over $mpi: there is no build/mpi4py (scripts/prepare.sh mpi4py)"
  fi
  if have "mpicc.$kind" "horovod_init_multi_comm over $mpi"; then
    local built=$scratch/multi_comm.$kind
    "mpicc.$kind" -std=gnu11 -Wall -Werror -I include "$programs/multi_comm.c" -o "$built" "$top/build/libgorovod.so" -Wl,-rpath,"$top/build" &&
      check "$mpi, horovod_init_multi_comm in C" "$(each 'c rank $r of 4 set $((r % 2 + 1)) of 2')" "$@" 4 "$built"
  fi
}

# alias_of KIND: a directory in which MPICH's library has the name by which mpi4py looks for it, which Debian's 12 has not.
alias_of() {
  [ "$1" = mpich ] || return 0
  local library
  library=$(find /usr/lib -name libmpich.so.12 -print -quit)
  mkdir -p "$scratch/mpich" && ln -sf "$library" "$scratch/mpich/libmpi.so.12"
  echo "$scratch/mpich"
}

scratch=$(mktemp -d "${TMPDIR:-/tmp}/gorovod-schedulers.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
told='told [023]: .*rank 1 '

if [ "${IN_SLURM:-}" != 1 ]; then
  if have mpirun.openmpi "jobs of Open MPI"; then
    openmpi=(mpirun.openmpi --allow-run-as-root --oversubscribe)
    for n in 2 3 4; do
      check "mpirun of Open MPI, $n ranks" "$(ranks $n 1)" "${openmpi[@]}" -n $n "${place[@]}"
      check "mpirun of Open MPI, over MPI, $n ranks" "$(ranks $n 1 True)" "${openmpi[@]}" -n $n -x HOROVOD_CONTROLLER=mpi "${place[@]}"
    done
    check "mpirun of Open MPI, over MPI, one thread" "$(ranks 2 1 True)" "${openmpi[@]}" -n 2 -x HOROVOD_CONTROLLER=mpi -x HOROVOD_MPI_THREADS_DISABLE=1 "${place[@]}"
    check "horovodrun in mpirun of Open MPI" "$(ranks 2 1)" "${openmpi[@]}" -n 1 "$horovodrun" -np 2 "${place[@]}"
    [[ $(mpirun --version 2>&1) != *Open\ MPI* ]] || check "horovodrun --mpi" "$(ranks 2 1 True)" "$horovodrun" -np 2 --mpi "${place[@]}"
    ends "mpirun of Open MPI, over MPI, a rank is killed" "signal 9|$told" 1 "${openmpi[@]}" -n 3 -x HOROVOD_CONTROLLER=mpi "$python" "$programs/death.py" kill
    ends "mpirun of Open MPI, over MPI, a rank is killed, and mpirun lets the others be" "$told" 2 "${openmpi[@]}" -n 3 --enable-recovery -x HOROVOD_CONTROLLER=mpi "$python" "$programs/death.py" kill
    ends "mpirun of Open MPI, a rank is killed, and mpirun lets the others be" "$told" 2 "${openmpi[@]}" -n 3 --enable-recovery "$python" "$programs/death.py" kill
    ends "mpirun of Open MPI, over MPI, a rank raises" "KeyError: 'no such batch'" 1 "${openmpi[@]}" -n 3 -x HOROVOD_CONTROLLER=mpi "$python" "$programs/death.py" raise
    communicators "Open MPI" openmpi "${openmpi[@]}" -n
  fi
  if have mpirun.mpich "jobs of MPICH"; then
    for n in 2 3 4; do
      check "mpirun of MPICH, $n ranks" "$(ranks $n 1)" mpirun.mpich -n $n "${place[@]}"
      check "mpirun of MPICH, over MPI, $n ranks" "$(ranks $n 1 True)" mpirun.mpich -n $n -genv HOROVOD_CPU_OPERATIONS mpi "${place[@]}"
    done
    check "mpirun of MPICH, over MPI, one thread" "$(ranks 2 1 True)" mpirun.mpich -n 2 -genv HOROVOD_CONTROLLER mpi -genv HOROVOD_MPI_THREADS_DISABLE 1 "${place[@]}"
    check "horovodrun in mpirun of MPICH" "$(ranks 2 1)" mpirun.mpich -n 1 "$horovodrun" -np 2 "${place[@]}"
    # Hydra kills the others, even with -disable-auto-cleanup.
    ends "mpirun of MPICH, a rank is killed" "signal 9|$told" 1 mpirun.mpich -n 3 "$python" "$programs/death.py" kill
    ends "mpirun of MPICH, over MPI, a rank is killed" "signal 9|$told" 1 mpirun.mpich -n 3 -genv HOROVOD_CONTROLLER mpi "$python" "$programs/death.py" kill
    ends "mpirun of MPICH, over MPI, a rank raises" "KeyError: 'no such batch'" 1 mpirun.mpich -n 3 -genv HOROVOD_CONTROLLER mpi "$python" "$programs/death.py" raise
    communicators MPICH mpich mpirun.mpich -n
  fi
  if torchrun_works; then
    check "torchrun" "$(ranks 3 1)" "${torchrun[@]}" 3 "$programs/place.py"
    check "horovodrun in torchrun" "$(ranks 2 1)" "${torchrun[@]}" 1 --no_python "$horovodrun" -np 2 "${place[@]}"
  fi
  check "jsrun (a stand-in), 2 hosts" "$(ranks 4 2)" env HOME="$scratch" "$programs/jsrun" -n 4 -r 2 "${place[@]}"
  check "jsrun (a stand-in), 2 hosts, with the variables of Spectrum MPI" "$(ranks 4 2)" env HOME="$scratch" JSM_SPECTRUM=1 "$programs/jsrun" -n 4 -r 2 "${place[@]}"
  check "jsrun (a stand-in), one host" "$(ranks 2 1)" "$programs/jsrun" -n 2 -r 2 "${place[@]}"
  check "horovodrun in jsrun (a stand-in)" "$(ranks 2 1)" "$programs/jsrun" -n 1 -r 1 "$horovodrun" -np 2 "${place[@]}"
  ends "jsrun (a stand-in), a rank is killed" "$told" 2 env HOME="$scratch" "$programs/jsrun" -n 3 -r 3 "$python" "$programs/death.py" kill
  if [ -n "${WITHOUT_SLURM:-}" ]; then
    [ "$failed" = 0 ]
    exit
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

# batch NAME EXPECTED OPTIONS COMMAND…: a job of sbatch, whose script is the command.
batch() {
  local name=$1 expected=$2 options=$3
  shift 3
  printf '#!/bin/bash\n%s\n' "$*" > job.sh
  check "sbatch: $name" "$expected" bash -c "sbatch -W $options -o job.out job.sh > job.id; status=\$?; cat job.out; exit \$status"
}

cd "$scratch" || exit 1 # sbatch and srun work where they are called
check "srun, 2 nodes" "$(ranks 4 2)" srun -N2 -n4 "${place[@]}"
check "srun, 1 task" "place 0 1 0 1 0 1 sum 1 mpi False" srun -n1 "${place[@]}"
check "srun, another step of another shape" "$(ranks 2 1)" srun -N1 -n2 "${place[@]}"
check "srun with PMI2" "$(ranks 4 2)" srun -N2 -n4 --mpi=pmi2 "${place[@]}"
if srun --mpi=list 2>&1 | grep -q pmix; then
  check "srun with PMIx" "$(ranks 2 1)" srun -N1 -n2 --mpi=pmix "${place[@]}"
fi
check "horovodrun in srun" "$(ranks 2 1)" srun -N1 -n1 -c2 "$horovodrun" -np 2 "${place[@]}"
if torchrun_works > /dev/null; then
  check "torchrun in srun" "$(ranks 2 1)" srun -N1 -n1 -c2 "${torchrun[@]}" 2 "$programs/place.py"
fi
ends "srun, a rank is killed" "$told" 1 srun -N2 -n4 "$python" "$programs/death.py" kill
batch "alone in its shell, a job by srun" "$(ranks 1 1; ranks 4 2)" "-N2 -n4" "${place[*]}; echo srun:; srun ${place[*]}"
batch "horovodrun" "$(ranks 2 1)" "-N1 -n2" "$horovodrun -np 2 ${place[*]}"
if command -v mpirun.openmpi > /dev/null; then
  batch "mpirun of Open MPI" "$(ranks 2 1)" "-N1 -n2" "mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 ${place[*]}"
  batch "mpirun of Open MPI, over MPI" "$(ranks 2 1 True)" "-N1 -n2" "mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 -x HOROVOD_CONTROLLER=mpi ${place[*]}"
fi
if command -v mpirun.mpich > /dev/null; then
  batch "mpirun of MPICH" "$(ranks 2 1)" "-N1 -n2" "mpirun.mpich -launcher fork -n 2 ${place[*]}"
fi
[ "$failed" = 0 ]
