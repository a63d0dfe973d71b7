#!/usr/bin/env bash
# Runs the fault tests over and over, each time with another seed:
# scripts/soak.sh SECONDS PYTHON. Stops at the first failure and tells its seed.
set -euo pipefail
cd "$(dirname "$0")/.."

end=$((SECONDS + $1))
rounds=0
while [ "$SECONDS" -lt "$end" ]; do
  export GOROVOD_TEST_SEED=$((RANDOM << 15 | RANDOM))
  "$2" scripts/python_tests.py test/python/test_faults.py || { echo "soak: failed with GOROVOD_TEST_SEED=$GOROVOD_TEST_SEED"; exit 1; }
  rounds=$((rounds + 1))
done
echo "soak: $rounds rounds passed"
