// Package lockredis keeps locks of package lockguard in one Redis or Valkey
// server.
//
// A lock is a plain string key whose value is the token and nothing else, set
// with NX and PX and deleted by a script that compares the token: what redis-py's
// Lock does. So a Python program that holds redis.lock.Lock("report:lock") and a
// Guard that holds "report:lock" exclude each other.
//
// What more is known of a lock (its last fence, its holder's task id and
// instance, since when) stands in a companion key in the same cluster slot, and
// counts only while the token in it is the lock's value. It lives for a day and an hour after
// the last grant.
//
// # What it promises
//
// A failover or a flush can lose a lock that is held, and then another holder is
// let in while the first still runs: Redis locks are for efficiency. The fence
// still grows, since it is never below the server's time in microseconds; a
// resource that compares fences (see [SetFenced]) refuses the first holder.
package lockredis
