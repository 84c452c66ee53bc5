# shellcheck shell=bash
# A control plane on loopback: processes in the background, kube-controller-manager and kube-scheduler, and nodes whose
# kubelet is kwok. Read by scripts/upstream-e2e, scripts/replicated-control-plane, scripts/remote-apis,
# scripts/large-cluster and scripts/cluster-life, which set
#   to              the directory of logs and kubeconfigs
#   kubectl, kwok, stages, kubeconfig, and pods if pods have other addresses than of loopback
#   node_network, kubelet_port   the first three numbers of the nodes' addresses, and their kubelets' port, where
#                   something listens there; kwok's own otherwise
# and define fail MESSAGE, and credentials USER FILE, which writes a kubeconfig.

# shellcheck source=scripts/lib/ports.sh
. "${BASH_SOURCE[0]%/*}/ports.sh"

pids=()
# shellcheck disable=SC2317 # called by a trap
stop_all() {
  # The server last, so that the others can let go of their leases.
  local at
  for ((at = ${#pids[@]} - 1; at >= 0; at--)); do
    kill "${pids[at]}" 2>/dev/null || true
    wait "${pids[at]}" 2>/dev/null || true
  done
  pids=()
}
# start NAME COMMAND...: in the background, its output in NAME.log, which a later start goes on with.
start() {
  local name=$1
  shift
  "$@" >> "${to:?}/$name.log" 2>&1 < /dev/null &
  pids+=($!)
}
# ready NAME COMMAND...: waits until the command succeeds, while what was started last runs.
ready() {
  local name=$1
  shift
  for _ in $(seq 600); do
    kill -0 "${pids[-1]}" 2>/dev/null || { tail -n 20 "$to/$name.log" >&2; fail "$name has ended"; }
    "$@" >/dev/null 2>&1 && return
    sleep 0.2
  done
  fail "$name does not get ready, see $to/$name.log"
}
# component NAME PROGRAM FLAG...
component() {
  local name=$1 program=$2 file=$to/$1.kubeconfig
  credentials "system:$name" "$file" >/dev/null
  start "$name" "$program" --kubeconfig "$file" --authentication-kubeconfig "$file" \
    --authorization-kubeconfig "$file" --bind-address 127.0.0.1 --secure-port "$(free_port)" \
    --cert-dir "$to/certificates" "${@:3}"
}
# controller_manager PROGRAM PKI FLAG...
controller_manager() {
  component kube-controller-manager "$1" --use-service-account-credentials \
    --service-account-private-key-file "$2/sa.key" --root-ca-file "$2/ca.crt" \
    --cluster-signing-cert-file "$2/ca.crt" --cluster-signing-key-file "$2/ca.key" \
    --service-cluster-ip-range 10.0.0.0/16 "${@:3}"
}
# What kwok does with nodes and pods: its own stages.
write_stages() {
  local file
  for file in "${stages:?}"/node/fast/node-*.yaml "$stages"/node/heartbeat-with-lease/node-*.yaml "$stages"/pod/fast/pod-*.yaml; do
    cat "$file"
    echo ---
  done
}
# nodes COUNT: as manifests.
nodes() {
  local number addresses
  for number in $(seq "$1"); do
    addresses=
    [ -z "${node_network:-}" ] || addresses="\"addresses\": [{\"type\": \"InternalIP\", \"address\": \"$node_network.$number\"},
   {\"type\": \"Hostname\", \"address\": \"node-$number\"}],"
    cat <<END
---
{"apiVersion": "v1", "kind": "Node",
 "metadata": {"name": "node-$number", "labels": {"kubernetes.io/hostname": "node-$number", "kubernetes.io/os": "linux",
   "kubernetes.io/arch": "amd64"}},
 "status": {$addresses "capacity": {"cpu": "32", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "250"},
   "allocatable": {"cpu": "32", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "250"}}}
END
  done
}
# start_nodes COUNT
start_nodes() {
  nodes "$1" | "${kubectl:?}" --kubeconfig "${kubeconfig:?}" create -f - >/dev/null
  write_stages > "$to/stages.yaml"
  # An empty home: kwok reads a configuration there.
  mkdir -p "$to/home"
  start kwok env HOME="$to/home" "${kwok:?}" --config "$to/stages.yaml" --kubeconfig "$kubeconfig" \
    --manage-all-nodes=true --node-ip 127.0.0.1 --cidr "${pods:-127.100.0.0/16}" --node-port "${kubelet_port:-$(free_port)}" --server-address "127.0.0.1:$(free_port)" \
    --node-lease-duration-seconds 40
  ready kwok are_ready "$1"
}
# are_ready COUNT: so many nodes.
are_ready() {
  local conditions
  conditions=$("$kubectl" --kubeconfig "$kubeconfig" get nodes \
    -o 'jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}')
  [ "$(grep -c True <<< "$conditions")" = "$1" ]
}
# errors_of NAME: what was logged as an error: names and numbers left out, the most frequent first.
errors_of() {
  grep -hE '^E[0-9]{4} |"level":"ERROR"' "$to/$1.log" | sed -E 's/^E[0-9]{4} [0-9:.]+ +[0-9]+ //
    s/"time":"[^"]*",?//; s#load/[a-z0-9-]+#load/NAME#g; s/[0-9a-f]{8}-[0-9a-f-]{27}/UID/g; s/(web|db|once|d[0-9]+)-[a-z0-9-]+/NAME/g
    s/[0-9]+/N/g' | cut -c1-150 | sort | uniq -c | sort -rn
}
# How many errors each component has logged, and the most frequent.
print_errors() {
  local component
  printf '\nerrors in logs\n\n'
  for component in kube-controller-manager kube-scheduler kwok; do
    errors_of "$component" > "$to/$component.errors"
    printf '%s: %s\n' "$component" "$(awk '{ sum += $1 } END { print sum + 0 }' "$to/$component.errors")"
    head -n 8 "$to/$component.errors"
  done
}
