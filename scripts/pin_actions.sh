#!/usr/bin/env bash
# Pins each action of the workflows that is named by a tag to the commit of that tag, and keeps the tag as a comment, which
# Dependabot reads: scripts/pin_actions.sh [FILE…]. Asks GitHub by git ls-remote, and changes nothing if a tag is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- .github/workflows/*.yml

edits=()
while read -r action tag; do
  repository=https://github.com/$(cut -d/ -f1,2 <<<"$action")
  # An annotated tag has a second line, which ends in ^{}, with the commit.
  commit=$(git ls-remote "$repository" "refs/tags/$tag" "refs/tags/$tag^{}" | sort -k2 | tail -n 1 | cut -f1)
  [ -n "$commit" ] || { echo "pin_actions: $repository has no tag $tag: correct it in $*" >&2; exit 1; }
  echo "$action $tag is $commit"
  edits+=(-e "s|\(uses: $action\)@${tag//./\\.}\$|\1@$commit # $tag|")
done < <(sed -nE 's/.*uses: ([^@ ]+)@(v[0-9.]+)$/\1 \2/p' "$@" | sort -u)
[ "${#edits[@]}" -eq 0 ] || sed -i "${edits[@]}" "$@"
