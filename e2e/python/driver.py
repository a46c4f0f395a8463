"""Runs snippets of Python that a Go test sends, with a real Celery client.

A request comes from the Redis list that DRIVER names: {"id", "code", "arg"}.
The code is a function's body; it sees the names below and its argument as
arg. Each request runs in a thread of its own. What it returns, or the
traceback of what it raises, goes to the list <DRIVER>:<id>.
"""

import base64
import datetime
import json
import os
import random
import sys
import textwrap
import threading
import time
import traceback
import uuid

import redis
from celery import chain, chord, group
from celery.result import AsyncResult, ResultSet

from celeryapp import app, ledger

TIMEOUT = 90  # seconds; for a machine that is busy with other things
UTC = datetime.timezone.utc
send = app.send_task


def now(seconds=0.0, hours=0):
    """The time now + seconds, written in a zone so many hours from UTC."""
    zone = datetime.timezone(datetime.timedelta(hours=hours))
    return datetime.datetime.now(zone) + datetime.timedelta(seconds=seconds)


def server(url):
    """A client of a Redis database; bytes come back as text."""
    return redis.Redis.from_url(url, decode_responses=True)


def outcome(result, timeout=TIMEOUT):
    """What a caller of get() sees: a value, or an exception."""
    try:
        got = {"value": result.get(timeout=timeout)}
    except Exception as e:  # what is raised is what the test is about
        args = [a if isinstance(a, (str, int, float, type(None))) else repr(a) for a in e.args]
        got = {"raised": type(e).__name__, "module": type(e).__module__, "args": args}
    return {**got, "id": result.id, "state": result.state, "traceback": result.traceback}


def until(check, what):
    """Waits until check() is true."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.01)


def push(change, name="tests.effect", args=(), queue="celery"):
    """Sends a message as another program might: change() edits it first."""
    task_id = str(uuid.uuid4())
    body = [list(args), {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
    message = {
        "body": base64.b64encode(json.dumps(body).encode()).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"lang": "py", "task": name, "id": task_id, "retries": 0, "eta": None, "expires": None},
        "properties": {
            "correlation_id": task_id,
            "delivery_mode": 2,
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": str(uuid.uuid4()),
            "delivery_info": {"exchange": "", "routing_key": queue},
        },
    }
    change(message)
    server(app.conf.broker_url).lpush(queue, json.dumps(message))
    return AsyncResult(task_id, app=app)


def serve(name, request):
    try:
        scope = {k: v for k, v in globals().items() if not k.startswith("__")}
        scope["arg"] = request["arg"]
        exec("def body():\n" + textwrap.indent(textwrap.dedent(request["code"]), "    "), scope)
        reply = json.dumps({"value": scope["body"]()})
    except BaseException:
        reply = json.dumps({"error": traceback.format_exc()})
    ledger.rpush(f"{name}:{request['id']}", reply)


def main():
    name = os.environ["DRIVER"]
    print("driver ready", flush=True)
    while True:
        got = ledger.blpop([name], timeout=1)
        if got is not None:
            threading.Thread(target=serve, args=(name, json.loads(got[1])), daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
