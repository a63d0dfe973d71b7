#!/usr/bin/env bash
# Runs the tests that depend on chance until SECONDS have passed or one fails: scripts/soak.sh SECONDS PYTHON
#
# First an elastic job trains through random faults for $CHAOS (default 10m): as root over hosts that are network
# namespaces, else over addresses of this host. All its journals stay in the directory $CHAOS_KEEP, if that is set. Then
# the fault tests and Go's tests run again and again. The property tests take a new seed each time, and print it.
set -euo pipefail
cd "$(dirname "$0")/.."

chaos='TestChaos$'
[ "$(id -u)" != 0 ] || chaos='TestChaosOfHosts$'
go test -count=1 -v -timeout 0 ./test/chaos -run "$chaos" -chaos.for "${CHAOS:-10m}" -chaos.mean 2s -chaos.pause 10ms ${CHAOS_KEEP:+-chaos.keep "$CHAOS_KEEP"}
end=$((SECONDS + $1))
rounds=0
while [ "$SECONDS" -lt "$end" ]; do
  "$2" scripts/python_tests.py test/python/test_faults.py
  go test -count=1 ./...
  FAULTS_PER_CELL=1 go test -count=1 -timeout 20m ./test/faults
  rounds=$((rounds + 1))
done
echo "soak: $rounds rounds passed"
