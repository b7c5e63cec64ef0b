/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - the table of shared options, and what is printed from the tables. */
#include "cli/options.h"

#include <string.h>

static const struct {
    unsigned when; /* enum cli_shared, or 0: always */
    struct cli_option option;
} shared[] = {
    {CLI_OUTPUT, {'o', "output", "FILE", "write to FILE instead of standard output"}},
    {CLI_FORMAT, {CLI_ID_JSON, "json", NULL, "write JSON"}},
    {CLI_FORMAT, {CLI_ID_TSV, "tsv", NULL, "write tab-separated tables for scripts"}},
    {CLI_HISTORY,
     {CLI_ID_NO_HISTORY, "no-history", NULL, "do not record this command in the document"}},
    {CLI_VERBOSE, {'v', "verbose", NULL, "say more; twice: still more"}},
    {CLI_VERBOSE, {'q', "quiet", NULL, "say nothing but errors"}},
    {0, {'h', "help", NULL, "print this help and exit"}},
    {0, {'V', "version", NULL, "print the version and exit"}},
};

const struct cli_option *cli_option_at(const struct cli_program *program, size_t index)
{
    if (index < program->option_count)
        return &program->options[index];
    index -= program->option_count;
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if ((shared[i].when == 0 || (shared[i].when & program->shared)) && index-- == 0)
            return &shared[i].option;
    return NULL;
}

bool cli_option_is_own(const struct cli_program *program, const struct cli_option *option)
{
    for (size_t i = 0; i < program->option_count; i++)
        if (option == &program->options[i])
            return true;
    return false;
}

bool cli_option_has_letter(const struct cli_option *option)
{
    return option->id < 256;
}

/* The column of the help, wide enough for every option of this program but no more than a third of a line. */
static int help_column(const struct cli_program *program)
{
    const struct cli_option *option;
    int widest = 0;

    for (size_t i = 0; (option = cli_option_at(program, i)) != NULL; i++) {
        int width = (int)(strlen(option->name) + (option->arg ? strlen(option->arg) + 1 : 0));
        if (width > widest && width <= 24)
            widest = width;
    }
    return widest;
}

static void print_option(const struct cli_option *option, int column, FILE *out)
{
    char left[128];
    const int width = snprintf(left, sizeof left, "%s%s%s", option->name, option->arg ? "=" : "",
                               option->arg ? option->arg : "");

    if (cli_option_has_letter(option))
        fprintf(out, "  -%c, ", option->id);
    else
        fprintf(out, "      ");
    if (width > column)
        fprintf(out, "--%s\n%*s%s\n", left, column + 10, "", option->help);
    else
        fprintf(out, "--%-*s  %s\n", column, left, option->help);
}

void cli_print_help(const struct cli_program *program, FILE *out)
{
    const struct cli_option *option;
    const int column = help_column(program);

    fprintf(out, "Usage: %s %s\n%s\n", program->name, program->synopsis, program->summary);
    if (program->command_count)
        fprintf(out, "\nCommands:\n");
    for (size_t i = 0; i < program->command_count; i++)
        fprintf(out, "  %-8s  %s\n", program->commands[i].name, program->commands[i].help);
    fprintf(out, "\nOptions:\n");
    for (size_t i = 0; (option = cli_option_at(program, i)) != NULL; i++)
        print_option(option, column, out);
    fprintf(out, "\nSee %s(1) for the whole story, mics(7) for the ideas.\n", program->name);
}

void cli_print_completion(const struct cli_program *program, FILE *out)
{
    const struct cli_option *option;

    for (size_t i = 0; i < program->command_count; i++)
        fprintf(out, "%s\t\t%s\n", program->commands[i].name, program->commands[i].help);
    for (size_t i = 0; (option = cli_option_at(program, i)) != NULL; i++) {
        const char *arg = option->arg ? option->arg : "";
        fprintf(out, "--%s\t%s\t%s\n", option->name, arg, option->help);
        if (cli_option_has_letter(option))
            fprintf(out, "-%c\t%s\t%s\n", option->id, arg, option->help);
    }
}
