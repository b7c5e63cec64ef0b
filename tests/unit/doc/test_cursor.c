/* SPDX-License-Identifier: Apache-2.0 */
/* test_cursor.c - errors of checked reading name the path and leave the output unchanged. */
#include "doc/cursor.h"
#include "tap.h"

static const char text[] =
    "{\"links\": [{\"bandwidth\": 1e9, \"name\": \"a\"}, {\"bandwidth\": \"x\"}],"
    " \"n\": 7, \"half\": 2.5, \"whole\": 3.0, \"minus\": -1, \"nil\": null,"
    " \"huge\": 1e19, \"yes\": true, \"deep\": {\"er\": {\"x\": []}}}";

static json_t *doc;
static struct mics_err err;

static void a_bad_member_is_named_by_its_path(void)
{
    const struct mics_cursor root = mics_cursor_root(doc);
    struct mics_cursor links, link;
    double bandwidth = 5;

    CHECK_INT(mics_cursor_array(&root, "links", 0, 64, &links, &err), MICS_OK);
    CHECK_INT(mics_cursor_count(&links), 2);
    CHECK_INT(mics_cursor_item(&links, 1, &link, &err), MICS_OK);
    CHECK_INT(mics_cursor_double(&link, "bandwidth", 0, 1e15, &bandwidth, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "links[1].bandwidth: expected a number, found a string");
    CHECK_NEAR(bandwidth, 5, 0);
    CHECK_INT(mics_cursor_item(&links, 0, &link, &err), MICS_OK);
    CHECK_INT(mics_cursor_double(&link, "bandwidth", 0, 1e15, &bandwidth, &err), MICS_OK);
    CHECK_NEAR(bandwidth, 1e9, 0);
    CHECK_INT(mics_cursor_double(&link, "bandwidth", 0, 1e6, &bandwidth, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "links[0].bandwidth: expected 0 to 1e+06, found 1e+09");
    CHECK_INT(mics_cursor_item(&links, 2, &link, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "links[2]: missing");
}

static void a_missing_member_is_missing_and_null_is_found(void)
{
    const struct mics_cursor root = mics_cursor_root(doc);
    struct mics_cursor deep, er;
    const char *string = "kept";
    bool flag = true;

    CHECK(mics_cursor_has(&root, "n"));
    CHECK(!mics_cursor_has(&root, "nil"));
    CHECK(!mics_cursor_has(&root, "nothing"));
    CHECK_INT(mics_cursor_string(&root, "nothing", &string, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "nothing: missing");
    CHECK_INT(mics_cursor_string(&root, "nil", &string, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "nil: expected a string, found null");
    CHECK_STR(string, "kept");
    CHECK_INT(mics_cursor_object(&root, "deep", &deep, &err), MICS_OK);
    CHECK_INT(mics_cursor_object(&deep, "er", &er, &err), MICS_OK);
    CHECK_INT(mics_cursor_bool(&er, "x", &flag, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "deep.er.x: expected a boolean, found an array");
    CHECK_INT(mics_cursor_bool(&root, "yes", &flag, &err), MICS_OK);
    CHECK(flag);
}

static void a_real_is_an_integer_only_if_it_is_whole(void)
{
    const struct mics_cursor root = mics_cursor_root(doc);
    uint64_t wide = 42;
    uint32_t narrow = 42;

    CHECK_INT(mics_cursor_u64(&root, "half", 0, 9, &wide, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "half: expected a whole number, found 2.5");
    CHECK_INT(wide, 42);
    CHECK_INT(mics_cursor_u64(&root, "whole", 0, 9, &wide, &err), MICS_OK);
    CHECK_INT(wide, 3);
    CHECK_INT(mics_cursor_u32(&root, "n", 1, 6, &narrow, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "n: expected 1 to 6, found 7");
    CHECK_INT(narrow, 42);
    CHECK_INT(mics_cursor_u32(&root, "n", 1, 7, &narrow, &err), MICS_OK);
    CHECK_INT(narrow, 7);
    CHECK_INT(mics_cursor_u64(&root, "minus", 0, UINT64_MAX, &wide, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "minus: expected at least 0, found -1");
    CHECK_INT(mics_cursor_u64(&root, "huge", 0, UINT32_MAX, &wide, &err), MICS_ERR_FORMAT);
    CHECK_INT(mics_cursor_u64(&root, "huge", 0, UINT64_MAX, &wide, &err), MICS_OK);
    CHECK(wide == 10000000000000000000u);
}

static void arrays_have_a_number_of_items(void)
{
    const struct mics_cursor root = mics_cursor_root(doc);
    struct mics_cursor links = root;

    CHECK_INT(mics_cursor_array(&root, "links", 3, 9, &links, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "links: expected 3 to 9 items, found 2");
    CHECK_INT(mics_cursor_array(&root, "n", 3, 9, &links, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "n: expected an array, found a number");
    CHECK(links.value == doc);
}

static void a_cursor_that_is_not_on_a_map_is_an_error(void)
{
    const struct mics_cursor root = mics_cursor_root(doc);
    struct mics_cursor links, item, scalar;
    uint32_t value;

    CHECK_INT(mics_cursor_array(&root, "links", 0, 9, &links, &err), MICS_OK);
    item = mics_cursor_item_any(&links, 0);
    CHECK(json_is_object(item.value));
    scalar = mics_cursor_item_any(&links, 9);
    CHECK_INT(mics_cursor_u32(&scalar, "x", 0, 1, &value, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "links[9]: expected a map, found null");
    CHECK(!mics_cursor_has(&scalar, "x"));
}

static void failures_may_be_reported_anywhere(void)
{
    const struct mics_cursor root = mics_cursor_root(doc);
    struct mics_cursor deep;

    CHECK_INT(mics_cursor_object(&root, "deep", &deep, &err), MICS_OK);
    CHECK_INT(mics_cursor_fail(&deep, "er", &err, "no '%s' here", "x"), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "deep.er: no 'x' here");
    mics_cursor_fail(&deep, NULL, &err, "bad");
    CHECK_STR(err.text, "deep: bad");
    mics_cursor_fail(&root, NULL, &err, "bad");
    CHECK_STR(err.text, "bad");
}

static void a_path_that_is_too_long_is_truncated(void)
{
    const struct mics_cursor root = mics_cursor_root(doc);
    struct mics_cursor chain[64];
    char key[101];

    memset(key, 'k', 100);
    key[100] = '\0';
    chain[0] = root;
    for (int i = 1; i < 64; i++)
        chain[i] = (struct mics_cursor){.parent = &chain[i - 1], .key = key};
    CHECK_INT(mics_cursor_fail(&chain[63], NULL, &err, "end"), MICS_ERR_FORMAT);
    CHECK(strlen(err.text) < sizeof err.text);
    CHECK(strstr(err.text, ": end") != NULL);
}

static void a_text_that_does_not_fit_is_named_and_leaves_the_output(void)
{
    json_t *value = json_pack("{s:s}", "name", "eight___");
    const struct mics_cursor root = mics_cursor_root(value);
    char fits[9] = "", small[8] = "before";

    CHECK_INT(mics_cursor_text(&root, "name", fits, sizeof fits, &err), MICS_OK);
    CHECK_STR(fits, "eight___");
    CHECK_INT(mics_cursor_text(&root, "name", small, sizeof small, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "name: more than 7 bytes");
    CHECK_STR(small, "before");
    json_decref(value);
}

int main(void)
{
    doc = json_loads(text, 0, NULL);
    if (!doc)
        return 1;
    TAP_RUN(a_bad_member_is_named_by_its_path);
    TAP_RUN(a_text_that_does_not_fit_is_named_and_leaves_the_output);
    TAP_RUN(a_missing_member_is_missing_and_null_is_found);
    TAP_RUN(a_real_is_an_integer_only_if_it_is_whole);
    TAP_RUN(arrays_have_a_number_of_items);
    TAP_RUN(a_cursor_that_is_not_on_a_map_is_an_error);
    TAP_RUN(failures_may_be_reported_anywhere);
    TAP_RUN(a_path_that_is_too_long_is_truncated);
    json_decref(doc);
    return tap_done();
}
