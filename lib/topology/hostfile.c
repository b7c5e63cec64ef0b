/* SPDX-License-Identifier: Apache-2.0 */
/* hostfile.c - a tokenizer, a parser of lines, and a table of hosts by the name that mpirun
 * uses. */
#include "topology/hostfile.h"

#include "base/file.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_SLOTS = 65535, MAX_PORT = 65535 };

enum token { TOKEN_END, TOKEN_NEWLINE, TOKEN_EQUAL, TOKEN_WORD };

/* What is known of a host while lines are read. */
struct entry {
    struct mics_hostfile_host host;
    char key[MICS_HOST_NAME]; /* the name under which mpirun knows it */
    uint32_t slots, max_slots;
    bool is_given; /* slots are stated */
};

struct parser {
    const char *at, *end;
    int line;
    const char *word; /* of TOKEN_WORD */
    size_t length;
    struct entry *entries;
    uint32_t count, capacity;
    uint32_t *table; /* [table_size] index of an entry plus 1, by its key; 0: free */
    uint32_t table_size;
    uint32_t *line_hosts; /* [line_count] entries that the line names */
    uint32_t line_count, line_capacity;
    char local[MICS_HOST_NAME]; /* this machine's name up to the first dot */
    struct mics_err *err;
};

/* Words that Open MPI's grammar gives a meaning. Those of no use are refused, as mpirun refuses
 * them. */
enum keyword { KEY_NONE, KEY_SLOTS, KEY_MAX_SLOTS, KEY_USER, KEY_PORT, KEY_RANK, KEY_REFUSED };

static const struct {
    const char *word;
    enum keyword keyword;
} keywords[] = {
    {"slots", KEY_SLOTS},
    {"cpu", KEY_SLOTS},
    {"count", KEY_SLOTS},
    {"slots-max", KEY_MAX_SLOTS},
    {"slots_max", KEY_MAX_SLOTS},
    {"max-slots", KEY_MAX_SLOTS},
    {"max_slots", KEY_MAX_SLOTS},
    {"cpu-max", KEY_MAX_SLOTS},
    {"cpu_max", KEY_MAX_SLOTS},
    {"max-cpu", KEY_MAX_SLOTS},
    {"max_cpu", KEY_MAX_SLOTS},
    {"count-max", KEY_MAX_SLOTS},
    {"count_max", KEY_MAX_SLOTS},
    {"max-count", KEY_MAX_SLOTS},
    {"max_count", KEY_MAX_SLOTS},
    {"username", KEY_USER},
    {"user-name", KEY_USER},
    {"user_name", KEY_USER},
    {"port", KEY_PORT},
    {"rank", KEY_RANK},
    {"slot", KEY_REFUSED},
    {"boards", KEY_REFUSED},
    {"sockets", KEY_REFUSED},
    {"sockets_per_board", KEY_REFUSED},
    {"sockets-per-board", KEY_REFUSED},
    {"cores", KEY_REFUSED},
    {"cores_per_socket", KEY_REFUSED},
    {"cores-per-socket", KEY_REFUSED},
    {"cpu_set", KEY_REFUSED},
    {"cpu-set", KEY_REFUSED},
};

static enum keyword find_keyword(const char *word, size_t length)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (strlen(keywords[i].word) == length && memcmp(keywords[i].word, word, length) == 0)
            return keywords[i].keyword;
    return KEY_NONE;
}

static bool at_pair(const struct parser *parser, char first, char second)
{
    return parser->end - parser->at >= 2 && parser->at[0] == first && parser->at[1] == second;
}

/* Also a CR at the end of a line. */
static bool at_blank(const struct parser *parser)
{
    const char c = *parser->at;

    if (c == '\r')
        return parser->at + 1 == parser->end || parser->at[1] == '\n';
    return c == ' ' || c == '\t' || c == '\f' || c == '\v';
}

static void skip_block_comment(struct parser *parser)
{
    for (parser->at += 2; parser->at < parser->end && !at_pair(parser, '*', '/'); parser->at++)
        parser->line += *parser->at == '\n';
    parser->at += parser->at < parser->end ? 2 : 0;
}

/* A comment ends the line. */
static enum token next_token(struct parser *parser)
{
    while (parser->at < parser->end && at_blank(parser))
        parser->at++;
    if (parser->at == parser->end)
        return TOKEN_END;
    if (at_pair(parser, '/', '*')) {
        skip_block_comment(parser);
        return TOKEN_NEWLINE;
    }
    if (*parser->at == '#' || at_pair(parser, '/', '/'))
        while (parser->at < parser->end && *parser->at != '\n')
            parser->at++;
    if (parser->at == parser->end)
        return TOKEN_END;
    parser->word = parser->at++;
    parser->length = 1;
    if (*parser->word == '\n') {
        parser->line++;
        return TOKEN_NEWLINE;
    }
    if (*parser->word == '=')
        return TOKEN_EQUAL;
    while (parser->at < parser->end && !at_blank(parser) && *parser->at != '\n' &&
           *parser->at != '=' && *parser->at != '#' && *parser->at != '/')
        parser->at++;
    parser->length = (size_t)(parser->at - parser->word);
    return TOKEN_WORD;
}

static enum mics_status refuse_word(const struct parser *parser, const char *expected)
{
    return mics_err_set(parser->err, MICS_ERR_FORMAT, "%s, not '%.*s'", expected,
                        (int)(parser->length < 100 ? parser->length : 100), parser->word);
}

/* A decimal number of at most nine digits, and at most `most`. */
static bool read_number(const char *text, size_t length, uint32_t most, uint32_t *value)
{
    *value = 0;
    for (size_t i = 0; i < length; i++) {
        if (!isdigit((unsigned char)text[i]) || i == 9)
            return false;
        *value = 10 * *value + (uint32_t)(text[i] - '0');
    }
    return length > 0 && *value <= most;
}

static bool is_address(const char *name)
{
    struct in6_addr binary;

    return inet_pton(AF_INET, name, &binary) == 1 || inet_pton(AF_INET6, name, &binary) == 1;
}

/* mpirun knows a host by its name without the domain, and this machine by its own name. */
static void make_key(const struct parser *parser, const char *name, char key[MICS_HOST_NAME])
{
    struct in6_addr binary;

    memset(key, 0, MICS_HOST_NAME);
    if (strcmp(name, "::1") == 0 || strncmp(name, "127.", 4) == 0)
        strcpy(key, "localhost");
    else if (inet_pton(AF_INET6, name, &binary) == 1)
        inet_ntop(AF_INET6, &binary, key, MICS_HOST_NAME);
    else
        memcpy(key, name, is_address(name) ? strlen(name) : strcspn(name, "."));
    if (strcmp(key, parser->local) == 0)
        strcpy(key, "localhost");
}

/* The place of a key in the table: that of its entry, or a free one. */
static uint32_t *find_place(const struct parser *parser, const char *key)
{
    uint32_t hash = 2166136261u;

    for (const char *c = key; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    for (uint32_t i = hash;; i++) {
        uint32_t *place = &parser->table[i & (parser->table_size - 1)];

        if (*place == 0 || strcmp(parser->entries[*place - 1].key, key) == 0)
            return place;
    }
}

/* Make room for one more entry; the table is at most half full. */
static enum mics_status grow(struct parser *parser)
{
    const uint32_t capacity = parser->capacity ? 2 * parser->capacity : 16;
    void *entries, *table;

    if (parser->count < parser->capacity)
        return MICS_OK;
    if (parser->count >= MICS_MAX_NODES)
        return mics_err_set(parser->err, MICS_ERR_FORMAT, "more than %d hosts", MICS_MAX_NODES);
    entries = realloc(parser->entries, capacity * sizeof *parser->entries);
    if (!entries)
        return mics_err_nomem(parser->err);
    parser->entries = entries;
    table = calloc(2 * (size_t)capacity, sizeof *parser->table);
    if (!table)
        return mics_err_nomem(parser->err);
    free(parser->table);
    parser->table = table;
    parser->table_size = 2 * capacity;
    parser->capacity = capacity;
    for (uint32_t i = 0; i < parser->count; i++)
        *find_place(parser, parser->entries[i].key) = i + 1;
    return MICS_OK;
}

static enum mics_status add_to_line(struct parser *parser, uint32_t index)
{
    if (parser->line_count == parser->line_capacity) {
        const uint32_t capacity = parser->line_capacity ? 2 * parser->line_capacity : 16;
        void *hosts = realloc(parser->line_hosts, capacity * sizeof *parser->line_hosts);

        if (!hosts)
            return mics_err_nomem(parser->err);
        parser->line_hosts = hosts;
        parser->line_capacity = capacity;
    }
    parser->line_hosts[parser->line_count++] = index;
    return MICS_OK;
}

/* A line names a host: `slots` are those behind its colon, or 0. Each further line adds slots, one
 * if it has no number. */
static enum mics_status name_host(struct parser *parser, const char *user, const char *name,
                                  uint32_t slots)
{
    char key[MICS_HOST_NAME];
    enum mics_status status = grow(parser);
    struct entry *entry;
    uint32_t *place;

    if (status != MICS_OK)
        return status;
    if (find_keyword(name, strlen(name)) != KEY_NONE)
        return mics_err_set(parser->err, MICS_ERR_FORMAT, "'%s' is a keyword, not a host", name);
    make_key(parser, name, key);
    place = find_place(parser, key);
    if (*place) {
        entry = &parser->entries[*place - 1];
        entry->slots += slots ? slots : 1;
        entry->is_given = true;
        if (entry->slots > MAX_SLOTS)
            return mics_err_set(parser->err, MICS_ERR_FORMAT, "host '%s' has more than %d slots",
                                name, MAX_SLOTS);
    } else {
        entry = &parser->entries[parser->count];
        *entry = (struct entry){.slots = slots ? slots : 1, .is_given = slots > 0};
        strcpy(entry->host.name, name);
        strcpy(entry->key, key);
        *place = ++parser->count;
    }
    if (*user)
        strcpy(entry->host.user, user);
    return add_to_line(parser, (uint32_t)(entry - parser->entries));
}

/* The names of an expression without addresses. */
static enum mics_status name_expression(struct parser *parser, const char *user, const char *text,
                                        size_t length, uint32_t slots)
{
    struct mics_host_list list = {0};
    enum mics_status status = mics_host_list_append(&list, text, length, parser->err);

    for (uint32_t i = 0; i < list.count && status == MICS_OK; i++)
        status = name_host(parser, user, list.names[i], slots);
    mics_host_list_fini(&list);
    return status;
}

static enum mics_status name_address(struct parser *parser, const char *user, const char *text,
                                     size_t length, uint32_t slots)
{
    char name[MICS_HOST_NAME];

    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1),
             text);
    if (length >= sizeof name || !is_address(name))
        return mics_err_set(parser->err, MICS_ERR_FORMAT,
                            "'%.*s' is not an IPv6 address; its slots go behind brackets, "
                            "[ADDRESS]:SLOTS",
                            (int)(length < 100 ? length : 100), text);
    return name_host(parser, user, name, slots);
}

/* "name", "name[1-4]", "name:SLOTS", "ADDRESS", "[ADDRESS]" or "[ADDRESS]:SLOTS". */
static enum mics_status name_without_user(struct parser *parser, const char *user, const char *text,
                                          size_t length)
{
    const char *const end = text + length;
    const char *close = length > 0 && *text == '[' ? memchr(text, ']', length) : NULL;
    const char *colon = memchr(text, ':', length);
    uint32_t slots = 0;

    if (close && colon && colon < close) {
        colon = close + 1 < end && close[1] == ':' ? close + 1 : NULL;
        if (!colon && close + 1 < end)
            return mics_err_set(parser->err, MICS_ERR_FORMAT, "':SLOTS' expected after ']'");
    } else {
        close = NULL;
        if (colon && memchr(colon + 1, ':', (size_t)(end - colon - 1)))
            return name_address(parser, user, text, length, 0);
    }
    if (colon && (!read_number(colon + 1, (size_t)(end - colon - 1), MAX_SLOTS, &slots) || !slots))
        return mics_err_set(parser->err, MICS_ERR_FORMAT,
                            "'%.*s': a number of slots from 1 to %d expected after ':'",
                            (int)(length < 100 ? length : 100), text, MAX_SLOTS);
    if (close)
        return name_address(parser, user, text + 1, (size_t)(close - text - 1), slots);
    return name_expression(parser, user, text, (size_t)((colon ? colon : end) - text), slots);
}

/* Copy a user's name, which Open MPI takes from these characters only. */
static bool copy_user(const char *text, size_t length, char user[MICS_HOST_NAME])
{
    if (length == 0 || length >= MICS_HOST_NAME || *text == '-')
        return false;
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)text[i]) && text[i] != '_' && text[i] != '-')
            return false;
    memcpy(user, text, length);
    user[length] = '\0';
    return true;
}

static enum mics_status refuse_user(struct parser *parser, const char *text, size_t length)
{
    return mics_err_set(parser->err, MICS_ERR_FORMAT,
                        "'%.*s': the name of a user has letters, digits, '_' and '-'",
                        (int)(length < 100 ? length : 100), text);
}

/* Each host of a list separated by commas. */
static enum mics_status name_hosts(struct parser *parser, const char *text, size_t length)
{
    const char *const end = text + length;

    for (const char *at = text;; at++) {
        char user[MICS_HOST_NAME] = "";
        const char *stop = at, *name = at;
        enum mics_status status;

        for (bool inside = false; stop < end && (inside || *stop != ','); stop++)
            inside = *stop == '[' || (inside && *stop != ']');
        name = memchr(at, '@', (size_t)(stop - at));
        if (name && !copy_user(at, (size_t)(name - at), user))
            return refuse_user(parser, at, (size_t)(name - at));
        name = name ? name + 1 : at;
        status = name_without_user(parser, user, name, (size_t)(stop - name));
        if (status != MICS_OK || stop == end)
            return status;
        at = stop;
    }
}

static enum mics_status expect_number(struct parser *parser, const char *what, uint32_t most,
                                      uint32_t *value)
{
    if (next_token(parser) != TOKEN_EQUAL || next_token(parser) != TOKEN_WORD ||
        !read_number(parser->word, parser->length, most, value))
        return mics_err_set(parser->err, MICS_ERR_FORMAT, "%s=N expected, N at most %u", what,
                            most);
    return MICS_OK;
}

static enum mics_status set_slots(struct parser *parser, uint32_t slots)
{
    for (uint32_t i = 0; i < parser->line_count; i++) {
        struct entry *entry = &parser->entries[parser->line_hosts[i]];

        if (entry->is_given)
            return mics_err_set(parser->err, MICS_ERR_FORMAT,
                                "the slots of host '%s' are given twice", entry->host.name);
        entry->slots = slots;
        entry->is_given = true;
        if (entry->max_slots && entry->max_slots < slots)
            entry->max_slots = slots;
    }
    return MICS_OK;
}

static enum mics_status set_max_slots(struct parser *parser, uint32_t max_slots)
{
    for (uint32_t i = 0; i < parser->line_count; i++) {
        struct entry *entry = &parser->entries[parser->line_hosts[i]];

        if (max_slots < entry->slots)
            return mics_err_set(parser->err, MICS_ERR_FORMAT,
                                "max_slots=%u is less than the %u slots of host '%s'", max_slots,
                                entry->slots, entry->host.name);
        entry->max_slots = max_slots;
    }
    return MICS_OK;
}

static enum mics_status set_user(struct parser *parser)
{
    char user[MICS_HOST_NAME];

    if (next_token(parser) != TOKEN_EQUAL || next_token(parser) != TOKEN_WORD)
        return mics_err_set(parser->err, MICS_ERR_FORMAT, "username=NAME expected");
    if (!copy_user(parser->word, parser->length, user))
        return refuse_user(parser, parser->word, parser->length);
    for (uint32_t i = 0; i < parser->line_count; i++)
        strcpy(parser->entries[parser->line_hosts[i]].host.user, user);
    return MICS_OK;
}

static enum mics_status parse_attribute(struct parser *parser)
{
    enum mics_status status;
    uint32_t number;

    switch (find_keyword(parser->word, parser->length)) {
    case KEY_SLOTS:
        status = expect_number(parser, "slots", MAX_SLOTS, &number);
        return status == MICS_OK ? set_slots(parser, number) : status;
    case KEY_MAX_SLOTS:
        status = expect_number(parser, "max_slots", MAX_SLOTS, &number);
        return status == MICS_OK ? set_max_slots(parser, number) : status;
    case KEY_USER:
        return set_user(parser);
    case KEY_PORT:
        status = expect_number(parser, "port", MAX_PORT, &number);
        for (uint32_t i = 0; i < parser->line_count && status == MICS_OK; i++)
            parser->entries[parser->line_hosts[i]].host.port = number;
        return status;
    case KEY_NONE:
        if (parser->at < parser->end && *parser->at == '=')
            return refuse_word(parser, "expected slots=N");
        for (size_t i = 0; i < parser->length; i++)
            if (!isalnum((unsigned char)parser->word[i]) && !strchr("_-,:*@", parser->word[i]))
                return refuse_word(parser, "expected slots=N");
        return MICS_OK; /* mpirun ignores such words */
    default:
        return refuse_word(parser, "expected slots=N");
    }
}

/* "rank 0=host slot=1", a line of a rank file: a slot of the host. */
static enum mics_status parse_rank(struct parser *parser)
{
    enum token token;
    enum mics_status status;

    do
        token = next_token(parser);
    while (token == TOKEN_WORD);
    if (token != TOKEN_EQUAL || next_token(parser) != TOKEN_WORD)
        return mics_err_set(parser->err, MICS_ERR_FORMAT, "rank N=HOST expected");
    status = name_hosts(parser, parser->word, parser->length);
    for (uint32_t i = 0; i < parser->line_count && status == MICS_OK; i++)
        parser->entries[parser->line_hosts[i]].is_given = true;
    while (parser->at < parser->end && *parser->at != '\n')
        parser->at++;
    return status;
}

/* The host of a line is the last token. Leaves *token at that which ended the line. */
static enum mics_status parse_line(struct parser *parser, enum token *token)
{
    const enum keyword keyword = find_keyword(parser->word, parser->length);
    enum mics_status status;

    parser->line_count = 0;
    if (keyword == KEY_RANK) {
        *token = TOKEN_NEWLINE;
        return parse_rank(parser);
    }
    if (*token != TOKEN_WORD || keyword != KEY_NONE)
        return refuse_word(parser, "expected a host");
    status = name_hosts(parser, parser->word, parser->length);
    while (status == MICS_OK) {
        *token = next_token(parser);
        if (*token == TOKEN_END || *token == TOKEN_NEWLINE)
            break;
        status = *token == TOKEN_WORD ? parse_attribute(parser)
                                      : refuse_word(parser, "expected slots=N");
    }
    for (uint32_t i = 0; i < parser->line_count; i++) {
        struct entry *entry = &parser->entries[parser->line_hosts[i]];

        if (!entry->is_given && entry->max_slots) {
            entry->slots = entry->max_slots;
            entry->is_given = true;
        }
    }
    return status;
}

static enum mics_status parse_lines(struct parser *parser)
{
    for (;;) {
        enum token token = next_token(parser);
        enum mics_status status;
        const int line = parser->line;

        if (token == TOKEN_END)
            return MICS_OK;
        if (token == TOKEN_NEWLINE)
            continue;
        status = parse_line(parser, &token);
        if (status != MICS_OK) {
            mics_err_prefix(parser->err, "line %d", line);
            return status;
        }
    }
}

/* Hosts without slots ("slots=0") take no part. */
static enum mics_status take_hosts(const struct parser *parser, struct mics_hostfile *file)
{
    file->hosts = calloc(parser->count ? parser->count : 1, sizeof *file->hosts);
    if (!file->hosts)
        return mics_err_nomem(parser->err);
    for (uint32_t i = 0; i < parser->count; i++) {
        const struct entry *entry = &parser->entries[i];

        if (entry->is_given && entry->slots == 0)
            continue;
        file->hosts[file->count] = entry->host;
        file->hosts[file->count++].slots = entry->is_given ? entry->slots : 0;
    }
    if (file->count > 0)
        return MICS_OK;
    mics_hostfile_fini(file);
    return mics_err_set(parser->err, MICS_ERR_FORMAT, "no host is listed");
}

void mics_hostfile_fini(struct mics_hostfile *file)
{
    free(file->hosts);
    *file = (struct mics_hostfile){0};
}

static void init_parser(struct parser *parser, const char *text, size_t size, struct mics_err *err)
{
    *parser = (struct parser){.at = text, .end = text + size, .line = 1, .err = err};
    if (gethostname(parser->local, sizeof parser->local - 1) != 0)
        parser->local[0] = '\0';
    parser->local[strcspn(parser->local, ".")] = '\0';
}

static enum mics_status finish_parser(struct parser *parser, enum mics_status status,
                                      struct mics_hostfile *file)
{
    if (status == MICS_OK)
        status = take_hosts(parser, file);
    free(parser->entries);
    free(parser->table);
    free(parser->line_hosts);
    return status;
}

enum mics_status mics_hostfile_parse(const char *text, size_t size, struct mics_hostfile *file,
                                     struct mics_err *err)
{
    struct parser parser;

    if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        size -= 3;
    }
    init_parser(&parser, text, size, err);
    return finish_parser(&parser, parse_lines(&parser), file);
}

enum mics_status mics_hostfile_read(const char *file_or_list, struct mics_hostfile *file,
                                    struct mics_err *err)
{
    struct stat info;
    char *text = NULL;
    size_t size;
    enum mics_status status;

    if (stat(file_or_list, &info) != 0 && !strchr(file_or_list, '/')) {
        struct parser parser;

        init_parser(&parser, "", 0, err);
        status = name_hosts(&parser, file_or_list, strlen(file_or_list));
        status = finish_parser(&parser, status, file);
        if (status != MICS_OK)
            mics_err_prefix(err, "'%.100s'", file_or_list);
        return status;
    }
    status = mics_file_read(file_or_list, (size_t)64 << 20, &text, &size, err);
    if (status != MICS_OK)
        return status;
    status = mics_hostfile_parse(text, size, file, err);
    if (status != MICS_OK)
        mics_err_prefix(err, "%s", file_or_list);
    free(text);
    return status;
}

enum mics_status mics_hostfile_read_names(const char *file_or_list, struct mics_host_list *list,
                                          struct mics_err *err)
{
    struct mics_hostfile file = {0};
    enum mics_status status = mics_hostfile_read(file_or_list, &file, err);

    if (status != MICS_OK)
        goto out;
    list->names = calloc(file.count, sizeof *list->names);
    if (!list->names)
        status = mics_err_nomem(err);
    if (status != MICS_OK)
        goto out;
    for (uint32_t i = 0; i < file.count; i++)
        strcpy(list->names[i], file.hosts[i].name);
    list->count = list->capacity = file.count;
out:
    mics_hostfile_fini(&file);
    return status;
}

void mics_hostfile_print(FILE *out, const struct mics_hostfile *file)
{
    for (uint32_t i = 0; i < file->count; i++) {
        const struct mics_hostfile_host *host = &file->hosts[i];

        fprintf(out, "%s%s%s", host->user, host->user[0] ? "@" : "", host->name);
        if (host->slots)
            fprintf(out, " slots=%u", host->slots);
        if (host->port)
            fprintf(out, " port=%u", host->port);
        fputc('\n', out);
    }
}

static bool is_bad(const json_t *doc, size_t node)
{
    const json_t *list = json_object_get(doc, "bad_nodes");

    for (size_t i = 0; i < json_array_size(list); i++)
        if ((size_t)json_integer_value(json_array_get(list, i)) == node)
            return true;
    return false;
}

/* The name of a declared node is its host's and "#" with a number. */
static void write_hosts(FILE *out, const json_t *doc)
{
    const json_int_t ranks = json_integer_value(json_object_get(doc, "per_node"));
    const json_t *hosts = json_object_get(doc, "hosts"), *nodes = json_object_get(doc, "nodes");

    for (size_t i = 0; i < json_array_size(hosts); i++) {
        const char *name = json_string_value(json_array_get(hosts, i));
        const json_t *port = json_object_get(json_array_get(nodes, i), "port");

        if (is_bad(doc, i))
            continue;
        fprintf(out, "%.*s slots=%lld", (int)strcspn(name, "#"), name, (long long)ranks);
        if (json_is_integer(port))
            fprintf(out, " port=%lld", (long long)json_integer_value(port));
        fputc('\n', out);
    }
}

static enum mics_status no_hosts(const char *path, struct mics_err *err)
{
    return mics_err_set(err, MICS_ERR_ARG,
                        "%s: the topology names no hosts; give them with --hosts", path);
}

enum mics_status mics_hostfile_write(const char *path, const json_t *doc, struct mics_err *err)
{
    struct mics_file_writer *writer = NULL;
    enum mics_status status;

    if (json_array_size(json_object_get(doc, "hosts")) == 0)
        return no_hosts(path, err);
    if (json_array_size(json_object_get(doc, "bad_nodes")) >=
        json_array_size(json_object_get(doc, "hosts")))
        return mics_err_set(err, MICS_ERR_INFEASIBLE, "%s: no host is without a fault", path);
    status = mics_file_create(path, &writer, err);
    if (status != MICS_OK)
        return status;
    write_hosts(mics_file_stream(writer), doc);
    return mics_file_commit(writer, err);
}

enum mics_status mics_hostfile_write_tasks(const char *path, const struct mics_topology *topology,
                                           struct mics_err *err)
{
    const json_t *hosts = json_object_get(topology->doc, "hosts");
    struct mics_file_writer *writer = NULL;
    enum mics_status status;

    if (json_array_size(hosts) == 0)
        return no_hosts(path, err);
    status = mics_file_create(path, &writer, err);
    if (status != MICS_OK)
        return status;
    for (size_t i = 0; i < json_array_size(hosts); i++) {
        const char *name = json_string_value(json_array_get(hosts, i));

        for (uint32_t rank = 0; rank < topology->per_node; rank++)
            fprintf(mics_file_stream(writer), "%.*s\n", (int)strcspn(name, "#"), name);
    }
    return mics_file_commit(writer, err);
}
