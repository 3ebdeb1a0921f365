// The relay of `hearth emulate`, measured from outside:
// - one way, between two sockets of one thread that looks for the message without sleeping: straight, through a link without delay and through one of
//   2 ms, in turn. What is beyond the straight way and the link's delay is what the relay adds, its processor's waking up included.
// - round trips with an echo server that sleeps until it is called, as programs do: what they wait beyond that is their own processors' waking up.
// - bytes per second, with the relay's CPU time.
//
//   emulate_bench build/bin/hearth
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PORT 7590
#define ROUNDS 4000
#define BULK (2ll << 30)
#define BUF (1 << 20)
#define DELAY_NS INT64_C(2000000)
#define PAUSE_NS INT64_C(1000000) // between messages: everybody sleeps

static const char topology[] =
	"subnet = 78\n"
	"[[device]]\nname = \"a\"\nat = \"127.78.255.1:7590\"\n"
	"[[device]]\nname = \"b\"\nat = \"127.78.255.2:7590\"\n"
	"[[device]]\nname = \"c\"\nat = \"127.78.255.3:7590\"\n"
	"[[device]]\nname = \"d\"\nat = \"127.78.255.4:7590\"\n"
	"[[device]]\nname = \"e\"\nat = \"127.78.255.5:7590\"\n"
	"[[link]]\nbetween = [\"a\", \"c\"]\ndelay = \"2 ms\"\n"
	"[[link]]\nbetween = [\"a\", \"e\"]\ndelay = \"2 ms\"\n";

static int64_t now_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void require(bool ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static int listen_at(const char *ip)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	const int on = 1;
	inet_pton(AF_INET, ip, &sa.sin_addr);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	require(bind(fd, (struct sockaddr *)&sa, sizeof sa) == 0 && listen(fd, 16) == 0, ip);
	return fd;
}

static int connect_to(const char *ip)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	const int on = 1;
	inet_pton(AF_INET, ip, &sa.sin_addr);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	for (int i = 0; i < 100 && connect(fd, (struct sockaddr *)&sa, sizeof sa) != 0; i++) {
		require(i < 99, ip);
		usleep(20000); // the relay starts
		close(fd);
		fd = socket(AF_INET, SOCK_STREAM, 0);
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	return fd;
}

static void read_all(int fd, char *buf, size_t n)
{
	for (size_t got = 0; got < n;) {
		ssize_t r = recv(fd, buf + got, n - got, 0);
		require(r > 0, "recv");
		got += (size_t)r;
	}
}

static void write_all(int fd, const char *buf, size_t n)
{
	for (size_t put = 0; put < n;) {
		ssize_t w = send(fd, buf + put, n - put, MSG_NOSIGNAL);
		require(w > 0, "send");
		put += (size_t)w;
	}
}

// The first four bytes say what comes: the size of messages to echo, or 0: bulk, answered with one byte when all of it is there.
static void *serve(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char *buf = malloc(BUF);
	const int on = 1;
	uint32_t size;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	read_all(fd, (char *)&size, sizeof size);
	long long left = BULK;
	while (size == 0 && left > 0) {
		ssize_t r = recv(fd, buf, BUF, 0);
		require(r > 0, "recv");
		left -= r;
	}
	if (size == 0)
		write_all(fd, "x", 1);
	for (ssize_t r; size > 0 && (r = recv(fd, buf, 1, MSG_PEEK)) > 0;) {
		read_all(fd, buf, size);
		write_all(fd, buf, size);
	}
	close(fd);
	free(buf);
	return NULL;
}

static void *accept_all(void *arg)
{
	int listener = (int)(intptr_t)arg;
	for (;;) {
		pthread_t t;
		int fd = accept(listener, NULL, NULL);
		require(fd >= 0, "accept");
		pthread_create(&t, NULL, serve, (void *)(intptr_t)fd);
		pthread_detach(t);
	}
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

static int64_t round_trip(int fd, char *buf, size_t size)
{
	int64_t begin = now_ns();
	write_all(fd, buf, size);
	read_all(fd, buf, size);
	return now_ns() - begin;
}

static int open_echo(const char *ip, uint32_t size)
{
	int fd = connect_to(ip);
	write_all(fd, (const char *)&size, sizeof size);
	return fd;
}

static double ms(int64_t ns)
{
	return (double)ns / 1e6;
}

static void measure_delay(uint32_t size)
{
	static int64_t direct[ROUNDS], relayed[ROUNDS], delayed[ROUNDS / 4];
	char *buf = calloc(1, BUF);
	int d = open_echo("127.78.255.2", size), r = open_echo("127.78.1.2", size), s = open_echo("127.78.1.3", size);
	for (int i = -100; i < ROUNDS; i++) {
		int64_t a = round_trip(d, buf, size), b = round_trip(r, buf, size);
		if (i >= 0)
			direct[i] = a, relayed[i] = b;
	}
	for (int i = 0; i < ROUNDS / 4; i++)
		delayed[i] = round_trip(s, buf, size) - 2 * DELAY_NS;
	qsort(direct, ROUNDS, sizeof *direct, by_value);
	qsort(relayed, ROUNDS, sizeof *relayed, by_value);
	qsort(delayed, ROUNDS / 4, sizeof *delayed, by_value);
	int p50 = ROUNDS / 2, p99 = ROUNDS * 99 / 100;
	printf("%6u bytes: round trip straight %.3f / %.3f ms (p50 / p99), through a link without delay %.3f / %.3f ms\n", size, ms(direct[p50]),
		ms(direct[p99]), ms(relayed[p50]), ms(relayed[p99]));
	printf("              added one way: %.3f ms at p50, %.3f ms at p99; through a link of 2 ms: %.3f ms at p50, %.3f ms at p99 (straight taken off)\n",
		ms(relayed[p50] - direct[p50]) / 2, ms(relayed[p99] - direct[p99]) / 2, ms(delayed[p50 / 4] - direct[p50]) / 2,
		ms(delayed[p99 / 4] - direct[p99]) / 2);
	close(d), close(r), close(s);
	free(buf);
}

struct way {
	const char *own, *seen; // where it listens; where it is reached
	int64_t delay_ns;
	int near, far; // sockets
	int64_t late_ns[ROUNDS / 4];
};

static int64_t one_way(const struct way *w, char *buf, size_t size)
{
	int64_t begin = now_ns();
	write_all(w->near, buf, size);
	for (size_t got = 0; got < size;) {
		ssize_t r = recv(w->far, buf, size - got, MSG_DONTWAIT);
		require(r > 0 || (r < 0 && errno == EAGAIN), "recv");
		got += r > 0 ? (size_t)r : 0;
	}
	return now_ns() - begin - w->delay_ns;
}

static void open_way(struct way *w)
{
	int listener = listen_at(w->own);
	w->near = connect_to(w->seen);
	w->far = accept(listener, NULL, NULL);
	require(w->far >= 0, "accept");
	close(listener);
}

static void measure_added(uint32_t size)
{
	static struct way ways[] = {{.own = "127.78.255.4", .seen = "127.78.255.4"}, {.own = "127.78.255.4", .seen = "127.78.1.4"},
		{.own = "127.78.255.5", .seen = "127.78.1.5", .delay_ns = DELAY_NS}};
	const int n = ROUNDS / 4;
	char *buf = calloc(1, BUF);
	for (int k = 0; k < 3; k++)
		open_way(&ways[k]);
	for (int i = -20; i < n; i++) {
		for (int k = 0; k < 3; k++) {
			nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
			int64_t late_ns = one_way(&ways[k], buf, size);
			if (i >= 0)
				ways[k].late_ns[i] = late_ns;
		}
	}
	for (int k = 0; k < 3; k++)
		qsort(ways[k].late_ns, (size_t)n, sizeof ways[k].late_ns[0], by_value);
	printf("%6u bytes: one way straight %.3f / %.3f ms (p50 / p99)", size, ms(ways[0].late_ns[n / 2]), ms(ways[0].late_ns[n * 99 / 100]));
	for (int k = 1; k < 3; k++)
		printf("; added by a link of %.0f ms %.3f / %.3f ms, at most %.3f ms", ms(ways[k].delay_ns), ms(ways[k].late_ns[n / 2] - ways[0].late_ns[n / 2]),
			ms(ways[k].late_ns[n * 99 / 100] - ways[0].late_ns[n / 2]), ms(ways[k].late_ns[n - 1] - ways[0].late_ns[n / 2]));
	printf("\n");
	for (int k = 0; k < 3; k++)
		close(ways[k].near), close(ways[k].far);
	free(buf);
}

static double cpu_s(pid_t pid)
{
	char path[64];
	unsigned long user = 0, sys = 0;
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	FILE *f = fopen(path, "r");
	require(f != NULL && fscanf(f, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &sys) == 2, path);
	fclose(f);
	return (double)(user + sys) / (double)sysconf(_SC_CLK_TCK);
}

static void measure_rate(const char *ip, const char *words, pid_t relay)
{
	char *buf = calloc(1, BUF), done;
	int fd = open_echo(ip, 0);
	double cpu = cpu_s(relay);
	int64_t begin = now_ns();
	for (long long left = BULK; left > 0; left -= BUF)
		write_all(fd, buf, BUF);
	read_all(fd, &done, 1);
	double s = (double)(now_ns() - begin) / 1e9;
	cpu = cpu_s(relay) - cpu;
	double mbit = (double)BULK * 8 / 1e6;
	printf("%-28s %.0f Mbit/s", words, mbit / s);
	if (cpu > 0)
		printf(", relay's CPU %.2f s: %.0f Mbit for each second of one core", cpu, mbit / cpu);
	printf("\n");
	close(fd);
	free(buf);
}

static pid_t start_relay(const char *hearth, char *folder)
{
	char path[128];
	require(mkdtemp(folder) != NULL, "mkdtemp");
	snprintf(path, sizeof path, "%s/bench.toml", folder);
	FILE *f = fopen(path, "w");
	require(f != NULL && fputs(topology, f) >= 0 && fclose(f) == 0, path);
	pid_t pid = fork();
	require(pid >= 0, "fork");
	if (pid == 0) {
		require(freopen("/dev/null", "w", stdout) != NULL, "/dev/null");
		execl(hearth, "hearth", "emulate", path, (char *)NULL);
		_exit(127);
	}
	return pid;
}

int main(int argc, char *argv[])
{
	char folder[] = "/tmp/emulate_bench.XXXXXX", path[128];
	const char *const devices[] = {"127.78.255.2", "127.78.255.3"};
	if (argc != 2)
		return 2;
	pid_t relay = start_relay(argv[1], folder);
	for (int i = 0; i < 2; i++) {
		pthread_t t;
		pthread_create(&t, NULL, accept_all, (void *)(intptr_t)listen_at(devices[i]));
	}
	measure_added(64);
	measure_added(8192);
	measure_delay(64);
	measure_delay(8192);
	measure_rate("127.78.255.2", "straight", relay);
	measure_rate("127.78.1.2", "a link without delay", relay);
	measure_rate("127.78.1.3", "a link of 2 ms", relay);
	kill(relay, SIGTERM);
	waitpid(relay, NULL, 0);
	snprintf(path, sizeof path, "%s/bench.toml", folder);
	unlink(path);
	rmdir(folder);
	return 0;
}
