#include "cli/secret_prompt.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#define TEXT_CAP (2 * INVITE_URL_CAP) // an invite, and the white space around it

// read_text reads to the end of the file, or to the end of the first line that is not blank.
static enum err read_text(int fd, bool one_line, char *text, size_t *len, struct errmsg *em)
{
	*len = 0;
	while (*len < TEXT_CAP) {
		ssize_t n = read(fd, text + *len, 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errmsg_fail(em, ERR_IO, "cannot read the invite: %s", strerror(errno));
		if (n == 0 || (one_line && text[*len] == '\n' && *len > 0))
			return OK;
		if (!(one_line && text[*len] == '\n'))
			++*len;
	}
	return errmsg_fail(em, ERR_LIMIT, "that is no invite: more than %d bytes", TEXT_CAP);
}

static enum err read_file(const char *path, char *text, size_t *len, struct errmsg *em)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errmsg_fail(em, ERR_IO, "%s: %s", path, strerror(errno));
	enum err e = read_text(fd, false, text, len, em);
	close(fd);
	return e;
}

static enum err ask(char *text, size_t *len, struct errmsg *em)
{
	static const char prompt[] = "invite (not shown): ";
	int fd = open("/dev/tty", O_RDWR | O_CLOEXEC);
	struct termios shown, hidden;
	if (fd < 0 || tcgetattr(fd, &shown) != 0) {
		if (fd >= 0)
			close(fd);
		return errmsg_fail(em, ERR_NOT_FOUND,
			"this machine is no member yet and there is no terminal to ask for an invite: use --invite-file FILE, or hearth join - < FILE");
	}
	hidden = shown;
	hidden.c_lflag &= ~(tcflag_t)(ECHO | ICANON); // a canonical line ends at 4,096 bytes, and echo would show the secret
	hidden.c_cc[VMIN] = 1;
	hidden.c_cc[VTIME] = 0;
	tcsetattr(fd, TCSAFLUSH, &hidden);
	ssize_t n = write(fd, prompt, sizeof prompt - 1);
	enum err e = n < 0 ? errmsg_fail(em, ERR_IO, "the terminal: %s", strerror(errno)) : read_text(fd, true, text, len, em);
	tcsetattr(fd, TCSAFLUSH, &shown);
	n = write(fd, "\n", 1);
	close(fd);
	return e;
}

enum err secret_prompt_invite(const struct options *o, struct invite *out, struct errmsg *em)
{
	char text[TEXT_CAP];
	size_t len = 0;
	enum err e;
	if (o->invite_file)
		e = read_file(o->invite_file, text, &len, em);
	else if (o->invite_stdin)
		e = read_text(STDIN_FILENO, false, text, &len, em);
	else
		e = ask(text, &len, em);
	if (e == OK)
		e = invite_parse(text, len, out, em);
	sodium_memzero(text, sizeof text);
	return e;
}
