/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * sonde <command> …; under the name of a compatible program (argv[0]) that program's command line.
 * The list of commands is in commands.c.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/command.h"

static bool is_one_of(const char *word, const char *a, const char *b, const char *c)
{
	return !strcmp(word, a) || !strcmp(word, b) || !strcmp(word, c);
}

/* The words name no command: a group, an option of sonde itself, or a mistake. */
static int run_other(int argc, char **argv)
{
	const struct command_group *top = command_group_find("");

	if (argc < 1)
		return command_group_show(top, false);
	if (is_one_of(argv[0], "-h", "--help", "--help"))
		return command_group_show(top, true);
	if (is_one_of(argv[0], "-v", "-V", "--version")) {
		printf("sonde %s\n", SONDE_VERSION);
		return fflush(stdout) ? EXIT_FAILED : EXIT_DONE;
	}
	const struct command_group *group = command_group_find(argv[0]);
	if (!group || !*argv[0])
		return command_unknown(top, argv[0]);
	if (argc == 1)
		return command_group_show(group, false);
	if (is_one_of(argv[1], "-h", "--help", "help"))
		return command_group_show(group, true);
	return command_unknown(group, argv[1]);
}

int main(int argc, char **argv)
{
	int words = 0;

	BUG_ON(argc < 1);
	char *slash = strrchr(argv[0], '/');
	char *name = slash ? slash + 1 : argv[0];
	size_t len = strlen(name);

	/* Programs that used to be scripts may be linked under the names of those. */
	if (len > 3 && !strcmp(name + len - 3, ".py"))
		name[len - 3] = '\0';
	const struct command *cmd = command_find(1, &name, &words);
	if (cmd)
		return cmd->run(cmd, argc - 1, argv + 1);
	const struct command_group *group = command_group_find(name);
	if (group && group->run)
		return group->run(group, argc - 1, argv + 1);
	group = argc > 1 ? command_group_find(argv[1]) : NULL;
	if (group && group->run)
		return group->run(group, argc - 2, argv + 2);
	cmd = command_find(argc - 1, argv + 1, &words);
	if (!cmd)
		return run_other(argc - 1, argv + 1);
	/* As good as argv[0]: what pip installs has scripts for the other names, not links. */
	if (cmd->alias && !strcmp(argv[1], cmd->alias))
		program_invocation_short_name = argv[1];
	return cmd->run(cmd, argc - 1 - words, argv + 1 + words);
}
