package sandbox

import "golang.org/x/sys/unix"

// syscallSets is the table of every system call of amd64 and arm64. The strict
// base follows Docker's default list for a process without capabilities; where
// it is narrower, the set says why.
func syscallSets() []syscallSet {
	return append(syscallBaseSets(), syscallRefusedSets()...)
}

// syscallBaseSets is what every program gets.
func syscallBaseSets() []syscallSet {
	return []syscallSet{
		{
			name: "@files", base: true,
			why: "every program: open, read, write, list and change what the mounts and Landlock leave visible",
			calls: `read write open openat openat2 creat close close_range lseek pread64 pwrite64 readv writev
				preadv pwritev preadv2 pwritev2 stat fstat lstat newfstatat statx access faccessat faccessat2
				truncate ftruncate fallocate getdents getdents64 getcwd chdir fchdir rename renameat renameat2
				mkdir mkdirat rmdir link linkat unlink unlinkat symlink symlinkat readlink readlinkat
				chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat umask utime utimes futimesat
				utimensat mknod mknodat statfs fstatfs fcntl flock dup dup2 dup3 fsync fdatasync sync syncfs
				sync_file_range readahead fadvise64 sendfile copy_file_range splice tee vmsplice
				pipe pipe2 ioctl cachestat`,
		},
		{
			name: "@attributes", base: true,
			why: "cp -a, tar, rsync, git and package managers: extended attributes and inode flags",
			calls: `setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr
				removexattr lremovexattr fremovexattr setxattrat getxattrat listxattrat removexattrat
				file_getattr file_setattr`,
		},
		{
			name: "@mounts-read", base: true,
			why:   "findmnt and util-linux: what /proc/self/mountinfo shows, through calls",
			calls: `statmount listmount`,
		},
		{
			name: "@events", base: true,
			why: "glibc, Go, Node, Python, the JVM: event loops; opencode hangs without inotify",
			calls: `poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait
				epoll_pwait2 eventfd eventfd2 inotify_init inotify_init1 inotify_add_watch inotify_rm_watch
				signalfd signalfd4`,
		},
		{
			name: "@aio", base: true,
			why:   "databases (InnoDB, RocksDB): the old asynchronous input and output, which io_uring replaced",
			calls: `io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents`,
		},
		{
			name: "@process", base: true,
			why: "every program: start, wait for and identify processes and threads; clone with namespace flags is refused",
			calls: `clone fork vfork execve execveat exit exit_group wait4 waitid getpid getppid gettid getpgid
				setpgid getpgrp getsid setsid set_tid_address prctl arch_prctl personality pidfd_open
				pidfd_send_signal process_mrelease set_thread_area get_thread_area rseq rseq_slice_yield
				restart_syscall getrlimit setrlimit prlimit64 getrusage times`,
		},
		{
			name: "@credentials", base: true,
			why: "shells, sudo-like tools, tar, Chromium: read the ids, change them among those already held",
			calls: `getuid geteuid getgid getegid getgroups setuid setgid setreuid setregid setgroups setresuid
				getresuid setresgid getresgid setfsuid setfsgid capget capset`,
		},
		{
			name: "@signals", base: true,
			why: "every program: the signal scope of Landlock and the PID namespace bound whom they reach",
			calls: `kill tkill tgkill pause sigaltstack rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending
				rt_sigtimedwait rt_sigqueueinfo rt_tgsigqueueinfo rt_sigsuspend`,
		},
		{
			name: "@memory", base: true,
			why: "every program; V8 and the JVM make memory executable, so mprotect stays unchecked",
			calls: `mmap mprotect munmap brk mremap msync mincore madvise mlock mlock2 munlock mlockall munlockall
				remap_file_pages memfd_create pkey_mprotect pkey_alloc pkey_free mseal map_shadow_stack`,
		},
		{
			name: "@futex", base: true,
			why: "glibc, Go, the JVM: locks and memory barriers",
			calls: `futex futex_waitv futex_wake futex_wait futex_requeue set_robust_list get_robust_list
				membarrier`,
		},
		{
			name: "@time", base: true,
			why: "every program: read clocks, sleep, set timers; setting a clock is in @clock",
			calls: `time gettimeofday clock_gettime clock_getres clock_nanosleep nanosleep alarm getitimer setitimer
				timer_create timer_settime timer_gettime timer_getoverrun timer_delete timerfd_create
				timerfd_settime timerfd_gettime`,
		},
		{
			name: "@network", base: true,
			why: "every program that talks: stream and datagram sockets; families, types and protocols are checked",
			calls: `socket socketpair bind listen accept accept4 connect getsockname getpeername sendto recvfrom
				sendmsg recvmsg sendmmsg recvmmsg shutdown setsockopt getsockopt`,
		},
		{
			name: "@ipc", base: true,
			why: "PostgreSQL, Python multiprocessing, X clients: System V and POSIX objects of the sandbox's own namespace",
			calls: `shmget shmat shmctl shmdt semget semop semctl semtimedop msgget msgsnd msgrcv msgctl mq_open
				mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr`,
		},
		{
			name: "@scheduler", base: true,
			why: "Go, OpenMP, numpy, the JVM: affinity and priorities, which an ordinary user can only lower",
			calls: `sched_yield sched_setparam sched_getparam sched_setscheduler sched_getscheduler
				sched_get_priority_max sched_get_priority_min sched_rr_get_interval sched_setaffinity
				sched_getaffinity sched_setattr sched_getattr getpriority setpriority ioprio_set ioprio_get
				getcpu`,
		},
		{
			name: "@system-info", base: true,
			why:   "glibc and every runtime: name, load, random numbers",
			calls: `uname sysinfo getrandom`,
		},
		{
			name: "@sandboxing", base: true,
			why:   "Chromium, codex, systemd tools: an inner Landlock domain or filter can only tighten ours",
			calls: `seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self`,
		},
		{
			name: "@uprobes", base: true,
			why:   "only code placed by a tracer outside makes these calls; refusing them would kill a traced program",
			calls: `uretprobe uprobe`,
		},
	}
}

// syscallRefusedSets is what a policy has to open by name.
func syscallRefusedSets() []syscallSet {
	return []syscallSet{
		{
			name: "@clone3", errno: unix.ENOSYS, closed: true,
			why:   "its flags lie in memory, where no filter can check them; every libc falls back to clone on ENOSYS",
			calls: `clone3`,
		},
		{
			name:  "@user-namespaces",
			why:   "Chromium's inner sandbox: a new user, PID and network namespace and an empty root; process.user_namespaces opens it",
			calls: `unshare chroot`,
		},
		{
			name:  "@namespaces",
			why:   "joining the namespaces of another process",
			calls: `setns`,
		},
		{
			name: "@mount",
			why:  "mount(2) and the newer mount calls: a change to the view that the sandbox is made of (CVE-2022-0185)",
			calls: `mount umount2 pivot_root open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr
				open_tree_attr`,
		},
		{
			name:  "@ptrace",
			why:   "debuggers (gdb, strace, delve); process.ptrace opens it",
			calls: `ptrace process_vm_readv process_vm_writev`,
		},
		{
			name:  "@process-inspection",
			why:   "checkpoint tools only: reach into another process's descriptors and memory",
			calls: `kcmp pidfd_getfd process_madvise`,
		},
		{
			name: "@io_uring", errno: unix.ENOSYS,
			why:   "a second system call interface that no filter sees into; libuv and tokio fall back on ENOSYS",
			calls: `io_uring_setup io_uring_enter io_uring_register`,
		},
		{
			name:  "@keyring",
			why:   "kernel keys cross namespaces (CVE-2016-0728, CVE-2024-42318); needed by Kerberos key caches",
			calls: `add_key request_key keyctl`,
		},
		{
			name:  "@bpf",
			why:   "kernel programs and performance counters: side channels and a large attack surface; perf, bpftrace",
			calls: `bpf perf_event_open`,
		},
		{
			name:  "@userfaultfd",
			why:   "stops the kernel inside a copy from user memory, which exploits need; live migration only",
			calls: `userfaultfd`,
		},
		{
			name:  "@secret-memory",
			why:   "memory that no watcher can account for; no runtime needs it",
			calls: `memfd_secret`,
		},
		{
			name:  "@handles",
			why:   "open a file by inode number, past the private root (the shocker escape); file servers",
			calls: `name_to_handle_at open_by_handle_at`,
		},
		{
			name:  "@fanotify",
			why:   "watch whole mounts; virus scanners",
			calls: `fanotify_init fanotify_mark`,
		},
		{
			name: "@numa",
			why:  "place memory on nodes: move_pages and mbind have a history of kernel bugs; libnuma does without on EPERM",
			calls: `mbind set_mempolicy get_mempolicy set_mempolicy_home_node migrate_pages
				move_pages`,
		},
		{
			name:  "@lsm",
			why:   "security modules' attributes; needs CAP_SYS_ADMIN in Docker's list too",
			calls: `lsm_get_self_attr lsm_set_self_attr lsm_list_modules`,
		},
		{
			name: "@listns", errno: unix.ENOSYS,
			why:   "lists the namespaces of the machine",
			calls: `listns`,
		},
		{
			name:  "@module",
			why:   "load and remove kernel modules; root only",
			calls: `init_module finit_module delete_module`,
		},
		{
			name:  "@raw-io",
			why:   "hardware ports and segment descriptors: X servers, 16-bit programs",
			calls: `iopl ioperm modify_ldt`,
		},
		{
			name:  "@clock",
			why:   "set or steer the machine's clocks; time daemons",
			calls: `settimeofday clock_settime adjtimex clock_adjtime`,
		},
		{
			name: "@admin",
			why:  "administer the machine: root only, and a kernel surface without a user here",
			calls: `reboot kexec_load kexec_file_load swapon swapoff acct quotactl quotactl_fd syslog vhangup
				sethostname setdomainname lookup_dcookie`,
		},
		{
			name: "@obsolete", errno: unix.ENOSYS,
			why: "calls that newer kernels dropped; a program that finds them missing falls back",
			calls: `uselib ustat sysfs _sysctl nfsservctl getpmsg putpmsg afs_syscall tuxcall security vserver
				create_module get_kernel_syms query_module epoll_ctl_old epoll_wait_old`,
		},
	}
}
