# shellcheck shell=bash
# An API server on loopback: Plinth, or kube-apiserver with etcd, both with a front proxy. Read by scripts/upstream-e2e,
# scripts/remote-apis, scripts/large-cluster, scripts/cluster-life, scripts/move-cluster and scripts/bench-stock after
# control-plane.sh and pki.sh, which set
#   to                the directory of data, certificates and logs
#   plinth            the program, or else
#   apiserver, etcd   kube-apiserver and etcd; plinth_etcd for `plinth etcd` in its place
#   kubectl
# start_api_server sets port, kubeconfig (the administrator's), pki (the directory of authority and keys) and api_pids.

# How Services of webhooks and remote APIs are reached: at their endpoints.
routing=(--enable-aggregator-routing)
api_pids=()
start_api_server() {
  port=$(free_port)
  if [ -n "${plinth:-}" ]; then start_plinth; else start_kube_apiserver; fi
  # shellcheck disable=SC2034,SC2154 # for the scripts that measure them; control-plane.sh has pids
  api_pids=("${pids[@]}")
}

# credentials USER FILE
credentials() {
  local user=$1 file=$2
  if [ -n "${plinth:-}" ]; then
    "$plinth" kubeconfig --data-dir "${to:?}/data" --user "$user" --to "$file"
    return
  fi
  local groups=''
  [ "$user" != admin ] || groups=/O=system:masters
  issue "$pki" "$user" "$groups/CN=$user" extendedKeyUsage=clientAuth
  "${kubectl:?}" config --kubeconfig "$file" set-cluster e2e --server "https://127.0.0.1:$port" \
    --certificate-authority "$pki/ca.crt" --embed-certs
  "$kubectl" config --kubeconfig "$file" set-credentials "$user" --client-certificate "$pki/$user.crt" \
    --client-key "$pki/$user.key" --embed-certs
  "$kubectl" config --kubeconfig "$file" set-context e2e --cluster e2e --user "$user"
  "$kubectl" config --kubeconfig "$file" use-context e2e
}

# The same for both servers; @ stands for the directory of the certificates.
front_proxy=(--requestheader-client-ca-file @/ca.crt --requestheader-allowed-names front-proxy
  --requestheader-username-headers X-Remote-User --requestheader-group-headers X-Remote-Group
  --requestheader-extra-headers-prefix X-Remote-Extra- --proxy-client-cert-file @/front-proxy.crt
  --proxy-client-key-file @/front-proxy.key)
start_plinth() {
  pki=$to/data/pki
  # Of these only the front proxy's authority and certificate are used.
  make_pki "$to/pki"
  start plinth "$plinth" serve --data-dir "$to/data" --bind-address 127.0.0.1 --secure-port "$port" --controllers= \
    --service-cluster-ip-range 10.0.0.0/16 "${routing[@]}" "${front_proxy[@]/#@/$to/pki}"
  kubeconfig=$to/data/admin.kubeconfig
  ready plinth "$kubectl" --kubeconfig "$kubeconfig" get --raw /readyz
}
# start_etcd URL DIR
start_etcd() {
  local peer
  if [ -n "${plinth_etcd:-}" ]; then
    start etcd "$plinth_etcd" etcd --data-dir "$2" --listen-client-urls "$1"
    return
  fi
  peer=http://127.0.0.1:$(free_port)
  start etcd "${etcd:?}" --data-dir "$2" --listen-client-urls "$1" --advertise-client-urls "$1" \
    --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" --initial-cluster "default=$peer"
}
start_kube_apiserver() {
  local client
  client=$(free_port)
  start_etcd "http://127.0.0.1:$client" "$to/etcd"
  pki=$to/pki
  make_pki "$pki"
  serve_etcd "http://127.0.0.1:$client"
  kubeconfig=$to/admin.kubeconfig
  credentials admin "$kubeconfig" >/dev/null
  ready kube-apiserver "$kubectl" --kubeconfig "$kubeconfig" get --raw /readyz
}
# serve_etcd URL FLAG...: kube-apiserver on port, with what pki has; it is not ready yet.
serve_etcd() {
  start kube-apiserver "${apiserver:?}" --etcd-servers "$1" --bind-address 127.0.0.1 \
    --advertise-address 127.0.0.1 --secure-port "$port" --service-cluster-ip-range 10.0.0.0/16 \
    --tls-cert-file "$pki/apiserver.crt" --tls-private-key-file "$pki/apiserver.key" --client-ca-file "$pki/ca.crt" \
    --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$pki/sa.key" \
    --service-account-signing-key-file "$pki/sa.key" --authorization-mode Node,RBAC --allow-privileged=true \
    "${front_proxy[@]/#@/$pki}" "${routing[@]}" --endpoint-reconciler-type none "${@:2}"
}
