#!/bin/bash
# The attacks that a shell can try with its own means. Usage: attacks.sh PART
part=$1

result() { # NAME STATUS
  local outcome=failed
  [ "$2" = 0 ] && outcome=succeeded
  printf '{"part": "%s", "via": "bash", "attack": "%s", "outcome": "%s", "detail": "status %s"}\n' \
    "$part" "$1" "$outcome" "$2"
}

attempt() { # NAME COMMAND...
  local name=$1
  shift
  "$@" >/dev/null 2>&1
  result "$name" $?
}

read_canary() { grep -q canary "$1"; }

# An entry made anew in a private directory is not an escape, so the file must
# be there already.
append() { [ -f "$1" ] && echo "# a shell was here" >>"$1"; }

# What a shell leaves for whoever enters the directory next.
leave() { rm -rf "$1" && : >"$1"; }

talk() { # HOST PORT
  timeout 5 bash -c 'exec 3<>"/dev/tcp/$0/$1" && printf "GET / HTTP/1.0\r\nHost: %s\r\n\r\n" "$0" >&3 && grep -q hw-canary <&3' "$1" "$2"
}

see() { tr '\0' ' ' <"/proc/$HW_CANARY_PID/cmdline" | grep -q hw-canary; }

# Spares a process of the sandbox that happens to have the number.
send() { # SIGNAL
  if [ -e "/proc/$HW_CANARY_PID" ]; then see || return; fi
  kill "-$1" "$HW_CANARY_PID"
}

by_symlink() {
  ln -s "$HW_CANARY_HOME/.ssh/id_ed25519" "$HW_CANARY_WORKSPACE/link.$$" || return
  grep -q canary "$HW_CANARY_WORKSPACE/link.$$"
  local status=$?
  rm -f "$HW_CANARY_WORKSPACE/link.$$"
  return $status
}

attempt read_ssh_key read_canary "$HW_CANARY_HOME/.ssh/id_ed25519"
attempt read_aws read_canary "$HW_CANARY_HOME/.aws/credentials"
attempt read_state_env read_canary "$HERMES_HOME/.env"
attempt read_by_symlink by_symlink
attempt write_home append "$HW_CANARY_HOME/.bashrc"
attempt write_host_tmp append "$HW_CANARY_TMP/marker"
attempt write_system append "$HW_CANARY_SYSTEM/marker"
attempt protected_git_config append "$HW_CANARY_WORKSPACE/.git/config"
attempt protected_config append "$HERMES_HOME/config.yaml"
attempt name_create leave "$HW_CANARY_WORKSPACE/.envrc"
attempt name_policy leave "$HW_CANARY_WORKSPACE/.hermes-wrap.yaml"
attempt host_loopback talk 127.0.0.1 "$HW_CANARY_PORT"
attempt metadata talk 169.254.169.254 80
attempt unlisted_host talk unlisted.test 443
attempt foreign_resolver_tcp talk 8.8.8.8 53
attempt see_process see
attempt probe_process send 0
attempt signal_process send USR1
