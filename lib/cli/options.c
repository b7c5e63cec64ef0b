/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - the tables of options: --help, completion, and parsing by getopt_long(). */
#include "cli/cli_internal.h"

#include "base/file.h"
#include "base/suggest.h"
#include "base/units.h"
#include "base/version.h"
#include "doc/doc.h"

#include <assert.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPTIONS = 96 };

/* Ids of the shared options without a letter and of the hidden one. */
enum { ID_JSON = 256, ID_TSV, ID_NO_HISTORY, ID_COMPLETE };

/* getopt returns this for the first long option, and one more for each that follows. */
enum { FIRST_LONG = 256 };

static const struct {
    unsigned when; /* enum cli_shared; 0: always */
    struct cli_option option;
} shared[] = {
    {CLI_OUTPUT,
     {'o', "output", "FILE", "write to FILE instead of standard output", CLI_TO_HANDLER}},
    {CLI_FORMAT, {ID_JSON, "json", NULL, "write JSON", CLI_TO_HANDLER}},
    {CLI_FORMAT, {ID_TSV, "tsv", NULL, "write tab-separated tables for scripts", CLI_TO_HANDLER}},
    {CLI_HISTORY,
     {ID_NO_HISTORY, "no-history", NULL, "do not record this command in the document",
      CLI_TO_HANDLER}},
    {CLI_VERBOSE, {'v', "verbose", NULL, "print more; twice: even more", CLI_TO_HANDLER}},
    {CLI_VERBOSE, {'q', "quiet", NULL, "print errors only", CLI_TO_HANDLER}},
    {0, {'h', "help", NULL, "print this help and exit", CLI_TO_HANDLER}},
    {0, {'V', "version", NULL, "print the version and exit", CLI_TO_HANDLER}},
};

/* Option `index` of the program: its own first, then the shared ones that it takes; NULL after the
 * last. */
static const struct cli_option *option_at(const struct cli_program *program, size_t index)
{
    if (index < program->option_count)
        return &program->options[index];
    index -= program->option_count;
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if ((shared[i].when == 0 || (shared[i].when & program->shared)) && index-- == 0)
            return &shared[i].option;
    return NULL;
}

/* The row of an option in the program's own table; option_count: it is not in it. */
static size_t own_row(const struct cli_program *program, const struct cli_option *option)
{
    size_t row = 0;

    while (row < program->option_count && option != &program->options[row])
        row++;
    return row;
}

static bool has_letter(const struct cli_option *option)
{
    return option->id > 0 && option->id < 256;
}

static bool takes_optional_value(const struct cli_option *option)
{
    return option->arg && option->arg[0] == '[';
}

/* The width of the column of options: that of the longest option up to 24 characters. */
static int help_column(const struct cli_program *program)
{
    const struct cli_option *option;
    int widest = 0;

    for (size_t i = 0; (option = option_at(program, i)) != NULL; i++) {
        int width = (int)(strlen(option->name) + (option->arg ? strlen(option->arg) + 1 : 0));
        if (width > widest && width <= 24)
            widest = width;
    }
    return widest;
}

static void print_option(const struct cli_option *option, int column, FILE *out)
{
    char left[128];
    const bool optional = takes_optional_value(option);
    const int width = snprintf(left, sizeof left, "%s%s%s%s", option->name, optional ? "[" : "",
                               option->arg ? "=" : "", option->arg ? option->arg + optional : "");

    if (has_letter(option))
        fprintf(out, "  -%c, ", option->id);
    else
        fprintf(out, "      ");
    if (width > column)
        fprintf(out, "--%s\n%*s%s\n", left, column + 10, "", option->help);
    else
        fprintf(out, "--%-*s  %s\n", column, left, option->help);
}

static void print_help(const struct cli_program *program, FILE *out)
{
    const struct cli_option *option;
    const int column = help_column(program);

    fprintf(out, "Usage: %s %s\n%s\n", program->name, program->synopsis, program->summary);
    if (program->command_count)
        fprintf(out, "\nCommands:\n");
    for (size_t i = 0; i < program->command_count; i++)
        fprintf(out, "  %-8s  %s\n", program->commands[i].name, program->commands[i].help);
    fprintf(out, "\nOptions:\n");
    for (size_t i = 0; (option = option_at(program, i)) != NULL; i++)
        print_option(option, column, out);
    fprintf(out, "\nSee %s(1) for details, mics(7) for an introduction.\n", program->name);
}

static void print_completion(const struct cli_program *program, FILE *out)
{
    const struct cli_option *option;

    for (size_t i = 0; i < program->command_count; i++)
        fprintf(out, "%s\t\t%s\n", program->commands[i].name, program->commands[i].help);
    for (size_t i = 0; (option = option_at(program, i)) != NULL; i++) {
        const char *arg = option->arg ? option->arg : "";
        fprintf(out, "--%s\t%s\t%s\n", option->name, arg, option->help);
        if (has_letter(option))
            fprintf(out, "-%c\t%s\t%s\n", option->id, arg, option->help);
    }
}

/* The arguments of getopt_long(). */
struct getopt_tables {
    struct option longs[MAX_OPTIONS];
    char shorts[2 * MAX_OPTIONS + 2];
};

static void add_option(struct getopt_tables *tables, size_t *longs, size_t *shorts,
                       const struct cli_option *option)
{
    if (*longs + 2 > MAX_OPTIONS)
        abort(); /* a program has more options than MAX_OPTIONS */
    tables->longs[*longs] = (struct option){option->name,
                                            takes_optional_value(option) ? optional_argument
                                            : option->arg                ? required_argument
                                                                         : no_argument,
                                            NULL, FIRST_LONG + (int)*longs};
    ++*longs;
    if (has_letter(option)) {
        tables->shorts[(*shorts)++] = (char)option->id;
        if (option->arg)
            tables->shorts[(*shorts)++] = ':';
    }
}

/* Hidden: it follows the options that are listed. */
static const struct cli_option complete = {ID_COMPLETE, "complete", NULL, "", CLI_TO_HANDLER};

static void make_tables(const struct cli_program *program, struct getopt_tables *tables)
{
    const struct cli_option *option;
    size_t longs = 0, shorts = 0;

    memset(tables, 0, sizeof *tables);
    tables->shorts[shorts++] = ':';
    for (size_t i = 0; (option = option_at(program, i)) != NULL; i++)
        add_option(tables, &longs, &shorts, option);
    add_option(tables, &longs, &shorts, &complete);
}

/* The option for which getopt returned `found`: a letter, or a number from FIRST_LONG on. */
static const struct cli_option *find_option(const struct cli_program *program, int found)
{
    const struct cli_option *option;

    if (found >= FIRST_LONG) {
        option = option_at(program, (size_t)(found - FIRST_LONG));
        return option ? option : &complete;
    }
    for (size_t i = 0; (option = option_at(program, i)) != NULL; i++)
        if (option->id == found)
            return option;
    return NULL;
}

/* The number of long options that begin with the first `length` characters of `name`. */
static int count_prefixed(const struct cli_program *program, const char *name, size_t length)
{
    const struct cli_option *option;
    int count = 0;

    for (size_t i = 0; (option = option_at(program, i)) != NULL; i++)
        count += strncmp(option->name, name, length) == 0;
    return count;
}

/* `word`: "--name", of this length. */
static int unknown_option(const struct cli_program *program, const char *word, size_t length)
{
    const struct cli_option *option;
    struct mics_suggestions similar;
    char name[64];

    snprintf(name, sizeof name, "%.*s", (int)length - 2, word + 2);
    mics_suggest_init(&similar, name);
    for (size_t i = 0; (option = option_at(program, i)) != NULL; i++)
        mics_suggest_offer(&similar, option->name);
    if (similar.count == 0)
        return cli_usage("unknown option '--%s'", name);
    return cli_usage("unknown option '--%s'; did you mean --%s?", name, similar.names[0]);
}

/* Print why getopt stopped at the argument `word` and returned `problem`, ':' or '?'. */
static int report_getopt_error(const struct cli_program *program, const char *word, int problem)
{
    const struct cli_option *option = optopt ? find_option(program, optopt) : NULL;
    const int length = (int)strcspn(word, "=");

    if (problem == ':' && option)
        return cli_usage("--%s: needs a value, %s", option->name, option->arg);
    if (option)
        return cli_usage("--%s: takes no value", option->name);
    if (optopt)
        return cli_usage("unknown option '-%c'", optopt);
    if (count_prefixed(program, word + 2, (size_t)length - 2) > 1)
        return cli_usage("ambiguous option '%.*s'", length, word);
    return unknown_option(program, word, (size_t)length);
}

int cli_unknown_command(const char *name)
{
    const struct cli_program *program = cli_state.program;
    struct mics_suggestions similar;

    mics_suggest_init(&similar, name);
    for (size_t i = 0; i < program->command_count; i++)
        mics_suggest_offer(&similar, program->commands[i].name);
    if (similar.count == 0)
        return cli_usage("unknown command '%s'", name);
    return cli_usage("unknown command '%s'; did you mean %s?", name, similar.names[0]);
}

/* Handle a shared option. Returns -1 to continue, else the exit code. */
static int handle_shared(const struct cli_program *program, struct cli_common *common, int id)
{
    switch (id) {
    case 'h':
        if (cli_reports())
            print_help(program, stdout);
        return CLI_DONE;
    case 'V':
        if (cli_reports())
            printf("%s (mics) %s\n", program->name, MICS_VERSION);
        return CLI_DONE;
    case ID_COMPLETE:
        print_completion(program, stdout);
        return CLI_DONE;
    case 'v':
        common->verbosity = common->verbosity < 0 ? 1 : common->verbosity + 1;
        break;
    case 'q':
        common->verbosity = -1;
        break;
    case 'o':
        common->output = optarg;
        break;
    case ID_JSON:
        common->json = true;
        break;
    case ID_TSV:
        common->tsv = true;
        break;
    case ID_NO_HISTORY:
        common->no_history = true;
        break;
    }
    cli_state.verbosity = common->verbosity;
    return -1;
}

/* Does an option name files or folders? */
static bool is_path(const struct cli_option *option)
{
    return option->arg && (strstr(option->arg, "FILE") || strstr(option->arg, "FOLDER") ||
                           strstr(option->arg, "PATH"));
}

/* Settings name no files, and run nothing. */
static bool is_setting(const struct cli_option *option)
{
    return !is_path(option) &&
           !(option->arg && (strstr(option->arg, "PATTERNS") || strstr(option->arg, "COMMAND")));
}

/* Convert the value to what the option sets. */
static enum mics_status store(const struct cli_option *option, void *context, const char *value,
                              struct mics_err *err)
{
    void *out = (char *)context + option->offset;
    uint64_t number = 0;
    enum mics_status status;

    switch (option->type) {
    case CLI_TRUE:
        *(bool *)out = true;
        return MICS_OK;
    case CLI_TEXT:
        *(const char **)out = value;
        return MICS_OK;
    case CLI_U32:
        status = mics_parse_u64(value, option->min, option->max, &number, err);
        if (status == MICS_OK)
            *(uint32_t *)out = (uint32_t)number;
        return status;
    case CLI_U64:
        return mics_parse_u64(value, option->min, option->max, out, err);
    case CLI_DOUBLE:
        return mics_parse_double(value, option->least, option->most, out, err);
    case CLI_POSITIVE_BYTES:
        return mics_parse_positive_bytes(value, out, err);
    case CLI_POSITIVE_COUNT:
        return mics_parse_positive_count(value, out, err);
    case CLI_RATE:
        return mics_parse_rate(value, out, err);
    case CLI_HANDLED:
        break;
    }
    return MICS_OK;
}

/* An option of the program's own table, with its value. */
static enum mics_status apply(const struct cli_option *option, cli_handler *handler, void *context,
                              const char *value, struct mics_err *err)
{
    return option->type == CLI_HANDLED ? handler(context, option, value, err)
                                       : store(option, context, value, err);
}

static int handle_option(const struct cli_program *program, struct cli_common *common,
                         cli_handler *handler, void *context, const struct cli_option *option)
{
    struct mics_err err = {""};
    const size_t row = own_row(program, option);
    enum mics_status status;

    if (is_path(option) && optarg && optarg[0] == '\0')
        return cli_usage("--%s: needs a value, %s", option->name, option->arg);
    if (row >= program->option_count)
        return handle_shared(program, common, option->id);
    common->given |= (uint64_t)1 << row;
    status = apply(option, handler, context, option->arg ? optarg : NULL, &err);
    if (status == MICS_OK)
        return -1;
    if (status == MICS_ERR_ARG)
        return cli_usage("--%s: %s", option->name, err.text);
    mics_err_prefix(&err, "--%s", option->name);
    return cli_report(status, &err);
}

int cli_parse(int argc, char **argv, struct cli_common *common, cli_handler *handler, void *context,
              int *operands)
{
    const struct cli_program *program = cli_state.program;
    struct getopt_tables tables;
    int code = -1;

    assert(program->option_count <= 64); /* bits of `given` */
    make_tables(program, &tables);
    opterr = 0;
    optind = 0;
    while (code < 0) {
        optopt = 0;
        const int found = getopt_long(argc, argv, tables.shorts, tables.longs, NULL);
        if (found == -1)
            break;
        if (found == ':' || found == '?')
            return report_getopt_error(program, argv[optind - 1], found);
        code = handle_option(program, common, handler, context, find_option(program, found));
    }
    if (code < 0 && common->json && common->tsv)
        return cli_usage("--json and --tsv exclude each other");
    *operands = optind;
    return code;
}

static const struct cli_option *find_own(const struct cli_program *program, const char *name)
{
    for (size_t i = 0; i < program->option_count; i++)
        if (strcmp(program->options[i].name, name) == 0)
            return &program->options[i];
    return NULL;
}

bool cli_given(const struct cli_common *common, const char *name)
{
    const struct cli_program *program = cli_state.program;
    const struct cli_option *option = find_own(program, name);

    assert(option);
    return common->given >> own_row(program, option) & 1;
}

static enum mics_status fail_setting(const struct cli_program *program, const char *name,
                                     struct mics_err *err)
{
    struct mics_suggestions similar;

    mics_suggest_init(&similar, name);
    for (size_t i = 0; i < program->option_count; i++)
        if (is_setting(&program->options[i]))
            mics_suggest_offer(&similar, program->options[i].name);
    if (similar.count == 0)
        return mics_err_set(err, MICS_ERR_FORMAT, "unknown setting '%.64s'", name);
    return mics_err_set(err, MICS_ERR_FORMAT, "unknown setting '%.64s'; did you mean %s?", name,
                        similar.names[0]);
}

/* As on the command line. NULL: out of memory. */
static json_t *value_text(const json_t *value)
{
    char *text;
    json_t *string;

    if (json_is_string(value))
        return json_string(json_string_value(value));
    text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    string = text ? json_string(text) : NULL;
    free(text);
    return string;
}

/* One member of a file of settings. Its text goes into `keep`. */
static enum mics_status take_setting(const struct cli_program *program, struct cli_common *common,
                                     cli_handler *handler, void *context, const char *name,
                                     const json_t *value, json_t *keep, struct mics_err *err)
{
    const struct cli_option *option = find_own(program, name);
    enum mics_status status;

    if (!option)
        return fail_setting(program, name, err);
    if (!is_setting(option))
        return mics_err_set(err, MICS_ERR_FORMAT, "%s: belongs on the command line", name);
    if (option->arg ? !json_is_string(value) && !json_is_number(value) : !json_is_boolean(value))
        return mics_err_set(err, MICS_ERR_FORMAT, "%s: expected %s", name,
                            option->arg ? "a text or a number" : "true or false");
    if (cli_given(common, name) || json_is_false(value))
        return MICS_OK;
    if (json_object_set_new(keep, name, value_text(value)) != 0)
        return mics_err_nomem(err);
    common->given |= (uint64_t)1 << own_row(program, option);
    status = apply(option, handler, context,
                   option->arg ? json_string_value(json_object_get(keep, name)) : NULL, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", name);
    return status == MICS_ERR_ARG ? MICS_ERR_FORMAT : status;
}

int cli_parse_settings(const char *path, struct cli_common *common, cli_handler *handler,
                       void *context, json_t **keep)
{
    enum { MAX_BYTES = 1 << 20 };
    json_t *settings = NULL, *value;
    struct mics_err err = {""};
    const char *name;
    char *text = NULL;
    size_t size = 0;
    enum mics_status status = mics_file_read_regular(path, MAX_BYTES, &text, &size, &err);

    if (status != MICS_OK)
        return cli_report(status, &err);
    status = mics_doc_read_object(text, size, &settings, &err);
    free(text);
    *keep = json_object();
    if (status == MICS_OK && !*keep)
        status = mics_err_nomem(&err);
    json_object_foreach(settings, name, value) if (status == MICS_OK) status =
        take_setting(cli_state.program, common, handler, context, name, value, *keep, &err);
    json_decref(settings);
    if (status == MICS_OK)
        return -1;
    mics_err_prefix(&err, "%s", path);
    return cli_report(status, &err);
}
