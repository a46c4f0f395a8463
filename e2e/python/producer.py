"""Sends the messages of a plan with a real Celery client, each at its time.

PLAN names a file with one JSON object a line: {"at": seconds from now, "id",
"name", "kwargs", "countdown"}. What is refused, or whose answer is lost, is
sent again under the same id until it is taken.
"""

import json
import os
import time

from celeryapp import app


def main():
    app.conf.broker_connection_max_retries = None
    app.conf.broker_transport_options = {"socket_timeout": 5, "socket_connect_timeout": 2}
    with open(os.environ["PLAN"]) as f:
        plan = [json.loads(line) for line in f]
    began = time.monotonic()
    again = 0
    for m in plan:
        time.sleep(max(0, began + m["at"] - time.monotonic()))
        while True:
            try:
                app.send_task(m["name"], kwargs=m["kwargs"], task_id=m["id"], countdown=m["countdown"] or None, retry=False)
                break
            except Exception:  # whatever the broker's trouble is
                again += 1
                time.sleep(0.2)
    print(f"producer done: {len(plan)} sent, {again} sent again", flush=True)


if __name__ == "__main__":
    main()
