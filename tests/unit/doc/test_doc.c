/* SPDX-License-Identifier: Apache-2.0 */
/* test_doc.c - documents go through both encodings unchanged, with their envelope and history. */
#include "doc_sample.h"
#include "missing.h"

static void a_document_survives_both_encodings(void)
{
    json_t *doc = decode(sample, sizeof sample - 1), *back;
    size_t packed_size, again_size, text_size;
    char *packed = encode(doc, MICS_DOC_MSGPACK, &packed_size), *again, *text;

    back = decode(packed, packed_size);
    CHECK(json_equal(doc, back));
    text = encode(back, MICS_DOC_JSON, &text_size);
    CHECK(text[text_size - 1] == '\n');
    json_decref(back);
    back = decode(text, text_size);
    CHECK(json_equal(doc, back));
    again = encode(back, MICS_DOC_MSGPACK, &again_size);
    CHECK_INT(again_size, packed_size);
    CHECK(memcmp(again, packed, packed_size) == 0);
    free(packed);
    free(again);
    free(text);
    json_decref(back);
    json_decref(doc);
}

static void integers_and_reals_keep_their_types_and_shortest_forms(void)
{
    static const char expected[] = "\x84\xa4kind\xa1k\xa1v\x01\xa1i\x94\x7f\xcc\x80\xe0\xd0\xdf"
                                   "\xa1r\xcb\x3f\xf0\0\0\0\0\0\0";
    static const char text[] =
        "{\"kind\": \"k\", \"v\": 1, \"i\": [127, 128, -32, -33], \"r\": 1.0}";
    json_t *doc = decode(text, sizeof text - 1);
    size_t size;
    char *data = encode(doc, MICS_DOC_MSGPACK, &size);

    CHECK_INT(size, sizeof expected - 1);
    CHECK(memcmp(data, expected, sizeof expected - 1) == 0);
    CHECK(json_is_real(json_object_get(doc, "r")));
    free(data);
    json_decref(doc);
}

static void unusual_but_legal_forms_are_read(void)
{
    static const char wide[] = "\xdf\0\0\0\x03\xd9\x04kind\xda\0\x01k\xa1v\xd3\0\0\0\0\0\0\0\x01"
                               "\xdb\0\0\0\x01"
                               "f\xdc\0\x02\xca\x3f\x80\0\0\xcf\x7f\xff\xff\xff\xff\xff\xff\xff";
    json_t *doc = decode(wide, sizeof wide - 1), *items = json_object_get(doc, "f");

    CHECK_INT(json_integer_value(json_object_get(doc, "v")), 1);
    CHECK_NEAR(json_real_value(json_array_get(items, 0)), 1, 0);
    CHECK(json_integer_value(json_array_get(items, 1)) == INT64_MAX);
    json_decref(doc);
}

/* Before any other string, msgpack-c gives them no address. */
static void empty_strings_are_read_wherever_they_are(void)
{
    static const char key[] = "\x83\xa0\x03\xa4kind\xa1k\xa1v\x01";
    static const char value[] = "\x83\xa0\xa0\xa4kind\xa1k\xa1v\x01";
    json_t *doc = decode(key, sizeof key - 1);

    CHECK_INT(json_integer_value(json_object_get(doc, "")), 3);
    json_decref(doc);
    doc = decode(value, sizeof value - 1);
    CHECK_INT(json_string_length(json_object_get(doc, "")), 0);
    CHECK(json_is_string(json_object_get(doc, "")));
    json_decref(doc);
}

static void keys_keep_their_order(void)
{
    json_t *doc = mics_doc_new("mics.test", 3);
    size_t size;
    char *data;

    json_object_set_new(doc, "zebra", json_integer(1));
    json_object_set_new(doc, "ant", json_integer(2));
    data = encode(doc, MICS_DOC_JSON, &size);
    CHECK(size > 0 &&
          strncmp(data, "{\n  \"kind\": \"mics.test\",\n  \"v\": 3,\n  \"zebra\"", 40) == 0);
    free(data);
    json_decref(doc);
}

static void the_envelope_is_checked(void)
{
    REFUSED("{}", "kind: missing: not a document of mics");
    REFUSED("{\"kind\": 1, \"v\": 1}", "kind: expected a string");
    REFUSED("{\"kind\": \"k\"}", "v: missing: the version of 'k'");
    REFUSED("{\"kind\": \"k\", \"v\": 0}", "v: expected an integer from 1");
    REFUSED("{\"kind\": \"k\", \"v\": \"1\"}", "v: expected an integer from 1");
    REFUSED(" [1]", "line 1, offset 0: expected a map");
    REFUSED("hello", "offset 0: neither a msgpack map nor JSON: the first byte is 0x68");
    REFUSED("\0", "offset 0: neither a msgpack map nor JSON: the first byte is 0x00");
    REFUSED("\x91\x01", "offset 0: neither a msgpack map nor JSON: the first byte is 0x91");
}

static void another_kind_or_version_is_refused(void)
{
    json_t *doc = mics_doc_new("mics.plan", 2);

    CHECK_INT(mics_doc_expect(doc, "mics.plan", 2, &err), MICS_OK);
    CHECK_INT(mics_doc_expect(doc, "mics.plan", 1, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text,
              "'mics.plan' of version 2 was written by a newer mics: this one reads up to "
              "version 1");
    CHECK_INT(mics_doc_expect(doc, "mics.plan", 3, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "'mics.plan' of version 2: this mics reads version 3");
    CHECK_INT(mics_doc_expect(doc, "mics.topology", 2, &err), MICS_ERR_FORMAT);
    CHECK_STR(err.text, "expected a document of kind 'mics.topology', found 'mics.plan'");
    json_decref(doc);
}

static void each_program_adds_to_the_history(void)
{
    char first[] = "mics-probe", option[] = "--name=caf\xe9";
    char *argv[] = {first, option, NULL};
    json_t *doc = mics_doc_new("mics.test", 1), *entry, *args;

    CHECK_INT(mics_doc_add_history(doc, "mics-probe", 2, argv, &err), MICS_OK);
    CHECK_INT(mics_doc_add_history(doc, "mics-plan", 1, argv, &err), MICS_OK);
    CHECK_INT(json_array_size(json_object_get(doc, "history")), 2);
    entry = json_array_get(json_object_get(doc, "history"), 0);
    args = json_object_get(entry, "argv");
    CHECK_STR(json_string_value(json_object_get(entry, "program")), "mics-probe");
    CHECK(json_is_string(json_object_get(entry, "version")));
    CHECK_INT(json_array_size(args), 2);
    CHECK_STR(json_string_value(json_array_get(args, 1)), "--name=caf?");
    json_object_set_new(doc, "history", json_integer(1));
    CHECK_INT(mics_doc_add_history(doc, "mics-plan", 1, argv, &err), MICS_ERR_FORMAT);
    json_decref(doc);
}

static void documents_pass_through_streams(void)
{
    json_t *doc = decode(sample, sizeof sample - 1), *back = NULL;
    FILE *file = tmpfile();
    char path[64];

    CHECK_INT(mics_doc_write(file, doc, MICS_DOC_MSGPACK, &err), MICS_OK);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(file));
    CHECK_INT(mics_doc_read_file(path, &back, &err), MICS_OK);
    CHECK(json_equal(doc, back));
    json_decref(back);
    fclose(file);
    file = fopen("/dev/full", "w");
    if (file) {
        CHECK_INT(mics_doc_write(file, doc, MICS_DOC_JSON, &err), MICS_ERR_IO);
        CHECK_STR(err.text, "cannot write: No space left on device");
        fclose(file);
    }
    json_decref(doc);
    const char *const none = missing_path("plan.mp");
    CHECK_INT(mics_doc_read_file(none, &back, &err), MICS_ERR_IO);
    CHECK(strncmp(err.text, none, strlen(none)) == 0);
}

int main(void)
{
    TAP_RUN(a_document_survives_both_encodings);
    TAP_RUN(integers_and_reals_keep_their_types_and_shortest_forms);
    TAP_RUN(unusual_but_legal_forms_are_read);
    TAP_RUN(empty_strings_are_read_wherever_they_are);
    TAP_RUN(keys_keep_their_order);
    TAP_RUN(the_envelope_is_checked);
    TAP_RUN(another_kind_or_version_is_refused);
    TAP_RUN(each_program_adds_to_the_history);
    TAP_RUN(documents_pass_through_streams);
    return tap_done();
}
