#!/usr/bin/env bash
# Makes a release and checks it, but does not publish it: scripts/release.sh PYTHON
#
# PYTHON is a Python with torch. The files go to dist/release. docs/release.md says what a maintainer does before and
# after. With ALLOW_DIRTY=1 the checkout may have changes, so that you can try this script.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
machine=$(uname -m)
MACHINES=(x86_64 aarch64)
declare -A GOARCH=([x86_64]=amd64 [aarch64]=arm64)
out=$PWD/dist/release
undone=()

die() { echo "release: $*" >&2; exit 1; }

# ---- the version: the same everywhere, in the changelog, and no other commit's

version=$(sed -n 's/^\tVersion = "\(.*\)"$/\1/p' internal/base/version/version.go)
[ -n "$version" ] || die "internal/base/version/version.go says no version"
section=$(sed -n "s/^## \(\[$version\] - .*\)/\1/p" CHANGELOG.md)
[ -n "$section" ] || die "CHANGELOG.md has no section '## [$version] - DATE'"
[[ $section =~ -\ [0-9]{4}-[0-9]{2}-[0-9]{2}$ ]] || undone+=("give the section of $version in CHANGELOG.md its date")
go test -count=1 -run TestPython ./internal/base/version >/dev/null || die "go test ./internal/base/version fails: python/horovod/_version.py says another version"
changes=$(git status --porcelain)
if [ -n "$changes" ]; then
  [ "${ALLOW_DIRTY:-}" = 1 ] || die "the checkout has changes, so no commit is what would be released:"$'\n'"$changes"
  undone+=("commit: this was made of a checkout with changes, and is not to be published")
fi
commit=$(git rev-parse HEAD)
if tagged=$(git rev-parse --verify --quiet "v$version^{commit}") && [ "$tagged" != "$commit" ]; then
  die "the tag v$version is at ${tagged:0:12}, not at this commit: raise the version"
fi
others=$(git tag --points-at HEAD | grep '^v[0-9]' | grep -vx "v$version" || true)
[ -z "$others" ] || die "this commit is tagged $others, and internal/base/version says $version"

# With this time, the same commit gives the same files.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
rm -rf "$out"
mkdir -p "$out"
echo "release: gorovod $version of ${commit:0:12}"

# ---- the files of the release: a wheel and an archive for each machine

# archive MACHINE: makes the archive with the command, its man pages, the library, its header and the licences, for users
# without Python. The wheel must have been made before.
archive() {
  local name=gorovod-$version-linux-$1 from=build/wheel-$1
  rm -rf "build/$name"
  mkdir -p "build/$name"/{bin,lib,include}
  cp "$from/gorovod" "build/$name/bin/"
  ln -s gorovod "build/$name/bin/horovodrun"
  cp "$from"/libgorovod*.so "build/$name/lib/"
  cp include/gorovod.h "build/$name/include/"
  cp -r "$from/share" "build/$name/" # man pages and completions, which packing the wheel has written
  cp LICENSE README.md CHANGELOG.md internal/tools/notices/THIRD_PARTY_NOTICES.txt "$from/gorovod.cdx.json" "build/$name/"
  tar -C build --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf - "$name" | gzip -n9 >"$out/$name.tar.gz"
  cp "$from/gorovod.cdx.json" "$out/$name.cdx.json"
  rm -rf "build/$name"
}

for m in "$machine" $(printf '%s\n' "${MACHINES[@]}" | grep -vx "$machine"); do
  rm -rf "build/wheel-$m"
  make --no-print-directory wheel-files OUT="build/wheel-$m" MACHINE="$m" GOARCH="${GOARCH[$m]}"
  GOROVOD_WHEEL_BUILD=build/wheel-$m GOROVOD_WHEEL_NATIVE=build/wheel-$machine build/wheel-tools/bin/python -m hatchling build -t wheel -d "$out"
  archive "$m"
done
cp LICENSE internal/tools/notices/THIRD_PARTY_NOTICES.txt "$out/"

# ---- checks

wheel() { echo "$out/gorovod-$version-py3-none-"*"_$1.whl"; }
for m in "${MACHINES[@]}"; do
  [ -f "$(wheel "$m")" ] || die "there is no wheel of gorovod $version for $m"
  contents=$(tar -tzf "$out/gorovod-$version-linux-$m.tar.gz")
  for file in bin/{gorovod,horovodrun} lib/libgorovod.so include/gorovod.h share/man/man1/{gorovod,horovodrun}.1 LICENSE THIRD_PARTY_NOTICES.txt; do
    grep -qx "gorovod-$version-linux-$m/$file" <<<"$contents" || die "the archive for $m has no $file"
  done
  build/release-tools/bin/python scripts/check_sbom.py "$out/gorovod-$version-linux-$m.cdx.json"
done
build/release-tools/bin/twine check --strict "$out"/*.whl
GOROVOD_WHEEL_BUILD=build/wheel-$machine scripts/check_wheel.sh "$(wheel "$machine")" "$python"
for m in "${MACHINES[@]}"; do
  [ "$m" = "$machine" ] || scripts/check_wheel.sh "$(wheel "$m")"
done
if [ "$machine" = aarch64 ]; then
  undone+=("run the wheel for x86_64: it was only built here")
else
  status=0
  scripts/check_aarch64.sh "$(wheel aarch64)" "build/wheel-$machine/gorovod" | tee build/aarch64-check.log || status=$?
  case $status in
  0) ;;
  77) undone+=("run the wheel for aarch64: $(tail -n 1 build/aarch64-check.log)") ;;
  *) die "the wheel for aarch64 does not work under QEMU" ;;
  esac
fi
(cd "$out" && sha256sum -- * >SHA256SUMS)

# ---- what the maintainer has to do next

echo
echo "dist/release:"
(cd "$out" && stat -c '  %9s  %n' -- *)
echo
echo "Nothing was published. Before you publish gorovod $version:"
for item in "${undone[@]}"; do echo "  - $item"; done
cat <<END
  - run make test, make matrix and make schedulers on this commit
Then:
  git tag -s v$version -m "gorovod $version" && git push origin v$version
  twine upload dist/release/*.whl
  attach the files in dist/release to the release of v$version, with its section of CHANGELOG.md
  raise the version in internal/base/version/version.go, go generate ./internal/base/version, and begin its section in CHANGELOG.md
END
