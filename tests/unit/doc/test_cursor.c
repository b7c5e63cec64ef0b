/* SPDX-License-Identifier: Apache-2.0 */
/* test_cursor.c - the first error of checked reading names the path, and later ones are dropped. */
#include "doc/cursor.h"
#include "tap.h"

static const char text[] =
    "{\"links\": [{\"bandwidth\": 1e9, \"name\": \"a\"}, {\"bandwidth\": \"x\"}],"
    " \"n\": 7, \"half\": 2.5, \"whole\": 3.0, \"minus\": -1, \"nil\": null,"
    " \"huge\": 1e19, \"yes\": true, \"deep\": {\"er\": {\"x\": []}}}";

static json_t *doc;
static struct mics_err err;
static struct mics_reading reading;

/* A cursor at the document, without an error. */
static struct mics_cursor begin(void)
{
    reading = (struct mics_reading){.err = &err};
    return mics_cursor_begin(doc, &reading);
}

/* Check that there was this error, and forget it. */
static void expect_error(const char *expected)
{
    CHECK_INT(reading.status, MICS_ERR_FORMAT);
    CHECK_STR(err.text, expected);
    reading.status = MICS_OK;
}

static void a_bad_member_is_named_by_its_path(void)
{
    const struct mics_cursor root = begin();
    const struct mics_cursor links = mics_cursor_get_array(&root, "links", 0, 64);
    const struct mics_cursor first = mics_cursor_get_item(&links, 0);
    const struct mics_cursor second = mics_cursor_get_item(&links, 1);

    CHECK_INT(mics_cursor_count(&links), 2);
    CHECK_NEAR(mics_cursor_get_double(&first, "bandwidth", 0, 1e15), 1e9, 0);
    CHECK(mics_cursor_ok(&root));
    CHECK_NEAR(mics_cursor_get_double(&second, "bandwidth", 5, 1e15), 5, 0);
    expect_error("links[1].bandwidth: expected a number, found a string");
    CHECK_NEAR(mics_cursor_get_double(&first, "bandwidth", 0, 1e6), 0, 0);
    expect_error("links[0].bandwidth: expected 0 to 1e+06, found 1e+09");
    CHECK(mics_cursor_get_item(&links, 2).value == NULL);
    expect_error("links[2]: missing");
}

static void after_an_error_values_are_valid_and_the_text_stays(void)
{
    const struct mics_cursor root = begin();
    char name[8] = "before";

    mics_cursor_get_string(&root, "nothing");
    CHECK(!mics_cursor_ok(&root));
    CHECK_INT(mics_cursor_get_u32(&root, "n", 3, 9), 3);
    CHECK_INT(mics_cursor_get_u64(&root, "n", 4, 9), 4);
    CHECK_NEAR(mics_cursor_get_double(&root, "half", 1, 9), 1, 0);
    CHECK(!mics_cursor_get_bool(&root, "yes"));
    CHECK_STR(mics_cursor_get_string(&root, "n"), "");
    mics_cursor_get_text(&root, "n", name, sizeof name);
    CHECK_STR(name, "before");
    const struct mics_cursor links = mics_cursor_get_array(&root, "links", 2, 2);
    const struct mics_cursor link = mics_cursor_get_item(&links, 0);
    CHECK_INT(mics_cursor_count(&links), 0);
    CHECK(!mics_cursor_has(&link, "bandwidth"));
    CHECK_NEAR(mics_cursor_get_double(&link, "bandwidth", 2, 3), 2, 0);
    CHECK(mics_cursor_get_object(&root, "deep").value == NULL);
    CHECK(mics_cursor_calloc(&links, 1) == NULL);
    mics_cursor_reject(&root, "n", "another");
    mics_cursor_nomem(&root);
    expect_error("nothing: missing");
}

static void a_missing_member_is_missing_and_null_is_found(void)
{
    const struct mics_cursor root = begin();
    const struct mics_cursor deep = mics_cursor_get_object(&root, "deep");
    const struct mics_cursor er = mics_cursor_get_object(&deep, "er");

    CHECK(mics_cursor_has(&root, "n"));
    CHECK(!mics_cursor_has(&root, "nil"));
    CHECK(!mics_cursor_has(&root, "nothing"));
    mics_cursor_get_string(&root, "nothing");
    expect_error("nothing: missing");
    mics_cursor_get_string(&root, "nil");
    expect_error("nil: expected a string, found null");
    mics_cursor_get_bool(&er, "x");
    expect_error("deep.er.x: expected a boolean, found an array");
    CHECK(mics_cursor_get_bool(&root, "yes"));
}

static void an_optional_member_has_a_value_when_it_is_absent_or_null(void)
{
    const struct mics_cursor root = begin();

    CHECK_INT(mics_cursor_opt_u32(&root, "nil", 1, 9, 0), 0);
    CHECK_INT(mics_cursor_opt_u32(&root, "n", 1, 9, 0), 7);
    CHECK_INT(mics_cursor_opt_u64(&root, "nothing", 1, 9, UINT64_MAX) == UINT64_MAX, 1);
    CHECK_NEAR(mics_cursor_opt_double(&root, "nothing", 1, 9, -1), -1, 0);
    CHECK_NEAR(mics_cursor_opt_double(&root, "half", 1, 9, -1), 2.5, 0);
    CHECK(mics_cursor_opt_bool(&root, "nothing", true));
    CHECK(mics_cursor_opt_string(&root, "nothing", NULL) == NULL);
    CHECK(mics_cursor_ok(&root));
    mics_cursor_opt_u32(&root, "n", 1, 6, 0);
    expect_error("n: expected 1 to 6, found 7");
}

static void a_real_is_an_integer_only_if_it_is_whole(void)
{
    const struct mics_cursor root = begin();

    mics_cursor_get_u64(&root, "half", 0, 9);
    expect_error("half: expected a whole number, found 2.5");
    CHECK_INT(mics_cursor_get_u64(&root, "whole", 0, 9), 3);
    CHECK_INT(mics_cursor_get_u32(&root, "n", 1, 6), 1);
    expect_error("n: expected 1 to 6, found 7");
    CHECK_INT(mics_cursor_get_u32(&root, "n", 1, 7), 7);
    mics_cursor_get_u64(&root, "minus", 0, UINT64_MAX);
    expect_error("minus: expected at least 0, found -1");
    mics_cursor_get_u64(&root, "huge", 0, UINT32_MAX);
    expect_error("huge: expected 0 to 4294967295, found 1e+19");
    CHECK(mics_cursor_get_u64(&root, "huge", 0, UINT64_MAX) == 10000000000000000000u);
    CHECK(mics_cursor_ok(&root));
}

static void arrays_have_a_number_of_items(void)
{
    const struct mics_cursor root = begin();
    const struct mics_cursor links = mics_cursor_get_array(&root, "links", 0, 9);
    unsigned char *bytes = mics_cursor_calloc(&links, 3);

    CHECK(bytes && bytes[0] == 0 && bytes[5] == 0);
    free(bytes);
    mics_cursor_get_array(&root, "links", 3, 9);
    expect_error("links: expected 3 to 9 items, found 2");
    mics_cursor_get_array(&root, "n", 3, 9);
    expect_error("n: expected an array, found a number");
}

static void a_cursor_that_is_not_on_a_map_is_an_error(void)
{
    const struct mics_cursor root = begin();
    const struct mics_cursor links = mics_cursor_get_array(&root, "links", 0, 9);
    const struct mics_cursor item = mics_cursor_item_any(&links, 0);
    const struct mics_cursor scalar = mics_cursor_item_any(&links, 9);

    CHECK(json_is_object(item.value));
    mics_cursor_get_u32(&scalar, "x", 0, 1);
    expect_error("links[9]: expected a map, found null");
    CHECK(!mics_cursor_has(&scalar, "x"));
}

static void errors_may_be_reported_anywhere(void)
{
    const struct mics_cursor root = begin();
    const struct mics_cursor deep = mics_cursor_get_object(&root, "deep");

    mics_cursor_reject(&deep, "er", "no '%s' here", "x");
    expect_error("deep.er: no 'x' here");
    mics_cursor_reject(&deep, NULL, "bad");
    expect_error("deep: bad");
    mics_cursor_reject(&root, NULL, "bad");
    expect_error("bad");
    mics_cursor_nomem(&root);
    CHECK_INT(reading.status, MICS_ERR_NOMEM);
}

static void a_path_that_is_too_long_is_truncated(void)
{
    struct mics_cursor chain[64];
    char key[101];

    memset(key, 'k', 100);
    key[100] = '\0';
    chain[0] = begin();
    for (int i = 1; i < 64; i++)
        chain[i] = (struct mics_cursor){.parent = &chain[i - 1], .key = key, .reading = &reading};
    mics_cursor_reject(&chain[63], NULL, "end");
    CHECK_INT(reading.status, MICS_ERR_FORMAT);
    CHECK(strlen(err.text) < sizeof err.text);
    CHECK(strstr(err.text, ": end") != NULL);
}

static void a_text_that_does_not_fit_is_named_and_leaves_the_output(void)
{
    json_t *value = json_pack("{s:s}", "name", "eight___");
    char fits[9] = "", small[8] = "before";

    begin();
    const struct mics_cursor root = mics_cursor_begin(value, &reading);
    mics_cursor_get_text(&root, "name", fits, sizeof fits);
    CHECK_STR(fits, "eight___");
    mics_cursor_get_text(&root, "name", small, sizeof small);
    expect_error("name: more than 7 bytes");
    CHECK_STR(small, "before");
    json_decref(value);
}

int main(void)
{
    doc = json_loads(text, 0, NULL);
    if (!doc)
        return 1;
    TAP_RUN(a_bad_member_is_named_by_its_path);
    TAP_RUN(after_an_error_values_are_valid_and_the_text_stays);
    TAP_RUN(a_text_that_does_not_fit_is_named_and_leaves_the_output);
    TAP_RUN(a_missing_member_is_missing_and_null_is_found);
    TAP_RUN(an_optional_member_has_a_value_when_it_is_absent_or_null);
    TAP_RUN(a_real_is_an_integer_only_if_it_is_whole);
    TAP_RUN(arrays_have_a_number_of_items);
    TAP_RUN(a_cursor_that_is_not_on_a_map_is_an_error);
    TAP_RUN(errors_may_be_reported_anywhere);
    TAP_RUN(a_path_that_is_too_long_is_truncated);
    json_decref(doc);
    return tap_done();
}
