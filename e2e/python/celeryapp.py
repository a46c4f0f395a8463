"""A plain Celery app: what the tests' Python clients and workers share.

APP_SETTINGS holds its settings as JSON, TEST_LEDGER the Redis that tasks
write to, so that tests count outside of Celery.
"""

import json
import os
import time

import redis
from celery import Celery

app = Celery("celeryapp")
app.conf.update(json.loads(os.environ["APP_SETTINGS"]))
ledger = redis.Redis.from_url(os.environ["TEST_LEDGER"], decode_responses=True)


@app.task(name="tests.add")
def add(x, y):
    return x + y


@app.task(name="tests.echo")
def echo(*args, **kwargs):
    return {"args": args, "kwargs": kwargs}


@app.task(name="tests.when")
def when():
    return time.time()


@app.task(name="tests.effect")
def effect(id):
    ledger.rpush("effects", f"{id} {os.getpid()} {time.time()}")
    return id


@app.task(name="tests.fail")
def fail(message):
    raise ValueError(message)


@app.task(name="tests.sleep")
def sleep(id, seconds):
    time.sleep(seconds)
    return id
