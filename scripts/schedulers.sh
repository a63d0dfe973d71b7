#!/usr/bin/env bash
# schedulers.sh [PYTHON [PART…]]: runs real jobs under other launchers. Each checks what every rank finds, or how the job ends when a
# rank dies. The parts, all by default, are:
#
#   openmpi, mpich                    mpirun of each, also over MPI, with communicators of mpi4py and in C
#   openmpi-contract, mpich-contract  the contract's cases over each, and a death
#   torchrun
#   jsrun                             a stand-in for it
#   slurm                             srun and sbatch, in a Slurm of its own, as root
#
# They also run horovodrun inside the other launchers. At the end there is one table. A launcher that is not installed is skipped, with
# the reason. Needs a build, and a Python with torch. The table's rows go to build/schedulers.tsv. If $ROWS is set, they are added to
# that file.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/rows.sh
top=$PWD
python=${1:-${PYTHON:-$(cat build/python 2> /dev/null || echo python3)}}
[ $# = 0 ] || shift
parts=" ${*:-openmpi openmpi-contract mpich mpich-contract torchrun jsrun slurm} "
if [ -z "${ROWS:-}" ]; then
  ROWS=build/schedulers.tsv
  rm -f "$ROWS"
fi
ROWS=$(realpath -m "$ROWS")
export ROWS
export PYTHONPATH=$top/python GOROVOD_LIBRARY=$top/build/libgorovod.so HOROVOD_GLOO_TIMEOUT_SECONDS=60 OMP_NUM_THREADS=1
horovodrun=$top/build/horovodrun
programs=$top/test/schedulers
place=("$python" "$programs/place.py")

# run COMMAND…: runs the command. Its output goes to $out, its exit status to $status. Errors come last, because they could break a line
# of another rank.
run() {
  status=0
  out=$(timeout -k 10 150 "$@" 2> "$scratch/errors") || status=$?
  out+=$'\n'$(cat "$scratch/errors")
}

# report NAME OUTCOME DETAILS: writes the row. If OUTCOME is not ok, prints DETAILS and the command's last lines, too.
report() {
  if [ "$2" = ok ]; then
    row ok "$1"
  else
    row FAILED "$1" "status $status, $(head -n 1 <<< "$3")"
    printf '%s\n-- all of the output:\n%s\n' "$3" "$(tail -n 40 <<< "$out")"
  fi
}

# check NAME EXPECTED COMMAND…: the lines "place …" of the command's output, sorted, must be as expected. A launcher may put something
# before them. With ANY_ORDER=1 the local ranks may be in any order.
check() {
  local name=$1 expected=$2 got outcome=wrong
  shift 2
  run "$@"
  got=$(grep -o 'place .*' <<< "$out" | tr -d '\r' | in_order)
  [ "$status" != 0 ] || [ "$got" != "$(in_order <<< "$expected")" ] || outcome=ok
  report "$name" "$outcome" "its lines are not as expected
-- got:
$got
-- expected:
$expected"
}

in_order() {
  if [ -n "${ANY_ORDER:-}" ]; then
    awk '{ l = $4; $4 = "-"; print; print "local rank", l }'
  else
    cat
  fi | sort
}

# ends NAME REGEX COUNT COMMAND…: a job of death.py must end by itself, with all of its processes, within 120 s. At least COUNT lines of
# its output, and of the errors that its ranks get, must match REGEX.
ends() {
  local name=$1 regex=$2 count=$3 outcome=wrong lines pid begin=$SECONDS
  shift 3
  export TOLD=$scratch/told
  : > "$TOLD"
  run "$@"
  for pid in $(sed -n 's/^pid //p' "$TOLD"); do # a launcher may end before its ranks
    while kill -0 "$pid" 2> /dev/null && [ $((SECONDS - begin)) -lt 120 ]; do sleep 0.1; done
  done
  out+=$'\n'$(cat "$TOLD")
  lines=$(tr -d '\r' <<< "$out" | grep -cE "$regex")
  [ $((SECONDS - begin)) -ge 120 ] || [ "$lines" -lt "$count" ] || outcome=ok
  report "$name" "$outcome" "after $((SECONDS - begin)) s, $lines lines match $regex, $count are needed"
}

# ranks N HOSTS [True]: prints the lines of N ranks that are spread over HOSTS hosts as evenly as possible. True: they use MPI.
ranks() {
  local n=$1 hosts=$2 mpi=${3:-False} r per=$(($1 / $2))
  for ((r = 0; r < n; r++)); do
    echo "place $r $n $((r % per)) $per $((r / per)) $hosts sum $((n * (n + 1) / 2)) mpi $mpi"
  done
}

# have PROGRAM NAME: succeeds if PROGRAM is installed. Otherwise writes the row NAME as skipped.
have() {
  command -v "$1" > /dev/null && return
  row skipped "$2" "$1 is not installed"
  return 1
}

# wanted PART: succeeds if PART is to run.
wanted() { [[ $parts == *" $1 "* ]]; }

# each FORMAT: prints a line for each of 4 processes. r in the arithmetic of FORMAT is the process's rank.
each() {
  local r
  for r in 0 1 2 3; do eval "echo \"place $1\""; done
}

torchrun=("$python" -m torch.distributed.run --standalone --nproc_per_node)

# Succeeds if torchrun works. Some PyTorch's do not under some Pythons.
torchrun_works() {
  local why
  why=$("${torchrun[@]}" 1 --no_python true 2>&1) && return
  row skipped "$1" "it does not run under $python: $(tail -n 1 <<< "$why")"
  return 1
}

# communicators MPI KIND MPIRUN…: checks hvd.init with communicators, in C, and in Python if there is mpi4py.
communicators() {
  local mpi=$1 kind=$2 case expected
  shift 2
  local all='0=0+1+2+3 1=0+2 2=1+3'
  declare -A expect=(
    [world]='world rank $r of 4' [after]='after rank $r of 4' [exits]='exits rank $r of 4'
    [again]='again rank $((3 - r)) of 4 was $r' [parts]='parts rank $((r / 2)) of 2 was $r'
    [several]="several rank \$r of 4 sets $all" [sets]="sets rank \$r of 4 sets $all 3=0+1 sum \$((2 + r % 2 * 2))"
    [duplicates]='duplicates 0 1 refused' [single]='single refused' [stranger]='stranger refused'
  )
  local mpi4py=(env PYTHONPATH="$PYTHONPATH:$top/build/mpi4py" LD_LIBRARY_PATH="$(alias_of "$kind")" MPI4PY_MPIABI="$kind")
  if [ -d build/mpi4py ]; then
    for case in world after again parts several sets duplicates exits single stranger; do
      if [ "$case" = after ] && ! "${mpi4py[@]}" "$@" 1 "$python" -c 'import torch; from mpi4py import MPI' > "$scratch/after" 2>&1; then
        row skipped "$mpi, mpi4py: after" "here mpi4py itself does not start after torch, which is linked with another MPI"
        continue
      fi
      check "$mpi, mpi4py: $case" "$(each "${expect[$case]}")" "${mpi4py[@]}" "$@" 4 "$python" "$programs/communicators.py" "$case"
    done
  else
    row skipped "$mpi, mpi4py" "there is no build/mpi4py (scripts/prepare.sh mpi4py)"
  fi
  if have "mpicc.$kind" "horovod_init_multi_comm over $mpi"; then
    local built=$scratch/multi_comm.$kind
    "mpicc.$kind" -std=gnu11 -Wall -Werror -I include "$programs/multi_comm.c" -o "$built" "$top/build/libgorovod.so" -Wl,-rpath,"$top/build" &&
      check "$mpi, horovod_init_multi_comm in C" "$(each 'c rank $r of 4 set $((r % 2 + 1)) of 2')" "$@" 4 "$built"
  fi
}

# alias_of KIND: prints a directory in which MPICH's library has the name that mpi4py looks for. Debian 12 does not have that name.
alias_of() {
  [ "$1" = mpich ] || return 0
  local library
  library=$(find /usr/lib -name libmpich.so.12 -print -quit)
  mkdir -p "$scratch/mpich" && ln -sf "$library" "$scratch/mpich/libmpi.so.12"
  echo "$scratch/mpich"
}

# contract MPI TEST…: runs the cases of the contract, and a death, over an MPI. Each rank is a process of the tests' binary. The tests'
# names contain the MPI's name in Go's form.
contract() {
  local mpi=$1 tests=$top/build/mpi/world.test
  if [ ! -x "$tests" ]; then
    tests=$scratch/world.test
    [ -x "$tests" ] || go test -c -o "$tests" ./internal/joining/world || { row FAILED "$mpi, contract" "its tests cannot be built"; return; }
  fi
  shift
  GOROVOD_TEST_MPI_ALL=1 timeout -k 10 1200 "$tests" -test.v -test.timeout=20m -test.run "Test(Contract|Death)OverMPI(AndHosts)?/^($(IFS='|'; echo "$*"))\$" > "$scratch/contract" 2>&1
  awk -v mpi="$mpi" '
    /^=== (RUN|NAME|CONT) / { current = $3 }
    /_test\.go:[0-9]+: / { said[current] = $0; sub(/.*_test\.go:[0-9]+: /, "", said[current]) }
    /^ +--- (PASS|FAIL|SKIP): / {
      name = $3; sub(/^Test/, "", name); sub(/OverMPI\//, ": ", name); sub(/OverMPIAndHosts\//, " on two hosts: ", name); gsub(/_/, " ", name)
      print ($2 == "PASS:" ? "ok" : $2 == "SKIP:" ? "skipped" : "FAILED") "\t" mpi ", " tolower(substr(name, 1, 1)) substr(name, 2) "\t" ($2 == "PASS:" ? "" : said[$3])
    }' "$scratch/contract" > "$scratch/contract.rows"
  while IFS=$'\t' read -r outcome name reason; do
    row "$outcome" "$name" "$reason"
    [ "$outcome" != FAILED ] || tail -n 60 "$scratch/contract"
  done < "$scratch/contract.rows"
  [ -s "$scratch/contract.rows" ] || { row FAILED "$mpi, contract" "it has not come to its end"; tail -n 60 "$scratch/contract"; }
}

# A script for sh -c under mpirun: it runs its arguments as a rank that acts as if it were on a host of its own.
apart='OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 HOROVOD_HOSTNAME=host$OMPI_COMM_WORLD_RANK exec "$0" "$@"'

scratch=$(mktemp -d "${TMPDIR:-/tmp}/gorovod-schedulers.XXXXXX")
finished=
trap '[ -n "$finished" ] || row FAILED "all that follows" "the script has ended early"; rm -rf "$scratch"' EXIT
told='told [023]: .*rank 1 '

if [ "${IN_SLURM:-}" != 1 ]; then
  if wanted openmpi && have mpirun.openmpi "mpirun of Open MPI"; then
    row "$(mpirun.openmpi --version | sed -n '1s/.* //p')" "version of Open MPI"
    openmpi=(mpirun.openmpi --allow-run-as-root --oversubscribe)
    for n in 2 3 4; do
      # From version 5 on, the order of the local ranks of a host may differ from that of the ranks.
      ANY_ORDER=1 check "mpirun of Open MPI, $n ranks" "$(ranks $n 1)" "${openmpi[@]}" -n $n "${place[@]}"
      check "mpirun of Open MPI, over MPI, $n ranks" "$(ranks $n 1 True)" "${openmpi[@]}" -n $n -x HOROVOD_CONTROLLER=mpi "${place[@]}"
    done
    check "mpirun of Open MPI, over MPI, one thread" "$(ranks 2 1 True)" "${openmpi[@]}" -n 2 -x HOROVOD_CONTROLLER=mpi -x HOROVOD_MPI_THREADS_DISABLE=1 "${place[@]}"
    check "horovodrun in mpirun of Open MPI" "$(ranks 2 1)" "${openmpi[@]}" -n 1 "$horovodrun" -np 2 "${place[@]}"
    [[ $(mpirun --version 2>&1) != *Open\ MPI* ]] || check "horovodrun --mpi" "$(ranks 2 1 True)" "$horovodrun" -np 2 --mpi "${place[@]}"
    ends "mpirun of Open MPI, over MPI, a rank is killed" "signal 9|$told" 1 "${openmpi[@]}" -n 3 -x HOROVOD_CONTROLLER=mpi "$python" "$programs/death.py" kill
    ends "mpirun of Open MPI, over MPI, a rank is killed, and mpirun lets the others be" "$told" 2 "${openmpi[@]}" -n 3 --enable-recovery -x HOROVOD_CONTROLLER=mpi "$python" "$programs/death.py" kill
    ends "mpirun of Open MPI, a rank is killed, and mpirun lets the others be" "$told" 2 "${openmpi[@]}" -n 3 --enable-recovery "$python" "$programs/death.py" kill
    ends "mpirun of Open MPI, over MPI, a rank raises" "KeyError: 'no such batch'" 1 "${openmpi[@]}" -n 3 -x HOROVOD_CONTROLLER=mpi "$python" "$programs/death.py" raise
    check "mpirun of Open MPI, by PMIx" "$(each 'by_pmix rank $r of 4')" "${openmpi[@]}" -n 4 -x HOME=/proc bash -c "$apart" "$python" "$programs/pmix.py" by_pmix
    if [ -d build/mpi4py ]; then
      for case in mpi_later mpi_earlier; do
        check "mpirun of Open MPI, by PMIx, mpi4py: $case" "$(each "$case rank \$r of 4")" "${openmpi[@]}" -n 4 -x HOME=/proc -x PYTHONPATH="$PYTHONPATH:$top/build/mpi4py" bash -c "$apart" "$python" "$programs/pmix.py" $case
      done
    fi
    communicators "Open MPI" openmpi "${openmpi[@]}" -n
  fi
  if wanted openmpi-contract; then
    contract "Open MPI" "Open_MPI" "Open_MPI's_standard_interface"
  fi
  if wanted mpich && have mpirun.mpich "mpirun of MPICH"; then
    row "$(mpirun.mpich --version | sed -n 's/ *Version: *//p')" "version of MPICH"
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
  if wanted mpich-contract; then
    contract MPICH "MPICH" "MPICH's_standard_interface"
  fi
  if wanted torchrun && torchrun_works torchrun; then
    check "torchrun" "$(ranks 3 1)" "${torchrun[@]}" 3 "$programs/place.py"
    check "horovodrun in torchrun" "$(ranks 2 1)" "${torchrun[@]}" 1 --no_python "$horovodrun" -np 2 "${place[@]}"
  fi
  if wanted jsrun; then
    check "jsrun (a stand-in), 2 hosts" "$(ranks 4 2)" env HOME="$scratch" "$programs/jsrun" -n 4 -r 2 "${place[@]}"
    check "jsrun (a stand-in), 2 hosts, with the variables of Spectrum MPI" "$(ranks 4 2)" env HOME="$scratch" JSM_SPECTRUM=1 "$programs/jsrun" -n 4 -r 2 "${place[@]}"
    check "jsrun (a stand-in), one host" "$(ranks 2 1)" "$programs/jsrun" -n 2 -r 2 "${place[@]}"
    check "horovodrun in jsrun (a stand-in)" "$(ranks 2 1)" "$programs/jsrun" -n 1 -r 1 "$horovodrun" -np 2 "${place[@]}"
    ends "jsrun (a stand-in), a rank is killed" "$told" 2 env HOME="$scratch" "$programs/jsrun" -n 3 -r 3 "$python" "$programs/death.py" kill
  fi
  if wanted slurm; then
    dir=$(mktemp -u "${TMPDIR:-/tmp}/gorovod-slurm.XXXXXX")
    IN_SLURM=1 scripts/slurm.sh "$dir" "$0" "$python" 2> "$scratch/slurm"
    code=$?
    cat "$scratch/slurm" >&2
    case $code in
      0) ;;
      77) row skipped "jobs of Slurm" "$(sed -n '1s/^slurm.sh: //p' "$scratch/slurm")" ;;
      *) row FAILED "jobs of Slurm" "$(sed -n '1s/^slurm.sh: //p' "$scratch/slurm")" ;;
    esac
  fi
  finished=1
  echo
  table "$ROWS"
  exit
fi

# batch NAME EXPECTED OPTIONS COMMAND…: checks a job of sbatch whose script runs the command.
batch() {
  local name=$1 expected=$2 options=$3
  shift 3
  printf '#!/bin/bash\n%s\n' "$*" > job.sh
  check "sbatch: $name" "$expected" bash -c "sbatch -W $options -o job.out job.sh > job.id; status=\$?; cat job.out; exit \$status"
}

row "$(srun --version | sed 's/.* //')" "version of Slurm"
cd "$scratch" || exit 1 # sbatch and srun start their jobs in the current folder
check "srun, 2 nodes" "$(ranks 4 2)" srun -N2 -n4 "${place[@]}"
check "srun, 1 task" "place 0 1 0 1 0 1 sum 1 mpi False" srun -n1 "${place[@]}"
check "srun, another step of another shape" "$(ranks 2 1)" srun -N1 -n2 "${place[@]}"
check "srun with PMI2" "$(ranks 4 2)" srun -N2 -n4 --mpi=pmi2 "${place[@]}"
for missing in 3:gv2 0:gv1; do
  ends "srun with PMI2, 2 nodes, rank ${missing%:*} does not come" "waited .* for rank ${missing%:*} of 4 \\(not heard of, started on host ${missing#*:}\\);" 3 env HOROVOD_GLOO_TIMEOUT_SECONDS=8 \
    srun -N2 -n4 -W 5 --mpi=pmi2 bash -c '[ "$SLURM_PROCID" != '"${missing%:*}"' ] || exec sleep 30; exec "$0" "$@"' "${place[@]}"
done
# Over MPI a rank's host is known by its own name, and both nodes are this machine.
if have mpirun.mpich "srun with PMI2, over MPICH"; then
  check "srun with PMI2, over MPICH" "$(ranks 4 1 True)" env HOROVOD_CONTROLLER=mpi GOROVOD_MPI_LIBRARY=libmpich.so.12 srun -N2 -n4 --mpi=pmi2 "${place[@]}"
fi
if srun --mpi=list 2>&1 | grep -q pmix; then
  check "srun with PMIx" "$(ranks 2 1)" srun -N1 -n2 --mpi=pmix "${place[@]}"
  check "srun with PMIx, 2 nodes without a shared directory" "$(ranks 4 2)" env HOME=/proc srun -N2 -n4 --mpi=pmix "${place[@]}"
  ends "srun with PMIx, 2 nodes, a rank is killed" "signal 9|Killed|$told" 1 env HOME=/proc srun -N2 -n4 --mpi=pmix "$python" "$programs/death.py" kill
  if have mpirun.openmpi "srun with PMIx, over Open MPI"; then
    check "srun with PMIx, over Open MPI" "$(ranks 2 1 True)" env HOROVOD_CONTROLLER=mpi srun -N1 -n2 --mpi=pmix "${place[@]}"
  fi
else
  row skipped "srun with PMIx" "this Slurm has no plugin for it"
fi
check "horovodrun in srun" "$(ranks 2 1)" srun -N1 -n1 -c2 "$horovodrun" -np 2 "${place[@]}"
if torchrun_works "torchrun in srun"; then
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
finished=1
exit 0 # the rows say what has failed
