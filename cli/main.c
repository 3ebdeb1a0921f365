#include <stdio.h>

int main(void)
{
	fputs("hearth: no command is built yet\n", stderr);
	return 2;
}
