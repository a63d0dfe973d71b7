#!/usr/bin/env bash
# Runs what depends on chance over and over, until SECONDS have passed or something fails:
# the fault tests, and Go's tests, whose property tests search from a new seed each time
# and print it. First an elastic job is trained through faults at random for $CHAOS (10m): as root over
# hosts that are network namespaces, else over addresses of this host. $CHAOS_KEEP is a directory in which all journals stay.
# scripts/soak.sh SECONDS PYTHON
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
