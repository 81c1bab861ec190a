#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Writes a manual page for each function of a generated header, from the preceding comment. The
# example is the first call of the function in the given programs in C.
#
#   scripts/man-pages.sh HEADER VERSION DIRECTORY [PROGRAM...]
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

header=${1:?usage: man-pages.sh HEADER VERSION DIRECTORY [PROGRAM...]}
version=${2:?usage: man-pages.sh HEADER VERSION DIRECTORY [PROGRAM...]}
out=${3:?usage: man-pages.sh HEADER VERSION DIRECTORY [PROGRAM...]}
programs=("${@:4}")
overview=$(basename "$header" .h)

awk -v version="$version" -v out="$out" -v overview="$overview" -v header="$header" '
    # In manual pages a minus is a hyphen unless it is escaped, and a line that begins with a dot
    # or an apostrophe is a command.
    function escaped(text) {
        gsub(/\\/, "\\e", text)
        gsub(/-/, "\\-", text)
        return text ~ /^[.\x27]/ ? "\\&" text : text
    }
    # The call of a function in a program, up to the end of the statement, and its file.
    function example(name, file,    i, at, count, depth, text) {
        for (i = 0; i < call_count; i++) {
            if (!match(code[i], "(^|[^a-z_])" name "\\(")) continue
            printf ".SH EXAMPLE\nFrom\n.IR %s :\n.PP\n.nf\n", code_file[i] >file
            for (count = 0; count < 8 && code_file[i] == code_file[i + count]; count++) {
                text = code[i + count]
                gsub(/\t/, "    ", text)
                print escaped(text) >file
                if (text ~ /[;{]$/) break
            }
            print ".fi" >file
            return
        }
    }
    # The meaning of each number that the comment names.
    function meanings(text, file,    name, seen) {
        while (match(text, /[A-Z][A-Z0-9]*_[A-Z0-9_]+/)) {
            name = substr(text, RSTART, RLENGTH)
            text = substr(text, RSTART + RLENGTH)
            if (!(name in meaning) || seen[name]++) continue
            printf ".TP\n.B %s\n%s\n", name, escaped(meaning[name]) >file
        }
    }
    function returned(declaration, all, file,    sentence) {
        print ".SH RETURN VALUE" >file
        while (match(all, /(^|[.] )Returns [^.]*([.][^ ][^.]*)*[.]/)) {
            sentence = substr(all, RSTART, RLENGTH)
            all = substr(all, RSTART + RLENGTH)
            sub(/^[.] /, "", sentence)
            print escaped(sentence) >file
        }
        if (declaration ~ /^int portolan_/)
            print "Success is 0 or a greater number, failure a negative one." >file
        else if (declaration ~ /^void /)
            print "None." >file
    }
    function page(name, declaration,    file, count, lines, i, first, all, errors) {
        file = out "/" name ".3"
        count = split(doc, lines, "\n")
        for (i = 1; i <= count && lines[i] !~ /^Errors: /; i++) all = all (i > 1 ? " " : "") lines[i]
        first = match(all, /[.:;](  *|$)/) ? substr(all, 1, RSTART - 1) : all
        printf ".TH %s 3 \"\" \"Portolan %s\" \"Portolan\"\n", toupper(name), version >file
        printf ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.nf\n", name, escaped(first) >file
        printf ".B #include <%s.h>\n.PP\n%s\n.fi\n.SH DESCRIPTION\n", overview, declaration >file
        for (i = 1; i <= count && lines[i] !~ /^Errors: /; i++)
            print lines[i] == "" ? ".PP" : escaped(lines[i]) >file
        returned(declaration, all, file)
        print ".SH ERRORS" >file
        if (i > count) printf "Those of every function; see\n.BR %s (7).\n", overview >file
        for (; i <= count; i++) {
            sub(/^Errors: /, "", lines[i])
            errors = errors " " lines[i]
            print lines[i] == "" ? ".PP" : escaped(lines[i]) >file
        }
        meanings(errors, file)
        example(name, file)
        printf ".SH SEE ALSO\n.BR %s (7)\n", overview >file
        close(file)
    }
    FILENAME != header {
        code[call_count] = $0
        code_file[call_count++] = FILENAME
        next
    }
    /^#define [A-Z]/ && doc != "" { gsub(/\n/, " ", doc); meaning[$2] = doc }
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
' "${programs[@]}" "$header"
