// load does one kind of work inside, as much of it as it can, and prints what it
// got: beat DIR SECONDS | spawn N | children | bomb SECONDS [PROCESSES] | memory MIB |
// fill DIR bytes|inodes | print MIB | names N | denied N ADDRESS PORT | connect N NAME PORT.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

// beat does a little of everything again and again, and prints how long it took.
static int beat(const char *dir, double seconds) {
	char path[4096], page[4096] = {0};
	int64_t over = now() + (int64_t)(seconds * 1e6);
	snprintf(path, sizeof path, "%s/beat.%d", dir, getpid());
	setvbuf(stdout, NULL, _IOLBF, 0);
	while (now() < over) {
		int64_t began = now();
		pid_t p = fork();
		if (p == 0)
			_exit(0);
		if (p < 0 || waitpid(p, NULL, 0) != p)
			return 3;
		int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
		if (fd < 0 || write(fd, page, sizeof page) != sizeof page || close(fd) || unlink(path))
			return 4;
		printf("%lld\n", (long long)(now() - began));
		usleep(20000);
	}
	return 0;
}

static int spawn(long n) {
	for (long i = 0; i < n; i++) {
		pid_t p = fork();
		if (p == 0)
			_exit(0);
		if (p < 0 || waitpid(p, NULL, 0) != p) {
			printf("%ld %s\n", i, strerrorname_np(errno));
			return 1;
		}
	}
	printf("%ld\n", n);
	return 0;
}

// children are as many as there can be at once; all end with their parent.
static int children(void) {
	int gate[2];
	long n = 0;
	if (pipe(gate))
		return 1;
	for (;; n++) {
		pid_t p = fork();
		if (p < 0)
			break;
		if (p == 0) {
			char c;
			close(gate[1]);
			_exit(read(gate[0], &c, 1) != 0);
		}
	}
	printf("%ld %s\n", n, strerrorname_np(errno));
	close(gate[1]);
	while (wait(NULL) > 0)
		;
	return 0;
}

// bomb forks as fast as it can, in a session of its own as a sandbox is. most is
// for where no sandbox bounds it.
static int bomb(double seconds, rlim_t most) {
	if (most && (setsid() < 0 || setrlimit(RLIMIT_NPROC, &(struct rlimit){most, most})))
		return 5;
	int64_t over = now() + (int64_t)(seconds * 1e6);
	pid_t first = getpid();
	long *forks = mmap(NULL, sizeof *forks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	signal(SIGCHLD, SIG_IGN);
	while (now() < over) {
		pid_t p = fork();
		if (p < 0)
			usleep(1000);
		else if (p > 0)
			__atomic_add_fetch(forks, 1, __ATOMIC_RELAXED);
	}
	if (getpid() == first)
		printf("%ld\n", *forks);
	return 0;
}

static int memory(long mib) {
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (long i = 1; i <= mib; i++) {
		char *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED) {
			printf("%s\n", strerrorname_np(errno));
			return 1;
		}
		memset(p, 1, 1 << 20);
		printf("%ld\n", i);
	}
	return 0;
}

static int fill(const char *dir, int inodes) {
	char path[4096];
	static char block[1 << 16];
	long files = 0;
	long long bytes = 0;
	int fd = -1;
	memset(block, 1, sizeof block);
	for (;; files++) {
		snprintf(path, sizeof path, "%s/fill.%ld", dir, files);
		fd = open(path, O_CREAT | O_WRONLY, 0600);
		if (fd < 0)
			break;
		ssize_t w = 0;
		while (!inodes && bytes < 1LL << 32 && (w = write(fd, block, sizeof block)) > 0)
			bytes += w;
		close(fd);
		if ((!inodes && w < 0) || files > 3000000)
			break;
	}
	int err = errno;
	printf("%ld %lld %s\n", files, bytes, strerrorname_np(err));
	fflush(stdout);
	for (long i = 0; i <= files; i++) {
		snprintf(path, sizeof path, "%s/fill.%ld", dir, i);
		unlink(path);
	}
	return 0;
}

static int print(long mib) {
	static char line[1 << 16];
	memset(line, 'x', sizeof line);
	for (int i = 127; i < (int)sizeof line; i += 128)
		line[i] = '\n';
	for (long i = 0; i < mib * 16; i++)
		if (write(1, line, sizeof line) < 0)
			return 1;
	return 0;
}

static struct sockaddr_in to(const char *address, int port) {
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	inet_pton(AF_INET, address, &a.sin_addr);
	return a;
}

// names asks the sandbox's resolver for n different names, 64 at a time.
static int names(long n) {
	char line[256], server[64] = "";
	FILE *f = fopen("/etc/resolv.conf", "r");
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "nameserver %63s", server) == 1)
			break;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in a = to(server, 53);
	struct timeval t = {2, 0};
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
	if (connect(fd, (struct sockaddr *)&a, sizeof a))
		return 1;
	long answered = 0, lost = 0;
	for (long i = 0; i < n;) {
		long batch = 0;
		for (; batch < 64 && i < n; batch++, i++) {
			unsigned char q[64] = {(unsigned char)(i >> 8), (unsigned char)i, 1, 0, 0, 1};
			int at = 12, len = sprintf((char *)q + 13, "n%ld", i);
			q[at] = (unsigned char)len;
			at += len + 1;
			memcpy(q + at, "\4many\4test\0\0\1\0\1", 16);
			send(fd, q, (size_t)at + 15, 0);
		}
		for (; batch > 0; batch--) {
			unsigned char r[512];
			if (recv(fd, r, sizeof r, 0) > 0)
				answered++;
			else {
				lost += batch;
				break;
			}
		}
	}
	printf("%ld %ld\n", answered, lost);
	return 0;
}

// denied asks n times for what is not allowed, 16 at a time.
static int denied(long n, const char *address, int port) {
	struct sockaddr_in a = to(address, port);
	for (int c = 0; c < 16; c++)
		if (fork() == 0) {
			long got = 0;
			for (long i = 0; i < n / 16; i++) {
				char b[512];
				struct timeval t = {5, 0};
				int fd = socket(AF_INET, SOCK_STREAM, 0);
				setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
				if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0 && send(fd, "GET / HTTP/1.1\r\nHost: denied.test\r\n\r\n", 37, MSG_NOSIGNAL) > 0) {
					ssize_t r = recv(fd, b, sizeof b - 1, 0);
					if (r > 0) {
						b[r] = 0;
						got += !strstr(b, " 403 ") && !strstr(b, " 503 ");
					}
				}
				close(fd);
			}
			_exit(got > 0);
		}
	int status, bad = 0;
	while (wait(&status) > 0)
		bad += status != 0;
	printf("%ld %d\n", n / 16 * 16, bad);
	return 0;
}

// resolved asks for the address of a name.
static const char *resolved(const char *name, char *buf) {
	unsigned char q[300] = {0, 7, 1, 0, 0, 1}, r[512];
	char line[256], server[64] = "";
	size_t at = 12;
	FILE *f = fopen("/etc/resolv.conf", "r");
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "nameserver %63s", server) == 1)
			break;
	for (const char *p = name; *p;) {
		size_t n = strcspn(p, ".");
		q[at++] = (unsigned char)n;
		memcpy(q + at, p, n);
		at += n;
		p += n + (p[n] == '.');
	}
	memcpy(q + at, "\0\0\1\0\1", 5);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in a = to(server, 53);
	struct timeval t = {5, 0};
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
	ssize_t n = sendto(fd, q, at + 5, 0, (struct sockaddr *)&a, sizeof a) < 0 ? -1 : recv(fd, r, sizeof r, 0);
	close(fd);
	for (ssize_t i = (ssize_t)at + 5; i + 16 <= n; i++) // the answer's A record
		if (!memcmp(r + i + 2, "\0\1\0\1", 4) && r[i + 10] == 0 && r[i + 11] == 4)
			return inet_ntop(AF_INET, r + i + 12, buf, 64);
	return "0.0.0.0";
}

// connect_all holds n connections at once, and counts those that are answered.
static int connect_all(long n, const char *name, int port) {
	char buf[64];
	struct sockaddr_in a = to(resolved(name, buf), port);
	int *fds = calloc((size_t)n, sizeof *fds);
	struct rlimit r;
	getrlimit(RLIMIT_NOFILE, &r);
	r.rlim_cur = r.rlim_max;
	setrlimit(RLIMIT_NOFILE, &r);
	for (long i = 0; i < n; i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM, 0);
		if (fds[i] < 0 || connect(fds[i], (struct sockaddr *)&a, sizeof a) || send(fds[i], "e", 1, MSG_NOSIGNAL) != 1) {
			if (fds[i] >= 0)
				close(fds[i]);
			fds[i] = -1;
		}
	}
	long answered = 0;
	int64_t over = now() + 15000000;
	for (long i = 0; i < n; i++) {
		struct pollfd p = {fds[i], POLLIN, 0};
		char c;
		int64_t left = (over - now()) / 1000;
		if (fds[i] >= 0 && poll(&p, 1, left > 0 ? (int)left : 0) > 0 && recv(fds[i], &c, 1, 0) == 1)
			answered++;
	}
	printf("%ld\n", answered);
	return 0;
}

int main(int argc, char **argv) {
	const char *mode = argc > 1 ? argv[1] : "";
	if (!strcmp(mode, "beat") && argc > 3)
		return beat(argv[2], atof(argv[3]));
	if (!strcmp(mode, "spawn") && argc > 2)
		return spawn(atol(argv[2]));
	if (!strcmp(mode, "children"))
		return children();
	if (!strcmp(mode, "bomb") && argc > 2)
		return bomb(atof(argv[2]), argc > 3 ? (rlim_t)atol(argv[3]) : 0);
	if (!strcmp(mode, "memory") && argc > 2)
		return memory(atol(argv[2]));
	if (!strcmp(mode, "fill") && argc > 3)
		return fill(argv[2], !strcmp(argv[3], "inodes"));
	if (!strcmp(mode, "print") && argc > 2)
		return print(atol(argv[2]));
	if (!strcmp(mode, "names") && argc > 2)
		return names(atol(argv[2]));
	if (!strcmp(mode, "denied") && argc > 4)
		return denied(atol(argv[2]), argv[3], atoi(argv[4]));
	if (!strcmp(mode, "connect") && argc > 4)
		return connect_all(atol(argv[2]), argv[3], atoi(argv[4]));
	return 99;
}
