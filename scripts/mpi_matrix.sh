#!/usr/bin/env bash
# mpi_matrix.sh [RELEASE…]: runs scripts/schedulers.sh, without Slurm, with the Open MPI and the MPICH of other Debian releases. The
# default is trixie and sid. $PARTS names some of its parts; the default is all. At the end it prints one table of all releases. The
# output goes to build/mpi/RELEASE.log, and the rows go to build/mpi/RELEASE.tsv. Rows of an earlier run of other parts stay there.
#
# Each release is a chroot (scripts/chroots.sh) below an overlay with MPI, build/mpi/RELEASE. Needs a build, and root. Without root it
# says so, and ends with status 0.
set -euo pipefail
cd "$(dirname "$0")/.."
releases=("$@")
[ $# -gt 0 ] || releases=(trixie sid)
most="openmpi openmpi-contract mpich mpich-contract torchrun jsrun"
PARTS=${PARTS:-$most}
. scripts/chroots.sh
in_a_namespace "${releases[@]}"
MPI=(openmpi-bin libopenmpi-dev mpich libmpich-dev gcc libc6-dev)

mkdir -p build/mpi
echo "mpi_matrix: compiling the contract's cases"
go test -c -o build/mpi/world.test ./internal/joining/world

# install ROOM LOG: installs MPI in the folder ROOM. The mirror may be an old copy, whose lists have expired.
install() {
  local get=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Check-Valid-Until=false)
  {
    chroot "$1" "${get[@]}" update &&
      chroot "$1" "${get[@]}" install -y --no-install-recommends "${MPI[@]}"
  } > "$2" 2>&1 < /dev/null || { tail -n 20 "$2"; return 1; }
}

# try_in RELEASE: fails if no part could run. Otherwise the rows say what has failed.
try_in() {
  local release=$1 layer=$PWD/build/mpi/$1 room=$PWD/build/mpi/$1/room
  have_chroot "$release" || return 1
  mkdir -p "$layer/upper" "$layer/work" "$room"
  mount -t overlay overlay -o "lowerdir=$PWD/build/chroots/$release,upperdir=$layer/upper,workdir=$layer/work" "$room" ||
    skip "no overlay can be mounted at $room"
  enter "$room"
  online "$room"
  if [ ! -x "$room/usr/bin/mpicc.mpich" ] || [ ! -x "$room/usr/bin/mpicc.openmpi" ]; then
    echo "mpi_matrix: installing ${MPI[*]} in $release"
    install "$room" "$layer.apt.log" || return 1
  fi
  mkdir -p "$room/work/build/mpi"
  rm -rf "$room"/work/{test,scripts,python,include}
  mkdir "$room/work/test"
  cp -r test/schedulers "$room/work/test/"
  cp -r scripts python include "$room/work/"
  cp build/gorovod build/horovodrun build/libgorovod.so "$room/work/build/"
  cp build/mpi/world.test "$room/work/build/mpi/"
  touch "$layer.tsv" "$room/work/build/rows.tsv"
  mount --bind "$layer.tsv" "$room/work/build/rows.tsv" # so that the rows are kept even if the run is cut short
  chroot "$room" bash -c '
    cd /work
    export PYTHON=/usr/bin/python3 TMPDIR=/tmp ROWS=build/rows.tsv
    scripts/prepare.sh mpi4py
    scripts/schedulers.sh "$PYTHON" "$@"' in "${@:2}" < /dev/null 2>&1 | tee "$layer.log"
  leave "$room"
}

rows=()
status=0
for release in "${releases[@]}"; do
  [ "$PARTS" != "$most" ] || rm -f "build/mpi/$release.tsv"
  # shellcheck disable=SC2086 # several words
  if try_in "$release" $PARTS; then
    rows+=("build/mpi/$release.tsv")
  else
    echo "mpi_matrix: nothing could be tried in $release"
    status=1
  fi
done
echo
scripts/rows.sh "${rows[@]}" || status=1
exit "$status"
