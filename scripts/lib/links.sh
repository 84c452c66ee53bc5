# shellcheck shell=bash
# Links of Markdown documents that lead nowhere: a file that is not there, or an anchor that no heading of it has.
# Links to other sites are not followed.

# The anchors of a document's headings, as GitHub and mdBook make them, one a line; of equal ones the second ends with
# -1, and so on.
anchors() { # file
  LC_ALL=C awk '
    /^ ? ? ?(```|~~~)/ { code = !code; next }
    code || !/^#+ / { next }
    {
      sub(/^#+ +/, "")
      sub(/ +#+ *$/, "")
      text = ""
      while (match($0, /\[[^]]*\]\([^)]*\)/)) {
        link = substr($0, RSTART, RLENGTH)
        sub(/\]\([^)]*\)$/, "", link)
        text = text substr($0, 1, RSTART - 1) substr(link, 2)
        $0 = substr($0, RSTART + RLENGTH)
      }
      text = tolower(text $0)
      gsub(/[^a-z0-9 _-]/, "", text)
      gsub(/ /, "-", text)
      print text (text in seen ? "-" seen[text] : "")
      seen[text]++
    }' "$1"
}

# The relative links of documents: file, line, target.
relative_links() { # files
  LC_ALL=C awk '
    FNR == 1 { code = 0 }
    /^ ? ? ?(```|~~~)/ { code = !code; next }
    code { next }
    {
      gsub(/`[^`]*`/, "")
      if (match($0, /^ ? ? ?\[[^]]+\]: */)) $0 = "](" substr($0, RSTART + RLENGTH) ")"
      while (match($0, /\]\([^)]*\)/)) {
        target = substr($0, RSTART + 2, RLENGTH - 3)
        $0 = substr($0, RSTART + RLENGTH)
        sub(/ +["\047(].*$/, "", target)
        if (target !~ /^[a-z][a-z0-9+.-]*:/) print FILENAME "\t" FNR "\t" target
      }
    }' "$@"
}

# Prints `FILE:LINE: TARGET` for each relative link that leads nowhere; fails where there is one.
broken_links() { # files
  local document line target path anchor status=0
  while IFS=$'\t' read -r document line target; do
    path=${target%%#*} anchor=
    case $target in *'#'*) anchor=${target#*#} ;; esac
    case $path in
      '') path=$document ;;
      *) path=$(dirname "$document")/$path ;;
    esac
    if [ -e "$path" ]; then
      [ -n "$anchor" ] || continue
      [ -f "$path" ] && anchors "$path" | grep -qxF -e "$anchor" && continue
    fi
    echo "$document:$line: $target"
    status=1
  done < <(relative_links "$@")
  return $status
}
