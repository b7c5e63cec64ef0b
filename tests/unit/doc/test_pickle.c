/* SPDX-License-Identifier: Apache-2.0 */
/* test_pickle.c - pickles as Python 3.11 writes them, and what is refused in them. */
#include "tap.h"

#include "doc/pickle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* {"vocab_size": 3, "itos": {0: "\n", 1: "a", 2: "\u00f6"}, "stoi": {"\n": 0, "a": 1, "\u00f6": 2}}
 * of protocols 2 and 4: strings that occur again are taken from the memo. */
static const char protocol_2[] =
    "\x80\x02}q\0(X\n\0\0\0vocab_sizeq\1K\3X\4\0\0\0itosq\2}q\3(K\0X\1\0\0\0\nq\4K\1X\1\0\0\0"
    "aq\5K\2X\2\0\0\0\xc3\xb6q\6uX\4\0\0\0stoiq\7}q\10(h\4K\0h\5K\1h\6K\2uu.";
static const char protocol_4[] =
    "\x80\4\x95I\0\0\0\0\0\0\0}\x94(\x8c\nvocab_size\x94K\3\x8c\4itos\x94}\x94(K\0\x8c\1\n\x94"
    "K\1\x8c\1"
    "a\x94K\2\x8c\2\xc3\xb6\x94u\x8c\4stoi\x94}\x94(h\4K\0h\5K\1h\6K\2uu.";

#define BYTES(array) (const unsigned char *)(array), sizeof(array) - 1

static void check_meta(const unsigned char *bytes, size_t size)
{
    struct mics_err err = {""};
    json_t *meta = NULL;

    CHECK_INT(mics_pickle_parse(bytes, size, &meta, &err), MICS_OK);
    char *text = json_dumps(meta, JSON_COMPACT | JSON_SORT_KEYS);

    CHECK(text && strcmp(text, "{\"itos\":{\"0\":\"\\n\",\"1\":\"a\",\"2\":\"\u00f6\"},"
                               "\"stoi\":{\"\\n\":0,\"a\":1,\"\u00f6\":2},\"vocab_size\":3}") == 0);
    free(text);
    json_decref(meta);
}

static void a_dict_of_nanogpt_is_read_in_old_and_new_protocols(void)
{
    check_meta(BYTES(protocol_2));
    check_meta(BYTES(protocol_4));
}

static void every_length_of_a_truncated_pickle_is_refused(void)
{
    struct mics_err err = {""};
    json_t *value = NULL;

    for (size_t size = 0; size < sizeof protocol_4 - 1; size++) {
        CHECK_INT(mics_pickle_parse((const unsigned char *)protocol_4, size, &value, &err),
                  MICS_ERR_FORMAT);
        CHECK(value == NULL);
    }
}

static void all_plain_values_are_read(void)
{
    /* [None, True, False, -1, 255, 65535, -2**40, 0.5, "a\0b"] and then [1] within it */
    static const char list[] = "\x80\x05]\x94(N\x88\x89J\xff\xff\xff\xffK\xffM\xff\xff\x8a\6\0\0\0"
                               "\0\0\xffG\x3f\xe0\0\0\0\0\0\0\x8c\3a\0b\x94]\x94K\1a\x8a\0e.";
    struct mics_err err = {""};
    json_t *value = NULL;

    CHECK_INT(mics_pickle_parse(BYTES(list), &value, &err), MICS_OK);
    CHECK_INT(json_array_size(value), 11);
    CHECK(json_is_null(json_array_get(value, 0)) && json_is_true(json_array_get(value, 1)));
    CHECK(json_is_false(json_array_get(value, 2)));
    CHECK_INT(json_integer_value(json_array_get(value, 3)), -1);
    CHECK_INT(json_integer_value(json_array_get(value, 4)), 255);
    CHECK_INT(json_integer_value(json_array_get(value, 5)), 65535);
    CHECK(json_integer_value(json_array_get(value, 6)) == -((json_int_t)1 << 40));
    CHECK(json_real_value(json_array_get(value, 7)) == 0.5);
    CHECK_INT(json_string_length(json_array_get(value, 8)), 3);
    CHECK_INT(json_array_size(json_array_get(value, 9)), 1);
    CHECK_INT(json_integer_value(json_array_get(value, 10)), 0);
    json_decref(value);
}

static void refuse(const unsigned char *bytes, size_t size, const char *reason)
{
    struct mics_err err = {""};
    json_t *value = NULL;

    CHECK_INT(mics_pickle_parse(bytes, size, &value, &err), MICS_ERR_FORMAT);
    CHECK(strstr(err.text, reason) != NULL);
    CHECK(value == NULL);
    if (!strstr(err.text, reason))
        printf("# %s\n", err.text);
}

static void what_would_run_code_is_refused_by_its_name(void)
{
    /* os.system("true") in protocols 2 and 4, numpy.uint16, an object, a tuple */
    refuse(BYTES("\x80\2cposix\nsystem\nq\0X\4\0\0\0trueq\1\x85q\2Rq\3."),
           "byte 2: opcode GLOBAL:");
    refuse(BYTES("\x80\4\x8c\5posix\x94\x8c\6system\x94\x93\x94."), "opcode STACK_GLOBAL");
    refuse(BYTES("\x80\2K\1R."), "opcode REDUCE");
    refuse(BYTES("\x80\2)."), "opcode EMPTY_TUPLE");
    refuse(BYTES("\x80\2\xfe."), "opcode 0xfe");
    refuse(BYTES("(dp0\nVvocab_size\n."), "not a pickle of protocol 2 to 5");
    refuse(BYTES("\x80\x06."), "protocol 6");
}

static void contradictions_are_refused_in_a_pickle(void)
{
    static unsigned char nested[8192];

    refuse(BYTES("\x80\2."), "not one value");
    refuse(BYTES("\x80\2K\1K\2."), "not one value");
    refuse(BYTES("\x80\2(K\1."), "not one value");
    refuse(BYTES("\x80\2}K\1s."), "items without a container");
    refuse(BYTES("\x80\2]K\1K\2s."), "items without a container");
    refuse(BYTES("\x80\2}(K\1u."), "items without a container");
    refuse(BYTES("\x80\2]K\1(ae."), "items without a container");
    refuse(BYTES("\x80\2u."), "items without a mark");
    refuse(BYTES("\x80\2}N\x88s."), "neither a string nor a number");
    refuse(BYTES("\x80\2h\0."), "occurs twice");
    refuse(BYTES("\x80\2]q\0h\0a."), "occurs twice");
    refuse(BYTES("\x80\2q\0."), "out of order");
    refuse(BYTES("\x80\2K\1q\5."), "out of order");
    refuse(BYTES("\x80\2X\2\0\0\0\xed\xa0."), "not UTF-8");
    refuse(BYTES("\x80\4\x8d\xff\xff\xff\xff\xff\xff\xff\xff."), "truncated");
    refuse(BYTES("\x80\2\x8a\x09\0\0\0\0\0\0\0\0\1."), "more than 64 bits");
    refuse(BYTES("\x80\2G\x7f\xf0\0\0\0\0\0\0."), "not finite");
    memset(nested, ']', sizeof nested);
    memcpy(nested, "\x80\2", 2);
    memset(nested + 4097, 'a', 4094);
    nested[8191] = '.';
    refuse(nested, sizeof nested, "too deeply nested");
    memset(nested + 2, '(', sizeof nested - 2);
    refuse(nested, sizeof nested, "too deeply nested");
}

/* What torch.save writes of {"w": a tensor of 2 numbers}, shortened, in a list with itself. */
static void objects_are_nodes_and_their_classes_are_of_a_list(void)
{
    static const char *const allowed[] = {"collections.OrderedDict", "torch.*", NULL};
    static const char tensor[] = "\x80\2]q\0(h\0ccollections\nOrderedDict\nq\1)Rq\2(X\1\0\0\0wq\3"
                                 "ctorch._utils\n_rebuild_tensor_v2\nq\4"
                                 "((X\7\0\0\0storageq\5ctorch\nFloatStorage\nq\6X\1\0\0\0"
                                 "0q\7X\3\0\0\0cpuq\10K\2tq\11QK\0K\2\x85q\12K\1\x85q\13"
                                 "\x89h\1)Rq\14tq\15Rq\16u}X\1\0\0\0kK\7sbe.";
    struct mics_err err = {""};
    struct mics_pickle *pickle = NULL;
    int64_t value = 0;

    CHECK_INT(mics_pickle_open(BYTES(tensor), allowed, &pickle, &err), MICS_OK);
    if (!pickle)
        return;
    const uint32_t root = mics_pickle_root(pickle);

    CHECK_INT(mics_pickle_kind(pickle, root), MICS_PICKLE_LIST);
    CHECK_INT(mics_pickle_item(pickle, root, 0), root);
    const uint32_t dict = mics_pickle_item(pickle, root, 1);
    CHECK(strcmp(mics_pickle_class(pickle, dict), "collections.OrderedDict") == 0);
    CHECK_INT(mics_pickle_count(pickle, dict), 1);
    CHECK(mics_pickle_integer(pickle, mics_pickle_get(pickle, dict, "k"), &value) && value == 7);
    const uint32_t found = mics_pickle_get(pickle, dict, "w");
    CHECK(strcmp(mics_pickle_class(pickle, found), "torch._utils._rebuild_tensor_v2") == 0);
    const uint32_t args = mics_pickle_args(pickle, found);
    CHECK_INT(mics_pickle_count(pickle, args), 6);
    CHECK_INT(mics_pickle_kind(pickle, mics_pickle_item(pickle, args, 0)), MICS_PICKLE_PERSISTENT);
    const uint32_t id = mics_pickle_item(pickle, mics_pickle_item(pickle, args, 0), 0);
    CHECK(strcmp(mics_pickle_text(pickle, mics_pickle_item(pickle, id, 1)), "torch.FloatStorage") ==
          0);
    CHECK(mics_pickle_item(pickle, args, 6) == 0 && mics_pickle_get(pickle, args, "w") == 0 &&
          !mics_pickle_class(pickle, 0) && !mics_pickle_text(pickle, root));
    mics_pickle_close(pickle);
    CHECK_INT(mics_pickle_open(BYTES("\x80\2cposix\nsystem\n."), allowed, &pickle, &err),
              MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "'posix.system' is not a class that is read") != NULL && !pickle);
    for (size_t size = 0; size < sizeof tensor - 1; size++)
        CHECK_INT(mics_pickle_open((const unsigned char *)tensor, size, allowed, &pickle, &err),
                  MICS_ERR_FORMAT);
}

/* 3 MB that would be 120 MB of names. */
static void names_of_classes_without_end_are_refused(void)
{
    enum { NAME = 100, CLASSES = 600000, BYTES_OF_CLASS = 5 };
    static const char *const allowed[] = {"nnn*", NULL};
    struct mics_err err = {""};
    struct mics_pickle *pickle = NULL;
    unsigned char *bytes = malloc(2 * (4 + NAME) + CLASSES * BYTES_OF_CLASS + 3), *at = bytes;

    CHECK(bytes != NULL);
    if (!bytes)
        return;
    *at++ = 0x80;
    *at++ = 4;
    for (int i = 0; i < 2; i++) {
        *at++ = 0x8c;
        *at++ = NAME;
        memset(at, 'n', NAME);
        at += NAME;
        *at++ = 0x94;
    }
    for (int i = 0; i < CLASSES; i++, at += BYTES_OF_CLASS)
        memcpy(at, "h\0h\1\x93", BYTES_OF_CLASS);
    *at++ = '.';
    CHECK_INT(mics_pickle_open(bytes, (size_t)(at - bytes), allowed, &pickle, &err),
              MICS_ERR_FORMAT);
    CHECK(strstr(err.text, "its texts are too long") != NULL && !pickle);
    free(bytes);
}

int main(void)
{
    TAP_RUN(a_dict_of_nanogpt_is_read_in_old_and_new_protocols);
    TAP_RUN(every_length_of_a_truncated_pickle_is_refused);
    TAP_RUN(all_plain_values_are_read);
    TAP_RUN(objects_are_nodes_and_their_classes_are_of_a_list);
    TAP_RUN(names_of_classes_without_end_are_refused);
    TAP_RUN(what_would_run_code_is_refused_by_its_name);
    TAP_RUN(contradictions_are_refused_in_a_pickle);
    return tap_done();
}
