#!/usr/bin/env bash
# scripts/spark_lightning.sh runs this in a chroot that has the wheel and the tests in /spark:
# spark_lightning_inside.sh PACKAGES ARGUMENT OF PYTEST…
set -euo pipefail
packages=$1
shift
cd /spark
export PYTHONDONTWRITEBYTECODE=1 DEBIAN_FRONTEND=noninteractive
unset PYTHONPATH GOROVOD_LIBRARY

if ! command -v java >/dev/null; then
  echo "spark_lightning: installing Java"
  install=(apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends openjdk-21-jre-headless)
  "${install[@]}" >/dev/null 2>&1 || { apt-get -qq update && "${install[@]}" >/dev/null; }
fi

venv=/opt/venv-spark
if [ "$(cat "$venv/.complete" 2>/dev/null)" != "$packages" ]; then
  echo "spark_lightning: installing $packages"
  rm -rf "$venv"
  python3 -m venv --system-site-packages "$venv"
  read -ra wanted <<<"$packages"
  "$venv/bin/pip" install --quiet --no-cache-dir "${wanted[@]}"
  echo "$packages" >"$venv/.complete"
fi
"$venv/bin/pip" install --quiet --no-index --no-deps --force-reinstall ./*.whl

"$venv/bin/python" -c "
import sys, torch, pytorch_lightning
print('spark_lightning: Python', sys.version.split()[0], 'PyTorch', torch.__version__, 'Lightning', pytorch_lightning.__version__)
"
"$venv/bin/python" -m pytest -q "$@"
