# For the cases about policies, sourced by their host scripts.

export SCRATCH="$RUN/scratch"
mkdir -p "$SCRATCH"
file=$SCRATCH/policy.yaml

# twin tells whether this run is the twin, in which no sandbox stands in front.
twin() { ! grep -q -e '--policy' "$SANDBOX"; }

# command is what must not run under a policy that is wrong.
command='echo "ESCAPED the command ran"'

# fail says what is not as it should be, and of which mistake.
fail() { echo "BROKEN $* [$mistake]"; }

# refused WHERE WHAT ARGUMENTS… launches the command, which must be refused
# before anything runs, with the place, what is wrong there, and a remedy.
refused() {
    where=$1 what=$2
    shift 2
    "$WRAP" "$@" -- sh -c "$command" 2>"$SCRATCH/err" </dev/null
    code=$?
    [ "$code" -eq 125 ] || fail "exit status $code, want 125"
    said "$where" "$what"
}

# said WHERE WHAT [REMEDY] looks for a message, and for its remedy right below.
said() {
    grep -E -A1 "^hermes-wrap: error: $1: .*($2)" "$SCRATCH/err" >"$SCRATCH/said" || {
        fail "want a message for $1 about $2, got:"
        sed 's/^/  /' "$SCRATCH/err"
        return
    }
    grep -E "^hermes-wrap: hint: .*$3" "$SCRATCH/said" >/dev/null || fail "the message has not the remedy $3: $(cat "$SCRATCH/said")"
}

# mistakes reads lines of fields between " | ":
#
#   WRONG POLICY | THE SAME ONE, RIGHT | LINE:COLUMN | what is said [| REMEDY]
#
# with \n for line ends and \t for tabs in a policy; the fields after the second
# are extended regular expressions. Each wrong policy must be refused by a launch
# and by one of the other commands that read it, in turn. In the twin each right
# one must be found right, and the first and every tenth must run its command;
# only when all did has the twin escaped.
mistakes() {
    all=yes n=0
    while IFS= read -r mistake; do
        field() { printf '%s\n' "$mistake" | awk -F' [|] ' -v n="$1" '{ print $n }'; }
        if twin; then
            printf '%b\n' "$(field 2)" >"$file"
            "$WRAP" check -p "$file" >"$SCRATCH/out" 2>"$SCRATCH/err" || { all=no; echo "it is not right: $mistake"; cat "$SCRATCH/err"; }
            if [ $((n % 10)) -eq 0 ]; then
                "$WRAP" --quiet -p "$file" -- sh -c "$command" </dev/null >"$SCRATCH/out" 2>"$SCRATCH/err"
                grep -q '^ESCAPED' "$SCRATCH/out" || { all=no; echo "it did not run: $mistake"; cat "$SCRATCH/err"; }
            fi
            n=$((n + 1))
            continue
        fi
        printf '%b\n' "$(field 1)" >"$file"
        refused "$file:$(field 3)" "$(field 4)" -p "$file"
        n=$((n + 1))
        case $((n % 3)) in 0) how=check ;; 1) how=explain ;; *) how='test' ;; esac
        "$WRAP" "$how" -p "$file" >"$SCRATCH/out" 2>"$SCRATCH/err"
        code=$?
        [ "$code" -eq 125 ] || fail "$how: exit status $code, want 125"
        said "$file:$(field 3)" "$(field 4)" "$(field 5)"
    done
    if twin && [ "$all" = yes ]; then echo "ESCAPED every right policy ran its command"; fi
    echo DONE
}
