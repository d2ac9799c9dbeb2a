# For host scripts: a launch on a machine that was changed. It may run, confined,
# or be refused with a reason; what it may not is go on without what is missing.
#
#   launched runs|refused|either COMMAND…
launched() {
  want=$1
  shift
  "$@" >"$RUN/launched.out" 2>"$RUN/launched.err"
  code=$?
  cat "$RUN/launched.out"
  sed 's/^/launched: /' "$RUN/launched.err" >&2
  grep -q 'panic:\|BUG:\|goroutine ' "$RUN/launched.err" && echo "BROKEN a bug: $(head -n 1 "$RUN/launched.err")"
  if test "$code" -eq 125; then
    grep -q 'hermes-wrap: error: .' "$RUN/launched.err" || echo "BROKEN refused without a reason"
    test "$want" = runs && echo "BROKEN refused: $(grep -m 1 error "$RUN/launched.err")"
    echo DONE
  elif test "$want" = refused; then
    echo "ESCAPED the command was started"
  fi
}
