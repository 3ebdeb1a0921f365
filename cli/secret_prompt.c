#include "cli/secret_prompt.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#define TEXT_CAP (2 * INVITE_URL_CAP) // an invite, and the white space around it

struct secret_text {
	char at[TEXT_CAP];
	size_t len;
};

static enum err too_long(struct errmsg *em)
{
	return errmsg_fail(em, ERR_LIMIT, "that is no invite: more than %d bytes", TEXT_CAP);
}

// read_byte returns 1, 0 at the end, or -1.
static ssize_t read_byte(int fd, char *c)
{
	ssize_t n;
	do
		n = read(fd, c, 1);
	while (n < 0 && errno == EINTR);
	return n;
}

static enum err read_all(int fd, struct secret_text *t, struct errmsg *em)
{
	char c;
	ssize_t n;
	while ((n = read_byte(fd, &c)) > 0) {
		if (t->len == TEXT_CAP)
			return too_long(em);
		t->at[t->len++] = c;
	}
	return n == 0 ? OK : errmsg_fail(em, ERR_IO, "cannot read the invite: %s", strerror(errno));
}

static enum err read_file(const char *path, struct secret_text *t, struct errmsg *em)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errmsg_fail(em, ERR_IO, "cannot open: %s", strerror(errno));
	enum err e = read_all(fd, t, em);
	close(fd);
	return e;
}

// read_line reads to the end of the first line that is not blank. The terminal edits nothing and sends no signals in this mode: the keys that
// do so everywhere else are seen to here.
static enum err read_line(int fd, const struct termios *shown, struct secret_text *t, struct errmsg *em)
{
	char c;
	ssize_t n;
	while ((n = read_byte(fd, &c)) > 0) {
		cc_t key = (cc_t)c;
		if (key == shown->c_cc[VINTR])
			return errmsg_fail(em, ERR_CANCELLED, "interrupted");
		if (key == shown->c_cc[VERASE] || key == '\b' || key == 0x7f)
			t->len -= t->len > 0;
		else if (key == shown->c_cc[VKILL])
			t->len = 0;
		else if (key == shown->c_cc[VEOF] || (c == '\n' && t->len > 0))
			return OK;
		else if (t->len == TEXT_CAP)
			return too_long(em);
		else if (c != '\n')
			t->at[t->len++] = c;
	}
	return n == 0 ? OK : errmsg_fail(em, ERR_IO, "the terminal: %s", strerror(errno));
}

static enum err ask_at(int fd, struct secret_text *t, struct errmsg *em)
{
	static const char prompt[] = "invite (not shown): ";
	struct termios shown, hidden;
	if (tcgetattr(fd, &shown) != 0)
		return errmsg_fail(em, ERR_IO, "the terminal: %s", strerror(errno));
	hidden = shown;
	// A canonical line ends at 4,096 bytes, and echo would show the secret. No signals: they are tasks of the loop, which does not run now,
	// and a stopped program would leave the terminal without echo.
	hidden.c_lflag &= ~(tcflag_t)(ECHO | ECHONL | ICANON | ISIG);
	hidden.c_cc[VMIN] = 1;
	hidden.c_cc[VTIME] = 0;
	if (tcsetattr(fd, TCSAFLUSH, &hidden) != 0)
		return errmsg_fail(em, ERR_IO, "the terminal: %s", strerror(errno));
	ssize_t n = write(fd, prompt, sizeof prompt - 1);
	enum err e = n < 0 ? errmsg_fail(em, ERR_IO, "the terminal: %s", strerror(errno)) : read_line(fd, &shown, t, em);
	(void)tcsetattr(fd, TCSAFLUSH, &shown);
	n = write(fd, "\n", 1);
	return e;
}

static enum err ask(struct secret_text *t, struct errmsg *em)
{
	int fd = open("/dev/tty", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return errmsg_fail(em, ERR_NOT_FOUND,
			"this machine is no member yet and there is no terminal to ask for an invite: use --invite-file FILE, or hearth join - < FILE");
	enum err e = ask_at(fd, t, em);
	close(fd);
	return e;
}

static bool is_blank(const struct secret_text *t)
{
	for (size_t i = 0; i < t->len; i++)
		if (strchr(" \t\r\n", t->at[i]) == NULL)
			return false;
	return true;
}

enum err secret_prompt_invite(const struct options *o, struct invite *out, struct errmsg *em)
{
	struct secret_text t;
	enum err e;
	t.len = 0;
	if (o->invite_file)
		e = read_file(o->invite_file, &t, em);
	else if (o->invite_stdin && !isatty(STDIN_FILENO)) // a person who types it is asked as without "-": nothing is shown
		e = read_all(STDIN_FILENO, &t, em);
	else
		e = ask(&t, em);
	if (e == OK && is_blank(&t))
		e = errmsg_fail(em, ERR_FORMAT, "no invite was given");
	if (e == OK)
		e = invite_parse(t.at, t.len, out, em);
	sodium_memzero(&t, sizeof t);
	return e != OK && o->invite_file ? errmsg_prefix(em, e, "%s", o->invite_file) : e;
}
