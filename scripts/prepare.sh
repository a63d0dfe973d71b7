#!/usr/bin/env bash
# Installs what the Makefile's targets need, and says what it does.
#
#   scripts/prepare.sh toolchain   Go and a C compiler
#   scripts/prepare.sh python      a Python with torch; its path goes to build/python
#   scripts/prepare.sh tools       build/tools: linters, pinned
#   scripts/prepare.sh docs        build/docs-tools: the tools that make the documentation, pinned
#   scripts/prepare.sh wheel       build/wheel-tools: the tools that make and check wheels, pinned
#   scripts/prepare.sh release     build/release-tools: further tools that check a release, pinned
#   scripts/prepare.sh tensorflow  build/tensorflow-VERSION: virtual environments with TensorFlow
#   scripts/prepare.sh jax         build/jax: a virtual environment with JAX and Keras, pinned; none if PyPI has no such JAX
#   scripts/prepare.sh ray         build/ray: a virtual environment with Ray, pinned, that also sees the Python in build/python
#   scripts/prepare.sh spark       build/spark: a virtual environment with PySpark, likewise; Java, where it can be installed
#   scripts/prepare.sh ecosystem   build/ecosystem: environments with other projects' packages, pinned; 13 GB, PyTorch 2 twice among them
#   scripts/prepare.sh mpi4py      build/mpi4py: mpi4py for PYTHON, or the one in build/python; none if PyPI cannot be reached
#   scripts/prepare.sh nvidia      build/nvidia: headers of CUDA, and NCCL in three versions, pinned; 1.1 GB
#   scripts/prepare.sh hosts       ssh, sshd, ip, Open MPI and MPICH for tests over several hosts, where they can be installed
#
# Returns at once if nothing is missing. Changes the system (apt-get) only as
# root; otherwise everything goes under build/.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
[ -f build/go.mod ] || echo "// Go's ./... ends here." >build/go.mod

TOOLS=(ruff==0.17.5 mypy==2.4.1)
RELEASE_TOOLS=('cyclonedx-python-lib[json-validation]==11.12.0' twine==7.0.0)
WHEEL_TOOLS=(hatchling==1.33.0 ziglang==0.16.0 auditwheel==6.8.2)
MODULES=(torch numpy pytest cloudpickle)
DOCS_TOOLS=(sphinx==9.0.4 sphinx-design==0.8.0 furo==2025.12.19 myst-parser==5.2.0 sphinx-copybutton==0.5.2 griffelib==2.4.1)
JAX=(jax==0.10.2 keras==3.15.1 numpy pytest cloudpickle)
# By folder in build/nvidia: the oldest supported NCCL, and the newest NCCL for each CUDA.
declare -A NVIDIA=(
  [oldest]=nvidia-nccl-cu11==2.14.3
  [cuda12]='nvidia-nccl-cu12==2.32.3 nvidia-cuda-runtime-cu12==12.9.79'
  [cuda13]='nvidia-nccl-cu13==2.32.3 nvidia-cuda-runtime==13.5.37 nvidia-cuda-crt==13.5.37'
)
MPI4PY=mpi4py==4.1.2
# NumPy and the packages that are built against it must suit the torch of build/python. Debian 12's knows only NumPy 1.
RAY=('ray[default,train,tune,client]==2.60.0' 'numpy<2' 'pyarrow<22' 'pandas<3')
SPARK=('pyspark[connect]==4.3.0' 'numpy<2' 'pyarrow<22' 'pandas<3' tensorflow-cpu==2.21.0 tensorboard fsspec s3fs 'moto[server]' scikit-learn pytest cloudpickle)
# By environment in build/ecosystem. PyPI's PyTorch for x86-64 depends on CUDA's libraries, some 2 GB.
declare -A ECOSYSTEM=(
  [torch]='torch==2.15.0 numpy pytest pytest-xdist cloudpickle parameterized pytorch-ignite==0.5.5 pytorch-lightning==2.6.6 accelerate==1.15.0 transformers==5.23.0 torchft==0.2.0
    torchmetrics==1.9.0 optuna==5.0.0 optuna-integration==5.0.0'
  [tfra]='tensorflow-cpu==2.16.2 tf-keras==2.16.0 typeguard==2.13.3 cloudpickle'
  [lightning-horovod]=pip
  [ray]='ray[tune]==2.60.0 cloudpickle'
  [torchrec]='torch==2.14.1 numpy fbgemm-gpu-cpu==1.9.0 tensordict==0.15.3 torchmetrics==1.0.3 tqdm pyre-extensions setuptools cloudpickle'
)
# Packages that are installed without their dependencies: these are TensorFlow and FBGEMM, whose CPU packages have other
# names, and PyTorch, which the environments lightning-horovod and ray see in the environment torch.
declare -A ECOSYSTEM_ALONE=(
  [tfra]=tensorflow-recommenders-addons==0.8.1
  [torchrec]=torchrec==1.9.2
  [lightning-horovod]='pytorch-lightning==2.0.0rc0 lightning-fabric==2.0.0rc0 lightning-horovod==0.1.0.dev0'
)
# The newest TensorFlow, and the last with Keras 2. TENSORFLOWS="2.13.1 …" chooses others.
TENSORFLOWS=${TENSORFLOWS:-2.21.0 2.15.1}

say() { echo "prepare: $*" >&2; }
die() { say "$*"; exit 1; }

can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

# Installs packages. If that fails, updates the package lists, and tries again.
apt_install() {
  say "apt-get install $*"
  local get=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
  "${get[@]}" install -y --no-install-recommends "$@" >build/apt.log 2>&1 && return
  { "${get[@]}" update && "${get[@]}" install -y --no-install-recommends "$@"; } >build/apt.log 2>&1 && return
  tail -n 20 build/apt.log >&2
  return 1
}

toolchain() {
  command -v go >/dev/null || die "go is not in PATH: install Go 1.26 or later (https://go.dev/dl), and add its bin folder to PATH"
  local cc=(${CC:-cc}) # it may have arguments
  if ! command -v "${cc[0]}" >/dev/null && ! command -v gcc >/dev/null; then
    can_apt || die "no C compiler, and libgorovod.so needs one: install gcc (Debian: gcc libc6-dev) or clang, or name one by CC"
    apt_install gcc libc6-dev
  fi
}

# Succeeds if Python $1 finds all of MODULES. It imports none of them, because importing torch is slow.
has_modules() {
  "$1" - "${MODULES[@]}" <<'PY' >/dev/null 2>&1
import importlib.util, sys
sys.exit(not all(importlib.util.find_spec(m) for m in sys.argv[1:]))
PY
}

python() {
  if [ -n "${PYTHON:-}" ]; then
    [ -x "$(command -v "$PYTHON")" ] || die "PYTHON=$PYTHON is no program: give the path of a Python, or leave PYTHON out"
    has_modules "$PYTHON" || die "PYTHON=$PYTHON lacks some of: ${MODULES[*]}. In a virtual environment install them with" \
      "$PYTHON -m pip install ${MODULES[*]}; or leave PYTHON out, and make finds or installs another Python"
    return
  fi
  local path
  for path in "${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/python}" "$(command -v python3 || true)" \
    /usr/bin/python3 "$PWD/build/venv/bin/python"; do
    if [ -x "$path" ] && has_modules "$path"; then
      use_python "$path"
      return
    fi
  done
  path=$(command -v python3 || true)
  if can_apt; then
    say "${path:-no python3} has not all of ${MODULES[*]}: installing Debian's for /usr/bin/python3, some 500 MB"
    say "(to use your own Python instead: make … PYTHON=/path/to/python that has them)"
    if apt_install python3 python3-torch python3-numpy python3-pytest python3-cloudpickle; then
      use_python /usr/bin/python3
      return
    fi
  fi
  say "${path:-no python3} has not all of ${MODULES[*]}: making build/venv from PyPI, a download of up to 3 GB on x86-64"
  say "(quicker: a system package such as Debian's python3-torch, or make … PYTHON=/path/to/python that has them)"
  make_venv build/venv
  build/venv/bin/python -m pip install --quiet "${MODULES[@]}" >&2 ||
    die "pip could not install ${MODULES[*]} for $(build/venv/bin/python --version), maybe because PyTorch has no packages for it yet:" \
      "make … PYTHON=/path/to/another/python that has them"
  use_python "$PWD/build/venv/bin/python"
}

# Writes the path $1 to build/python, if torch can be imported there. Says so if it is not the Python that was used before.
use_python() {
  [ "$(cat build/python 2>/dev/null)" = "$1" ] && return
  "$1" -c 'import torch, sys; print("prepare: using %s, Python %d.%d with torch %s" % (sys.argv[1], *sys.version_info[:2], torch.__version__))' "$1" >&2 ||
    die "$1 has torch but cannot import it: repair it with $1 -m pip install --force-reinstall torch, or name another by PYTHON=/path/to/python"
  local path
  path=$(command -v python3 || true)
  [ -z "$path" ] || [ "$path" = "$1" ] || [ -n "${VIRTUAL_ENV:-}" ] || has_modules "$path" ||
    say "(not the python3 in PATH, $path, which has not all of ${MODULES[*]}; to use another: make … PYTHON=/path/to/python)"
  echo "$1" >build/python
}

make_venv() {
  [ -x "$1/bin/python" ] && "$1/bin/python" -m pip --version >/dev/null 2>&1 && return
  rm -rf "$1"
  command -v python3 >/dev/null || { can_apt && apt_install python3 python3-venv; } || die "python3 is missing: install it (Debian: python3 python3-venv)"
  python3 -m venv "$1" 2>/dev/null && return
  can_apt || die "python3 -m venv does not work here; Debian has it in python3-venv"
  apt_install python3-venv
  rm -rf "$1"
  python3 -m venv "$1"
}

# Makes the virtual environment $1 with the packages $2….
install_into() {
  local venv=$1
  shift
  [ "$(cat "$venv/.complete" 2>/dev/null)" = "$*" ] && return
  say "installing $* into $venv"
  make_venv "$venv"
  "$venv/bin/python" -m pip install --quiet "$@" >&2
  echo "$*" >"$venv/.complete"
}

# In a folder beside the Python with torch, which may be the system's Python.
mpi4py() {
  local python
  python=${PYTHON:-$(cat build/python)}
  [ "$(cat build/mpi4py/.complete 2>/dev/null)" = "$MPI4PY for $python" ] && return
  say "installing $MPI4PY into build/mpi4py"
  rm -rf build/mpi4py
  if ! "$python" -m pip install --quiet --no-deps --target build/mpi4py "$MPI4PY" >build/mpi4py.log 2>&1; then
    say "it cannot be installed, so its tests are left out: $(tail -n 1 build/mpi4py.log)"
    rm -rf build/mpi4py
    return
  fi
  echo "$MPI4PY for $python" >build/mpi4py/.complete
}

# Tests read and load these. No wheel contains them, because NVIDIA's licence forbids to distribute them.
nvidia() {
  local python=${PYTHON:-$(cat build/python)} folder site
  for folder in "${!NVIDIA[@]}"; do
    site=build/nvidia/$folder/site-packages
    [ "$(cat "$site/.complete" 2>/dev/null)" = "${NVIDIA[$folder]}" ] && continue
    say "installing ${NVIDIA[$folder]} into $site"
    rm -rf "$site"
    # shellcheck disable=SC2086 # several packages
    if ! "$python" -m pip install --quiet --no-deps --target "$site" ${NVIDIA[$folder]} >build/nvidia.log 2>&1; then
      say "they cannot be installed, so their tests are left out: $(tail -n 1 build/nvidia.log)"
      rm -rf "$site"
      continue
    fi
    echo "${NVIDIA[$folder]}" >"$site/.complete"
  done
}

hosts() {
  local missing=()
  [ -x /usr/sbin/sshd ] || missing+=(openssh-server)
  command -v ssh >/dev/null || missing+=(openssh-client)
  command -v ip >/dev/null || missing+=(iproute2)
  command -v mpirun.openmpi >/dev/null || missing+=(openmpi-bin)
  command -v mpirun.mpich >/dev/null || missing+=(mpich) # 8 MB; mpirun stays Open MPI's
  [ "${#missing[@]}" -eq 0 ] || ! can_apt || apt_install "${missing[@]}" || say "without ${missing[*]} the tests over several hosts are skipped"
}

tools() { install_into build/tools "${TOOLS[@]}"; }

wheel() { install_into build/wheel-tools "${WHEEL_TOOLS[@]}"; }

release() { install_into build/release-tools "${RELEASE_TOOLS[@]}"; }

docs() { install_into build/docs-tools "${DOCS_TOOLS[@]}"; }

# Makes an environment for each of TENSORFLOWS, and writes their Pythons' paths to build/tensorflows. If PyPI
# has no such version for this Python, says so and leaves it out.
tensorflow() {
  local version venv pythons=()
  for version in $TENSORFLOWS; do
    venv=build/tensorflow-$version
    if [ ! -e "$venv/.complete" ]; then
      say "installing tensorflow-cpu $version into $venv: a download of some 250 MB"
      make_venv "$venv"
      if ! "$venv/bin/python" -m pip install --quiet "tensorflow-cpu==$version" pytest cloudpickle >"$venv.log" 2>&1; then
        grep -q "No matching distribution found for tensorflow-cpu" "$venv.log" || { tail -n 20 "$venv.log" >&2; exit 1; }
        say "PyPI has no tensorflow-cpu $version for $("$venv/bin/python" --version): its tests are left out"
        rm -rf "$venv"
        continue
      fi
      touch "$venv/.complete"
    fi
    pythons+=("$PWD/$venv/bin/python")
  done
  printf '%s\n' "${pythons[@]}" >build/tensorflows
  [ "${#pythons[@]}" -gt 0 ] || die "none of TensorFlow $TENSORFLOWS can be installed for $(python3 --version)"
}

# If PyPI has no such JAX for this Python, says so and leaves it out.
jax() {
  [ "$(cat build/jax/.complete 2>/dev/null)" = "${JAX[*]}" ] && return
  say "installing ${JAX[*]} into build/jax: a download of some 150 MB"
  make_venv build/jax
  if ! build/jax/bin/python -m pip install --quiet "${JAX[@]}" >build/jax.log 2>&1; then
    grep -q "No matching distribution found" build/jax.log || { tail -n 20 build/jax.log >&2; exit 1; }
    say "PyPI has no ${JAX[0]} for $(build/jax/bin/python --version): its tests are left out"
    rm -rf build/jax
    return
  fi
  echo "${JAX[*]}" >build/jax/.complete
}

# Makes the environment $1 for the packages $3…, of some $2 MB, which sees the Python with torch, so that torch is not
# installed twice. If PyPI does not have the packages for this Python, says so and leaves the environment out.
beside_torch() {
  local venv=$1 size=$2 python
  shift 2
  python=${PYTHON:-$(cat build/python)}
  [ "$(cat "$venv/.complete" 2>/dev/null)" = "$* for $python" ] && return
  say "installing $* into $venv: a download of some $size MB"
  rm -rf "$venv"
  "$python" -m venv --system-site-packages "$venv" 2>/dev/null ||
    { can_apt && apt_install python3-venv && "$python" -m venv --system-site-packages "$venv"; } || die "$python -m venv does not work"
  # --system-site-packages shows the packages of the base Python only. torch may be in a virtual environment.
  "$python" -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])' \
    >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch.pth"
  if ! "$venv/bin/python" -m pip install --quiet "$@" >"$venv.log" 2>&1; then
    grep -q "No matching distribution found" "$venv.log" || { tail -n 20 "$venv.log" >&2; exit 1; }
    say "PyPI has no $1 for $("$python" --version): its tests are left out"
    rm -rf "$venv"
    return
  fi
  echo "$* for $python" >"$venv/.complete"
}

ray() { beside_torch build/ray 200 "${RAY[@]}"; }

# If an environment cannot be made, says so and leaves it out. Its programs get a row that says so, too.
ecosystem() {
  local name venv alone
  mkdir -p build/ecosystem
  for name in "${!ECOSYSTEM[@]}"; do
    venv=build/ecosystem/$name
    alone=${ECOSYSTEM_ALONE[$name]:-}
    [ "$(cat "$venv/.complete" 2>/dev/null)" = "${ECOSYSTEM[$name]} $alone" ] && continue
    say "installing ${ECOSYSTEM[$name]} $alone into $venv"
    make_venv "$venv"
    [[ $name != lightning-horovod && $name != ray ]] ||
      "$venv/bin/python" -c 'import pathlib, sysconfig
here = pathlib.Path(sysconfig.get_path("purelib"))
torch = here.parents[3] / "torch" / here.relative_to(here.parents[2])
(here / "torch.pth").write_text(f"{torch}\n")'
    # shellcheck disable=SC2086 # several packages
    if ! "$venv/bin/python" -m pip install --quiet ${ECOSYSTEM[$name]} >"$venv.log" 2>&1 ||
      { [ -n "$alone" ] && ! "$venv/bin/python" -m pip install --quiet --no-deps $alone >>"$venv.log" 2>&1; }; then
      say "they cannot be installed: $(tail -n 1 "$venv.log")"
      rm -rf "$venv"
      continue
    fi
    echo "${ECOSYSTEM[$name]} $alone" >"$venv/.complete"
  done
}

spark() {
  if ! command -v java >/dev/null && ! { can_apt && apt_install openjdk-17-jre-headless; }; then
    say "without Java the tests of Spark are left out (Debian has it in openjdk-17-jre-headless)"
    rm -rf build/spark
    return
  fi
  beside_torch build/spark 900 "${SPARK[@]}"
}

[ $# -gt 0 ] || die "say what to prepare: toolchain, python, tools, docs, hosts, wheel, release, tensorflow, jax, ray, spark, ecosystem, mpi4py, nvidia"
for part; do
  case $part in
  toolchain | python | tools | docs | hosts | wheel | release | tensorflow | jax | ray | spark | ecosystem | mpi4py | nvidia) "$part" ;;
  *) die "$part: not one of toolchain, python, tools, docs, hosts, wheel, release, tensorflow, jax, ray, spark, ecosystem, mpi4py, nvidia" ;;
  esac
done
