"""Takes and gives back free locks by redis-py: locks.py THREADS SECONDS
Prints how many a second."""

import os
import sys
import threading
import time

import redis

threads, seconds = int(sys.argv[1]), float(sys.argv[2])
client = redis.Redis.from_url(os.environ["BENCH_REDIS_URL"], max_connections=threads + 4)
counts = [0] * threads
go = threading.Barrier(threads + 1)


def run(i):
    lock = client.lock(f"bench:redis-py:{i}", timeout=30, blocking=False)
    lock.acquire()
    lock.release()
    go.wait()
    while time.monotonic() < end:
        lock.acquire()
        lock.release()
        counts[i] += 1


workers = [threading.Thread(target=run, args=(i,)) for i in range(threads)]
end = 0.0  # set before the barrier opens
for w in workers:
    w.start()
while go.n_waiting < threads:
    time.sleep(0.001)
began = time.monotonic()
end = began + seconds
go.wait()
for w in workers:
    w.join()
print(sum(counts) / (time.monotonic() - began))
