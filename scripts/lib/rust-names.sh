# Names in Rust: those of kinds in code that serves all kinds, and those that two types have. For scripts/lint.
# shellcheck shell=bash

# The lines of the files, or of the input, without comments and modules of tests, each behind its place and a tab.
rust_code() {
  awk '# A line up to its comment; two slashes within a string, which does not end in another line, are none.
    function without_comment(line,    at, rest, part) {
      at = 0
      rest = line
      while (match(rest, /\/\/|\x27\\?"\x27|"/)) {
        if (substr(rest, RSTART, 2) == "//") return substr(line, 1, at + RSTART - 1)
        part = RSTART + RLENGTH - 1
        if (substr(rest, RSTART, 1) == "\"") {
          # An end of the string; where there is none in this line, all of it is kept.
          if (!match(substr(rest, part + 1), /^([^"\\]|\\.)*"/)) return line
          part += RLENGTH
        }
        at += part
        rest = substr(line, at + 1)
      }
      return line
    }
    FNR == 1 { tests = inside = 0 }
    # The module may stand in the line of its attribute, or in one line.
    /^#\[cfg\(test\)\]/ { tests = 1; sub(/^#\[cfg\(test\)\] */, ""); if ($0 == "") next }
    tests && /^(pub )?mod [a-z_]+ \{.*\}$/ { tests = 0; next }
    tests && /^(pub )?mod [a-z_]+ \{/ { inside = 1 }
    { tests = 0 }
    !inside { print FILENAME ":" FNR ":\t" without_comment($0) }
    inside && /^}/ { inside = 0 }' "$@"
}

# The types in these files of one crate that other modules see and that share a name with another one.
types_of_one_name() {
  rust_code "$@" | awk -F'\t' '
    match($2, /^pub(\([a-z:_ ]+\))? (struct|enum|union|trait|type) [A-Za-z0-9]+/) {
      name = substr($2, RSTART, RLENGTH); sub(/.* /, "", name)
      if (name in places) print name ": " places[name] " " $1
      places[name] = $1
    }'
}

# What server/kinds has for all kinds. Everything else in it is about one.
of_all_kinds='of|AdmissionExemption|keep_metadata|scale|quantities|Conversion|DefaultRule|Deletion|DeletionRequest|Generation|Literal'
of_all_kinds+='|NameRule|Strategy|Subresource|Unwritten|BASE|CUSTOM|self'
# Names of kinds that generic code has for something else: events of a watch, nodes of a tree, the namespace of a
# request, services behind a URL, roles of a connection, a cipher's secret, accounts and FlowSchemas that requests are
# attributed to, the version that a resource is stored in. They are refused as a string (but for "namespace", a member of
# every object's metadata), as a step of a path or the kind within a string, and in names of items, but for those in
# ALLOWED_NAMES.
ambiguous='event|node|namespace|service|endpoint|role|binding|lease|secret|service_?account|flow_?schema|storage_?version'
# Short names of resources that are ordinary words, or a label in DNS names of clusters.
ordinary_short='ing|limits|quota|deploy|svc'
# Items that have such a word for something else, or for what every request, object or resource has: its namespace, its
# version in the store. Each with its file, below `src`.
ALLOWED_NAMES='admission/matching.rs:namespace_selected admission/policy/mod.rs:namespace_metadata
  admission/policy/mod.rs:namespace_object apply/fields_v1.rs:node apply/set.rs:nodes apply/set.rs:set_node
  audit/counters.rs:event_lost audit/mod.rs:event audit/sinks.rs:sink_events audit/webhook.rs:queued_event
  cbor/frame.rs:write_watch_event context/admission.rs:is_about_namespace context/admission.rs:request_namespace
  context/kind_handler.rs:endpoint context/mod.rs:key_namespace discovery/lists.rs:storage_version_hash
  egress/mod.rs:service egress/service.rs:service egress/service.rs:service_error endpoints/mod.rs:endpoints
  handlers/list/plan.rs:collection_spans_namespaces handlers/watch/batch.rs:event_lengths
  handlers/watch/batch.rs:into_events handlers/watch/stream.rs:encoded_events handlers/watch/stream.rs:initial_events
  handlers/watch/stream.rs:poll_events handlers/watch/stream.rs:write_event json/tape.rs:node json/tape.rs:tape_node
  lib.rs:endpoints lib.rs:namespaces object_meta.rs:match_namespace protobuf/envelope.rs:event_object
  protobuf/envelope.rs:event_type protobuf/envelope.rs:watch_event remote/mod.rs:service_port
  representation/item.rs:event_type representation/json.rs:event representation/list_size_cache.rs:apply_event
  representation/negotiated.rs:event_key representation/tree.rs:event representation/write.rs:error_event
  representation/write.rs:event resource_type.rs:is_storage_version selector/selectable.rs:namespace
  stored_objects/read.rs:convert_events stored_objects/read.rs:served_event traces/options.rs:default_endpoint
  yaml/mod.rs:nodes yaml/nodes.rs:node yaml/nodes.rs:node_id yaml/reader.rs:node yaml/writer.rs:node'

# Reads the table of resources, $1.
read_kind_names() {
  local names
  names=$(awk '!/^#/ && NF > 6 { print $3; print $5 }' "$1" | sort -u)
  kinds_and_plurals=$(paste -sd'|' <<< "$names")
  kinds=$(awk '!/^#/ && NF > 6 { print $5 }' "$1" | sort -u | paste -sd'|')
  plurals=$(awk '!/^#/ && NF > 6 { print $3 }' "$1" | sort -u | paste -sd'|')
  # API groups with a domain; those of one word (apps, policy) are ordinary words.
  groups=$(awk '!/^#/ && NF > 6 && $1 ~ /[.]/ { gsub("[.]", "[.]", $1); print $1 }' "$1" | sort -u | paste -sd'|')
  # Short names of three letters and more (pvc, crd); those of two are no words that one can search for.
  short_names=$(awk '!/^#/ && NF > 6 && $6 != "-" { gsub(",", "\n", $6); print $6 }' "$1" | grep -E '...' | sort -u |
    grep -vxE "$ordinary_short" | paste -sd'|')
  # Kinds of subresources (name:Kind@group/version:verbs) that are no resource's.
  subresource_kinds=$(grep -v '^#' "$1" | grep -oE '[a-z]+:[A-Z][A-Za-z]+' | cut -d: -f2 | sort -u |
    grep -vxE "$kinds" | paste -sd'|')
  # Of these in words, all but Scale, which is an ordinary one.
  subresource_words=$(tr '|' '\n' <<< "$subresource_kinds" | grep -vx Scale | split_words | paste -sd'|')
  # Singular, plural and the kind in words, of which the last has the plural's ending.
  kind_words=$(awk '!/^#/ && NF > 6 { print $3; print $4; print $5, $3 }' "$1" | sort -u | split_words |
    awk 'NF == 1 { print; next }
      { joined = $1; gsub("_", "", joined); print $1 }
      index($2, joined) == 1 { print $1 substr($2, length(joined) + 1); next }
      { print substr($1, 1, length($1) - 1) "ies" }' |
    grep -vE "^($ambiguous)(e?s)?$" | sort -u | paste -sd'|')
}

# A capital begins a word, and so does the last of several.
split_words() { sed -E 's/([a-z0-9])([A-Z])/\1_\2/g; s/([A-Z]+)([A-Z][a-z])/\1_\2/g' | tr '[:upper:]' '[:lower:]'; }

# The lines of the files, or of the input, that name a kind; false where there are none. Identifiers and texts are
# taken apart into words (`PodLogOptions` is pod, log, options), so that a name is found in every spelling: in types,
# functions, modules, constants, members, strings.
names_of_kinds() {
  local code found
  code=$(rust_code "$@")
  found=$(
    # Strings, also of types (io.k8s.api.core.v1.Pod) and of subresources (pods/exec).
    grep -E "[\"./=]($kinds_and_plurals)\"|\"($kinds_and_plurals)/" <<< "$code"
    grep -E "\"($groups)[\"/]" <<< "$code"
    grep -E "\"($ambiguous)\"" <<< "${code//\"namespace\"/}"
    grep -E "\b(mark|is|of|set)_?($ambiguous)s?\b" <<< "$code" | grep -vw is_storage_version
    # A step of a path, or a kind as a word of its own within a string; "/namespaces/" is a step of every path.
    # shellcheck disable=SC2001 # replacing in a variable of a megabyte takes seconds
    sed 's|/namespaces/|/|g' <<< "$code" | grep -E "\"([^\"]*/)?($plurals)/|\"[^\"]*/($plurals)[/\"]"
    grep -E "\"([^\"]*[/.: =])?($kinds|$subresource_kinds)([/.: ][^\"]*)?\"|Kind::($kinds|$subresource_kinds)\b" <<< "$code"
    split_words <<< "$code" | grep -E $'\t'"(.*[^a-z0-9])?($kind_words|$subresource_words)([^a-z0-9]|$)"
    split_words <<< "$code" | grep -E $'\t'"(.*[^a-z0-9])?($short_names)([^a-z0-9]|$)"
    split_words <<< "$code" | awk -F'\t' -v words="^([a-z0-9]+_)*($ambiguous)(e?s)?(_[a-z0-9_]*)?$" -v allowed="${ALLOWED_NAMES//$'\n'/ }" '
      BEGIN { for (n = split(allowed, names, / +/); n > 0; n--) known[names[n]] = 1 }
      match($2, /(^|[^a-z_])(fn|struct|enum|union|trait|type|const|static|mod|macro_rules!) [a-z0-9_]+/) {
        name = substr($2, RSTART, RLENGTH); sub(/.* /, "", name)
        file = $1; sub(/:.*/, "", file); sub(/.*\/src\//, "", file)
        if (name ~ words && !((file ":" name) in known)) print
      }'
    # Paths into server/kinds: also in braces over several lines, and under another name.
    sed -E $'s/^([^:]*):[0-9]+:\t/\\1\t/' <<< "$code" |
      awk -F'\t' '$1 != file { if (NR > 1) print ""; file = $1; printf "%s:\t", file } { printf " %s", $2 } END { print "" }' |
      awk -F'\t' -v allowed="^($of_all_kinds)$" '{
        rest = $2
        while (match(rest, /plinth_kinds( as |::(\{[^;]*\}|\*|[A-Za-z_]+))/)) {
          path = substr(rest, RSTART, RLENGTH)
          rest = substr(rest, RSTART + RLENGTH)
          names = substr(path, length("plinth_kinds") + 1)
          bad = names ~ /[*]|^ as /
          gsub(/ as [A-Za-z_]+/, "", names)
          count = split(names, parts, /[^A-Za-z_]+/)
          for (i = 1; i <= count; i++) bad = bad || (parts[i] != "" && parts[i] !~ allowed)
          if (bad) print $1 "\t" path
        }
      }'
  )
  [ -n "$found" ] && sort -u <<< "$found"
}

# The code of the files, or of the input, as rust_code has it; a chain of calls over several lines is one line.
chained_code() {
  rust_code "$@" | awk -F'\t' '
    { rest = $2; sub(/^ +/, "", rest) }
    rest ~ /^[.?]/ { text = text rest; next }
    NR > 1 { print place "\t" text }
    { place = $1; text = $2 }
    END { print place "\t" text }'
}

# The lines of the files, or of the input, that make the key of a stored object or read by one that did not have to be
# authorized: handlers read by an ObjectKey, through their Context.
read_by_key() {
  chained_code "$@" |
    grep -E '(^|[^.a-z_])(object_key|collection_prefix|resource_prefix)\(|\b(store|engine|snapshot)(\(\))?\.(get|newest|get_in_memory)\(|\.newest\(|\.get_in_memory\(' |
    grep -vE '\b(cx|pods)\.newest\([^()]'
}

# Places (file and call) of the files where the server acts as itself, or reads more than one object: by a context that no
# authorizer made, or by walks over collections.
as_server() {
  chained_code "$@" |
    grep -vE '\bfn ' |
    grep -oE '^[^:]*|\b(on_behalf|by_server|at_subresource|Context::(internal|of_resource)|(store|engine|snapshot|source)(\(\))?\.(visit|scan|objects|records|range))\(' |
    awk '/\(/ { sub(/\($/, ""); sub(/.*[.:]/, ""); print file " " $0; next } { file = $0 }'
}
