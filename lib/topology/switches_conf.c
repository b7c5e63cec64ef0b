/* SPDX-License-Identifier: Apache-2.0 */
/* switches_conf.c - which file of Slurm has the switches, and topology.conf. */
#include "topology/switches_forest.h"

#include "base/file.h"
#include "base/num.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

struct conf {
    struct mics_switches *switches;
    uint32_t sizes[MICS_BLOCK_SIZES_MAX], size_count;
};

/* The value of "key=" among the words of a line; text NULL: the line has none. */
static void find_value(const char *line, const char *end, const char *key,
                       struct mics_switch_text *out)
{
    *out = (struct mics_switch_text){NULL, 0};
    while (line < end) {
        line += strspn(line, " \t\r");
        const size_t word = strcspn(line, " \t\r\n#");
        const char *equals = memchr(line, '=', word);

        if (line >= end || *line == '#')
            return;
        if (equals && (size_t)(equals - line) == strlen(key) &&
            strncasecmp(line, key, strlen(key)) == 0) {
            *out = (struct mics_switch_text){equals + 1, word - strlen(key) - 1};
            return;
        }
        line += word;
        if (word == 0)
            return;
    }
}

/* Refuse words that this reader does not know: they may change the meaning. */
static enum mics_status check_words(const char *line, const char *end, struct mics_err *err)
{
    static const char *const known[] = {"SwitchName", "Nodes",     "Switches",
                                        "LinkSpeed",  "BlockName", "BlockSizes"};

    while (line < end) {
        line += strspn(line, " \t\r");
        const size_t word = strcspn(line, " \t\r\n#");
        const char *equals = memchr(line, '=', word);
        bool found = false;

        if (line >= end || word == 0)
            return MICS_OK;
        for (size_t i = 0; i < sizeof known / sizeof *known && equals; i++)
            found |= (size_t)(equals - line) == strlen(known[i]) &&
                     strncasecmp(line, known[i], strlen(known[i])) == 0;
        if (!found)
            return mics_err_set(
                err, MICS_ERR_FORMAT,
                "'%.*s': expected SwitchName, Nodes, Switches, LinkSpeed, BlockName or "
                "BlockSizes",
                (int)mics_min_u64(word, 40), line);
        line += word;
    }
    return MICS_OK;
}

/* A size of BlockSizes=4,16. */
static enum mics_status read_sizes(struct conf *conf, const char *text, size_t length,
                                   struct mics_err *err)
{
    const char *const end = text + length;

    for (const char *at = text; at < end; at++) {
        uint64_t size = 0;
        int digits = 0;

        for (; at < end && *at >= '0' && *at <= '9' && digits < 9; at++, digits++)
            size = 10 * size + (uint64_t)(*at - '0');
        if (digits == 0 || (at < end && *at != ',') || conf->size_count == MICS_BLOCK_SIZES_MAX)
            return mics_err_set(err, MICS_ERR_FORMAT,
                                "BlockSizes: expected up to %d numbers, separated by commas",
                                MICS_BLOCK_SIZES_MAX);
        conf->sizes[conf->size_count++] = (uint32_t)size;
    }
    return MICS_OK;
}

static enum mics_status read_line(struct conf *conf, const char *line, const char *end, int number,
                                  struct mics_err *err)
{
    struct mics_switch_text block, sizes;
    struct mics_switch_entry entry = {.line = number};
    enum mics_status status = check_words(line, end, err);

    if (status != MICS_OK)
        return status;
    find_value(line, end, "SwitchName", &entry.name);
    find_value(line, end, "BlockName", &block);
    find_value(line, end, "BlockSizes", &sizes);
    find_value(line, end, "Nodes", &entry.nodes);
    find_value(line, end, "Switches", &entry.children);
    if (sizes.text)
        return read_sizes(conf, sizes.text, sizes.length, err);
    if (block.text && (entry.name.text || entry.children.text))
        return mics_err_set(err, MICS_ERR_FORMAT, "a block among switches");
    if (!block.text && !entry.name.text)
        return mics_err_set(err, MICS_ERR_FORMAT, "expected SwitchName= or BlockName=");
    entry.is_block = block.text != NULL;
    if (entry.is_block)
        entry.name = block;
    return mics_switches_add(conf->switches, &entry, err);
}

/* A backslash at the end continues a line. */
static void join_lines(char *text)
{
    for (char *at = text; (at = strchr(at, '\\')) != NULL; at++)
        if (at[1] == '\n' || (at[1] == '\r' && at[2] == '\n')) {
            *at = ' ';
            at[at[1] == '\r' ? 2 : 1] = ' ';
        }
}

static enum mics_status parse_text(struct conf *conf, const char *text, struct mics_err *err)
{
    for (int number = 1; *text; number++) {
        const char *end = text + strcspn(text, "\n");
        const char *word = text + strspn(text, " \t\r");
        enum mics_status status = MICS_OK;

        if (word < end && *word != '#')
            status = read_line(conf, word, end, number, err);
        if (status != MICS_OK) {
            mics_err_prefix(err, "line %d", number);
            return status;
        }
        text = *end ? end + 1 : end;
    }
    return mics_switches_finish(conf->switches, conf->sizes, conf->size_count, err);
}

static enum mics_status parse_conf(const char *text, size_t size, struct mics_switches **out,
                                   struct mics_err *err)
{
    struct conf conf = {.switches = mics_switches_new()};
    char *copy = malloc(size + 1);
    enum mics_status status = conf.switches && copy ? MICS_OK : mics_err_nomem(err);

    if (status != MICS_OK)
        goto out;
    memcpy(copy, text, size);
    copy[size] = '\0';
    if (strlen(copy) != size)
        status = mics_err_set(err, MICS_ERR_FORMAT, "a zero byte");
    if (status != MICS_OK)
        goto out;
    join_lines(copy);
    status = parse_text(&conf, copy, err);
out:
    free(copy);
    if (status == MICS_OK)
        *out = conf.switches;
    else
        mics_switches_free(conf.switches);
    return status;
}

/* A line of topology.conf begins with a word and '='; the items of YAML begin with '-'. */
static bool is_yaml(const char *text, size_t size)
{
    const char *const end = text + size;

    if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        text += 3;
    while (text < end) {
        while (text < end && strchr(" \t\r\n", *text) && *text)
            text++;
        if (text == end || *text != '#')
            break;
        while (text < end && *text != '\n')
            text++;
    }
    return text < end && (*text == '-' || *text == '%' || *text == '[');
}

enum mics_status mics_switches_parse(const char *text, size_t size, const char *name,
                                     struct mics_switches **out, struct mics_err *err)
{
    if (is_yaml(text, size))
        return mics_switches_parse_yaml(text, size, name, out, err);
    if (name)
        return mics_err_set(err, MICS_ERR_FORMAT,
                            "topology '%.100s' cannot be chosen: a topology.conf has one topology",
                            name);
    return parse_conf(text, size, out, err);
}

/* As Slurm does: the file topology.yaml if there is one, then topology.conf is ignored. Returns the
 * path to read in path[], or the file that is ignored for it in ignored[]. */
static enum mics_status choose_file(const char *given, char path[MICS_SWITCHES_PATH],
                                    char ignored[MICS_SWITCHES_PATH], struct mics_err *err)
{
    static const char yaml[] = "topology.yaml", conf[] = "topology.conf";
    struct stat info;
    const bool is_folder = stat(given, &info) == 0 && S_ISDIR(info.st_mode);
    const char *base = strrchr(given, '/');
    const size_t folder = is_folder ? strlen(given) + 1 : base ? (size_t)(base + 1 - given) : 0;
    char second[MICS_SWITCHES_PATH] = "";

    ignored[0] = '\0';
    base = base ? base + 1 : given;
    if (strlen(given) + sizeof yaml + 1 >= MICS_SWITCHES_PATH)
        return mics_err_set(err, MICS_ERR_ARG, "%.100s...: the path is too long", given);
    snprintf(path, MICS_SWITCHES_PATH, "%s", given);
    if (!is_folder && strcmp(base, yaml) != 0 && strcmp(base, conf) != 0)
        return MICS_OK;
    snprintf(path, MICS_SWITCHES_PATH, "%.*s%s%s", (int)(is_folder ? folder - 1 : folder), given,
             is_folder ? "/" : "", yaml);
    snprintf(second, sizeof second, "%.*s%s%s", (int)(is_folder ? folder - 1 : folder), given,
             is_folder ? "/" : "", conf);
    if (stat(path, &info) != 0)
        snprintf(path, MICS_SWITCHES_PATH, "%s", is_folder ? second : given);
    else if (stat(second, &info) == 0)
        snprintf(ignored, MICS_SWITCHES_PATH, "%s", second);
    return MICS_OK;
}

enum mics_status mics_switches_read(const char *file_or_folder, const char *name,
                                    struct mics_switches **out, struct mics_switches_source *source,
                                    struct mics_err *err)
{
    char *text = NULL;
    size_t size;
    enum mics_status status = choose_file(file_or_folder, source->path, source->ignored, err);

    if (status != MICS_OK)
        return status;
    status = mics_file_read(source->path, (size_t)64 << 20, &text, &size, err);
    if (status != MICS_OK)
        return status;
    status = mics_switches_parse(text, size, name, out, err);
    free(text);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", source->path);
    return status;
}
