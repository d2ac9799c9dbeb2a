# For the cases about policies, sourced by their host scripts.
#
# A mistake is a line of $VARIANT with fields between " | ":
#
#   WRONG POLICY | THE SAME ONE, RIGHT | LINE:COLUMN | what is said of it
#
# A policy is written with \n for line ends and \t for tabs; the third field and
# the fourth are extended regular expressions.

file=$SCRATCH/policy.yaml

field() { printf '%s\n' "$VARIANT" | awk -F' [|] ' -v n="$1" '{ print $n }'; }

# command is what must not run under a policy that is wrong.
command='echo "ESCAPED the command ran"'

# refused WHERE WHAT ARGUMENTS… launches the command, which must be refused
# before anything runs, with the place, what is wrong there, and a remedy.
refused() {
    where=$1 what=$2
    shift 2
    "$WRAP" "$@" -- sh -c "$command" 2>"$SCRATCH/err" </dev/null
    code=$?
    [ "$code" -eq 125 ] || echo "BROKEN exit status $code, want 125"
    said "$where" "$what"
}

# said looks for a message with its remedy in what was written.
said() {
    grep -E "^hermes-wrap: error: $1: .*($2)" "$SCRATCH/err" >/dev/null || {
        echo "BROKEN want a message for $1 about $2, got:"
        sed 's/^/  /' "$SCRATCH/err"
    }
    grep '^hermes-wrap: hint: ' "$SCRATCH/err" >/dev/null || echo "BROKEN the message has no remedy"
}

# mistaken does all that a line of mistakes asks for.
mistaken() {
    printf '%b\n' "$(field 1)" >"$file"
    refused "$file:$(field 3)" "$(field 4)" -p "$file"
    for how in check explain 'test'; do
        "$WRAP" "$how" -p "$file" >"$SCRATCH/out" 2>"$SCRATCH/err"
        code=$?
        [ "$code" -eq 125 ] || echo "BROKEN $how: exit status $code, want 125"
        said "$file:$(field 3)" "$(field 4)"
    done
    echo DONE
}

# corrected is the twin: without the mistake the command does run.
corrected() {
    printf '%b\n' "$(field 2)" >"$file"
    "$WRAP" -p "$file" -- sh -c "$command" </dev/null
    echo DONE
}
