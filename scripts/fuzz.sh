#!/usr/bin/env bash
# Runs every Go fuzz target for TIME: scripts/fuzz.sh TIME, a time such as 20s or a number of inputs such as 200x.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t targets < <(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sed -E 's,/[^/]*:func ,:,' | sort -u)
[ ${#targets[@]} -gt 0 ] || { echo "there are no fuzz targets" >&2; exit 1; }
for target in "${targets[@]}"; do
  echo "== ${target%%:*} ${target##*:}"
  go test -run '^$' -fuzz "^${target##*:}\$" -fuzztime "$1" "${target%%:*}"
done
echo "${#targets[@]} fuzz targets found nothing"
