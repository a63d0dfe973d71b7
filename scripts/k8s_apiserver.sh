#!/usr/bin/env bash
# Builds kube-apiserver, of the version in test/k8s/apiserver/go.mod, as an ordinary Go program in build/kube-apiserver,
# and gives it all manifests (TestAPIServer in test/k8s). The first build takes some ten minutes of a core; the download
# is 0.4 GB. etcd comes from Debian (etcd-server); as root the script installs it by apt-get.
set -euo pipefail
cd "$(dirname "$0")/.."

etcd=$(command -v etcd) || {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || { echo "k8s_apiserver: etcd is needed: install it" >&2; exit 1; }
  echo "k8s_apiserver: apt-get install etcd-server"
  apt-get -qq install -y --no-install-recommends etcd-server >/dev/null
  etcd=$(command -v etcd)
}
echo "k8s_apiserver: building kube-apiserver: some ten minutes the first time"
(cd test/k8s/apiserver && ${GO:-go} build -p "${JOBS:-1}" -trimpath -ldflags='-s -w' \
  -o ../../../build/kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver)
cd test/k8s
${GO:-go} test -count=1 -v -run TestAPIServer . -apiserver "$PWD/../../build/kube-apiserver" -etcd "$etcd"
