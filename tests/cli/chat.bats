#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Conversations: JSON lines by a chat template, masks of prompts, and training with them.

load helpers

# A tokenizer of bytes with the tokens of ChatML, in tok, by one of the programs themselves.
make_tokenizer()
{
    yes 'user assistant system Hello world how are you' | head -n 50 >train.txt
    mics-data train -q --vocab=300 -o tok train.txt
    jq -c '([.model.vocab[], .added_tokens[].id] | max + 1) as $next | .added_tokens +=
        [range(2) | {id: ($next + .), content: ["<|im_start|>", "<|im_end|>"][.],
        single_word: false, lstrip: false, rstrip: false, normalized: false, special: true}]' \
        tok/tokenizer.json >tokenizer.json
    mv tokenizer.json tok
    # ChatML, as it is often written
    cat >tok/chat_template.jinja <<'EOF'
{%- for message in messages -%}
    {{ "<|im_start|>" + message.role + "\n" + message.content + "<|im_end|>" + "\n" }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ "<|im_start|>assistant\n" }}
{%- endif -%}
EOF
}

setup()
{
    cd "$BATS_TEST_TMPDIR"
    make_tokenizer
    cat >chat.jsonl <<'EOF'
{"messages": [{"role": "system", "content": "Hello"}, {"role": "user", "content": "how are you"}, {"role": "assistant", "content": "world"}]}

{"instruction": "Hello", "input": "world", "output": "how"}
{"prompt": "Hello", "response": "are you"}
EOF
}

# The text of a file of tokens.
text_of() # prefix
{
    mics-data show "$1" | sed '1,/^$/d'
}

@test "chat: conversations become the text of the chat template, and prompts are masked" {
    mics-data encode -q -t tok --chat --mask-prompt chat.jsonl -o out >printed
    [ "$(ls -d out*)" = $'out.bin\nout.idx\nout.mp\nout.prompts\nout.tokenizer' ]
    mics-data show --json out | jq -e '.chat == "chatml" and .documents == 3 and .prompt_tokens < .tokens'
    mics-data show out >shown
    grep -qE '^tokens of prompts +[0-9]+$' shown
    grep -qE '^chat +chatml$' shown
    # what is learned, in order
    sed -n 's/^answer: //p' shown >answers
    [ "$(cat answers)" = $'world<|im_end|>\nhow<|im_end|>\nare you<|im_end|>' ]
    grep -qxF '<|im_start|>user' shown
    mics-data show --check -q --sample=0 out >/dev/null
}

@test "chat: without --mask-prompt everything is learned" {
    mics-data encode -q -t tok --chat chat.jsonl -o masked --mask-prompt >/dev/null
    mics-data encode -q -t tok --chat=chatml chat.jsonl -o out >/dev/null
    [ ! -e out.prompts ]
    cmp out.bin masked.bin
    # A set without prompts replaces one with them.
    mics-data encode -q -t tok --chat chat.jsonl -o masked >/dev/null
    [ ! -e masked.prompts ]
}

@test "chat: damaged lines and what no template takes are named with file and line" {
    while IFS='|' read -r line error; do
        printf '\n%s\n' "$line" >bad.jsonl
        run --separate-stderr mics-data encode -t tok --chat bad.jsonl -o bad
        one_line_and_code 3
        [ "$stderr" = "mics-data: 'bad.jsonl': line 2: $error (--bad-lines=skip:N skips N such lines)" ] ||
            { echo "$stderr"; false; }
        [ ! -e bad.bin ]
    done <<'EOF'
{"messages": []}|"messages" is empty
{"messages": [{"role": "user", "content": "a"}]}|"messages" has none of the assistant
{"messages": [{"role": "bot", "content": "a"}]}|messages[0]: role "bot" is none of system, user, assistant, tool
{"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "1"}}]}]}|messages[0]: tool_calls[0]: "arguments": line 1, column 1, offset 0: expected an object
{"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}]}|messages[0]: "tool_calls" is not supported with this chat template (chatml)
{"messages": [{"role": "assistant", "content": ""}], "tools": [{"function": {"name": "f"}}]}|"tools" is not supported with this chat template (chatml)
{"messages": [{"role": "assistant", "content": ""}], "tools": [{"name": "f"}]}|tools[0]: no object "function"
{"text": "a"}|no "messages", nor "instruction", nor "prompt"
EOF
    { cat chat.jsonl; echo '{"messages": []}'; } >some.jsonl
    run --separate-stderr mics-data encode -t tok --chat --bad-lines=skip:1 some.jsonl -o some
    [ "$status" = 0 ]
    [[ $stderr == *"skipped 1 damaged line: 'some.jsonl': line 5: \"messages\" is empty"* ]]
}

@test "chat: a tokenizer without a known template is refused, and --chat=NAME insists" {
    echo '{{ messages }}' >tok/chat_template.jinja
    run --separate-stderr mics-data encode -t tok --chat chat.jsonl -o out
    one_line_and_code 3
    [[ $stderr == "mics-data: chat_template.jinja: the chat template is not a known one (shape "*"): --chat=NAME insists on a format" ]]
    echo '{{ "<|im_start|>" }}' >tok/chat_template.jinja
    run --separate-stderr mics-data encode -t tok --chat chat.jsonl -o out
    one_line_and_code 3
    [[ $stderr == *"though it has '<|im_start|>' as those of chatml: --chat=chatml insists on that format" ]]
    rm tok/chat_template.jinja
    run --separate-stderr mics-data encode -t tok --chat chat.jsonl -o out
    one_line_and_code 3
    [[ $stderr == *"the tokenizer has no chat template"* ]]
    run --separate-stderr mics-data encode -t tok --chat=chatxl chat.jsonl -o out
    [ "$status" = 2 ]
    [[ $stderr == *"'chatxl' is no format of conversations: expected "*chatml* ]]
    mics-data encode -q -t tok --chat=chatml chat.jsonl -o out >/dev/null
}

@test "chat: what does not go with --chat is refused" {
    for option in --field=a --special --end-token=1 --binary; do
        run --separate-stderr mics-data encode -t tok --chat "$option" chat.jsonl -o out
        [ "$status" = 2 ]
        [[ $stderr == *"--chat does not go with ${option%%=*}"* ]]
    done
    run --separate-stderr mics-data encode -t tok --mask-prompt chat.jsonl -o out
    [ "$status" = 2 ]
    run --separate-stderr mics-data encode -t tok --chat --format=llmc chat.jsonl -o out
    [ "$status" = 2 ]
    echo text >text.txt
    run --separate-stderr mics-data encode -t tok --chat text.txt -o out
    one_line_and_code 3
    [ "$stderr" = "mics-data: 'text.txt' is text, not JSON lines of conversations" ]
}

@test "chat: prompts of another set, or damaged ones, are refused" {
    mics-data encode -q -t tok --chat --mask-prompt chat.jsonl -o out >/dev/null
    cp out.prompts kept
    rm out.prompts
    run --separate-stderr mics-data show out
    one_line_and_code 3
    [[ $stderr == *"it tells of tokens of prompts, but there is no file .prompts"* ]]
    head -c 20 kept >out.prompts
    run --separate-stderr mics-data show out
    one_line_and_code 3
    [ "$stderr" = "mics-data: 'out.prompts': not a file of prompts" ]
    # One of another program is none.
    echo 'Tell me about cats.' >out.prompts
    run --separate-stderr mics-data show out
    one_line_and_code 3
    [[ $stderr == *"it tells of tokens of prompts, but there is no file .prompts"* ]]
    { head -c 40 kept; printf '\1'; tail -c +42 kept; } >out.prompts
    run --separate-stderr mics-data show out
    one_line_and_code 3
    [ "$stderr" = "mics-data: 'out.prompts': damaged: its checksum is another" ]
    head -n 1 chat.jsonl >one.jsonl
    mics-data encode -q -t tok --chat one.jsonl -o one >/dev/null
    cp kept one.prompts
    run --separate-stderr mics-data show one
    one_line_and_code 3
    [[ $stderr == "mics-data: 'one.prompts': it is of "*" tokens, but there are "* ]]
}

@test "chat: a text of the user's that is called PREFIX.prompts is neither replaced nor read" {
    echo 'Tell me about cats.' >out.prompts
    for input in "train.txt" "--chat --mask-prompt chat.jsonl"; do
        # shellcheck disable=SC2086 # they are words
        run --separate-stderr mics-data encode -t tok $input -o out
        one_line_and_code 1
        [ "$stderr" = "mics-data: 'out.prompts' is not a file that mics-data wrote: move it, or choose another prefix" ]
        [ "$(cat out.prompts)" = 'Tell me about cats.' ]
        [ ! -e out.bin ]
    done
    mv out.prompts mine
    mics-data encode -q -t tok train.txt -o out >/dev/null
    cp mine out.prompts
    mics-data show --check -q out >/dev/null
}

@test "chat: markers that the tokenizer does not have, and an eos_token that it does not tell" {
    run --separate-stderr mics-data encode -t bytes --chat=chatml chat.jsonl -o out
    [ "$status" = 0 ]
    [[ $stderr == *"--chat=chatml: '<|im_start|>' is no token of the tokenizer: it becomes several"* ]]
    run --separate-stderr mics-data encode -t bytes --chat=mistral chat.jsonl -o other
    one_line_and_code 3
    [ "$stderr" = "mics-data: the chat template (mistral) needs the tokenizer's eos_token, which no file of the tokenizer tells" ]
}

@test "chat: ranks and micro-steps divide the loss by the tokens of all answers" {
    requires mpi:2
    for _ in {1..20}; do cat chat.jsonl; done >many.jsonl
    mics-data encode -q -t tok --chat --mask-prompt many.jsonl -o masked >/dev/null
    mics-data encode -q -t tok --chat many.jsonl -o plain >/dev/null
    mkdir model
    jq '.vocab_size = 304 | .max_position_embeddings = 64' "$root/tests/reference/llama-tiny/config.json" >model/config.json
    for ranks in 1 2; do
        mics-plan --topology="node:1 gpu:$ranks" --model=model --global-batch=4 --seq=24 --dtype=f32 \
            --micro-batch=1 --optimizer=sgd --no-clip -q >"$ranks.mp"
        mpi "$ranks" mics-train -p "$ranks.mp" --data=masked --pack=document --steps=3 --out="run$ranks" --sample=0 -q \
            --val-every=3
        jq -c 'select(.event == "step") | [.step, (.loss * 1e4 | round)]' "run$ranks/metrics.jsonl" >"loss$ranks"
    done
    [ "$(wc -l <loss1)" = 3 ]
    cmp loss1 loss2
    mpi 1 mics-train -p 1.mp --data=plain --pack=document --steps=3 --out=other --sample=0 -q
    jq -c 'select(.event == "step") | [.step, (.loss * 1e4 | round)]' other/metrics.jsonl >other.loss
    run ! cmp -s other.loss loss1
}
