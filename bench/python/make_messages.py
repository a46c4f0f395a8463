"""Sends COUNT messages of TASK as any Celery program does: make_messages.py TASK COUNT"""

import sys

from bench_app import app

task, count = app.tasks[sys.argv[1]], int(sys.argv[2])
for i in range(count):
    task.delay(i, 2)
