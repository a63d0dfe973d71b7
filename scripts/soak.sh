#!/usr/bin/env bash
# Runs what depends on chance over and over, until SECONDS have passed or something fails:
# the fault tests, and Go's tests, whose property tests search from a new seed each time
# and print it. First an elastic job is trained through faults at random for $CHAOS (10m).
# scripts/soak.sh SECONDS PYTHON
set -euo pipefail
cd "$(dirname "$0")/.."

go test -count=1 -v -timeout 0 ./test/chaos -run TestChaos -chaos.for "${CHAOS:-10m}" -chaos.mean 2s
end=$((SECONDS + $1))
rounds=0
while [ "$SECONDS" -lt "$end" ]; do
  "$2" scripts/python_tests.py test/python/test_faults.py
  go test -count=1 ./...
  FAULTS_PER_CELL=1 go test -count=1 -timeout 20m ./test/faults
  rounds=$((rounds + 1))
done
echo "soak: $rounds rounds passed"
