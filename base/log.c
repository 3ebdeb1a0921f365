#include "base/log.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define LINE_CAP 1024

void log_line(const struct log *log, enum log_level level, const char *fmt, ...)
{
	static const char *const words[] = {"error", "warning", "info", "debug"};
	if (log->fd < 0 || level > log->level)
		return;

	char line[LINE_CAP];
	time_t now = time(NULL);
	struct tm tm;
	localtime_r(&now, &tm);
	int n = (int)strftime(line, sizeof line, "%H:%M:%S ", &tm);
	n += snprintf(line + n, sizeof line - (size_t)n, "%s: ", words[level]);

	va_list ap;
	va_start(ap, fmt);
	int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
	va_end(ap);
	if (m < 0)
		return;
	n += m < (int)sizeof line - n - 2 ? m : (int)sizeof line - n - 2;

	// What a peer chose (a name, a reason) must not move the cursor of the terminal that shows it.
	for (int i = 0; i < n; i++)
		if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
			line[i] = '?';
	line[n++] = '\n';
	ssize_t written = write(log->fd, line, (size_t)n);
	(void)written; // a full or closed log must not stop the machine
}
