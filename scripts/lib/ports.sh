# shellcheck shell=bash
# Ports of 127.0.0.1 for the programs that scripts start, from 14000 to 19999. Tests in Rust take others, and outgoing
# connections have still others, from 32768 on.

# free_ports COUNT OWNER: ports that nothing listens on. They are kept while the path OWNER is there, so that a program
# that is stopped for a while finds its own again, and scripts beside each other never get the same.
free_ports() {
  local kept=${TMPDIR:-/tmp}/plinth-ports-$UID found=() port lock
  mkdir -p "$kept"
  exec {lock}> "$kept/lock"
  flock "$lock"
  while [ ${#found[@]} -lt "$1" ]; do
    port=$((14000 + RANDOM % 6000))
    ! [ -e "$(cat "$kept/$port" 2>/dev/null)" ] || continue
    ! (exec 3<> "/dev/tcp/127.0.0.1/$port") 2>/dev/null || continue
    printf '%s' "$2" > "$kept/$port"
    found+=("$port")
  done
  exec {lock}>&-
  printf '%s' "${found[*]}"
}

# free_port: one for this script, until it ends.
free_port() { free_ports 1 "/proc/$$"; }
