#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# mics-train --notice-command, and the commands of share/mics/notices against a server on loopback.

load helpers
: "${root:?}" # by the helpers

setup()
{
    requires mpi
    cd "$BATS_TEST_TMPDIR" || return
    mics-plan --topology='node:1 gpu:2' --model=gpt2-nano --global-batch=4 --seq=32 -o plan.mp
}

teardown()
{
    if [ -n "${server:-}" ]; then kill "$server" 2>/dev/null || true; fi
}

train() # more options
{
    timeout -s KILL 120 mpirun -n 2 mics-train -p plan.mp --data="$root/man/*.1" --out=run \
        --val-every=0 --sample=0 "$@"
}

# A metadata service like that of AWS: a token, then a notice once the file "notice" exists.
start_service()
{
    cat >service.py <<'END'
import http.server, os

class Service(http.server.BaseHTTPRequestHandler):
    def answer(self, code, text=b''):
        self.send_response(code)
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_PUT(self):
        lives = self.headers.get('X-aws-ec2-metadata-token-ttl-seconds')
        self.answer(200 if self.path == '/latest/api/token' and lives else 400, b'secret')

    def do_GET(self):
        if self.headers.get('X-aws-ec2-metadata-token') != 'secret':
            self.answer(401)
        elif self.path == '/latest/meta-data/spot/instance-action' and os.path.exists('notice'):
            self.answer(200, b'{"action":"terminate","time":"2026-11-22T08:22:00Z"}')
        else:
            self.answer(404, b'Not Found')

    def log_message(self, *words):
        pass

server = http.server.HTTPServer(('127.0.0.1', 0), Service)
print(server.server_port, flush=True)
server.serve_forever()
END
    python3 service.py >port 3>&- &
    server=$!
    until [ -s port ]; do sleep 0.1; done
    MICS_AWS_METADATA=http://127.0.0.1:$(cat port)
    export MICS_AWS_METADATA no_proxy=127.0.0.1
}

@test "aws: no notice is 1, a notice 0 with its text, no service 2" {
    requires curl python3
    start_service
    aws=$root/share/mics/notices/aws
    run -1 "$aws"
    touch notice
    run -0 "$aws"
    [ "$output" = '{"action":"terminate","time":"2026-11-22T08:22:00Z"}' ]
    kill "$server"
    run -2 "$aws"
    [ "${#lines[@]}" = 1 ]
    [[ $output == 'no token: '* ]]
}

@test "a notice ends a training run with a checkpoint and status 75" {
    requires curl python3
    start_service
    (sleep 3; touch notice) 3>&- &
    run -75 --separate-stderr train --steps=1000000 "--notice-command=$root/share/mics/notices/aws"
    echo "$stderr"
    [[ $stderr == *': notice: {"action":"terminate",'* ]]
    [[ $stderr == *'mics-train: stopped after step '*' as requested'* ]]
    mics-show run/latest >/dev/null
}

@test "a command that fails or hangs is one warning, and training goes on" {
    run -0 --separate-stderr train --steps=20 --notice-command='echo "no route"; exit 7'
    [ "$stderr" = 'mics-train: --notice-command: exit status 7: no route' ]
    rm -rf run
    run -0 --separate-stderr train --steps=20 --notice-command='kill -9 $$'
    [ "$stderr" = 'mics-train: --notice-command: killed by signal 9' ]
    rm -rf run
    run -75 --separate-stderr train --steps=1000000 \
        --notice-command='if [ -e asked ]; then echo late; else touch asked; sleep 60; fi'
    echo "$stderr"
    [[ ${stderr_lines[0]} == 'mics-train: --notice-command: no answer within 5 s' ]]
    [[ ${stderr_lines[1]} == *': notice: late' ]]
}
