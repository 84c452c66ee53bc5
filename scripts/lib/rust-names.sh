# Names in Rust: those of kinds in code that serves all kinds, and those that two types have. For scripts/lint.
# shellcheck shell=bash

# The lines of the files, or of the input, without comments and modules of tests, each behind its place and a tab.
rust_code() {
  awk 'FNR == 1 { tests = inside = 0 }
    /^#\[cfg\(test\)\]/ { tests = 1; next }
    tests && /^(pub )?mod [a-z_]+ \{/ { inside = 1 }
    { tests = 0 }
    !inside { sub("//.*", ""); print FILENAME ":" FNR ":\t" $0 }
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
of_all_kinds='of|keep_metadata|scale|quantities|Conversion|DefaultRule|Deletion|DeletionRequest|Generation|Literal'
of_all_kinds+='|NameRule|Strategy|Subresource|Unwritten|BASE|CUSTOM|self'
# Names of kinds that generic code has for something else: events of a watch, nodes of a tree, the namespace of a
# request, services behind a URL, roles of a connection, a cipher's secret, accounts and FlowSchemas that requests are
# attributed to. They are refused as a string or in the name of a function alone.
ambiguous='event|node|namespace|service|endpoint|role|binding|lease|secret|service_?account|flow_?schema'

# Reads the table of resources, $1.
read_kind_names() {
  local names
  names=$(awk '!/^#/ && NF > 6 { print $3; print $5 }' "$1" | sort -u)
  kinds_and_plurals=$(paste -sd'|' <<< "$names")
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
    grep -E "\b(mark|is|of|set)_?($ambiguous)s?\b" <<< "$code"
    split_words <<< "$code" | grep -E $'\t'"(.*[^a-z0-9])?($kind_words)([^a-z0-9]|$)"
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
