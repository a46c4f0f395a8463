"""The Celery app of the benchmarks: its client makes the messages for all, its
worker is the peer."""

import os
import time

from celery import Celery

url = os.environ["BENCH_REDIS_URL"]
app = Celery("bench_app", broker=url, backend=url)


@app.task(name="bench.noop")
def noop(i, j):
    return None


@app.task(name="bench.clock")
def clock(i, j):
    return time.time_ns()
