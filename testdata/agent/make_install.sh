#!/bin/sh
# Lays out an install of the stand-in like a real one: a shell shim, which runs a
# script whose shebang names a python in a virtual environment, which is a
# symlink to a symlink to an interpreter in an odd place.
#
# Usage: make_install.sh PREFIX [HERMES_HOME]
#   PREFIX/bin/hermes                    the shim (as ~/.local/bin/hermes)
#   PREFIX/share/uv/python/cpython-*/    the interpreter
#   PREFIX/share/hermes-agent            the install tree, or, as the usual git
#   HERMES_HOME/hermes-agent             install does it, inside the state directory
# With HERMES_HOME it also fills the state directory's configuration, plugins,
# hooks, skills and (fake) secrets, unless they are there.
set -eu

[ $# -ge 1 ] || { echo "usage: make_install.sh PREFIX [HERMES_HOME]" >&2; exit 2; }
umask 022
here=$(cd "$(dirname "$0")" && pwd -P)
mkdir -p "$1"
prefix=$(cd "$1" && pwd -P)
tree=$prefix/share/hermes-agent
if [ $# -ge 2 ]; then
  mkdir -p "$2"
  state=$(cd "$2" && pwd -P)
  tree=$state/hermes-agent
fi

source_python=/usr/bin/python3
[ -x $source_python ] || source_python=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')
version=$("$source_python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
stdlib=$("$source_python" -c 'import os; print(os.path.dirname(os.path.realpath(os.__file__)))')

python_home=$prefix/share/uv/python/cpython-$version-linux
mkdir -p "$python_home/bin" "$prefix/bin"
cp "$("$source_python" -c 'import os, sys; print(os.path.realpath(sys.executable))')" "$python_home/bin/python$version"
case $stdlib in
  /usr/*) ;; # the copy falls back to the prefix that it was built for
  *) mkdir -p "$python_home/lib"
     cp -R "$stdlib" "$python_home/lib/python$version"
     rm -rf "$python_home/lib/python$version/test" "$python_home/lib/python$version/site-packages" ;;
esac

site=$tree/venv/lib/python$version/site-packages
mkdir -p "$tree/venv/bin" "$site"
ln -sfn "$python_home/bin/python$version" "$tree/venv/bin/python3"
ln -sfn python3 "$tree/venv/bin/python"
printf 'home = %s\ninclude-system-site-packages = false\nversion = %s\n' "$python_home/bin" "$version" >"$tree/venv/pyvenv.cfg"
cp -R "$here/hermes_agent" "$site/"
rm -rf "$site/hermes_agent/__pycache__"
cp "$here/attacks.sh" "$here/mcp_server.js" "$site/hermes_agent/"

cat >"$tree/venv/bin/hermes" <<END
#!$tree/venv/bin/python
import sys
from hermes_agent.cli import main
sys.exit(main())
END
cat >"$prefix/bin/hermes" <<END
#!/bin/sh
exec "$tree/venv/bin/hermes" "\$@"
END
chmod 755 "$tree/venv/bin/hermes" "$prefix/bin/hermes"

if [ $# -ge 2 ]; then
  chmod 700 "$state"
  for name in config.yaml SOUL.md plugins hooks skills; do
    [ -e "$state/$name" ] || cp -R "$here/home/$name" "$state/$name"
  done
  mkdir -p "$state/cron"
  [ -e "$state/cron/jobs.json" ] || echo '[]' >"$state/cron/jobs.json"
  [ -e "$state/.env" ] || echo 'OPENROUTER_API_KEY=canary-state-env' >"$state/.env"
  [ -e "$state/auth.json" ] || echo '{"refresh": "canary-state-auth"}' >"$state/auth.json"
  chmod 600 "$state/.env" "$state/auth.json"
fi
echo "$prefix/bin/hermes"
