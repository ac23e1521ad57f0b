"""The sandbox on a hired machine: E2B's official client against a fake server, behind which the real harness runs.

The fake speaks over the wire what the client does: the REST calls that create and end a machine, the files of a
machine, and its commands (a stream of the Connect protocol, in JSON). A machine is a folder of this one.
"""

import asyncio
import base64
import email
import json
import logging
import multiprocessing
import os
import struct
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from rewards.sandbox import Asserts, SandboxError, Stdio, hosted
from rewards.sandbox.batch import OUTPUT_CHARACTERS, answer, pack, unpack
from rewards.sandbox.hosted import E2BSandbox, parts_of, seconds_for, seconds_of
from rewards.sandbox.pool import worker_count

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox is built for Linux")
ROOT = Path(__file__).parents[1]
RIGHT = Asserts("def f(x): return 2 * x", ["assert f(2) == 4"])
WRONG = Asserts("def f(x): return x", ["assert f(0) == 0", "assert f(2) == 4"])
HANGS = Asserts("def f(x):\n    while True: pass", ["assert f(1) == 1"], timeout_s=0.5)
SLOW = Asserts("import time\ndef f(x): time.sleep(x); return 1", ["assert f(0.5) == 1"])
CREATE, WRITE, RUN, READ = (
    ("POST", "/v2/sandboxes"),
    ("POST", "/files"),
    ("POST", "/process.Process/Start"),
    ("GET", "/files"),
)


# ------------------------------------------------------------------ the fake


class FakeE2B(ThreadingHTTPServer):
    """`machines`: those alive, by id; `created`: what was asked for; `calls`: (method, path) of each request.

    `broken`: what happens instead of an answer (a status, `drop` or `hang`), and how often, by (method, path).
    `prelude` is put before every command.
    """

    daemon_threads = True

    def __init__(self, folder: Path):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.machines, self.created, self.calls = folder, {}, [], []
        self.broken, self.prelude, self.users = {}, "", set()
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def breaks(self, call: tuple[str, str], how: str, times: int = 1) -> None:
        self.broken[call] = (how, times)

    def handle_error(self, *_): ...


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_one_call(self) -> None:
        url, body = urlsplit(self.path), self.body()
        call = (self.command, url.path)
        self.server.calls.append(call)
        how, times = self.server.broken.get(call, ("", 0))
        if times:
            self.server.broken[call] = (how, times - 1)
            return self.fail(how)
        if self.command == "DELETE":
            known = self.server.machines.pop(url.path.removeprefix("/sandboxes/"), None)
            return self.reply(204 if known else 404)
        if call == CREATE:
            return self.create(json.loads(body))
        if (machine := self.server.machines.get(self.headers["E2b-Sandbox-Id"])) is None:
            return self.reply(502, {"code": 502, "message": "The sandbox was not found"})
        self.on_machine(call, machine, {name: values[0] for name, values in parse_qs(url.query).items()}, body)

    do_GET = do_POST = do_DELETE = handle_one_call

    def log_message(self, *_): ...

    def body(self) -> bytes:
        if self.headers["Transfer-Encoding"] != "chunked":
            return self.rfile.read(int(self.headers["Content-Length"] or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def reply(self, status: int, content: object = b"", kind: str = "application/json") -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def fail(self, how: str) -> None:
        if how == "hang":
            time.sleep(30)
        if how in ("drop", "hang"):
            self.close_connection = True
        else:
            self.reply(int(how), {"code": int(how), "message": "planted"})

    def create(self, wanted: dict) -> None:
        if self.headers["X-API-KEY"] != "e2b_right":
            return self.reply(401, {"code": 401, "message": "no such key"})
        name = uuid.uuid4().hex
        self.server.machines[name] = self.server.folder / name
        self.server.created.append(wanted)
        made = {"templateID": wanted["templateID"], "sandboxID": name, "clientID": "x", "envdVersion": "0.6.7"}
        self.reply(201, {**made, "envdAccessToken": "token"})

    def on_machine(self, call: tuple[str, str], machine: Path, query: dict, body: bytes) -> None:
        if call == RUN:
            return self.run(machine, json.loads(body[5:]))
        if call == ("GET", "/health"):
            return self.reply(204)
        self.server.users.add(query["username"])
        if call == READ:
            return self.reply(200, Path(f"{machine}{query['path']}").read_bytes())
        self.reply(200, self.write(machine, query.get("path"), body))

    def write(self, machine: Path, path: str | None, body: bytes) -> list[dict]:
        written = []
        kind = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        for part in email.message_from_bytes(kind + body).get_payload():
            name = path or part.get_filename()
            file = Path(f"{machine}{name}")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(part.get_payload(decode=True))
            written.append({"name": file.name, "type": "file", "path": name})
        return written

    def run(self, machine: Path, request: dict) -> None:
        """Run here, in the machine's folder: only our harness is, and it confines what it runs."""
        self.server.users.add(base64.b64decode(self.headers["Authorization"].split()[1]).decode().rstrip(":"))
        command = self.server.prelude + request["process"]["args"][-1]
        command = command.replace(hosted.FOLDER, f"{machine}{hosted.FOLDER}")
        environ = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        ran = subprocess.run(["bash", "-c", command], env=environ, cwd="/", capture_output=True)
        events = {"start": {"pid": 1}}, {"data": {"stderr": base64.b64encode(ran.stderr).decode()}}
        ended = {"end": {"exitCode": ran.returncode, "exited": True}}
        parts = [(0, {"event": event}) for event in (*events, ended)] + [(2, {})]
        encoded = [(flag, json.dumps(message).encode()) for flag, message in parts]
        stream = b"".join(struct.pack("!BI", flag, len(data)) + data for flag, data in encoded)
        self.reply(200, stream, "application/connect+json")


@pytest.fixture
def fake(tmp_path, monkeypatch):
    pytest.importorskip("e2b", reason="the client of E2B is not installed: pip install -e '.[e2b]'")
    made = FakeE2B(tmp_path)
    wanted = {"E2B_API_KEY": "e2b_right", "E2B_API_URL": made.url, "E2B_SANDBOX_URL": made.url}
    for name, value in {**wanted, "E2B_HTTP_VERSION": "1.1", "E2B_DEBUG": "false"}.items():
        monkeypatch.setenv(name, value)
    yield made
    made.shutdown()
    made.server_close()


def statuses(outcomes):
    return [outcome.status for outcome in outcomes]


# ------------------------------------------------------------------ verdicts


def test_a_batch_is_judged_there_and_comes_back_in_order(fake):
    scripts = [Stdio("print(input())", [(str(n), str(n % 3))]) for n in range(6)]
    with E2BSandbox() as sandbox:
        outcomes = sandbox.run_batch([RIGHT, WRONG, RIGHT, *scripts])
    assert statuses(outcomes) == ["pass", "fail", "pass", *["pass"] * 3, *["fail"] * 3]
    assert [outcomes[1].reason, outcomes[1].passed, outcomes[5].output] == ["AssertionError", (True, False), "2\n"]
    assert (sandbox.runs, sandbox.infra) == (9, 0)


def test_one_program_at_a_time(fake):
    with E2BSandbox() as sandbox:
        assert sandbox.run_asserts(RIGHT.program, RIGHT.tests).status == "pass"
        assert sandbox.run_asserts("def g(x): x.append(1)", ["a = []", "g(a)", "assert a"], inplace=True)[:2] == (
            "pass",
            "",
        )
        assert sandbox.run_stdio("print(int(input()) * 2)", [("2", "4")]).status == "pass"
        assert sandbox.run_batch([]) == []
    assert len(fake.created) == 1


def test_a_program_that_does_not_end_fails(fake):
    with E2BSandbox() as sandbox:
        outcome = sandbox.run_batch([HANGS])[0]
    assert (outcome.status, outcome.reason) == ("fail", "timeout: more than 0.5 s")


def test_no_text_of_a_program_is_infra(fake):
    too_long = "#" * (1 << 20) + "\ndef f(x): return 2 * x"
    texts = ["\ud800", "\x00", "(" * 1000, too_long, "print('y' * 900_000)\ndef f(x): return 2 * x"]
    with E2BSandbox() as sandbox:
        outcomes = sandbox.run_batch([RIGHT._replace(program=text) for text in texts])
    assert statuses(outcomes) == ["fail"] * 4 + ["pass"]
    assert outcomes[3].reason == "the program is longer than 1048576 bytes"
    assert outcomes[4].output == "y" * OUTPUT_CHARACTERS


def test_it_runs_beside_other_coroutines(fake):
    async def both():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        outcomes = await sandbox.run_batch_async([SLOW, WRONG])
        ticking.cancel()
        return statuses(outcomes), ticks

    with E2BSandbox() as sandbox:
        outcomes, ticks = asyncio.run(both())
    assert outcomes == ["pass", "fail"] and ticks > 10


def test_threads_share_one_machine(fake):
    with E2BSandbox() as sandbox, ThreadPoolExecutor(3) as threads:
        futures = [threads.submit(sandbox.run_batch, [RIGHT, WRONG]) for _ in range(3)]
        assert [statuses(future.result()) for future in futures] == [["pass", "fail"]] * 3
    assert len(fake.created) == 1


# ------------------------------------------------------------------ where the service fails


@pytest.mark.parametrize("how", ["500", "drop"])
@pytest.mark.parametrize("call", [CREATE, WRITE, RUN, READ], ids=["create", "write", "run", "read"])
def test_a_failure_is_made_good_on_a_new_machine(fake, call, how):
    fake.breaks(call, how)
    sandbox = E2BSandbox()
    assert statuses(sandbox.run_batch([RIGHT, WRONG])) == ["pass", "fail"]
    assert len(fake.machines) == 1 and len(fake.created) == (1 if call == CREATE else 2)
    assert sandbox.infra == 0
    sandbox.close()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["500", "drop"])
@pytest.mark.parametrize("call", [CREATE, WRITE, RUN, READ], ids=["create", "write", "run", "read"])
def test_a_second_failure_is_infra_and_no_grade(fake, call, how):
    fake.breaks(call, how, 99)
    sandbox = E2BSandbox()
    outcomes = sandbox.run_batch([RIGHT, WRONG])
    assert statuses(outcomes) == ["infra", "infra"] and outcomes[1].passed == (False, False)
    assert outcomes[0].reason.startswith("E2B: ")
    assert fake.calls.count(call) == 2
    assert (sandbox.runs, sandbox.infra, fake.machines) == (2, 2, {})
    fake.breaks(call, "", 0)
    assert statuses(sandbox.run_batch([RIGHT, WRONG])) == ["pass", "fail"]
    sandbox.close()


def test_starting_without_the_service_is_an_error(fake):
    fake.breaks(CREATE, "500", 99)
    with pytest.raises(SandboxError, match=r"E2B gives no machine to run programs on: .*500: planted"):
        E2BSandbox().start()
    fake.server_close()
    with pytest.raises(SandboxError, match="E2B gives no machine"):
        E2BSandbox().start()


@pytest.mark.slow
def test_an_answer_that_never_comes_is_given_up(fake, monkeypatch):
    monkeypatch.setattr(hosted, "SPAWN_S", 0.0)
    with E2BSandbox() as sandbox:
        fake.breaks(RUN, "hang")
        monkeypatch.setattr(hosted, "START_S", 3.0)
        started = time.monotonic()
        assert statuses(sandbox.run_batch([HANGS])) == ["fail"]
        assert 3 < time.monotonic() - started < 10
    assert len(fake.created) == 2


def test_a_machine_that_is_gone_costs_no_verdict(fake):
    with E2BSandbox() as sandbox:
        fake.machines.clear()
        assert statuses(sandbox.run_batch([RIGHT, WRONG])) == ["pass", "fail"]
        assert (len(fake.created), sandbox.infra) == (2, 0)


def test_a_machine_near_its_end_is_replaced_first(fake, monkeypatch):
    with E2BSandbox(timeout_s=300) as sandbox:
        first = set(fake.machines)
        sandbox._ends = time.monotonic() + seconds_for([RIGHT], sandbox.workers) - 1
        assert statuses(sandbox.run_batch([RIGHT])) == ["pass"]
        assert first.isdisjoint(fake.machines) and len(fake.machines) == 1


def test_a_harness_that_fails_there_is_infra(fake):
    fake.prelude = "echo no such thing >&2; exit 3; "
    sandbox = E2BSandbox()
    outcome = sandbox.run_batch([RIGHT])[0]
    assert outcome.status == "infra" and "code 3" in outcome.reason and "no such thing" in outcome.reason
    with pytest.raises(SandboxError, match="no such thing"):
        sandbox.start()
    assert fake.machines == {}


def test_an_old_answer_is_never_taken_for_a_new_one(fake):
    with E2BSandbox() as sandbox:
        assert statuses(sandbox.run_batch([RIGHT])) == ["pass"]
        fake.prelude = "exit 0; "
        assert statuses(sandbox.run_batch([WRONG])) == ["infra"]


# ------------------------------------------------------------------ fail closed


def test_a_self_test_that_misses_there_is_an_error(fake):
    missed = 'def misses(run): return ["forks: came through"]'
    fake.prelude = f"echo '{missed}' >> {hosted.FOLDER}/rewards/sandbox/self_test.py; "
    for attempt in (E2BSandbox().start, lambda: E2BSandbox().run_batch([RIGHT])):
        with pytest.raises(SandboxError, match=r"refuses to run on the E2B machine: .*sealed: forks: came through"):
            attempt()
    assert (len(fake.created), fake.machines) == (2, {})


def test_a_package_that_is_not_there_is_an_error(fake):
    with pytest.raises(SandboxError, match="'no_such_package' is not installed"):
        E2BSandbox(packages=["no_such_package"]).start()


def test_a_package_can_be_imported_where_it_is_named(fake):
    program = "def f():\n    import numpy\n    return int(numpy.arange(4).sum())"
    with E2BSandbox(packages=["numpy"]) as sandbox:
        assert sandbox.run_asserts(program, ["assert f() == 6"])[:2] == ("pass", "")


def test_a_missing_key_or_client_says_what_to_do(fake, monkeypatch):
    monkeypatch.setenv("E2B_API_KEY", "e2b_wrong")
    with pytest.raises(SandboxError, match="E2B does not accept E2B_API_KEY"):
        E2BSandbox().run_batch([RIGHT])
    monkeypatch.delenv("E2B_API_KEY")
    with pytest.raises(SandboxError, match="E2B_API_KEY is not set: get a key"):
        E2BSandbox().run_batch([RIGHT])
    monkeypatch.setitem(sys.modules, "e2b", None)
    with pytest.raises(SandboxError, match=r"pip install -e '\.\[e2b\]'"):
        E2BSandbox().start()


def test_the_machine_has_no_internet_and_none_of_our_environment(fake):
    with E2BSandbox(template="mine", timeout_s=600) as sandbox:
        assert sandbox.start() == "e2b"
        assert sandbox.describe().startswith(f"E2B machine {next(iter(fake.machines))}, template mine: ")
    asked = fake.created[0]
    assert (asked["templateID"], asked["timeout"], asked["allow_internet_access"]) == ("mine", 600, False)
    assert (asked["envVars"], fake.users) == ({}, {"root"})


# ------------------------------------------------------------------ life


def test_closing_ends_the_machine_and_the_next_call_hires_another(fake):
    sandbox = E2BSandbox()
    assert sandbox.start() == "e2b" and len(fake.machines) == 1
    sandbox.close()
    assert fake.machines == {} and sandbox.describe() == "E2B: not started"
    assert statuses(sandbox.run_batch([RIGHT])) == ["pass"] and len(fake.machines) == 1
    sandbox.close()
    sandbox.close()
    assert fake.machines == {}


def test_an_interrupted_batch_leaves_no_machine(fake, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(hosted, "exchange", interrupted)
    with pytest.raises(KeyboardInterrupt):
        E2BSandbox().run_batch([RIGHT])
    assert len(fake.created) == 1 and fake.machines == {}


def test_a_machine_that_cannot_be_ended_is_named(fake, caplog):
    with caplog.at_level(logging.WARNING), E2BSandbox() as sandbox:
        name = sandbox._machine.sandbox_id
        fake.breaks(("DELETE", f"/sandboxes/{name}"), "500", 9)
    assert f"E2B machine {name} lives on for 3" in caplog.text


TRAINER = """
from rewards.sandbox.hosted import E2BSandbox
sandbox = E2BSandbox()
print(sandbox.run_asserts("def f(x): return 2 * x", ["assert f(2) == 4"]).status)
"""


def test_the_machine_ends_with_the_trainer(fake):
    ran = subprocess.run([sys.executable, "-c", TRAINER], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (ran.stdout, len(fake.created), fake.machines) == ("pass\n", 1, {}), ran.stderr


def run_in_fork(sandbox, queue):
    try:
        sandbox.run_batch([RIGHT])
    except SandboxError as error:
        queue.put((str(error), sandbox.describe()))


def test_a_forked_process_is_told_to_be_spawned(fake):
    with E2BSandbox() as sandbox:
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        process = context.Process(target=run_in_fork, args=(sandbox, queue), daemon=True)
        process.start()
        said, described = queue.get(timeout=30)
        assert "use spawn instead" in said and described == "E2B: not started"
        process.join()
        assert len(fake.machines) == 1 and statuses(sandbox.run_batch([RIGHT])) == ["pass"]


# ------------------------------------------------------------------ without the service


def test_jobs_survive_being_packed():
    jobs = [RIGHT._replace(entry_point=["f", "g"], inplace=True, setup="\ud800"), Stdio("\x00", [["1", "2"]], 3.5)]
    assert [unpack(*packed) for packed in json.loads(json.dumps([pack(job) for job in jobs]))] == jobs


def test_a_batch_says_which_question_it_answers():
    question = {"id": "a", "workers": 1, "packages": [], "jobs": [pack(RIGHT), pack(WRONG)]}
    answered = answer(question)
    assert (answered["id"], answered["workers"]) == ("a", 1)
    assert [outcome["status"] for outcome in answered["outcomes"]] == ["pass", "fail"]


def test_the_time_allowed_is_what_all_need_if_each_runs_to_its_limit():
    cases = Stdio("", [("", "")] * 3, timeout_s=10)
    assert (seconds_of(cases), seconds_of(HANGS)) == (33.0, 1.5)
    assert seconds_for([cases, HANGS], workers=2) == 60 + 34.5 / 2 + 33
    assert seconds_for([], workers=2) == 60


def test_a_long_batch_goes_in_parts_in_order():
    jobs = [RIGHT._replace(program=str(n)) for n in range(10)]  # 11 s each
    parts = list(parts_of(jobs, workers=2, longest=100.0))
    assert [len(part) for part in parts] == [5, 5] and [job for part in parts for job in part] == jobs
    assert list(parts_of([], 2, 100.0)) == [[]]


def test_a_long_batch_is_judged_as_one(fake):
    with E2BSandbox(timeout_s=300, workers=1) as sandbox:
        outcomes = sandbox.run_batch([RIGHT, WRONG] * 5)
    assert statuses(outcomes) == ["pass", "fail"] * 5 and fake.calls.count(RUN) == 1 + 2


def test_the_machine_says_how_many_cores_it_has(fake, monkeypatch):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    with E2BSandbox() as sandbox:
        assert sandbox.workers == worker_count()
    with E2BSandbox(workers=3) as sandbox:
        assert sandbox.workers == 3 and sandbox.describe().endswith("3 workers")


def test_what_can_never_be_run_is_an_error_before_anything_is_sent(fake):
    sandbox = E2BSandbox()
    with pytest.raises(ValueError, match="no tests: any program would pass"):
        sandbox.run_batch([RIGHT, Stdio("", [])])
    with pytest.raises(ValueError, match=r"500 tests of timeout_s=10 may take 11060 s.*1800 s: lower its timeout_s"):
        sandbox.run_batch([Stdio("", [("", "")] * 500)])
    with pytest.raises(TypeError):
        sandbox.run_batch([RIGHT._replace(tests=[b"assert f(2) == 4"])])
    with pytest.raises(ValueError, match="timeout_s is 30: a machine needs at least 300 s"):
        E2BSandbox(timeout_s=30)
    assert fake.calls == []
