#!/bin/bash
# Runs a command as a container engine would run it, without root and without an engine:
#
#   unshare --user --map-user=10000 --map-group=10000 --keep-caps --mount --pid --fork --kill-child container.sh ROOT FILTER COMMAND…
#
# ROOT is an empty directory; ROOT.opt and ROOT.data are what is mounted at /opt/hermes
# (read-only) and /opt/data. The root is read-only, parts of /proc and /sys are masked as
# engines mask them, there are no capabilities, and FILTER loads the engines' default
# system call filter. The network is the host's: in a user namespace it could not reach
# the servers of a test.
set -euo pipefail
root=$1 filter=$2
shift 2
mount -t tmpfs -o mode=0755 tmpfs "$root"
mkdir -p "$root"/{usr,etc,dev,proc,sys,tmp,run,opt/hermes,opt/data,state,work,old,tools}
for link in bin sbin lib lib64 lib32; do
	[[ ! -L /$link ]] || cp -P "/$link" "$root/$link"
	[[ -L /$link || ! -d /$link ]] || { mkdir "$root/$link"; mount --rbind "/$link" "$root/$link"; }
done
readonly_bind() { mount --rbind "$1" "$2"; mount -o remount,bind,ro "$2"; }
readonly_bind /usr "$root/usr"
readonly_bind /etc "$root/etc"
readonly_bind "$root.opt" "$root/opt/hermes"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount --bind "$root.data" "$root/opt/data"
mount --bind "$root.work" "$root/work"
mount --bind "$root.tools" "$root/tools"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=0755 tmpfs "$root/run"
mkdir -m 0700 "$root/run/user"
mount -t tmpfs -o mode=0700 tmpfs "$root/state"
mount -t proc proc "$root/proc"
# As in the runtime specification's defaults: masked and read-only paths.
for path in acpi kcore keys latency_stats timer_list timer_stats sched_debug scsi; do
	if [[ -d $root/proc/$path ]]; then
		mount -t tmpfs -o ro tmpfs "$root/proc/$path"
	elif [[ -e $root/proc/$path ]]; then
		mount --bind /dev/null "$root/proc/$path"
	fi
done
for path in bus fs irq sys sysrq-trigger; do
	[[ ! -e $root/proc/$path ]] || readonly_bind "$root/proc/$path" "$root/proc/$path"
done
cd "$root"
pivot_root . old
umount -l old
mount -o remount,ro,bind / /
cd /work
exec setpriv --ambient-caps -all --inh-caps -all --bounding-set -all --no-new-privs "$filter" "$@"
