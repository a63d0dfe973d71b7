#!/usr/bin/env bash
# mpi_matrix.sh [RELEASE…]: scripts/schedulers.sh but for Slurm, and the contract's cases over MPI, with the Open MPI and the MPICH of
# other Debian releases: trixie and sid, unless others are named. What is found goes to build/mpi/RELEASE.log.
#
# Each release is a chroot (scripts/chroots.sh), over which lies a layer, build/mpi/RELEASE, with MPI. Needs a build, and root; says so
# and ends well where it is not.
set -euo pipefail
cd "$(dirname "$0")/.."
releases=("$@")
[ $# -gt 0 ] || releases=(trixie sid)
. scripts/chroots.sh
in_a_namespace "${releases[@]}"
MPI=(openmpi-bin libopenmpi-dev mpich libmpich-dev gcc libc6-dev)

go test -c -o build/mpi/world.test ./internal/world

try_in() {
  local release=$1 layer=$PWD/build/mpi/$1 room=$PWD/build/mpi/$1/room
  have_chroot "$release"
  mkdir -p "$layer/upper" "$layer/work" "$room"
  mount -t overlay overlay -o "lowerdir=$PWD/build/chroots/$release,upperdir=$layer/upper,workdir=$layer/work" "$room" ||
    skip "no overlay can be mounted at $room"
  enter "$room"
  online "$room"
  if [ ! -x "$room/usr/bin/mpicc.mpich" ]; then
    chroot "$room" env DEBIAN_FRONTEND=noninteractive apt-get -qq update
    chroot "$room" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${MPI[@]}" >"$layer.apt.log" 2>&1 </dev/null ||
      { tail -n 20 "$layer.apt.log"; return 1; }
  fi
  mkdir -p "$room/work/build" "$room/work/test"
  rm -rf "$room"/work/{test,scripts,python,include}
  mkdir "$room/work/test"
  cp -r test/schedulers "$room/work/test/"
  cp -r scripts python include "$room/work/"
  cp build/gorovod build/horovodrun build/libgorovod.so build/mpi/world.test "$room/work/build/"
  chroot "$room" bash -c '
    cd /work
    export PYTHON=/usr/bin/python3 TMPDIR=/tmp
    status=0
    mpirun.openmpi --version | head -n 1
    mpirun.mpich --version | sed -n "s/ *Version: */MPICH /p"
    scripts/prepare.sh mpi4py
    WITHOUT_SLURM=1 scripts/schedulers.sh "$PYTHON" || status=1
    GOROVOD_TEST_MPI_ALL=1 build/world.test -test.v -test.timeout=30m -test.run "TestContractOverMPI|TestDeathOverMPI" || status=1
    exit $status' </dev/null 2>&1 | tee "$layer.log"
  status=${PIPESTATUS[0]}
  leave "$room"
  return "$status"
}

failed=()
for release in "${releases[@]}"; do
  if try_in "$release"; then echo "mpi_matrix: $release passed"; else failed+=("$release"); fi
done
[ ${#failed[@]} -eq 0 ] || { echo "mpi_matrix: failed: ${failed[*]}"; exit 1; }
