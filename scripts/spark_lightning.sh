#!/usr/bin/env bash
# Runs the tests of the estimators for PyTorch and Lightning with the wheel, on real Spark, under PyTorch 2:
# scripts/spark_lightning.sh dist/gorovod-….whl [ARGUMENT OF PYTEST…]
#
# They run in a chroot of Debian's trixie (scripts/chroots.sh), because this Lightning needs a newer PyTorch than
# Debian 12 has. The first run installs Java, PySpark and Lightning there, a download of some 600 MB. Needs root, for
# chroot; without root it says so, and ends with status 0.
set -euo pipefail
wheel=$(realpath "$1")
shift
cd "$(dirname "$0")/.."
. scripts/chroots.sh
in_a_namespace "$wheel" "$@"

PACKAGES_OF_PYPI=(pyspark==4.3.0 pytorch-lightning==2.6.6 'pandas<3' 'pyarrow<22' fsspec scikit-learn)
room=$PWD/build/chroots/trixie
have_chroot trixie
enter "$room"
online "$room"
rm -rf "$room/spark"
mkdir -p "$room/spark/test/python"
cp -r test/spark "$room/spark/test/"
cp test/python/docstrings.py "$room/spark/test/python/"
cp -r examples scripts pyproject.toml "$wheel" "$room/spark/"
arguments=("$@")
[ $# -gt 0 ] || arguments=(test/spark/test_{lightning_estimator,torch_estimator,examples,spark_docstrings}.py -k "lightning or torch_")

status=0
chroot "$room" /spark/scripts/spark_lightning_inside.sh "${PACKAGES_OF_PYPI[*]}" "${arguments[@]}" </dev/null || status=$?
leave "$room"
exit "$status"
