#!/bin/bash
# Runs the stand-in bare, without a sandbox: its ordinary work must pass every
# check, and in hostile mode every attack must succeed. Without that, a failure
# inside a sandbox would prove nothing.
#
# Usage: run_checks.sh          as an ordinary user
#        run_checks.sh USER     as root, for that user
set -u
here=$(cd "$(dirname "$0")" && pwd -P)
python=/usr/bin/python3
[ -x $python ] || python=python3

if [ "${1-}" != --inside ]; then
  out=$(mktemp -d) && chmod 777 "$out" || exit 1
  trap 'rm -rf "$out"' EXIT
  if [ "$(id -u)" = 0 ]; then
    [ $# = 1 ] || { echo "run_checks.sh: as root, name the ordinary user" >&2; exit 2; }
    set -- --user "$1"
  else
    set --
  fi
  OUT=$out $python "$here/canaries.py" run "$@" --checks "$out/host" -- bash "$here/run_checks.sh" --inside
  status=$?
  echo "== seen from the host (false: the attack arrived)"
  cat "$out/host"
  # What no attack writes to: it is read, or lies beside what is attacked.
  quiet='SOUL.md|plugins|skills|\.env|auth\.json|launcher|interpreter|\.ssh|\.aws'
  if grep -vE "$quiet" "$out/host" | grep '"ok": true'; then
    echo "FAIL: these attacks left no trace on the host"
    status=1
  fi
  [ $status = 0 ] && echo "all checks ok"
  exit $status
fi

failed=0
check() { # NAME GOT WANT
  if [ "$2" = "$3" ]; then echo "ok   $1"; else echo "FAIL $1: got $2, want $3"; failed=1; fi
}

export PROVIDER_KEY=provider-key-of-32-characters-000 OPENROUTER_API_KEY=provider-key-of-32-characters-000
export PYTHONDONTWRITEBYTECODE=1
coproc PROVIDER { exec $python "$here/../provider/provider.py" --log "$OUT/requests"; }
provider=$PROVIDER_PID
trap 'kill $provider' EXIT
read -r OPENAI_BASE_URL <&"${PROVIDER[0]}"
export OPENAI_BASE_URL

echo "== ordinary work"
hermes -z "write the result and commit it" --usage-file "$OUT/usage" --report "$OUT/report"
check "exit code of a task" $? 0
cat "$OUT/report"
check "failed checks" "$(grep -c '"ok": false' "$OUT/report")" 0
check "usage file" "$($python -c 'import json,sys; print(json.load(open(sys.argv[1]))["requests"])' "$OUT/usage")" 10
check "requests with the key" "$(grep -c '"authorised": true' "$OUT/requests")" 11

hermes >/dev/null 2>&1
check "exit code without a task" $? 2
OPENROUTER_API_KEY=wrong-key hermes --check tool_loop >/dev/null 2>&1
check "exit code when the model refuses" $? 2
timeout -s INT 2 hermes -z task --check proc --hold >/dev/null 2>&1
check "exit code of timeout" $? 124
hermes -z task --check proc --hold 2>/dev/null & hermes_pid=$!
while ! grep -q 'hermes_agent\|hermes' "/proc/$hermes_pid/cmdline"; do :; done
sleep 1 && kill -INT $hermes_pid && wait $hermes_pid
check "exit code after SIGINT" $? 130

echo "== hostile mode"
hermes --hostile all --canaries canaries.json >"$OUT/hostile"
check "exit code of hostile mode" $? 0
for part in terminal code mcp plugin hook; do
  check "$part: attacks that failed" "$(grep "\"part\": \"$part\"" "$OUT/hostile" | grep -vc '"outcome": "succeeded"')" 0
  echo "     $part: $(grep -c "\"part\": \"$part\"" "$OUT/hostile") attacks"
done
grep -v '"outcome": "succeeded"' "$OUT/hostile"
exit $failed
