#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Writes a manual page for each function of a generated header, from the preceding comment.
#
#   scripts/man-pages.sh HEADER VERSION DIRECTORY
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

header=${1:?usage: man-pages.sh HEADER VERSION DIRECTORY}
version=${2:?usage: man-pages.sh HEADER VERSION DIRECTORY}
out=${3:?usage: man-pages.sh HEADER VERSION DIRECTORY}
overview=$(basename "$header" .h)

awk -v version="$version" -v out="$out" -v overview="$overview" '
    # In manual pages a minus is a hyphen unless it is escaped, and a line that begins with a dot
    # or an apostrophe is a command.
    function escaped(text) {
        gsub(/\\/, "\\e", text)
        gsub(/-/, "\\-", text)
        return text ~ /^[.\x27]/ ? "\\&" text : text
    }
    function page(name, declaration,    file, count, lines, i, first, all) {
        file = out "/" name ".3"
        count = split(doc, lines, "\n")
        for (i = 1; i <= count; i++) all = all (i > 1 ? " " : "") lines[i]
        first = match(all, /[.:;](  *|$)/) ? substr(all, 1, RSTART - 1) : all
        printf ".TH %s 3 \"\" \"Portolan %s\" \"Portolan\"\n", toupper(name), version >file
        printf ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.nf\n", name, escaped(first) >file
        printf ".B #include <%s.h>\n.PP\n%s\n.fi\n.SH DESCRIPTION\n", overview, declaration >file
        for (i = 1; i <= count; i++) {
            if (lines[i] == "") print ".PP" >file
            else if (sub(/^Errors: /, "", lines[i])) print ".SH ERRORS\n" escaped(lines[i]) >file
            else print escaped(lines[i]) >file
        }
        printf ".SH SEE ALSO\n.BR %s (7)\n", overview >file
        close(file)
    }
    /^\/\*\*/ { doc = ""; in_doc = 1; next }
    in_doc && /\*\// { in_doc = 0; declaration = ""; next }
    in_doc { sub(/^ \* ?/, ""); doc = doc (doc == "" ? "" : "\n") $0; next }
    /^(#|typedef|extern|$)/ || /^struct [^(]*$/ { doc = ""; next }
    doc != "" {
        declaration = declaration (declaration == "" ? "" : "\n") $0
        if (/;$/) {
            if (match(declaration, /[A-Za-z0-9_]+\(/))
                page(substr(declaration, RSTART, RLENGTH - 1), declaration)
            doc = ""
        }
    }
' "$header"
