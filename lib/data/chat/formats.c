/* SPDX-License-Identifier: Apache-2.0 */
/*
 * formats.c - the tables. A row of `shapes` says what templates of a shape do: tests/reference/
 * check_chat.py renders conversations by such templates and by the format, and prints new rows.
 */
#include "data/chat/formats.h"

#include <string.h>

#define BOS   CHAT_BOS
#define EOS   CHAT_EOS
#define STOP  CHAT_STOP
#define PROSE CHAT_PROSE
#define DATE  CHAT_DATE

#define SYSTEM(b, a)    .role[MICS_CHAT_SYSTEM] = {b, a}
#define USER(b, a)      .role[MICS_CHAT_USER] = {b, a}
#define ASSISTANT(b, a) .role[MICS_CHAT_ASSISTANT] = {b, a}
#define TOOL(b, a)      .role[MICS_CHAT_TOOL] = {b, a}

#define CHATML_ROLES(tool_before, tool_after)                                                      \
    SYSTEM("<|im_start|>system\n", "<|im_end|>\n"), USER("<|im_start|>user\n", "<|im_end|>\n"),    \
        ASSISTANT("<|im_start|>assistant\n", "<|im_end|>" STOP "\n"),                              \
        TOOL(tool_before, tool_after)
#define CHATML_TOOL CHATML_ROLES("<|im_start|>tool\n", "<|im_end|>\n")

#define GEMMA_TURNS                                                                                \
    USER("<start_of_turn>user\n", "<end_of_turn>\n"),                                              \
        ASSISTANT("<start_of_turn>model\n", "<end_of_turn>" STOP "\n")
#define LLAMA3_HEADER(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"
#define LLAMA3_TURNS                                                                               \
    USER(LLAMA3_HEADER("user"), "<|eot_id|>"), ASSISTANT(LLAMA3_HEADER("assistant"), "<|eot_id|>")
#define LLAMA31_ROLES                                                                              \
    .flags = MICS_CHAT_TRIM_SYSTEM | MICS_CHAT_TRIM_USER | MICS_CHAT_TRIM_ASSISTANT |              \
             MICS_CHAT_SYSTEM_FIRST | MICS_CHAT_TOOL_JSON,                                         \
    .no_system = "<|eot_id|>", SYSTEM("", "<|eot_id|>"),                                           \
    TOOL(LLAMA3_HEADER("ipython"), "<|eot_id|>"), LLAMA3_TURNS
#define PHI3_TURNS                                                                                 \
    USER("<|user|>\n", "<|end|>\n"), ASSISTANT("<|assistant|>\n", "<|end|>" STOP "\n")
#define PHI3_OLD_TURNS                                                                             \
    USER("<|user|>\n", "<|end|>\n<|assistant|>\n"), ASSISTANT("", "<|end|>" STOP "\n")
#define PHI3_SYSTEM SYSTEM("<|system|>\n", "<|end|>\n")
#define TOOL_RESPONSES                                                                             \
    CHATML_ROLES("<|im_start|>user", "<|im_end|>\n"),                                              \
        .tool = {"\n<tool_response>\n", "\n</tool_response>"}

enum format {
    CHATML,
    CHATML_BOS,
    CHATML_BOS_EOS,
    CHATML_DEFAULT,
    CHATML_DEFAULT_SAID,
    CHATML_OPEN,
    CHATML_NO_TOOL,
    CHATML_BOS_FIRST,
    CHATML_LFM2,
    CHATML_TOOLS,
    CHATML_TOOLS_FIRST,
    CHATML_TOOLS_DEFAULT,
    CHATML_THINKING,
    CHATML_THINKING_NO_CALLS,
    COHERE,
    DANUBE,
    DEEPSEEK,
    DEEPSEEK_V2,
    DEEPSEEK_LLM,
    EXAONE,
    GEMMA,
    GEMMA_NO_BOS,
    GEMMA_SYSTEM,
    GRANITE,
    LLAMA2,
    LLAMA3,
    LLAMA31,
    LLAMA32,
    MISTRAL,
    MISTRAL_SPACE,
    MISTRAL_V1,
    MISTRAL_V3,
    MISTRAL_V3_TEKKEN,
    MISTRAL_V7,
    MISTRAL_V7_TEKKEN,
    MISTRAL_V7_IN_TURN,
    OPENCHAT,
    PHI3,
    PHI3_SKIP,
    PHI3_OPEN_SKIP,
    PHI3_OPEN,
    PHI3_BOS,
    PHI3_OLD,
    PHI3_OLD_BOS,
    PHI3_OLD_USER,
    PHI4,
    PHI4_REASONING,
    SOLAR,
    ZEPHYR,
};

/* Calls as Hermes, Qwen2.5 and Qwen3 have them; `letter` is of the prose before the arguments. */
#define HERMES(letter)                                                                             \
    .place = MICS_CHAT_SYSTEM, .tool_before = "\n", .call_before = "<tool_call>\n{\"name\": \"",   \
    .call_arguments = PROSE letter, .call_after = "}\n</tool_call>", .call_between = "\n"
#define LLAMA31_TOOLS(date)                                                                        \
    .flags = MICS_CHAT_CALL_ALONE, .indent = 4, .place = MICS_CHAT_USER,                           \
    .begin =                                                                                       \
        BOS LLAMA3_HEADER("system") "Environment: ipython\n" PROSE "aToday Date: " date "\n\n",    \
    .list_before = PROSE "f" PROSE "g" PROSE "h" PROSE "i", .tool_after = "\n\n",                  \
    .call_before = "{\"name\": \"", .call_arguments = "\", \"parameters\": ", .call_after = "}"

static const struct mics_chat_tools qwen25_tools = {
    HERMES("e"),
    .no_system = "<|im_start|>system\n" PROSE "a",
    .list_before = PROSE "b",
    .list_after = PROSE "c",
};
static const struct mics_chat_tools qwen3_tools = {
    HERMES("c"),
    .flags = MICS_CHAT_ARGUMENTS_AS_WRITTEN,
    .no_system = "<|im_start|>system\n",
    .after_system = "\n\n",
    .list_before = PROSE "a",
    .list_after = PROSE "b",
};
static const struct mics_chat_tools llama31_tools = {LLAMA31_TOOLS("26 Jul 2024")};
static const struct mics_chat_tools llama32_tools = {LLAMA31_TOOLS(DATE)};

/* Of one name, the plainest is the first. */
static const struct mics_chat_format formats[] = {
    [CHATML] = {.name = "chatml", CHATML_TOOL},
    [CHATML_BOS] = {.name = "chatml", .begin = BOS, CHATML_TOOL},
    [CHATML_BOS_EOS] = {.name = "chatml",
                        .flags = MICS_CHAT_USER_FIRST,
                        .begin = BOS,
                        .end_answer = EOS,
                        CHATML_TOOL},
    [CHATML_DEFAULT] = {.name = "chatml", .no_system = PROSE "a", CHATML_TOOL},
    [CHATML_DEFAULT_SAID] = {.name = "chatml",
                             .no_system = "<|im_start|>system\n" PROSE "a<|im_end|>\n",
                             CHATML_TOOL},
    [CHATML_OPEN] = {.name = "chatml",
                     .flags = MICS_CHAT_LAST_OPEN,
                     .no_system = PROSE "a",
                     CHATML_TOOL},
    [CHATML_NO_TOOL] = {.name = "chatml",
                        .flags = MICS_CHAT_SYSTEM_FIRST,
                        CHATML_ROLES(NULL, NULL)},
    [CHATML_BOS_FIRST] = {.name = "chatml",
                          .flags = MICS_CHAT_SYSTEM_FIRST,
                          .begin = BOS,
                          CHATML_TOOL},
    [CHATML_LFM2] = {.name = "chatml",
                     .flags = MICS_CHAT_SKIP_EMPTY,
                     .begin = BOS,
                     CHATML_ROLES("<|im_start|>tool\n<|tool_response_start|>",
                                  "<|tool_response_end|><|im_end|>\n")},
    [CHATML_TOOLS] = {.name = "chatml",
                      .flags = MICS_CHAT_TOOLS_TOGETHER,
                      .tools = &qwen3_tools,
                      TOOL_RESPONSES},
    [CHATML_TOOLS_FIRST] = {.name = "chatml",
                            .flags = MICS_CHAT_TOOLS_TOGETHER | MICS_CHAT_SYSTEM_FIRST,
                            TOOL_RESPONSES},
    [CHATML_TOOLS_DEFAULT] = {.name = "chatml",
                              .flags = MICS_CHAT_TOOLS_TOGETHER,
                              .no_system = PROSE "d",
                              .tools = &qwen25_tools,
                              TOOL_RESPONSES},
    [CHATML_THINKING] = {.name = "chatml",
                         .flags = MICS_CHAT_TOOLS_TOGETHER | MICS_CHAT_LAST_THINKING,
                         .tools = &qwen3_tools,
                         TOOL_RESPONSES},
    [CHATML_THINKING_NO_CALLS] = {.name = "chatml",
                                  .flags = MICS_CHAT_TOOLS_TOGETHER | MICS_CHAT_LAST_THINKING,
                                  TOOL_RESPONSES},
    [COHERE] = {.name = "command-r",
                .flags = MICS_CHAT_TRIM_USER | MICS_CHAT_TRIM_ASSISTANT | MICS_CHAT_ALTERNATES |
                         MICS_CHAT_SYSTEM_FIRST,
                .begin = BOS,
                SYSTEM("<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
                USER("<|START_OF_TURN_TOKEN|><|USER_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
                ASSISTANT("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>")},
    [DANUBE] = {.name = "danube",
                SYSTEM("<|system|>", EOS),
                USER("<|prompt|>", EOS),
                ASSISTANT("<|answer|>", EOS)},
    [DEEPSEEK] = {.name = "deepseek",
                  .flags = MICS_CHAT_SYSTEM_FIRST | MICS_CHAT_DROP_THINKING,
                  .begin = BOS,
                  SYSTEM("", ""),
                  USER("<｜User｜>", ""),
                  ASSISTANT("<｜Assistant｜>", "<｜end▁of▁sentence｜>")},
    [DEEPSEEK_V2] = {.name = "deepseek",
                     .begin = BOS,
                     SYSTEM("", "\n\n"),
                     USER("<｜User｜>", ""),
                     ASSISTANT("<｜Assistant｜>", EOS)},
    [DEEPSEEK_LLM] = {.name = "deepseek-llm",
                      .begin = BOS,
                      SYSTEM("", "\n\n"),
                      USER("User: ", "\n\n"),
                      ASSISTANT("Assistant: ", EOS)},
    [EXAONE] = {.name = "exaone",
                .no_system = "[|system|][|endofturn|]\n",
                SYSTEM("[|system|]", "[|endofturn|]\n"),
                USER("[|user|]", "\n"),
                ASSISTANT("[|assistant|]", "[|endofturn|]" STOP "\n")},
    [GEMMA] = {.name = "gemma",
               .flags = MICS_CHAT_TRIM | MICS_CHAT_ALTERNATES,
               .begin = BOS,
               GEMMA_TURNS},
    [GEMMA_NO_BOS] = {.name = "gemma", .flags = MICS_CHAT_TRIM | MICS_CHAT_ALTERNATES, GEMMA_TURNS},
    [GEMMA_SYSTEM] = {.name = "gemma",
                      .flags = MICS_CHAT_TRIM_USER | MICS_CHAT_TRIM_ASSISTANT |
                               MICS_CHAT_ALTERNATES | MICS_CHAT_SYSTEM_FIRST |
                               MICS_CHAT_SYSTEM_INSIDE,
                      .begin = BOS,
                      SYSTEM("", "\n\n"),
                      GEMMA_TURNS},
    [GRANITE] = {.name = "granite",
                 SYSTEM("<|start_of_role|>system<|end_of_role|>", "<|end_of_text|>\n"),
                 USER("<|start_of_role|>user<|end_of_role|>", "<|end_of_text|>\n"),
                 ASSISTANT("<|start_of_role|>assistant<|end_of_role|>",
                           "<|end_of_text|>" STOP "\n")},
    [LLAMA2] = {.name = "llama2",
                .flags = MICS_CHAT_TRIM_ASSISTANT | MICS_CHAT_TRIM_MERGED | MICS_CHAT_ALTERNATES |
                         MICS_CHAT_SYSTEM_FIRST | MICS_CHAT_SYSTEM_INSIDE,
                SYSTEM("<<SYS>>\n", "\n<</SYS>>\n\n"),
                USER(BOS "[INST] ", " [/INST]"),
                ASSISTANT(" ", " " EOS)},
    [LLAMA3] = {.name = "llama3",
                .flags = MICS_CHAT_TRIM,
                .begin = BOS,
                SYSTEM(LLAMA3_HEADER("system"), "<|eot_id|>"),
                TOOL(LLAMA3_HEADER("tool"), "<|eot_id|>"),
                LLAMA3_TURNS},
    [LLAMA31] = {.name = "llama3",
                 LLAMA31_ROLES,
                 .begin = BOS LLAMA3_HEADER("system") PROSE "aToday Date: 26 Jul 2024\n\n",
                 .tools = &llama31_tools},
    [LLAMA32] = {.name = "llama3",
                 LLAMA31_ROLES,
                 .begin = BOS LLAMA3_HEADER("system") PROSE "aToday Date: " DATE "\n\n",
                 .tools = &llama32_tools},
    [MISTRAL] = {.name = "mistral",
                 .flags = MICS_CHAT_ALTERNATES,
                 .begin = BOS,
                 USER("[INST] ", " [/INST]"),
                 ASSISTANT("", EOS)},
    [MISTRAL_SPACE] = {.name = "mistral",
                       .flags = MICS_CHAT_ALTERNATES,
                       .begin = BOS,
                       USER("[INST] ", " [/INST]"),
                       ASSISTANT("", EOS STOP " ")},
    [MISTRAL_V1] = {.name = "mistral",
                    .flags =
                        MICS_CHAT_ALTERNATES | MICS_CHAT_SYSTEM_FIRST | MICS_CHAT_SYSTEM_INSIDE,
                    .begin = BOS,
                    SYSTEM("", "\n\n"),
                    USER(" [INST] ", " [/INST]"),
                    ASSISTANT(" ", EOS)},
    [MISTRAL_V3] = {.name = "mistral",
                    .flags = MICS_CHAT_ALTERNATES | MICS_CHAT_TRIM_ASSISTANT,
                    .begin = BOS,
                    USER("[INST] ", "[/INST]"),
                    ASSISTANT(" ", EOS)},
    [MISTRAL_V3_TEKKEN] = {.name = "mistral",
                           .flags = MICS_CHAT_ALTERNATES,
                           .begin = BOS,
                           USER("[INST]", "[/INST]"),
                           ASSISTANT("", EOS)},
    [MISTRAL_V7] = {.name = "mistral",
                    .begin = BOS,
                    SYSTEM("[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]"),
                    USER("[INST] ", "[/INST]"),
                    ASSISTANT(" ", EOS)},
    [MISTRAL_V7_TEKKEN] = {.name = "mistral",
                           .flags = MICS_CHAT_SYSTEM_NEEDED,
                           .begin = BOS,
                           SYSTEM("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
                           USER("[INST]", "[/INST]"),
                           ASSISTANT("", EOS)},
    [MISTRAL_V7_IN_TURN] = {.name = "mistral",
                            .flags = MICS_CHAT_SYSTEM_NEEDED | MICS_CHAT_SYSTEM_FIRST |
                                     MICS_CHAT_ALTERNATES,
                            .begin = BOS,
                            SYSTEM("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
                            USER("[INST]", "[/INST]"),
                            ASSISTANT("", EOS)},
    [OPENCHAT] = {.name = "openchat",
                  .begin = BOS,
                  SYSTEM("GPT4 Correct System: ", "<|end_of_turn|>"),
                  USER("GPT4 Correct User: ", "<|end_of_turn|>"),
                  ASSISTANT("GPT4 Correct Assistant: ", "<|end_of_turn|>")},
    [PHI3] = {.name = "phi3", .end = EOS, PHI3_SYSTEM, PHI3_TURNS},
    [PHI3_SKIP] = {.name = "phi3",
                   .flags = MICS_CHAT_SYSTEM_FIRST | MICS_CHAT_SKIP_EMPTY,
                   .end = EOS,
                   PHI3_SYSTEM,
                   PHI3_TURNS},
    [PHI3_OPEN_SKIP] = {.name = "phi3",
                        .flags = MICS_CHAT_SYSTEM_FIRST | MICS_CHAT_SKIP_EMPTY,
                        PHI3_SYSTEM,
                        PHI3_TURNS},
    [PHI3_OPEN] = {.name = "phi3", PHI3_SYSTEM, PHI3_TURNS},
    [PHI3_BOS] = {.name = "phi3", .begin = BOS, .end = EOS, PHI3_SYSTEM, PHI3_TURNS},
    [PHI3_OLD] = {.name = "phi3", PHI3_OLD_TURNS},
    [PHI3_OLD_BOS] = {.name = "phi3", .begin = BOS, PHI3_SYSTEM, PHI3_OLD_TURNS},
    [PHI3_OLD_USER] = {.name = "phi3", .begin = BOS, PHI3_OLD_TURNS},
    [PHI4] = {.name = "phi4",
              SYSTEM("<|im_start|>system<|im_sep|>", "<|im_end|>"),
              USER("<|im_start|>user<|im_sep|>", "<|im_end|><|im_start|>assistant<|im_sep|>"),
              ASSISTANT("", "<|im_end|>")},
    [PHI4_REASONING] = {.name = "phi4",
                        .flags = MICS_CHAT_SYSTEM_FIRST,
                        .no_system = "<|im_start|>system<|im_sep|>" PROSE "a<|im_end|>",
                        SYSTEM("<|im_start|>system<|im_sep|>", "<|im_end|>"),
                        USER("<|im_start|>user<|im_sep|>", "<|im_end|>"),
                        ASSISTANT("<|im_start|>assistant<|im_sep|>", "<|im_end|>")},
    [SOLAR] = {.name = "solar",
               .flags = MICS_CHAT_SYSTEM_FIRST | MICS_CHAT_SKIP_EMPTY,
               SYSTEM("### System:\n", "\n\n"),
               USER("### User:\n", "\n\n"),
               ASSISTANT("### Assistant:\n", "")},
    [ZEPHYR] = {.name = "zephyr",
                SYSTEM("<|system|>\n", EOS "\n"),
                USER("<|user|>\n", EOS "\n"),
                ASSISTANT("<|assistant|>\n", EOS STOP "\n")},
};

static const struct {
    uint64_t digest;
    enum format format;
} shapes[] = {
    /* clang-format off */
    {0x80282cd7b5e0a633, CHATML},
    {0xf991904604825d49, CHATML},
    {0x25b0d155ded8554e, CHATML_BOS},
    {0x48089fb8a952ed39, CHATML_BOS},
    {0xa8ea58c2a112043b, CHATML_BOS_EOS},
    {0x5166d9847c06d25f, CHATML_DEFAULT},
    {0xd5fd645e8198af54, CHATML_DEFAULT},
    {0xbcb31a12c6240cd5, CHATML_DEFAULT_SAID},
    {0x5cd69032b34804b9, CHATML_OPEN},
    {0x1a65f7fda4d33762, CHATML_NO_TOOL},
    {0xb5bbd53cda7dc6c8, CHATML_NO_TOOL},
    {0x612da3c7b48d2874, CHATML_BOS_FIRST},
    {0x86e461298d301f7c, CHATML_LFM2},
    {0x3e87820ac3757fa1, CHATML_TOOLS},
    {0x92330864c2dfe9ef, CHATML_TOOLS_FIRST},
    {0x70fc231018a09a24, CHATML_TOOLS_DEFAULT},
    {0xe0f2f9c9b0023698, CHATML_THINKING},
    {0xea2d4fa7940c35bd, CHATML_THINKING},
    {0x8e326c34b4e399b7, CHATML_THINKING_NO_CALLS},
    {0x566ca763bb954a4a, COHERE},
    {0xbe04271d54ec55f6, DANUBE},
    {0x09eddf938e55fc5e, DEEPSEEK},
    {0x8437cb75b8263e74, DEEPSEEK},
    {0x5f558300aecc0f31, DEEPSEEK},
    {0xe2192fb02c66b17a, DEEPSEEK},
    {0xe30da72ce63ab604, DEEPSEEK},
    {0xd03c2842642bb886, DEEPSEEK_V2},
    {0x693a2733117057fd, DEEPSEEK_LLM},
    {0x5502c26f9aeb48f5, EXAONE},
    {0x4bc8f5916d3cfdc5, GEMMA},
    {0x469c5cdad486a941, GEMMA},
    {0x296d2c966903fdc9, GEMMA_NO_BOS},
    {0xe77ac18c4be77c53, GEMMA_SYSTEM},
    {0x77d06eac088548aa, GEMMA_SYSTEM},
    {0x5b2a721cf32d39eb, GEMMA_SYSTEM},
    {0xc3b40bfa8d5ca3d9, GRANITE},
    {0xfd8dd120b943e52b, LLAMA2},
    {0x8bd02dd5b8257fb6, LLAMA2},
    {0xe67f915b5b674626, LLAMA2},
    {0x6adb71a1cadb383e, LLAMA3},
    {0x088d4aed545fade7, LLAMA3},
    {0xf708e1a2900327c3, LLAMA31},
    {0x5d233374b274f9d4, LLAMA32},
    {0xf061b0e501f8a4a6, MISTRAL},
    {0x98c47d0f7634e518, MISTRAL_SPACE},
    {0x15e93fac8486086b, MISTRAL_V1},
    {0xf9d10cfc5558becc, MISTRAL_V1},
    {0xf6fed88598f5f0b6, MISTRAL_V3},
    {0xd66b1babf445d9f4, MISTRAL_V3},
    {0x2b4e6c12d5132196, MISTRAL_V3_TEKKEN},
    {0x885c489f8a2651c1, MISTRAL_V3_TEKKEN},
    {0x51bd13b3238b539c, MISTRAL_V3_TEKKEN},
    {0x8a5c368ec0e79da4, MISTRAL_V7},
    {0xf7d27a0b0d5d3aef, MISTRAL_V7_TEKKEN},
    {0xfdf777391e24fc94, MISTRAL_V7_TEKKEN},
    {0x9be0ee3c70429b27, MISTRAL_V7_IN_TURN},
    {0xa0cc41f9d6353a71, OPENCHAT},
    {0x5eecac2c87f4bec8, PHI3},
    {0x471ada8d19b8d8d4, PHI3_SKIP},
    {0x62bc560c0f2b8d50, PHI3_OPEN_SKIP},
    {0xed72a7e38ba6bb72, PHI3_OPEN},
    {0x6a4478cfeb63369b, PHI3_BOS},
    {0xe3f0702142f5eda2, PHI3_OLD},
    {0x52dbff60e26f9c74, PHI3_OLD_BOS},
    {0x1bf1d3ed007b8d6e, PHI3_OLD_USER},
    {0x481491c00b35cbed, PHI4},
    {0x340d1e2fbe11a64e, PHI4_REASONING},
    {0xf0fa483a30a4413a, SOLAR},
    {0x84f299c6d044c4dc, ZEPHYR},
    /* clang-format on */
};

static const struct {
    const char *text;
    enum format format;
} markers[] = {
    {"<|im_sep|>", PHI4},
    {"<|im_start|>", CHATML},
    {"<|start_header_id|>", LLAMA3},
    {"<start_of_turn>", GEMMA},
    {"<<SYS>>", LLAMA2},
    {"[INST]", MISTRAL},
    {"<｜Assistant｜>", DEEPSEEK},
    {"<|START_OF_TURN_TOKEN|>", COHERE},
    {"<|start_of_role|>", GRANITE},
    {"[|endofturn|]", EXAONE},
    {"<|end|>", PHI3},
    {"<|assistant|>", ZEPHYR},
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

const struct mics_chat_format *mics_chat_format_by_name(const char *name)
{
    for (size_t i = 0; i < COUNT(formats); i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    return NULL;
}

const struct mics_chat_format *mics_chat_format_by_shape(uint64_t digest)
{
    for (size_t i = 0; i < COUNT(shapes); i++)
        if (shapes[i].digest == digest)
            return &formats[shapes[i].format];
    return NULL;
}

const struct mics_chat_format *mics_chat_format_by_marker(const char *text, size_t size,
                                                          const char **marker)
{
    for (size_t i = 0; i < COUNT(markers); i++)
        if (memmem(text, size, markers[i].text, strlen(markers[i].text))) {
            *marker = markers[i].text;
            return &formats[markers[i].format];
        }
    return NULL;
}

void mics_chat_format_texts(const struct mics_chat_format *format,
                            const char *texts[MICS_CHAT_TEXTS])
{
    const char *const others[] = {format->begin,      format->no_system, format->tool.before,
                                  format->tool.after, format->end,       format->end_answer};

    memcpy(texts, others, sizeof others);
    for (size_t i = 0; i < MICS_CHAT_ROLES; i++) {
        texts[COUNT(others) + 2 * i] = format->role[i].before;
        texts[COUNT(others) + 2 * i + 1] = format->role[i].after;
    }
}

const char *mics_chat_next_marker(const char *text, size_t *length)
{
    static const struct {
        const char *begin, *end;
    } forms[] = {{"<|", "|>"}, {"<｜", "｜>"}, {"<start_of_", ">"}, {"<end_of_", ">"}};

    for (; *text; text++)
        for (size_t i = 0; i < COUNT(forms); i++) {
            const size_t begin = strlen(forms[i].begin);
            const char *end = strncmp(text, forms[i].begin, begin) == 0
                                  ? strstr(text + begin, forms[i].end)
                                  : NULL;

            if (end) {
                *length = (size_t)(end - text) + strlen(forms[i].end);
                return text;
            }
        }
    return NULL;
}

const char *mics_chat_names(char *buf, size_t size)
{
    size_t used = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < COUNT(formats); i++) {
        const size_t length = strlen(formats[i].name);

        if ((i > 0 && strcmp(formats[i].name, formats[i - 1].name) == 0) ||
            used + length + 3 > size)
            continue;
        if (used > 0) {
            memcpy(buf + used, ", ", 2);
            used += 2;
        }
        memcpy(buf + used, formats[i].name, length + 1);
        used += length;
    }
    return buf;
}
