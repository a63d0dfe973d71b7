#!/usr/bin/env bash
# rows.sh FILE…: prints one table of the rows that tests have written to the files, a column for each file, and below it
# every reason. Fails if a row has failed, or if none is ok. A script that sources it gets `row`, which writes a row.
#
# A line of a file is an outcome (ok, FAILED, skipped, or a word such as a version), a tab, a name, a tab, a reason.

# row OUTCOME NAME [REASON]: prints the row, and appends it to the file $ROWS.
row() {
  printf '%-8s %s%s\n' "$1" "$2" "${3:+: $3}"
  printf '%s\t%s\t%s\n' "$1" "$2" "$(tr '\t\n' '  ' <<< "${3:-}" | sed 's/ *$//')" >> "$ROWS"
}

table() {
  awk -F '\t' '
    FNR == 1 { column = FILENAME; sub(/.*\//, "", column); sub(/\.[^.]*$/, "", column); columns[++width] = column }
    {
      if (!($2 in seen)) { seen[$2] = 1; names[++height] = $2 }
      cell[$2, width] = $1 # the latest counts
      reason[$2, width] = $3
      if (length($2) > wide) wide = length($2)
    }
    END {
      printf "%-*s", wide, ""
      for (c = 1; c <= width; c++) printf "  %-10s", columns[c]
      print ""
      for (n = 1; n <= height; n++) {
        printf "%-*s", wide, names[n]
        for (c = 1; c <= width; c++) {
          what = (names[n], c) in cell ? cell[names[n], c] : "-"
          count[what]++
          printf "  %-10s", what
        }
        print ""
      }
      for (c = 1; c <= width; c++)
        for (n = 1; n <= height; n++)
          if (cell[names[n], c] ~ /^(FAILED|skipped)$/ && reason[names[n], c] != "")
            print cell[names[n], c] (width > 1 ? " " columns[c] : "") ": " names[n] ": " reason[names[n], c]
      printf "%d ok, %d failed, %d skipped\n", count["ok"], count["FAILED"], count["skipped"]
      exit count["FAILED"] > 0 || count["ok"] == 0
    }' "$@"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  table "$@"
fi
