/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hostfile.c - host files: what Open MPI 4.1.4 makes of them, what only mics accepts, and what
 * is refused.
 */
#include "tap.h"
#include "topology/hostfile.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The hosts of a file as mics_hostfile_print() prints them, with '|' for the ends of lines, or the
 * error. The text is valid until the next call. */
static const char *parse(const char *text, size_t size)
{
    static char result[4096];
    struct mics_hostfile file = {0};
    struct mics_err err = {{0}};
    FILE *out = fmemopen(result, sizeof result, "w");

    if (mics_hostfile_parse(text, size, &file, &err) == MICS_OK)
        mics_hostfile_print(out, &file);
    else
        fprintf(out, "%s%s", file.hosts ? "not empty: " : "", err.text);
    fclose(out);
    mics_hostfile_fini(&file);
    for (char *c = result; (c = strchr(c, '\n')) != NULL;)
        *c = '|';
    return result;
}

static void check_all(const char *const (*cases)[2], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *found = parse(cases[i][0], strlen(cases[i][0]));

        if (strcmp(found, cases[i][1]) != 0)
            printf("# %s\n", cases[i][0]);
        CHECK_STR(found, cases[i][1]);
    }
}

#define CHECK_CASES(cases) check_all(cases, sizeof(cases) / sizeof *(cases))

static void hostfile_is_read_as_open_mpi_reads_it(void)
{
    static const char *const cases[][2] = {
        {"a\n", "a|"},
        {"a slots=2", "a slots=2|"},
        {"  a\tslots = 2  \n\n", "a slots=2|"},
        {"a cpu=3\nb count=4\n", "a slots=3|b slots=4|"},
        {"a max-slots=3\nb max_slots = 4\nc max-cpu=5\n", "a slots=3|b slots=4|c slots=5|"},
        {"a max_slots=3 slots=2\n", "a slots=2|"},
        {"a max_slots=2 slots=4\n", "a slots=4|"},
        {"a slots=02\n", "a slots=2|"},
        {"a\na\na\n", "a slots=3|"},
        {"a slots=2\nb slots=1\na\n", "a slots=3|b slots=1|"},
        {"a\na max_slots=4\n", "a slots=2|"},
        {"me@a slots=2\n", "me@a slots=2|"},
        {"a username=me slots=2\n", "me@a slots=2|"},
        {"a user-name = me\n", "me@a|"},
        {"a port=2222 slots=2\n", "a slots=2 port=2222|"},
        {"rank 0=a slot=0\nrank 1=a slot=1\nrank 2=b slot=0\n", "a slots=2|b slots=1|"},
        {"10.0.0.1 slots=2\n", "10.0.0.1 slots=2|"},
        {"fe80::1 slots=2\nme@fe80::2\n", "fe80::1 slots=2|me@fe80::2|"},
        {"12 slots=2\n", "12 slots=2|"},
        {"1a.x.org slots=2\n", "1a.x.org slots=2|"},
        {"a.x.org slots=2\na\n", "a.x.org slots=3|"},
        {"localhost slots=2\n127.0.0.1\n::1\n", "localhost slots=4|"},
        {"# one\na slots=2 # two\n// three\nb // four\n", "a slots=2|b|"},
        {"/* one\ntwo */ a slots=3 /* three */ b\n", "a slots=3|b|"},
        {"a slots=2#x\n", "a slots=2|"},
        {"a slots=2 b 7\n", "a slots=2|"},
        {"a slots=0\nb slots=2\n", "b slots=2|"},
    };

    CHECK_CASES(cases);
}

static void hostfile_accepts_what_people_write(void)
{
    static const char *const cases[][2] = {
        {"a slots=2\r\nb slots=2\r\n", "a slots=2|b slots=2|"},
        {"\xef\xbb\xbf"
         "a slots=2\n",
         "a slots=2|"},
        {"a slots=2 # no end", "a slots=2|"},
        {"a slots=2\r", "a slots=2|"},
        {"a:2\nme@b:4\n10.0.0.1:3\n", "a slots=2|me@b slots=4|10.0.0.1 slots=3|"},
        {"a:2\na:2\n", "a slots=4|"},
        {"[fe80::1] slots=2\n[fe80::2]:4\nme@[::ffff:1.2.3.4]\n",
         "fe80::1 slots=2|fe80::2 slots=4|me@::ffff:1.2.3.4|"},
        {"fe80:0:0:0:0:0:0:1\nfe80::1\n", "fe80:0:0:0:0:0:0:1 slots=2|"},
        {"n[08-10] slots=2\nr,s:3\n", "n08 slots=2|n09 slots=2|n10 slots=2|r|s slots=3|"},
    };

    CHECK_CASES(cases);
}

static void hostfile_refuses_with_a_line(void)
{
    static const char *const cases[][2] = {
        {"a\n\nb slots=2\nb slots=2\n", "line 4: the slots of host 'b' are given twice"},
        {"a\na slots=2\n", "line 2: the slots of host 'a' are given twice"},
        {"a slots=2 slots=3\n", "line 1: the slots of host 'a' are given twice"},
        {"a:2 slots=3\n", "line 1: the slots of host 'a' are given twice"},
        {"a slots=4 max_slots=2\n", "line 1: max_slots=2 is less than the 4 slots of host 'a'"},
        {"a lots=2\n", "line 1: expected slots=N, not 'lots'"},
        {"a ppn=2\n", "line 1: expected slots=N, not 'ppn'"},
        {"a Slots = 2\n", "line 1: expected slots=N, not '='"},
        {"a slot=2\n", "line 1: expected slots=N, not 'slot'"},
        {"a sockets=2\n", "line 1: expected slots=N, not 'sockets'"},
        {"a slots=2 b.c\n", "line 1: expected slots=N, not 'b.c'"},
        {"a =2\n", "line 1: expected slots=N, not '='"},
        {"/* x\ny */ slots=2\n", "line 2: expected a host, not 'slots'"},
        {"a slots\n", "line 1: slots=N expected, N at most 65535"},
        {"a slots=\nb\n", "line 1: slots=N expected, N at most 65535"},
        {"a slots=-1\n", "line 1: slots=N expected, N at most 65535"},
        {"a slots=2x\n", "line 1: slots=N expected, N at most 65535"},
        {"a slots=4294967298\n", "line 1: slots=N expected, N at most 65535"},
        {"a port=x\n", "line 1: port=N expected, N at most 65535"},
        {"rank 0\n", "line 1: rank N=HOST expected"},
        {"-oProxyCommand=x\n", "line 1: the name of a host begins with '-'"},
        {"me@-x\n", "line 1: the name of a host begins with '-'"},
        {"n[1-2],-x\n", "line 1: the name of a host begins with '-'"},
        {"-me@a\n", "line 1: '-me': the name of a user has letters, digits, '_' and '-'"},
        {"a username=b.c\n", "line 1: 'b.c': the name of a user has letters, digits, '_' and '-'"},
        {"me@you@a\n", "line 1: '@' in the name of a host"},
        {"^a\n", "line 1: '^' in the name of a host"},
        {"+n0\n", "line 1: '+' in the name of a host"},
        {"a,slots\n", "line 1: 'slots' is a keyword, not a host"},
        {"$(x)\n", "line 1: '$' in the name of a host"},
        {"\"a\"\n", "line 1: '\"' in the name of a host"},
        {"a:0\n", "line 1: 'a:0': a number of slots from 1 to 65535 expected after ':'"},
        {"a:x\n", "line 1: 'a:x': a number of slots from 1 to 65535 expected after ':'"},
        {"[fe80::1]2\n", "line 1: ':SLOTS' expected after ']'"},
        {"a:b:c\n", "line 1: 'a:b:c' is not an IPv6 address; its slots go behind brackets, "
                    "[ADDRESS]:SLOTS"},
        {"# nothing\n", "no host is listed"},
        {"a slots=0\n", "no host is listed"},
        {"", "no host is listed"},
    };

    CHECK_CASES(cases);
    CHECK_STR(parse("a\0b\n", 4), "line 1: byte 0x00 in the name of a host");
}

static void hostfile_of_many_hosts_and_lines(void)
{
    const size_t lines = 200000;
    char *text = malloc(lines * 12);
    size_t size = 0;
    struct mics_hostfile file = {0};
    struct mics_err err = {{0}};

    for (size_t i = 0; i < lines; i++)
        size += (size_t)sprintf(text + size, "n%zu\n", i % 50000);
    CHECK_INT(mics_hostfile_parse(text, size, &file, &err), MICS_OK);
    CHECK_INT(file.count, 50000);
    CHECK(file.hosts && file.hosts[49999].slots == 4);
    mics_hostfile_fini(&file);
    CHECK_STR(parse("n[0-65535]\nm\n", 13), "line 2: more than 65536 hosts");
    free(text);
}

static void hostfile_may_be_a_list(void)
{
    char path[] = "/tmp/mics-hosts-XXXXXX";
    const int fd = mkstemp(path);
    struct mics_host_list list = {0};
    struct mics_hostfile file = {0};
    struct mics_err err = {{0}};

    CHECK(fd >= 0 && write(fd, "n1 slots=8\n\nn[2-3]\n", 19) == 19);
    CHECK_INT(mics_hostfile_read_names(path, &list, &err), MICS_OK);
    CHECK_INT(list.count, 3);
    CHECK(list.count == 3 && strcmp(list.names[2], "n3") == 0);
    mics_host_list_fini(&list);
    CHECK(write(fd, "n[\n", 3) == 3);
    CHECK_INT(mics_hostfile_read(path, &file, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "line 4: '[' without ']'"));
    CHECK(strncmp(err.text, path, strlen(path)) == 0);
    close(fd);
    unlink(path);
    CHECK_INT(mics_hostfile_read(path, &file, &err), MICS_ERR_IO);
    CHECK_INT(mics_hostfile_read("n[1-2],n1,me@x:4", &file, &err), MICS_OK);
    CHECK_INT(file.count, 3);
    CHECK(file.count == 3 && file.hosts[0].slots == 2 && file.hosts[2].slots == 4);
    mics_hostfile_fini(&file);
}

int main(void)
{
    TAP_RUN(hostfile_is_read_as_open_mpi_reads_it);
    TAP_RUN(hostfile_accepts_what_people_write);
    TAP_RUN(hostfile_refuses_with_a_line);
    TAP_RUN(hostfile_of_many_hosts_and_lines);
    TAP_RUN(hostfile_may_be_a_list);
    return tap_done();
}
