"""Capture what a real Celery writes, for the golden tests of this package.

    python capture.py redis://127.0.0.1:PORT/0 OUTDIR

Run it with each Celery version against an empty, private Redis. It sends the
messages below without a worker and saves each list element, then starts a
worker and saves what that writes: results, the message of a retry, an entry
of the unacked hash, worker events.
"""

import datetime
import decimal
import json
import os
import socket
import subprocess
import sys
import time
import uuid

import celery
import redis
from celery import Celery, chain, chord, group
from kombu import Queue

HERE = os.path.dirname(os.path.abspath(__file__))
URL = os.environ.get("CAPTURE_URL", "redis://127.0.0.1:6379/0")
app = Celery("capture", broker=URL, backend=URL)
app.conf.update(
    task_serializer="json",
    accept_content=["json"],
    broker_connection_retry_on_startup=True,
    task_queues=[Queue("celery"), Queue("late")],
    worker_hijack_root_logger=False,
)
if os.environ.get("CAPTURE_COMPRESS"):
    app.conf.result_compression = os.environ["CAPTURE_COMPRESS"]


@app.task(name="tasks.add")
def add(x, y):
    return x + y


@app.task(name="tasks.tsum")
def tsum(xs):
    return sum(xs)


@app.task(name="tasks.echo")
def echo(*args, **kwargs):
    return args[0] if args else kwargs


@app.task(name="tasks.fail")
def fail(text):
    raise ValueError(text, 3)


@app.task(name="tasks.nan")
def nan():
    return [float("nan"), float("inf"), -float("inf"), {"x": "NaN"}]


@app.task(name="tasks.again", bind=True, default_retry_delay=600)
def again(self):
    raise self.retry(exc=KeyError("later"), queue="late")


@app.task(name="tasks.slow", acks_late=True)
def slow(seconds):
    time.sleep(seconds)


WHEN = datetime.datetime(2030, 1, 2, 3, 4, 5, 678900, tzinfo=datetime.timezone.utc)


def task_id(name):
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "capture:" + name))


def sends():
    big = 2**63 + 12345
    yield "plain", lambda i: add.apply_async((2, 3), task_id=i)
    yield "send_task", lambda i: app.send_task("tasks.add", (2, 3), task_id=i)
    yield "values", lambda i: echo.apply_async(
        ([big, -(2**53) - 1, 1.5, 1e100, 0.1, True, None],),
        {"a": "h\u00e4 \u65e5\u672c \U0001f600 \"q\" \\ \n\x7f </b>", "b": {"deep": [[], {}, [[1]]]}, "c": "it's"},
        task_id=i,
    )
    yield "eta", lambda i: add.apply_async((2, 3), eta=WHEN, task_id=i)
    yield "eta_whole", lambda i: add.apply_async((2, 3), eta=WHEN.replace(microsecond=0), task_id=i)
    yield "eta_zone", lambda i: add.apply_async(
        (2, 3), eta=WHEN.astimezone(datetime.timezone(datetime.timedelta(hours=9))), task_id=i)
    yield "expires", lambda i: add.apply_async((2, 3), expires=WHEN, task_id=i)
    yield "expires_seconds", lambda i: add.apply_async((2, 3), expires=3600, task_id=i)
    yield "priority", lambda i: add.apply_async((2, 3), priority=5, task_id=i)
    yield "priority_over", lambda i: add.apply_async((2, 3), priority=50, task_id=i)
    yield "timelimit", lambda i: add.apply_async((2, 3), time_limit=10, soft_time_limit=5.5, task_id=i)
    yield "zlib", lambda i: add.apply_async((2, 3), compression="zlib", task_id=i)
    yield "bzip2", lambda i: add.apply_async((2, 3), compression="bzip2", task_id=i)
    yield "pickle", lambda i: add.apply_async((2, 3), serializer="pickle", task_id=i)
    yield "ignored", lambda i: add.apply_async((2, 3), ignore_result=True, task_id=i)
    yield "headers", lambda i: add.apply_async(
        (2, 3),
        headers={"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x-tenant": {"id": big}},
        task_id=i,
    )
    yield "link", lambda i: add.apply_async((2, 3), link=add.s(4), task_id=i)
    yield "link_error", lambda i: add.apply_async((2, 3), link_error=add.s(4), task_id=i)
    yield "chain", lambda i: chain(add.s(1, 2).set(task_id=i), add.s(4))()
    yield "group", lambda i: group([add.s(1, 2).set(task_id=i)])()
    yield "chord", lambda i: chord([add.s(1, 2).set(task_id=i), add.s(3, 4)])(tsum.s())
    yield "typed", lambda i: echo.apply_async(
        (WHEN, decimal.Decimal("1.50"), uuid.UUID(int=7)), task_id=i)
    yield "nan", lambda i: echo.apply_async((float("nan"), -float("inf")), task_id=i)
    yield "shadow", lambda i: add.apply_async((2, 3), shadow="other.name", task_id=i)
    yield "no_args", lambda i: echo.apply_async(task_id=i)


def save(outdir, name, data):
    if isinstance(data, str):
        data = data.encode()
    if name.endswith(".json"):  # nothing about the machine it ran on
        for private, public in ((sys.prefix, "/venv"), (HERE, "/app"), ("@" + socket.gethostname(), "@h1")):
            data = data.replace(private.encode(), public.encode())
    with open(os.path.join(outdir, name), "wb") as f:
        f.write(data)


def drain(r):
    """All waiting messages, the oldest of each list first."""
    out = []
    for key in sorted(r.keys("*")):
        if r.type(key) == b"list":
            out += [(key, raw) for raw in reversed(r.lrange(key, 0, -1))]
            r.delete(key)
    return out


def wait_for(what, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        got = what()
        if got:
            return got
        time.sleep(0.05)
    raise SystemExit("nothing came")


def worker(env=None):
    return subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "capture", "worker", "-P", "solo", "-n", "w1@h1",
         "-Q", "celery", "--without-gossip", "--without-mingle", "-l", "ERROR"],
        cwd=HERE,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(env or {})},
    )


def main():
    outdir = sys.argv[2]
    os.makedirs(outdir, exist_ok=True)
    r = redis.Redis.from_url(URL)
    if r.dbsize():
        raise SystemExit("the Redis database is not empty")

    for name, send in sends():
        try:
            send(task_id(name))
        except Exception as exc:  # 5.2 cannot send all of them
            print(celery.__version__, name, "not sent:", repr(exc))
        got = drain(r)
        if got:
            save(outdir, "message_%s.json" % name, got[0][1])
    app.conf.task_protocol = 1
    app.amqp.task_protocol = 1
    app.amqp.__dict__.pop("create_task_message", None)
    add.apply_async((2, 3), task_id=task_id("protocol1"))
    save(outdir, "message_protocol1.json", drain(r)[0][1])
    app.conf.task_protocol = 2
    app.amqp.__dict__.pop("create_task_message", None)

    events = r.pubsub()
    events.psubscribe("/0.celeryev/worker.*")
    w = worker()
    try:
        seen = {}

        def event():
            m = events.get_message(timeout=0.2)
            if m and m["type"] == "pmessage":
                seen[m["channel"].decode().rsplit("/", 1)[1]] = m["data"]
            return "worker.online" in seen and "worker.heartbeat" in seen

        wait_for(event, 40)
        for name, data in seen.items():
            save(outdir, "event_%s.json" % name, data)

        def result(name, sig):
            i = task_id("result:" + name)
            sig.apply_async(task_id=i)
            save(outdir, "result_%s.json" % name, wait_for(lambda: r.get("celery-task-meta-" + i)))

        result("success", add.s(2, 3))
        result("failure", fail.s("b\u00e4d"))
        result("nan", nan.s())
        result("unknown", app.signature("tasks.nosuch"))
        result("expired", add.s(2, 3).set(expires=-5))
        result("group", add.s(2, 3).set(group_id=task_id("g"), parent_id=task_id("p")))
        result("retry", again.s())
        save(outdir, "message_retry.json", wait_for(lambda: r.lrange("late", 0, -1))[0])
        r.delete("late")

        slow.apply_async((3,), task_id=task_id("slow"))
        time.sleep(1)
        save(outdir, "unacked.json", wait_for(lambda: r.hvals("unacked"))[0])
        wait_for(lambda: not r.hvals("unacked"))
    finally:
        w.terminate()
        w.wait()

    if celery.__version__ >= "5.7":
        for name in ("zlib", "bzip2"):
            w = worker({"CAPTURE_COMPRESS": name})
            try:
                i = task_id("compressed:" + name)
                add.apply_async((2, 3), task_id=i)
                save(outdir, "result_compressed_%s.bin" % name, wait_for(lambda: r.get("celery-task-meta-" + i)))
            finally:
                w.terminate()
                w.wait()
    save(outdir, "version.json", json.dumps({"celery": celery.__version__, "redis": redis.__version__}))


if __name__ == "__main__":
    os.environ["CAPTURE_URL"] = URL = sys.argv[1]
    from capture import main  # the module that the worker imports too

    main()
